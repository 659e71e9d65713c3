//! What a program gives a run besides its request: things that cannot be written down.

use crate::{answer::Judge, schema::Schema, tools::ToolHost, until::Checker};

/// What a program gives a run besides its request. Cheap to clone.
///
/// ```
/// use agentline::{Judge, Permit, RunOptions, tools::{Tool, ToolHost}};
/// let clock = Tool::new("now", "Tells the time", serde_json::json!({"type": "object"}), |_, _| async { Ok("noon") });
/// let options = RunOptions::new()
///     .tools(ToolHost::new().tool(clock))
///     .judge(Judge::new(|ask| async move {
///         if ask.command.is_some() { Permit::Deny("no commands".into()) } else { Permit::Allow }
///     }));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Functions of the program that the agent may call.
    pub tools: Option<ToolHost>,
    /// Who is asked what no rule decides.
    pub judge: Option<Judge>,
    /// The answer must be a value of it.
    pub schema: Option<Schema>,
    /// Whether the task is complete.
    pub until: Option<Checker>,
}

impl RunOptions {
    /// Nothing yet.
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

    /// Asks this about what the agent wants and no rule decides.
    #[must_use]
    pub fn judge(mut self, judge: Judge) -> Self {
        self.judge = Some(judge);
        self
    }

    /// Wants a value of this schema.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sends the agent on until this is content.
    #[must_use]
    pub fn until(mut self, checker: Checker) -> Self {
        self.until = Some(checker);
        self
    }

    /// Whether this needs an agent that stays alive.
    pub(crate) fn needs_live(&self) -> bool {
        self.tools.is_some() || self.judge.is_some() || self.schema.is_some() || self.until.is_some()
    }

    /// Whether the agent's session is opened with something that only this run has.
    pub(crate) fn marks_session(&self) -> bool {
        self.tools.is_some() || self.schema.is_some()
    }
}
