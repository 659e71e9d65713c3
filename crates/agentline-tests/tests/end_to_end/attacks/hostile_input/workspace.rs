//! Tests files of a workspace or a store, and files that the user names.

use super::user::{HostileUser, TimedOutput, until, wait};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::symlink,
    time::{Duration, Instant},
};

const RUN: &[&str] = &["run", "-o", "json", "--permission-mode", "bypass"];

fn run(user: &HostileUser, args: &[&str]) -> TimedOutput {
    user.done(&[RUN, args].concat())
}

#[test]
fn ignore_files_that_are_pipes_or_devices_are_not_read() {
    type Put = fn(&HostileUser);
    let hostile: &[(&str, Put)] = &[
        ("a link to /dev/zero", |user| symlink("/dev/zero", user.path(".gitignore")).unwrap()),
        ("a pipe", |user| user.pipe(".gitignore")),
        ("a pipe in a directory", |user| user.pipe("sub/.gitignore")),
        ("info/exclude", |user| user.pipe(".git/info/exclude")),
        (".git/config", |user| user.pipe(".git/config")),
        (".git itself", |user| user.pipe(".git")),
        ("a .git file that leads to a pipe", |user| {
            user.pipe("elsewhere/commondir");
            user.write(".git", &format!("gitdir: {}\n", user.path("elsewhere").display()));
        }),
        ("a linked .git directory", |user| {
            user.pipe("../outside/info/exclude");
            symlink("../outside", user.path(".git")).unwrap();
        }),
        ("2 MB of rules", |user| user.write(".gitignore", &"*.rs\n".repeat(420_000))),
        ("git's settings of the user", |user| user.pipe("../home/.gitconfig")),
    ];
    std::thread::scope(|scope| {
        for (name, put) in hostile {
            scope.spawn(move || {
                let user = HostileUser::headless("ok", &json!({}));
                put(&user);
                user.write("kept.rs", "fn main() {}\n");
                let done = run(&user, &["--timeout", "40", "hi"]);
                let outcome = done.is("done", 0);
                assert!(done.took < Duration::from_secs(40), "{name}: {:?}", done.took);
                assert_eq!(outcome["files"].as_array().map(Vec::len), Some(1), "{name}: {outcome:#}");
            });
        }
    });
}

