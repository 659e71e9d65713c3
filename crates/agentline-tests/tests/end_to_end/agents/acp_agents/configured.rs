//! Tests agents that are defined only by a table in the configuration.

use agentline_tests::{AcpAgent, example_agent, skipped};
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

/// A user whose configuration defines agents.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new(agents: &[(&str, AcpAgent)]) -> Self {
        let folder = tempfile::Builder::new().prefix("agentline-acp-").tempdir().unwrap();
        let user = Self { folder };
        let settings = user.path("home/.config/agentline");
        for path in [&user.path("ws"), &user.path("tmp"), &settings] {
            fs::create_dir_all(path).unwrap();
        }
        let tables = agents.iter().map(|(name, agent)| {
            // JSON strings are valid TOML strings.
            let (program, args) = (json!(agent.program), json!(agent.args));
            format!("[agents.{name}]\ncommand = {program}\nargs = {args}\nsurface = \"acp\"\nenv = {{ A = \"b\" }}\n")
        });
        fs::write(settings.join("config.toml"), tables.collect::<String>()).unwrap();
        user
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Runs the program with these arguments, and returns its exit code and output.
    fn agentline(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
            .args(args)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .current_dir(self.path("ws"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Runs the program and returns the outcome.
    #[track_caller]
    fn outcome_of(&self, args: &[&str]) -> Value {
        let (_, out, err) = self.agentline(&[&["run", "--output", "json"], args].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
    }
}

fn fake() -> AcpAgent {
    AcpAgent { program: env!("CARGO_BIN_EXE_fake-acp").into(), args: Vec::new() }
}

#[test]
fn configured_agent_runs_by_its_command() {
    let user = User::new(&[("mine", fake())]);
    let outcome = user.outcome_of(&["-a", "mine", "ask write_file hello.txt hi\\n\nsay Done.\nusage 100 20"]);
    assert_eq!(
        (&outcome["verdict"], &outcome["text"]),
        (&json!("done_with_denials"), &json!("Done.")),
        "{outcome}"
    );
    assert!(!user.path("ws/hello.txt").exists(), "{outcome}");
    let mode = ["-a", "mine", "--permission-mode", "accept-edits"];
    let outcome =
        user.outcome_of(&[&mode[..], &["ask write_file hello.txt hi\\n\nsay Done.\nusage 100 20"]].concat());
    assert_eq!((&outcome["verdict"], &outcome["text"]), (&json!("done"), &json!("Done.")), "{outcome}");
    let result = (&outcome["agent"], &outcome["surface"], &outcome["agent_version"]);
    assert_eq!(result, (&json!("mine"), &json!("acp"), &json!("1.2.3")), "{outcome}");
    let file = &outcome["files"][0];
    assert_eq!((&file["path"], &file["source"]), (&json!("hello.txt"), &json!("tool")), "{outcome}");
    assert_eq!(outcome["usage"]["input_tokens"], 100, "{outcome}");
    assert_eq!(fs::read_to_string(user.path("ws/hello.txt")).unwrap(), "hi\n");
    assert_eq!(user.outcome_of(&["-a", "mine", "env A"])["text"], "A=b");
}

#[test]
fn values_and_reasoning_are_printed() {
    let user = User::new(&[("mine", fake())]);
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    fs::write(user.path("ws/n.json"), schema).unwrap();
    let run = |args: &[&str]| user.agentline(&[&["run", "-a", "mine"], args].concat());
    let (code, out, err) = run(&["--schema", "n.json", "think I wonder why.\nsay It is:\nsay {\"n\": 7}"]);
    assert_eq!((code, out.as_str()), (Some(0), "{\"n\":7}\n"), "{err}");
    // Reasoning is shown on request only.
    assert!(!out.contains("wonder") && !err.contains("wonder"), "{out}{err}");
    let (code, out, err) = run(&["--emit-thoughts", "think I wonder why.\nsay Because."]);
    assert_eq!((code, out.as_str()), (Some(0), "Because.\n"), "{err}");
    assert!(err.contains("I wonder why."), "{err}");

    // Without a value, standard output is empty. The text of separate rounds is separated.
    let (code, out, err) = run(&["--schema", "n.json", "--repair-turns", "0", "say no idea"]);
    assert_eq!((code, out.as_str()), (Some(10), ""), "{err}");
    assert!(err.contains("no idea"), "{err}");
    let check = "test -e tried || { touch tried; echo say second; exit 1; }";
    let (code, out, err) = run(&["--until", check, "say first"]);
    assert_eq!((code, out.as_str()), (Some(0), "first\nsecond\n"), "{err}");

    let (code, out, err) = run(&["-o", "json", "--schema", "n.json", "--repair-turns", "0", "say no idea"]);
    let outcome: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    assert_eq!((outcome["verdict"].as_str(), code), (Some("invalid_output"), Some(10)), "{outcome:#}");
    let error = &outcome["error"];
    assert_eq!((&error["kind"], &error["phase"]), (&json!("invalid_output"), &json!("response")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("no JSON value") && message.contains("no idea"), "{message}");
    assert_eq!(outcome["output"], Value::Null);
}

#[test]
fn configured_agent_is_listed_and_checked_by_doctor() {
    let none = AcpAgent { program: "/nowhere/at-all".into(), args: Vec::new() };
    let user = User::new(&[("mine", fake()), ("lost", none)]);
    let (code, out, err) = user.agentline(&["agents", "-o", "json"]);
    assert_eq!(code, Some(0), "{err}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    let ids: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["gemini", "claude", "codex", "opencode", "lost", "mine"]);
    assert_eq!(rows[5]["abilities"][0]["surface"], "acp", "{rows}");

    let (_, out, _) = user.agentline(&["doctor", "-o", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let agents = report["agents"].as_array().unwrap();
    let find =
        |id: &str| agents.iter().find(|agent| agent["id"] == id).unwrap_or_else(|| panic!("{id}: {out}"));
    assert_eq!((&find("mine")["ready"], &find("lost")["ready"]), (&json!(true), &json!(false)), "{out}");
    let lost = find("lost").to_string();
    assert!(lost.contains("/nowhere/at-all") && lost.contains("fix `command` of `[agents.lost]`"), "{out}");

    let (code, _, err) = user.agentline(&["run", "-a", "miner", "hi"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("`miner` is not a known agent") && err.contains("did you mean `mine`?"), "{err}");
    assert!(err.contains("opencode") && err.contains("lost"), "{err}");
    let outcome = user.outcome_of(&["-a", "lost", "hi"]);
    assert_eq!(outcome["verdict"], "not_installed", "{outcome}");
    let error = &outcome["error"];
    assert!(error["message"].as_str().is_some_and(|text| text.contains("/nowhere/at-all")), "{outcome}");
    assert!(error["hint"].is_string(), "{outcome}");
}

/// The example agent sends some text, reads a file and requests permission to change a file of another project.
#[test]
fn acp_example_agent_runs() {
    let Some(agent) = example_agent() else { return skipped("acp_agents example") };
    let user = User::new(&[("example", agent)]);
    let outcome = user.outcome_of(&["-a", "example", "--permission-mode", "auto", "Hello"]);
    assert_eq!(outcome["verdict"], "done_with_denials", "{outcome}");
    assert_eq!(outcome["denied"][0]["reason"], "outside_workspace", "{outcome}");
    assert_eq!(
        (&outcome["tool_calls"], &outcome["stop_reason"]),
        (&json!(2), &json!("end_turn")),
        "{outcome}"
    );
    assert!(outcome["text"].as_str().is_some_and(|text| !text.is_empty()), "{outcome}");
    assert!(outcome["session_id"].is_string(), "{outcome}");
}
