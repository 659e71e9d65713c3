//! The steps from a submitted run to the first prompt: open the session, set the mode and the model, and wait until the agent
//! has listed the hosted tools.

use super::{
    Acp, Call, Step, blocks,
    session::{self, AcpSession, Choices},
};
use crate::{
    Event, Failure, FailureKind, McpServer, RunId, SessionTarget, SideChannel, Sink, Started, Tokens,
    hosted_tools::NextStep,
    nearest,
    rpc::{JsonRpcError, METHOD_NOT_FOUND, RpcResult},
};
use serde_json::{Value, json, value::to_raw_value};
use std::collections::BTreeMap;

/// The number of consecutive probes without history after which the history is complete.
const QUIET_PROBES: u8 = 2;

impl Acp {
    /// Opens the session that a run requests.
    pub(super) fn open(&mut self, run: RunId, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        turn.step = Step::Opening;
        if let Some(failure) = self.profile.refuse(&turn.spec) {
            return self.fail(run, Some(failure), sink);
        }
        let spec = &turn.spec;
        let can = self.capabilities.clone().unwrap_or_default();
        if let Some(message) = blocks::unsupported_attachment(spec, can.takes) {
            return self.fail(run, Some(Failure::new(FailureKind::Input, message)), sink);
        }
        let servers = match servers(&spec.servers, can.http_servers) {
            Ok(servers) => servers,
            Err(failure) => return self.fail(run, Some(failure), sink),
        };
        let cwd = spec.session_cwd.as_ref().unwrap_or(&spec.info.cwd).clone();
        let meta = spec.meta.as_deref().and_then(|meta| serde_json::from_str::<Value>(meta).ok());
        match spec.session.clone() {
            SessionTarget::New | SessionTarget::Named(_) => {
                let mut params = json!({"cwd": cwd, "mcpServers": servers});
                meta.into_iter().for_each(|meta| params["_meta"] = meta);
                self.call(run, Call::Open, "session/new", &params, sink);
            }
            SessionTarget::Open(id) => self.continue_session(run, &id, sink),
            // Loading a session that is already open would replay its history to the run in it.
            SessionTarget::Load(id) if self.sessions.get(&id).is_some_and(|session| session.open) => {
                self.continue_session(run, &id, sink)
            }
            SessionTarget::Load(id) if id == "latest" && can.lists => {
                self.call(run, Call::List, "session/list", &json!({ "cwd": cwd }), sink);
            }
            SessionTarget::Load(id) if can.loads && id != "latest" => {
                let mut params = json!({"sessionId": id, "cwd": cwd, "mcpServers": servers});
                meta.into_iter().for_each(|meta| params["_meta"] = meta);
                // History also arrives before the response, so the session must already belong to the run.
                turn.session = Some(id.clone());
                self.sessions.entry(id).or_default().run = Some(run);
                self.call(run, Call::Open, "session/load", &params, sink);
            }
            SessionTarget::Load(id) => {
                let action = if id == "latest" { "list its sessions" } else { "load a stored session" };
                let failure = Failure::new(FailureKind::Input, format!("the agent cannot {action} over ACP"));
                self.fail(run, Some(failure), sink);
            }
        }
    }

    /// Loads the newest session of a list.
    pub(super) fn listed(&mut self, run: RunId, result: RpcResult<'_>, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run).filter(|turn| turn.step == Step::Opening) else { return };
        let newest = match result {
            Ok(result) => session::newest(result.get()),
            Err(error) => {
                let failure = self.profile.failure(&error);
                return self.fail(run, Some(Failure { kind: FailureKind::Input, ..failure }), sink);
            }
        };
        match newest {
            Some(id) => {
                turn.spec.session = SessionTarget::Load(id);
                self.open(run, sink);
            }
            None => {
                let text = "there is no session in this workspace";
                self.fail(run, Some(Failure::new(FailureKind::SessionNotFound, text)), sink);
            }
        }
    }

