//! Control messages: requests to Claude Code with their responses, and its requests for permission.

use super::{ClaudeStream, OpenCall, Step};
use crate::{
    Attachment, AttachmentContent, Diff, Event, Failure, FailureKind, HostRequest, HostResponse, McpServer,
    ModelInfo, PermissionDecision, PermissionRequest, RunId, Sink, ToolKind,
    agents::claude::tools,
    hosted_tools::NextStep,
    wire::{Entries, List, Str, wire},
};
use serde_json::{Value, json, value::RawValue};
use std::collections::BTreeMap;

wire! { struct ResponseLine<'a> { response: Response<'a> = "response" } }
wire! { struct Response<'a> {
    subtype: Str<'a> = "subtype", id: Str<'a> = "request_id", error: Str<'a> = "error", body: Option<&'a RawValue> = "response",
} }
wire! { struct Initialized<'a> { models: List<Model<'a>> = "models" } }
wire! { struct Model<'a> { value: Str<'a> = "value", name: Option<Str<'a>> = "displayName" } }
wire! { struct ServersSet<'a> { errors: Entries<'a, Str<'a>> = "errors" } }
wire! { struct RequestLine<'a> { id: Str<'a> = "request_id", request: Request<'a> = "request" } }
wire! { struct Request<'a> {
    subtype: Str<'a> = "subtype", tool: Str<'a> = "tool_name", call: Str<'a> = "tool_use_id", input: Option<&'a RawValue> = "input",
    title: Str<'a> = "title", description: Str<'a> = "description", agent: Str<'a> = "agent_id",
} }
wire! { struct Arguments<'a> {
    command: Str<'a> = "command", file: Str<'a> = "file_path", notebook: Str<'a> = "notebook_path", path: Str<'a> = "path",
    content: Option<Str<'a>> = "content", old: Option<Str<'a>> = "old_string", new: Option<Str<'a>> = "new_string",
    edits: List<Edit<'a>> = "edits",
} }
wire! { struct Edit<'a> { old: Str<'a> = "old_string", new: Str<'a> = "new_string" } }

/// The kind of a pending request to Claude Code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlCall {
    Initialize,
    Mode,
    Model,
    Servers,
    Interrupt,
}

/// A request for permission that waits for the host.
#[derive(Debug)]
pub(super) struct PendingPermission {
    pub(super) run: RunId,
    id: String,
    call: String,
    tool: String,
    input: Box<RawValue>,
}

impl ClaudeStream {
    fn control(&mut self, call: ControlCall, request: &Value, sink: &mut Sink) {
        self.last_request += 1;
        let id = format!("agentline-{}", self.last_request);
        sink.frame(frame(&json!({"type": "control_request", "request_id": id, "request": request})));
        self.pending.insert(id, call);
    }

    /// Sends the settings of the process.
    pub(super) fn initialize(&mut self, sink: &mut Sink) {
        let own = self.config.handshake.as_deref().and_then(|own| serde_json::from_str(own).ok());
        let mut request: Value = own.unwrap_or_else(|| json!({}));
        request["subtype"] = "initialize".into();
        self.control(ControlCall::Initialize, &request, sink);
    }

    /// Handles a response to one of our requests.
    pub(super) fn control_response(&mut self, text: &str, sink: &mut Sink) {
        let response = serde_json::from_str::<ResponseLine<'_>>(text).unwrap_or_default().response;
        let Some(call) = self.pending.remove(&*response.id) else { return };
        let body = response.body.map_or("null", RawValue::get);
        let error = (&*response.subtype != "success").then(|| response.error.to_string());
        if let Some(turn) = &self.turn {
            sink.alive(turn.run);
        }
        match (call, error) {
            (ControlCall::Initialize, None) => self.initialized(body, sink),
            (ControlCall::Initialize, Some(error)) => {
                let text = format!("Claude Code could not be initialized: {error}");
                self.fail_all(Failure::new(FailureKind::Input, text), sink);
            }
            (ControlCall::Interrupt, _) => {}
            _ if self.turn.as_ref().is_none_or(|turn| turn.step != Step::Configuring) => {}
            (ControlCall::Mode, error) => self.mode_set(error, sink),
            (ControlCall::Model, error) => self.model_set(error, sink),
            (ControlCall::Servers, error) => self.servers_set(error, body, sink),
        }
    }

    fn initialized(&mut self, body: &str, sink: &mut Sink) {
        let body = serde_json::from_str::<Initialized<'_>>(body).unwrap_or_default();
        let models = body.models.0.into_iter().filter(|model| !model.value.is_empty());
        self.models =
            models.map(|model| ModelInfo::new(model.value.own(), model.name.map(Str::own))).collect();
        self.is_ready = true;
        sink.ready();
        if self.turn.as_ref().is_some_and(|turn| turn.step == Step::Waiting) {
            self.configure(sink);
        }
    }

    /// Brings the session into the state that the run requests, one request at a time, then sends the prompt.
    pub(super) fn configure(&mut self, sink: &mut Sink) {
        let Some(turn) = self.turn.as_mut() else { return };
        turn.step = Step::Configuring;
        let spec = &turn.spec;
        if let Some(mode) = spec.mode.as_ref().filter(|wish| self.mode.as_ref() != Some(&wish.id)) {
            let request = json!({"subtype": "set_permission_mode", "mode": mode.id});
            return self.control(ControlCall::Mode, &request, sink);
        }
        if let Some(model) = spec.model.as_ref().filter(|wish| self.model.as_ref() != Some(&wish.id)) {
            let request = json!({"subtype": "set_model", "model": model.id});
            return self.control(ControlCall::Model, &request, sink);
        }
        if !spec.servers.is_empty() && spec.servers != self.servers {
            let request = json!({"subtype": "mcp_set_servers", "servers": servers(&spec.servers)});
            return self.control(ControlCall::Servers, &request, sink);
        }
        match turn.hosted.next_step(&turn.spec) {
            NextStep::Wait => turn.step = Step::Listing,
            NextStep::Prompt(prompt) => self.send_prompt(&prompt, true, sink),
            NextStep::End(end) => {
                if end.ok {
                    self.report_start(None, None, sink);
                }
                self.end(end, sink);
            }
        }
    }

    fn mode_set(&mut self, error: Option<String>, sink: &mut Sink) {
        let Some(turn) = self.turn.as_ref() else { return };
        let Some(wish) = turn.spec.mode.clone() else { return };
        if let Some(error) = error {
            let text = format!("Claude Code rejected the mode `{}`: {error}", wish.id);
            if wish.must {
                return self.fail(Some(Failure::new(FailureKind::Policy, text)), sink);
            }
            sink.event(turn.run, Event::warning("mode_not_set", text));
        }
        self.mode = Some(wish.id);
        self.configure(sink);
    }

    fn model_set(&mut self, error: Option<String>, sink: &mut Sink) {
        let Some(wish) = self.turn.as_ref().and_then(|turn| turn.spec.model.clone()) else { return };
        if let Some(error) = error {
            let text = format!("Claude Code rejected the model `{}`: {error}", wish.id);
            return self.fail(Some(Failure::new(FailureKind::UnknownModel, text)), sink);
        }
        self.model = Some(wish.id);
        self.configure(sink);
    }

    fn servers_set(&mut self, error: Option<String>, body: &str, sink: &mut Sink) {
        let Some(turn) = self.turn.as_ref() else { return };
        if let Some(error) = error {
            let text = format!("Claude Code rejected the MCP servers: {error}");
            return self.fail(Some(Failure::new(FailureKind::Mcp, text)), sink);
        }
        for (server, error) in serde_json::from_str::<ServersSet<'_>>(body).unwrap_or_default().errors.0 {
            let text = format!("the MCP server `{}` is unavailable: {}", &*server, &*error);
            sink.event(turn.run, Event::warning("mcp_server", text));
        }
        self.servers.clone_from(&turn.spec.servers);
        self.configure(sink);
    }

    /// Sends a prompt. Only the first prompt of a run has attachments.
    pub(super) fn send_prompt(&mut self, prompt: &str, first: bool, sink: &mut Sink) {
        let Some(turn) = self.turn.as_mut() else { return };
        (turn.step, turn.has_text, turn.is_repeated, turn.error) = (Step::Working, false, false, None);
        turn.prompts += 1;
        turn.messages.clear();
        self.is_used = true;
        let attachments = if first { &*turn.spec.attachments } else { &[] };
        let mut content = vec![json!({"type": "text", "text": prompt})];
        content.extend(attachments.iter().map(block));
        let message = json!({"role": "user", "content": content});
        let session = self.config.session_id.as_deref().unwrap_or_default();
        sink.frame(frame(
            &json!({"type": "user", "message": message, "parent_tool_use_id": null, "session_id": session}),
        ));
    }

    /// Handles a request of Claude Code. Every request is answered, because it would wait forever otherwise.
    pub(super) fn control_request(&mut self, text: &str, sink: &mut Sink) {
        let line = serde_json::from_str::<RequestLine<'_>>(text).unwrap_or_default();
        let request = line.request;
        let run = self.working().filter(|_| self.turn.as_ref().is_some_and(|turn| !turn.stopping));
        match (&*request.subtype, run) {
            ("can_use_tool", Some(run)) => {
                let input = request.input.map_or_else(|| RawValue::NULL.to_owned(), ToOwned::to_owned);
                let ask = self.permission(run, &request, sink);
                let question = PendingPermission {
                    run,
                    id: line.id.own(),
                    call: ask.tool_use_id.clone(),
                    tool: ask.native_tool.clone(),
                    input,
                };
                let ask = sink.ask(run, HostRequest::Permission(Box::new(ask)));
                self.questions.insert(ask, question);
            }
            ("can_use_tool", None) => sink.frame(denied(&line.id, "the run was stopped")),
            // A hook that only waits: by now, an exceeded limit has stopped the run.
            ("hook_callback", Some(run)) => {
                sink.alive(run);
                sink.frame(success(&line.id, &json!({"continue": true})));
            }
            ("hook_callback", None) => sink.frame(success(&line.id, &json!({"continue": false}))),
            (other, _) => {
                let error = format!("unsupported request: {other}");
                let response = json!({"subtype": "error", "request_id": &*line.id, "error": error});
                sink.frame(frame(&json!({"type": "control_response", "response": response})));
            }
        }
    }

    fn permission(&mut self, run: RunId, request: &Request<'_>, sink: &mut Sink) -> PermissionRequest {
        let tool = tools::tool_use(&request.call, &request.tool, request.input);
        if let Some(turn) = self.turn.as_mut()
            && !turn.calls.contains_key(&*request.call)
        {
            // The call of a sub-agent whose messages are not shown.
            let call = OpenCall { native: request.tool.to_string(), ..OpenCall::default() };
            turn.calls.insert(request.call.to_string(), call);
            sink.event(run, tool.clone());
        }
        let arguments = request.input.map_or("null", RawValue::get);
        let arguments = serde_json::from_str::<Arguments<'_>>(arguments).unwrap_or_default();
        let server = request.tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__"));
        let title = [&request.title, &request.description].into_iter().find(|text| !text.is_empty());
        let kind = tool.kind;
        let is = |other: ToolKind| kind == other;
        let filled = |text: &Str<'_>| Some(text.to_string()).filter(|text| !text.is_empty());
        let paths = [&arguments.file, &arguments.notebook, &arguments.path];
        PermissionRequest {
            tool_use_id: request.call.to_string(),
            title: title.map_or_else(|| request.tool.to_string(), |title| title.to_string()),
            command: filled(&arguments.command).filter(|_| is(ToolKind::Shell)),
            paths: paths.into_iter().filter(|_| !is(ToolKind::Mcp)).filter_map(filled).collect(),
            diffs: if is(ToolKind::Write) || is(ToolKind::Edit) { diffs(&arguments) } else { Vec::new() },
            server: server.map(|(server, _)| server.to_owned()),
            tool: tool.name,
            native_tool: tool.native_name,
            kind,
            input: tool.input,
        }
    }

    /// Sends the host's decision to Claude Code.
    pub(super) fn answer_question(
        &mut self,
        question: PendingPermission,
        answer: &HostResponse,
        sink: &mut Sink,
    ) {
        let PendingPermission { id, call, tool, input, run } = question;
        let turn = self.turn.as_mut().filter(|turn| turn.run == run && turn.step == Step::Working);
        let Some(turn) = turn.filter(|turn| !turn.stopping) else {
            return sink.frame(denied(&id, "the run was stopped"));
        };
        let no_decision = PermissionDecision::deny("agentline", "no_answer");
        let ruling = match answer {
            HostResponse::PermissionDecided(ruling) => ruling,
            _ => &no_decision,
        };
        if ruling.allow {
            return sink.frame(success(&id, &json!({"behavior": "allow", "updatedInput": input})));
        }
        let reason = ruling.reason.clone().unwrap_or_else(|| "denied".to_owned());
        let reason = match &ruling.rule {
            Some(rule) => format!("{reason}: {rule}"),
            None => reason,
        };
        // The turn continues, and the model reads this text.
        let text = format!("Permission to use {tool} was denied ({reason}).");
        if let Some(call) = turn.calls.get_mut(&call) {
            call.refused = Some(reason);
        }
        sink.frame(denied(&id, &text));
    }

    /// Handles the end of a request that no longer needs an answer.
    pub(super) fn control_cancelled(&mut self, text: &str, sink: &mut Sink) {
        let id = serde_json::from_str::<RequestLine<'_>>(text).unwrap_or_default().id;
        let found = self.questions.iter().find(|(_, question)| question.id == *id).map(|(ask, _)| *ask);
        if let Some(ask) = found
            && let Some(question) = self.questions.remove(&ask)
        {
            sink.withdraw(question.run, ask);
        }
    }

    /// Tells Claude Code to stop the current turn.
    pub(super) fn interrupt(&mut self, sink: &mut Sink) {
        self.control(ControlCall::Interrupt, &json!({"subtype": "interrupt", "cancel_queued": true}), sink);
        for (_, question) in std::mem::take(&mut self.questions) {
            sink.frame(denied(&question.id, "the run was stopped"));
        }
    }
}

