//! A session: its parameters, its state, its history, and its active turn.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::{env, fs};

use serde_json::{Value, json};

use super::control::Control;
use super::mcp::Servers;
use super::peer::lock;

/// One conversation.
#[derive(Debug)]
pub(super) struct FakeSession {
    pub(super) id: String,
    pub(super) cwd: PathBuf,
    pub(super) servers: Value,
    pub(super) mcp: Servers,
    pub(super) state: Mutex<FakeSessionState>,
    /// Memory that this session uses.
    pub(super) weight: Vec<u8>,
    /// A process that lives as long as the session.
    pub(super) recorder: Mutex<Option<Child>>,
}

impl FakeSession {
    /// Ends the session's own process.
    pub(super) fn close(&self) {
        if let Some(mut recorder) = lock(&self.recorder).take() {
            // It may have exited already.
            let _ = recorder.kill();
            let _ = recorder.wait();
        }
    }
}

/// The mutable state of a session.
#[derive(Debug)]
pub(super) struct FakeSessionState {
    pub(super) mode: String,
    pub(super) model: String,
    pub(super) prompts: Vec<String>,
    /// Every update of the conversation, for replay.
    pub(super) history: Vec<Value>,
    /// The tools that are always allowed.
    pub(super) always: HashSet<String>,
    pub(super) turn: Option<Arc<Control>>,
}

impl Default for FakeSessionState {
    fn default() -> Self {
        Self {
            mode: super::shapes::MODES.first().cloned().unwrap_or_default(),
            model: "fake-large".to_owned(),
            prompts: Vec::new(),
            history: Vec::new(),
            always: HashSet::new(),
            turn: None,
        }
    }
}

impl FakeSession {
    /// Returns a path of a script. A relative one starts from the session's directory.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.cwd.join(path)
    }

    /// Starts a turn. An active one is cancelled, as in Gemini.
    pub(super) fn begin_turn(&self) -> Arc<Control> {
        let control = Arc::new(Control::default());
        let before = lock(&self.state).turn.replace(Arc::clone(&control));
        if let Some(before) = before {
            before.cancel();
        }
        control
    }

    /// Ends a turn, unless another has started.
    pub(super) fn end_turn(&self, control: &Arc<Control>) {
        lock(&self.state).turn.take_if(|turn| Arc::ptr_eq(turn, control));
    }

    pub(super) fn remember(&self, update: &Value) {
        lock(&self.state).history.push(update.clone());
    }

    /// Stores the session for another process, if there is a directory for it.
    pub(super) fn store(&self) {
        let Some(file) = store_file(&self.id) else { return };
        let state = lock(&self.state);
        let stored = json!({"prompts": state.prompts, "history": state.history});
        // A failed write shows when the session is loaded.
        let _ = fs::write(file, stored.to_string());
    }

    /// Returns the stored state of a session.
    pub(super) fn stored(id: &str) -> Option<FakeSessionState> {
        let stored: Value = serde_json::from_str(&fs::read_to_string(store_file(id)?).ok()?).ok()?;
        let texts = |list: &Value| -> Vec<String> {
            list.as_array()
                .into_iter()
                .flatten()
                .filter_map(|text| text.as_str().map(str::to_owned))
                .collect()
        };
        let history = stored["history"].as_array().cloned().unwrap_or_default();
        Some(FakeSessionState { prompts: texts(&stored["prompts"]), history, ..FakeSessionState::default() })
    }
}

fn store_file(id: &str) -> Option<PathBuf> {
    let plain = id.chars().all(|character| character.is_ascii_alphanumeric() || character == '-');
    plain.then_some(())?;
    Some(Path::new(&env::var_os("FAKE_ACP_STORE")?).join(format!("{id}.json")))
}
