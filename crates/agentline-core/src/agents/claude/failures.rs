//! Translates Claude Code's error names, HTTP statuses and texts to failures.

use crate::{Failure, FailureKind};

/// The name of the error of an answer that reached the token limit.
pub(super) const MAX_OUTPUT_TOKENS: &str = "max_output_tokens";

/// Claude Code's own names for errors.
const NAMES: &[(&str, FailureKind)] = &[
    ("authentication_failed", FailureKind::NotAuthenticated),
    ("oauth_org_not_allowed", FailureKind::NotAuthenticated),
    ("account_on_hold", FailureKind::NotAuthenticated),
    ("verification_required", FailureKind::NotAuthenticated),
    ("cloud_credential_error", FailureKind::NotAuthenticated),
    ("billing_error", FailureKind::RateLimited),
    ("rate_limit", FailureKind::RateLimited),
    ("overloaded", FailureKind::RateLimited),
    ("model_not_found", FailureKind::UnknownModel),
    ("prompt_too_long", FailureKind::ContextOverflow),
    ("image_error", FailureKind::Input),
    ("blocking_limit", FailureKind::RateLimited),
    ("error_max_turns", FailureKind::AgentTurns),
    ("error_max_budget_usd", FailureKind::MaxCost),
    ("error_max_structured_output_retries", FailureKind::InvalidOutput),
];

/// Phrases in texts of Claude Code, the most specific first.
const PHRASES: &[(&str, FailureKind)] = &[
    ("Prompt is too long", FailureKind::ContextOverflow),
    ("prompt is too long", FailureKind::ContextOverflow),
    ("Not logged in", FailureKind::NotAuthenticated),
    ("Please run /login", FailureKind::NotAuthenticated),
    ("Invalid API key", FailureKind::NotAuthenticated),
    ("No conversation found with session ID", FailureKind::SessionNotFound),
    ("is not a UUID", FailureKind::SessionNotFound),
    ("Overloaded", FailureKind::RateLimited),
    ("overloaded_error", FailureKind::RateLimited),
    ("Connection error", FailureKind::Network),
    ("Connection closed", FailureKind::Network),
    ("Connection dropped", FailureKind::Network),
    ("stream_truncated", FailureKind::Network),
    ("Unable to connect", FailureKind::Network),
    ("socket connection was closed", FailureKind::Network),
    ("Request timed out", FailureKind::Network),
    ("ECONNREFUSED", FailureKind::Network),
    ("ECONNRESET", FailureKind::Network),
    ("fetch failed", FailureKind::Network),
    ("cannot be used with root", FailureKind::Settings),
];

/// The beginnings of messages in which Claude Code reports an error instead of an answer.
const NOTICES: &[&str] = &[
    "API Error",
    "Invalid API key",
    "Prompt is too long",
    "There's an issue with the selected model",
    "Please run /login",
    "Not logged in",
    "Failed to authenticate",
];

/// Returns whether a message of Claude Code itself reports an error.
pub(super) fn is_notice(text: &str) -> bool {
    NOTICES.iter().any(|beginning| text.starts_with(beginning))
}

/// What Claude Code reports about a failure.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedError {
    /// The names of the error, the most specific first.
    pub(super) names: Vec<String>,
    /// The HTTP status of the model's service.
    pub(super) status: Option<u16>,
    /// The text.
    pub(super) message: String,
}

impl ReportedError {
    /// Classifies the error: by its names, then by the phrases of its text, then by its status.
    pub(super) fn failure(&self) -> Failure {
        let names = self.names.iter().filter(|name| !name.is_empty());
        let message = tidy(&self.message);
        let failure = match (self.kind(), self.status) {
            (Some(kind), status) => Failure { status, ..Failure::new(kind, message) },
            (None, Some(status)) => Failure::http(status, message),
            (None, None) => Failure::new(FailureKind::ApiError, message),
        };
        failure.agent_type(names.clone().next().map(String::as_str).unwrap_or_default())
    }

    /// Returns the kind of the error if its names or its text show it.
    pub(super) fn kind(&self) -> Option<FailureKind> {
        let by_name = self.names.iter().find_map(|name| kind_of(NAMES, |known| known == name));
        by_name.or_else(|| kind_of(PHRASES, |phrase| self.message.contains(phrase)))
    }
}

fn kind_of(table: &[(&str, FailureKind)], is: impl Fn(&str) -> bool) -> Option<FailureKind> {
    table.iter().find(|(known, _)| is(known)).map(|(_, kind)| *kind)
}

/// Shortens a message and removes the CLI's prefix.
fn tidy(message: &str) -> String {
    const MOST: usize = 1000;
    let text = message.trim();
    let text = text.strip_prefix("API Error: ").unwrap_or(text);
    if text.is_empty() {
        "the agent reported a failure without a reason".into()
    } else {
        text.chars().take(MOST).collect()
    }
}

/// Returns the failure in a line of stderr, if it is one that ends the process.
pub(super) fn of_stderr(line: &str) -> Option<Failure> {
    let error = ReportedError { message: line.to_owned(), ..ReportedError::default() };
    kind_of(PHRASES, |phrase| line.contains(phrase)).map(|_| error.failure())
}
