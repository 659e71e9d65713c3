//! The differences of Gemini CLI, by version.

use super::{Exception, exception, race};
use crate::expected::Aspect;
use crate::target::TestedSurface;
use agentline::Surface;
use agentline::agents::Version;

/// The first version whose session file is read during a run on `json`, because its session can be given an id.
const SESSION_ID: Version = Version(0, 41, 0);
const NO_SESSION_FILE: &str = "Gemini CLI before 0.41 cannot be given the id of its session, so agentline cannot read \
                               the session file during a run: on `json`, tool calls and activity are not reported";

const NO_REASON: &str = "Gemini CLI before 0.24 does not report why the service rejected a request: the run fails, with the kind `api_error`";

const FAILING_TOOL: &str =
    "Gemini CLI reports a command that fails as a successful tool call; the code is in the output";

/// The scenarios with commands.
const COMMANDS: &[&str] = &["delete", "rename", "failing_tool", "cancel_tool"];

/// Before 0.24, the CLI loads its parser of commands in the background and rejects commands until then. A real model takes
/// longer.
pub(super) fn thinking_ms(target: &TestedSurface, scenario: &str) -> u64 {
    let is_old = target.version.is_some_and(|version| version < Version(0, 24, 0));
    if target.agent == "gemini" && is_old && COMMANDS.contains(&scenario) { 3000 } else { 0 }
}

/// The first version in which the settings of a run limit the attempts.
const ATTEMPTS: Version = Version(0, 25, 0);

pub(super) const EXCEPTIONS: &[Exception] = &[
    exception(
        "gemini",
        &["cut_off"],
        &[Aspect::Verdict],
        "done",
        "Gemini CLI does not report that an answer with text was cut off at the token limit",
    ),
    // On `json`, the status comes from the session file, which is right.
    Exception {
        surfaces: &[Surface::Acp, Surface::StreamJson],
        ..exception("gemini", &["failing_tool"], &[Aspect::Tools], "Ok", FAILING_TOOL)
    },
    Exception {
        surfaces: &[Surface::Json],
        until: Some(SESSION_ID),
        ..exception("gemini", &[], &[Aspect::Tools, Aspect::Denied], "[]", NO_SESSION_FILE)
    },
    Exception {
        surfaces: &[Surface::Json],
        until: Some(SESSION_ID),
        ..exception(
            "gemini",
            &["denied", "outside", "plan"],
            &[Aspect::Verdict],
            "done (None",
            NO_SESSION_FILE,
        )
    },
    Exception {
        surfaces: &[Surface::Json],
        until: Some(SESSION_ID),
        ..exception("gemini", &["hang"], &[Aspect::Kind, Aspect::Time], "", NO_SESSION_FILE)
    },
    Exception {
        surfaces: &[Surface::Json],
        until: Some(SESSION_ID),
        ..exception("gemini", &["max_turns"], &[Aspect::Kind], "AgentTurns", NO_SESSION_FILE)
    },
    Exception {
        until: Some(SESSION_ID),
        ..race(
            "gemini",
            &["max_turns"],
            4,
            "Gemini CLI before 0.41 sends its next requests before the limit acts; they are cancelled",
        )
    },
    Exception {
        until: Some(ATTEMPTS),
        ..exception(
            "gemini",
            &["429", "529", "500", "dropped", "dropped_midway"],
            &[Aspect::Time],
            "",
            "Gemini CLI before 0.25 makes three attempts in 11 to 20 seconds, and has no setting for that",
        )
    },
    Exception {
        surfaces: &[Surface::Acp],
        until: Some(Version(0, 36, 0)),
        ..exception(
            "gemini",
            &[],
            &[Aspect::Tokens],
            "input unknown, output unknown",
            "Gemini CLI before 0.36 reports no tokens over ACP",
        )
    },
    Exception {
        surfaces: &[Surface::Json, Surface::StreamJson],
        until: Some(Version(0, 24, 0)),
        ..exception("gemini", &["401"], &[Aspect::Verdict], "does not report why", NO_REASON)
    },
    Exception {
        surfaces: &[Surface::Json],
        until: Some(Version(0, 24, 0)),
        ..exception("gemini", &["429", "529"], &[Aspect::Verdict], "does not report why", NO_REASON)
    },
    Exception {
        surfaces: &[Surface::Json],
        until: Some(Version(0, 24, 0)),
        ..exception(
            "gemini",
            &["model"],
            &[Aspect::ModelName],
            "gemini-2.5-pro",
            "on `json`, Gemini CLI 0.11 names its default model, although its router selected another",
        )
    },
    Exception {
        surfaces: &[Surface::Json, Surface::StreamJson],
        until: Some(Version(0, 24, 0)),
        ..exception(
            "gemini",
            &["400", "404", "unknown_model", "dropped"],
            &[Aspect::Kind],
            "does not report why",
            NO_REASON,
        )
    },
    Exception {
        surfaces: &[Surface::StreamJson],
        until: Some(Version(0, 24, 0)),
        ..exception(
            "gemini",
            &["model"],
            &[Aspect::ModelName],
            "auto",
            "Gemini CLI 0.11 passes its default model to a router and reports it as `auto`",
        )
    },
    Exception {
        surfaces: &[Surface::Json, Surface::StreamJson],
        until: Some(Version(0, 24, 0)),
        ..exception(
            "gemini",
            &["dropped_midway"],
            &[Aspect::Verdict],
            "done",
            "Gemini CLI before 0.24 reports an answer whose connection was dropped as a complete one",
        )
    },
    Exception {
        surfaces: &[Surface::StreamJson],
        until: Some(Version(0, 24, 0)),
        ..exception(
            "gemini",
            &[],
            &[Aspect::Tokens],
            "cached unknown",
            "Gemini CLI before 0.24 does not report cached tokens",
        )
    },
];
