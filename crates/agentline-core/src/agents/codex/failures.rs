//! Translates Codex's errors to failures: those of `app-server` and its ACP adapter, and the texts of `exec`.

use crate::{
    Event, Failure, FailureKind, Sink,
    rpc::JsonRpcError,
    wire::{Entries, Num, Str, Tolerant as _, wire},
};
use serde_json::value::RawValue;

wire! {
    /// The error of a turn or of one request to the model.
    pub(super) struct CodexError<'a> {
        message: Str<'a> = "message", info: Option<&'a RawValue> = "codexErrorInfo", details: Str<'a> = "additionalDetails",
    }
}
impl<'a> CodexError<'a> {
    /// Creates an error from its parts.
    pub(super) fn new(message: Str<'a>, info: Option<&'a RawValue>, details: Str<'a>) -> Self {
        Self { message, info, details, ..Self::default() }
    }
}

wire! { struct HttpStatus<'a> { status: Num = "httpStatusCode" } }
wire! { struct Body<'a> { error: BodyError<'a> = "error", detail: Str<'a> = "detail" } }
wire! { struct BodyError<'a> { message: Str<'a> = "message", code: Str<'a> = "code" } }

/// Codex's own names of errors.
const NAMES: &[(&str, FailureKind)] = &[
    ("contextWindowExceeded", FailureKind::ContextOverflow),
    ("usageLimitExceeded", FailureKind::RateLimited),
    ("rateLimitExceeded", FailureKind::RateLimited),
    ("serverOverloaded", FailureKind::RateLimited),
    ("flexUnavailable", FailureKind::RateLimited),
    ("policyCapacityUnavailable", FailureKind::RateLimited),
    ("modelNotFound", FailureKind::UnknownModel),
    ("unauthorized", FailureKind::NotAuthenticated),
    ("cyberPolicy", FailureKind::Blocked),
    ("misalignmentPolicyViolation", FailureKind::Blocked),
    ("sandboxError", FailureKind::Sandbox),
    ("internalServerError", FailureKind::ApiError),
];

/// Names of errors that mean a lost connection if there is no HTTP status.
const CONNECTION: &[&str] = &["httpConnectionFailed", "responseStreamConnectionFailed"];

/// Phrases of Codex and of OpenAI's service, the most specific first.
const PHRASES: &[(&str, FailureKind)] = &[
    ("context_length_exceeded", FailureKind::ContextOverflow),
    ("context window", FailureKind::ContextOverflow),
    ("maximum context length", FailureKind::ContextOverflow),
    ("prompt is too long", FailureKind::ContextOverflow),
    ("model_not_found", FailureKind::UnknownModel),
    ("` does not exist", FailureKind::UnknownModel),
    ("Incorrect API key", FailureKind::NotAuthenticated),
    ("invalid_api_key", FailureKind::NotAuthenticated),
    ("Missing environment variable", FailureKind::NotAuthenticated),
    ("Not logged in", FailureKind::NotAuthenticated),
    ("Missing bearer", FailureKind::NotAuthenticated),
    ("rate_limit_exceeded", FailureKind::RateLimited),
    ("usage limit", FailureKind::RateLimited),
    // Codex hides the status of an internal error behind this text.
    ("experiencing high demand", FailureKind::ApiError),
    ("no rollout found", FailureKind::SessionNotFound),
    (TRUNCATED, FailureKind::Empty),
    ("error sending request", FailureKind::Network),
    ("stream disconnected", FailureKind::Network),
    ("stream closed before", FailureKind::Network),
    ("Connection reset", FailureKind::Network),
];

/// The message about an answer that reached the model's token limit.
const TRUNCATED: &str = "Incomplete response returned";

/// Translates an error. `has_text` says whether the model has answered before.
pub(super) fn of_error(error: &CodexError<'_>, has_text: bool) -> Failure {
    let raw = error.info.map_or("null", RawValue::get);
    let variants = serde_json::from_str::<Entries<'_, HttpStatus<'_>>>(raw).unwrap_or_default().0;
    let (name, status) = match variants.into_iter().next() {
        Some((name, variant)) => (name.own(), variant.status.0.and_then(|status| u16::try_from(status).ok())),
        None => (serde_json::from_str::<Str<'_>>(raw).unwrap_or_default().own(), None),
    };
    // While Codex retries, the message is only "Reconnecting... 1/5".
    let text = if error.details.is_empty() { &error.message } else { &error.details };
    let mut failure = of_text(text, has_text).agent_type(name.clone());
    if let Some((_, kind)) = NAMES.iter().find(|(known, _)| *known == name) {
        failure.kind = *kind;
    } else if let Some(status) = status {
        let by_status = Failure::http(status, "");
        failure.status = Some(status);
        // The text may be more specific than a status such as 400.
        failure = Failure { kind: by_status.kind, ..failure.clone() }.or_more_specific(failure);
    } else if CONNECTION.contains(&&*name) && failure.kind == FailureKind::ApiError {
        failure.kind = FailureKind::Network;
    }
    failure
}

/// Translates an error text. An unknown text is an API error.
pub(super) fn of_text(text: &str, has_text: bool) -> Failure {
    let message = message_in(text);
    let phrase = PHRASES.iter().find(|(phrase, _)| text.contains(phrase)).map(|(_, kind)| *kind);
    match (phrase, status_in(text)) {
        (Some(FailureKind::Empty), _) => truncated(has_text),
        (Some(kind), status) => Failure { status, ..Failure::new(kind, message) },
        (None, Some(status)) => Failure::http(status, message),
        (None, None) => Failure::new(FailureKind::ApiError, message),
    }
}

fn truncated(has_text: bool) -> Failure {
    if has_text {
        return Failure::new(FailureKind::ApiError, "the answer was truncated at the model's token limit");
    }
    Failure::new(FailureKind::Empty, "the model reached its token limit before it answered")
}

/// Returns the message of an error body, the reason of a retry, or the text itself.
fn message_in(text: &str) -> String {
    if let Some((_, reason)) = text.strip_prefix(RECONNECTING).and_then(|text| text.split_once('(')) {
        return reason.strip_suffix(')').unwrap_or(reason).to_owned();
    }
    let body = serde_json::from_str::<Body<'_>>(text).unwrap_or_default();
    if !body.is_object() {
        return text.trim().to_owned();
    }
    match (&*body.error.message, &*body.error.code, &*body.detail) {
        ("", _, "") => text.trim().to_owned(),
        ("", _, detail) => detail.to_owned(),
        (message, "", _) => message.to_owned(),
        (message, code, _) => format!("{message} ({code})"),
    }
}

/// Returns the HTTP status in a text such as `unexpected status 401 Unauthorized: …`.
fn status_in(text: &str) -> Option<u16> {
    let mut places = text.match_indices("status").map(|(at, word)| &text[at + word.len()..]);
    places.find_map(|rest| {
        let rest = rest.trim_start_matches([':', ' ', '=']);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|status| (400..600).contains(status))
    })
}

/// After how many failed requests a turn is ended. Codex sends each of them up to five times within three seconds, and
/// would not give up before the sixth.
const MAX_FAILED_REQUESTS: u32 = 2;

/// The beginning of the message about a request that is sent again. Usually the number of the attempt follows.
pub(super) const RECONNECTING: &str = "Reconnecting...";

/// The failed requests of a turn since its last progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailedRequests {
    count: u32,
    /// Whether the last one was an attempt to use a WebSocket.
    on_websocket: bool,
}

impl FailedRequests {
    /// Counts a failed request that Codex sends again. Returns whether the turn is ended instead: after an error that a
    /// retry cannot help, and after several failed requests in a row.
    pub(super) fn give_up(&mut self, message: &str, failure: &Failure) -> bool {
        if failure.kind == FailureKind::NotAuthenticated {
            return true;
        }
        // Codex tries a WebSocket six times before it uses HTTP. All of that is one failed request. The first attempt is
        // not reported.
        let is_later = attempt_in(message).is_some_and(|(attempt, _)| attempt > 1);
        let is_same = self.on_websocket && is_later;
        self.on_websocket = is_later && (self.count == 0 || self.on_websocket);
        self.count += u32::from(!is_same);
        self.count >= MAX_FAILED_REQUESTS
    }
}

/// Returns the warning about a failed request that Codex sends again.
pub(super) fn retry_warning(message: &str, failure: &Failure) -> Event {
    let code = if failure.kind == FailureKind::RateLimited { "rate_limited" } else { "retry" };
    let retry = match attempt_in(message) {
        Some((attempt, most)) => format!("retry {attempt} of {most}"),
        None => "it will be sent again".to_owned(),
    };
    Event::warning(code, format!("{}; {retry}", failure.message))
}

/// Returns the number of the attempt, and of all of them, in a message such as `Reconnecting... 2/5`.
fn attempt_in(message: &str) -> Option<(u32, u32)> {
    let (attempt, rest) = message.strip_prefix(RECONNECTING)?.trim_start().split_once('/')?;
    let most = rest.split_whitespace().next()?;
    Some((attempt.parse().ok()?, most.parse().ok()?))
}

/// Translates an error response to a request that opens a thread or starts a turn. No request has reached a model.
pub(super) fn of_opening(error: &JsonRpcError<'_>, loads: bool) -> Failure {
    let failure = of_text(&error.message, false);
    let kind = match failure.kind {
        FailureKind::ApiError if loads => FailureKind::SessionNotFound,
        FailureKind::ApiError => FailureKind::Input,
        kind => kind,
    };
    Failure { kind, ..failure }
}

/// What Codex says when it cannot open its database, for example because another process is just creating it. It then
/// exits before it has asked the model, so another start can help.
const NO_DATABASE: &str = "failed to initialize sqlite state runtime";

/// Processes a line of stderr.
pub(super) fn stderr_line(text: &str, sink: &mut Sink) {
    if text.contains(NO_DATABASE) {
        sink.hint(None, Failure::new(FailureKind::ApiError, text.trim().trim_start_matches("Error: ")));
    }
    if !text.trim().is_empty() {
        sink.stderr(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_on_a_websocket_are_one_failed_request() {
        let given_up_at = |messages: &[&str]| {
            let mut failed = FailedRequests::default();
            let failure = Failure::new(FailureKind::Network, "no");
            messages.iter().position(|message| failed.give_up(message, &failure))
        };
        assert_eq!(given_up_at(&["Reconnecting... 1/5", "Reconnecting... 2/5"]), Some(1));
        let websocket =
            ["Reconnecting... 2/5 (no)", "Reconnecting... 3/5", "Reconnecting... 4/5", "Reconnecting... 5/5"];
        assert_eq!(given_up_at(&websocket), None);
        for http in ["Reconnecting... 1/5", "Reconnecting... waiting for network (no)"] {
            assert_eq!(given_up_at(&[&websocket[..], &[http]].concat()), Some(4), "{http}");
        }
        let mut failed = FailedRequests::default();
        assert!(failed.give_up("Reconnecting... 2/5", &Failure::new(FailureKind::NotAuthenticated, "no")));
    }

    #[test]
    fn retries_are_warnings() {
        let warning = |message: &str, kind| match retry_warning(message, &Failure::new(kind, "no luck")) {
            Event::Warning { code, message } => (code, message),
            other => panic!("{other:?}"),
        };
        let expected = ("retry".to_owned(), "no luck; retry 2 of 5".to_owned());
        assert_eq!(warning("Reconnecting... 2/5 (no luck)", FailureKind::Network), expected);
        let expected = ("rate_limited".to_owned(), "no luck; it will be sent again".to_owned());
        assert_eq!(warning("Reconnecting... waiting for network", FailureKind::RateLimited), expected);
        assert_eq!(of_text("Reconnecting... 2/5 (no luck (today))", false).message, "no luck (today)");
    }
}
