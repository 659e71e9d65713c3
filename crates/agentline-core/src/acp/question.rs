//! Requests from the agent: permission for a tool, and file access. All other methods are refused as not found.

use super::{Acp, Step, tools::ToolWire};
use crate::{
    HostRequest, HostRequestId, HostResponse, PermissionRequest, RunId, Sink,
    rpc::{self, INTERNAL_ERROR, METHOD_NOT_FOUND},
    wire::{List, Num, Str, wire},
};
use serde_json::{json, value::RawValue};

wire! { struct Params<'a> {
    session: Str<'a> = "sessionId", options: List<Choice<'a>> = "options", call: ToolWire<'a> = "toolCall",
    path: Str<'a> = "path", content: Str<'a> = "content", line: Num = "line", limit: Num = "limit",
} }
wire! { struct Choice<'a> { id: Str<'a> = "optionId", kind: Str<'a> = "kind" } }

/// A request from the agent that waits for the host.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) run: RunId,
    id: Box<RawValue>,
    pub(super) kind: RequestKind,
}

/// The kind of a request.
#[derive(Debug)]
pub(super) enum RequestKind {
    /// A permission request with its options, as pairs of id and kind.
    Tool {
        tool: String,
        options: Vec<(String, String)>,
    },
    Read,
    Write,
    /// A command in a terminal of the client.
    Terminal,
}

/// Option kinds that allow a call, the narrowest first. `NO` has those that reject it.
const YES: &[&str] = &["allow_once", "allow_always"];
const NO: &[&str] = &["reject_once", "reject_always"];

impl Acp {
    /// Handles a request from the agent. Every request is answered, because the agent would wait forever otherwise.
    /// Returns its id if the host decides.
    pub(super) fn question(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
        sink: &mut Sink,
    ) -> Option<HostRequestId> {
        let offered = match method {
            "session/request_permission" => true,
            "fs/read_text_file" => self.config.read_files,
            "fs/write_text_file" => self.config.write_files,
            "terminal/create" => self.link.is_some(),
            _ => false,
        };
        if !offered {
            if let Some(run) = self.addressee(params) {
                sink.alive(run);
            }
            sink.frame(rpc::refuse(id, METHOD_NOT_FOUND, &format!("method not found: {method}")));
            return None;
        }
        let request = serde_json::from_str::<Params<'_>>(params.get()).unwrap_or_default();
        let named = Some(request.session.to_string()).filter(|id| !id.is_empty());
        let session = named.or_else(|| self.only_session());
        let run = session.and_then(|id| self.sessions.get(&id)).and_then(|session| session.run);
        let is_working = |run: &RunId| {
            self.turns.get(run).is_some_and(|turn| turn.step == Step::Working && !turn.stopping)
        };
        let Some(run) = run.filter(is_working) else {
            sink.frame(match method {
                "session/request_permission" => rpc::response(id, &cancelled()),
                _ => rpc::refuse(id, INTERNAL_ERROR, "no prompt is active in this session"),
            });
            return None;
        };
        let (ask, kind) = match method {
            "session/request_permission" => self.permission(run, request, sink),
            "terminal/create" => (Self::terminal(params), RequestKind::Terminal),
            "fs/read_text_file" => (
                HostRequest::ReadFile {
                    path: request.path.own(),
                    line: request.line.0,
                    limit: request.limit.0,
                },
                RequestKind::Read,
            ),
            _ => (
                HostRequest::WriteFile { path: request.path.own(), text: request.content.own() },
                RequestKind::Write,
            ),
        };
        let ask = sink.ask(run, ask);
        self.questions.insert(ask, PendingRequest { run, id: id.to_owned(), kind });
        Some(ask)
    }

    fn permission(&mut self, run: RunId, request: Params<'_>, sink: &mut Sink) -> (HostRequest, RequestKind) {
        let options = request.options.0.into_iter().map(|o| (o.id.own(), o.kind.own())).collect();
        let mut ask = PermissionRequest::default();
        if let Some(turn) = self.turns.get_mut(&run) {
            let judged = request.call.raw_input.map(ToOwned::to_owned);
            let call = turn.tools.permission_requested(run, request.call, &*self.profile, sink);
            let tool = self.profile.tool(call);
            ask.tool_use_id.clone_from(&call.id);
            ask.command = command(call).or_else(|| {
                (tool.kind == crate::ToolKind::Shell).then(|| call.title.clone()).filter(|t| !t.is_empty())
            });
            ask.tool = tool.name;
            ask.native_tool = tool.native_name;
            ask.title.clone_from(&call.title);
            ask.kind = tool.kind;
            ask.input = tool.input.or(judged);
            ask.paths = call.paths();
            if let Some(path) = tool.path.filter(|path| !ask.paths.contains(path)) {
                ask.paths.insert(0, path);
            }
            ask.diffs.clone_from(&call.diffs);
            ask.server = self.profile.server(call);
        }
        let tool = ask.tool_use_id.clone();
        (HostRequest::Permission(Box::new(ask)), RequestKind::Tool { tool, options })
    }

