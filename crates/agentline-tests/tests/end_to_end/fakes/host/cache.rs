//! Tests cached outcomes: a host gets the same from the cache as from the original run.

use crate::fakes::host::{stage, start_with};
use agentline::{Pool, PoolOptions, Surface, cache::Cache};
use agentline_core::CachePolicy;
use agentline_tests::{FakeStage, HostProgram, shown};
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc};

/// Starts a host whose runs all use the cache.
fn cached(stage: &Arc<FakeStage>) -> HostProgram {
    start_with(stage, &json!({"defaults": {"cache": true}}))
}

/// Runs a request with these keys, and returns its outcome and events.
fn run(program: &mut HostProgram, name: &str, params: Value) -> (Value, Vec<Value>) {
    let mut params = params;
    params["run"] = name.into();
    let id = program.send("run", params);
    let answer = program.answer(id);
    let events = program.events(name).into_iter().cloned().collect();
    (answer.get("result").unwrap_or_else(|| panic!("{answer}")).clone(), events)
}

fn is_hit(outcome: &Value) -> bool {
    outcome["cache"]["hit"].as_bool().unwrap_or_else(|| panic!("no mark: {outcome}"))
}

/// Returns the parts that a hit and the original run must share: all but the identifiers of the run.
fn plain(mut outcome: Value, events: Vec<Value>) -> (Value, Vec<Value>) {
    for mark in ["cache", "run_id", "name"] {
        outcome.as_object_mut().unwrap().remove(mark);
    }
    let events = events.into_iter().map(|mut event| {
        for mark in ["run_id", "name"] {
            event.as_object_mut().unwrap().remove(mark);
        }
        event
    });
    (outcome, events.collect())
}

/// Returns all files below a directory with their contents.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    found
}

const WORK: &str = "think hm\nsay Hello \nplan\ntool write_file new.txt one\ntool write_file old.txt changed\n\
    tool delete_file gone.txt\nrun mkdir -p deep/er && printf two > deep/er/x.sh && chmod 755 deep/er/x.sh\n\
    usage 100 20\nsay done";

fn reset_workspace(workspace: &Path) {
    for entry in fs::read_dir(workspace).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    fs::write(workspace.join("old.txt"), "original").unwrap();
    fs::write(workspace.join("gone.txt"), "to be removed").unwrap();
}

