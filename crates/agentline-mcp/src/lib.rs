//! Offers coding agents as tools of an MCP server, so that other agents and MCP clients can start them.
//!
//! [`AgentToolServer::serve_stream`] serves one client on a pair of streams, such as standard input and output, and
//! [`AgentToolServer::listen`] serves many over streamable HTTP.
//!
//! Every client has a *scope*: the directories, permission mode and depth that its runs may have. The client of the
//! outermost server gets the scope of the [`AgentToolOptions`]. An agent that this server starts can get tools of the
//! same kind: it starts an *inner server*, a process that only connects its standard streams to the outermost server
//! ([`connect_to_parent`]). So the outermost server alone starts agents, keeps the budget and knows the depth, and
//! the token of an inner server only identifies the run that it belongs to.

mod arguments;
mod budget;
mod client;
mod handler;
mod http;
#[cfg(unix)]
mod nested;
#[cfg(not(unix))]
#[path = "no_nested.rs"]
mod nested;
mod options;
mod outputs;
mod progress;
mod question;
mod report;
mod request;
mod run_cost;
mod run_table;
mod schema;
mod scope;
mod server;
mod sessions;
mod state;
mod stream;
mod tools;
mod wait;

pub use nested::{PARENT_VARIABLE, connect_to_parent, has_parent};
pub use options::AgentToolOptions;
pub use server::{AgentToolServer, HttpEndpoint, McpServerError};
