//! Gemini CLI's deviations from ACP, by name and version, and the parsing of its texts.

use super::{
    failures,
    guard::Confirmation,
    overlay, refusal,
    session_file::{self, SessionFileDetail, SessionFileReader},
    tools,
};
use crate::{
    DialogueConfig, ExitReason, Failure, FailureKind, RunId, Sink, ToolKind, ToolUse, TurnSpec, Version,
    acp::{
        Acp,
        profile::{AcpProfile, Chunk, Quirks, ToolEnd, UnreportedCall, message_of, plain_tool},
        tool_call::AcpToolCall,
    },
    rpc::JsonRpcError,
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use std::collections::BTreeMap;

/// A deviation from the protocol, and the versions in which it was observed.
#[derive(Debug)]
struct Quirk {
    name: &'static str,
    /// The first version that has it. `None` means all earlier known versions.
    since: Option<Version>,
    /// The first version that no longer has it.
    until: Option<Version>,
    /// The deviation in a sentence or two.
    about: &'static str,
}

impl Quirk {
    /// Returns whether a version has the deviation. An unknown version counts as the newest.
    fn is_in(&self, version: Option<Version>) -> bool {
        match version {
            None => self.until.is_none(),
            Some(v) => self.since.is_none_or(|since| v >= since) && self.until.is_none_or(|until| v < until),
        }
    }
}

const fn quirk(name: &'static str, since: Option<Version>, about: &'static str) -> Quirk {
    Quirk { name, since, until: None, about }
}

const fn between(name: &'static str, since: Option<Version>, until: Version, about: &'static str) -> Quirk {
    Quirk { name, since, until: Some(until), about }
}

/// All deviations, as observed in 0.11.3, 0.24.0, 0.36.0, 0.45.2 and 0.61.0. If one appeared or disappeared
/// between two of these, the later version is given. Each has a test of the same name.
const QUIRKS: &[Quirk] = &[
    quirk(
        "mode_text",
        Some(Version(0, 45, 0)),
        "A change of mode is sent as text of the answer: `[MODE_UPDATE] yolo`.",
    ),
    quirk(
        "announces_in_permission",
        None,
        "A tool that needs permission is announced only by the permission request. This is handled for every agent.",
    ),
    quirk("silent_refusal", None, "There is no update after a tool was denied."),
    quirk(
        "silent_unknown_tool",
        None,
        "A call to a tool that does not exist or is not offered is not reported at all, only stored in the session file.",
    ),
    quirk(
        "cancelled_reads_completed",
        None,
        "A cancelled shell command is reported as `completed`; only its text says that it was cancelled.",
    ),
    quirk(
        "empty_content_for_missing_files",
        None,
        "If reading a missing file returns an error, the agent cannot create the file.",
    ),
    quirk(
        "history_after_load",
        Some(Version(0, 36, 0)),
        "The response to `session/load` arrives before the history.",
    ),
    quirk(
        "session_context_replayed",
        Some(Version(0, 36, 0)),
        "The hidden `<session_context>` is replayed as user text when a session is loaded.",
    ),
    between(
        "folder_as_thought",
        Some(Version(0, 36, 0)),
        Version(0, 45, 0),
        "The directory of a shell command is reported as reasoning.",
    ),
    quirk(
        "auto_in_usage",
        Some(Version(0, 45, 0)),
        "The usage by model contains `auto`, which is not a model.",
    ),
    quirk(
        "models_unchecked",
        Some(Version(0, 36, 0)),
        "`session/set_model` accepts any text; the next prompt fails.",
    ),
    quirk(
        "status_as_code",
        Some(Version(0, 36, 0)),
        "The code of an error is the HTTP status. In earlier versions it is always -32603.",
    ),
    quirk(
        "empty_end_turn",
        Some(Version(0, 45, 0)),
        "An empty, blocked or truncated answer ends normally. In earlier versions an empty answer is an error.",
    ),
    quirk(
        "no_shell_output",
        Some(Version(0, 45, 0)),
        "The output of a shell is not reported unless `tools.shell.enableInteractiveShell` is off. The launch disables it.",
    ),
    between(
        "shell_never_asks",
        None,
        Version(0, 24, 0),
        "Shell commands are denied without a permission request.",
    ),
    quirk(
        "junk_session_file",
        None,
        "`initialize` leaves an empty session file behind. The CLI deletes it at its next start; until then it is ignored when sessions are listed.",
    ),
    quirk(
        "resources_drop_media",
        None,
        "Images and audio are lost if a file is embedded in the same prompt. Observed only in 0.61.0.",
    ),
    quirk("loop_reads_turn_limit", None, "A detected loop ends with the stop reason of the turn limit."),
    quirk(
        "authenticate_rewrites_settings",
        None,
        "`authenticate` writes the method to the user's settings, so it is sent only on request.",
    ),
];

/// Returns the descriptions of the deviations of a version.
pub(super) fn quirks(version: Option<Version>) -> Vec<&'static str> {
    QUIRKS.iter().filter(|quirk| quirk.is_in(version)).map(|quirk| quirk.about).collect()
}

