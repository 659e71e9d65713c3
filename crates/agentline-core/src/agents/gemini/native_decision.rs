//! The decisions that Gemini CLI makes by itself: which tools it runs without asking, and which it does not offer.
//!
//! Measured with 0.61.0. In headless runs there are no permission requests, so tools that would need one are not
//! offered to the model. Rules for whole tools are enforced by the CLI itself through the generated policy file. Over
//! ACP, that file also makes it ask about every use of a tool that has a rule with a pattern.

use super::{live, policy, tools};
use crate::{NativeDecision, PermissionMode, PolicyDecision, RunRequest, Surface, ToolKind, ToolUseContext};

const BY_FILE: &str = "enforced by the policy file of the run";
const NOT_OFFERED: &str = "not offered to the model in a headless run";
const CONFINED: &str = "its file tools are confined to the workspace and the included directories";
const LOOKS: &str = "reads and searches without asking";
const FREE: &str = "does not ask in its mode `yolo`";
const EDITS: &str = "edits without asking in its mode `autoEdit`";
const PLANS: &str = "only plans in its mode `plan`";
const TRUSTED: &str = "uses tools of the run's MCP servers without asking";
const HARMLESS: &str = "runs commands that it considers harmless without asking";

/// Programs that the CLI considers harmless if their arguments stay in the workspace.
const HARMLESS_PROGRAMS: &[&str] = &[
    "cat", "cut", "echo", "expr", "false", "grep", "head", "id", "ls", "nl", "paste", "pwd", "rev", "seq",
    "stat", "tac", "tail", "tr", "true", "uname", "uniq", "wc", "which", "whoami",
];
/// Git commands that the CLI considers harmless.
const HARMLESS_GIT: &[&str] = &["status", "log", "diff", "show"];

pub(super) fn native_decision(
    request: &RunRequest,
    surface: Surface,
    prospect: &ToolUseContext<'_>,
) -> NativeDecision {
    let ask = prospect.ask;
    let live = surface == Surface::Acp;
    if !prospect.inside && (prospect.changes_files() || prospect.looks_at_files()) {
        return NativeDecision::Refuses(CONFINED);
    }
    let harmless = ask.command.as_deref().is_some_and(is_harmless);
    let answered = policy::answered_tools(request);
    if live && tools::TOOLS.natives(&ask.tool).any(|native| answered.contains(native)) {
        return if live::mode(request).id == "plan" && !prospect.looks_at_files() {
            NativeDecision::Refuses(PLANS)
        } else {
            NativeDecision::Asks
        };
    }
    if prospect.by_rule() {
        return match prospect.decision {
            PolicyDecision::Deny(_) => NativeDecision::Refuses(BY_FILE),
            PolicyDecision::Allow(_) => NativeDecision::Runs(BY_FILE),
            PolicyDecision::Ask(_) if !live => NativeDecision::Refuses(NOT_OFFERED),
            PolicyDecision::Ask(_) => NativeDecision::Asks,
        };
    }
    if prospect.looks_at_files() || ask.tool == "WebSearch" {
        return NativeDecision::Runs(LOOKS);
    }
    let mode = if live { live::mode(request).id } else { headless_mode(request.permission_mode).to_owned() };
    if ask.kind == ToolKind::Mcp {
        let is_from_request = prospect.decision.ruling().by == "agentline"
            || ask.server.as_ref().is_some_and(|server| request.mcp_servers.contains_key(server));
        // Without trust, which the mode `deny` takes away.
        let is_offered = prospect.decision.ruling().allow && is_from_request;
        return match mode.as_str() {
            "yolo" => NativeDecision::Runs(FREE),
            "plan" => NativeDecision::Unknown,
            _ if live => NativeDecision::Asks,
            _ if is_offered => NativeDecision::Runs(TRUSTED),
            _ => NativeDecision::Refuses(NOT_OFFERED),
        };
    }
    match mode.as_str() {
        "yolo" => NativeDecision::Runs(FREE),
        "plan" if ask.kind == ToolKind::Web && live => NativeDecision::Unknown,
        "plan" => NativeDecision::Refuses(PLANS),
        "autoEdit" if prospect.changes_files() => NativeDecision::Runs(EDITS),
        _ if !live => NativeDecision::Refuses(NOT_OFFERED),
        _ if harmless => NativeDecision::Runs(HARMLESS),
        _ => NativeDecision::Asks,
    }
}

/// Returns the CLI's mode in a headless run.
fn headless_mode(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Default | PermissionMode::Deny | PermissionMode::Prompt => "default",
        PermissionMode::AcceptEdits => "autoEdit",
        PermissionMode::Bypass | PermissionMode::Auto => "yolo",
        PermissionMode::Plan => "plan",
    }
}

