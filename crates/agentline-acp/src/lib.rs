//! Offers any agent of agentline as an agent of the Agent Client Protocol (ACP), for editors and other ACP clients.
//!
//! [`AcpServer::serve`] serves one client over an [`AcpTransport`] of frames, each with one JSON-RPC message. The agent is
//! started for the workspace that the client names, with the request that a function of the caller returns for it:
//!
//! ```no_run
//! use agentline::{Agentline, RunRequest};
//! use agentline_acp::{AcpServer, AcpTransport, Workspace};
//!
//! # async fn show() -> Result<(), Box<dyn std::error::Error>> {
//! let agentline = Agentline::from_env()?;
//! let server = AcpServer::new(move |directory| {
//!     let request = RunRequest::default().working_dir(directory);
//!     Ok(Workspace::new(agentline.clone(), request))
//! });
//! let (client, transport) = AcpTransport::pair();
//! # let _ = client;
//! server.serve("/srv/project", transport).await?;
//! # Ok(()) }
//! ```
//!
//! An agent that speaks ACP is proxied: what the proxy does not handle is forwarded byte for byte. The surface of any other
//! agent is translated. In both cases the rules and the mode of the request decide on tools first, its limits are a budget
//! for the connection, and the response to a prompt has the changed files in `_meta.agentline`.

mod budget;
mod content;
mod conversation;
mod failure;
mod frame;
mod held_agent;
mod history;
mod native;
mod params;
mod peer;
mod proxy;
mod read;
mod record;
mod redaction;
mod result;
mod running_agent;
mod server;
mod sessions;
mod transport;
mod update;
mod workspace;

pub use server::{AcpServer, ConnectionEnd};
pub use transport::AcpTransport;
pub use workspace::Workspace;
