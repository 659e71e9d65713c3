//! Compiles permission modes and rules to Codex's own limits: what its sandbox may write, and when it asks.

use crate::{NativeDecision, PermissionMode, Rule, RunRequest, Sandbox, Surface, ToolKind, ToolUseContext};
use serde_json::{Value, json};

/// When Codex asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApprovalPolicy {
    /// Before it leaves its sandbox, and before commands that it considers dangerous.
    OnRequest,
    /// Before every command and every patch.
    Always,
}

/// What Codex may write without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SandboxMode {
    Nothing,
    Workspace,
    Everything,
}

/// The limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodexLimits {
    pub(super) approval: ApprovalPolicy,
    pub(super) sandbox: SandboxMode,
}

impl CodexLimits {
    /// Returns the limits of a request on the surface `app-server`.
    pub(super) fn of(request: &RunRequest) -> Self {
        let rules = || request.deny.iter().chain(&request.ask);
        let is_ruled = rules().next().is_some();
        // Rules about commands need a request for each command. Rules about edits need a read-only sandbox, in which
        // Codex asks about each edit.
        let rules_commands = rules().any(|rule| !is_edit(rule) && !is_mcp(rule));
        let everything =
            if request.sandbox == Sandbox::Off { SandboxMode::Everything } else { SandboxMode::Workspace };
        let (approval, sandbox) = match request.permission_mode {
            // Codex refuses some commands such as `rm -rf` unless it may ask.
            PermissionMode::Bypass if is_ruled => (ApprovalPolicy::Always, everything),
            PermissionMode::Bypass => (ApprovalPolicy::OnRequest, everything),
            PermissionMode::Auto if is_ruled => (ApprovalPolicy::Always, SandboxMode::Nothing),
            PermissionMode::AcceptEdits | PermissionMode::Auto if !is_ruled => {
                (ApprovalPolicy::OnRequest, SandboxMode::Workspace)
            }
            _ if rules_commands => (ApprovalPolicy::Always, SandboxMode::Nothing),
            _ => (ApprovalPolicy::OnRequest, SandboxMode::Nothing),
        };
        Self { approval, sandbox }
    }

    /// Returns the limits as parameters of a turn.
    pub(super) fn turn(self, writable: &[String]) -> Value {
        let approval = match self.approval {
            ApprovalPolicy::OnRequest => "on-request",
            ApprovalPolicy::Always => "untrusted",
        };
        let sandbox = match self.sandbox {
            SandboxMode::Nothing => json!({"type": "readOnly", "networkAccess": false}),
            SandboxMode::Everything => json!({"type": "dangerFullAccess"}),
            SandboxMode::Workspace => json!({
                "type": "workspaceWrite", "writableRoots": writable, "networkAccess": false,
                // The temporary directory is private to the process.
                "excludeSlashTmp": true, "excludeTmpdirEnvVar": false,
            }),
        };
        json!({"approvalPolicy": approval, "approvalsReviewer": "user", "sandboxPolicy": sandbox})
    }
}

fn is_edit(rule: &Rule) -> bool {
    matches!(rule.tool(), "Write" | "Edit" | "MultiEdit" | "apply_patch")
}

fn is_mcp(rule: &Rule) -> bool {
    rule.tool().starts_with("mcp__")
}

fn is_command(rule: &Rule) -> bool {
    matches!(rule.tool(), "Bash" | "Shell" | "exec_command")
}

/// Returns whether a request disables the tool for web searches.
pub(super) fn denies_web_search(request: &RunRequest) -> bool {
    request.deny.iter().any(is_whole_web_search)
}

fn is_whole_web_search(rule: &Rule) -> bool {
    matches!(rule.tool(), "WebSearch" | "web_search") && rule.pattern().is_none()
}

/// Returns why a `deny` or `ask` rule cannot be enforced, and what to write instead. `key` is the list of the rule.
pub(super) fn unenforced(
    request: &RunRequest,
    surface: Surface,
    key: &str,
    rule: &Rule,
) -> Option<(String, String)> {
    let because = |reason: &str, way_out: &str| Some((reason.to_owned(), way_out.to_owned()));
    match surface {
        Surface::StreamJson => {
            return because("`codex exec` never asks", "use the surface `app-server`, or remove the rule");
        }
        Surface::Acp if request.permission_mode == PermissionMode::Bypass => {
            return because(
                "in the mode `bypass`, Codex never asks",
                "use the surface `app-server` or `--permission-mode auto`, or remove the rule",
            );
        }
        _ => {}
    }
    if is_edit(rule) {
        return None;
    }
    if surface == Surface::Acp {
        if is_mcp(rule) {
            return because(
                "Codex does not ask about MCP tools that declare themselves read-only",
                "use the surface `app-server`, remove the server from the run, or remove the rule",
            );
        }
        return because(
            "Codex runs commands, reads and searches in its sandbox without asking",
            "use the surface `app-server`, or remove the rule: the sandbox is read-only, except in `bypass` and in modes \
             that accept edits",
        );
    }
    if is_mcp(rule) || is_command(rule) || (key == "deny" && is_whole_web_search(rule)) {
        return None;
    }
    because(
        "Codex reads and searches files with commands, and asks only about commands, edits and MCP tools",
        "write a rule for `Bash`, `Write`, `Edit` or an MCP tool, or `--deny WebSearch`",
    )
}

