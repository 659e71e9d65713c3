//! Tests that an agent in a batch can neither harm the host, nor keep hidden files, nor avoid its checks.

use crate::cli::batch::{left, lines, suite, user};
use crate::cli::overlay;
use crate::cli::user::{Done, User};
use serde_json::Value;
use std::{collections::BTreeMap, fs};

/// Runs one job at a time and returns its lines by case, of the first attempt.
fn batch(user: &User, flags: &[&str]) -> Done {
    let args = ["batch", "suite.yaml", "--dir", "exp", "-j", "1", "-o", "jsonl"];
    user.agentline(&[&args, flags].concat())
}

fn line<'a>(lines: &'a BTreeMap<(String, String, u64), Value>, case: &str) -> &'a Value {
    &lines[&(case.to_owned(), "default".to_owned(), 0)]
}

/// Returns the number of the try that was committed.
fn tries_of(line: &Value) -> &str {
    line["dir"].as_str().and_then(|dir| dir.rsplit('/').next()).unwrap()
}

/// Returns the ways of isolation that work here.
pub(super) fn methods(user: &User) -> Vec<&'static str> {
    suite(user, "workspace: template\ncases: [{id: first, prompt: \"say done\"}]\n");
    let tried = batch(user, &["--isolate", "overlay"]);
    if overlay::is_possible(&tried) { vec!["overlay", "copy"] } else { vec!["copy"] }
}

