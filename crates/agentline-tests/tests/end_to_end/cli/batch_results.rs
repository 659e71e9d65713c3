//! Tests which results of `agentline batch` count, with a fake agent: after changes of the suite or the user's settings,
//! after `grade`, `--rerun` and retries, and in comparisons of experiments.

use crate::cli::batch::{batch, lines, report, suite, user};
use crate::cli::user::User;
use agentline_tests::{exit_of, wait_until};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
};

/// Returns the counts of the only variant: all runs, and those that passed.
fn counts(report: &Value) -> [u64; 2] {
    ["runs", "passed"].map(|key| report["variants"]["default"][key].as_u64().unwrap())
}

#[test]
fn report_is_about_the_suite_that_was_run_last() {
    let user = user();
    let with = |b: &str| {
        suite(
            &user,
            &format!(
                "checks: [{{contains: yes}}]\ncases:\n- {{id: a, prompt: say yes}}\n- {{id: b, prompt: say {b}}}\n"
            ),
        );
    };
    with("no");
    assert_eq!(batch(&user, &["--repeat", "2"]).code, 1);
    assert_eq!(counts(&report(&user)), [4, 2]);
    // The case `b` is another one now, and there is one attempt only.
    with("yes");
    assert_eq!(batch(&user, &[]).code, 0);
    let found = report(&user);
    assert_eq!((counts(&found), &found["left_out"]), ([2, 2], &3.into()), "{found:#}");
    let text = user.agentline(&["report", "exp"]).out;
    assert!(text.contains("3 results in the directory are left out"), "{text}");
    // A filter chooses what to run, not what to report.
    assert_eq!(batch(&user, &["--filter", "a", "--rerun", "all"]).code, 0);
    assert_eq!(counts(&report(&user)), [2, 2]);
    // The user's own settings influence a run as well.
    let config = user.read("../home/.config/agentline/config.toml");
    user.write("../home/.config/agentline/config.toml", &format!("max_turns = 7\n{config}"));
    let again = batch(&user, &["-o", "jsonl"]);
    assert_eq!((again.code, again.out.lines().count()), (0, 2), "{}", again.err);
    assert_eq!(counts(&report(&user)), [2, 2]);
}

