//! Tests `/acp` of `agentline serve` with the client of the public TypeScript SDK on a WebSocket.

use super::{gemini_variables, nothing_left, seen_by, texts};
use crate::{
    agents::acp_agents::harness::{CODEX, CODEX_NATIVE, stage},
    clients::served::Served,
};
use agentline_mock::{
    gemini::{GeminiModel, GeminiStep, Script},
    scripted::ModelStep,
};
use agentline_tests::{AcpSdk, TestStage, needs_real_gemini, skipped, survivors, wait_until};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path, process::Command};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/clients/acp/ws_client.mjs");

/// A server with an agent, and the SDK whose clients connect to it.
struct AcpEndpoint<'a> {
    sdk: &'a AcpSdk,
    server: Served,
    agent: &'a str,
    home: &'a Path,
    workspace: &'a Path,
}

impl AcpEndpoint<'_> {
    /// Plays one connection: a prompt in a new session, or in the one that is loaded.
    fn play(&self, prompt: &str, loaded: Option<&str>) -> Value {
        let mut client = Command::new(self.sdk.node());
        client.args([CLIENT, &format!("ws://{}/acp?agent={}", self.server.address, self.agent)]);
        client.arg(self.workspace).arg(prompt).args(loaded).env_clear();
        client.env("MODULES", self.sdk.modules()).env("WEB_SOCKET", self.sdk.web_socket());
        client.env("TOKEN", &self.server.token);
        let seen = seen_by(client);
        assert_eq!(seen["answer"]["stopReason"], "end_turn", "{seen}");
        seen
    }

    /// Returns the processes that the server has started.
    fn processes(&self) -> BTreeSet<u32> {
        let all = survivors(&format!("HOME={}", self.home.display()));
        all.into_iter().filter(|pid| *pid != self.server.pid()).collect()
    }

    /// Loads the session of a client that has disconnected, in the process that has served it, and returns what the new
    /// client has seen.
    fn play_again(&self, first: &Value, prompt: &str) -> Value {
        let before = self.processes();
        assert!(!before.is_empty(), "the agent waits for another client");
        let seen = self.play(prompt, Some(first["session"].as_str().unwrap()));
        assert_eq!(texts(&seen["replayed"]), texts(&first["updates"]), "{seen}");
        // The process that was started for the second connection ends.
        wait_until("the end of the other process", || self.processes().is_subset(&before));
        assert!(!self.processes().is_empty(), "the agent still waits");
        seen
    }
}

#[test]
fn sdk_drives_the_real_gemini_cli_on_a_web_socket() {
    needs_real_gemini!();
    let Some(sdk) = AcpSdk::find() else { return skipped("the SDK of ACP") };
    let write = GeminiStep::call("write_file", json!({"file_path": "made.txt", "content": "new\n"}));
    let first = Script::new([write, GeminiStep::text("It is written.")]);
    let second = Script::new([GeminiStep::text("It was new.")]);
    let model = GeminiModel::matching([("Write a file", first), ("What was it", second)]).unwrap();
    let stage = TestStage::with_model(model);
    let (home, workspace) = (stage.home(), stage.workspace());
    let server = Served::start(&home, &workspace, &gemini_variables(&stage));
    let endpoint = AcpEndpoint { sdk: &sdk, server, agent: "gemini", home: &home, workspace: &workspace };
    let seen = endpoint.play("Write a file", None);
    assert_eq!(texts(&seen["updates"]), "It is written.", "{seen}");
    assert_eq!(seen["asked"].as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(seen["answer"]["_meta"]["agentline"]["files"][0]["path"], "made.txt", "{seen}");
    assert_eq!(stage.read("made.txt").as_deref(), Some("new\n"));
    let again = endpoint.play_again(&seen, "What was it");
    assert_eq!(texts(&again["updates"]), "It was new.", "{again}");
    let last = stage.model.requests_to_main().pop().unwrap();
    assert!(last.user_texts().iter().any(|text| text.contains("Write a file")), "{:?}", last.user_texts());
    assert!(endpoint.server.stop().success());
    nothing_left(&home);
}

#[test]
fn sdk_drives_the_real_codex_on_a_web_socket() {
    let Some(sdk) = AcpSdk::find() else { return skipped("the SDK of ACP") };
    let steps = vec![CODEX.shell("touch by-shell.txt"), ModelStep::text("All done.")];
    let stage =
        stage!(CODEX_NATIVE, vec![("Do it", steps), ("Once more", vec![ModelStep::text("Still here.")])]);
    let (home, workspace) = (stage.stage.home(), stage.stage.workspace());
    let mut variables = stage.stage.variables().clone();
    variables.insert("CODEX_CLI_PATH".into(), stage.stage.agent.program.to_string_lossy().into_owned());
    // The default mode of this agent cannot write.
    variables.insert("AGENTLINE_PERMISSION_MODE".into(), "bypass".into());
    let server = Served::start(&home, &workspace, &variables);
    let endpoint = AcpEndpoint { sdk: &sdk, server, agent: "codex", home: &home, workspace: &workspace };
    let seen = endpoint.play("Do it", None);
    assert!(texts(&seen["updates"]).contains("All done."), "{seen}");
    assert_eq!(seen["answer"]["_meta"]["agentline"]["files"][0]["path"], "by-shell.txt", "{seen}");
    assert!(workspace.join("by-shell.txt").is_file());
    let again = endpoint.play_again(&seen, "Once more");
    assert!(texts(&again["updates"]).contains("Still here."), "{again}");
    // A server that is killed leaves nothing behind, either.
    drop(endpoint);
    nothing_left(&home);
}
