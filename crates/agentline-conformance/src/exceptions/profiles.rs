//! The differences of the agents that agentline has a profile of, measured with their pinned versions.

use super::{Exception, NEXT_REQUEST, exception, race};
use crate::expected::Aspect;

const KIMI_WRITES: &str =
    "Kimi Code writes to the workspace without asking in every mode that can work; the run warns";
const PI_NEVER_ASKS: &str = "pi never asks and has no mode that does; the run warns";
const QWEN_SERVERS: &str = "Qwen Code starts MCP servers in the background and sends its first request without waiting for their tools";

const COPILOT_PLAN: &str =
    "GitHub Copilot CLI reports a write that its plan mode refuses as a failed call, without the reason";
const DROID_PLAN: &str =
    "Factory Droid reports a write that its mode for plans refuses as a failed call, without the reason";
const DROID_RETRIES: &str = "Factory Droid retries a refused request without a message, for 16 seconds or more, and has no setting for that";
const GROK_SERVERS: &str =
    "Grok starts MCP servers in the background and may answer a call before it knows their tools";
const GROK_TOOLS: &str = "Grok offers the tools of MCP servers only through a tool of its own";

pub(super) const EXCEPTIONS: &[Exception] = &[
    exception(
        "copilot",
        &[],
        &[Aspect::ModelName],
        "none",
        "GitHub Copilot CLI does not report a model of the user's own",
    ),
    exception(
        "copilot",
        &["failing_tool"],
        &[Aspect::Tools],
        "Ok",
        "GitHub Copilot CLI reports a command that fails as a successful tool call; the code is in the output",
    ),
    exception("copilot", &["plan"], &[Aspect::Verdict], "done (None", COPILOT_PLAN),
    exception("copilot", &["plan"], &[Aspect::Tools], "Error", COPILOT_PLAN),
    exception("copilot", &["plan"], &[Aspect::Denied], "[]", COPILOT_PLAN),
    exception(
        "copilot",
        &["429", "500", "529"],
        &[Aspect::Time],
        "",
        "GitHub Copilot CLI retries a refused request for up to a minute, without a message and without a setting",
    ),
    exception(
        "grok",
        &["failing_tool"],
        &[Aspect::Tools],
        "Ok",
        "Grok reports a command that fails as a successful tool call",
    ),
    exception("grok", &["mcp_tool", "hosted_tool"], &[Aspect::Offered], "run_terminal_command", GROK_TOOLS),
    exception(
        "grok",
        &["max_tokens"],
        &[Aspect::Requests],
        "7",
        "Grok reports tokens only at the end of a turn, so a limit on them acts then",
    ),
    exception(
        "droid",
        &["cut_off", "cut_off_empty"],
        &[Aspect::Verdict, Aspect::Time],
        "",
        "Factory Droid asks the model to continue an answer that was cut off, without end; only a limit or a timeout ends it",
    ),
    exception("droid", &["500", "529"], &[Aspect::Verdict], "timed_out", DROID_RETRIES),
    exception(
        "droid",
        &["429", "500", "529", "dropped", "dropped_midway"],
        &[Aspect::Time],
        "",
        DROID_RETRIES,
    ),
    Exception {
        is_race: true,
        ..exception("grok", &["mcp_tool"], &[Aspect::Tools], "Tool not found", GROK_SERVERS)
    },
    Exception { is_race: true, ..exception("grok", &["mcp_tool"], &[Aspect::Model], "none", GROK_SERVERS) },
    race("copilot", &["max_turns"], 3, NEXT_REQUEST),
    race("copilot", &["max_tool_calls", "max_tokens"], 4, NEXT_REQUEST),
    race("qwen", &["max_turns"], 3, NEXT_REQUEST),
    race("qwen", &["max_tool_calls", "max_tokens"], 4, NEXT_REQUEST),
    race("goose", &["max_turns"], 3, NEXT_REQUEST),
    race("goose", &["max_tool_calls"], 4, NEXT_REQUEST),
    race("kimi", &["max_turns"], 3, NEXT_REQUEST),
    race("kimi", &["max_tool_calls", "max_tokens"], 4, NEXT_REQUEST),
    race("vibe", &["max_turns"], 3, NEXT_REQUEST),
    race("vibe", &["max_tool_calls"], 4, NEXT_REQUEST),
    race("grok", &["max_turns"], 3, NEXT_REQUEST),
    race("grok", &["max_tool_calls"], 4, NEXT_REQUEST),
    race(
        "droid",
        &["max_turns", "max_tool_calls"],
        7,
        "Factory Droid reports its calls up to seconds after it made them, so a limit acts late",
    ),
    race("pi", &["max_turns"], 3, NEXT_REQUEST),
    race("pi", &["max_tool_calls", "max_tokens"], 4, NEXT_REQUEST),
    exception("droid", &["plan"], &[Aspect::Verdict], "done (None", DROID_PLAN),
    exception("droid", &["plan"], &[Aspect::Tools], "Error", DROID_PLAN),
    exception("droid", &["plan"], &[Aspect::Denied], "[]", DROID_PLAN),
    exception(
        "qwen",
        &[],
        &[Aspect::ModelName],
        "$runtime|",
        "Qwen Code has its own names for models of the environment",
    ),
    exception(
        "goose",
        &[],
        &[Aspect::Tokens],
        "",
        "Goose reports the tokens of its last request only, without cached ones and without its request for a title",
    ),
    exception(
        "goose",
        &["edit", "read"],
        &[Aspect::Tools],
        "Bash",
        "Goose has no tool that reads files; it reads them with commands",
    ),
    exception(
        "goose",
        &["400"],
        &[Aspect::Verdict],
        "empty",
        "Goose compacts the conversation and ends its turn without a message if the context overflows again",
    ),
    exception(
        "goose",
        &["cut_off"],
        &[Aspect::Verdict],
        "done",
        "Goose does not report that an answer was cut off at the token limit",
    ),
    exception(
        "qwen",
        &[],
        &[Aspect::ModelName],
        "(openai)",
        "Qwen Code adds the kind of sign-in to the names of models, and keeps a selected model for later sessions",
    ),
    exception(
        "qwen",
        &["empty", "cut_off_empty"],
        &[Aspect::Time],
        "",
        "Qwen Code repeats a request whose answer is empty, for about 20 seconds",
    ),
    exception("qwen", &["mcp_tool"], &[Aspect::Tools], "not found in registry", QWEN_SERVERS),
    exception("qwen", &["mcp_tool"], &[Aspect::Model], "none", QWEN_SERVERS),
    exception("qwen", &["mcp_tool"], &[Aspect::Offered], "agent, ", QWEN_SERVERS),
    exception(
        "qwen",
        &["cut_off"],
        &[Aspect::Verdict],
        "done",
        "Qwen Code does not report that an answer with text was cut off at the token limit",
    ),
    exception("kimi", &["denied"], &[Aspect::Verdict], "done", KIMI_WRITES),
    exception("kimi", &["denied"], &[Aspect::Tools], "Ok", KIMI_WRITES),
    exception("kimi", &["denied"], &[Aspect::Denied], "[]", KIMI_WRITES),
    exception("kimi", &["denied"], &[Aspect::Files, Aspect::Disk], "no.txt", KIMI_WRITES),
    exception(
        "vibe",
        &["failing_tool"],
        &[Aspect::Tools],
        "Ok",
        "Mistral Vibe reports a command that fails as a successful tool call",
    ),
    exception(
        "vibe",
        &["max_tokens"],
        &[Aspect::Requests],
        "7",
        "Mistral Vibe reports tokens only at the end of a turn, so a limit on them acts then",
    ),
    exception(
        "vibe",
        &[],
        &[Aspect::Tokens],
        "",
        "Mistral Vibe does not count its request for a title, and reasoning is part of the answer",
    ),
    exception(
        "grok",
        &[],
        &[Aspect::Tokens],
        "",
        "Grok does not count its requests for summaries, and reasoning is part of the answer",
    ),
    exception("droid", &[], &[Aspect::Tokens], "unknown", "Factory Droid reports no tokens"),
    exception(
        "droid",
        &[],
        &[Aspect::ModelName],
        "custom:",
        "Factory Droid names custom models with a prefix",
    ),
    exception("pi", &["denied", "outside", "plan"], &[Aspect::Verdict], "done", PI_NEVER_ASKS),
    exception("pi", &["denied", "outside", "plan"], &[Aspect::Tools], "Ok", PI_NEVER_ASKS),
    exception("pi", &["denied", "outside", "plan"], &[Aspect::Denied], "[]", PI_NEVER_ASKS),
    exception("pi", &["denied", "outside", "plan"], &[Aspect::Files, Aspect::Disk], ".txt", PI_NEVER_ASKS),
];
