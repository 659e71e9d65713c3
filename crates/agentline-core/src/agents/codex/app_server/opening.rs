//! The steps from a submitted run to its turn: initialize the process, open the thread, wait for the hosted tools, and
//! start the turn.

use super::{AppServer, Call, CodexThread, Step};
use crate::{
    Attachment, AttachmentContent, Event, Failure, FailureKind, McpServer, ModelInfo, RunId, SessionTarget,
    Sink, Started, TurnSpec, Version,
    agents::codex::failures::{self, FailedRequests},
    hosted_tools::NextStep,
    nearest,
    rpc::{self, NO_RUN, RpcResult},
    wire::{List, Str, wire},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

wire! { struct Initialized<'a> { agent: Str<'a> = "userAgent" } }
wire! { struct Opened<'a> { thread: ThreadInfo<'a> = "thread", model: Option<Str<'a>> = "model" } }
wire! { struct ThreadInfo<'a> { id: Str<'a> = "id" } }
wire! { struct Models<'a> { data: List<Model<'a>> = "data" } }
wire! { struct Model<'a> { id: Str<'a> = "model", name: Option<Str<'a>> = "displayName" } }
wire! { struct TurnStarted<'a> { turn: TurnInfo<'a> = "turn" } }
wire! { struct TurnInfo<'a> { id: Str<'a> = "id" } }

/// Notifications that are not needed. The diff of the whole turn is sent again after each event.
const UNUSED: &[&str] = &[
    "turn/diff/updated",
    "account/rateLimits/updated",
    "remoteControl/status/changed",
    "thread/started",
    "thread/status/changed",
];

impl AppServer {
    pub(super) fn initialize(&mut self, sink: &mut Sink) {
        let params = json!({
            "clientInfo": {"name": "agentline", "title": "agentline", "version": env!("CARGO_PKG_VERSION")},
            "capabilities": {"experimentalApi": true, "optOutNotificationMethods": UNUSED},
        });
        self.call(NO_RUN, Call::Initialize, "initialize", &params, sink);
    }

    pub(super) fn initialized(&mut self, result: RpcResult<'_>, sink: &mut Sink) {
        let waiting: Vec<RunId> =
            self.runs.iter().filter(|(_, run)| run.step == Step::Waiting).map(|(id, _)| *id).collect();
        match result {
            Ok(result) => {
                let result = serde_json::from_str::<Initialized<'_>>(result.get()).unwrap_or_default();
                if let Some(version) = version_of(&result.agent) {
                    self.version = Some(version);
                }
                self.ready = true;
                sink.frame(rpc::notification("initialized", &json!({})));
                sink.ready();
                waiting.into_iter().for_each(|run| self.open(run, sink));
            }
            Err(error) => {
                let failure = Failure::new(FailureKind::Settings, error.message.to_string());
                self.broken = Some(failure.clone());
                waiting.into_iter().for_each(|run| self.fail(run, Some(failure.clone()), sink));
                sink.shut();
            }
        }
    }

    /// Opens the thread that a run requests.
    pub(super) fn open(&mut self, run: RunId, sink: &mut Sink) {
        let Some(state) = self.runs.get_mut(&run) else { return };
        state.step = Step::Opening;
        let spec = &state.spec;
        if let Some(file) = spec.attachments.iter().find(|file| input_of(file).is_none()) {
            let text =
                format!("`attachments`: Codex accepts text and images, so {} cannot be sent", file.uri);
            return self.fail(run, Some(Failure::new(FailureKind::Input, text)), sink);
        }
        let checks_model = spec.model.as_ref().is_some_and(|model| model.strict);
        if self.models.is_none() && (checks_model || spec.only_open) {
            return self.call(run, Call::Models, "model/list", &json!({"includeHidden": true}), sink);
        }
        if let Some(failure) = self.unlisted_model(run) {
            return self.fail(run, Some(failure), sink);
        }
        let Some(state) = self.runs.get(&run) else { return };
        let mut params = thread_params(&state.spec);
        match state.spec.session.clone() {
            SessionTarget::New | SessionTarget::Named(_) => {
                self.call(run, Call::Open, "thread/start", &Value::Object(params), sink);
            }
            SessionTarget::Open(id) => self.continue_thread(run, &id, sink),
            SessionTarget::Load(id) if self.threads.contains_key(&id) => self.continue_thread(run, &id, sink),
            SessionTarget::Load(id) => {
                params.insert("threadId".into(), id.into());
                params.insert("excludeTurns".into(), true.into());
                self.call(run, Call::Open, "thread/resume", &Value::Object(params), sink);
            }
        }
    }

