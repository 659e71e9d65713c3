//! Reads the client's messages, and starts a thread for each prompt.

use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{env, thread};

use serde_json::{Value, json};

use super::agent::{FakeAcpAgent, unknown_method};
use super::faults::FaultFlag;
use super::script;

impl FakeAcpAgent {
    /// Serves until the input ends.
    pub(super) fn serve(self: &Arc<Self>) -> io::Result<u8> {
        let mut log = match env::var_os("FAKE_ACP_LOG") {
            Some(file) => Some(OpenOptions::new().create(true).append(true).open(file)?),
            None => None,
        };
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line)? > 0 {
            if let Some(log) = &mut log {
                log.write_all(&line)?;
            }
            // As in real agents, a line that is not a message is skipped.
            if let Ok(message) = serde_json::from_slice(&line) {
                self.take(message);
            }
            line.clear();
        }
        if self.has(FaultFlag::SurvivesEof) {
            thread::sleep(Duration::from_secs(120));
        }
        if let Some(millis) = self.peer.faults.number(FaultFlag::SlowExit, 1500) {
            thread::sleep(Duration::from_millis(millis));
        }
        Ok(0)
    }

    fn take(self: &Arc<Self>, mut message: Value) {
        let params = message["params"].take();
        match (message["method"].as_str(), message.get("id")) {
            (None, Some(_)) => self.peer.settle(message),
            (Some("session/cancel"), None) => self.cancel(&params),
            (Some(method), Some(id)) => self.request(method, id, params),
            _ => {}
        }
    }

    fn request(self: &Arc<Self>, method: &str, id: &Value, params: Value) {
        match method {
            "initialize" => self.spawn(id, move |agent, id| agent.initialize(&id, params)),
            "authenticate" => {
                self.signed_in.store(true, Ordering::SeqCst);
                self.peer.answer(id, &json!({}));
            }
            "session/new" => self.spawn(id, move |agent, id| agent.session_new(&id, &params)),
            "session/load" => self.spawn(id, move |agent, id| agent.session_load(&id, &params)),
            "session/set_mode" if self.has(FaultFlag::SetModeNever) => {}
            "session/set_mode" => self.answer(id, self.set_mode(&params)),
            "session/close" if self.has(FaultFlag::ProcessPerSession) => self.answer(id, self.close(&params)),
            "session/set_model" => self.answer(id, self.set_model(&params)),
            "session/set_config_option" => self.answer(id, self.set_config_option(&params)),
            "session/prompt" => match self.session(&params) {
                Ok(session) => {
                    // Immediately, so that a cancel right after the prompt finds its turn.
                    let control = session.begin_turn();
                    self.spawn(id, move |agent, id| script::play(&agent, &session, &control, &id, &params));
                }
                Err(error) => self.peer.refuse(id, &error),
            },
            other => self.peer.refuse(id, &unknown_method(other)),
        }
    }

    /// Runs a function on its own thread, so that the input is always read.
    fn spawn(self: &Arc<Self>, id: &Value, work: impl FnOnce(Arc<Self>, Value) + Send + 'static) {
        let (agent, id) = (Arc::clone(self), id.clone());
        thread::spawn(move || work(agent, id));
    }
}
