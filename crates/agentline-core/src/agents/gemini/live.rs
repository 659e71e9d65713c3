//! The parts of a Gemini CLI launch that are specific to ACP: flag, mode and servers.
//!
//! Everything that belongs to a session (prompt, model, mode, servers) is kept out of the arguments, environment and
//! files if the version supports it, so that one process can serve many sessions. The only exceptions are the mode
//! `yolo` and servers that only the settings can describe. Everything else is the same for all sessions of a process:
//! rules, include directories, extensions, trust, limits, a replaced system prompt and the sign-in.

use super::{
    policy::{has_patterns, needs_host_decisions},
    versions::{self, has},
};
use crate::{
    Launch, McpServer, Millis, ModelValidation, Notice, PermissionMode, Plan, Problem, PromptText,
    RequestedMode, RequestedModel, RunRequest, Sandbox, Surface, Version,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The default quiet period after an answer, for versions that may send updates after it.
const QUIET: Millis = 500;

/// Keys that do not strictly need ACP. In a headless run, calls that need permission are denied, and reasoning is
/// reported if available.
const UNDERSTOOD_HEADLESS: &[&str] = &["ask", "permission_mode", "emit_thoughts"];

/// The hint for options that only headless runs have, if rules are the reason for using ACP.
const NOT_WITH_RULES: &str = "remove it, or use rules for whole tools: patterns are enforced only over ACP";

/// Names in rules that mean the shell tool, or every tool.
const SHELL_NAMES: &[&str] = &["Bash", "Shell", "ShellTool", "run_shell_command", "*"];

/// The keys of a server in the CLI's settings that can be passed when a session is opened. The CLI knows no `trust` for
/// such a server and asks about each of its tools, so the policy carries it ([`Launch::trusted_servers`]).
const TELLABLE: &[&str] = &["command", "args", "env", "httpUrl", "headers", "trust"];

/// Returns the keys of a request that need ACP. There are none if a headless run can do everything.
fn needed_for(request: &RunRequest) -> impl Iterator<Item = &'static str> {
    let asking = matches!(
        request.permission_mode,
        PermissionMode::Auto | PermissionMode::Deny | PermissionMode::Prompt
    );
    let reasons = [
        ("output_schema", request.output_schema.is_some()),
        ("until", request.until.is_some()),
        ("attachments", !request.attachments.is_empty()),
        ("ask", !request.ask.is_empty()),
        ("permission_mode", asking),
        ("emit_thoughts", request.emit_thoughts),
        ("mode_id", request.mode_id.is_some()),
        ("allow_file_reads", request.allow_file_reads),
        ("allow_file_writes", request.allow_file_writes),
        ("authenticate", request.authenticate.is_some()),
        ("surface", request.needs_live),
    ];
    reasons.into_iter().filter(|(_, asked)| *asked).map(|(key, _)| key)
}

/// Chooses the surface for a request that names none. Keys that headless runs also understand do not select ACP if ACP
/// cannot serve the request.
pub(super) fn choose(request: &RunRequest) -> Surface {
    let headless_only =
        request.sandbox != Sandbox::Off || request.session_id.is_some() || request.file_references;
    let needed = needed_for(request).any(|key| !(headless_only && UNDERSTOOD_HEADLESS.contains(&key)));
    // Rules that agentline must decide itself always need ACP.
    if needed || has_patterns(request) { Surface::Acp } else { Surface::StreamJson }
}

/// Returns a problem for each option that the surface does not support.
pub(super) fn check(request: &RunRequest, surface: Surface) -> Vec<Problem> {
    let mut problems = Vec::new();
    if surface != Surface::Acp {
        for key in needed_for(request).filter(|key| !UNDERSTOOD_HEADLESS.contains(key)) {
            let message = if key == "surface" {
                format!("`{surface}` does not support tools and permission handlers of the calling program")
            } else {
                format!("is not supported on the surface `{surface}` of Gemini CLI")
            };
            problems.push(Problem::new(key, message).hint("use the surface `acp` or `auto`"));
        }
        return problems;
    }
    if request.sandbox != Sandbox::Off {
        problems.push(
            Problem::new(
                "sandbox",
                "is not supported over ACP: Gemini CLI does not respond from inside its sandbox",
            )
            .hint(with_rules(request, "remove it, or use the surface `stream-json`")),
        );
    }
    if request.session_id.is_some() {
        problems.push(
            Problem::new("session_id", "cannot be set over ACP: the agent chooses session ids itself")
                .hint(with_rules(request, "remove it, or use the surface `stream-json`")),
        );
    }
    let ruled = !request.deny.is_empty() || needs_host_decisions(request);
    if let Some(mode @ ("autoEdit" | "yolo")) = request.mode_id.as_deref().filter(|_| ruled) {
        problems.push(
            Problem::new(
                "mode_id",
                format!("`{mode}` cannot be combined with rules: over ACP, Gemini CLI then acts without asking"),
            )
            .hint("use `permission_mode` with `accept-edits` or `bypass`, which allow the same within the rules"),
        );
    }
    if request.file_references {
        problems.push(
            Problem::new(
                "file_references",
                "is not supported over ACP, where Gemini CLI does not resolve `@file`",
            )
            .hint(with_rules(request, "send files with `--attach`, or use the surface `stream-json`")),
        );
    }
    problems
}