    /// Continues in a session that is open on this connection.
    fn continue_session(&mut self, run: RunId, id: &str, sink: &mut Sink) {
        let Some(session) = self.sessions.get(id).filter(|session| session.open) else {
            let text = format!("the session {id} is not open on this connection");
            return self.fail(run, Some(Failure::new(FailureKind::SessionNotFound, text)), sink);
        };
        if self.is_in_use(id, run) {
            // A second prompt in the same session would cancel the first.
            let text = format!("another run is active in the session {id}");
            return self.fail(run, Some(Failure::new(FailureKind::Input, text)), sink);
        }
        let servers = self.turns.get(&run).map(|turn| turn.spec.servers.clone()).unwrap_or_default();
        let others = !servers.is_empty() && servers != session.servers;
        self.enter(run, id.to_owned(), sink);
        if others {
            let text = "an open session keeps its MCP servers; the MCP servers of this run are ignored";
            sink.event(run, Event::warning("mcp_server", text));
        }
        self.set_mode(run, sink);
    }

    /// Returns whether another run is active in a session.
    pub(super) fn is_in_use(&self, id: &str, run: RunId) -> bool {
        let other = self.sessions.get(id).and_then(|session| session.run).filter(|other| *other != run);
        other.and_then(|other| self.turns.get(&other)).is_some_and(|turn| turn.step != Step::Answered)
    }

    /// Handles the response to `session/new` or `session/load`.
    pub(super) fn opened(&mut self, run: RunId, result: RpcResult<'_>, sink: &mut Sink) {
        let Some(turn) = self.turns.get(&run).filter(|turn| turn.step == Step::Opening) else {
            // The run no longer needs the session, but it is open. Register it, so that its updates are not attributed
            // to another run, and close it.
            if let Ok(result) = result
                && let Some(id) = session::id_of(result.get())
            {
                self.sessions.entry(id.clone()).or_default().opened(result.get());
                self.close(run, &id, sink);
            }
            return;
        };
        let result = match result {
            Ok(result) => result.get(),
            Err(error) => {
                let loading = matches!(turn.spec.session, SessionTarget::Load(_));
                let failure = self.profile.failure(&error);
                // A session that fails to load counts as not found, whatever the agent calls it. A failure to
                // open a session is not an API error, because no request has reached a model.
                let failure = match failure.kind {
                    FailureKind::ApiError | FailureKind::Input if loading => {
                        Failure { kind: FailureKind::SessionNotFound, ..failure }
                    }
                    FailureKind::ApiError => Failure { kind: FailureKind::Input, ..failure },
                    _ => failure,
                };
                if let Some(id) = turn.session.clone() {
                    self.sessions.remove(&id);
                }
                return self.fail(run, Some(failure), sink);
            }
        };
        let loaded = turn.session.clone();
        let Some(id) = loaded.clone().or_else(|| session::id_of(result)) else {
            let text = "the agent opened a session without returning its id";
            return self.fail(run, Some(Failure::new(FailureKind::NoResult, text)), sink);
        };
        let servers = turn.spec.servers.clone();
        if loaded.is_none() && self.is_in_use(&id, run) {
            // Updates of the two sessions could not be distinguished.
            let text = format!("the agent returned the id of an active session for a new session: {id}");
            return self.fail(run, Some(Failure::new(FailureKind::NoResult, text)), sink);
        }
        let session = self.sessions.entry(id.clone()).or_default();
        session.opened(result);
        session.servers = servers;
        // The earlier cost of a stored session is unknown.
        session.cost = loaded.is_none().then_some(0.0);
        session.spent = loaded.is_none().then(Tokens::default);
        self.enter(run, id, sink);
        match loaded {
            Some(_) if self.profile.quirks().history_after_load => self.probe(run, 0, sink),
            Some(_) => self.history_over(run, sink),
            None => {
                self.set_title(run, sink);
                self.set_mode(run, sink);
            }
        }
    }

