//! The agent: its sessions, and its answers to the client's requests.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{process, thread};

use serde_json::{Value, json};

use super::faults::{ActiveFaults, FaultFlag};
use super::mcp::Servers;
use super::peer::{AcpPeer, lock};
use super::session::{FakeSession, FakeSessionState};
use super::shapes;

/// Everything that the threads of the process share.
#[derive(Debug)]
pub(super) struct FakeAcpAgent {
    pub(super) peer: AcpPeer,
    sessions: Mutex<HashMap<String, Arc<FakeSession>>>,
    opened: AtomicU64,
    opening: AtomicUsize,
    pub(super) signed_in: AtomicBool,
    /// The parameters of `initialize`.
    pub(super) client: Mutex<Value>,
    pub(super) next_tool: AtomicU64,
}

/// The answer to a request: a result, or an error.
type Answer = Result<Value, Value>;

impl FakeAcpAgent {
    pub(super) fn new(faults: ActiveFaults) -> Arc<Self> {
        Arc::new(Self {
            peer: AcpPeer::new(faults),
            sessions: Mutex::default(),
            opened: AtomicU64::new(0),
            opening: AtomicUsize::new(0),
            signed_in: AtomicBool::new(false),
            client: Mutex::default(),
            next_tool: AtomicU64::new(0),
        })
    }

    pub(super) fn has(&self, flag: FaultFlag) -> bool {
        self.peer.faults.has(flag)
    }

    pub(super) fn answer(&self, id: &Value, answer: Answer) {
        match answer {
            Ok(result) => self.peer.answer(id, &result),
            Err(error) => self.peer.refuse(id, &error),
        }
    }

    pub(super) fn initialize(&self, id: &Value, params: Value) {
        *lock(&self.client) = params;
        let faults = &self.peer.faults;
        if faults.has(FaultFlag::InitializeNever) {
            return;
        }
        if let Some(millis) = faults.number(FaultFlag::InitializeSlow, 3000) {
            thread::sleep(Duration::from_millis(millis));
        }
        if faults.has(FaultFlag::InitializeError) {
            return self.peer.refuse(id, &shapes::internal("cannot initialize (requested fault)"));
        }
        self.peer.answer(id, &shapes::initialized(faults, &super::version()));
        if faults.has(FaultFlag::ExitAfterInitialize) {
            process::exit(0);
        }
    }

    pub(super) fn session_new(&self, id: &Value, params: &Value) {
        if self.has(FaultFlag::SessionNewExit) {
            process::exit(4);
        }
        if self.has(FaultFlag::SessionNewNever) {
            return;
        }
        self.take_time();
        let answer = self.open(params, None).map(|(session, mut result)| {
            result["sessionId"] = match () {
                () if self.has(FaultFlag::SessionIdMissing) => Value::Null,
                () if self.has(FaultFlag::SessionIdNumber) => json!(7),
                () => json!(session.id),
            };
            if self.has(FaultFlag::SessionIdMissing) {
                result.as_object_mut().map(|result| result.remove("sessionId"));
            }
            (session, result)
        });
        match answer {
            Ok((session, result)) => {
                self.peer.answer(id, &result);
                if self.has(FaultFlag::CommandsAfterNew) {
                    self.peer.update(&session.id, &shapes::commands());
                }
            }
            Err(error) => self.peer.refuse(id, &error),
        }
    }

    /// Waits for the time that opening a session takes.
    fn take_time(&self) {
        if let Some(millis) = self.peer.faults.number(FaultFlag::SessionNewSlow, 2000) {
            thread::sleep(Duration::from_millis(millis));
        }
        if let Some(most) = self.peer.faults.number(FaultFlag::SessionNewStalls, 4) {
            let now = self.opening.fetch_add(1, Ordering::SeqCst) + 1;
            let stalls = now as u64 > most;
            thread::sleep(if stalls { Duration::from_secs(20) } else { Duration::from_millis(100) });
            self.opening.fetch_sub(1, Ordering::SeqCst);
        }
    }

    pub(super) fn session_load(&self, id: &Value, params: &Value) {
        let name = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let living = lock(&self.sessions).get(&name).map(|session| {
            let state = lock(&session.state);
            FakeSessionState {
                prompts: state.prompts.clone(),
                history: state.history.clone(),
                ..FakeSessionState::default()
            }
        });
        let state =
            if self.has(FaultFlag::LoadError) { None } else { living.or_else(|| FakeSession::stored(&name)) };
        let Some(state) = state else {
            let details = format!("Invalid session identifier \"{name}\".");
            return self.peer.refuse(id, &shapes::internal(&details));
        };
        let history = state.history.clone();
        let replay = || {
            if self.has(FaultFlag::LoadShowsContext) {
                let context = "<session_context>\nThis is the fake agent.\n</session_context>";
                self.peer.update(&name, &shapes::chunk(&self.peer.faults, "user_message_chunk", context));
            }
            history.iter().for_each(|update| self.peer.update(&name, update));
        };
        match self.open(params, Some((name.clone(), state))) {
            Err(error) => self.peer.refuse(id, &error),
            Ok((_, result)) if self.has(FaultFlag::LoadAnswersFirst) => {
                self.peer.answer(id, &result);
                thread::sleep(Duration::from_millis(30));
                replay();
            }
            Ok((_, result)) => {
                replay();
                self.peer.answer(id, &result);
            }
        }
    }