#[test]
fn link_in_the_place_of_a_workspace_does_not_lead_the_next_run_elsewhere() {
    let user = user();
    user.write("template/in.txt", "template\n");
    user.write("precious/kept.txt", "kept\n");
    let precious = fs::canonicalize(user.path("precious")).unwrap();
    let attack =
        format!("run mv ../workspace ../moved; ln -s {} ../workspace\\nsay done", precious.display());
    suite(
        &user,
        &format!(
            "repeat: 2\ncases:\n\
             - {{id: copy, workspace: template, prompt: \"{attack}\", checks: [{{not: {{file_exists: kept.txt}}}}]}}\n\
             - {{id: none, prompt: \"{attack}\", checks: [{{command: \"test ! -e kept.txt\"}}]}}\n"
        ),
    );
    let done = batch(&user, &["--isolate", "copy"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(lines(&done).len(), 4);
    assert_eq!(user.read("precious/kept.txt"), "kept\n");
    assert_eq!(user.read("template/in.txt"), "template\n");
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}

#[test]
fn code_of_an_agent_in_checks_keeps_nothing_for_the_next_run() {
    let user = user();
    user.write("template/in.txt", "template\n");
    user.write("answers/hidden.txt", "secret-42\n");
    user.write("answers/README.md", "x\n");
    let folder = fs::canonicalize(user.path("..")).unwrap();
    let at = folder.display();
    // What the agent wrote runs in the check and in `teardown`, and looks for places that the next run can read.
    let script = [
        format!("cat hidden.txt > {at}/leak.txt"),
        "cat hidden.txt > $HOME/leak.txt".to_owned(),
        "cat hidden.txt > $TMPDIR/leak.txt".to_owned(),
        "cat hidden.txt > ../leak.txt".to_owned(),
        format!("cat hidden.txt > {at}/ws/template/leak.txt"),
        format!("echo x >> {at}/ws/answers/hidden.txt"),
        format!("echo x >> {at}/ws/suite.yaml"),
        format!("echo x >> {at}/ws/exp/experiment.sqlite"),
        format!("ls -A {at}/ws/exp >> listed.txt"),
        "cat hidden.txt > $(mktemp) && echo x > written.txt".to_owned(),
    ];
    let script: String = script.iter().map(|line| format!("      run echo '{line}' >> check.sh\n")).collect();
    suite(
        &user,
        &format!(
            "workspace: template\nrepeat: 2\nhidden: answers\nteardown: sh check.sh\ncases:\n  - id: a\n    prompt: |\n\
             \x20     run grep -rs secret-4''2 {at} .. > found.txt; true\n\
             \x20     run pwd > where.txt\n\
             \x20     run (echo x > ../left.txt) 2> beside.txt; ls .. >> beside.txt\n{script}      say done\n    checks:\n\
             \x20     - command: sh check.sh; test -f written.txt && test ! -s listed.txt\n\
             \x20     - command: grep -q secret-4''2 hidden.txt && test -f found.txt && test ! -s found.txt\n\
             \x20     - file_contains: {{path: beside.txt, text: Read-only}}\n\
             \x20     - command: test $(tail -n 1 beside.txt) = workspace\n\
             \x20     - command: test -f $(cat where.txt)/hidden.txt && touch $(cat where.txt)/x && test -f x\n"
        ),
    );
    let before = user.read("suite.yaml");
    let done = batch(&user, &["--isolate", "overlay"]);
    if !overlay::is_possible(&done) {
        return;
    }
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    for line in lines(&done).values() {
        assert_eq!((&line["class"], &line["hidden_covered"]), (&"passed".into(), &true.into()), "{line:#}");
    }
    // The script also ran in `teardown`, where there is no hidden file: a leak has content.
    let leaks = ["../leak.txt", "../home/leak.txt", "../tmp/leak.txt"];
    for leak in leaks {
        assert_eq!(fs::read_to_string(user.path(leak)).unwrap_or_default(), "", "{leak}");
    }
    assert!(!user.path("template/leak.txt").exists());
    assert_eq!(user.read("answers/hidden.txt"), "secret-42\n");
    assert_eq!(user.read("suite.yaml"), before);
    let report = user.agentline(&["report", "exp", "-o", "json"]);
    assert_eq!(report.code, 0, "{}", report.err);
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}

#[test]
fn files_that_the_agent_makes_git_ignore_have_changed() {
    let user = user();
    user.write("template/.gitignore", "*.log\n");
    user.write("template/in.txt", "template\n");
    let attacks = [
        ("exclude", "git init -q; mkdir -p .git/info; echo '*' > .git/info/exclude", "extra.txt"),
        ("rules", "echo '*' > .gitignore", "extra.txt"),
        ("deep", "mkdir d; echo '*' > d/.gitignore; echo x > d/extra.txt", "d/extra.txt"),
        (
            "assumed",
            "git init -q; git add -A; git update-index --assume-unchanged in.txt; echo x > in.txt",
            "in.txt",
        ),
    ];
    let mut cases: String = attacks
        .iter()
        .map(|(id, command, _)| {
            format!(
                "- {{id: {id}, prompt: \"run {command}; echo x > extra.txt; echo y > out.txt\\nsay done\"}}\n"
            )
        })
        .collect();
    cases += "- {id: fair, prompt: \"run echo y > out.txt; echo x > build.log\\nsay done\"}\n";
    for method in methods(&user) {
        suite(&user, &format!("workspace: template\nchecks: [{{only_changed: out.txt}}]\ncases:\n{cases}"));
        let done = batch(&user, &["--isolate", method, "--rerun", "all"]);
        assert_eq!(done.code, 1, "{method}: {}{}", done.out, done.err);
        let lines = lines(&done);
        assert_eq!(line(&lines, "fair")["class"], "passed", "{method}");
        for (id, _, name) in &attacks {
            let line = line(&lines, id);
            assert_eq!(line["class"], "failed", "{method}: {line:#}");
            let files = line["outcome"]["files"].as_array().unwrap();
            assert!(files.iter().any(|row| row["path"] == *name), "{method} {id}: {files:?}");
        }
        // Predictions have every changed file as well, but not what the template ignores.
        let predictions = user.agentline(&["report", "exp", "-o", "predictions"]).out;
        let patches: BTreeMap<String, String> = predictions
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|line| {
                [&line["instance_id"], &line["model_patch"]].map(|text| text.as_str().unwrap().to_owned())
            })
            .map(|[id, patch]| (id, patch))
            .collect();
        for (id, _, name) in &attacks {
            let patch = &patches[*id];
            assert!(
                patch.contains(&format!("+++ b/{name}\n@@")) && !patch.contains("/.git/"),
                "{method}: {patch}"
            );
        }
        let fair = "diff --git a/out.txt b/out.txt\nnew file mode 100644\n--- /dev/null\n+++ b/out.txt\n@@ -0,0 +1 @@\n+y\n";
        assert_eq!(patches["fair"], fair, "{method}");
        // The stored outcome is enough to grade again.
        let graded = user.agentline(&["batch", "grade", "suite.yaml", "--dir", "exp"]);
        assert_eq!(graded.code, 1, "{}{}", graded.out, graded.err);
    }
}

#[test]
fn agent_cannot_prevent_its_checks_by_permissions() {
    let user = user();
    user.write("template/in.txt", "template\n");
    user.write("answers/hidden/hidden.txt", "secret\n");
    let attack =
        "run mkdir hidden dir; echo 1 > dir/x; echo 1 > out.txt; chmod 000 dir/x dir hidden out.txt in.txt .";
    suite(
        &user,
        &format!(
            "workspace: template\nhidden: answers\ncases:\n\
             - {{id: a, prompt: \"{attack}\\nsay done\", checks: [{{command: \"test -f hidden/hidden.txt -a -s dir/x\"}}, \
               {{file_contains: {{path: out.txt, text: \"2\"}}}}]}}\n"
        ),
    );
    for method in ["copy", "overlay"] {
        let args = ["batch", "suite.yaml", "--dir", method, "-j", "1", "--isolate", method, "-o", "jsonl"];
        // Root can read everything.
        let Some(done) = overlay::as_ordinary_user(&user, &args).filter(overlay::is_possible) else { return };
        assert_eq!(done.code, 1, "{}{}", done.out, done.err);
        let lines = lines(&done);
        let line = line(&lines, "a");
        assert_eq!(line["class"], "failed", "{line:#}");
        let passed: Vec<bool> =
            line["checks"].as_array().unwrap().iter().map(|row| row["passed"].as_bool().unwrap()).collect();
        assert_eq!(passed, [true, false], "{line:#}");
    }
}

#[test]
fn file_for_which_the_disk_has_no_space_counts_against_the_agent() {
    let user = user();
    user.write("template/in.txt", "template\n");
    user.write("answers/hidden.txt", "secret\n");
    suite(
        &user,
        "hidden: answers\nchecks: [{command: \"test -f hidden.txt\"}]\ncases:\n\
         - {id: template, workspace: template, prompt: \"run truncate -s 15T big\\nsay done\"}\n\
         - {id: none, prompt: \"run truncate -s 15T big\\nsay done\"}\n",
    );
    let done = batch(&user, &["--isolate", "copy", "--keep-failed"]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let lines = lines(&done);
    for id in ["template", "none"] {
        let line = line(&lines, id);
        assert_eq!(line["class"], "failed", "{line:#}");
        let detail = line["checks"][0]["detail"].as_str().unwrap();
        assert!(detail.contains("cannot be copied") && detail.contains("bytes free"), "{detail}");
        let files = line["outcome"]["files"].as_array().unwrap();
        assert!(files.iter().any(|row| row["path"] == "big"), "{files:?}");
        // The file is neither stored nor kept, and grading says so.
        let dir = user.path("exp").join(line["dir"].as_str().unwrap());
        assert!(dir.join("outcome.json").exists());
        assert!(!dir.join("changes.jsonl").exists() && !dir.join("workspace/big").exists());
    }
    assert!(user.agentline(&["report", "exp"]).out.contains("changes of 2 runs are not stored"));
}

#[test]
fn check_that_cannot_be_evaluated_says_nothing_about_the_agent() {
    let user = user();
    let cases = [
        ("slow", "{command: {run: sleep 100, timeout: 0.2}}", "failed"),
        ("not-slow", "{not: {command: {run: sleep 100, timeout: 0.2}}}", "infrastructure"),
        ("missing", "{command: no-such-program-x}", "infrastructure"),
        ("not-missing", "{not: {command: no-such-program-x}}", "infrastructure"),
        ("not-false", "{not: {command: \"false\"}}", "passed"),
        ("own-script", "{command: ./solution.sh}", "failed"),
    ];
    let text: String = cases
        .iter()
        .map(|(id, check, _)| format!("- {{id: {id}, prompt: \"say done\", checks: [{check}]}}\n"))
        .collect();
    suite(&user, &format!("cases:\n{text}"));
    let done = batch(&user, &[]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let lines = lines(&done);
    for (id, _, class) in cases {
        let line = line(&lines, id);
        assert_eq!(line["class"], class, "{line:#}");
        if class == "infrastructure" {
            assert!(line["message"].as_str().unwrap().contains("cannot be evaluated"), "{line}");
        }
    }
}

#[test]
fn settings_of_a_judge_are_checked_before_anything_starts() {
    let user = user();
    suite(
        &user,
        "cases:\n- id: a\n  prompt: \"say done\"\n  checks:\n  - judge:\n      rubric: x\n      agnt: fake\n",
    );
    let done = batch(&user, &[]);
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(done.err.contains("`cases[0].checks[0].judge.agnt`"), "{}", done.err);
    assert!(done.err.contains("suite.yaml:9"), "{}", done.err);
    suite(
        &user,
        "cases:\n- {id: a, prompt: \"say done\", checks: [{judge: {rubric: x, agent: unknown-agent}}]}\n",
    );
    let done = batch(&user, &[]);
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(done.err.contains("unknown-agent"), "{}", done.err);
    assert!(!user.path("exp/runs").exists());
}

#[test]
fn teardown_follows_every_try() {
    let user = user();
    let torn = user.path("torn.txt").display().to_string();
    let count = user.path("count").display().to_string();
    suite(
        &user,
        &format!(
            "teardown: echo torn >> {torn}\ncases:\n\
             - {{id: retried, prompt: \"refused 1 {count} busy\\nsay done\"}}\n\
             - {{id: wrong, prompt: \"say no\", checks: [{{equals: yes}}]}}\n\
             - {{id: broken, setup: exit 3, prompt: \"say done\"}}\n"
        ),
    );
    let done = batch(&user, &[]);
    let lines = lines(&done);
    for (case, class, tries) in
        [("retried", "passed", "2"), ("wrong", "failed", "1"), ("broken", "infrastructure", "1")]
    {
        let line = line(&lines, case);
        assert_eq!((&line["class"], tries_of(line)), (&class.into(), tries), "{line:#}");
    }
    assert_eq!(user.read("torn.txt").lines().count(), 4);
}

#[test]
fn shared_workspace_that_has_changed_is_not_used_for_a_retry() {
    let user = user();
    user.write("template/in.txt", "template\n");
    let count = |name: &str| user.path(name).display().to_string();
    suite(
        &user,
        &format!(
            "share_workspace: true\nworkspace: template\ncases:\n\
             - {{id: same, prompt: \"refused 1 {} busy\\nsay done\"}}\n\
             - {{id: changed, prompt: \"run echo x >> in.txt\\nrefused 1 {} busy\\nsay done\"}}\n",
            count("count-a"),
            count("count-b"),
        ),
    );
    let done = batch(&user, &[]);
    let lines = lines(&done);
    for (case, class, tries) in [("same", "passed", "2"), ("changed", "infrastructure", "1")] {
        let line = line(&lines, case);
        assert_eq!((&line["class"], tries_of(line)), (&class.into(), tries), "{line:#}");
    }
    assert_eq!(user.read("template/in.txt"), "template\nx\n");
}

#[test]
fn refused_requests_reduce_the_number_of_active_runs() {
    let user = user();
    let at = user.path(".").display().to_string();
    let cases: String = (0..4)
        .map(|n| {
            format!(
                "- {{id: c{n}, prompt: \"refused 1 {at}/count-{n} busy\\nrun echo + >> {at}/log; sleep 0.3; \
                 echo - >> {at}/log\\nsay done\"}}\n"
            )
        })
        .collect();
    suite(&user, &format!("cases:\n{cases}"));
    let done = user.agentline(&["batch", "suite.yaml", "--dir", "exp", "-j", "4", "-o", "jsonl"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(lines(&done).values().all(|line| tries_of(line) == "2"), "{}", done.out);
    let (mut active, mut most) = (0, 0);
    for mark in user.read("log").lines() {
        active += if mark == "+" { 1 } else { -1 };
        most = most.max(active);
    }
    assert!(most <= 2, "{}", user.read("log"));
}

#[test]
fn batches_that_fetch_one_revision_at_once_do_not_disturb_each_other() {
    let user = user();
    user.write("repository/in.txt", "1\n");
    let repository = user.path("repository");
    overlay::git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    overlay::commit(&repository);
    suite(
        &user,
        "workspace: {git: repository, rev: main}\nrepeat: 4\ncases:\n\
         - {id: a, prompt: \"run cat in.txt > out.txt\\nsay done\", checks: [{file_equals: {path: out.txt, text: \"1\\n\"}}]}\n",
    );
    let started: Vec<_> = ["one", "two"]
        .map(|dir| {
            let args = ["batch", "suite.yaml", "--dir", dir, "-j", "2", "-o", "jsonl", "--isolate", "copy"];
            user.start(&args)
        })
        .into_iter()
        .collect();
    for child in started {
        let done: Done = agentline_tests::output_of(child, "the end of the batch").into();
        assert_eq!((done.code, lines(&done).len()), (0, 4), "{}{}", done.out, done.err);
    }
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}