/// Returns whether a version has a deviation.
fn has(name: &str, version: Option<Version>) -> bool {
    QUIRKS.iter().any(|quirk| quirk.name == name && quirk.is_in(version))
}

/// Creates a dialogue with Gemini CLI over ACP.
pub(super) fn dialogue(config: &DialogueConfig) -> Acp {
    Acp::new(
        config,
        Box::new(GeminiProfile {
            version: config.version,
            max_turns: config.agent_max_turns,
            users_home: config.users_home.clone(),
            files: BTreeMap::new(),
            confirmation: Confirmation::default(),
        }),
    )
}

#[derive(Debug)]
struct GeminiProfile {
    version: Option<Version>,
    /// The turn limit in the settings of the CLI.
    max_turns: Option<u32>,
    /// The home directory that the CLI's messages should name.
    users_home: Option<String>,
    files: BTreeMap<RunId, SessionFileReader>,
    confirmation: Confirmation,
}

impl GeminiProfile {
    fn has(&self, name: &str) -> bool {
        has(name, self.version)
    }
}

/// The prefix of a text that reports a change of mode.
const MODE_TEXT: &str = "[MODE_UPDATE] ";
/// The id prefix of a permission request for a file outside the workspace that a prompt refers to.
const REFERENCE: &str = "resolve-prompt-";
/// The prefix of the output of a cancelled shell command.
const STOPPED: &str = "Command cancelled by user.";

impl AcpProfile for GeminiProfile {
    fn set_agent_version(&mut self, _name: &str, version: Option<Version>) {
        self.version = version.or(self.version);
    }

    fn notification(&mut self, method: &str) {
        self.confirmation.notification(method);
    }

    fn refuse(&self, spec: &TurnSpec) -> Option<Failure> {
        self.confirmation.failure(&spec.must_ignore)
    }

    fn quirks(&self) -> Quirks {
        Quirks {
            silent_refusal: self.has("silent_refusal"),
            empty_content_for_missing_files: self.has("empty_content_for_missing_files"),
            history_after_load: self.has("history_after_load"),
            usage: crate::ReportedUsage::PerTurn,
            resources_drop_media: self.has("resources_drop_media"),
            session_file: true,
            denial_ends_turn: false,
            needs_title: false,
            lists_tools_late: false,
            stops_after_results: false,
            thoughts_in_output: false,
        }
    }

    fn failure(&self, error: &JsonRpcError<'_>) -> Failure {
        let text = message_of(error);
        let text = overlay::with_users_home(&text, self.users_home.as_deref());
        let mut by_text = failures::of_text(&text);
        // Old versions put the service's whole response into the data.
        if let Some(data) =
            error.data.filter(|_| by_text.kind == FailureKind::ApiError && by_text.status.is_none())
        {
            let by_data = failures::of_text(data.get());
            (by_text.kind, by_text.status) = (by_data.kind, by_data.status);
        }
        match error.code {
            -32000 => Failure { kind: FailureKind::NotAuthenticated, ..by_text },
            -32602 if text.starts_with("Session not found") => {
                Failure { kind: FailureKind::SessionNotFound, ..by_text }
            }
            -32602 => Failure { kind: FailureKind::Input, ..by_text },
            // The code is the HTTP status, except that for a 500 the text may name the actual status.
            code @ 400..=599 if code != 500 && by_text.kind == FailureKind::ApiError => {
                Failure::http(u16::try_from(code).unwrap_or_default(), by_text.message)
            }
            500 if by_text.kind == FailureKind::ApiError
                && text.starts_with("models/")
                && text.contains("not found") =>
            {
                Failure { kind: FailureKind::UnknownModel, ..by_text }
            }
            _ => by_text,
        }
    }

