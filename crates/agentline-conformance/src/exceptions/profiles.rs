//! The differences of the agents that agentline has a profile of, measured with their pinned versions.

use super::{Exception, exception};
use crate::expected::Aspect;

const KIMI_WRITES: &str =
    "Kimi Code writes to the workspace without asking in every mode that can work; the run warns";
const PI_NEVER_ASKS: &str = "pi never asks and has no mode that does; the run warns";
const QWEN_SERVERS: &str = "Qwen Code starts MCP servers in the background and sends its first request without waiting for their tools";

pub(super) const EXCEPTIONS: &[Exception] = &[
    exception(
        "copilot",
        &[],
        &[Aspect::ModelName],
        "none",
        "GitHub Copilot CLI does not report a model of the user's own",
    ),
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
        "goose",
        &["max_tokens"],
        &[Aspect::Verdict, Aspect::Requests],
        "",
        "Goose reports tokens only at the end of a turn, so a limit on them cannot act before",
    ),
    exception(
        "qwen",
        &[],
        &[Aspect::ModelName],
        "(openai)",
        "Qwen Code adds the kind of sign-in to the names of models, and keeps a selected model for later sessions",
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
    exception("kimi", &[], &[Aspect::Tokens], "unknown", "Kimi Code reports only how full the context is"),
    exception(
        "kimi",
        &[],
        &[Aspect::ModelName],
        "__kimi_env_model__",
        "Kimi Code has its own name for the model of the environment",
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
    exception("pi", &[], &[Aspect::Tokens], "unknown", "pi reports only how full the context is"),
];