    /// Returns the failure for a requested model that must be in the list of models and is not.
    fn unlisted_model(&self, run: RunId) -> Option<Failure> {
        let wish = self.runs.get(&run)?.spec.model.as_ref().filter(|model| model.strict)?;
        let models = self.models.as_ref().filter(|models| !models.is_empty())?;
        if models.iter().any(|model| model.id == wish.id) {
            return None;
        }
        let names = || models.iter().map(|model| model.id.as_str());
        let suggestion = nearest(&wish.id, names()).map(|name| format!("did you mean `{name}`? "));
        let all = names().collect::<Vec<_>>().join(", ");
        let text = format!("the model `{}` is not in the agent's list: {all}", wish.id);
        let hint = format!("{}pass a model from the list, or omit `--model`", suggestion.unwrap_or_default());
        Some(Failure::new(FailureKind::UnknownModel, text).hint(hint))
    }

    pub(super) fn models_listed(&mut self, run: RunId, result: RpcResult<'_>, sink: &mut Sink) {
        let models = match result {
            Ok(result) => serde_json::from_str::<Models<'_>>(result.get()).unwrap_or_default().data.0,
            Err(_) => Vec::new(),
        };
        let model = |model: Model<'_>| ModelInfo::new(model.id.own(), model.name.map(Str::own));
        self.models = Some(models.into_iter().map(model).collect());
        if self.is_opening(run) {
            self.open(run, sink);
        }
    }

    /// Continues in a thread that is open on this connection.
    fn continue_thread(&mut self, run: RunId, id: &str, sink: &mut Sink) {
        let Some(thread) = self.threads.get(id) else {
            let text = format!("the session {id} is not open on this connection");
            return self.fail(run, Some(Failure::new(FailureKind::SessionNotFound, text)), sink);
        };
        let other = thread.run.filter(|other| *other != run).and_then(|other| self.runs.get(&other));
        if other.is_some_and(|other| other.step != Step::Answered) {
            // Codex would add the prompt to the turn of the other run.
            let text = format!("another run is active in the session {id}");
            return self.fail(run, Some(Failure::new(FailureKind::Input, text)), sink);
        }
        self.enter(run, id, sink);
    }

    /// Handles the response to `thread/start` or `thread/resume`.
    pub(super) fn opened(&mut self, run: RunId, result: RpcResult<'_>, sink: &mut Sink) {
        let opened = match &result {
            Ok(result) => serde_json::from_str::<Opened<'_>>(result.get()).unwrap_or_default(),
            Err(_) => Opened::default(),
        };
        let id = opened.thread.id.own();
        let Some(state) = self.runs.get(&run).filter(|run| run.step == Step::Opening) else {
            // The run no longer needs the thread.
            if !id.is_empty() {
                self.call(run, Call::Other, "thread/unsubscribe", &json!({"threadId": id}), sink);
            }
            return;
        };
        if let Err(error) = result {
            let loads = matches!(state.spec.session, SessionTarget::Load(_));
            return self.fail(run, Some(failures::of_opening(&error, loads)), sink);
        }
        if id.is_empty() {
            let text = "the agent opened a session without returning its id";
            return self.fail(run, Some(Failure::new(FailureKind::NoResult, text)), sink);
        }
        let model = opened.model.map(Str::own).filter(|model| !model.is_empty());
        self.threads.insert(id.clone(), CodexThread { run: Some(run), model, ended_turn: None });
        self.enter(run, &id, sink);
    }

    /// Assigns the thread to the run.
    fn enter(&mut self, run: RunId, id: &str, sink: &mut Sink) {
        let Some(state) = self.runs.get_mut(&run) else { return };
        let thread = self.threads.entry(id.to_owned()).or_default();
        thread.run = Some(run);
        // The model of a turn is that of its request, also in an open thread.
        if let Some(wish) = &state.spec.model {
            thread.model = Some(wish.id.clone());
        }
        state.thread = Some(id.to_owned());
        let models = self.models.clone().filter(|_| state.spec.only_open);
        sink.event(
            run,
            Event::from(Started {
                session_id: Some(id.to_owned()),
                model: thread.model.clone(),
                agent_version: self.version.clone(),
                models: models.unwrap_or_default(),
                ..Started::default()
            }),
        );
        if let Some(model) = &thread.model {
            sink.model(run, model.clone());
        }
        self.wait_for_tools(run, sink);
    }

    /// Waits until the agent has listed the hosted tools. Otherwise it would work without tools that it did not find.
    pub(super) fn wait_for_tools(&mut self, run: RunId, sink: &mut Sink) {
        let Some(state) = self.runs.get_mut(&run) else { return };
        match state.hosted.next_step(&state.spec) {
            NextStep::Wait => state.step = Step::Listing,
            NextStep::Prompt(prompt) => self.start_turn(run, &prompt, true, sink),
            NextStep::End(end) => self.end(run, end, sink),
        }
    }

