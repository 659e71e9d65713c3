//! The steps from a submitted run to its prompt: open the session, add its MCP servers, find the model, and wait until
//! OpenCode has listed the hosted tools.

use super::{Call, Reply, Serve, ServeSession, encoded, server_warning, turn::ServeStep};
use crate::{
    AttachmentContent, Failure, FailureKind, McpServer, ModelInfo, RunId, SessionTarget, Sink, Started,
    hosted_tools::NextStep,
    nearest,
    wire::{Entries, List, Num, Str, wire},
};
use serde_json::{Value, json, value::RawValue};
use std::collections::BTreeMap;

wire! { struct SessionInfo<'a> { id: Str<'a> = "id", version: Option<Str<'a>> = "version" } }
wire! { struct Providers<'a> { all: List<Provider<'a>> = "providers" } }
wire! { struct Provider<'a> { id: Str<'a> = "id", models: Entries<'a, ModelWire<'a>> = "models" } }
wire! { struct ModelWire<'a> {
    name: Option<Str<'a>> = "name", limit: LimitWire<'a> = "limit", variants: Entries<'a, &'a RawValue> = "variants",
} }
wire! { struct LimitWire<'a> { context: Num = "context" } }
wire! { struct ServerState<'a> { status: Str<'a> = "status", error: Option<Str<'a>> = "error" } }

/// The longest title of a session, in characters.
const MAX_TITLE: usize = 80;

impl Serve {
    /// Opens the session that a run requests.
    pub(super) fn open(&mut self, run: RunId, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        turn.step = ServeStep::Opening;
        match turn.spec.session.clone() {
            SessionTarget::New | SessionTarget::Named(_) => {
                // OpenCode asks the model for the title of a session that has none.
                let title = title_of(&turn.spec.prompt);
                let body = title.map_or_else(|| json!({}), |title| json!({ "title": title }));
                self.request(run, Call::Open, ("POST", "/session"), Some(body), sink);
            }
            SessionTarget::Load(id) if id == "latest" => {
                self.request(run, Call::Latest, ("GET", "/session?roots=true&limit=1"), None, sink);
            }
            SessionTarget::Open(id) => self.continue_session(run, &id, sink),
            SessionTarget::Load(id) if self.sessions.get(&id).is_some_and(|session| session.is_open) => {
                self.continue_session(run, &id, sink);
            }
            SessionTarget::Load(id) => self.load(run, &id, sink),
        }
    }

    fn load(&mut self, run: RunId, id: &str, sink: &mut Sink) {
        self.request(run, Call::Open, ("GET", &format!("/session/{}", encoded(id))), None, sink);
    }

    /// Continues in a session that is open on this connection.
    fn continue_session(&mut self, run: RunId, id: &str, sink: &mut Sink) {
        let Some(session) = self.sessions.get(id).filter(|session| session.is_open) else {
            let text = format!("the session {id} is not open on this connection");
            return self.fail(run, Some(Failure::new(FailureKind::SessionNotFound, text)), sink);
        };
        let other = session.run.filter(|other| *other != run).and_then(|other| self.turns.get(&other));
        if other.is_some_and(|turn| turn.step != ServeStep::Answered) {
            let text = format!("another run is active in the session {id}");
            return self.fail(run, Some(Failure::new(FailureKind::Input, text)), sink);
        }
        self.enter(run, id, sink);
    }

    /// Resumes the newest session of a list.
    pub(super) fn found_latest(&mut self, run: RunId, reply: &Reply<'_>, sink: &mut Sink) {
        if !reply.is_ok() {
            return self.fail(run, Some(reply.failure("list the sessions")), sink);
        }
        let sessions = serde_json::from_str::<List<SessionInfo<'_>>>(reply.body).unwrap_or_default().0;
        match sessions.into_iter().map(|session| session.id.own()).find(|id| !id.is_empty()) {
            Some(id) if self.sessions.get(&id).is_some_and(|session| session.is_open) => {
                self.continue_session(run, &id, sink);
            }
            Some(id) => self.load(run, &id, sink),
            None => {
                let text = "there is no session in this workspace";
                self.fail(run, Some(Failure::new(FailureKind::SessionNotFound, text)), sink);
            }
        }
    }

    /// Handles the session that was created or read.
    pub(super) fn opened(&mut self, run: RunId, reply: &Reply<'_>, sink: &mut Sink) {
        let Some(turn) = self.turns.get(&run).filter(|turn| turn.step == ServeStep::Opening) else { return };
        let info = serde_json::from_str::<SessionInfo<'_>>(reply.body).unwrap_or_default();
        let id = info.id.own();
        self.version = info.version.map(Str::own).or(self.version.take());
        if !reply.is_ok() || id.is_empty() {
            let failure = match (&turn.spec.session, reply.status) {
                (SessionTarget::Load(id), Some(404 | 400)) => {
                    Failure::new(FailureKind::SessionNotFound, format!("there is no session {id}"))
                }
                _ => reply.failure("open a session"),
            };
            return self.fail(run, Some(failure), sink);
        }
        let is_new = matches!(turn.spec.session, SessionTarget::New | SessionTarget::Named(_));
        let has_title = !is_new || title_of(&turn.spec.prompt).is_some();
        self.sessions
            .insert(id.clone(), ServeSession { is_open: true, has_title, ..ServeSession::default() });
        self.enter(run, &id, sink);
    }

    /// Assigns the session to the run, and sends the requests that must be answered before the prompt.
    fn enter(&mut self, run: RunId, id: &str, sink: &mut Sink) {
        let (Some(turn), Some(session)) = (self.turns.get_mut(&run), self.sessions.get_mut(id)) else {
            return;
        };
        turn.session = Some(id.to_owned());
        session.run = Some(run);
        let added: Vec<(String, Value)> = turn
            .spec
            .servers
            .iter()
            .filter(|(name, server)| session.servers.get(*name) != Some(server))
            .map(|(name, server)| (name.clone(), server_config(server)))
            .collect();
        session.servers.extend(turn.spec.servers.clone());
        // Without a model to find, the prompt does not wait for the list, which has the sizes of the context windows.
        let needs_models = turn.spec.model.is_some() || turn.spec.only_open;
        let wants_models = needs_models || self.windows.is_none();
        turn.setup = u32::try_from(added.len()).unwrap_or(u32::MAX) + u32::from(needs_models);
        if !turn.spec.only_open {
            let model = turn.spec.model.as_ref().map(|model| model.id.clone());
            let session_id = Some(id.to_owned());
            let agent_version = self.version.clone();
            let started = Started { session_id, model, agent_version, ..Started::default() };
            sink.event(run, started);
        }
        for (name, config) in added {
            let body = json!({"name": name, "config": config});
            self.request(run, Call::Server(name), ("POST", "/mcp"), Some(body), sink);
        }
        if wants_models {
            self.request(run, Call::Models, ("GET", "/config/providers"), None, sink);
        }
        self.wait_for_tools(run, sink);
    }

    /// Handles the state of an MCP server that was added.
    pub(super) fn added_server(&mut self, run: RunId, name: &str, reply: &Reply<'_>, sink: &mut Sink) {
        let states = serde_json::from_str::<Entries<'_, ServerState<'_>>>(reply.body).unwrap_or_default();
        let state = states.0.into_iter().find(|(of, _)| &**of == name).map(|(_, state)| state);
        match state {
            Some(state) if reply.is_ok() && &*state.status == "connected" => {}
            Some(state) if reply.is_ok() => {
                let error = state.error.map_or_else(|| state.status.to_string(), Str::own);
                sink.event(run, server_warning(name, &error));
            }
            _ => sink.event(run, server_warning(name, &reply.failure("add it").message)),
        }
        self.set_up(run, sink);
    }

    /// Finds the requested model in the list of OpenCode, which runs no other models.
    pub(super) fn listed_models(&mut self, run: RunId, reply: &Reply<'_>, sink: &mut Sink) {
        let providers = serde_json::from_str::<Providers<'_>>(reply.body).unwrap_or_default();
        if reply.is_ok() {
            self.windows = Some(windows(&providers));
        }
        let Some(turn) = self.turns.get_mut(&run).filter(|turn| turn.step == ServeStep::Opening) else {
            return;
        };
        if turn.spec.model.is_none() && !turn.spec.only_open {
            return;
        }
        if !reply.is_ok() {
            return self.fail(run, Some(reply.failure("list its models")), sink);
        }
        let models: Vec<(&str, &str, Option<&str>)> = providers
            .all
            .0
            .iter()
            .flat_map(|provider| {
                provider.models.0.iter().map(|(id, model)| (&*provider.id, &**id, model.name.as_deref()))
            })
            .collect();
        if turn.spec.only_open {
            let named = |(provider, id, name): &(&str, &str, Option<&str>)| {
                ModelInfo::new(format!("{provider}/{id}"), name.map(str::to_owned))
            };
            let started = Started {
                session_id: turn.session.clone(),
                agent_version: self.version.clone(),
                models: models.iter().map(named).collect(),
                ..Started::default()
            };
            sink.event(run, started);
        }
        if let Some(wish) = turn.spec.model.as_ref().map(|model| model.id.clone()) {
            match find_model(&wish, &models) {
                Some(found) => {
                    let variant = turn.options.get("variant").and_then(Value::as_str);
                    if let Some(failure) = variant.and_then(|name| missing_variant(name, &found, &providers))
                    {
                        return self.fail(run, Some(failure), sink);
                    }
                    turn.model = Some(found);
                }
                None => {
                    let all: Vec<String> =
                        models.iter().map(|(provider, id, _)| format!("{provider}/{id}")).collect();
                    return self.fail(run, Some(unknown_model(&wish, &all)), sink);
                }
            }
        }
        self.set_up(run, sink);
    }

    /// Counts an answered request, and continues after the last one.
    fn set_up(&mut self, run: RunId, sink: &mut Sink) {
        if let Some(turn) = self.turns.get_mut(&run) {
            turn.setup = turn.setup.saturating_sub(1);
            self.wait_for_tools(run, sink);
        }
    }

    /// Sends the prompt once everything is set up and OpenCode has listed the hosted tools. Otherwise it would work
    /// without them.
    pub(super) fn wait_for_tools(&mut self, run: RunId, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        if !matches!(turn.step, ServeStep::Opening | ServeStep::Listing)
            || turn.setup > 0
            || turn.session.is_none()
        {
            return;
        }
        match turn.hosted.next_step(&turn.spec) {
            NextStep::Wait => turn.step = ServeStep::Listing,
            NextStep::Prompt(prompt) => self.send_prompt(run, &prompt, true, sink),
            NextStep::End(end) => self.end(run, end, sink),
        }
    }

    /// Sends a prompt.
    pub(super) fn send_prompt(&mut self, run: RunId, prompt: &str, first: bool, sink: &mut Sink) {
        let Some(turn) = self.turns.get_mut(&run) else { return };
        let Some(id) = turn.session.clone() else { return };
        turn.begin_prompt();
        let mut parts = vec![json!({"type": "text", "text": prompt})];
        let attachments = if first { &*turn.spec.attachments } else { &[] };
        parts.extend(attachments.iter().map(|file| match &file.content {
            AttachmentContent::Text(text) => {
                json!({"type": "text", "text": format!("\n--- Content of {} ---\n{text}\n", file.uri)})
            }
            AttachmentContent::Base64(data) => {
                let name = file.uri.rsplit('/').next().unwrap_or_default();
                let url = format!("data:{};base64,{data}", file.mime);
                json!({"type": "file", "mime": file.mime, "filename": name, "url": url})
            }
        }));
        let mut body = json!({ "parts": parts });
        if let Some((provider, model)) = &turn.model {
            body["model"] = json!({"providerID": provider, "modelID": model});
        }
        if let Some(mode) = &turn.spec.mode {
            body["agent"] = json!(mode.id);
        }
        for option in ["system", "variant"] {
            if let Some(value) = turn.options.get(option) {
                body[option] = value.clone();
            }
        }
        let title = self.sessions.get_mut(&id).filter(|session| !session.has_title).and_then(|session| {
            session.has_title = true;
            title_of(prompt)
        });
        if let Some(title) = title {
            let body = json!({ "title": title });
            self.request(run, Call::Other, ("PATCH", &format!("/session/{id}")), Some(body), sink);
        }
        self.request(run, Call::Prompt, ("POST", &format!("/session/{id}/message")), Some(body), sink);
    }

    /// Disconnects the MCP servers of a session that is no longer needed. They belong to the workspace, so that other
    /// sessions would see their tools.
    pub(super) fn close_servers(&mut self, run: RunId, sink: &mut Sink) {
        let Some(turn) = self.turns.get(&run).filter(|turn| turn.spec.ends_session) else { return };
        let Some(session) = turn.session.as_ref().and_then(|id| self.sessions.get_mut(id)) else { return };
        for name in std::mem::take(&mut session.servers).into_keys() {
            let path = format!("/mcp/{}/disconnect", encoded(&name));
            self.request(run, Call::Other, ("POST", &path), None, sink);
        }
    }
}

/// Returns the title of a session with this prompt: its first line.
fn title_of(prompt: &str) -> Option<String> {
    let line = prompt.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(MAX_TITLE).collect())
}

fn windows(providers: &Providers<'_>) -> BTreeMap<String, u64> {
    let of_provider = |provider: &'_ Provider<'_>| -> Vec<(String, u64)> {
        let sizes = provider.models.0.iter().filter_map(|(id, model)| Some((id, model.limit.context.0?)));
        sizes.map(|(id, size)| (format!("{}/{}", &*provider.id, &**id), size)).collect()
    };
    providers.all.0.iter().flat_map(of_provider).collect()
}

/// Finds a model by `provider/model`, or by its id alone if only one provider has it.
fn find_model(wish: &str, models: &[(&str, &str, Option<&str>)]) -> Option<(String, String)> {
    let own = |(provider, id, _): &(&str, &str, Option<&str>)| ((*provider).to_owned(), (*id).to_owned());
    let whole = wish.split_once('/');
    let named = models.iter().find(|(provider, id, _)| whole == Some((*provider, *id)));
    let mut by_id = models.iter().filter(|(_, id, _)| *id == wish);
    let only = by_id.next().filter(|_| by_id.next().is_none());
    named.or(only).map(own)
}

/// Returns a failure if a model does not have a variant. OpenCode would ignore it.
fn missing_variant(variant: &str, model: &(String, String), providers: &Providers<'_>) -> Option<Failure> {
    let provider = providers.all.0.iter().find(|provider| *provider.id == *model.0)?;
    let (_, listed) = provider.models.0.iter().find(|(id, _)| **id == *model.1)?;
    let names: Vec<&str> = listed.variants.0.iter().map(|(name, _)| &**name).collect();
    if names.contains(&variant) {
        return None;
    }
    let all = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let text = format!("the model {}/{} has no effort `{variant}`; it has: {all}", model.0, model.1);
    Some(Failure::new(FailureKind::Input, text).hint("pass an effort that the model has, or omit `effort`"))
}

fn unknown_model(wish: &str, all: &[String]) -> Failure {
    const MOST: usize = 20;
    let suggestion = nearest(wish, all.iter().map(String::as_str));
    let suggestion = suggestion.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    let shown = all.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    let more = all.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Failure::new(FailureKind::UnknownModel, format!("OpenCode has no model `{wish}`; it has {shown}{more}"))
        .hint(format!("{suggestion}pass a model from `opencode models`, or omit `--model`"))
}

/// Converts an MCP server to OpenCode's settings.
fn server_config(server: &McpServer) -> Value {
    match server {
        McpServer::Command { command, args, env } => {
            let words: Vec<&String> = std::iter::once(command).chain(args).collect();
            json!({"type": "local", "command": words, "environment": env})
        }
        McpServer::Url { url, headers } => {
            json!({"type": "remote", "url": url, "headers": headers, "oauth": false})
        }
    }
}
