//! Tests these agents on the command line: `agentline run -a NAME`.

use crate::acp_agents::harness::{CLAUDE, CODEX, OPENCODE, Player, stage};
use agentline_mock::scripted::ModelStep;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

#[test]
fn claude() {
    run(CLAUDE);
}

#[test]
fn codex() {
    run(CODEX);
}

#[test]
fn opencode() {
    run(OPENCODE);
}

fn run(player: Player) {
    let stage = stage!(
        player,
        vec![(
            "",
            vec![player.write("a.txt"), player.shell("echo made > b.txt"), ModelStep::text("It is done.")]
        )]
    );
    let output = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"))
        .args(["run", "-a", player.name, "--permission-mode", "bypass", "--output", "json"])
        .args(["--startup-timeout", "120s", "--timeout", "180s", "Do it."])
        .env_clear()
        .envs(stage.stage.variables())
        .env(player.variable, &stage.stage.agent.program)
        .current_dir(stage.stage.workspace())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = format!("{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{all}");
    let outcome: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {all}"));
    let found = [&outcome["verdict"], &outcome["agent"], &outcome["surface"], &outcome["text"]];
    assert_eq!(found, [&json!("done"), &json!(player.name), &json!("acp"), &json!("It is done.")], "{all}");
    let files = outcome["files"].as_array().unwrap();
    let paths: Vec<_> = files.iter().map(|file| (&file["path"], &file["source"])).collect();
    assert_eq!(paths, [(&json!("a.txt"), &json!("tool")), (&json!("b.txt"), &json!("shell"))], "{all}");
    assert_eq!(outcome["agent_version"], player.version, "{all}");
    #[cfg(target_os = "linux")]
    assert_eq!(stage.living(), [0_u32; 0]);
}
