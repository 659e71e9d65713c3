//! Tests `agentline run --isolate` and `agentline undo`.

use crate::cli::batch::user;
use crate::cli::user::{Done, User};
use std::{fs, io::Write as _, process::Command};

/// Runs the fake agent in the directory `project`, isolated in this way.
fn run(user: &User, how: &str, script: &str, flags: &[&str]) -> Done {
    let isolate = format!("--isolate={how}");
    let args = ["run", "-a", "fake", "--permission-mode", "bypass", "-C", "project", &isolate, script];
    user.agentline(&[&args, flags].concat())
}

/// Creates a project in a Git repository.
fn project(user: &User) {
    for (path, text) in [("in.txt", "old\n"), ("gone.txt", "x\n"), ("dir/kept.txt", "x\n")] {
        user.write(&format!("project/{path}"), text);
    }
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(user.path("project")).args(["-c", "user.name=x", "-c", "user.email=x@localhost"]);
        assert!(git.args(args).output().unwrap().status.success(), "{args:?}");
    };
    for args in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "x"]] {
        git(args);
    }
}

/// Returns the ways of isolation that work here.
fn methods(user: &User) -> Vec<&'static str> {
    let tried = run(user, "overlay", "say done", &["--discard"]);
    if tried.code == 0 {
        return vec!["overlay", "copy", "worktree"];
    }
    assert!(tried.err.contains("overlays do not work here"), "{}", tried.err);
    // A print macro would be captured by the test runner.
    let _ = writeln!(std::io::stderr(), "skipped: {}", tried.err);
    vec!["copy", "worktree"]
}

fn files(user: &User) -> String {
    let read = |name: &str| fs::read_to_string(user.path(&format!("project/{name}"))).unwrap_or("-".into());
    ["in.txt", "gone.txt", "new/file.txt"].map(read).join("|")
}

#[test]
fn change_of_a_successful_run_is_applied_and_undone() {
    let user = user();
    project(&user);
    let before = files(&user);
    let script = "run echo new > in.txt; rm gone.txt; mkdir new; echo 1 > new/file.txt\nsay done";
    for how in methods(&user) {
        let done = run(&user, how, script, &[]);
        assert_eq!(done.code, 0, "{how}: {}", done.err);
        assert_eq!(files(&user), "new\n|-|1\n", "{how}: {}", done.err);
        let id = done.err.split("agentline undo ").nth(1).expect("the id of the run");
        let id = id.split('`').next().unwrap();
        // A later change is not lost.
        user.write("project/in.txt", "mine\n");
        let refused = user.agentline(&["undo", id]);
        assert_eq!(refused.code, 1, "{how}");
        assert!(refused.err.contains("in.txt"), "{}", refused.err);
        assert_eq!(files(&user), "mine\n|-|1\n", "{how}");
        user.write("project/in.txt", "new\n");
        let undone = user.agentline(&["undo", id]);
        assert_eq!(undone.code, 0, "{how}: {}", undone.err);
        assert_eq!(files(&user), before, "{how}");
        assert!(!user.path("project/new").exists(), "{how}");
        assert_eq!(user.agentline(&["undo", id]).code, 1, "{how}");
    }
}

#[test]
fn change_is_discarded_on_request_and_after_a_failed_check() {
    let user = user();
    project(&user);
    let before = files(&user);
    let script = "run echo new > in.txt\nsay done";
    for how in methods(&user) {
        let discarded = run(&user, how, script, &["--discard"]);
        assert_eq!((discarded.code, files(&user)), (0, before.clone()), "{how}: {}", discarded.err);
        let failed = run(&user, how, script, &["--until", "false", "--max-rounds", "0"]);
        assert_ne!(failed.code, 0, "{how}");
        assert_eq!(files(&user), before, "{how}: {}", failed.err);
        if how == "overlay" {
            let original = user.path("project/in.txt");
            let script = format!("run echo new > {}; true\nsay done", original.display());
            let done = run(&user, how, &script, &[]);
            assert_eq!((done.code, files(&user)), (0, before.clone()), "{}", done.err);
        }
    }
    for (flags, key) in [(&["--warm"][..], "warm"), (&["--cache"], "cache")] {
        let refused = run(&user, "copy", script, flags);
        assert_eq!(refused.code, 2, "{key}");
        assert!(refused.err.contains(key), "{}", refused.err);
    }
    assert_eq!(user.agentline(&["run", "--discard", "x"]).code, 2);
}

#[test]
fn change_is_kept_apart_if_the_original_has_changed() {
    let user = user();
    project(&user);
    // In an overlay, the agent itself cannot change the original.
    let change = format!("echo x > {}", user.path("project/other.txt").display());
    for how in methods(&user) {
        let _ = fs::remove_file(user.path("project/other.txt"));
        let refused = run(&user, how, "run echo new > in.txt\nsay done", &["--until", &change]);
        assert_eq!(refused.code, 1, "{how}: {}", refused.err);
        assert!(refused.err.contains("other.txt"), "{how}: {}", refused.err);
        assert_eq!(user.read("project/in.txt"), "old\n", "{how}");
        let kept = refused.err.split("the changed workspace is in ").nth(1).expect("a directory");
        let kept = kept.lines().next().unwrap().trim();
        assert_eq!(fs::read_to_string(format!("{kept}/in.txt")).unwrap(), "new\n", "{how}");
    }
}

/// Git must not run what the settings of a workspace name, which nobody has trusted.
#[test]
fn worktree_runs_no_command_of_the_repository() {
    let user = user();
    project(&user);
    let at = user.path("project");
    let git = |args: &[&str]| {
        let git = Command::new("git").arg("-C").arg(&at).args(args).env("GIT_OPTIONAL_LOCKS", "0").output();
        git.unwrap().status.success()
    };
    let canary = user.path("canary");
    let command = format!("touch '{}'; cat", canary.display());
    assert!(git(&["config", "core.fsmonitor", &format!("{command}; false")]));
    let done = run(&user, "worktree", "say done", &["--discard"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(!canary.exists(), "the monitor ran");
    for key in ["filter.x.smudge", "filter.x.clean"] {
        assert!(git(&["config", key, &command]));
    }
    fs::create_dir_all(at.join(".git/info")).unwrap();
    fs::write(at.join(".git/info/attributes"), "* filter=x\n").unwrap();
    fs::remove_file(at.join(".git/index")).unwrap();
    let refused = run(&user, "worktree", "say done", &["--discard"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("`filter.x."), "{}", refused.err);
    assert!(!canary.exists(), "a filter ran");
}
