//! A proxied agent that outlives its client: it gets answers in place of the disconnected client, and the next client gets
//! its sessions.

use super::ProxiedAgent;
use crate::{
    failure::{ErrorResponse, INTERNAL_ERROR},
    frame,
    params::{self, OneSession, OpenSession},
    sessions::{HeldAgents, HeldTicket, KnownSession},
};
use agentline_core::rpc::{self, RpcMessage, RpcResult};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::collections::BTreeMap;

/// The state of an agent that outlives its client.
pub(super) struct Reconnectable {
    held: HeldAgents,
    /// The id of the client's first request.
    initialize: Option<String>,
    /// The requests that open a session, with the session unless it is new.
    opening: BTreeMap<String, Option<String>>,
    /// The agent's requests that the client has not answered, with their methods.
    asked: BTreeMap<String, String>,
    /// The requests that load a session in which a prompt is active, with the session.
    loads: Vec<(String, String)>,
}

/// The result of a request that may load an open session.
pub(super) enum Reload {
    Unknown,
    /// The client gets a response.
    Here,
    /// The client gets another agent.
    Moves(HeldTicket),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionUpdate {
    session_id: String,
    #[serde(default)]
    update: UpdateKind,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UpdateKind {
    session_update: String,
    current_mode_id: Option<String>,
}

impl Reconnectable {
    pub(super) fn new(held: HeldAgents) -> Self {
        Self { held, initialize: None, opening: BTreeMap::new(), asked: BTreeMap::new(), loads: Vec::new() }
    }

    /// Returns whether a request with this id waits for the end of a prompt.
    pub(super) fn is_loading(&self, id: &str) -> bool {
        self.loads.iter().any(|(load, _)| load == id)
    }
}

impl ProxiedAgent {
    /// Replays a session that is still open to the client, if the request loads one.
    pub(super) async fn reload(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
    ) -> Result<Reload, ErrorResponse> {
        let Some(clients) = &mut self.reconnectable else { return Ok(Reload::Unknown) };
        if !matches!(method, "session/load" | "session/resume") {
            return Ok(Reload::Unknown);
        }
        let params: OpenSession = params::read(params)?;
        self.settings.of_client(&params.cwd)?;
        let session = match clients.held.find(&params, self.peer.records()).await? {
            KnownSession::Here(session) => session,
            KnownSession::Held(ticket) => return Ok(Reload::Moves(ticket)),
            KnownSession::Unknown => return Ok(Reload::Unknown),
        };
        if method == "session/load" {
            self.peer.replay(&session);
        }
        clients.loads.push((rpc::id_key(id), session.clone()));
        self.session_is_idle(&session);
        Ok(Reload::Here)
    }

    /// Responds to the requests that load a session, unless a prompt is active in it.
    pub(super) fn session_is_idle(&mut self, session: &str) {
        let Some(clients) = &mut self.reconnectable else { return };
        if self.prompts.values().any(|prompt| prompt.session == session) {
            return;
        }
        for (id, _) in clients.loads.extract_if(.., |(_, loaded)| loaded == session) {
            if let Ok(id) = serde_json::from_str::<&RawValue>(&id) {
                self.peer.respond(id, Ok(self.peer.records().opened(session)));
            }
        }
    }

    /// Records the effect of a request on the sessions, for later clients.
    pub(super) fn note_request(&mut self, id: &str, method: &str, params: &RawValue) {
        let Some(clients) = &mut self.reconnectable else { return };
        let records = self.peer.records();
        let named = params::read::<OneSession>(params).ok();
        match (method, named) {
            ("initialize", _) => clients.initialize = Some(id.to_owned()),
            ("session/new" | "session/fork", _) => drop(clients.opening.insert(id.to_owned(), None)),
            ("session/load" | "session/resume", Some(named)) => {
                // The agent sends the session's updates before its response.
                let directory = self.agent.as_ref().map(|agent| agent.directory.clone());
                records.open(&named.session_id, directory.unwrap_or_default(), Value::Null);
                clients.opening.insert(id.to_owned(), Some(named.session_id));
            }
            ("session/close" | "session/delete", Some(named)) => records.close(&named.session_id),
            ("session/set_mode", Some(OneSession { session_id, mode_id: Some(mode), .. })) => {
                records.set(&session_id, |opened| set_mode(opened, mode));
            }
            _ => {}
        }
    }

    /// Records that the client has answered a request of the agent.
    pub(super) fn client_answered(&mut self, id: &str) {
        if let Some(clients) = &mut self.reconnectable {
            clients.asked.remove(id);
        }
    }

    /// Records the effect of a frame of the agent, for later clients. Returns the frame for the current one, if it gets it.
    pub(super) fn observed(&mut self, frame: String) -> Option<String> {
        let Some(clients) = &mut self.reconnectable else { return Some(frame) };
        let mut is_initialize = false;
        match rpc::read(&frame) {
            Some(RpcMessage::Request { id, method, .. }) if self.peer.is_attached() => {
                clients.asked.insert(rpc::id_key(id), method.into_owned());
            }
            Some(RpcMessage::Request { id, method, .. }) => {
                let refusal = refusal(id, &method);
                self.send_to_agent(&refusal);
                return None;
            }
            Some(RpcMessage::Notification { method, params }) if method == "session/update" => {
                self.record(params, &frame);
            }
            Some(RpcMessage::Response { id, result }) => {
                let key = rpc::id_key(id);
                is_initialize = clients.initialize.as_ref() == Some(&key);
                if let Some(loaded) = clients.opening.remove(&key) {
                    self.session_opened(loaded, result);
                }
            }
            _ => {}
        }
        // Open sessions can be loaded from here, whether or not the agent supports that.
        let changed = if is_initialize { frame::with_load_session(&frame) } else { None };
        Some(changed.unwrap_or(frame))
    }

    /// Records the effect of a response that no client gets.
    pub(super) fn late_response(&mut self, id: &str, frame: &str) {
        let opening = self.reconnectable.as_mut().and_then(|clients| clients.opening.remove(id));
        if let (Some(loaded), Some(RpcMessage::Response { result, .. })) = (opening, rpc::read(frame)) {
            self.session_opened(loaded, result);
        }
    }

    /// Ends the record of a session that the agent has not opened in time. If it is loaded again, the agent is asked again.
    pub(super) fn opening_failed(&mut self, id: &str) {
        let opening = self.reconnectable.as_mut().and_then(|clients| clients.opening.remove(id));
        if let Some(session) = opening.flatten() {
            self.peer.records().close(&session);
        }
    }

    fn record(&self, params: &RawValue, frame: &str) {
        let Ok(update) = serde_json::from_str::<SessionUpdate>(params.get()) else { return };
        let records = self.peer.records();
        records.push(&update.session_id, frame);
        if let ("current_mode_update", Some(mode)) =
            (&*update.update.session_update, update.update.current_mode_id)
        {
            records.set(&update.session_id, |opened| set_mode(opened, mode));
        }
    }

    fn session_opened(&self, loaded: Option<String>, result: RpcResult<'_>) {
        let records = self.peer.records();
        match (result, loaded) {
            (Ok(result), loaded) => {
                let opened: Value = serde_json::from_str(result.get()).unwrap_or_default();
                let session = loaded.or_else(|| opened["sessionId"].as_str().map(str::to_owned));
                let directory = self.agent.as_ref().map(|agent| agent.directory.clone());
                if let (Some(session), Some(directory)) = (session, directory) {
                    records.open(&session, directory, opened);
                }
            }
            (Err(_), Some(loaded)) => records.close(&loaded),
            (Err(_), None) => {}
        }
    }

    /// Detaches the client. Its prompts continue, and the agent gets answers in its place.
    pub(crate) fn client_left(&mut self) {
        self.peer.detach();
        self.prompts.values_mut().for_each(|prompt| prompt.is_orphaned = true);
        let Some(clients) = &mut self.reconnectable else { return };
        for (id, _) in self.pending.drain() {
            // No client knows a new session. One that is loaded can be loaded again.
            if clients.opening.get(&id).is_some_and(Option::is_none) {
                clients.opening.remove(&id);
            }
            self.ids.add_late(id);
        }
        clients.loads.clear();
        for (id, method) in std::mem::take(&mut clients.asked) {
            if let Ok(id) = serde_json::from_str::<&RawValue>(&id) {
                let refusal = refusal(id, &method);
                self.send_to_agent(&refusal);
            }
        }
    }
}

fn set_mode(opened: &mut Value, mode: String) {
    if let Some(modes) = opened.get_mut("modes").and_then(Value::as_object_mut) {
        modes.insert("currentModeId".to_owned(), mode.into());
    }
}

/// Returns the answer to a request of the agent for which there is no client.
fn refusal(id: &RawValue, method: &str) -> String {
    let line = if method == "session/request_permission" {
        rpc::response(id, &json!({"outcome": {"outcome": "cancelled"}}))
    } else {
        rpc::error_response(id, &ErrorResponse::new(INTERNAL_ERROR, "no client is connected"))
    };
    line.trim_end().to_owned()
}