#[test]
fn cache_hit_replays_the_run_with_its_files() {
    let stage = stage();
    let workspace = stage.workspace();
    let mut program = cached(&stage);
    reset_workspace(&workspace);
    let first = run(&mut program, "made", json!({"prompt": WORK, "name": "first"}));
    assert_eq!(first.0["verdict"], "done", "{}", first.0);
    assert!(!is_hit(&first.0) && first.0["cache"]["stored_at"].is_u64(), "{}", first.0["cache"]);
    assert_eq!(first.0["files"].as_array().unwrap().len(), 4, "{}", first.0["files"]);
    let after = files(&workspace);

    reset_workspace(&workspace);
    let started = program.call("pool/status", json!({}))["pool"]["runs"].clone();
    let second = run(&mut program, "told", json!({"prompt": WORK, "name": "second"}));
    assert!(is_hit(&second.0), "{}", second.0);
    assert_eq!(second.0["cache"]["key"], first.0["cache"]["key"]);
    assert_eq!((&second.0["name"], &first.0["name"]), (&json!("second"), &json!("first")));
    assert_ne!(second.0["run_id"], first.0["run_id"]);
    assert_eq!(second.1[0]["run_id"], second.0["run_id"], "the first event belongs to this run");
    assert_eq!(plain(second.0, second.1), plain(first.0, first.1));
    assert_eq!(files(&workspace), after);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = workspace.join("deep/er/x.sh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(program.call("pool/status", json!({}))["pool"]["runs"], started, "no agent was used");

    // Another host finds the entry later; the workspace as the run left it is a different one.
    drop(program);
    let mut program = cached(&stage);
    assert!(!is_hit(&run(&mut program, "after", json!({"prompt": WORK})).0));
    reset_workspace(&workspace);
    assert!(is_hit(&run(&mut program, "again", json!({"prompt": WORK})).0));
}

#[test]
fn every_input_of_a_run_is_part_of_the_cache_key() {
    let stage = stage();
    let workspace = stage.workspace();
    fs::write(workspace.join("a.txt"), "1").unwrap();
    let mut program = cached(&stage);
    let base = json!({"prompt": "say {\"n\": 4}", "model": "m-1", "attachments": [{"name": "a.txt", "text": "x"}],
        "output_schema": {"type": "object"}});
    assert!(!is_hit(&run(&mut program, "first", base.clone()).0));
    assert!(is_hit(&run(&mut program, "second", base.clone()).0));
    let other = [
        ("prompt", json!("say {\"n\": 5}")),
        ("model", json!("m-2")),
        ("attachments", json!([{"name": "a.txt", "text": "y"}])),
        ("output_schema", json!({"type": "object", "required": ["n"]})),
        ("system_prompt", json!("say nothing")),
        ("permission_mode", json!("plan")),
        ("max_turns", json!(7)),
        ("env", json!({"A": "1"})),
        ("deny", json!(["WebFetch"])),
    ];
    for (key, value) in other {
        let mut params = base.clone();
        params[key] = value;
        let (outcome, _) = run(&mut program, key, params.clone());
        assert!(!is_hit(&outcome), "{key}: {outcome}");
        assert!(is_hit(&run(&mut program, &format!("{key} again"), params).0), "{key}");
    }
    // Settings that do not affect an answer.
    for (key, value) in [("name", json!("n")), ("timeout", json!(80)), ("messages", json!(true))] {
        let mut params = base.clone();
        params[key] = value;
        assert!(is_hit(&run(&mut program, key, params).0), "{key}");
    }
    // The files of the workspace; those that git ignores do not count.
    fs::write(workspace.join("a.txt"), "2").unwrap();
    assert!(!is_hit(&run(&mut program, "changed file", base.clone()).0));
    fs::write(workspace.join("a.txt"), "1").unwrap();
    assert!(is_hit(&run(&mut program, "as before", base.clone()).0));
    fs::write(workspace.join(".gitignore"), "ignored\n").unwrap();
    assert!(!is_hit(&run(&mut program, "new file", base.clone()).0));
    fs::write(workspace.join("ignored"), "x").unwrap();
    assert!(is_hit(&run(&mut program, "ignored file", base.clone()).0));
    // Instructions of the agent above the workspace or in its home.
    for folder in [stage.path().to_owned(), stage.path().join("home/.gemini")] {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("GEMINI.md"), "be brief").unwrap();
        assert!(!is_hit(&run(&mut program, "instructions", base.clone()).0), "{folder:?}");
    }
    // Another workspace with the same files: the answer may name the first one.
    let twin = stage.path().join("twin");
    fs::create_dir(&twin).unwrap();
    fs::write(twin.join("a.txt"), "1").unwrap();
    let mut params = base;
    params["working_dir"] = json!(twin);
    assert!(!is_hit(&run(&mut program, "twin", params).0));
}

#[test]
fn agent_version_is_part_of_the_cache_key() {
    let dir = tempfile::tempdir().unwrap();
    let wrapper = dir.path().join("agent");
    let stage = Arc::new(FakeStage::new(&wrapper));
    let write = |comment: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let text = format!("#!/bin/sh\n# {comment}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_fake-acp"));
        fs::write(&wrapper, text).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("one");
    let mut program = cached(&stage);
    let params = json!({"prompt": "say hi"});
    assert!(!is_hit(&run(&mut program, "a", params.clone()).0));
    assert!(is_hit(&run(&mut program, "b", params.clone()).0));
    write("another");
    assert!(!is_hit(&run(&mut program, "c", params).0));
}

