//! Tests `agentline trust`: what it stores, what it permits on every path, and how trust is lost.

use super::{User, warnings};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

const FILE: &str = "permission_mode = 'bypass'\nenv = { FROM_THE_FILE = 'yes' }\n";
const SCRIPT: &str = "ask run touch STAGE/ws/made\nenv FROM_THE_FILE";

/// Returns whether each path applied the file in full.
fn is_applied(user: &User, outcome: &Value) -> bool {
    let marker = user.path("ws/made");
    let has_run = marker.exists();
    drop(fs::remove_file(marker));
    let sees = outcome["text"].as_str().unwrap().contains("FROM_THE_FILE=yes");
    assert_eq!(has_run, sees, "{outcome}");
    sees
}

fn trusted_user() -> User {
    let user = User::new();
    user.write("ws/agentline.toml", FILE);
    user.write("ws/.mcp.json", "{}");
    let done = user.agentline(&["trust"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    user
}

#[test]
fn trusted_directory_applies_fully_on_every_path_until_it_changes() {
    let user = trusted_user();
    user.on_every_path(SCRIPT, |path, outcome| {
        assert!(is_applied(&user, outcome), "{path}: {outcome}");
        assert_eq!(warnings(outcome), Vec::<String>::new(), "{path}");
    });
    user.write("ws/.mcp.json", r#"{"mcpServers":{"evil":{"command":"touch"}}}"#);
    user.on_every_path(SCRIPT, |path, outcome| {
        assert!(!is_applied(&user, outcome), "{path}: {outcome}");
        let messages = warnings(outcome);
        let lost = messages.iter().find(|message| message.contains("`.mcp.json` was modified"));
        assert!(
            lost.is_some_and(|message| message.contains("run `agentline trust ")),
            "{path}: {messages:?}"
        );
    });
    assert_eq!(user.agentline(&["trust"]).code, Some(0));
    let outcome = run(&user, &[]);
    assert!(is_applied(&user, &outcome), "{outcome}");
}

fn run(user: &User, more: &[&str]) -> Value {
    user.run(more, SCRIPT).json()
}

#[test]
fn explicit_trust_setting_overrides_stored_trust() {
    let user = trusted_user();
    assert!(!is_applied(&user, &run(&user, &["--trust", "run"])));
    user.write("home/.config/agentline/config.toml", "trust = 'run'\n");
    assert!(!is_applied(&user, &run(&user, &[])));
    assert!(is_applied(&user, &run(&user, &["--trust", "full"])));
}

#[test]
fn trust_applies_to_the_directory_of_the_run() {
    let user = trusted_user();
    fs::create_dir_all(user.path("ws/inner")).unwrap();
    fs::create_dir_all(user.path("other")).unwrap();
    // Below a trusted directory, and from a trusted directory into another one by each option.
    assert!(!is_applied(&user, &run(&user, &["-C", "inner"])));
    user.write("other/agentline.toml", FILE);
    assert!(!is_applied(&user, &run(&user, &["-C", "../other"])));
    let moved = user.env("AGENTLINE_WORKING_DIR", "../other");
    assert!(!is_applied(&moved, &run(&moved, &[])));
    let mut host = moved.host();
    for key in ["working_dir", "workingDir", "cwd"] {
        let other = moved.path("other");
        let id = host.send(
            "run",
            json!({"prompt": moved.localized(SCRIPT), "surface": "acp", key: other, "quiet_period_ms": 0}),
        );
        let outcome = host.answer(id)["result"].clone();
        assert!(!is_applied(&moved, &outcome), "{key}: {outcome}");
    }
}

#[test]
fn trusted_file_cannot_extend_trust_to_another_directory() {
    let user = User::new();
    user.write("ws/agentline.toml", "working_dir = '../other'\n");
    user.write("other/.mcp.json", "{}");
    assert_eq!(user.agentline(&["trust"]).code, Some(0));
    let rows = user.agentline(&["config", "show", "-o", "json"]);
    let row =
        |key: &str| rows.json().as_array().unwrap().iter().find(|row| row["key"] == key).unwrap().clone();
    assert_eq!(row("trust")["value"], "run", "{}", rows.out);
    assert!(rows.err.contains("move the run to another directory"), "{}", rows.err);
}

#[test]
fn trust_is_listed_and_revoked() {
    let user = trusted_user();
    let workspace = user.path("ws").canonicalize().unwrap();
    let listed = user.agentline(&["trust", "--list", "-o", "json"]).json();
    assert_eq!(listed[0]["directory"], workspace.to_str().unwrap());
    assert_eq!(listed[0]["files"], json!([".mcp.json", "agentline.toml"]));
    assert!(user.agentline(&["trust", "--list"]).out.contains("(2 files)"));
    let store = user.path("home/.local/state/agentline/trust.json");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&store), mode(store.parent().unwrap())), (0o600, 0o700));
    user.write("ws/.env", "A=1");
    assert!(user.agentline(&["trust", "--list"]).out.contains("1 changed, so"));
    let revoked = user.agentline(&["trust", "--revoke", "-o", "json"]).json();
    assert_eq!((&revoked["trusted"], &revoked["was_trusted"]), (&json!(false), &json!(true)));
    assert!(!is_applied(&user, &run(&user, &[])));
    assert_eq!(user.agentline(&["trust", "--list"]).out, "no trusted directories\n");
}

#[test]
fn refused_trust_reports_its_reason() {
    let user = User::new();
    for (args, part) in [
        (&["trust", "nowhere"] as &[&str], "nowhere"),
        (&["trust", "../home"], "contains the list of trusted directories"),
        (&["trust", "--list", "--revoke"], "--revoke"),
    ] {
        let done = user.agentline(args);
        assert!(done.code == Some(2) && done.err.contains(part), "{args:?}: {}", done.err);
    }
    user.write("home/.local/state/agentline/trust.json", "{ broken");
    let done = user.run(&[], "say hi");
    assert_eq!(done.code, Some(0), "a damaged list trusts nothing and does not stop a run: {}", done.err);
    assert!(warnings(&done.json())[0].contains("cannot use the list of trusted directories"), "{}", done.out);
}

#[test]
fn user_is_asked_again_on_a_terminal() {
    let user = trusted_user();
    let has_script = Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success());
    if !has_script {
        return agentline_tests::skipped("`script` of util-linux is not installed");
    }
    let typed = |answer: &str| {
        let program =
            user.command(&["run", "--surface", "acp", "--quiet-period", "0", &user.localized(SCRIPT)]);
        let args = std::iter::once(program.get_program()).chain(program.get_args());
        let line: Vec<String> = args.map(|arg| format!("'{}'", arg.to_string_lossy())).collect();
        let mut script = Command::new("script");
        script
            .args(["-q", "-e", "-c", &line.join(" "), "/dev/null"])
            .env_clear()
            .current_dir(user.path("ws"));
        script.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        drop(stdin);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(typed("\n").contains("FROM_THE_FILE=yes"), "nothing changed, so there is no prompt");
    user.write("ws/.mcp.json", "{ }");
    let refused = typed("\n");
    assert!(refused.contains("modified .mcp.json") && refused.contains("[y/N]"), "{refused}");
    assert!(refused.contains("FROM_THE_FILE is not set"), "{refused}");
    let accepted = typed("y\n");
    assert!(accepted.contains("[y/N]") && accepted.contains("FROM_THE_FILE=yes"), "{accepted}");
    assert!(!typed("\n").contains("[y/N]"), "the answer is stored");
}
