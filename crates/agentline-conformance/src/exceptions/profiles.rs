//! The differences of the agents that agentline has a profile of, measured with their pinned versions.

use super::{Exception, exception};
use crate::expected::Aspect;

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
        "qwen",
        &[],
        &[Aspect::OwnRequests],
        "",
        "Qwen Code does not count its requests for suggestions and memories",
    ),
    exception(
        "goose",
        &[],
        &[Aspect::Tokens],
        "",
        "Goose reports the tokens of its last request only, without cached ones and without its request for a title",
    ),
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
    exception("pi", &[], &[Aspect::Tokens], "unknown", "pi reports only how full the context is"),
];
