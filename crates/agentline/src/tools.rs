//! Functions of the host program, offered to an agent as tools, and a relay for the MCP servers of others.
//!
//! A [`ToolHost`] is a set of async functions. [`ToolHost::serve`] offers it for one run, together with whatever else that
//! run has ([`Offer`]): the agent is told of the servers of [`Serving::servers`] and reaches them over HTTP on the loopback
//! address, with a token that only this run has. When the [`Serving`] is dropped, calls that still run are stopped.
//!
//! ```
//! use agentline::tools::{Offer, Tool, ToolHost};
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
//! let mut serving = host.serve(Offer::new())?;
//! assert!(serving.servers().contains_key("agentline"));
//! # Ok(())
//! # }
//! ```
//!
//! What happens is told in *side lines* ([`Serving::next`]), one JSON object each:
//!
//! | line | when |
//! |---|---|
//! | `{"listed":["add"]}` | the agent was told which tools there are |
//! | `{"refused":"token"}` | a request had a wrong token, or none; also `host` and `origin` |
//! | `{"called":"add","call":1,"input":{…}}` | a tool was called |
//! | `{"result":"add","call":1,"is_error":false,"content":"3"}` | it answered |
//! | `{"cancelled":"add","call":1}` | the agent gave the call up, or the run ended |
//! | `{"value":{…}}` | the tool of [`Structured`] got a value that is good |
//! | `{"server":"notes","tools":["find"]}` | the agent was told which tools a foreign server has |
//! | `{"server":"notes","error":"…"}` | a foreign server does not work, or no longer |
//! | `{"server":"notes","unrelayed":"…"}` | the agent talks to it without us, for this reason |
//!
//! `input` and `content` are cut where they are long; a `value` never is.

mod call;
mod desk;
mod http;
mod relay;
mod server;
mod serving;
mod side;
mod tool;
mod under_way;

pub use schemars;
pub use serving::{Offer, Serving, Structured};
pub use tool::{Decision, Tool, ToolCall, ToolError, ToolOutput};

use crate::error::Error;
use agentline_core::{Problem, Problems};
use std::{collections::BTreeSet, sync::Arc};

/// The longest name of a tool that every model takes, with what agents put before it.
const LONGEST_NAME: usize = 63;
/// What agents put before the name of a tool, besides the name of its server.
const PREFIX: &str = "mcp__";

/// A set of tools that a program offers to its agents.
///
/// One host serves as many runs as you like at the same time; a clone is cheap.
#[derive(Debug, Clone)]
pub struct ToolHost {
    name: String,
    tools: Vec<Arc<Tool>>,
}

impl ToolHost {
    /// A host without tools that agents know as `agentline`.
    #[must_use]
    pub fn new() -> Self {
        Self { name: "agentline".into(), tools: Vec::new() }
    }

    /// The name by which agents know it: letters, digits and `-`.
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

    /// The name by which agents know it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of its tools.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name().to_owned()).collect()
    }

    /// What the agent is told of each of its tools.
    pub(crate) fn described(&self) -> Vec<String> {
        let schema = |tool: &Tool| serde_json::Value::Object(tool.schema()).to_string();
        let one =
            |tool: &Arc<Tool>| format!("{:?}", (&self.name, tool.name(), tool.description(), schema(tool)));
        self.tools.iter().map(one).collect()
    }

    /// Whether it has no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Checks the names and the schemas; [`serve`](Self::serve) does so too.
    ///
    /// # Errors
    /// All problems together.
    pub fn check(&self) -> Result<(), Problems> {
        Problems(self.problems(&self.tools)).into_result()
    }

    /// Offers the tools, and what else the run has, until the [`Serving`] is dropped. Call it inside a tokio runtime, of
    /// either kind, with I/O and time enabled.
    ///
    /// # Errors
    /// What is wrong with the tools or the offer, or that the system gives us no port.
    pub fn serve(&self, offer: Offer) -> Result<Serving, Error> {
        serving::serve(self, offer)
    }

    /// Foreign servers whose tools could be taken for ours. Agents make `mcp_server_tool` of both names, and spell what they
    /// do not like with `_`: so `mine_x` and `mine x` would be a tool of `mine`.
    pub(crate) fn mistaken<'a>(&self, servers: impl IntoIterator<Item = &'a String>) -> Vec<Problem> {
        let plain =
            |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
        let own: String = self.name.chars().map(plain).collect();
        let is_ours = |name: &&String| {
            let spelled: String = name.chars().map(plain).collect();
            spelled.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        let problem = |name: &String| {
            let what = format!("its tools could be taken for those of `{}`, which are our own", self.name);
            Problem::new(format!("mcp_servers.{name}"), what)
                .hint("give the server another name, or our own tools with `ToolHost::server_name`")
        };
        servers.into_iter().filter(is_ours).map(problem).collect()
    }

    /// What is wrong when these are the tools.
    fn problems(&self, tools: &[Arc<Tool>]) -> Vec<Problem> {
        let mut problems = Vec::new();
        // An underscore would make the agent's name of a tool ambiguous: `mcp_server_tool`.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            problems.push(
                Problem::new("server_name", format!("`{}` cannot be the name of a tool server", self.name))
                    .hint("use letters, digits and `-`"),
            );
        }
        let mut names = BTreeSet::new();
        for tool in tools {
            let key = format!("tools.{}", tool.name());
            if !names.insert(tool.name()) {
                problems.push(Problem::new(&key, "there are two tools of this name"));
            }
            if let Err(why) = tool.check() {
                problems.push(Problem::new(&key, why));
            }
            if PREFIX.len() + self.name.len() + tool.name().len() > LONGEST_NAME {
                problems.push(
                    Problem::new(&key, "the name is too long together with that of the server").hint(
                        format!("agents make `mcp_server_tool` of both, at most {LONGEST_NAME} letters"),
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
