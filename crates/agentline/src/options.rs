//! What a program gives a run besides its request: things that cannot be written down.

use crate::tools::ToolHost;

/// What a program gives a run besides its request. Cheap to clone.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Functions of the program that the agent may call.
    pub tools: Option<ToolHost>,
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

    /// Whether this needs an agent that stays alive.
    pub(crate) fn needs_live(&self) -> bool {
        self.tools.is_some()
    }
}
