//! Requests of the agent that the host decides on first, and that the client gets if the host leaves the decision to it.

use super::line;
use crate::{
    HostRequest, HostRequestId, HostResponse, PermissionDecision, PermissionRequest, RunId, Sink, ToolKind,
    acp::{
        Acp,
        question::{RequestKind, is_missing_file},
    },
    rpc::{self, RpcResult},
    wire::{List, Str, wire},
};
use serde_json::{json, value::RawValue};

/// A request that the client has not got yet.
#[derive(Debug)]
pub(super) struct HeldRequest {
    id: String,
    frame: String,
}

wire! { struct Picked<'a> { outcome: PickedOption<'a> = "outcome" } }
wire! { struct PickedOption<'a> { option: Option<Str<'a>> = "optionId" } }
wire! { struct Terminal<'a> { command: Str<'a> = "command", args: List<Str<'a>> = "args" } }

impl Acp {
    /// Keeps a request of the agent until the host has decided on it.
    pub(super) fn hold(&mut self, ask: HostRequestId, id: &RawValue, text: &str) {
        if let Some(link) = &mut self.link {
            link.held.insert(ask, HeldRequest { id: rpc::id_key(id), frame: text.to_owned() });
        }
    }

    /// Handles a response of the client.
    pub(super) fn client_answered(
        &mut self,
        id: &RawValue,
        result: RpcResult<'_>,
        text: &str,
        sink: &mut Sink,
    ) {
        let Some(link) = &mut self.link else { return };
        let Some(ask) = link.asked.remove(&rpc::id_key(id)) else { return sink.frame(line(text)) };
        // A request that is no longer open has its answer, for example because the prompt was cancelled.
        let Some(question) = self.questions.get(&ask) else { return };
        let answer = match (&question.kind, &result) {
            (RequestKind::Tool { options, .. }, Ok(result)) => {
                let picked =
                    serde_json::from_str::<Picked<'_>>(result.get()).unwrap_or_default().outcome.option;
                let kind = picked.and_then(|picked| options.iter().find(|(id, _)| *id == *picked));
                let allows = kind.is_some_and(|(_, kind)| kind.starts_with("allow"));
                decided(allows)
            }
            (RequestKind::Tool { .. } | RequestKind::Terminal, _) => decided(result.is_ok()),
            (RequestKind::Read, Ok(_)) => HostResponse::Text(String::new()),
            (RequestKind::Write, Ok(_)) => HostResponse::Done,
            (RequestKind::Read | RequestKind::Write, Err(error)) => {
                HostResponse::Error(error.message.to_string())
            }
        };
        let needs_empty = self.profile.quirks().empty_content_for_missing_files;
        let reply = match (&question.kind, &result) {
            (RequestKind::Read, Err(error)) if needs_empty && is_missing_file(error) => {
                rpc::response(id, &json!({"content": ""}))
            }
            _ => line(text),
        };
        link.replies.insert(ask, reply);
        sink.client_answered(question.run, ask, answer);
    }

    /// Passes a request of the agent on to the client, because the host leaves the decision to it.
    pub(in crate::acp) fn pass_to_client(&mut self, ask: HostRequestId, sink: &mut Sink) {
        let Some(link) = &mut self.link else { return };
        let Some(HeldRequest { id, frame }) = link.held.remove(&ask) else { return };
        link.asked.insert(id, ask);
        sink.client(&frame);
    }

    /// Sends the answer to a request of the agent, which the host or the client has decided.
    pub(in crate::acp) fn answer_of_link(
        &mut self,
        ask: HostRequestId,
        answer: &HostResponse,
        sink: &mut Sink,
    ) {
        let Some(question) = self.questions.remove(&ask) else { return };
        let Some(link) = &mut self.link else { return };
        let (held, reply) = (link.held.remove(&ask), link.replies.remove(&ask));
        let is_allowed = matches!(answer, HostResponse::PermissionDecided(ruling) if ruling.allow);
        if let (RequestKind::Terminal, true, None, Some(held)) = (&question.kind, is_allowed, &reply, held) {
            return sink.client(&held.frame);
        }
        let closes = self.silently_refused(&question.kind, question.run, is_allowed);
        let sent = sink.frames.len();
        self.answer_question(question, answer, sink);
        if let Some(reply) = reply {
            sink.frames.truncate(sent);
            sink.frame(reply);
        }
        if let Some(update) = closes {
            sink.client(&update);
        }
    }

    /// Returns the update that ends a refused call, for an agent that sends none.
    fn silently_refused(&self, kind: &RequestKind, run: RunId, is_allowed: bool) -> Option<String> {
        let RequestKind::Tool { tool, .. } = kind else { return None };
        if is_allowed || !self.profile.quirks().silent_refusal {
            return None;
        }
        let session = self.turns.get(&run)?.session.as_ref()?;
        let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": tool, "status": "failed"});
        Some(rpc::notification("session/update", &json!({"sessionId": session, "update": update})))
    }

    /// Returns the request to decide about a command that the agent wants to run in a terminal of the client.
    pub(in crate::acp) fn terminal(params: &RawValue) -> HostRequest {
        let terminal = serde_json::from_str::<Terminal<'_>>(params.get()).unwrap_or_default();
        let mut ask = PermissionRequest::default();
        let words: Vec<&str> = terminal.args.0.iter().map(|word| &**word).collect();
        ask.command = Some(if words.is_empty() {
            terminal.command.to_string()
        } else {
            format!("{} {}", &*terminal.command, quoted(&words))
        });
        (ask.tool, ask.native_tool) = ("Bash".to_owned(), "terminal/create".to_owned());
        ask.kind = ToolKind::Shell;
        HostRequest::Permission(Box::new(ask))
    }
}

fn decided(allows: bool) -> HostResponse {
    HostResponse::PermissionDecided(if allows {
        PermissionDecision::allow("client")
    } else {
        PermissionDecision::deny("client", "rejected")
    })
}

/// Joins the words of a command, each quoted for a shell.
fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
}
