//! What a start of Gemini CLI over ACP has that one without a conversation has not: its flag, its mode, its servers.
//!
//! What belongs to a session (the prompt, the model, the mode, the servers) is kept out of the arguments, the
//! environment and the files, so that one process can serve many sessions. What does not is the same for all sessions
//! of a process: rules, include directories, extensions, trust, limits, a replaced system prompt, the sign-in.

use super::{
    policy::{decides_here, has_patterns},
    versions::{self, has},
};
use crate::{
    Launch, McpServer, Millis, ModeWish, ModelValidation, ModelWish, Notice, PermissionMode, Plan, Problem,
    Rule, RunRequest, Sandbox, Surface, Version, Words,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Silence after the answer where it is not known that nothing follows it.
const QUIET: Millis = 500;

/// Modes and rules that ask are understood without a conversation, too: what would be asked is refused there. And who
/// wants to see the reasoning sees what there is.
const UNDERSTOOD_HEADLESS: &[&str] = &["ask", "permission_mode", "emit_thoughts"];

/// What a run without a conversation has alone, where rules are the reason why it needs one.
const NOT_WITH_RULES: &str =
    "leave it out, or use rules for whole tools: a pattern is enforced over ACP alone";

/// Names under which rules mean the tool that starts commands, or every tool.
const SHELL_NAMES: &[&str] = &["Bash", "Shell", "ShellTool", "run_shell_command", "*"];

/// Keys of a server in the CLI's settings that can be told when a session is opened.
const TELLABLE: &[&str] = &["command", "args", "env", "httpUrl", "headers", "trust"];

/// Why a request needs a conversation, as the keys that say so; none where a run without one can do it all.
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

/// The surface for a request that names none. What is understood without a conversation too does not force one on a
/// request that a conversation could not serve.
pub(super) fn choose(request: &RunRequest) -> Surface {
    let headless_only =
        request.sandbox != Sandbox::Off || request.session_id.is_some() || request.file_references;
    let needed = needed_for(request).any(|key| !(headless_only && UNDERSTOOD_HEADLESS.contains(&key)));
    // Rules that agentline has to decide on itself need a conversation whatever else is asked for.
    if needed || has_patterns(request) { Surface::Acp } else { Surface::StreamJson }
}

/// What cannot be had on the surface.
pub(super) fn check(request: &RunRequest, surface: Surface) -> Vec<Problem> {
    let mut problems = Vec::new();
    if surface != Surface::Acp {
        for key in needed_for(request).filter(|key| !UNDERSTOOD_HEADLESS.contains(key)) {
            let what = if key == "surface" {
                format!("`{surface}` has no way to call tools or ask for permission of the calling program")
            } else {
                format!("cannot be used on the surface `{surface}` of Gemini CLI")
            };
            problems.push(
                Problem::new(key, what).hint("use the surface `acp`, or leave the choice to us: `auto`"),
            );
        }
        return problems;
    }
    if request.sandbox != Sandbox::Off {
        problems.push(
            Problem::new(
                "sandbox",
                "cannot be used over ACP: Gemini CLI never answers from inside its sandbox",
            )
            .hint(with_rules(
                request,
                "leave the sandbox out, or use the surface `stream-json` with what it can do",
            )),
        );
    }
    if request.session_id.is_some() {
        problems.push(
            Problem::new("session_id", "cannot be chosen over ACP: the agent names its sessions itself")
                .hint(with_rules(request, "leave it out, or use the surface `stream-json`")),
        );
    }
    let ruled = !request.deny.is_empty() || decides_here(request);
    if let Some(mode @ ("autoEdit" | "yolo")) = request.mode_id.as_deref().filter(|_| ruled) {
        problems.push(
            Problem::new(
                "mode_id",
                format!("`{mode}` cannot be held to rules: over ACP, Gemini CLI then acts without asking"),
            )
            .hint("use `permission_mode` with `accept-edits` or `bypass`, which permit the same within the rules"),
        );
    }
    if request.file_references {
        problems.push(
            Problem::new(
                "file_references",
                "cannot be used over ACP, where Gemini CLI leaves `@file` as it stands",
            )
            .hint(with_rules(request, "send files with `--attach`, or use the surface `stream-json`")),
        );
    }
    problems
}

fn with_rules(request: &RunRequest, other: &'static str) -> &'static str {
    if has_patterns(request) { NOT_WITH_RULES } else { other }
}

/// The prompt, so that it reaches the model. Over ACP the CLI takes `/about` and `$about` for a command of its own,
/// with blanks before it too, and answers without asking the model.
pub(super) fn words(text: String) -> Words {
    let first = text.trim_start().strip_prefix(['/', '$']).map(|rest| rest.split_whitespace().next());
    let Some(Some(word)) = first else { return Words::new(text) };
    if word.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_') {
        return Words::new(text);
    }
    let mut words = Words::new(format!("\u{200b}{text}"));
    words.warnings.push(Notice::new(
        "prompt_not_verbatim",
        "the prompt begins like a command of Gemini CLI; an invisible character (U+200B) before it keeps it a prompt",
    ));
    words
}

/// The arguments that are ours; the rest is as without a conversation.
pub(super) fn arguments(plan: &Plan, version: Option<Version>) -> Vec<String> {
    let request = &plan.request;
    let flag = if has(version, versions::ACP) { "--acp" } else { "--experimental-acp" };
    let mut args = request.agent_args.clone().unwrap_or_else(|| vec![flag.to_owned()]);
    let mut add = |flag: &str, value: &str| args.extend([flag.to_owned(), value.to_owned()]);
    // Versions that cannot be told for each session are told for the process.
    if let Some(model) = request.model.as_ref().filter(|_| !has(version, versions::ACP_MODELS)) {
        add("-m", model);
    }
    match mode(request).id.as_str() {
        "default" => {}
        // Told for the process as well: each session is in it at once, and whoever has forbidden this mode in the settings
        // is heeded, which the CLI does not do where a session is brought into it later. Arguments of the caller's may
        // say the same, which the CLI would take amiss.
        "yolo" if request.agent_args.is_none() => add("--approval-mode", "yolo"),
        _ if has(version, versions::ACP_MODES) => {}
        "autoEdit" => add("--approval-mode", "auto_edit"),
        other => add("--approval-mode", other),
    }
    args
}

/// Fills in what belongs to the session.
pub(super) fn fill(launch: &mut Launch, plan: &Plan, version: Option<Version>) {
    let request = &plan.request;
    launch.talk.read_files = request.allow_file_reads;
    launch.talk.write_files = request.allow_file_writes;
    launch.talk.authenticate.clone_from(&request.authenticate);
    launch.mode = has(version, versions::ACP_MODES).then(|| mode(request));
    launch.model = request
        .model
        .as_ref()
        .filter(|_| has(version, versions::ACP_MODELS))
        .map(|id| ModelWish::new(id, request.model_validation == ModelValidation::Strict));
    if let (Some(wish), None) = (&launch.model, &request.agent_args) {
        // Its sessions have that model at once.
        launch.preset = vec!["-m".to_owned(), wish.id.clone()];
    }
    // A version that could not be read is not known to be quiet.
    let quiet = if version.is_some_and(|v| v >= versions::ACP_NOTHING_FOLLOWS) { 0 } else { QUIET };
    launch.quiet =
        request.quiet_period.map_or(quiet, |d| Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX));
}