    /// Gives a new session a title, if the agent would otherwise ask a model for one.
    fn set_title(&mut self, run: RunId, sink: &mut Sink) {
        /// The number of characters of the prompt in the title.
        const LENGTH: usize = 60;
        let Some(turn) = self.turns.get(&run).filter(|_| self.profile.quirks().needs_title) else { return };
        let prompt = turn.spec.prompt.split_whitespace().collect::<Vec<_>>().join(" ");
        let title: String = prompt.chars().take(LENGTH).collect();
        let title = if title.is_empty() || turn.spec.only_open { "agentline".to_owned() } else { title };
        let params = json!({"sessionId": turn.session, "title": title});
        self.call(run, Call::Title, "session/set_title", &params, sink);
    }

    /// Assigns the session to the run.
    pub(super) fn enter(&mut self, run: RunId, id: String, sink: &mut Sink) {
        // Report the requested model, because it is set only later.
        let wished =
            self.turns.get(&run).and_then(|turn| turn.spec.model.as_ref()).map(|wish| wish.id.clone());
        let only_opens = self.turns.get(&run).is_some_and(|turn| turn.spec.only_open);
        let session = self.sessions.entry(id.clone()).or_default();
        session.run = Some(run);
        let started = Started {
            session_id: Some(id.clone()),
            model: wished.or_else(|| session.models.current.clone()),
            agent_version: self.capabilities.as_ref().and_then(|c| c.version.clone()),
            models: if only_opens { session.models.infos() } else { Vec::new() },
            ..Started::default()
        };
        sink.event(run, started);
        if self.profile.quirks().session_file {
            sink.follow(run, SideChannel::SessionFile, &id);
        }
        let stray = std::mem::take(&mut session.stray);
        if stray > 0 {
            let text = format!("{stray} updates arrived in this session after the previous run ended");
            sink.event(run, Event::warning("late_update", text));
        }
        if let Some(turn) = self.turns.get_mut(&run) {
            turn.session = Some(id);
        }
    }

    /// Sends a harmless request to detect whether the agent is still replaying history.
    ///
    /// An agent that answers `session/load` before it has replayed the history does not report the end of the history,
    /// and the core has no clock. But the agent handles messages in order. If no history arrives before the responses
    /// to two consecutive probes, the history is complete.
    fn probe(&mut self, run: RunId, quiet: u8, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        turn.step = Step::Draining { quiet, got_history: false };
        let Some(id) = turn.session.clone() else { return };
        let mode =
            self.sessions.get(&id).and_then(|s| s.modes.current.clone()).unwrap_or_else(|| "default".into());
        // The session is already in this mode, so the request changes nothing.
        self.call(run, Call::Probe, "session/set_mode", &json!({"sessionId": id, "modeId": mode}), sink);
    }

    pub(super) fn probed(&mut self, run: RunId, sink: &mut Sink) {
        let Some(Step::Draining { quiet, got_history }) = self.turns.get(&run).map(|turn| turn.step) else {
            return;
        };
        sink.alive(run);
        let quiet = if got_history { 0 } else { quiet + 1 };
        if quiet < QUIET_PROBES {
            return self.probe(run, quiet, sink);
        }
        if let Some(turn) = self.turns.get_mut(&run) {
            turn.step = Step::Opening;
        }
        self.history_over(run, sink);
    }

    /// Ends the history of a loaded session. The history is not emitted again; only its number of updates is reported.
    fn history_over(&mut self, run: RunId, sink: &mut Sink) {
        let replayed = self.turns.get_mut(&run).map_or(0, |turn| std::mem::take(&mut turn.replayed));
        if let Ok(info) = to_raw_value(&json!({"replayedUpdates": replayed})) {
            sink.event(run, Event::SessionInfo { info });
        }
        self.set_mode(run, sink);
    }

    /// Sets the requested mode.
    fn set_mode(&mut self, run: RunId, sink: &mut Sink) {
        let Some((id, session, wish)) = self.wish(run, |turn| turn.spec.mode.clone()) else {
            return self.set_model(run, sink);
        };
        if session.modes.current.as_ref() == Some(&wish.id) {
            return self.set_model(run, sink);
        }
        let (method, params) = mode_request(&id, &session.modes, &wish.id);
        self.call(run, Call::Mode, method, &params, sink);
    }

