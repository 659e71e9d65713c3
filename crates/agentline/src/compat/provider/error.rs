//! The errors of a provider, with the messages that its users expect.

use crate::Error;
use agentline_core::{
    AgentInfo, FailureKind, Outcome, Problem, Problems, Verdict,
    config::{self, KeyStyle},
    error_chain,
};
use std::fmt;

/// An error that left a call without an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderError {
    /// The kind of error, for programs.
    pub kind: ErrorKind,
    /// The message, for users.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The outcome of the run, if one started: the text so far, the files and the tokens.
    pub outcome: Option<Box<Outcome>>,
}

/// The kind of a provider error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration or the call is invalid; nothing was started.
    Configuration,
    /// The agent's program is not installed.
    NotFound,
    /// The user is not signed in, or the sign-in was rejected.
    Authentication,
    /// A timeout expired; everything that the agent started was killed.
    Timeout,
    /// The model's service refused the request because of quota or load.
    RateLimited,
    /// The agent refused the workspace as untrusted.
    Untrusted,
    /// A limit of the configuration or of the agent was reached.
    LimitReached,
    /// The run was cancelled.
    Cancelled,
    /// The model's service blocked the answer.
    Blocked,
    /// The answer does not match the schema.
    InvalidOutput,
    /// The agent, its model or this machine failed.
    Failed,
}

/// The exit code of a shell for a program that does not exist.
const NOT_FOUND: i32 = 127;

impl ProviderError {
    /// Creates the error for a missing agent program or interpreter.
    pub(super) fn not_found(info: &AgentInfo<'_>, problem: &Problem) -> Self {
        let detail =
            if problem.message == format!("{} was not found", info.title) { "" } else { &problem.message };
        Self { hint: problem.hint.clone(), ..Self::new(ErrorKind::NotFound, missing(info, detail)) }
    }

    /// Returns the error of an outcome, or the outcome itself if it has an answer, even an empty one.
    pub(super) fn of_outcome(info: &AgentInfo<'_>, outcome: Outcome) -> Result<Outcome, Self> {
        let Some(error) = &outcome.error else { return Ok(outcome) };
        let (title, reason) = (info.title, error.message.as_str());
        let describe = |event: &str| with_stderr(format!("{title} {event}: {reason}"), &outcome);
        let (kind, message) = match outcome.verdict {
            Verdict::Done | Verdict::DoneWithDenials => return Ok(outcome),
            // The engine decides whether an empty answer is acceptable. A partial answer is not empty.
            Verdict::Empty if error.kind == FailureKind::Empty && outcome.text.trim().is_empty() => {
                return Ok(outcome);
            }
            Verdict::Empty => (ErrorKind::Blocked, describe("gave no answer")),
            Verdict::NotInstalled => (ErrorKind::NotFound, missing(info, reason)),
            Verdict::NotAuthenticated => (ErrorKind::Authentication, sign_in(info, &outcome, reason)),
            Verdict::TimedOut => (ErrorKind::Timeout, describe("timed out")),
            Verdict::RateLimited => (ErrorKind::RateLimited, describe("was rate limited")),
            Verdict::Untrusted => (ErrorKind::Untrusted, describe("does not trust the workspace")),
            Verdict::LimitReached => (ErrorKind::LimitReached, describe("reached a limit")),
            Verdict::Cancelled => (ErrorKind::Cancelled, describe("was cancelled")),
            Verdict::InvalidOutput => {
                (ErrorKind::InvalidOutput, describe("returned an answer that does not match the schema"))
            }
            _ => match (error.kind, outcome.agent_exit_code) {
                (FailureKind::NoResult, Some(NOT_FOUND)) => {
                    (ErrorKind::NotFound, with_stderr(missing(info, ""), &outcome))
                }
                _ => (ErrorKind::Failed, failed(info, &outcome, reason)),
            },
        };
        let hint = error.hint.as_deref().filter(|_| kind != ErrorKind::Authentication).map(keys_for_flags);
        Err(Self { hint, outcome: Some(Box::new(outcome)), ..Self::new(kind, message) })
    }

    fn new(kind: ErrorKind, message: String) -> Self {
        Self { kind, message, hint: None, outcome: None }
    }
}

/// Describes how to install the program.
fn missing(info: &AgentInfo<'_>, detail: &str) -> String {
    let AgentInfo { title, home_page, package, min_node, .. } = info.preferred();
    let detail = if detail.is_empty() { String::new() } else { format!("\n{detail}") };
    format!(
        "{title} not found. Install from: {home_page}\nInstall with: npm i -g {package} (Node.js {min_node} or newer){detail}"
    )
}

/// Describes how to sign in and quotes the agent's message.
fn sign_in(info: &AgentInfo<'_>, outcome: &Outcome, reason: &str) -> String {
    let own = outcome.error.as_ref().and_then(|error| error.hint.clone());
    let mut hint = own.unwrap_or_else(|| info.sign_in_hint.to_owned());
    hint.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
    let reason = if outcome.stderr_tail.is_empty() { reason } else { &outcome.stderr_tail };
    format!("{} authentication error. {hint}\n{reason}", info.title)
}

/// Describes a failure by its exit code, and by stderr where the agent gave no reason itself.
fn failed(info: &AgentInfo<'_>, outcome: &Outcome, reason: &str) -> String {
    let code = outcome.agent_exit_code.map(|code| format!(" (exit {code})")).unwrap_or_default();
    let is_unexplained = outcome.error.as_ref().is_some_and(|e| e.kind == FailureKind::NoResult);
    match outcome.stderr_tail.as_str() {
        stderr if is_unexplained && !stderr.is_empty() => format!("{} failed{code}: {stderr}", info.title),
        _ => with_stderr(format!("{} failed{code}: {reason}", info.title), outcome),
    }
}

/// Appends stderr, unless the message already contains it.
fn with_stderr(message: String, outcome: &Outcome) -> String {
    let stderr = outcome.stderr_tail.as_str();
    if stderr.is_empty() || message.contains(stderr) { message } else { format!("{message}\n{stderr}") }
}

/// Replaces command-line flags in a hint with the matching configuration keys, because a provider has no flags.
pub(super) fn keys_for_flags(hint: &str) -> String {
    config::keys_for_flags(hint, KeyStyle::Snake)
}

impl From<Problems> for ProviderError {
    fn from(problems: Problems) -> Self {
        let lines = |of: fn(&Problem) -> Option<String>| -> Vec<String> {
            problems.0.iter().filter_map(of).collect()
        };
        let message = lines(|problem| {
            let Problem { key, message, .. } = problem;
            let names_it = message.starts_with(key.as_str()) || message.starts_with('`');
            Some(if names_it { message.clone() } else { format!("`{key}`: {message}") })
        });
        let hints = lines(|problem| problem.hint.as_deref().map(keys_for_flags));
        let hint = (!hints.is_empty()).then(|| hints.join("; "));
        Self { hint, ..Self::new(ErrorKind::Configuration, message.join("\n")) }
    }
}

impl From<Problem> for ProviderError {
    fn from(problem: Problem) -> Self {
        Problems::from(problem).into()
    }
}

impl From<Error> for ProviderError {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(problems) => problems.into(),
            other => Self::new(ErrorKind::Failed, error_chain(&other)),
        }
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ProviderError {}