/// Returns how Codex decides on a tool use before it asks for permission.
pub(super) fn native_decision(
    request: &RunRequest,
    surface: Surface,
    prospect: &ToolUseContext<'_>,
) -> NativeDecision {
    let runs = prospect.ask.command.is_some() || prospect.looks_at_files();
    let limits = CodexLimits::of(request);
    let asks = surface == Surface::AppServer;
    match limits.sandbox {
        _ if asks && prospect.ask.kind == ToolKind::Mcp => NativeDecision::Asks,
        _ if asks && limits.approval == ApprovalPolicy::Always && prospect.ask.command.is_some() => {
            NativeDecision::Asks
        }
        SandboxMode::Everything if asks && limits.approval == ApprovalPolicy::OnRequest => {
            NativeDecision::Runs("asks only before commands that it considers dangerous")
        }
        SandboxMode::Everything if !asks => {
            NativeDecision::Runs("does not ask in its mode `agent-full-access`")
        }
        SandboxMode::Workspace if runs || (prospect.changes_files() && prospect.inside) => {
            NativeDecision::Runs(
                "runs in a sandbox that can write only in the workspace, and asks before it leaves the sandbox",
            )
        }
        SandboxMode::Nothing if runs => {
            NativeDecision::Runs("runs in a read-only sandbox, and asks before it leaves the sandbox")
        }
        _ if asks && prospect.changes_files() => NativeDecision::Asks,
        _ => NativeDecision::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PermissionMode::{AcceptEdits, Auto, Bypass, Default, Plan};

    #[test]
    fn modes_and_rules_become_a_sandbox_and_an_approval_policy() {
        use ApprovalPolicy::{Always, OnRequest};
        use SandboxMode::{Everything, Nothing, Workspace};
        let of = |mode: PermissionMode, deny: &str| {
            let request = RunRequest::new("x").permission_mode(mode);
            let request = if deny.is_empty() { request } else { request.deny(deny) };
            let CodexLimits { approval, sandbox } = CodexLimits::of(&request);
            (approval, sandbox)
        };
        assert_eq!(of(Default, ""), (OnRequest, Nothing));
        assert_eq!(of(Plan, ""), (OnRequest, Nothing));
        assert_eq!(of(AcceptEdits, ""), (OnRequest, Workspace));
        assert_eq!(of(Auto, ""), (OnRequest, Workspace));
        assert_eq!(of(Bypass, ""), (OnRequest, Everything));
        // With a rule about commands, Codex must ask about every command.
        for mode in [Default, AcceptEdits, Auto] {
            assert_eq!(of(mode, "Bash(rm *)"), (Always, Nothing), "{mode:?}");
        }
        assert_eq!(of(Bypass, "Bash(rm *)"), (Always, Everything));
        assert_eq!(of(AcceptEdits, "Write(secret/**)"), (OnRequest, Nothing));
        let boxed = RunRequest::new("x").permission_mode(Bypass).sandbox(Sandbox::On);
        assert_eq!(CodexLimits::of(&boxed).sandbox, Workspace);
    }

    #[test]
    fn writes_outside_the_workspace_and_the_private_temporary_directory_are_not_allowed() {
        let request = RunRequest::new("x").permission_mode(AcceptEdits);
        let turn = CodexLimits::of(&request).turn(&["/more".into()]);
        assert_eq!(turn["sandboxPolicy"]["excludeSlashTmp"], true);
        assert_eq!(turn["sandboxPolicy"]["writableRoots"], json!(["/more"]));
        assert_eq!(
            (&turn["approvalPolicy"], &turn["approvalsReviewer"]),
            (&json!("on-request"), &json!("user"))
        );
    }

    #[test]
    fn each_surface_names_the_rules_that_it_cannot_enforce() {
        let refused = |surface: Surface, mode: PermissionMode, rule: &str| {
            let request = RunRequest::new("x").permission_mode(mode).deny(rule);
            unenforced(&request, surface, "deny", &request.deny[0]).is_some()
        };
        for rule in ["Bash(rm *)", "Bash", "Write", "mcp__s__t", "WebSearch"] {
            assert!(!refused(Surface::AppServer, Bypass, rule), "{rule}");
            assert!(refused(Surface::Acp, Bypass, rule), "{rule}");
            assert!(refused(Surface::StreamJson, Default, rule), "{rule}");
        }
        for rule in ["Read", "Grep(x)", "*", "WebSearch(domain:a.org)"] {
            assert!(refused(Surface::AppServer, Default, rule), "{rule}");
        }
        assert!(!refused(Surface::Acp, Default, "Edit(a)"));
        assert!(refused(Surface::Acp, Default, "Bash(rm *)"));
    }
}