    pub(super) fn mode_set(&mut self, run: RunId, error: Option<JsonRpcError<'_>>, sink: &mut Sink) {
        sink.alive(run);
        if !self.is_opening(run) {
            return;
        }
        let Some(wish) = self.turns.get(&run).and_then(|turn| turn.spec.mode.clone()) else { return };
        match error.map(|error| self.profile.failure(&error)) {
            None => {
                if let Some(session) = self.session_of(run) {
                    session.modes.current = Some(wish.id);
                }
            }
            Some(failure) => {
                let all = self.session_of(run).map(|s| s.modes.all.join(", ")).filter(|all| !all.is_empty());
                let known = all.map(|all| format!("; available modes: {all}")).unwrap_or_default();
                let text = format!("the agent rejected the mode `{}`: {}{known}", wish.id, failure.message);
                if wish.must {
                    let failure = Failure::new(FailureKind::Policy, text).hint(
                        "use a mode that the agent has, or start a new agent process in the required mode",
                    );
                    return self.fail(run, Some(failure), sink);
                }
                sink.event(run, Event::warning("mode_not_set", text));
            }
        }
        self.set_model(run, sink);
    }

    /// Sets the requested model.
    fn set_model(&mut self, run: RunId, sink: &mut Sink) {
        let Some((id, session, wish)) = self.wish(run, |turn| turn.spec.model.clone()) else {
            return self.wait_for_tools(run, sink);
        };
        let models = &session.models;
        // An agent without a list of models accepts any name and reports errors itself.
        let is_reported = !wish.strict && session.unlisted.as_ref() == Some(&wish.id);
        if !models.all.is_empty() && !models.has(&wish.id) && !is_reported {
            let suggestion = nearest(&wish.id, models.all.iter().map(String::as_str));
            let suggestion = suggestion.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
            let text =
                format!("the model `{}` is not in the agent's list: {}", wish.id, models.all.join(", "));
            if wish.strict {
                let failure = Failure::new(FailureKind::UnknownModel, text)
                    .hint(format!("{suggestion}pass a model from the list, or omit `--model`"));
                return self.fail(run, Some(failure), sink);
            }
            sink.event(run, Event::warning("unknown_model", format!("{suggestion}{text}")));
            // A run that only opens a session for others does not show the warning to a caller.
            if !self.turns.get(&run).is_some_and(|turn| turn.spec.only_open)
                && let Some(session) = self.session_of(run)
            {
                session.unlisted = Some(wish.id.clone());
            }
        }
        let Some(session) = self.sessions.get(&id) else { return };
        let models = &session.models;
        if models.current.as_ref() == Some(&wish.id) {
            return self.wait_for_tools(run, sink);
        }
        let (method, params) = model_request(&id, models, &wish.id);
        let call = if method == "session/set_model" { Call::Model } else { Call::ModelByOption };
        self.call(run, call, method, &params, sink);
    }

    pub(super) fn model_set(
        &mut self,
        run: RunId,
        call: Call,
        error: Option<JsonRpcError<'_>>,
        sink: &mut Sink,
    ) {
        sink.alive(run);
        if !self.is_opening(run) {
            return;
        }
        let Some((id, session, wish)) = self.wish(run, |turn| turn.spec.model.clone()) else { return };
        match error {
            None => {
                sink.model(run, wish.id.clone());
                if let Some(session) = self.session_of(run) {
                    session.models.current = Some(wish.id);
                }
            }
            Some(error) => {
                if let Some(option) = &session.models.option
                    && call == Call::Model
                    && error.code == METHOD_NOT_FOUND
                {
                    let (method, params) = set_option(&id, option, &wish.id);
                    return self.call(run, Call::ModelByOption, method, &params, sink);
                }
                let reason = self.profile.failure(&error).message;
                let text = format!("the agent rejected the model `{}`: {reason}", wish.id);
                // An agent without models cannot be asked for one. Any other agent would work with another model.
                let has_models = error.code != METHOD_NOT_FOUND || !session.models.all.is_empty();
                if has_models {
                    return self.fail(run, Some(Failure::new(FailureKind::UnknownModel, text)), sink);
                }
                sink.event(run, Event::warning("model_not_set", text));
            }
        }
        self.wait_for_tools(run, sink);
    }