#[test]
fn rules_of_regular_ignore_files_still_apply() {
    let user = HostileUser::scripted("echo x > seen.txt; echo x > hidden.log; echo x > excluded.tmp; exit 1");
    user.write(".gitignore", "*.log\n");
    user.write(".git/info/exclude", "*.tmp\n");
    let outcome = run(&user, &["hi"]).json();
    let paths: Vec<&str> =
        outcome["files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert_eq!(paths, ["seen.txt"], "{outcome:#}");
}

/// The scan takes a part of the run's time, and files that it did not see are not guessed.
#[test]
fn large_workspace_does_not_outlast_the_timeout() {
    let user = HostileUser::headless("ok", &json!({}));
    for folder in 0..40 {
        let folder = user.path(&format!("d{folder}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..250 {
            fs::write(folder.join(format!("f{file}")), "").unwrap();
        }
    }
    // Each path is matched against ten thousand rules, which takes minutes for all of them.
    let rules: String = (0..10_000).map(|n| format!("**/a{n}*b*c*{n}?/[x-z]*\n")).collect();
    user.write(".gitignore", &rules);
    let done = run(&user, &["--timeout", "20", "hi"]);
    assert!(done.took < Duration::from_secs(40), "{:?}", done.took);
    let outcome = done.json();
    assert!(["done", "timed_out"].contains(&outcome["verdict"].as_str().unwrap()), "{outcome:#}");
}

#[test]
fn pipes_named_by_the_user_are_read_within_the_timeout() {
    let user = HostileUser::live();
    user.pipe("never.json");
    for flag in ["--schema", "--attach"] {
        let done = run(&user, &[flag, "never.json", "--timeout", "3", "say hello"]);
        let outcome = done.is("timed_out", 8);
        assert_eq!(outcome["error"]["kind"], "timeout_run", "{outcome:#}");
        assert!(outcome["error"]["hint"].as_str().unwrap().contains("--timeout"), "{outcome:#}");
        assert!(done.took < Duration::from_secs(20), "{flag}: {:?}", done.took);
    }
    let zero = run(&user, &["--schema", "/dev/zero", "hi"]);
    assert_eq!(zero.code, 2, "{zero:?}");
    assert!(zero.err.contains("--schema") && zero.err.contains("larger than 4 MB"), "{}", zero.err);
    // A pipe with a writer works like a file.
    let schema = r#"{"type":"object","required":["n"]}"#;
    let args = [RUN, &["--schema", "/dev/stdin", "--repair-turns", "0", r#"say {"n": 1}"#]].concat();
    let outcome = user.done_with_input(&args, schema).is("done", 0);
    assert_eq!(outcome["output"], json!({"n": 1}), "{outcome:#}");
    let args = [RUN, &["--attach", "/dev/stdin", "echo_prompt"]].concat();
    let outcome = user.done_with_input(&args, "words from a pipe\n").is("done", 0);
    assert!(outcome["text"].as_str().unwrap().contains("words from a pipe"), "{outcome:#}");
}

#[test]
fn a_signal_ends_a_run_that_is_still_being_prepared() {
    let user = HostileUser::live();
    user.pipe("never.json");
    let started_at = Instant::now();
    let args = [RUN, &["--schema", "never.json", "--timeout", "300", "say hello"]].concat();
    let child = user.agentline(&args).spawn().unwrap();
    // Signals are handled once the signal thread exists.
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        tasks.map(name).any(|name| name.trim() == "signals")
    };
    until("the thread for signals", threads);
    std::thread::sleep(Duration::from_millis(300));
    super::user::signal(&child, "TERM");
    let asked = Instant::now();
    wait(child, started_at).is("cancelled", 143);
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}

#[test]
fn pipes_and_devices_in_the_session_store_are_skipped() {
    let user = HostileUser::headless("ok", &json!({}));
    let chats = "../home/.gemini/tmp/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/chats";
    user.pipe(&format!("{chats}/session-2026-01-01T00-00-11111111.json"));
    user.pipe(&format!("{chats}/session-2026-01-01T00-00-22222222.jsonl"));
    let zero = user.path(&format!("{chats}/session-2026-01-01T00-00-33333333.json"));
    symlink("/dev/zero", zero).unwrap();
    user.pipe("../home/.gemini/projects.json");
    user.pipe("../home/.local/share/opencode/opencode.db");
    for args in [&["sessions", "list"][..], &["sessions", "search", "hello"], &["sessions", "usage"]] {
        let done = user.done(args);
        assert!(done.took < Duration::from_secs(30), "{args:?}: {done:?}");
        assert!([0, 1].contains(&done.code), "{args:?}: {done:?}");
    }
    let run = run(&user, &["--timeout", "40", "hi"]);
    run.is("done", 0);
}

#[test]
fn workspace_settings_file_that_is_a_pipe_is_refused_immediately() {
    let user = HostileUser::headless("ok", &json!({}));
    user.pipe("agentline.toml");
    let done = run(&user, &["hi"]);
    assert!(done.took < Duration::from_secs(30), "{:?}", done.took);
    assert!(done.err.contains("agentline.toml"), "{done:?}");
}

#[test]
fn tape_is_also_played_line_by_line_from_a_pipe() {
    let user = HostileUser::headless("ok", &json!({}));
    let outcome = run(&user, &["--record", "run.tape", "hi"]).is("done", 0);
    let tape = fs::read_to_string(user.path("run.tape")).unwrap();
    let again = user.done_with_input(&["replay", "/dev/stdin", "-o", "json"], &tape).is("done", 0);
    assert_eq!((&again["text"], &again["files"]), (&outcome["text"], &outcome["files"]));
    // Invalid tapes use no memory: 4 GB do not suffice for an endless line.
    let endless = user.done(&["replay", "/dev/zero"]);
    assert_eq!(endless.code, 2, "{endless:?}");
    assert!(endless.err.contains("longer than"), "{}", endless.err);
}

/// Returns a schema in which each level refers to the next one twice, so that a value is checked 2^40 times.
fn doubling() -> serde_json::Value {
    let mut levels = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/l{}", n + 1)});
        levels.insert(format!("l{n}"), json!({"anyOf": [next, next]}));
    }
    levels.insert("l40".into(), json!({"type": "string"}));
    json!({"$ref": "#/$defs/l0", "$defs": levels})
}

#[test]
fn exponential_schema_does_not_outlast_the_timeout() {
    let user = HostileUser::live();
    user.write("doubling.json", &doubling().to_string());
    let done = run(&user, &["--schema", "doubling.json", "--repair-turns", "0", "--timeout", "3", "say [1]"]);
    done.is("timed_out", 8);
}

#[test]
fn value_with_many_errors_is_reported_briefly() {
    let user = HostileUser::live();
    user.write("list.json", r#"{"type":"array","items":{"type":"string"}}"#);
    let value = format!("[{}]", vec!["1"; 50_000].join(","));
    user.write("value.json", &value);
    let prompt = format!("say {value}");
    let done = user.done_with_input(
        &[RUN, &["--schema", "list.json", "--repair-turns", "0", "--timeout", "60", "-"]].concat(),
        &prompt,
    );
    let outcome = done.is("invalid_output", 10);
    let message = outcome["error"]["message"].as_str().unwrap();
    assert!(message.contains("and 49980 more") && message.len() < 20_000, "{}", message.len());
}