/// Returns whether the CLI considers a command harmless, as far as its text shows.
fn is_harmless(command: &str) -> bool {
    let mut args = command.split_whitespace();
    let program = args.next().unwrap_or_default();
    let stays = |arg: &str| !arg.starts_with(['/', '~']) && !arg.contains("..");
    let known = match program {
        "git" => args.next().is_some_and(|arg| HARMLESS_GIT.contains(&arg)),
        program => HARMLESS_PROGRAMS.contains(&program),
    };
    known && !command.contains(['(', ')', '<', '>', '$', '`', ';', '|', '&', '\n']) && args.all(stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{McpServer, PermissionRequest, Policy, agents::gemini::Gemini};
    use std::path::Path;

    fn uses() -> [(&'static str, PermissionRequest); 8] {
        let ask =
            |tool: &str, kind, path: &str, command: Option<&str>, server: Option<&str>| PermissionRequest {
                tool: tool.into(),
                kind,
                paths: (!path.is_empty()).then(|| path.to_owned()).into_iter().collect(),
                command: command.map(str::to_owned),
                server: server.map(str::to_owned),
                ..PermissionRequest::default()
            };
        [
            ("write", ask("Write", ToolKind::Write, "a", None, None)),
            ("outside", ask("Write", ToolKind::Write, "/etc/a", None, None)),
            ("read", ask("Read", ToolKind::Read, "a", None, None)),
            ("status", ask("Bash", ToolKind::Shell, "", Some("git status"), None)),
            ("rm", ask("Bash", ToolKind::Shell, "", Some("rm -rf a"), None)),
            ("fetch", ask("WebFetch", ToolKind::Web, "", None, None)),
            ("given", ask("get", ToolKind::Mcp, "", None, Some("given"))),
            ("own", ask("get", ToolKind::Mcp, "", None, Some("agentline"))),
        ]
    }

    /// Describes the decision on each use: `+` allowed, `-` denied, `?` asked. The agent enforces it, unless the sign
    /// is followed by `!` (agentline enforces it) or `~` (nothing does).
    fn row(request: &RunRequest, surface: Surface) -> String {
        let policy = Policy::new(request, Path::new("/ws")).unwrap().own_server("agentline");
        let word = |(_, ask): (_, PermissionRequest)| {
            let explanation = policy.explain(&Gemini, request, surface, &ask, &|path| policy.resolve(path));
            let sign = match explanation.decision {
                "allow" => "+",
                "deny" => "-",
                _ => "?",
            };
            let side = match explanation.held_by {
                "agent" => "",
                "agentline" => "!",
                _ => "~",
            };
            format!("{sign}{side}")
        };
        uses().map(word).join(" ")
    }

    #[test]
    fn native_decisions_of_each_mode_and_surface() {
        use PermissionMode as M;
        let server = McpServer::Url { url: "http://localhost/".into(), headers: Default::default() };
        // write, outside, read, git status, rm, fetch, given server, own server
        for (mode, headless, live) in [
            (M::Default, "- - + - - - + +", "?! - + + ?! ?! +! +!"),
            (M::AcceptEdits, "+ - + - - - + +", "+! - + + ?! ?! +! +!"),
            (M::Bypass, "+ - + + + + + +", "+ - + + + + + +"),
            (M::Plan, "- - + - - - -~ +~", "- - + - - ?! -! +!"),
            (M::Auto, "+ - + + + + + +", "+! - + + +! +! +! +!"),
            (M::Deny, "- - +~ - - - - +", "-! - +~ +~ -! -! -! +!"),
            (M::Prompt, "- - + - - - + +", "?! - + + ?! ?! +! +!"),
        ] {
            let request = RunRequest::new("x").permission_mode(mode).mcp_server("given", server.clone());
            assert_eq!(row(&request, Surface::StreamJson), headless, "{mode:?}");
            assert_eq!(row(&request, Surface::Acp), live, "{mode:?} over ACP");
        }
    }

    #[test]
    fn whole_tool_rules_are_enforced_by_the_agent() {
        let request = RunRequest::new("x").allow("Write").deny("Bash").deny("WebFetch");
        assert_eq!(row(&request, Surface::StreamJson), "+ - + - - - - +");
        assert_eq!(row(&request, Surface::Acp), "+ - + - - - ?! +!");
    }

    #[test]
    fn pattern_rules_are_enforced_by_permission_answers() {
        let request =
            RunRequest::new("x").allow("Write(a)").deny("Bash(rm *)").ask("Bash(git *)").ask("WebFetch");
        assert_eq!(row(&request, Surface::Acp), "+! - + ?! -! ?! ?! +!");
        let bypass = request.permission_mode(PermissionMode::Bypass);
        assert_eq!(row(&bypass, Surface::Acp), "+! - + ?! -! ?! +! +!");
    }

    #[test]
    fn harmless_commands_must_stay_in_the_workspace() {
        for command in ["git status", "echo one", "cat new.txt", "ls -l src"] {
            assert!(is_harmless(command), "{command}");
        }
        for command in
            ["touch t1", "cat /etc/hostname", "echo out; ls", "git push", "cat ~/x", "ls ../x", "echo $A", ""]
        {
            assert!(!is_harmless(command), "{command}");
        }
    }
}