/// The mode of the session.
///
/// Edits that are permitted are permitted by us, question by question: in its mode `autoEdit` the CLI asks nobody over
/// ACP, not even its policy files, and fetches from the web unasked as well.
pub(super) fn mode(request: &RunRequest) -> ModeWish {
    let own = match request.permission_mode {
        // Where rules have to be asked about, what they leave open is permitted by our answer.
        PermissionMode::Bypass if !decides_here(request) => "yolo",
        PermissionMode::Plan => "plan",
        _ => "default",
    };
    let id = request.mode_id.as_deref().unwrap_or(own);
    // Whoever stays in another mode than these may do more than was asked; than the others, less.
    ModeWish::new(id, matches!(id, "default" | "plan"))
}

/// Whether a run can start no process: it may not use the shell, and brings no server that is a program.
pub(super) fn starts_nothing(request: &RunRequest) -> bool {
    let refused = request.deny.iter().filter_map(|text| Rule::parse("deny", text).ok());
    let no_shell =
        refused.into_iter().any(|rule| rule.pattern.is_none() && SHELL_NAMES.contains(&rule.tool.as_str()));
    let plans = request.permission_mode == PermissionMode::Plan && request.mode_id.is_none();
    let servers = request.mcp_servers.values().all(|server| matches!(server, McpServer::Url { .. }));
    (no_shell || plans) && servers && request.mcp_settings_path.is_none()
}

/// Divides servers into those that a session can be opened with and those that only the settings can name.
pub(super) fn divide_servers(all: Map<String, Value>) -> (BTreeMap<String, McpServer>, Map<String, Value>) {
    let (mut told, mut set) = (BTreeMap::new(), Map::new());
    for (name, server) in all {
        let tellable = server.as_object().is_some_and(|o| o.keys().all(|k| TELLABLE.contains(&k.as_str())));
        match tellable.then(|| of_settings(&server)).flatten() {
            Some(server) => _ = told.insert(name, server),
            None => _ = set.insert(name, server),
        }
    }
    (told, set)
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
