//! One turn: a prompt that is being answered, and what the agent sends meanwhile.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent::FakeAcpAgent;
use super::control::Control;
use super::faults::FaultFlag;
use super::session::FakeSession;
use super::shapes;

/// A prompt that is being answered.
pub(super) struct FakeTurn<'a> {
    pub(super) agent: &'a FakeAcpAgent,
    pub(super) session: &'a FakeSession,
    pub(super) control: &'a Control,
    pub(super) id: &'a Value,
    pub(super) blocks: &'a Value,
    /// Script lines for after the answer, each with its delay.
    pub(super) later: Vec<(Duration, String)>,
    pub(super) usage: Option<Value>,
    pub(super) meta: Option<Value>,
}

impl FakeTurn<'_> {
    pub(super) fn send_text(&self, text: &str) {
        self.chunk("agent_message_chunk", text);
    }

    pub(super) fn chunk(&self, kind: &str, text: &str) {
        if !self.agent.has(FaultFlag::OneCharacterChunks) {
            return self.update(&shapes::chunk(&self.agent.peer.faults, kind, text));
        }
        for character in text.chars() {
            self.update(&shapes::chunk(&self.agent.peer.faults, kind, &character.to_string()));
            // Lets other sessions run, so that their lines are interleaved.
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn update(&self, update: &Value) {
        self.session.remember(update);
        self.agent.peer.update(&self.session.id, update);
    }

    /// Sends a request to the client, with the session's id in the parameters.
    pub(super) fn ask(&self, method: &str, mut params: Value) -> Receiver<Value> {
        params["sessionId"] = json!(self.session.id);
        self.agent.peer.ask(method, &params)
    }
}
