//! The caller's permission callback, its decisions, and the reasons that the agent gets.

use agentline_core::{PermissionDecision, PermissionRequest};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::task::JoinSet;

/// The decision of a [`PermissionHandler`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Permission {
    /// Allows this one use of the tool.
    Allow,
    /// Denies the use, for the given reason.
    Deny(String),
    /// Denies the use and sends the agent the reason. A protocol without a field for the reason gets it as another prompt at
    /// the end of the turn.
    DenyWithFeedback(String),
}

/// The reasons for denials that the agent has not received yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct DenialFeedback(Arc<Mutex<Vec<String>>>);

impl DenialFeedback {
    pub(crate) fn add(&self, use_of_tool: &str, reason: &str) {
        let line = format!("- {use_of_tool}: {reason}");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Returns a prompt with all reasons, and removes them.
    pub(crate) fn take_prompt(&self) -> Option<String> {
        let reasons = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        (!reasons.is_empty()).then(|| {
            format!(
                "The user denied the use of a tool and gave this reason:\n{}\n\nTake it into account and continue.",
                reasons.join("\n")
            )
        })
    }
}

type Question = dyn Fn(PermissionRequest) -> Pin<Box<dyn Future<Output = Permission> + Send>> + Send + Sync;

/// A permission callback, which receives the command or change to decide on.
///
/// ```
/// use agentline::{Permission, PermissionHandler};
/// let handler = PermissionHandler::new(|ask| async move {
///     match ask.command.as_deref() {
///         Some(command) if command.contains("sudo") => Permission::Deny("no sudo here".into()),
///         _ => Permission::Allow,
///     }
/// });
/// ```
#[derive(Clone)]
pub struct PermissionHandler {
    by: &'static str,
    pub(crate) is_redacted: bool,
    question: Arc<Question>,
}

impl PermissionHandler {
    /// Creates a handler from a function. A panic in the function counts as a denial.
    pub fn new<F, A>(question: F) -> Self
    where
        F: Fn(PermissionRequest) -> A + Send + Sync + 'static,
        A: Future<Output = Permission> + Send + 'static,
    {
        Self { by: "callback", is_redacted: false, question: Arc::new(move |ask| Box::pin(question(ask))) }
    }

    /// Records that a person at a terminal makes the decisions.
    #[must_use]
    pub fn at_terminal(mut self) -> Self {
        self.by = "terminal";
        self
    }

    /// Redacts the secrets of the run in what the function gets, for a function that passes it on. Rules still decide on
    /// the agent's own text.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        self.is_redacted = true;
        self
    }

    /// Calls the function. Returns the decision, and the reason that the agent gets. Dropping the future cancels the call.
    pub(crate) async fn ask(&self, ask: PermissionRequest) -> (PermissionDecision, Option<String>) {
        let question = self.question.clone();
        // A separate task contains a panic of the function.
        let mut task = JoinSet::new();
        task.spawn(async move { question(ask).await });
        match task.join_next().await {
            Some(Ok(Permission::Allow)) => (PermissionDecision::allow(self.by), None),
            Some(Ok(Permission::Deny(reason))) => (PermissionDecision::deny(self.by, reason), None),
            Some(Ok(Permission::DenyWithFeedback(reason))) => {
                (PermissionDecision::deny(self.by, reason.clone()), Some(reason))
            }
            _ => (PermissionDecision::deny(self.by, "callback_failed"), None),
        }
    }
}

/// Describes the use of a tool for the model.
pub(crate) fn describe(ask: &PermissionRequest) -> String {
    let tool = if ask.native_tool.is_empty() { &ask.tool } else { &ask.native_tool };
    match ask.command.as_ref().or(ask.paths.first()).or(ask.diffs.first().map(|diff| &diff.path)) {
        Some(target) => format!("{tool} `{target}`"),
        None => tool.clone(),
    }
}

impl fmt::Debug for PermissionHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermissionHandler").field("by", &self.by).finish_non_exhaustive()
    }
}
