//! OpenCode's deviations, as observed in 1.18.33.

use crate::Surface;

/// The deviations on every surface.
const GENERAL: &[&str] = &[
    "It retries a refused request up to five times, for a minute, without a setting. agentline stops the turn after two \
     retries.",
    "Without a title, a session costs a request that no run reports. agentline disables titles.",
    "A killed command is reported as completed; only its text says that it was aborted.",
    "A call to an unknown tool is reported as a successful call to the tool `invalid`.",
];

/// The deviations on `serve`.
const SERVE: &[&str] = &[
    "It does not report the HTTP status of a request that it retries. The text of the error decides its kind.",
    "A prompt that is too long for a new session is compacted until it is empty. agentline stops the turn.",
    "A rejection rejects all open permission requests of its session. agentline sends it last.",
    "Its structured output forces a tool call in every request, which models that reason refuse. agentline serves a tool \
     of its own for the answer.",
    "An unknown variant of a model is ignored. agentline refuses it.",
    "It sends the next request without waiting for a reader of its events. When a limit is reached, one request may \
     already be on its way; agentline aborts it.",
];

/// The deviations over ACP.
const ACP: &[&str] = &[
    "Retries are reported only in the log, which agentline reads.",
    "Only the tokens of the last request are reported. agentline reads the others from the database of sessions.",
    "An answer that was cut off at the token limit ends normally.",
    "The HTTP status of an error is not reported. Its text decides its kind.",
    "A denied tool ends the turn unless `experimental.continue_loop_on_deny` is set. The launch sets it.",
    "The summary of a compaction is part of the answer. The launch disables compaction.",
];

/// Returns the descriptions of the deviations on a surface.
pub(super) fn quirks(surface: Surface) -> Vec<&'static str> {
    let own = if surface == Surface::Serve { SERVE } else { ACP };
    GENERAL.iter().chain(own).copied().collect()
}
