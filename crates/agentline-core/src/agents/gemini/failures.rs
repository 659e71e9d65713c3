//! Translates Gemini CLI's exit codes, error texts and stderr lines to failures.

use super::sign_in;
use crate::{Event, Failure, FailureKind, Sink};
use std::borrow::Cow;

/// Known exit codes. API errors exit with the HTTP status modulo 256.
const EXITS: &[(i32, FailureKind, &str)] = &[
    (41, FailureKind::NotAuthenticated, "Gemini CLI is not signed in"),
    (42, FailureKind::Input, "Gemini CLI rejected its input"),
    (44, FailureKind::Sandbox, "Gemini CLI's sandbox failed"),
    (52, FailureKind::Settings, "Gemini CLI could not read its settings"),
    (53, FailureKind::AgentTurns, "Gemini CLI reached its turn limit"),
    (54, FailureKind::Tool, "Gemini CLI stopped after a fatal tool error"),
    (55, FailureKind::Untrusted, "Gemini CLI does not trust this directory"),
    (127, FailureKind::NotInstalled, "Node.js, which Gemini CLI requires, was not found"),
    (130, FailureKind::Cancelled, "Gemini CLI was interrupted"),
];

/// Returns the failure for an exit code, if its meaning is known.
pub(super) fn of_exit(code: i32) -> Option<Failure> {
    if let Some((_, kind, text)) = EXITS.iter().find(|(c, ..)| *c == code) {
        return Some(Failure::of_exit(*kind, *text, code));
    }
    // 400 & 0xff is 144. A shell reports a signal as 128 + 1..15.
    (144..=255).contains(&code).then(|| {
        let status = u16::try_from(code + 256).unwrap_or_default();
        let Failure { kind, .. } = of_status(status, "");
        let meaning = format!("the model's service returned HTTP status {status}");
        Failure { status: Some(status), ..Failure::of_exit(kind, meaning, code) }
    })
}

/// The message about a detected loop.
pub(super) const LOOP: &str = "Loop detected, stopping execution";

/// Phrases of the CLI and of Google's service, the most specific first.
const PHRASES: &[(&str, FailureKind)] = &[
    ("API key not valid", FailureKind::NotAuthenticated),
    ("API_KEY_INVALID", FailureKind::NotAuthenticated),
    ("API key expired", FailureKind::NotAuthenticated),
    ("Invalid auth method", FailureKind::NotAuthenticated),
    ("Please set an Auth method", FailureKind::NotAuthenticated),
    ("must specify the GEMINI_API_KEY", FailureKind::NotAuthenticated),
    ("must specify either", FailureKind::NotAuthenticated),
    ("Manual authorization is required", FailureKind::NotAuthenticated),
    // Vertex AI without application default credentials, or with expired ones.
    (DEFAULT_CREDENTIALS[0], FailureKind::NotAuthenticated),
    (DEFAULT_CREDENTIALS[1], FailureKind::NotAuthenticated),
    ("invalid_grant", FailureKind::NotAuthenticated),
    ("not running in a trusted directory", FailureKind::Untrusted),
    ("exceeds the maximum number of tokens", FailureKind::ContextOverflow),
    ("input token count", FailureKind::ContextOverflow),
    ("Reached max session turns", FailureKind::AgentTurns),
    ("exhausted your daily quota", FailureKind::RateLimited),
    ("exhausted your capacity", FailureKind::RateLimited),
    ("Resource has been exhausted", FailureKind::RateLimited),
    ("Resource exhausted", FailureKind::RateLimited),
    ("RESOURCE_EXHAUSTED", FailureKind::RateLimited),
    ("exceeded your current quota", FailureKind::RateLimited),
    ("Quota exceeded", FailureKind::RateLimited),
    ("RATE_LIMIT_EXCEEDED", FailureKind::RateLimited),
    // The class of the error. Versions around 0.24 report it as `[object Object]` otherwise.
    ("RetryableQuotaError", FailureKind::RateLimited),
    // Over ACP, these versions pass on only the text of that error.
    ("Rate limit reached", FailureKind::RateLimited),
    ("Suggested retry after", FailureKind::RateLimited),
    ("Please retry in", FailureKind::RateLimited),
    ("model is overloaded", FailureKind::RateLimited),
    ("Invalid session identifier", FailureKind::SessionNotFound),
    ("Error resuming session", FailureKind::SessionNotFound),
    ("No previous sessions found", FailureKind::SessionNotFound),
    ("is not found for API version", FailureKind::UnknownModel),
    ("is not found", FailureKind::UnknownModel),
    ("ModelNotFoundError", FailureKind::UnknownModel),
    ("fetch failed", FailureKind::Network),
    ("ECONNREFUSED", FailureKind::Network),
    ("ECONNRESET", FailureKind::Network),
    ("ENOTFOUND", FailureKind::Network),
    ("ETIMEDOUT", FailureKind::Network),
    ("socket hang up", FailureKind::Network),
    ("other side closed", FailureKind::Network),
    ("TypeError: terminated", FailureKind::Network),
    ("blocked due to", FailureKind::Blocked),
    ("Agent execution blocked", FailureKind::Blocked),
    ("empty response", FailureKind::Empty),
    ("no final response text", FailureKind::Empty),
    ("truncated because it exceeded the token limit", FailureKind::Empty),
    // A blocked prompt and a truncated answer have no finish reason; neither counts as empty.
    ("ended without a finish reason", FailureKind::Blocked),
    ("malformed function call", FailureKind::ApiError),
    (LOOP, FailureKind::Loop),
    ("FatalSandboxError", FailureKind::Sandbox),
];

