//! An HTTP server for agentline: runs, conversations and saved sessions over REST and server-sent events.
//!
//! The server starts runs as any host does, over the host protocol in its own process, and adds what a network needs:
//! numbered events in a database, from which clients continue after a disconnect; tokens with policies; and limits.
//! `docs/serve.md` describes the interface, and [`openapi`] generates its OpenAPI document.
//!
//! A run does not survive the server. When the server stops, or when it starts again after it was killed, the events of
//! such a run end with an outcome of the kind `interrupted`.

mod acp_audit;
mod acp_rules;
mod acp_servers;
mod acp_socket;
mod app;
mod audit;
mod clock;
mod conversation;
mod ending;
mod engine;
mod event_stream;
mod extract;
mod guard;
mod host_client;
mod http_error;
#[doc(hidden)]
pub mod internals;
mod listener;
pub mod messages;
mod ongoing_run;
pub mod openapi;
mod options;
mod page;
mod random;
mod rate;
mod roots;
mod routes;
mod running;
mod running_cost;
mod server;
mod sign_in;
mod start;
mod store;
mod token_use;
mod tokens;

pub use options::{ServeError, ServeLimits, ServeOptions};
pub use running::new_login_link;
pub use server::Server;