fn frame(message: &Value) -> String {
    let mut frame = message.to_string();
    frame.push('\n');
    frame
}

fn success(id: &str, body: &Value) -> String {
    let response = json!({"subtype": "success", "request_id": id, "response": body});
    frame(&json!({"type": "control_response", "response": response}))
}

fn denied(id: &str, message: &str) -> String {
    success(id, &json!({"behavior": "deny", "message": message}))
}

/// Returns the changes that a call would make.
fn diffs(arguments: &Arguments<'_>) -> Vec<Diff> {
    let path = [&arguments.file, &arguments.notebook].into_iter().find(|path| !path.is_empty());
    let Some(path) = path.map(|path| path.to_string()) else { return Vec::new() };
    let text = |text: &Option<Str<'_>>| text.as_ref().map(|text| text.to_string());
    let diff = |old: Option<String>, new: String| Diff { path: path.clone(), old, new };
    if let Some(content) = text(&arguments.content) {
        return vec![diff(None, content)];
    }
    if let (Some(old), Some(new)) = (text(&arguments.old), text(&arguments.new)) {
        return vec![diff(Some(old), new)];
    }
    arguments.edits.0.iter().map(|edit| diff(Some(edit.old.to_string()), edit.new.to_string())).collect()
}

/// Converts MCP servers to Claude Code's format.
fn servers(servers: &BTreeMap<String, McpServer>) -> Value {
    let entry = |(name, server): (&String, &McpServer)| {
        let server = match server {
            McpServer::Command { command, args, env } => {
                json!({"type": "stdio", "command": command, "args": args, "env": env})
            }
            McpServer::Url { url, headers } => json!({"type": "http", "url": url, "headers": headers}),
        };
        (name.clone(), server)
    };
    Value::Object(servers.iter().map(entry).collect())
}

/// Converts an attached file to a block of the prompt.
fn block(file: &Attachment) -> Value {
    let source = |data: &String| json!({"type": "base64", "media_type": file.mime, "data": data});
    match &file.content {
        AttachmentContent::Text(text) => {
            json!({"type": "text", "text": format!("\n--- Content of {} ---\n{text}\n", file.uri)})
        }
        AttachmentContent::Base64(data) if file.mime.starts_with("image/") => {
            json!({"type": "image", "source": source(data)})
        }
        AttachmentContent::Base64(data) => json!({"type": "document", "source": source(data)}),
    }
}