    fn stop(&self, reason: &str, most_answers: Option<usize>) -> Option<Option<Failure>> {
        match reason {
            // It uses this stop reason only for a prompt that does not fit. A truncated answer ends normally.
            "max_tokens" => Some(Some(Failure::new(
                FailureKind::ContextOverflow,
                "the prompt exceeds the model's context window; no request was sent",
            ))),
            "max_turn_requests" if self.has("loop_reads_turn_limit") => {
                let within_limit = self.max_turns.is_none_or(|most| {
                    most_answers.is_some_and(|answers| answers < usize::try_from(most).unwrap_or(usize::MAX))
                });
                within_limit.then(|| Some(failures::of_text(failures::LOOP)))
            }
            _ => None,
        }
    }

    fn stderr(&mut self, text: &str, sink: &mut Sink) {
        failures::stderr_line(&overlay::with_users_home(text, self.users_home.as_deref()), sink);
    }

    fn exit(&mut self, exit: ExitReason, sink: &mut Sink) {
        if let ExitReason::Code(code) = exit
            && let Some(failure) = failures::of_exit(code)
        {
            sink.hint(None, failure);
        }
    }

    fn session_line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let file =
            self.files.entry(run).or_insert_with(|| SessionFileReader::new(SessionFileDetail::Corrections));
        file.line(run, text, sink);
    }

    fn unreported(&self, text: &str) -> Vec<UnreportedCall> {
        if self.has("silent_unknown_tool") { session_file::unknown_tool_calls(text) } else { Vec::new() }
    }

    fn forget(&mut self, run: RunId) {
        self.files.remove(&run);
    }

    fn message_chunk(&self, text: &str) -> Chunk {
        match text.strip_prefix(MODE_TEXT) {
            Some(mode) if self.has("mode_text") && !mode.trim().contains(char::is_whitespace) => {
                Chunk::Mode(mode.trim().to_owned())
            }
            _ => Chunk::Plain,
        }
    }

    fn thought_chunk(&self, text: &str) -> Chunk {
        let is_cwd = text.starts_with("[current working directory ") && text.trim_end().ends_with(']');
        if is_cwd && self.has("folder_as_thought") { Chunk::Noise } else { Chunk::Plain }
    }

    fn tool(&self, call: &AcpToolCall) -> ToolUse {
        let native = native_name(call);
        let mut tool = tools::TOOLS.tool_use(call.id.clone(), &native, call.raw_input.as_deref());
        if tool.kind == ToolKind::Other && !tools::TOOLS.is_own(&native) {
            // Classify a tool that is not in the table by its ACP kind, so that a shell with a new name is not treated
            // as harmless.
            let plain = plain_tool(call);
            (tool.name, tool.kind) = (plain.name, plain.kind);
        }
        if matches!(tool.kind, ToolKind::Write | ToolKind::Edit) && tool.path.is_none() {
            tool.path = call.first_path();
        }
        if tool.input.is_none() {
            tool.input = input_of(&native, call);
        }
        if let Some((name, server)) = mcp_title(&native, call) {
            tool.name = format!("mcp__{server}__{name}");
        }
        tool
    }

    fn server(&self, call: &AcpToolCall) -> Option<String> {
        mcp_title(&native_name(call), call).map(|(_, server)| server.to_owned())
    }

    fn is_only_a_question(&self, call: &AcpToolCall) -> bool {
        call.id.starts_with(REFERENCE)
    }

    fn ended(&self, call: &AcpToolCall, failed: bool, output: &str) -> ToolEnd {
        let native = native_name(call);
        if output.starts_with(STOPPED) && self.has("cancelled_reads_completed") {
            return ToolEnd::Cancelled;
        }
        let refused =
            if failed { refusal::of_message(&native, output) } else { refusal::of_success(&native, output) };
        match refused {
            Some(reason) => ToolEnd::Denied(reason),
            None if failed => ToolEnd::Failed,
            None => ToolEnd::Ok,
        }
    }

    fn is_model(&self, name: &str) -> bool {
        name != "auto" || !self.has("auto_in_usage")
    }
}

