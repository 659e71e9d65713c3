//! Requests from Codex: permission for a command, a patch, an MCP tool or wider access. All others are refused.

use super::{AppServer, Step};
use crate::{
    HostRequest, HostResponse, PermissionDecision, PermissionRequest, RunId, Sink, ToolKind,
    agents::codex::items::script,
    rpc::{self, METHOD_NOT_FOUND},
    wire::{Str, wire},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

wire! { struct Params<'a> {
    item: Str<'a> = "itemId", command: Option<Str<'a>> = "command", kind: Str<'a> = "kind", server: Str<'a> = "serverName",
    meta: Meta<'a> = "_meta", message: Str<'a> = "message", reason: Str<'a> = "reason", root: Option<Str<'a>> = "grantRoot",
    permissions: Option<&'a RawValue> = "permissions",
} }
wire! { struct Meta<'a> { kind: Str<'a> = "codex_approval_kind", arguments: Option<&'a RawValue> = "tool_params" } }

/// A request that waits for the host.
#[derive(Debug)]
pub(super) struct PendingApproval {
    pub(super) run: RunId,
    id: Box<RawValue>,
    tool: String,
    kind: ApprovalKind,
}

#[derive(Debug)]
enum ApprovalKind {
    /// A command or a patch.
    Item,
    /// A tool of an MCP server.
    Mcp,
    /// Wider access for the rest of the turn, as requested.
    Access(Box<RawValue>),
}

/// The possible answers to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allow,
    Deny,
    /// Denies the call and ends the turn.
    Cancel,
}

impl ApprovalKind {
    fn response(&self, answer: Answer) -> Value {
        match (self, answer) {
            (Self::Item, Answer::Allow) => json!({"decision": "accept"}),
            (Self::Item, Answer::Deny) => json!({"decision": "decline"}),
            (Self::Item, Answer::Cancel) => json!({"decision": "cancel"}),
            (Self::Mcp, Answer::Allow) => json!({"action": "accept", "content": {}, "_meta": null}),
            (Self::Mcp, Answer::Deny) => json!({"action": "decline", "content": null, "_meta": null}),
            (Self::Mcp, Answer::Cancel) => json!({"action": "cancel", "content": null, "_meta": null}),
            (Self::Access(permissions), Answer::Allow) => {
                json!({"permissions": permissions, "scope": "turn"})
            }
            (Self::Access(_), _) => json!({"permissions": {}, "scope": "turn"}),
        }
    }
}

impl AppServer {
    /// Handles a request. Every request is answered, because Codex would wait forever otherwise.
    pub(super) fn request(&mut self, id: &RawValue, method: &str, params: &RawValue, sink: &mut Sink) {
        let run = self.addressee(params);
        if let Some(run) = run {
            sink.alive(run);
        }
        let params = serde_json::from_str::<Params<'_>>(params.get()).unwrap_or_default();
        let kind = match method {
            "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => ApprovalKind::Item,
            "item/permissions/requestApproval" => {
                ApprovalKind::Access(params.permissions.unwrap_or(RawValue::NULL).to_owned())
            }
            "mcpServer/elicitation/request" if &*params.meta.kind == "mcp_tool_call" => ApprovalKind::Mcp,
            // A question of a server to the user. There is no user who could fill in a form.
            "mcpServer/elicitation/request" => {
                return sink.frame(rpc::response(id, &ApprovalKind::Mcp.response(Answer::Deny)));
            }
            "item/tool/requestUserInput" => return sink.frame(rpc::response(id, &json!({"answers": {}}))),
            _ => {
                return sink.frame(rpc::refuse(id, METHOD_NOT_FOUND, &format!("method not found: {method}")));
            }
        };
        let is_working =
            |run: &RunId| self.runs.get(run).is_some_and(|run| run.step == Step::Working && !run.stopping);
        let Some(run) = run.filter(is_working) else {
            return sink.frame(rpc::response(id, &kind.response(Answer::Cancel)));
        };
        let ask = self.permission(run, &params, &kind);
        let tool = ask.tool_use_id.clone();
        let ask = sink.ask(run, HostRequest::Permission(Box::new(ask)));
        self.approvals.insert(ask, PendingApproval { run, id: id.to_owned(), tool, kind });
    }

