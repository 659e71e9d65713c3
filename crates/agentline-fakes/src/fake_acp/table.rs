//! The table of all faults, by the part of the conversation that they affect.

use super::faults::{AcpFault, FaultAction, FaultFlag, FaultStage};

const HELLO: &str = "hello";
const WRITES: &str = "tool write_file made.txt made\\n\nsay Done.";
const ASK_SCRIPT: &str = "ask write_file asked.txt asked\\n\nsay Done.";
const RUNS: &str = "run echo from-the-shell\nsay Done.";
const LONG: &str = "say Working.\nrun sleep 60\nsay Done.";

const fn row(
    stage: FaultStage,
    name: &'static str,
    action: FaultAction,
    prompt: &'static str,
    description: &'static str,
) -> AcpFault {
    AcpFault { name, description, prompt, stage, action }
}

const fn start(name: &'static str, flag: FaultFlag, description: &'static str) -> AcpFault {
    row(FaultStage::Start, name, FaultAction::Flag(flag), HELLO, description)
}

const fn session(name: &'static str, flag: FaultFlag, description: &'static str) -> AcpFault {
    row(FaultStage::Session, name, FaultAction::Flag(flag), HELLO, description)
}

const fn lines(name: &'static str, flag: FaultFlag, description: &'static str) -> AcpFault {
    row(FaultStage::Lines, name, FaultAction::Flag(flag), ASK_SCRIPT, description)
}

const fn tools(
    name: &'static str,
    flag: FaultFlag,
    prompt: &'static str,
    description: &'static str,
) -> AcpFault {
    row(FaultStage::Tools, name, FaultAction::Flag(flag), prompt, description)
}

const fn permission(name: &'static str, flag: FaultFlag, description: &'static str) -> AcpFault {
    row(FaultStage::Permission, name, FaultAction::Flag(flag), ASK_SCRIPT, description)
}

const fn before(
    stage: FaultStage,
    name: &'static str,
    script: &'static str,
    description: &'static str,
) -> AcpFault {
    row(stage, name, FaultAction::Before(script), HELLO, description)
}

const fn instead(
    stage: FaultStage,
    name: &'static str,
    script: &'static str,
    description: &'static str,
) -> AcpFault {
    row(stage, name, FaultAction::Instead(script), HELLO, description)
}

const fn cancel(name: &'static str, flag: FaultFlag, description: &'static str) -> AcpFault {
    row(FaultStage::Cancel, name, FaultAction::Flag(flag), LONG, description)
}