/// Returns the agent's own name for a tool, which only the id of the call contains:
/// `write_file__write_file_1794717761007_0`, `write_file-1794720128444-1`, `write_file-1794720112673`.
fn native_name(call: &AcpToolCall) -> String {
    let id = &*call.id;
    if id.starts_with(REFERENCE) {
        return REFERENCE.trim_end_matches('-').to_owned();
    }
    if let Some((name, rest)) = id.split_once("__")
        && rest.starts_with(name)
    {
        return name.to_owned();
    }
    let numbers = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut name = id;
    while let Some((before, _)) = name.rsplit_once('-').filter(|(_, number)| numbers(number)) {
        name = before;
    }
    if name != id && !name.is_empty() {
        return name.to_owned();
    }
    call.name.clone().unwrap_or_else(|| call.first_title.clone())
}

/// Returns the tool and the server of `echo (my-tiny MCP Server)`. In the agent's own name,
/// `mcp_my-tiny_echo`, the end of the server name is ambiguous.
fn mcp_title<'a>(native: &str, call: &'a AcpToolCall) -> Option<(&'a str, &'a str)> {
    let (name, rest) = call.title.rsplit_once(" (").filter(|_| native.starts_with("mcp_"))?;
    Some((name, rest.strip_suffix(" MCP Server)")?))
}

/// Builds the input of a call from its title, paths, diffs and text, because this surface does not report arguments.
fn input_of(native: &str, call: &AcpToolCall) -> Option<Box<RawValue>> {
    let arguments = match native {
        "run_shell_command" => json!({"command": call.title}),
        "write_file" => {
            let diff = call.diffs.first()?;
            json!({"file_path": diff.path, "content": diff.new})
        }
        "replace" | "read_file" => json!({"file_path": call.first_path()?}),
        "list_directory" => json!({"dir_path": whole_path(&call.title)?}),
        "glob" | "grep_search" | "search_file_content" => search_arguments(&call.title)?,
        // The arguments are the text of the call until it ends.
        _ if native.starts_with("mcp_") && !call.is_over && call.text.starts_with('{') => {
            return RawValue::from_string(call.text.clone()).ok();
        }
        _ => return None,
    };
    let arguments = to_raw_value(&arguments).ok()?;
    tools::TOOLS.tool_use(call.id.clone(), native, Some(&arguments)).input
}

/// Reads the arguments of a search from its title: `'PATTERN' in INCLUDE within DIRECTORY`.
fn search_arguments(title: &str) -> Option<Value> {
    const EVERYWHERE: &str = " across all workspace directories";
    let rest = title.strip_prefix('\'')?;
    let is_end = |words: &str| {
        words.is_empty() || [" in ", " within ", EVERYWHERE].iter().any(|start| words.starts_with(start))
    };
    // The pattern may contain quotes.
    let ends = rest.rmatch_indices('\'').map(|(at, _)| (&rest[..at], &rest[at + 1..]));
    let (pattern, words) = ends.into_iter().find(|(_, words)| is_end(words))?;
    let (include, dir) = words.rsplit_once(" within ").map_or((words, None), |(one, dir)| (one, Some(dir)));
    let include = include.trim_end_matches(EVERYWHERE).strip_prefix(" in ");
    let mut arguments = json!({"pattern": pattern});
    if let Some(include) = include {
        arguments["include"] = include.into();
    }
    if let Some(dir) = dir.and_then(whole_path).filter(|dir| *dir != "./") {
        arguments["dir_path"] = dir.into();
    }
    Some(arguments)
}