#[test]
fn nondeterministic_runs_are_cached_only_on_request() {
    let stage = stage();
    let mut program = cached(&stage);
    let tool = json!([{"name": "clock", "description": "Tells the time"}]);
    let server = json!({"docs": {"command": "true"}});
    let impure = [
        ("functions", json!({"prompt": "say a", "tools": tool})),
        ("MCP", json!({"prompt": "say b", "mcp_servers": server})),
        ("verdict", json!({"prompt": "error -32603 broken"})),
        ("session", json!({"prompt": "say c", "session_id": "5f1f2bd4-3a43-4b8e-9d0e-6a0f2f1f0c11"})),
        ("tape", json!({"prompt": "say d", "record": stage.path().join("tape")})),
        ("outside", json!({"prompt": format!("run echo x > {}/outside\nsay e", stage.path().display())})),
    ];
    for (reason, params) in impure {
        for round in 0..2 {
            let id = program.send("run", params.clone());
            let answer = program.answer(id);
            // An agent may not be able to set its session id; then it reports that.
            let Some(outcome) = answer.get("result") else { continue };
            if reason == "outside" {
                // This file was not reported.
                continue;
            }
            assert!(!is_hit(outcome), "{reason} {round}: {outcome}");
            let message =
                outcome["cache"]["reason"].as_str().unwrap_or_else(|| panic!("{reason}: {outcome}"));
            assert!(message.contains(reason) || reason == "verdict", "{reason}: {message}");
        }
    }
    // A host that is asked may answer differently; a host that is not asked does not affect the result.
    let params = json!({"prompt": "ask write_file a.txt hi\nsay done", "permission_mode": "default", "ask_permission": true});
    let id = program.send("run", params.clone());
    let question = program.question("permission/ask");
    program.reply(&question, json!({"decision": "deny"}));
    let outcome = program.answer(id)["result"].clone();
    assert!(outcome["cache"]["reason"].as_str().unwrap().contains("permission"), "{outcome}");
    let quiet = json!({"prompt": "say quiet", "permission_mode": "default", "ask_permission": true});
    assert!(!is_hit(&run(&mut program, "q1", quiet.clone()).0));
    assert!(is_hit(&run(&mut program, "q2", quiet).0));
    // The web.
    let web = json!({"prompt": "update {\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"t1\",\"title\":\"fetch\",\"kind\":\"fetch\",\"status\":\"completed\"}\nsay done"});
    let outcome = run(&mut program, "web", web.clone()).0;
    assert!(outcome["cache"]["reason"].as_str().is_some_and(|message| message.contains("web")), "{outcome}");
    // All of these are cached on request.
    for (name, mut params) in [
        ("web", web),
        ("tools", json!({"prompt": "say a", "tools": [{"name": "clock", "description": "Tells the time"}]})),
    ] {
        params["cache"] = json!({"impure": true});
        assert!(!is_hit(&run(&mut program, name, params.clone()).0), "{name}");
        assert!(is_hit(&run(&mut program, &format!("{name} again"), params).0), "{name}");
    }
}

#[test]
fn secrets_are_never_cached() {
    let stage = stage();
    let mut program = cached(&stage);
    let keyed = |prompt: &str| json!({"prompt": prompt, "env": {"MY_API_KEY": "sk-very-secret-1234567890"}});
    let (outcome, _) = run(&mut program, "file", keyed("run printf %s \"$MY_API_KEY\" > key.txt\nsay done"));
    assert_eq!(outcome["cache"]["reason"], "it contains a secret", "{outcome}");
    let (outcome, _) = run(&mut program, "said", keyed("env MY_API_KEY"));
    assert!(outcome["cache"]["stored_at"].is_u64(), "{outcome}");
    let stored = files(&stage.path().join("home/.cache/agentline/outcomes"));
    assert_eq!(stored.len(), 1);
    assert!(!stored[0].1.contains("very-secret"), "{stored:?}");
}

