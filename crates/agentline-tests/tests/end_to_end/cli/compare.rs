//! Tests `agentline compare` with two fake agents: what it shows, what it applies, and that nothing remains.

use crate::cli::user::{Done, User};
use agentline_tests::{exit_of, wait_until};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::Command,
};

/// Creates a user with the agents `alpha` and `beta`. Their prompt is a script, and `$WHO` in it is their name, by the
/// settings of each.
fn user() -> User {
    let user = User::new();
    let agent = |name: &str| {
        let program = env!("CARGO_BIN_EXE_fake-acp");
        format!("[agents.{name}]\ncommand = ['{program}']\nenv = {{ WHO = '{name}' }}\n")
    };
    user.write("../home/.config/agentline/config.toml", &(agent("alpha") + &agent("beta")));
    user.write("notes.txt", "one\n");
    user
}

/// Returns the directories of the copies.
fn copies(user: &User) -> Vec<PathBuf> {
    let parent = user.path("../home/.cache/agentline/compare");
    fs::read_dir(parent).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn compare(user: &User, script: &str, flags: &[&str]) -> Done {
    let mut args = vec!["compare", script, "--permission-mode", "bypass", "--quiet-period", "0"];
    args.extend(flags);
    user.agentline(&args)
}

const BOTH: [&str; 4] = ["-a", "alpha", "-a", "beta"];

fn both<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    BOTH.into_iter().chain(flags.iter().copied()).collect()
}

#[test]
fn agents_work_in_copies_and_the_results_are_side_by_side() {
    let user = user();
    let script = "run echo $WHO >> notes.txt\nrun echo new > $WHO.txt\nsay done";
    let done = compare(&user, script, &both(&["-o", "json"]));
    assert_eq!(done.code, 0, "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(report["schema"], "agentline.compare/1");
    for (at, name) in ["alpha", "beta"].into_iter().enumerate() {
        let outcome = &report["results"][at]["outcome"];
        assert_eq!((&report["results"][at]["agent"], &outcome["verdict"]), (&name.into(), &"done".into()));
        let files = outcome["files"].as_array().unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(paths, [&format!("{name}.txt"), "notes.txt"], "{outcome}");
        assert!(files[1]["diff"].as_str().unwrap().ends_with(&format!(" one\n+{name}\n")), "{outcome}");
    }
    assert_eq!(user.read("notes.txt"), "one\n", "the workspace is unchanged");
    assert!(!user.path("alpha.txt").exists());
    assert!(copies(&user).is_empty(), "the copies are removed");
    for who in ["alpha: done", "beta: done"] {
        assert!(done.err.contains(who), "{}", done.err);
    }
}

#[test]
fn table_and_page_show_an_agent_that_is_not_installed() {
    let user = user();
    let flags = both(&["-a", "codex:gpt-5.5", "--to", "page.html"]);
    let done = compare(&user, "say <script>alert(1)</script>\nrun echo x > a.txt", &flags);
    assert_eq!(done.code, 3, "the first agent that is not done: {}", done.err);
    let rows: Vec<&str> = done.out.lines().collect();
    assert!(rows[0].starts_with("agent") && rows[0].contains("verdict"), "{}", done.out);
    assert!(rows[1].starts_with("alpha") && rows[1].contains(" done "), "{}", done.out);
    assert!(rows[3].starts_with("codex") && rows[3].contains("not_installed"), "{}", done.out);
    let page = user.read("page.html");
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("not_installed"));
    assert!(!page.split_once("<body>").unwrap().1.contains("<script"), "content is text");
    let again = compare(&user, "say x", &both(&["--to", "page.html"]));
    assert_eq!(again.code, 2, "{}", again.err);
    assert!(again.err.contains("`--force`"), "{}", again.err);
    assert!(copies(&user).is_empty());
}

