//! The options of a run that cannot be serialized.

use crate::{
    run::{completion::CompletionCheck, permission_handler::PermissionHandler},
    schema::Schema,
    tools::ToolHost,
};

/// The options of a run besides its request: tools, callbacks, schema and check. Cheap to clone.
///
/// ```
/// use agentline::{Permission, PermissionHandler, RunOptions, tools::{Tool, ToolHost}};
/// let clock = Tool::new("now", "Tells the time", serde_json::json!({"type": "object"}), |_, _| async { Ok("noon") });
/// let options = RunOptions::new()
///     .tools(ToolHost::new().tool(clock))
///     .permission_handler(PermissionHandler::new(|ask| async move {
///         if ask.command.is_some() { Permission::Deny("no commands".into()) } else { Permission::Allow }
///     }));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Functions of the program that the agent may call.
    pub tools: Option<ToolHost>,
    /// The permission callback for requests that no rule decides.
    pub permission_handler: Option<PermissionHandler>,
    /// The schema that the answer must match.
    pub schema: Option<Schema>,
    /// The check that decides whether the task is complete.
    pub until: Option<CompletionCheck>,
    /// Whether the options belong to a conversation, whose prompts may have other schemas.
    pub(crate) is_conversation: bool,
    /// Whether the agent itself checks its answers against the schema.
    pub(crate) agent_checks_schema: bool,
    /// Whether a client of the agent decides on requests that no rule and no mode decides.
    pub(crate) asks_client: bool,
}

impl RunOptions {
    /// Creates empty options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers these functions of the program to the agent.
    #[must_use]
    pub fn tools(mut self, tools: ToolHost) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Sets the permission callback for requests that no rule decides.
    #[must_use]
    pub fn permission_handler(mut self, handler: PermissionHandler) -> Self {
        self.permission_handler = Some(handler);
        self
    }

    /// Requires an answer that matches this schema.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Re-prompts the agent until this check succeeds.
    #[must_use]
    pub fn until(mut self, checker: CompletionCheck) -> Self {
        self.until = Some(checker);
        self
    }

    /// Returns whether these options need a live agent.
    pub(crate) fn needs_live(&self) -> bool {
        self.tools.is_some()
            || self.permission_handler.is_some()
            || self.schema.is_some()
            || self.until.is_some()
    }

    /// Returns whether the agent's session must be opened with servers of this run only.
    pub(crate) fn marks_session(&self) -> bool {
        self.tools.is_some() || self.tool_schema().is_some()
    }

    /// Returns the schema if the agent submits its answer with a tool of the host.
    pub(crate) fn tool_schema(&self) -> Option<&Schema> {
        self.schema.as_ref().filter(|_| !self.agent_checks_schema)
    }
}