    /// Sends a prompt to the agent.
    pub(super) fn start_turn(&mut self, run: RunId, prompt: &str, first: bool, sink: &mut Sink) {
        let Some(state) = self.runs.get_mut(&run) else { return };
        let Some(thread) = state.thread.clone() else { return };
        state.step = Step::Working;
        state.turns += 1;
        state.turn = None;
        (state.has_text, state.unfinished, state.is_repeated) = (false, None, false);
        state.failed_requests = FailedRequests::default();
        state.gave_up = None;
        let mut input = vec![json!({"type": "text", "text": prompt})];
        if first {
            input.extend(state.spec.attachments.iter().filter_map(input_of));
        }
        let mut params = section(&state.spec, "turn");
        params.insert("threadId".into(), thread.into());
        params.insert("input".into(), input.into());
        if let Some(model) = &state.spec.model {
            params.insert("model".into(), model.id.clone().into());
        }
        self.call(run, Call::Turn, "turn/start", &Value::Object(params), sink);
    }

    /// Handles the response to `turn/start`, which has the id of the turn.
    pub(super) fn turn_accepted(&mut self, run: RunId, result: RpcResult<'_>, sink: &mut Sink) {
        sink.alive(run);
        match result {
            Ok(result) => {
                let turn = serde_json::from_str::<TurnStarted<'_>>(result.get()).unwrap_or_default().turn;
                self.turn_begins(run, turn.id.own(), sink);
            }
            Err(error) => self.fail(run, Some(failures::of_opening(&error, false)), sink),
        }
    }

    /// Records the id of the current turn, and interrupts it if that was requested before.
    pub(super) fn turn_begins(&mut self, run: RunId, id: String, sink: &mut Sink) {
        let Some(state) = self.runs.get_mut(&run).filter(|run| run.step == Step::Working) else { return };
        if id.is_empty() || state.turn.replace(id.clone()) == Some(id) {
            return;
        }
        if state.stopping {
            self.interrupt(run, sink);
        }
    }

    fn is_opening(&self, run: RunId) -> bool {
        self.runs.get(&run).is_some_and(|run| run.step == Step::Opening)
    }
}

/// Returns the version in a user agent such as `agentline/0.166.0 (Debian 12; x86_64) …`.
fn version_of(agent: &str) -> Option<String> {
    let version = agent.split_once('/')?.1.split_whitespace().next()?;
    Version::parse(version).map(|_| version.to_owned())
}

/// Returns a section of the parameters that the launch prepares.
fn section(spec: &TurnSpec, name: &str) -> Map<String, Value> {
    let meta = spec.meta.as_deref().and_then(|meta| serde_json::from_str::<Value>(meta).ok());
    let section = meta.and_then(|mut meta| meta.get_mut(name).map(Value::take));
    match section {
        Some(Value::Object(section)) => section,
        _ => Map::new(),
    }
}

/// Returns the parameters that open a thread.
fn thread_params(spec: &TurnSpec) -> Map<String, Value> {
    let mut params = section(spec, "thread");
    params.insert("cwd".into(), spec.session_cwd.as_ref().unwrap_or(&spec.info.cwd).clone().into());
    if let Some(model) = &spec.model {
        params.insert("model".into(), model.id.clone().into());
    }
    if !spec.servers.is_empty() {
        let mut config = match params.remove("config") {
            Some(Value::Object(config)) => config,
            _ => Map::new(),
        };
        config.insert("mcp_servers".into(), servers(&spec.servers));
        params.insert("config".into(), config.into());
    }
    params
}

/// Converts MCP servers to the format of Codex's configuration. The host decides on each call of their tools.
fn servers(servers: &BTreeMap<String, McpServer>) -> Value {
    let server = |server: &McpServer| {
        let mut value = match server {
            McpServer::Command { command, args, env } => {
                json!({"command": command, "args": args, "env": env})
            }
            McpServer::Url { url, headers } => json!({"url": url, "http_headers": headers}),
        };
        value["default_tools_approval_mode"] = "prompt".into();
        // Otherwise the model must search for the tools before it can call them.
        value["omit_tools_from"] = json!(["deferred"]);
        value
    };
    Value::Object(servers.iter().map(|(name, of)| (name.clone(), server(of))).collect())
}

/// Converts an attachment to an input of a turn. Returns `None` for files other than text and images.
fn input_of(file: &Attachment) -> Option<Value> {
    match &file.content {
        AttachmentContent::Text(text) => {
            Some(json!({"type": "text", "text": format!("--- Content of {} ---\n{text}", file.uri)}))
        }
        AttachmentContent::Base64(data) if file.mime.starts_with("image/") => {
            Some(json!({"type": "image", "url": format!("data:{};base64,{data}", file.mime)}))
        }
        AttachmentContent::Base64(_) => None,
    }
}
