//! A scripted ACP agent: it inspects the frames that were sent and replies to them.

use crate::play::{Player, RUN, spec};
use agentline_core::{
    Connection, ConnectionOutput, Dialogue, DialogueConfig, HostRequest, HostRequestId, HostResponse, Input,
    InputKind, RunId, Surface, Timeouts, TurnSpec, acp_dialogue, agents, tape_line,
};
use serde_json::{Value, json};

/// Returns the capabilities that Gemini CLI 0.61.0 reports.
pub(crate) fn capabilities(version: &str) -> Value {
    json!({"protocolVersion": 1, "agentInfo": {"name": "gemini-cli", "version": version},
        "agentCapabilities": {"loadSession": true, "mcpCapabilities": {"http": true, "sse": true},
            "promptCapabilities": {"image": true, "audio": true, "embeddedContext": true}}})
}

pub(crate) fn gemini(dialogue: &DialogueConfig) -> Box<dyn Dialogue> {
    agents::find("gemini").expect("the agent is listed").dialogue(dialogue)
}

/// A connection over ACP, and the position up to which its frames have been read.
pub(crate) struct AcpHarness {
    pub(crate) player: Player,
    seen: usize,
}

impl AcpHarness {
    /// Creates an initialized Gemini CLI.
    pub(crate) fn gemini() -> Self {
        Self::gemini_of("0.61.0")
    }

    pub(crate) fn gemini_of(version: &str) -> Self {
        let mut harness = Self::with(gemini(&DialogueConfig::new(Surface::Acp, None)));
        harness.reply("initialize", &capabilities(version));
        harness
    }

    /// Creates an initialized agent of an unknown kind.
    pub(crate) fn unknown() -> Self {
        let mut harness = Self::with(acp_dialogue(&DialogueConfig::new(Surface::Acp, None)));
        harness.reply("initialize", &capabilities("1.0.0"));
        harness
    }

    pub(crate) fn with(dialogue: Box<dyn Dialogue>) -> Self {
        let mut player = Player::with(Connection::new(dialogue, Timeouts::default()));
        player.tape = Some(vec![tape_line(&Input { at: 0, kind: InputKind::Started })]);
        Self { player, seen: 0 }
    }

    /// Creates a Gemini CLI before its first message.
    pub(crate) fn bare() -> Self {
        Self::with(gemini(&DialogueConfig::new(Surface::Acp, None)))
    }

    /// Wraps a player with its outputs so far.
    pub(crate) fn of(player: Player) -> Self {
        Self { player, seen: 0 }
    }

    /// Returns every frame sent since the last call, as JSON.
    pub(crate) fn frames(&mut self) -> Vec<Value> {
        let frames = self.player.out[self.seen..]
            .iter()
            .filter_map(|o| if let ConnectionOutput::Frame(frame) = o { Some(frame) } else { None })
            .map(|frame| {
                assert!(frame.ends_with('\n'), "a frame is a line: {frame}");
                serde_json::from_str(frame).expect("a frame is JSON")
            })
            .collect();
        self.seen = self.player.out.len();
        frames
    }

    /// Returns the only frame sent since the last call.
    pub(crate) fn frame(&mut self) -> Value {
        let mut frames = self.frames();
        // The title of a session needs no reply.
        frames.retain(|frame| frame["method"] != "session/set_title");
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames.remove(0)
    }

    /// Expects this request, replies to it, and returns its parameters.
    pub(crate) fn reply(&mut self, method: &str, result: &Value) -> Value {
        let frame = self.frame();
        assert_eq!(frame["method"], method, "{frame}");
        self.send(&json!({"jsonrpc": "2.0", "id": frame["id"], "result": result}));
        frame["params"].clone()
    }

    /// Expects this request and replies with an error.
    pub(crate) fn refuse(&mut self, method: &str, code: i64, message: &str) {
        let frame = self.frame();
        assert_eq!(frame["method"], method, "{frame}");
        let error = json!({"code": code, "message": message});
        self.send(&json!({"jsonrpc": "2.0", "id": frame["id"], "error": error}));
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.player.stdout(&message.to_string());
    }

    pub(crate) fn update(&mut self, session: &str, update: &Value) {
        let params = json!({"sessionId": session, "update": update});
        self.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    pub(crate) fn text(&mut self, session: &str, text: &str) {
        let content = json!({"type": "text", "text": text});
        self.update(session, &json!({"sessionUpdate": "agent_message_chunk", "content": content}));
    }

    /// Starts a run in a new session and sends its prompt.
    pub(crate) fn start(&mut self, run: RunId, session: &str, spec: TurnSpec) {
        self.player.prompt_as(run, spec);
        self.reply("session/new", &json!({"sessionId": session}));
    }

    /// Starts a run of the default order, whose prompt awaits its reply.
    pub(crate) fn running() -> (Self, Value) {
        let mut harness = Self::gemini();
        harness.start(RUN, "s", spec());
        let prompt = harness.frame();
        assert_eq!(prompt["method"], "session/prompt");
        (harness, prompt["id"].clone())
    }

    pub(crate) fn end(&mut self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Returns the requests to the host, except those to settle.
    pub(crate) fn asked(&self) -> Vec<(HostRequestId, HostRequest)> {
        self.player
            .out
            .iter()
            .filter_map(|o| match o {
                ConnectionOutput::Ask(_, id, ask) if !matches!(ask, HostRequest::CollectChanges { .. }) => {
                    Some((*id, ask.clone()))
                }
                _ => None,
            })
            .collect()
    }

    pub(crate) fn answer(&mut self, ask: HostRequestId, answer: HostResponse) {
        self.player.take(InputKind::Answer { ask, answer });
    }

    /// Returns the type of each event.
    pub(crate) fn story(&self) -> Vec<String> {
        self.player
            .events()
            .map(|event| {
                let event = serde_json::to_value(event).expect("an event is JSON");
                event["type"].as_str().unwrap_or_default().to_owned()
            })
            .collect()
    }
}