    /// Waits until the agent has listed the hosted tools. Otherwise an agent that did not find them would work without
    /// them.
    pub(super) fn wait_for_tools(&mut self, run: RunId, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        let step = match turn.hosted.next_step(&turn.spec) {
            NextStep::Wait if self.profile.quirks().lists_tools_late => NextStep::of(&turn.spec),
            step => step,
        };
        match step {
            NextStep::Wait => turn.step = Step::Listing,
            NextStep::Prompt(prompt) => self.send_prompt(run, &prompt, true, sink),
            NextStep::End(end) => self.end(run, end, sink),
        }
    }

    /// Sends a prompt to the agent.
    pub(super) fn send_prompt(&mut self, run: RunId, prompt: &str, first: bool, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        let Some(id) = turn.session.clone() else { return };
        let late = std::mem::take(&mut turn.replayed);
        if late > 0 && matches!(turn.spec.session, SessionTarget::Open(_)) {
            // These updates belong to an earlier run, not to the answer to this prompt.
            let text = format!("{late} updates that arrived before the prompt were ignored");
            sink.event(run, Event::warning("late_update", text));
        }
        turn.step = Step::Working;
        turn.prompts += 1;
        turn.has_text = false;
        let attachments = if first { &*turn.spec.attachments } else { &[] };
        let blocks = blocks::prompt(prompt, attachments, self.profile.quirks().resources_drop_media);
        let params = json!({"sessionId": id, "prompt": blocks});
        self.call(run, Call::Prompt, "session/prompt", &params, sink);
    }

    fn is_opening(&self, run: RunId) -> bool {
        self.turns.get(&run).is_some_and(|turn| turn.step == Step::Opening)
    }

    fn session_of(&mut self, run: RunId) -> Option<&mut AcpSession> {
        let id = self.turns.get(&run)?.session.as_ref()?;
        self.sessions.get_mut(id)
    }

    fn wish<T>(
        &self,
        run: RunId,
        of: impl Fn(&super::Turn) -> Option<T>,
    ) -> Option<(String, &AcpSession, T)> {
        let turn = self.turns.get(&run)?;
        let id = turn.session.clone()?;
        let session = self.sessions.get(&id)?;
        Some((id, session, of(turn)?))
    }
}

/// Returns the request that sets the mode of a session.
pub(super) fn mode_request(session: &str, modes: &Choices, mode: &str) -> (&'static str, Value) {
    match &modes.option {
        Some(option) if !modes.by_method => set_option(session, option, mode),
        _ => ("session/set_mode", json!({"sessionId": session, "modeId": mode})),
    }
}

/// Returns the request that sets the model of a session.
pub(super) fn model_request(session: &str, models: &Choices, model: &String) -> (&'static str, Value) {
    // The method and the option may have different lists.
    let by_option = !models.by_method || models.is_only_optional(model);
    match &models.option {
        Some(option) if by_option => set_option(session, option, model),
        _ => ("session/set_model", json!({"sessionId": session, "modelId": model})),
    }
}

fn set_option(session: &str, option: &str, value: &str) -> (&'static str, Value) {
    ("session/set_config_option", json!({"sessionId": session, "configId": option, "value": value}))
}

/// Converts MCP servers to the protocol's format.
fn servers(servers: &BTreeMap<String, McpServer>, http: bool) -> Result<Value, Failure> {
    let pairs = |map: &BTreeMap<String, String>| -> Vec<Value> {
        map.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    };
    let list: Result<Vec<Value>, Failure> = servers
        .iter()
        .map(|(name, server)| match server {
            McpServer::Command { command, args, env } => {
                Ok(json!({"name": name, "command": command, "args": args, "env": pairs(env)}))
            }
            McpServer::Url { url, headers } if http => {
                Ok(json!({"type": "http", "name": name, "url": url, "headers": pairs(headers)}))
            }
            McpServer::Url { .. } => Err(Failure::new(
                FailureKind::Input,
                format!("the agent does not support MCP servers over HTTP, so `{name}` cannot be used"),
            )),
        })
        .collect();
    list.map(Value::Array)
}
