//! Tests every command that reads the workspace's file, other than a successful run.

use super::{GREEDY, PRECIOUS, User};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

#[test]
fn no_command_obeys_the_workspace_file() {
    let user = User::new();
    user.hostile_file("ws/agentline.toml");
    for args in [
        &["config", "show"] as &[&str],
        &["config", "check"],
        &["policy", "explain"],
        &["doctor"],
        &["agents"],
        &["prices"],
        &["sessions", "list"],
        &["sessions", "usage"],
        &["cache", "stats"],
        &["cache", "clear"],
        &["pool", "status"],
        &["pool", "start"],
    ] {
        let done = user.agentline(args);
        assert_ne!(done.code, Some(2), "{args:?}: {}", done.err);
        for word in [PRECIOUS.trim(), "key-of-the-attacker", "obey the workspace"] {
            assert!(!done.out.contains(word) && !done.err.contains(word), "{args:?}: {}", done.out);
        }
        for file in ["home/.bashrc", "home/precious.txt", "home/kept/file"] {
            assert_eq!(user.read(file), PRECIOUS, "{args:?}: {file}");
        }
        assert!(!user.path("pwned").exists(), "{args:?}");
        // Commands whose result depends on the file report that it was ignored.
        if ["config", "policy", "doctor"].contains(&args[0]) {
            assert_eq!(
                done.err.matches("of the untrusted workspace: ignored").count(),
                1,
                "{args:?}: {}",
                done.err
            );
        }
    }
    let rows = user.agentline(&["config", "show", "-o", "json"]).json();
    let of_file = |row: &&Value| row["source"].as_str().unwrap().contains("agentline.toml");
    let taken: Vec<&Value> = rows.as_array().unwrap().iter().filter(of_file).collect();
    assert!(taken.is_empty(), "{taken:?}");
    let policy = user.agentline(&["policy", "explain", "-o", "json"]).json();
    assert_eq!(
        (&policy["permission_mode"], policy["allow"].as_array().unwrap().len()),
        (&"default".into(), 0)
    );
}

#[test]
fn run_that_fails_to_start_writes_nothing_and_warns() {
    for (name, value, code) in [("FAKE_AGENT_FAULT", "exit_41", 4), ("GEMINI_CLI_PATH", "/nowhere/gemini", 3)]
    {
        let user = User::with_agent(env!("CARGO_BIN_EXE_fake-gemini")).env(name, value);
        let user = user.env("AGENTLINE_PASS_ENV", "FAKE_AGENT_FAULT");
        user.write("ws/agentline.toml", "record = '~/.bashrc'\n");
        let done = user.agentline(&["run", "-o", "json", "hi"]);
        assert_eq!(done.code, Some(code), "{}", done.err);
        assert_eq!(user.read("home/.bashrc"), PRECIOUS);
        assert_eq!(super::warnings(&done.json()).len(), 1, "{}", done.out);
        assert_eq!(done.err.matches("ignored `record`").count(), 1, "{}", done.err);
    }
}

#[test]
fn preset_chosen_by_the_file_passes_no_secret() {
    let user = User::new();
    user.write("ws/agentline.toml", "agent = 'gemini_acp'\n");
    let script = "ask run touch pwned\nenv SECRET_OF_THE_USER";
    let outcome = user.agentline(&["run", "-o", "json", "--quiet-period", "0", script]).json();
    assert!(outcome["text"].as_str().unwrap().contains("SECRET_OF_THE_USER is not set"), "{outcome}");
    assert_eq!((&outcome["verdict"], user.path("ws/pwned").exists()), (&"done_with_denials".into(), false));
}

#[test]
fn file_linked_out_of_the_workspace_is_not_read() {
    let user = User::new();
    user.write("home/other.toml", GREEDY);
    symlink(user.path("home/other.toml"), user.path("ws/agentline.toml")).unwrap();
    let done = user.run(&[], "say hi");
    let messages = super::warnings(&done.json());
    assert!(
        messages.len() == 1 && messages[0].contains("is a link to a file outside its directory"),
        "{messages:?}"
    );
    assert_eq!((done.code, user.read("home/.bashrc")), (Some(0), PRECIOUS.to_owned()), "{}", done.err);
}

#[test]
fn workspace_names_and_keys_cannot_emit_terminal_escapes() {
    let user = User::new();
    user.write(
        "ws/agentline.toml",
        "name = \"\\u001b[31mred\\u001b]0;title\\u0007\"\n\"\\u001b[2Jx\\nerror: no\" = 1\n",
    );
    let done = user.agentline(&["run", "--surface", "acp", "--quiet-period", "0", "say hi"]);
    assert!(!done.err.contains(['\u{1b}', '\u{7}']), "{:?}", done.err);
    assert!(!done.err.lines().any(|line| line.starts_with("error: no")), "{}", done.err);
}

/// Writes a program to the workspace that leaves a mark when it is started.
fn planted(user: &User, path: &str) {
    user.write(path, &format!("#!/bin/sh\n: > '{}'\n", user.path("pwned").display()));
    fs::set_permissions(user.path(path), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn program_in_the_workspace_is_not_used_as_the_agent() {
    let user = User::new().env("GEMINI_CLI_PATH", "").env("PATH", "/nowhere");
    planted(&user, "ws/node_modules/.bin/gemini");
    planted(&user, "node_modules/.bin/gemini");
    for args in [&["run", "-o", "json", "hi"] as &[&str], &["run", "--warm", "-o", "json", "hi"]] {
        let done = user.agentline(args);
        assert_eq!(done.json()["verdict"], "not_installed", "{}", done.out);
        let message = done.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("found only in the workspace"), "{message}");
        assert!(!user.path("pwned").exists(), "{}", done.out);
    }
    // `doctor` agrees with a run, for every trust setting.
    let installed = |trust: &str| {
        user.write("home/.config/agentline/config.toml", &format!("trust = '{trust}'\n"));
        let report = user.agentline(&["doctor", "-o", "json"]).json();
        report["agents"].as_array().unwrap().iter().find(|agent| agent["id"] == "gemini").unwrap().clone()
    };
    let untrusted = installed("run");
    assert_eq!(untrusted["installed"], false, "{untrusted}");
    assert!(untrusted["problems"].to_string().contains("found only in the workspace"), "{untrusted}");
    assert_eq!(installed("full")["installed"], true);
    // The same holds if the user's settings give a bare name, which is searched on PATH.
    planted(&user, "ws/my-gemini");
    user.write("home/.config/agentline/config.toml", "agent_bin = 'my-gemini'\n");
    let done = user.agentline(&["run", "-o", "json", "hi"]);
    assert_eq!(done.json()["verdict"], "not_installed", "{}", done.out);
    assert!(!user.path("pwned").exists(), "{}", done.out);
    user.write("home/.config/agentline/config.toml", "");
    drop(user.agentline(&["run", "--trust", "full", "-o", "json", "hi"]));
    assert!(user.path("pwned").exists(), "with full trust it is found and started");
}

#[test]
fn model_name_cannot_be_an_agent_flag() {
    let user = User::with_agent(env!("CARGO_BIN_EXE_fake-gemini"));
    for model in ["--yolo", "-y", "--approval-mode=yolo"] {
        user.write("ws/agentline.toml", &format!("model = '{model}'\n"));
        for surface in ["stream-json", "json", "acp"] {
            let done = user.agentline(&["run", "--surface", surface, "hi"]);
            assert_eq!(done.code, Some(2), "{model} {surface}: {}", done.err);
            assert!(done.err.contains("model must not begin with `-`"), "{}", done.err);
        }
    }
}
