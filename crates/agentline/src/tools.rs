//! Offers functions of the host program to an agent as tools, and relays other MCP servers.
//!
//! A [`ToolHost`] is a set of async functions. [`ToolHost::serve`] offers it for one run, together with the run's
//! [`ToolOffer`]. The agent gets the servers of [`RunningTools::servers`] and reaches them over HTTP on the loopback address,
//! with a token of this run. Dropping the [`RunningTools`] stops calls in progress.
//!
//! ```
//! use agentline::tools::{ToolOffer, Tool, ToolHost};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Sum {
//!     /// The numbers to add.
//!     numbers: Vec<f64>,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), agentline::Error> {
//! let host = ToolHost::new().tool(Tool::typed("add", "Adds numbers", |sum: Sum, _call| async move {
//!     if sum.numbers.is_empty() {
//!         return Err("there is nothing to add".into());
//!     }
//!     Ok(sum.numbers.iter().sum::<f64>())
//! }));
//! let mut serving = host.serve(ToolOffer::new())?;
//! assert!(serving.servers().contains_key("agentline"));
//! # Ok(())
//! # }
//! ```
//!
//! Everything that happens is reported in *side lines* ([`RunningTools::next`]), one JSON object each:
//!
//! | line | when |
//! |---|---|
//! | `{"listed":["add"]}` | the agent listed the tools |
//! | `{"refused":"token"}` | a request had no token or a wrong one; also `host` and `origin` |
//! | `{"called":"add","call":1,"input":{…}}` | a tool was called |
//! | `{"result":"add","call":1,"is_error":false,"content":"3"}` | the tool returned |
//! | `{"cancelled":"add","call":1}` | the agent cancelled the call, or the run ended |
//! | `{"stop":"add","reason":"…"}` | the tool ends the run ([`StopRun`]) |
//! | `{"value":{…}}` | the tool of [`AnswerTool`] received a valid value |
//! | `{"server":"notes","tools":["find"]}` | the agent listed the tools of a relayed server |
//! | `{"server":"notes","error":"…"}` | a relayed server failed |
//! | `{"server":"notes","unrelayed":"…"}` | the agent connects to the server directly, for this reason |
//!
//! Long `input` and `content` are truncated; a `value` never is.

mod call;
mod http;
mod http_answer;
mod in_flight;
mod output;
mod registry;
mod relay;
mod server;
mod serving;
mod side_sender;
mod tool;

pub use output::{StopRun, ToolError, ToolOutput};
pub use schemars;
pub use serving::{AnswerTool, RunningTools, ToolOffer};
pub use tool::{CallDecision, Tool, ToolCall};

use crate::error::Error;
use agentline_core::{Problem, Problems};
use std::{collections::BTreeSet, sync::Arc};

/// The maximum length of a tool name, with the prefix that agents add, that every model accepts.
const LONGEST_NAME: usize = 63;
/// The prefix that agents add to a tool name, besides the name of its server.
const PREFIX: &str = "mcp__";

/// A set of tools that a program offers to its agents.
///
/// One host can serve any number of runs at the same time. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct ToolHost {
    name: String,
    tools: Vec<Arc<Tool>>,
}

impl ToolHost {
    /// Creates a host without tools, with the server name `agentline`.
    #[must_use]
    pub fn new() -> Self {
        Self { name: "agentline".into(), tools: Vec::new() }
    }

    /// Sets the server name that agents see: letters, digits and `-`.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Returns the server name that agents see.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of the tools.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name().to_owned()).collect()
    }

    /// Returns the descriptions of the tools as the agent sees them.
    pub(crate) fn descriptions(&self) -> Vec<String> {
        let schema = |tool: &Tool| serde_json::Value::Object(tool.schema()).to_string();
        let one =
            |tool: &Arc<Tool>| format!("{:?}", (&self.name, tool.name(), tool.description(), schema(tool)));
        self.tools.iter().map(one).collect()
    }

    /// Returns whether there are no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Checks names and schemas, as [`serve`](Self::serve) does.
    ///
    /// # Errors
    /// Returns all problems together.
    pub fn check(&self) -> Result<(), Problems> {
        Problems(self.problems(&self.tools)).into_result()
    }

    /// Serves the tools and the run's offer until the [`RunningTools`] is dropped.
    ///
    /// Must be called within a tokio runtime, of either kind, with I/O and time enabled.
    ///
    /// # Errors
    /// Fails if the tools or the offer are invalid, or no port is available.
    pub fn serve(&self, offer: ToolOffer) -> Result<RunningTools, Error> {
        serving::serve(self, offer)
    }

    /// Returns a problem for each relayed server whose tools could be mistaken for the tools of this host.
    ///
    /// Agents join both names to `mcp_server_tool` and replace other characters with `_`, so a tool of a server
    /// `mine_x` or `mine x` looks like a tool of `mine`.
    pub(crate) fn ambiguous_servers<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a String>,
    ) -> Vec<Problem> {
        let plain =
            |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
        let own: String = self.name.chars().map(plain).collect();
        let is_ours = |name: &&String| {
            let spelled: String = name.chars().map(plain).collect();
            spelled.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        let problem = |name: &String| {
            let message =
                format!("its tools could be confused with those of agentline's own server `{}`", self.name);
            Problem::new(format!("mcp_servers.{name}"), message)
                .hint("rename the server, or agentline's own server with `ToolHost::server_name`")
        };
        servers.into_iter().filter(is_ours).map(problem).collect()
    }

    /// Returns the problems of the server name and these tools.
    fn problems(&self, tools: &[Arc<Tool>]) -> Vec<Problem> {
        let mut problems = Vec::new();
        // An underscore would make the agent's name for a tool ambiguous: `mcp_server_tool`.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            problems.push(
                Problem::new("server_name", format!("`{}` is not a valid name of a tool server", self.name))
                    .hint("use letters, digits and `-`"),
            );
        }
        let mut names = BTreeSet::new();
        for tool in tools {
            let key = format!("tools.{}", tool.name());
            if !names.insert(tool.name()) {
                problems.push(Problem::new(&key, "duplicate tool name"));
            }
            if let Err(error) = tool.check() {
                problems.push(Problem::new(&key, error));
            }
            if PREFIX.len() + self.name.len() + tool.name().len() > LONGEST_NAME {
                problems.push(
                    Problem::new(&key, "the combined name of the server and the tool is too long").hint(
                        format!(
                            "agents combine them to `mcp_server_tool`, with at most {LONGEST_NAME} characters"
                        ),
                    ),
                );
            }
        }
        problems
    }
}

impl Default for ToolHost {
    fn default() -> Self {
        Self::new()
    }
}