    fn permission(&self, run: RunId, params: &Params<'_>, kind: &ApprovalKind) -> PermissionRequest {
        let mut ask =
            PermissionRequest { tool_use_id: params.item.to_string(), ..PermissionRequest::default() };
        ask.title = params.reason.to_string();
        match kind {
            ApprovalKind::Item => {
                if let Some(call) = self.runs.get(&run).and_then(|run| run.calls.get(&params.item)) {
                    ask.tool.clone_from(&call.tool.name);
                    ask.native_tool.clone_from(&call.tool.native_name);
                    ask.kind = call.tool.kind;
                    ask.input.clone_from(&call.tool.input);
                    ask.paths.clone_from(&call.paths);
                    ask.diffs.clone_from(&call.tool.diffs);
                    ask.server.clone_from(&call.server);
                }
                if let Some(command) = &params.command {
                    let command = script(command);
                    ask.tool = "Bash".into();
                    ask.native_tool =
                        if &*params.kind == "writeStdin" { "write_stdin" } else { "exec_command" }.into();
                    ask.kind = ToolKind::Shell;
                    ask.input = to_raw_value(&json!({"command": command})).ok();
                    ask.command = Some(command);
                } else if ask.tool.is_empty() {
                    // A patch whose item is not known. Without a name, rules for writing and for editing both apply.
                    ask.native_tool = "apply_patch".into();
                    ask.kind = ToolKind::Edit;
                    ask.paths.extend(params.root.as_ref().map(|root| root.to_string()));
                }
            }
            ApprovalKind::Mcp => {
                // The request names neither the call nor the tool, but the call is open.
                let arguments = params.meta.arguments.map(RawValue::get);
                let call = self.runs.get(&run).and_then(|run| run.calls.of_server(&params.server, arguments));
                if let Some(call) = call {
                    ask.tool_use_id.clone_from(&call.tool.id);
                    ask.tool.clone_from(&call.tool.name);
                }
                ask.native_tool.clone_from(&ask.tool);
                ask.title = params.message.to_string();
                ask.kind = ToolKind::Mcp;
                ask.input = params.meta.arguments.map(ToOwned::to_owned);
                ask.server = Some(params.server.to_string());
            }
            ApprovalKind::Access(permissions) => {
                ask.tool = "request_permissions".into();
                ask.native_tool.clone_from(&ask.tool);
                ask.input = Some(permissions.clone());
            }
        }
        ask
    }

    /// Sends the host's decision to Codex.
    pub(super) fn answer_approval(
        &mut self,
        approval: PendingApproval,
        answer: &HostResponse,
        sink: &mut Sink,
    ) {
        let PendingApproval { run, id, tool, kind } = approval;
        let state = self.runs.get_mut(&run).filter(|run| run.step == Step::Working && !run.stopping);
        let decision = match answer {
            HostResponse::PermissionDecided(decision) => decision.clone(),
            _ => PermissionDecision::deny("agentline", "no_decision"),
        };
        let answer = match state {
            None => Answer::Cancel,
            Some(_) if decision.allow => Answer::Allow,
            Some(state) => {
                let reason = decision.reason.unwrap_or_else(|| "denied".to_owned());
                let reason = match decision.rule {
                    Some(rule) => format!("{reason}: {rule}"),
                    None => reason,
                };
                state.calls.refuse(&tool, reason);
                Answer::Deny
            }
        };
        sink.frame(rpc::response(&id, &kind.response(answer)));
    }

    /// Answers all open requests of a run that has ended or is being cancelled.
    pub(super) fn cancel_approvals(&mut self, run: RunId, sink: &mut Sink) {
        let open: Vec<_> =
            self.approvals.iter().filter(|(_, approval)| approval.run == run).map(|(ask, _)| *ask).collect();
        for ask in open {
            if let Some(approval) = self.approvals.remove(&ask) {
                sink.withdraw(run, ask);
                sink.frame(rpc::response(&approval.id, &approval.kind.response(Answer::Cancel)));
            }
        }
    }

    /// Withdraws a request that Codex no longer needs an answer to.
    pub(super) fn resolved(&mut self, run: RunId, id: Option<&RawValue>, sink: &mut Sink) {
        sink.alive(run);
        let Some(id) = id.map(RawValue::get) else { return };
        let obsolete = self.approvals.iter().find(|(_, approval)| approval.id.get() == id);
        if let Some(ask) = obsolete.map(|(ask, _)| *ask) {
            self.approvals.remove(&ask);
            sink.withdraw(run, ask);
        }
    }
}