/// Phrases about Google's application default credentials, which Vertex AI uses.
const DEFAULT_CREDENTIALS: [&str; 2] =
    ["Could not load the default credentials", "Could not refresh access token"];

/// Translates an error text from the agent. An unknown text is an API error.
pub(super) fn of_text(message: &str) -> Failure {
    let phrase = PHRASES.iter().find(|(phrase, _)| message.contains(phrase)).map(|(_, kind)| *kind);
    match (phrase, status_in(message)) {
        (Some(kind), status) => {
            let hint = DEFAULT_CREDENTIALS.iter().any(|phrase| message.contains(phrase));
            let hint = hint.then(|| sign_in::VERTEX_ADVICE.to_owned());
            Failure { status, hint, ..Failure::new(kind, tidy(message)) }
        }
        (None, Some(status)) => of_status(status, tidy(message)),
        // Over ACP, the error of a connection that closes in the middle of an answer has no other text.
        (None, None) if tidy(message) == "terminated" => Failure::new(FailureKind::Network, "terminated"),
        (None, None) => Failure::new(FailureKind::ApiError, tidy(message)),
    }
}

/// Translates an error about an answer. If there was text, the answer was truncated, not empty.
pub(super) fn of_answer(message: &str, had_text: bool) -> Failure {
    let failure = of_text(message);
    let refused = message.contains("blocked");
    match failure.kind {
        FailureKind::Empty | FailureKind::Blocked if had_text && !refused => {
            Failure { kind: FailureKind::ApiError, ..failure }
        }
        _ => failure,
    }
}

fn of_status(status: u16, message: impl Into<String>) -> Failure {
    Failure::http(status, message)
}

/// Returns the HTTP status in `{"error":{"code":401,…}}`, which the CLI passes on as text.
fn status_in(message: &str) -> Option<u16> {
    let after = |mark: &str| {
        let rest = &message[message.find(mark)? + mark.len()..];
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u16>().ok().filter(|s| (400..600).contains(s))
    };
    after("\"code\":").or_else(|| after("with status "))
}

/// Shortens a message and removes the CLI's wrapping.
fn tidy(message: &str) -> String {
    const MOST: usize = 1000;
    let text = match message.trim().strip_prefix("[API Error: ") {
        // Advice may follow the closing bracket.
        Some(inner) => match inner.split_once("]\n") {
            Some((inner, advice)) => format!("{inner}\n{advice}"),
            None => inner.strip_suffix(']').unwrap_or(inner).to_owned(),
        },
        None => message.trim().to_owned(),
    };
    let body = text.find('{').and_then(|at| {
        let value: serde_json::Value = serde_json::from_str(text[at..].trim_end()).ok()?;
        Some(value.get("error")?.get("message")?.as_str()?.to_owned())
    });
    let text = body.unwrap_or(text);
    text.chars().take(MOST).collect()
}

/// Prefixes of lines without information.
const NOISE: &[&str] = &[
    "Warning: 256-color support",
    "Warning: True color",
    "Ripgrep is not available",
    "YOLO mode is enabled",
    "[STARTUP]",
    "Loaded cached credentials",
    "(Use `node --trace",
    "Could not find promptId",
    "missing pgrep output",
];

/// Processes one line of stderr: turns errors into events and hints, drops noise and keeps the rest.
pub(super) fn stderr_line(text: &str, sink: &mut Sink) {
    let text = &*without_colours(text);
    if NOISE.iter().any(|noise| text.starts_with(noise)) || is_stack(text) || text.trim().is_empty() {
        return;
    }
    sink.stderr(text);
    if is_retry_notice(text) {
        let failure = of_text(text);
        let message: String = text.chars().take(300).collect();
        let code = if failure.kind == FailureKind::RateLimited { "rate_limited" } else { "retry" };
        sink.event_all(Event::warning(code, message));
        sink.retry(failure);
    } else if text.contains("Policy file error in") {
        // The policy file is the user's own, and the CLI continues without it.
        let message = format!("Gemini CLI ignored a policy file: {}", text.trim().trim_end_matches(':'));
        sink.event_all(Event::warning("policy", message));
    } else if text.starts_with("MCP issues detected")
        || text.contains("Error during discovery for MCP server")
    {
        sink.event_all(Event::warning("mcp", format!("an MCP server is unavailable: {}", text.trim())));
    } else if text.starts_with("Node.js v") {
        // The last line that Node.js prints about an uncaught exception.
        sink.hint(None, Failure::new(FailureKind::Crashed, "Gemini CLI crashed: uncaught exception"));
    } else if text.starts_with(REQUEST_FAILED) {
        // Only this line contains the error class. Elsewhere a missing model looks like any other failure.
        if let Some((_, error)) = text.split_once(".json ") {
            sink.hint(None, of_text(error));
        }
    } else {
        let failure = of_text(text);
        let is_only_on_stderr = matches!(
            failure.kind,
            FailureKind::NotAuthenticated
                | FailureKind::Untrusted
                | FailureKind::SessionNotFound
                | FailureKind::Sandbox
                | FailureKind::AgentTurns
        );
        // Tools may print anything, so only lines of the CLI itself count.
        if is_only_on_stderr && !text.starts_with("Error executing tool") {
            sink.hint(None, failure);
        }
    }
}