#[test]
fn changes_of_one_agent_are_applied() {
    let user = user();
    fs::write(user.path("binary"), [0, 1, 2]).unwrap();
    user.write("gone/file", "x");
    user.write("tool.sh", "#!/bin/sh\n");
    symlink("notes.txt", user.path("link")).unwrap();
    let script = "run echo $WHO >> notes.txt; printf '\\0\\377' > binary; rm -r gone\n\
                  run chmod +x tool.sh; ln -sfn binary link; mkdir -p new/dir; echo $WHO > new/dir/file\nsay done";
    let done = compare(&user, script, &both(&["--apply", "beta"]));
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("applied beta: 6 files"), "{}", done.out);
    assert_eq!(user.read("notes.txt"), "one\nbeta\n");
    assert_eq!(fs::read(user.path("binary")).unwrap(), [0, 255]);
    assert!(!user.path("gone").exists());
    assert_eq!(fs::read_link(user.path("link")).unwrap(), PathBuf::from("binary"));
    assert_ne!(fs::metadata(user.path("tool.sh")).unwrap().permissions().mode() & 0o100, 0);
    assert_eq!(user.read("new/dir/file"), "beta\n");
    assert!(copies(&user).is_empty());
}

#[test]
fn changes_are_refused_if_the_workspace_has_changed_and_the_copies_are_kept() {
    let user = user();
    let script = format!(
        "run echo mine > {}\nrun echo $WHO >> notes.txt\nsay done",
        user.path("theirs.txt").display()
    );
    let done = compare(&user, &script, &both(&["--apply", "alpha"]));
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("not applied (alpha): the workspace has changed"), "{}", done.out);
    assert!(done.out.contains("theirs.txt"), "{}", done.out);
    assert_eq!(user.read("notes.txt"), "one\n");
    let kept = copies(&user);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let name = kept[0].file_name().unwrap().to_str().unwrap();
    assert!(done.err.contains("the copies are in ") && done.err.contains(name), "{}", done.err);
    assert_eq!(fs::read_to_string(kept[0].join("alpha/ws/notes.txt")).unwrap(), "one\nalpha\n");
    let next = compare(&user, "say x", &both(&["--keep"]));
    assert_eq!(next.code, 0, "{}", next.err);
    assert_eq!(copies(&user).len(), 2, "kept copies stay");
}

#[test]
fn a_signal_cancels_all_agents_and_nothing_remains() {
    let user = user();
    let script = "run touch started\nsleep 100000\nsay never";
    let mut args = vec!["compare", script, "--permission-mode", "bypass", "-o", "json"];
    args.extend(BOTH);
    let mut child = user.start(&args);
    wait_until("both agents at work", || {
        let started = |name: &str| copies(&user).iter().any(|dir| dir.join(name).join("ws/started").exists());
        started("alpha") && started("beta")
    });
    let status = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(status.unwrap().success());
    exit_of(&mut child, "the end of the program");
    let done: Done = child.wait_with_output().unwrap().into();
    assert_eq!(done.code, 130, "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    for at in [0, 1] {
        assert_eq!(report["results"][at]["outcome"]["verdict"], "cancelled", "{report}");
    }
    assert!(copies(&user).is_empty());
    #[cfg(target_os = "linux")]
    wait_until("the end of all agents", || {
        agentline_tests::survivors(&format!(
            "HOME={}",
            fs::canonicalize(user.path("../home")).unwrap().display()
        ))
        .is_empty()
    });
}

#[test]
fn invalid_comparisons_start_nothing() {
    let user = user();
    for (flags, message) in [
        (vec!["-a", "alpha", "-a", "gemni"], "`gemni` is not a known agent"),
        (vec!["-a", "alpha", "-a", "alpha"], "`alpha` is listed twice"),
        (vec!["-a", "gemini", "-a", "gemini-cli"], "`gemini` is listed twice"),
        (vec!["-a", "alpha:"], "`alpha:` names no model"),
        (both(&["--apply", "gemini"]), "`gemini` is not one of the compared agents"),
        (both(&["--to", "results"]), "cannot tell the format"),
        (both(&["-C", "missing"]), "is not a directory"),
        (vec![], "--agent"),
    ] {
        let done = compare(&user, "say x", &flags);
        assert_eq!(done.code, 2, "{flags:?}: {}", done.err);
        assert!(done.err.contains(message), "{flags:?}: {}", done.err);
        assert!(copies(&user).is_empty(), "{flags:?}");
    }
}

#[test]
fn unwritable_output_starts_nothing() {
    let user = user();
    fs::create_dir(user.path("dir.html")).unwrap();
    for to in ["no/such/page.html", "dir.html"] {
        let done = compare(&user, "run touch started", &both(&["--keep", "--force", "--to", to]));
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{to}: {}", done.err);
        assert!(done.err.starts_with("error: `--to`: cannot write `"), "{to}: {}", done.err);
        assert!(copies(&user).is_empty(), "{to}");
    }
}