/// Returns a path of a title, unless the CLI has shortened it.
fn whole_path(path: &str) -> Option<&str> {
    (!path.is_empty() && !path.contains("...")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quirk_has_a_test_of_its_name() {
        let tests = [include_str!("../../../tests/core/acp/quirks.rs"), include_str!("store.rs")].concat();
        for quirk in QUIRKS {
            assert!(tests.contains(&format!("fn {}()", quirk.name)), "{}", quirk.name);
        }
    }

    #[test]
    fn quirks_apply_to_the_versions_in_which_they_were_observed() {
        let versions =
            [Version(0, 11, 3), Version(0, 24, 0), Version(0, 36, 0), Version(0, 45, 2), Version(0, 61, 0)];
        for (name, seen) in [
            ("mode_text", [false, false, false, true, true]),
            ("silent_refusal", [true; 5]),
            ("history_after_load", [false, false, true, true, true]),
            ("folder_as_thought", [false, false, true, false, false]),
            ("shell_never_asks", [true, false, false, false, false]),
            ("status_as_code", [false, false, true, true, true]),
            ("never_heard_of", [false; 5]),
        ] {
            assert_eq!(versions.map(|v| has(name, Some(v))), seen, "{name}");
        }
        // An unknown version counts as the newest.
        assert!(has("mode_text", None) && !has("folder_as_thought", None));
    }

    #[test]
    fn tool_name_is_derived_from_the_call_id_in_every_version() {
        let name = |id: &str| {
            let mut call = AcpToolCall::default();
            (call.id, call.first_title) = (id.into(), "a title".into());
            native_name(&call)
        };
        for (id, native) in [
            ("write_file__write_file_1794717761007_0", "write_file"),
            ("write_file-1794720128444-1", "write_file"),
            ("run_shell_command-1794720112673", "run_shell_command"),
            ("mcp_my-tiny_echo__mcp_my-tiny_echo_1794717933453_0", "mcp_my-tiny_echo"),
            ("resolve-prompt-/srv/lab/outside.txt-4ad54ba7-8c8f-47a1-9d57-361dff3c1ed7", "resolve-prompt"),
            ("_tc_1", "a title"),
            ("", "a title"),
            ("-1", "a title"),
        ] {
            assert_eq!(name(id), native, "{id}");
        }
    }

    #[test]
    fn mcp_server_name_is_read_from_the_title() {
        let mut call = AcpToolCall::default();
        (call.id, call.title) =
            ("mcp_web_srv_add__mcp_web_srv_add_1_0".into(), "add (web srv MCP Server)".into());
        let profile = GeminiProfile {
            version: None,
            max_turns: None,
            users_home: None,
            files: BTreeMap::new(),
            confirmation: Confirmation::default(),
        };
        assert_eq!(profile.server(&call).as_deref(), Some("web srv"));
        assert_eq!(profile.tool(&call).name, "mcp__web srv__add");
        call.title = "add (a folder)".into();
        assert_eq!((profile.server(&call), &*profile.tool(&call).name), (None, "mcp__web__srv_add"));
    }

    #[test]
    fn input_is_read_from_the_title_or_the_text() {
        let input = |native: &str, title: &str, text: &str| {
            let mut call = AcpToolCall::default();
            (call.title, call.text) = (title.into(), text.into());
            input_of(native, &call).map(|input| input.get().to_owned())
        };
        for (native, title, text, expected) in [
            ("glob", "'*'", "", Some(r#"{"pattern":"*"}"#)),
            ("glob", "'it's *' within src", "", Some(r#"{"path":"src","pattern":"it's *"}"#)),
            ("grep_search", "'a b' in *.rs within ./", "", Some(r#"{"glob":"*.rs","pattern":"a b"}"#)),
            ("grep_search", "'x' within a/.../b", "", Some(r#"{"pattern":"x"}"#)),
            (
                "search_file_content",
                "'x' in *.md across all workspace directories",
                "",
                Some(r#"{"glob":"*.md","pattern":"x"}"#),
            ),
            ("grep_search", "no quotes", "", None),
            ("list_directory", "docs", "", Some(r#"{"pattern":"*","path":"docs"}"#)),
            ("mcp_tiny_echo", "echo (tiny MCP Server)", r#"{"text":"2"}"#, Some(r#"{"text":"2"}"#)),
            ("mcp_tiny_echo", "echo (tiny MCP Server)", "echo: 2", None),
            ("mcp_tiny_echo", "echo (tiny MCP Server)", "{broken", None),
        ] {
            assert_eq!(input(native, title, text).as_deref(), expected, "{native} {title} {text}");
        }
    }
}