#[test]
fn grade_finds_the_results_of_a_batch_with_flags_and_the_files_of_empty_workspaces() {
    let user = user();
    let with = |prompt: &str, checks: &str| {
        user.write(
            "suite.yaml",
            &format!(
                "defaults: {{permission_mode: bypass, quiet_period_ms: 0}}\ncases:\n\
                 - {{id: a, prompt: \"run echo 4 > out.txt\\nsay {prompt}\", checks: {checks}}}\n"
            ),
        );
    };
    with("done", "[{file_exists: out.txt}]");
    let done = batch(&user, &["-a", "fake", "--repeat", "2"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let grade = || user.agentline(&["batch", "grade", "suite.yaml", "--dir", "exp"]);
    with("done", "[{file_contains: {path: out.txt, text: \"4\"}}, {command: \"test -f out.txt\"}]");
    let graded = grade();
    assert_eq!(graded.code, 0, "{}{}", graded.out, graded.err);
    assert_eq!(counts(&report(&user)), [2, 2]);
    let text = user.read("suite.yaml");
    let graded = user.agentline_with_input(&["batch", "grade", "-", "--dir", "exp"], text.as_bytes());
    assert_eq!(graded.code, 0, "{}{}", graded.out, graded.err);
    with("done", "[{file_contains: {path: out.txt, text: \"5\"}}]");
    assert_eq!(grade().code, 1);
    // What the agent was asked is another thing, so these are not its results.
    with("other", "[]");
    let refused = grade();
    assert_eq!(refused.code, 2, "{}", refused.out);
    assert!(refused.err.contains("matches none of the 2 results"), "{}", refused.err);
    // Files whose state is not stored are not taken for unchanged ones.
    with("done", "[{file_exists: out.txt}]");
    let changes = Command::new("find")
        .args([user.path("exp").to_str().unwrap(), "-name", "changes.jsonl", "-delete"])
        .status();
    assert!(changes.unwrap().success());
    assert_eq!(grade().code, 12);
    assert!(report(&user).to_string().contains("its changes are not stored"));
}

#[test]
fn judge_with_another_rubric_has_not_decided() {
    let user = user();
    let with = |end: &str| {
        // The fake judge carries out the lines of its prompt, the rubric among them.
        let rubric = format!("say {{\"passed\": true, \"reason\": \"{} {end}\"}}", "long ".repeat(30));
        suite(
            &user,
            &format!(
                "cases:\n- {{id: a, prompt: hello, checks: [{{judge: {{agent: fake, rubric: '{rubric}'}}}}]}}\n"
            ),
        );
    };
    with("one");
    assert_eq!(batch(&user, &[]).code, 0);
    let grade = || user.agentline(&["batch", "grade", "suite.yaml", "--dir", "exp"]);
    assert_eq!(grade().code, 0);
    with("two");
    let graded = grade();
    assert!(graded.code == 12 && graded.out.contains("rubric is new"), "{}{}", graded.out, graded.err);
}

#[test]
fn interrupted_rerun_keeps_the_old_results_and_is_resumed() {
    let user = user();
    let marks = user.path("marks");
    fs::create_dir(&marks).unwrap();
    let (block, started) = (marks.join("block"), marks.join("started"));
    let setup =
        format!("test ! -e '{}' || {{ touch '{}'; sleep 1000; }}", block.display(), started.display());
    suite(
        &user,
        &format!(
            "cases:\n- {{id: a, prompt: say done}}\n- {{id: b, prompt: say done}}\n\
             - {{id: c, prompt: say done, setup: \"{setup}\"}}\n"
        ),
    );
    assert_eq!(batch(&user, &[]).code, 0);
    fs::write(&block, "").unwrap();
    let mut child = user
        .command(&["batch", "suite.yaml", "--dir", "exp", "-j", "1", "--rerun", "all"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the third run", || started.exists());
    for signal in ["INT", "TERM"] {
        let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
    let code = exit_of(&mut child, "the end of the batch").code();
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
    assert_eq!(counts(&report(&user)), [3, 3]);
    fs::remove_file(&block).unwrap();
    let rest = batch(&user, &["--rerun", "all", "-o", "jsonl"]);
    let run: Vec<String> = lines(&rest).into_keys().map(|(case, ..)| case).collect();
    assert_eq!((rest.code, run), (0, vec!["c".to_owned()]), "{}", rest.err);
    // The next one begins anew.
    let all = batch(&user, &["--rerun", "all", "-o", "jsonl"]);
    assert_eq!((all.code, all.out.lines().count()), (0, 3), "{}", all.err);
}

#[test]
fn repeats_never_share_a_cached_result() {
    let user = user();
    user.write(
        "suite.yaml",
        "defaults: {agent: fake, quiet_period_ms: 0, cache: true}\nrepeat: 2\ncases:\n- {id: a, prompt: say done}\n",
    );
    let done = user.agentline(&["batch", "suite.yaml", "--dir", "exp", "-j", "1", "-o", "jsonl"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let caches: Vec<Value> =
        lines(&done).into_values().map(|line| line["outcome"]["cache"].clone()).collect();
    assert!(caches.iter().all(|cache| cache["hit"] == false && cache["key"].is_string()), "{caches:?}");
    assert_ne!(caches[0]["key"], caches[1]["key"]);
}

#[test]
fn cached_results_are_reused_in_another_experiment_with_their_files() {
    let user = user();
    user.write("template/in.txt", "template\n");
    user.write(
        "suite.yaml",
        "defaults: {agent: fake, quiet_period_ms: 0, permission_mode: bypass, cache: true}\nrepeat: 2\ncases:\n\
         - {id: a, workspace: template, prompt: \"run cat in.txt > out.txt\\nsay done\", \
           checks: [{file_equals: {path: out.txt, text: \"template\\n\"}}, {only_changed: out.txt}]}\n\
         - {id: b, prompt: \"run echo 1 > out.txt\\nsay done\", checks: [{file_exists: out.txt}]}\n",
    );
    let run = |dir: &str, flags: &[&str]| {
        let args = ["batch", "suite.yaml", "--dir", dir, "-j", "1", "-o", "jsonl"];
        let done = user.agentline(&[&args, flags].concat());
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        lines(&done)
    };
    let hits = |lines: &BTreeMap<_, Value>| -> Vec<bool> {
        lines.values().map(|line| line["outcome"]["cache"]["hit"].as_bool().unwrap()).collect()
    };
    let first = run("one", &["--isolate", "copy"]);
    assert_eq!(hits(&first), [false; 4], "{first:?}");
    // Neither the experiment, the lane nor the kind of isolation is part of the key.
    for (dir, flags) in [
        ("two", &["--isolate", "copy"][..]),
        ("three", &[]),
        ("one", &["--isolate", "copy", "--rerun", "all"]),
    ] {
        let again = run(dir, flags);
        assert_eq!(hits(&again), [true; 4], "{dir}: {again:?}");
        for (run, line) in &again {
            assert_eq!(line["outcome"]["cache"]["key"], first[run]["outcome"]["cache"]["key"]);
            assert_ne!(line["outcome"]["cwd"], first[run]["outcome"]["cwd"], "{dir}");
        }
    }
    user.write("template/in.txt", "other\n");
    let changed = user.agentline(&["batch", "suite.yaml", "--dir", "four", "-j", "1", "-o", "jsonl"]);
    assert_eq!(hits(&lines(&changed)), [false, false, true, true], "{}", changed.err);
}

#[cfg(target_os = "linux")]
#[test]
fn grade_uses_the_commit_that_a_branch_had_in_the_batch() {
    use crate::cli::overlay;

    let user = user();
    user.write("repository/in.txt", "1\n");
    let repository = user.path("repository");
    overlay::git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    overlay::commit(&repository);
    let with = |check: &str| {
        suite(
            &user,
            &format!(
                "workspace: {{git: repository, rev: main}}\ncases:\n\
                 - {{id: a, prompt: \"run cat in.txt > out.txt\\nsay done\", checks: [{check}]}}\n\
                 - {{id: b, prompt: \"run cat in.txt > out.txt\\nsay done\", checks: [{check}]}}\n"
            ),
        );
    };
    with("{file_exists: out.txt}");
    assert_eq!(batch(&user, &[]).code, 0);
    // One case of two runs again, but the commits of both are known.
    assert_eq!(batch(&user, &["--filter", "a", "--rerun", "all"]).code, 0);
    user.write("repository/in.txt", "2\n");
    overlay::commit(&repository);
    with("{command: \"cmp in.txt out.txt\"}, {file_equals: {path: in.txt, text: \"1\\n\"}}");
    let graded = user.agentline(&["batch", "grade", "suite.yaml", "--dir", "exp"]);
    assert_eq!(graded.code, 0, "{}{}", graded.out, graded.err);
    assert_eq!(counts(&report(&user)), [2, 2]);
    // All of it can move to another place together.
    fs::create_dir(user.path("moved")).unwrap();
    for name in ["suite.yaml", "repository", "exp"] {
        fs::rename(user.path(name), user.path("moved").join(name)).unwrap();
    }
    let graded = user.agentline(&["batch", "grade", "moved/suite.yaml", "--dir", "moved/exp"]);
    assert_eq!(graded.code, 0, "{}{}", graded.out, graded.err);
    let text = user.agentline(&["report", "moved/exp"]).out;
    assert!(text.contains("2/2"), "{text}");
}

#[test]
fn retried_tries_count_in_the_cost() {
    let user = user();
    let failure = r#"{\"error\":{\"code\":503,\"message\":\"overloaded\",\"status\":\"UNAVAILABLE\"}}"#;
    suite(
        &user,
        &format!(
            "limits: {{cost: 0.2}}\ncases:\n\
             - {{id: a, prompt: \"used 10 100 0.25\\nerror 503 {failure}\"}}\n- {{id: b, prompt: say done}}\n"
        ),
    );
    let done = user.agentline(&["batch", "suite.yaml", "--dir", "exp", "-j", "1", "-o", "jsonl"]);
    assert_eq!(done.code, 7, "{}{}", done.out, done.err);
    let report = report(&user);
    let run = &report["cases"][0]["runs"][0];
    let tries = run["tries"].as_f64().unwrap();
    // The cost of the first try reaches the limit, so there is no third one.
    assert!(tries == 2.0 && run["class"] == "infrastructure", "{run:#}");
    let variant = &report["variants"]["default"];
    assert_eq!(variant["cost_usd"].as_f64(), Some(0.25 * tries), "{variant:#}");
}

#[test]
fn page_of_two_experiments_shows_the_details_of_both() {
    let user = user();
    let answer = user.path("answer.txt");
    suite(
        &user,
        &format!("cases:\n- {{id: a, prompt: \"run cat '{}' > out.txt\\nsay done\"}}\n", answer.display()),
    );
    let run = |user: &User, dir: &str, text: &str| {
        user.write("answer.txt", text);
        let done = user.agentline(&["batch", "suite.yaml", "--dir", dir]);
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    };
    run(&user, "exp", "content of A\n");
    run(&user, "other", "content of B\n");
    let page = user.agentline(&["report", "exp", "other", "-o", "html"]).out;
    assert!(page.contains("content of A") && page.contains("content of B"), "{page}");
}