/// Returns whether a line belongs to a stack trace.
fn is_stack(text: &str) -> bool {
    text.starts_with("    ") && text.trim_start().starts_with("at ")
}

/// The prefix of a line that reports a request that failed after all retries.
pub(super) const REQUEST_FAILED: &str = "Error when talking to Gemini API";

/// Removes color codes, which the CLI prints even without a terminal.
fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains("\u{1b}[") {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A color code consists of digits and semicolons followed by `m`. Everything else is kept.
        match part.split_once('m') {
            Some((codes, rest)) if codes.bytes().all(|b| b.is_ascii_digit() || b == b';') => {
                plain.push_str(rest)
            }
            _ => plain.push_str(part),
        }
    }
    Cow::Owned(plain)
}

/// Matches `Attempt 1 failed with status 429. Retrying with backoff...` and `Attempt 2 failed: Please retry in 2s.`
fn is_retry_notice(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("Attempt ") else { return false };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.starts_with(" failed") && !rest.contains("Max attempts reached")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_http_statuses_modulo_256() {
        assert_eq!(of_exit(173).unwrap().kind, FailureKind::RateLimited);
        assert_eq!(of_exit(247).unwrap().status, Some(503));
        assert_eq!(of_exit(145).unwrap().kind, FailureKind::NotAuthenticated);
        assert_eq!(of_exit(244).unwrap().kind, FailureKind::ApiError);
        assert_eq!(of_exit(1), None);
        assert_eq!(of_exit(137), None);
    }

    #[test]
    fn service_error_texts_are_classified() {
        for (text, kind, message) in [
            (
                r#"[API Error: {"error":{"code":401,"message":"msg 401","status":"NAME"}}]"#,
                FailureKind::NotAuthenticated,
                "msg 401",
            ),
            (
                r#"[API Error: {"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}]"#,
                FailureKind::NotAuthenticated,
                "API key not valid. Please pass a valid API key.",
            ),
            (
                "[API Error: models/nope is not found for API version v1beta]",
                FailureKind::UnknownModel,
                "models/nope is not found for API version v1beta",
            ),
            (
                "[API Error: exception TypeError: fetch failed sending request]",
                FailureKind::Network,
                "exception TypeError: fetch failed sending request",
            ),
            (
                "[API Error: The model is overloaded. Please try again later.]",
                FailureKind::RateLimited,
                "The model is overloaded. Please try again later.",
            ),
            (
                r#"[API Error: {"error":{"code":400,"message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}}]"#,
                FailureKind::NotAuthenticated,
                "API key not valid.",
            ),
            (
                "[API Error: Quota exceeded]\nPlease wait.",
                FailureKind::RateLimited,
                "Quota exceeded\nPlease wait.",
            ),
            (
                "RetryableQuotaError: Rate limit reached for requests.",
                FailureKind::RateLimited,
                "RetryableQuotaError: Rate limit reached for requests.",
            ),
            (
                "Rate limit reached for requests.",
                FailureKind::RateLimited,
                "Rate limit reached for requests.",
            ),
            ("[API Error: [ not json]", FailureKind::ApiError, "[ not json"),
            ("terminated", FailureKind::Network, "terminated"),
            ("the plan was terminated", FailureKind::ApiError, "the plan was terminated"),
            ("something else", FailureKind::ApiError, "something else"),
        ] {
            let failure = of_text(text);
            assert_eq!((failure.kind, failure.message.as_str()), (kind, message), "{text}");
        }
    }

    #[test]
    fn colours_are_stripped_and_other_brackets_kept() {
        assert_eq!(without_colours("\u{1b}[31mred\u{1b}[0m [m]"), "red [m]");
        assert_eq!(without_colours("\u{1b}[1;31mred \u{1b}[2Kcleared"), "red 2Kcleared");
    }

    #[test]
    fn retry_notices_are_distinguished_from_other_lines() {
        assert!(is_retry_notice("Attempt 1 failed with status 429. Retrying with backoff... _ApiError"));
        assert!(is_retry_notice("Attempt 12 failed: Please retry in 2s."));
        assert!(!is_retry_notice("Attempt to read failed"));
    }
}