    /// Sends the host's answer to the agent.
    pub(super) fn answer_question(
        &mut self,
        question: PendingRequest,
        answer: &HostResponse,
        sink: &mut Sink,
    ) {
        let PendingRequest { run, id, kind } = question;
        let stopping = self.turns.get(&run).is_none_or(|turn| turn.stopping || turn.step != Step::Working);
        let quirks = self.profile.quirks();
        let frame = match (kind, answer) {
            // The call is closed as cancelled when the run ends.
            (RequestKind::Tool { .. }, _) if stopping => rpc::response(&id, &cancelled()),
            (RequestKind::Tool { tool, options }, HostResponse::PermissionDecided(ruling)) => {
                let kinds = if ruling.allow { YES } else { NO };
                let pick = |kind: &&str| options.iter().find(|(_, of)| of == kind);
                let picked = kinds.iter().find_map(pick);
                if !ruling.allow || picked.is_none() {
                    let reason = ruling.reason.clone().unwrap_or_else(|| "no_option".to_owned());
                    let reason = match &ruling.rule {
                        Some(rule) => format!("{reason}: {rule}"),
                        None => reason,
                    };
                    self.refused(run, &tool, reason, quirks.silent_refusal, sink);
                } else if let Some(turn) = self.turns.get_mut(&run) {
                    turn.tools.allowed(run, &tool, &*self.profile, sink);
                }
                match picked {
                    Some((option, _)) => {
                        rpc::response(&id, &json!({"outcome": {"outcome": "selected", "optionId": option}}))
                    }
                    // No option matches the decision, so the request is answered as cancelled, which rejects the call.
                    None => rpc::response(&id, &cancelled()),
                }
            }
            (RequestKind::Tool { .. }, _) => rpc::response(&id, &cancelled()),
            (RequestKind::Terminal, HostResponse::PermissionDecided(ruling)) => {
                let reason = ruling.rule.as_ref().or(ruling.reason.as_ref()).map_or("", String::as_str);
                rpc::refuse(&id, INTERNAL_ERROR, &format!("denied: by {}: {reason}", ruling.by))
            }
            (RequestKind::Read, HostResponse::Text(text)) => rpc::response(&id, &json!({"content": text})),
            (RequestKind::Read, HostResponse::Error(error))
                if quirks.empty_content_for_missing_files && is_missing(error) =>
            {
                rpc::response(&id, &json!({"content": ""}))
            }
            (RequestKind::Write, HostResponse::Done | HostResponse::Text(_)) => {
                rpc::response(&id, &json!({}))
            }
            (RequestKind::Read | RequestKind::Write, HostResponse::Error(error)) => {
                rpc::refuse(&id, INTERNAL_ERROR, error)
            }
            (RequestKind::Read | RequestKind::Write | RequestKind::Terminal, _) => {
                rpc::refuse(&id, INTERNAL_ERROR, "no answer")
            }
        };
        sink.frame(frame);
    }

    fn refused(&mut self, run: RunId, tool: &str, reason: String, at_once: bool, sink: &mut Sink) {
        if let Some(turn) = self.turns.get_mut(&run) {
            turn.tools.refused(run, tool, reason, at_once, sink);
        }
    }

    /// Answers all open requests of a run that is being cancelled.
    pub(super) fn answer_open_requests(&mut self, run: RunId, sink: &mut Sink) {
        let open: Vec<_> = self.questions.iter().filter(|(_, q)| q.run == run).map(|(ask, _)| *ask).collect();
        for ask in open {
            if let Some(question) = self.questions.remove(&ask) {
                sink.frame(match question.kind {
                    RequestKind::Tool { .. } => rpc::response(&question.id, &cancelled()),
                    _ => rpc::refuse(&question.id, INTERNAL_ERROR, "the run was stopped"),
                });
            }
        }
    }
}

fn cancelled() -> serde_json::Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

/// Returns whether a client reports that a file does not exist.
pub(super) fn is_missing_file(error: &rpc::JsonRpcError<'_>) -> bool {
    let message = error.message.to_lowercase();
    error.code == -32002 || ["not found", "no such file", "enoent"].iter().any(|text| message.contains(text))
}

/// Returns whether the host reports that a file does not exist.
fn is_missing(error: &str) -> bool {
    error.starts_with("not_found")
}

wire! { struct Shell<'a> { command: Option<&'a RawValue> = "command" } }

/// Returns the command of a call, given as a string or a list of words.
fn command(call: &super::tool_call::AcpToolCall) -> Option<String> {
    let input = call.raw_input.as_ref()?;
    let raw = serde_json::from_str::<Shell<'_>>(input.get()).ok()?.command?;
    match raw.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str::<Str<'_>>(raw.get()).ok().map(Str::own),
        Some(b'[') => {
            let args = serde_json::from_str::<List<Str<'_>>>(raw.get()).ok()?.0;
            Some(args.iter().map(|word| &**word).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    }
    .filter(|command| !command.is_empty())
}