#[test]
fn cache_is_listed_cleared_repaired_and_expired() {
    let stage = stage();
    let dir = stage.path().join("answers");
    let mut program = start_with(&stage, &json!({"defaults": {"cache": {"dir": dir}}}));
    let hi = json!({"prompt": "say hi"});
    assert!(!is_hit(&run(&mut program, "a", hi.clone()).0));
    let stats = program.call("cache/stats", json!({}));
    assert_eq!((&stats["entries"], &stats["dir"]), (&json!(1), &json!(dir)), "{stats}");
    assert_eq!(program.call("cache/stats", json!({"dir": "elsewhere"}))["entries"], 0);
    // A run can bypass the cache.
    let outcome = run(&mut program, "off", json!({"prompt": "say hi", "cache": false})).0;
    assert!(outcome.get("cache").is_none(), "{outcome}");
    // An expired entry is replaced by a new one.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let young = json!({"prompt": "say hi", "cache": {"max_age_s": 1, "dir": dir}});
    assert!(is_hit(&run(&mut program, "old", hi.clone()).0));
    assert!(!is_hit(&run(&mut program, "too old", young).0));
    // A damaged entry is replaced.
    let entry = || files(&dir)[0].0.clone();
    for damage in [&b""[..], b"agentline.cache/1 00\n{}", &[0xff; 5000]] {
        let stored = walk(&dir);
        assert_eq!(stored.len(), 1, "{}", entry());
        fs::write(&stored[0], damage).unwrap();
        assert!(!is_hit(&run(&mut program, "damaged", hi.clone()).0));
        assert!(is_hit(&run(&mut program, "mended", hi.clone()).0));
    }
    assert_eq!(program.call("cache/clear", json!({}))["entries"], 1);
    assert_eq!(program.call("cache/stats", json!({}))["entries"], 0);
    assert!(!is_hit(&run(&mut program, "cleared", hi).0));
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn library_uses_the_cache_and_temporary_workspaces_are_equivalent() {
    let stage = stage();
    let agentline = stage.agentline();
    let request = |prompt: &str| stage.request(prompt).surface(Surface::Acp).cache(CachePolicy::on());
    let mut temporary = request("tool write_file a.txt hi\nsay done").temporary_workspace(true);
    temporary.working_dir = None;
    for hit in [false, true] {
        let outcome = agentline.run(temporary.clone()).await.unwrap().outcome().await;
        assert_eq!(outcome.cache.as_ref().map(|mark| mark.hit), Some(hit), "{}", shown(&outcome));
        assert_eq!(outcome.files.len(), 1);
    }
    // A cold run and one on a warm agent over the same surface are equivalent.
    let pool = Pool::new(agentline.clone(), PoolOptions::default());
    let live = request("say live");
    let cold = agentline.run(live.clone()).await.unwrap().outcome().await;
    assert!(!cold.cache.unwrap().hit);
    let warm = pool.run(live).await.unwrap().outcome().await;
    assert!(warm.text == "live" && warm.cache.as_ref().unwrap().hit, "{}", shown(&warm));
    // Cancelled and failed runs are not cached.
    let long = agentline.run(request("say a\nsleep 60000")).await.unwrap();
    long.cancel();
    let stopped = long.outcome().await;
    assert!(stopped.cache.unwrap().reason.unwrap().contains("cancelled"));
    let cache = Cache::of(&agentline, &CachePolicy::on());
    assert_eq!(cache.stats().entries, 2);
    cache.clear().unwrap();
    pool.close().await;
}

#[test]
fn two_hosts_share_one_cache() {
    let stage = stage();
    let prompts: Vec<String> = (0..40).map(|n| format!("say answer {n}")).collect();
    let mut hosts = [cached(&stage), cached(&stage)];
    // Both start the same runs at the same time, the second in reverse order, and one of them clears the
    // cache.
    let ids: Vec<Vec<u64>> = hosts
        .iter_mut()
        .enumerate()
        .map(|(number, host)| {
            let send = |prompt: &String| {
                host.send("run", json!({"prompt": prompt, "permission_mode": "plan", "events": false}))
            };
            if number == 0 {
                prompts.iter().map(send).collect()
            } else {
                prompts.iter().rev().map(send).collect()
            }
        })
        .collect();
    hosts[0].call("cache/clear", json!({}));
    for (number, (host, ids)) in hosts.iter_mut().zip(ids).enumerate() {
        for (n, id) in ids.into_iter().enumerate() {
            let n = if number == 0 { n } else { prompts.len() - 1 - n };
            let outcome = host.answer(id)["result"].clone();
            assert_eq!(outcome["text"], format!("answer {n}"), "{outcome}");
        }
    }
    for (n, prompt) in prompts.iter().enumerate() {
        for host in &mut hosts {
            let outcome = host.call("run", json!({"prompt": prompt, "permission_mode": "plan"}));
            assert_eq!(outcome["text"], format!("answer {n}"));
        }
        let outcome = hosts[0].call("run", json!({"prompt": prompt, "permission_mode": "plan"}));
        assert!(is_hit(&outcome), "{outcome}");
    }
}

#[test]
fn command_line_shows_cache_hits_and_contents() {
    let stage = stage();
    let agentline = |args: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
            .args(args)
            .env_clear()
            .envs(stage.variables())
            .current_dir(stage.workspace())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let run = |more: &[&str]| -> Value {
        let args = ["run", "--cache", "--surface", "acp", "--quiet-period", "0", "-o", "json", "say hello"];
        serde_json::from_str(&agentline(&[&args[..], more].concat())).unwrap()
    };
    let (first, second) = (run(&[]), run(&[]));
    assert!(first["text"] == "hello" && !is_hit(&first), "{first}");
    assert!(second["text"] == "hello" && is_hit(&second), "{second}");
    let impure = run(&["--mcp", "docs=true"]);
    assert_eq!(impure["cache"]["reason"], "it uses MCP servers", "{impure}");
    let stats: Value = serde_json::from_str(&agentline(&["cache", "stats", "-o", "json"])).unwrap();
    assert_eq!(stats["entries"], 1, "{stats}");
    let cleared = agentline(&["cache", "clear"]);
    assert!(cleared.starts_with("cleared ") && cleared.contains(": 1 entry,"), "{cleared}");
    assert!(agentline(&["cache", "stats"]).contains(": 0 entries"));
    assert!(!is_hit(&run(&[])));
}