    /// Opens a new or a stored session.
    fn open(
        &self,
        params: &Value,
        stored: Option<(String, FakeSessionState)>,
    ) -> Result<(Arc<FakeSession>, Value), Value> {
        let faults = &self.peer.faults;
        let closed = faults.has(FaultFlag::AuthRequired) && !self.signed_in.load(Ordering::SeqCst);
        if closed || faults.has(FaultFlag::AuthHopeless) {
            return Err(shapes::error(-32000, "Authentication required"));
        }
        if faults.has(FaultFlag::SessionNewError) {
            return Err(shapes::internal("cannot open a session (requested fault)"));
        }
        let (Some(cwd), Some(_)) = (params["cwd"].as_str(), params["mcpServers"].as_array()) else {
            return Err(shapes::error(-32602, "Invalid params: cwd and mcpServers are needed"));
        };
        let cwd = PathBuf::from(cwd);
        if !cwd.is_dir() {
            return Err(shapes::internal(&format!("Directory does not exist: {}", cwd.display())));
        }
        let servers = params["mcpServers"].clone();
        let mcp =
            if faults.has(FaultFlag::McpIgnored) { Servers::default() } else { Servers::connect(&servers) };
        let new_id = || {
            let pid = process::id();
            if faults.has(FaultFlag::SameSessionId) {
                return format!("fake-{pid}-1");
            }
            let number = self.opened.fetch_add(1, Ordering::SeqCst) + 1;
            // In namespaces of their own, processes have the same ids.
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            format!("fake-{pid}-{number}-{time:x}")
        };
        let (id, state) = stored.unwrap_or_else(|| (new_id(), FakeSessionState::default()));
        let megabytes = faults.number(FaultFlag::MemoryGrowth, 20).unwrap_or(0);
        let weight = vec![1; usize::try_from(megabytes).unwrap_or(0) << 20];
        let result = shapes::opened(faults, &state.mode, &state.model);
        let recorder = faults.has(FaultFlag::ProcessPerSession).then(|| recorder(&cwd)).flatten();
        let (state, recorder) = (Mutex::new(state), Mutex::new(recorder));
        let session = Arc::new(FakeSession { id: id.clone(), cwd, servers, mcp, state, weight, recorder });
        lock(&self.sessions).insert(id, Arc::clone(&session));
        Ok((session, result))
    }

    pub(super) fn session(&self, params: &Value) -> Result<Arc<FakeSession>, Value> {
        let id = params["sessionId"].as_str().unwrap_or_default();
        let session = lock(&self.sessions).get(id).cloned();
        session.ok_or_else(|| shapes::error(-32602, &format!("Session not found: {id}")))
    }

    pub(super) fn close(&self, params: &Value) -> Answer {
        let session = self.session(params)?;
        lock(&self.sessions).remove(&session.id);
        session.close();
        Ok(json!({}))
    }

    pub(super) fn set_mode(&self, params: &Value) -> Answer {
        let session = self.session(params)?;
        let mode = params["modeId"].as_str().unwrap_or_default();
        if self.has(FaultFlag::SetModeError) || !shapes::has_mode(mode) {
            return Err(shapes::internal(&format!("Invalid or unavailable mode: {mode}")));
        }
        if self.has(FaultFlag::ModeUpdateText) {
            let text = format!("[MODE_UPDATE] {mode}");
            self.peer.update(&session.id, &shapes::chunk(&self.peer.faults, "agent_message_chunk", &text));
        }
        if !self.has(FaultFlag::SetModeIgnored) {
            mode.clone_into(&mut lock(&session.state).mode);
        }
        Ok(json!({}))
    }

    pub(super) fn set_model(&self, params: &Value) -> Answer {
        let session = self.session(params)?;
        let model = params["modelId"].as_str().unwrap_or_default();
        if self.has(FaultFlag::SetModelUnknown) {
            return Err(unknown_method("session/set_model"));
        }
        if self.has(FaultFlag::SetModelError) {
            return Err(shapes::internal(&format!("Unknown model: {model}")));
        }
        // Any name is accepted, as in Gemini.
        model.clone_into(&mut lock(&session.state).model);
        Ok(json!({}))
    }

    pub(super) fn set_config_option(&self, params: &Value) -> Answer {
        let session = self.session(params)?;
        let (option, value) = (params["configId"].as_str(), params["value"].as_str().unwrap_or_default());
        let mut state = lock(&session.state);
        match option {
            _ if self.has(FaultFlag::SetConfigError) => {
                return Err(shapes::internal("cannot set it (requested fault)"));
            }
            Some("model") => value.clone_into(&mut state.model),
            Some("mode") if shapes::has_mode(value) => value.clone_into(&mut state.mode),
            _ => return Err(shapes::error(-32602, "Invalid params: no such option or value")),
        }
        Ok(json!({"configOptions": shapes::config_options(&state.mode, &state.model)}))
    }

    pub(super) fn cancel(&self, params: &Value) {
        if self.has(FaultFlag::CancelIgnored) {
            return;
        }
        let turn = self.session(params).ok().and_then(|session| lock(&session.state).turn.clone());
        if let Some(turn) = turn {
            turn.cancel();
        }
    }
}

/// Starts a process that only stays alive.
fn recorder(cwd: &Path) -> Option<process::Child> {
    let null = process::Stdio::null;
    let mut command = process::Command::new("sleep");
    command.arg("600").current_dir(cwd).stdin(null()).stdout(null()).stderr(null()).spawn().ok()
}

/// Returns the error for a method that the agent does not have.
pub(super) fn unknown_method(method: &str) -> Value {
    let message = format!("\"Method not found\": {method}");
    json!({"code": -32601, "message": message, "data": {"method": method}})
}