fn with_rules(request: &RunRequest, other: &'static str) -> &'static str {
    if has_patterns(request) { NOT_WITH_RULES } else { other }
}

/// Returns the prompt in a form that reaches the model. Over ACP the CLI treats `/about` and `$about` as its own
/// commands, even after whitespace, and answers them without calling the model.
pub(super) fn prompt_text(text: String) -> PromptText {
    let first = text.trim_start().strip_prefix(['/', '$']).map(|rest| rest.split_whitespace().next());
    let Some(Some(word)) = first else { return PromptText::new(text) };
    if word.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_') {
        return PromptText::new(text);
    }
    let mut prompt = PromptText::new(format!("\u{200b}{text}"));
    prompt.warnings.push(Notice::new(
        "prompt_not_verbatim",
        "the prompt looks like a command of Gemini CLI; an invisible character (U+200B) was added before it, so that it is sent as a prompt",
    ));
    prompt
}

/// Returns the ACP-specific arguments. The others are the same as for headless runs.
pub(super) fn arguments(plan: &Plan, version: Option<Version>) -> Vec<String> {
    let request = &plan.request;
    let flag = if has(version, versions::ACP) { "--acp" } else { "--experimental-acp" };
    let mut args = request.agent_args.clone().unwrap_or_else(|| vec![flag.to_owned()]);
    let mut add = |flag: &str, value: &str| args.extend([flag.to_owned(), value.to_owned()]);
    // Versions that cannot set the model for each session get it for the process.
    if let Some(model) = request.model.as_ref().filter(|_| !has(version, versions::ACP_MODELS)) {
        add("-m", model);
    }
    match mode(request).id.as_str() {
        "default" => {}
        // Also set for the process, so that each session starts in this mode and the CLI respects settings that forbid
        // it, which it does not do when a session changes its mode later. If the caller sets the arguments, they may
        // contain the flag already, and the CLI rejects duplicates.
        "yolo" if request.agent_args.is_none() => add("--approval-mode", "yolo"),
        _ if has(version, versions::ACP_MODES) => {}
        "autoEdit" => add("--approval-mode", "auto_edit"),
        other => add("--approval-mode", other),
    }
    args
}

/// Sets the session-specific values of a launch.
pub(super) fn fill(launch: &mut Launch, plan: &Plan, version: Option<Version>) {
    let request = &plan.request;
    launch.dialogue.read_files = request.allow_file_reads;
    launch.dialogue.write_files = request.allow_file_writes;
    launch.dialogue.authenticate.clone_from(&request.authenticate);
    launch.mode = has(version, versions::ACP_MODES).then(|| mode(request));
    launch.model = request
        .model
        .as_ref()
        .filter(|_| has(version, versions::ACP_MODELS))
        .map(|id| RequestedModel::new(id, request.model_validation == ModelValidation::Strict));
    if let (Some(wish), None) = (&launch.model, &request.agent_args) {
        // Sessions then start with this model.
        launch.preset = vec!["-m".to_owned(), wish.id.clone()];
    }
    // An unknown version may send updates after the answer.
    let quiet = if version.is_some_and(|v| v >= versions::ACP_NOTHING_FOLLOWS) { 0 } else { QUIET };
    launch.quiet =
        request.quiet_period.map_or(quiet, |d| Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX));
}

/// Returns the mode of the session.
///
/// Allowed edits are allowed by the host, one request at a time: in its mode `autoEdit`, the CLI does not ask over ACP,
/// ignores its policy files, and also fetches from the web without asking.
pub(super) fn mode(request: &RunRequest) -> RequestedMode {
    let own = match request.permission_mode {
        // If rules need the host's decision, the host allows everything else through its answers.
        PermissionMode::Bypass if !needs_host_decisions(request) => "yolo",
        PermissionMode::Plan => "plan",
        _ => "default",
    };
    let id = request.mode_id.as_deref().unwrap_or(own);
    // If setting one of these two modes fails, the session may have more permissions than requested, so they are
    // required. With the other modes it has fewer.
    RequestedMode::new(id, matches!(id, "default" | "plan"))
}

/// Returns whether a run cannot start processes: it may not use the shell and has no server that is a program.
pub(super) fn starts_nothing(request: &RunRequest) -> bool {
    let mut refused = request.deny.iter();
    let no_shell = refused.any(|rule| rule.pattern().is_none() && SHELL_NAMES.contains(&rule.tool()));
    let plans = request.permission_mode == PermissionMode::Plan && request.mode_id.is_none();
    let servers = request.mcp_servers.values().all(|server| matches!(server, McpServer::Url { .. }));
    (no_shell || plans) && servers && request.mcp_settings_path.is_none()
}

/// Splits servers into those that can be passed when a session is opened and those that must be in the settings.
pub(super) fn divide_servers(all: Map<String, Value>) -> (BTreeMap<String, McpServer>, Map<String, Value>) {
    let (mut passed, mut set) = (BTreeMap::new(), Map::new());
    for (name, server) in all {
        let can_pass = server.as_object().is_some_and(|o| o.keys().all(|k| TELLABLE.contains(&k.as_str())));
        match can_pass.then(|| of_settings(&server)).flatten() {
            Some(server) => _ = passed.insert(name, server),
            None => _ = set.insert(name, server),
        }
    }
    (passed, set)
}

fn of_settings(server: &Value) -> Option<McpServer> {
    let texts = |key: &str| -> Option<BTreeMap<String, String>> {
        let Some(found) = server.get(key) else { return Some(BTreeMap::new()) };
        found.as_object()?.iter().map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
    };
    if let Some(url) = server.get("httpUrl") {
        return Some(McpServer::Url { url: url.as_str()?.to_owned(), headers: texts("headers")? });
    }
    let args = match server.get("args") {
        Some(args) => {
            args.as_array()?.iter().map(|a| a.as_str().map(str::to_owned)).collect::<Option<_>>()?
        }
        None => Vec::new(),
    };
    Some(McpServer::Command {
        command: server.get("command")?.as_str()?.to_owned(),
        args,
        env: texts("env")?,
    })
}
