//! Tests these agents on the command line, `agentline run -a NAME`, and checks that the usage in the outcome equals the
//! usage in the session that the agent saved. Settings of the workspace, which is not trusted, run nothing. An agent that
//! the user configured under another name is not believed more than the built-in one.

use crate::agents::acp_agents::harness::{AgentStage, CLAUDE, CODEX, OPENCODE, TestedAgent, stage};
use agentline::{
    PriceTable,
    sessions::{SessionFilter, UsageBy, UsageRow},
};
use agentline_core::session_usage;
use agentline_mock::scripted::ModelStep;
use serde_json::{Value, json};
use std::{
    fs,
    process::{Command, Stdio},
};

#[test]
fn claude() {
    run(CLAUDE);
}

#[test]
fn codex() {
    run(CODEX);
}

/// Over ACP, OpenCode reports only the tokens of its last request. Its database has all of them.
#[test]
fn opencode() {
    run(OPENCODE);
}

fn run(tested: TestedAgent) {
    let steps = vec![
        tested.write("a.txt"),
        tested.shell("echo made > b.txt"),
        ModelStep::thought("Now I know.").and_text("It is done."),
    ];
    // The limit acts while the model still answers the third request.
    let mut slow = steps.clone();
    slow[2] = ModelStep::text("Too late.").delay(60_000);
    let stage = stage!(tested, vec![("as configured", steps.clone()), ("within a limit", slow), ("", steps)]);
    // `rules` and `pool` show that the command runs in a trusted workspace.
    let mark = stage.command_in_workspace_settings();
    let (outcome, all) = outcome_of(&stage, &["-a", tested.name, "--surface", "acp", "Do it."]);
    let found = [&outcome["verdict"], &outcome["agent"], &outcome["surface"], &outcome["text"]];
    assert_eq!(found, [&json!("done"), &json!(tested.name), &json!("acp"), &json!("It is done.")], "{all}");
    let files = outcome["files"].as_array().unwrap();
    let paths: Vec<_> = files.iter().map(|file| (&file["path"], &file["source"])).collect();
    assert_eq!(paths, [(&json!("a.txt"), &json!("tool")), (&json!("b.txt"), &json!("shell"))], "{all}");
    assert_eq!(outcome["agent_version"], tested.version, "{all}");
    #[cfg(target_os = "linux")]
    assert_eq!(stage.live_processes(), [0_u32; 0]);
    assert!(!mark.exists(), "{all}");
    check_saved_usage(&stage, &outcome);
    if tested.name == OPENCODE.name {
        let limited = ["-a", tested.name, "--surface", "acp", "--max-tokens", "200", "Do it within a limit."];
        let (outcome, all) = ended(&stage, &limited, 7);
        let found = [&outcome["error"]["kind"], &outcome["turns"], &outcome["usage"]["total_tokens"]];
        assert_eq!(found, [&json!("max_tokens"), &json!(2), &json!(260)], "{all}");
        check_configured(&stage);
    }
}

/// Runs the program successfully.
fn outcome_of(stage: &AgentStage, args: &[&str]) -> (Value, String) {
    ended(stage, args, 0)
}

/// Runs the program and returns the outcome, and everything that was printed.
fn ended(stage: &AgentStage, args: &[&str], code: i32) -> (Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
        .args(["run", "--permission-mode", "bypass", "--output", "json"])
        .args(["--startup-timeout", "120s", "--timeout", "180s"])
        .args(args)
        .env_clear()
        .envs(stage.stage.variables())
        .env(stage.tested.variable, &stage.stage.agent.program)
        .current_dir(stage.stage.workspace())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = format!("{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{all}");
    (serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {all}")), all)
}

/// Runs the same program as an agent of the configuration: its usage is not believed, and a limit on it is reported.
fn check_configured(stage: &AgentStage) {
    let program = json!(stage.stage.agent.program);
    // An agent of the configuration gets no variables of the user.
    let own = stage.stage.variables().iter().filter(|(name, _)| name.starts_with("OPENCODE_"));
    let env: Vec<String> = own.map(|(name, value)| format!("{name} = {}", json!(value))).collect();
    let config = format!("[agents.oc]\ncommand = [{program}, \"acp\"]\nenv = {{ {} }}\n", env.join(", "));
    let folder = stage.stage.home().join(".config/agentline");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), config).unwrap();
    fs::remove_file(stage.stage.workspace().join("opencode.json")).unwrap();
    let (outcome, all) = outcome_of(stage, &["-a", "oc", "--max-tokens", "100000", "Do it as configured."]);
    assert_eq!((&outcome["verdict"], &outcome["agent"]), (&json!("done"), &json!("oc")), "{all}");
    assert_eq!(outcome["tool_calls"], 2, "{all}");
    assert_eq!(outcome["usage"]["total_tokens"], Value::Null, "{all}");
    for code in ["usage_unknown", "limit_not_enforced"] {
        let warnings = outcome["warnings"].as_array().unwrap();
        assert_eq!(warnings.iter().filter(|warning| warning["code"] == code).count(), 1, "{code}: {all}");
    }
}

/// Compares the outcome with the saved session, as listed, shown and summed up.
fn check_saved_usage(stage: &AgentStage, outcome: &Value) {
    let store = stage.agentline().sessions();
    let all = store.list(&SessionFilter::new().project(stage.stage.workspace())).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    let listed = &all[0];
    assert_eq!(Some(listed.info.id.as_str()), outcome["session_id"].as_str());
    let loaded = store.load(&store.find(&listed.info.id, &stage.stage.workspace()).unwrap()).unwrap();
    let shown = session_usage(&loaded, &PriceTable::built_in());
    assert_eq!(shown.total, listed.used, "show and list");
    let rows = store.usage(&SessionFilter::new(), UsageBy::Agent).unwrap();
    assert_eq!(UsageRow::sum(&rows).used, listed.used, "usage and list");
    let used = &listed.used;
    let t = &used.tokens;
    assert_eq!((used.requests, t.total), (3, Some(390)), "{used:?}");
    let run = ["input", "output", "cached", "total"]
        .map(|name| outcome["usage"][format!("{name}_tokens")].as_u64());
    assert_eq!(run, [t.input, t.output, t.cached, t.total]);
    // OpenCode does not know the price of the scripted model.
    if stage.tested.name != OPENCODE.name {
        // The agent's own total for a run includes helper requests, which no session file has.
        let costs = (outcome["cost_usd"].as_f64().unwrap(), used.cost_usd.unwrap());
        assert!(costs.0 > costs.1 - 1e-9 && costs.1 > 0.0, "{costs:?}");
    }
}