/// Every fault of the fake agent.
#[rustfmt::skip]
pub const FAULTS: &[AcpFault] = &[
    // Startup.
    start("exit_at_start", FaultFlag::ExitAtStart, "exits immediately, with code 3 or the code after the colon"),
    start("exit_after_initialize", FaultFlag::ExitAfterInitialize, "answers `initialize` and exits 0"),
    start("initialize_never", FaultFlag::InitializeNever, "never answers `initialize`"),
    start("initialize_slow", FaultFlag::InitializeSlow, "answers `initialize` after 3000 ms"),
    start("initialize_error", FaultFlag::InitializeError, "answers `initialize` with an error"),
    start("initialize_bare", FaultFlag::InitializeBare, "reports only the protocol version"),
    start("initialize_odd", FaultFlag::InitializeOdd, "fields of `initialize` with the wrong types"),
    start("protocol_version", FaultFlag::ProtocolVersion, "version 2 of the protocol"),
    start("no_load", FaultFlag::NoLoad, "cannot load sessions"),
    start("auth_required", FaultFlag::AuthRequired, "-32000 for a session until `authenticate` is called"),
    start("auth_hopeless", FaultFlag::AuthHopeless, "-32000 for every session, even after `authenticate`"),
    // Sessions.
    session("session_new_error", FaultFlag::SessionNewError, "`session/new` fails"),
    session("session_new_never", FaultFlag::SessionNewNever, "`session/new` is never answered"),
    session("session_new_slow", FaultFlag::SessionNewSlow, "`session/new` takes 2000 ms"),
    session("session_new_stalls", FaultFlag::SessionNewStalls, "more than 4 concurrent `session/new` take 20 s instead of 100 ms"),
    session("session_new_exit", FaultFlag::SessionNewExit, "exits with 4 when a session is opened"),
    session("same_session_id", FaultFlag::SameSessionId, "every session has the same id"),
    session("session_id_missing", FaultFlag::SessionIdMissing, "`session/new` returns no session id"),
    session("session_id_number", FaultFlag::SessionIdNumber, "the session's id is a number"),
    session("no_modes_no_models", FaultFlag::NoModesNoModels, "`session/new` lists neither modes nor models"),
    session("config_options_only", FaultFlag::ConfigOptionsOnly, "modes and models only as configuration options"),
    session("commands_after_new", FaultFlag::CommandsAfterNew, "a list of commands right after the response to `session/new`"),
    session("set_mode_error", FaultFlag::SetModeError, "`session/set_mode` fails"),
    session("set_mode_never", FaultFlag::SetModeNever, "`session/set_mode` is never answered"),
    session("set_mode_ignored", FaultFlag::SetModeIgnored, "`session/set_mode` changes nothing"),
    session("mode_update_text", FaultFlag::ModeUpdateText, "`[MODE_UPDATE] ID` as text of the answer when the mode is set"),
    session("set_model_error", FaultFlag::SetModelError, "`session/set_model` fails"),
    session("set_model_unknown", FaultFlag::SetModelUnknown, "`session/set_model` does not exist"),
    session("set_config_error", FaultFlag::SetConfigError, "`session/set_config_option` fails"),
    session("load_error", FaultFlag::LoadError, "`session/load` finds no session"),
    session("load_answers_first", FaultFlag::LoadAnswersFirst, "`session/load` is answered before its replay"),
    session("load_shows_context", FaultFlag::LoadShowsContext, "the replay begins with a hidden `<session_context>`"),
    session("memory_growth", FaultFlag::MemoryGrowth, "each session leaks 20 MB"),
    session("mcp_ignored", FaultFlag::McpIgnored, "never connects to its MCP servers"),
    session("process_per_session", FaultFlag::ProcessPerSession, "a process for each session, until `session/close`"),
    // Lines.
    lines("junk_first", FaultFlag::JunkFirst, "text before the first message"),
    lines("junk_between", FaultFlag::JunkBetween, "a line that is not JSON before each message"),
    lines("blank_lines", FaultFlag::BlankLines, "blank lines before each message"),
    lines("truncated_lines", FaultFlag::TruncatedLines, "half of each message before the complete one"),
    lines("invalid_utf8", FaultFlag::InvalidUtf8, "bytes that are not UTF-8 before each message"),
    lines("number_lines", FaultFlag::NumberLines, "JSON that is not a message before each message"),
    lines("array_lines", FaultFlag::ArrayLines, "JSON lists before each message"),
    lines("crlf", FaultFlag::Crlf, "lines that end with CR LF"),
    lines("bom", FaultFlag::Bom, "a byte order mark before the first message"),
    lines("nul_bytes", FaultFlag::NulBytes, "NUL bytes before each message"),
    lines("slow_bytes", FaultFlag::SlowBytes, "each line in twenty pieces, with pauses"),
    lines("no_version_field", FaultFlag::NoVersionField, "messages without `jsonrpc`"),
    lines("answer_ids_as_strings", FaultFlag::AnswerIdsAsStrings, "responses whose id is a string instead of the number in the request"),
    lines("request_ids_as_strings", FaultFlag::RequestIdsAsStrings, "requests whose ids are strings"),
    lines("answers_to_nobody", FaultFlag::AnswersToNobody, "responses to requests that were never sent"),
    lines("answers_twice", FaultFlag::AnswersTwice, "each response twice"),
    lines("result_and_error", FaultFlag::ResultAndError, "responses with both a result and an error"),
    before(FaultStage::Lines, "long_line", "big 3000000", "one line of 3 MB"),
    before(FaultStage::Lines, "flood", "chunks 20000 {n}\\n", "20,000 pieces of the answer"),
    before(FaultStage::Lines, "unknown_notification", r#"raw {"jsonrpc":"2.0","method":"_fake/news","params":{"a":1}}"#, "an unknown notification"),
    // Updates.
    before(FaultStage::Updates, "unknown_update", "unknown", "an update of an unknown kind"),
    before(FaultStage::Updates, "update_for_unknown_session", r#"raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"unknown-session","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"for another session"}}}}"#, "text for a session that does not exist"),
    before(FaultStage::Updates, "update_without_kind", r#"update {"content":1}"#, "an update without a type"),
    before(FaultStage::Updates, "update_null", "update null\nraw {\"jsonrpc\":\"2.0\",\"method\":\"session/update\"}", "empty updates"),
    row(FaultStage::Updates, "update_without_session", FaultAction::Flag(FaultFlag::UpdateWithoutSession), HELLO, "updates that name no session"),
    row(FaultStage::Updates, "text_as_list", FaultAction::Flag(FaultFlag::TextAsList), HELLO, "the content of each piece is a list of blocks"),
    row(FaultStage::Updates, "text_as_string", FaultAction::Flag(FaultFlag::TextAsString), HELLO, "the content of each piece is a bare string"),
    row(FaultStage::Updates, "one_character_chunks", FaultAction::Flag(FaultFlag::OneCharacterChunks), HELLO, "one character per piece, so that sessions interleave"),
    before(FaultStage::Updates, "content_null", r#"update {"sessionUpdate":"agent_message_chunk","content":null}"#, "a piece of the answer whose content is null"),
    before(FaultStage::Updates, "content_missing", r#"update {"sessionUpdate":"agent_message_chunk"}"#, "a piece of the answer without content"),
    before(FaultStage::Updates, "unknown_block", r#"update {"sessionUpdate":"agent_message_chunk","content":{"type":"hologram","data":"x"}}"#, "a block of an unknown type"),
    instead(FaultStage::Updates, "image_only", "image", "an answer that is only an image"),
    instead(FaultStage::Updates, "audio_only", "audio", "an answer that is only audio"),
    instead(FaultStage::Updates, "thought_only", "think I think and say nothing.", "thoughts without an answer"),
    before(FaultStage::Updates, "all_updates", "think Thinking.\nplan\ncommands\nmode plan\nconfig\ninfo\nused 10\nunknown", "one update of each kind"),
    instead(FaultStage::Updates, "late_text", "say Early.\nafter 50 unknown\nafter 200 say  Late.", "after the answer, text 150 ms after an unknown update"),
    instead(FaultStage::Updates, "late_trickle", "say Early.\ntrickle 200 60000 unknown", "an update every 200 ms for 60 s after the answer"),
    instead(FaultStage::Updates, "late_tool", "say Early.\nafter 100 tool write_file late.txt late", "a file written after the answer"),
    // Tools.
    tools("empty_tool_ids", FaultFlag::EmptyToolIds, "tool write_file one.txt 1\ntool write_file two.txt 2\nsay Done.", "tools with empty ids"),
    tools("missing_tool_ids", FaultFlag::MissingToolIds, WRITES, "tools without ids"),
    tools("same_tool_id", FaultFlag::SameToolId, "tool write_file one.txt 1\ntool write_file two.txt 2\nsay Done.", "every tool has the same id"),
    tools("tool_first_in_permission", FaultFlag::ToolFirstInPermission, ASK_SCRIPT, "a tool that is first announced by its permission request"),
    tools("refused_tool_silent", FaultFlag::RefusedToolSilent, ASK_SCRIPT, "no further update about a denied tool"),
    tools("tool_never_ended", FaultFlag::ToolNeverEnded, WRITES, "tools that never end"),
    tools("tool_ended_twice", FaultFlag::ToolEndedTwice, WRITES, "tools that end twice, and then fail"),
    tools("cancelled_shell_completed", FaultFlag::CancelledShellCompleted, LONG, "`completed` for a shell command that was cancelled"),
    tools("shell_output_missing", FaultFlag::ShellOutputMissing, RUNS, "shell commands without output, and `completed` for every exit code"),
    before(FaultStage::Tools, "tool_update_first", r#"update {"sessionUpdate":"tool_call_update","toolCallId":"surprise","status":"failed","content":[{"type":"content","content":{"type":"text","text":"denied"}}]}"#, "the failure of a tool that was never announced"),
    before(FaultStage::Tools, "tool_odd_types", r#"update {"sessionUpdate":"tool_call","toolCallId":5,"title":null,"kind":[],"status":"thinking","content":"text","locations":{}}"#, "a tool with fields of the wrong type"),
    row(FaultStage::Tools, "gemini_manners", FaultAction::Flags(&[FaultFlag::ToolFirstInPermission, FaultFlag::RefusedToolSilent, FaultFlag::CancelledShellCompleted, FaultFlag::ShellOutputMissing, FaultFlag::ModeUpdateText, FaultFlag::CommandsAfterNew, FaultFlag::LoadAnswersFirst, FaultFlag::LoadShowsContext, FaultFlag::QuotaInMeta]), ASK_SCRIPT, "all quirks of Gemini CLI together"),
    // Permission.
    permission("permission_unknown_kinds", FaultFlag::UnknownOptionKinds, "options of unknown kinds before the known ones"),
    permission("permission_no_options", FaultFlag::NoOptions, "a request without options"),
    permission("permission_reject_only", FaultFlag::RejectOnly, "a request with only reject options"),
    permission("permission_always_only", FaultFlag::AlwaysOnly, "a request that can only be allowed permanently"),
    permission("permission_lying_ids", FaultFlag::LyingOptionIds, "options whose ids contradict their kinds"),
    permission("permission_again", FaultFlag::AsksAgain, "asks again after each permission, forever"),
    permission("permission_twice", FaultFlag::AsksTwiceAtOnce, "asks twice at the same time"),
    row(FaultStage::Permission, "permission_flood", FaultAction::Instead("repeat 300 ask write_file asked.txt {n}\nsay Done."), HELLO, "asks 300 times, for 300 tools"),
    permission("permission_without_tool", FaultFlag::PermissionWithoutTool, "a request without a tool call"),
    permission("permission_without_session", FaultFlag::PermissionWithoutSession, "a request without a session id"),
    // Other requests.
    before(FaultStage::Requests, "unknown_request", r#"request _fake/question {"a":1}"#, "an unknown request"),
    before(FaultStage::Requests, "terminal_request", "terminal", "requests a terminal, which the client does not support"),
    before(FaultStage::Requests, "read_missing", "fs_read no-such-file.txt", "requests a file that does not exist"),
    before(FaultStage::Requests, "read_outside", "fs_read ../../../../../../etc/hostname", "requests a file outside the workspace"),
    before(FaultStage::Requests, "write_outside", "fs_write ../escaped.txt escaped", "requests a write outside the workspace"),
    before(FaultStage::Requests, "odd_path", "request fs/read_text_file {\"path\":5}\nrequest fs/write_text_file {\"content\":\"x\"}", "requests files with invalid paths"),
    // Answers.
    instead(FaultStage::Answer, "empty_end_turn", "stop end_turn", "`end_turn` without any text"),
    instead(FaultStage::Answer, "refusal", "say I will not.\nstop refusal", "the stop reason `refusal`"),
    instead(FaultStage::Answer, "max_tokens", "say It goes on and\nstop max_tokens", "the stop reason `max_tokens`"),
    instead(FaultStage::Answer, "max_turn_requests", "say Again.\nstop max_turn_requests", "the stop reason `max_turn_requests`"),
    instead(FaultStage::Answer, "unknown_stop_reason", "say Done.\nstop because", "an unknown stop reason"),
    instead(FaultStage::Answer, "no_stop_reason", "say Done.\nresult {}", "a result without a stop reason"),
    instead(FaultStage::Answer, "null_result", "say Done.\nresult null", "a result that is null"),
    instead(FaultStage::Answer, "never_answers", "say Working.\nhang", "some text, then nothing"),
    instead(FaultStage::Answer, "prompt_error", "error -32603 Internal error", "an internal error"),
    instead(FaultStage::Answer, "prompt_auth_error", "error -32000 Authentication required", "-32000 for the prompt"),
    instead(FaultStage::Answer, "http_401", r#"error 401 {"error":{"code":401,"message":"bad key","status":"UNAUTHENTICATED"}}"#, "the status 401 as code, and JSON as message"),
    instead(FaultStage::Answer, "http_403", r#"error 403 {"error":{"code":403,"message":"not allowed","status":"PERMISSION_DENIED"}}"#, "the status 403 as code, and JSON as message"),
    instead(FaultStage::Answer, "http_429", "error 429 You have exhausted your daily quota on this model.", "the status 429 as code"),
    instead(FaultStage::Answer, "http_500", "error 500 models/no-such-model is not found", "the status 500 as code"),
    instead(FaultStage::Answer, "http_503", r#"error 503 {"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#, "the status 503 as code, and JSON as message"),
    instead(FaultStage::Answer, "error_odd_types", r#"failure {"code":"bad","message":{"a":1}}"#, "an error with fields of the wrong type"),
    instead(FaultStage::Answer, "error_after_text", "say Half of the\nerror 500 stream broke", "an error after some text"),
    // Usage.
    before(FaultStage::Usage, "usage_in_response", "usage 100 20 30 5", "tokens in the response to the prompt"),
    before(FaultStage::Usage, "usage_updates", "used 100 1000 0.01\nused 250 1000 0.03", "tokens and cost in updates, as running totals"),
    before(FaultStage::Usage, "usage_in_quota", "quota 100 20", "tokens in `_meta.quota`"),
    before(FaultStage::Usage, "usage_three_ways", "usage 100 20 30 5\nquota 100 20\nused 120 1000 0.01", "the same tokens in all three places"),
    instead(FaultStage::Usage, "usage_odd", "say Done.\nresult {\"stopReason\":\"end_turn\",\"usage\":{\"inputTokens\":-1,\"outputTokens\":\"many\",\"totalTokens\":1e300},\"_meta\":{\"quota\":7}}", "invalid token counts"),
    // Cancellation.
    cancel("cancel_ignored", FaultFlag::CancelIgnored, "a cancellation has no effect"),
    cancel("cancel_slow", FaultFlag::CancelSlow, "a cancellation takes effect after 2000 ms"),
    cancel("cancel_as_end_turn", FaultFlag::CancelAsEndTurn, "a cancelled prompt ends with `end_turn`"),
    cancel("cancel_as_error", FaultFlag::CancelAsError, "a cancelled prompt ends with an error"),
    cancel("cancel_then_text", FaultFlag::CancelThenText, "text after the response to a cancelled prompt"),
    row(FaultStage::Cancel, "cancel_drops_permission", FaultAction::Flag(FaultFlag::CancelDropsPermission), ASK_SCRIPT, "a cancelled prompt ends without waiting for its open permission request"),
    // The process.
    instead(FaultStage::Process, "die_in_turn", "say Half of the\ndie 9", "exits with 9 in the middle of a turn"),
    instead(FaultStage::Process, "killed_in_turn", "say Half of the\nkilled", "is killed by SIGKILL in the middle of a turn"),
    instead(FaultStage::Process, "die_at_prompt", "die 9", "exits with 9 before the first update of the turn"),
    instead(FaultStage::Process, "die_after_tool", "tool write_file made.txt made\\n\ndie 9", "exits with 9 after a file was written"),
    instead(FaultStage::Process, "exit_0_in_turn", "say Half of the\ndie 0", "exits with 0 in the middle of a turn"),
    instead(FaultStage::Process, "half_line_then_exit", "say Half of the\nhalf_line\ndie 0", "exits in the middle of a line"),
    instead(FaultStage::Process, "stdout_closed", "say Half of the\nclose_stdout\nhang", "closes its output and keeps running"),
    before(FaultStage::Process, "stderr_flood", "stderr_flood 2000000", "2 MB on standard error"),
    before(FaultStage::Process, "child_left", "run sleep 120 >/dev/null 2>&1 &", "leaves a child in its own session"),
    row(FaultStage::Process, "ignores_signals", FaultAction::Flag(FaultFlag::IgnoresSignals), "hang", "ignores SIGINT, SIGTERM and SIGHUP"),
    row(FaultStage::Process, "survives_eof", FaultAction::Flag(FaultFlag::SurvivesEof), HELLO, "does not exit when its input ends"),
    row(FaultStage::Process, "slow_exit", FaultAction::Flag(FaultFlag::SlowExit), HELLO, "exits 1500 ms after its input ended"),
];
