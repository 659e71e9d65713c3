//! Finds, runs and describes an agent CLI under the function names that agent-CLI SDKs use.
//!
//! The four functions are shortcuts into the library; [`Agentline`] can do more.
//!
//! ```no_run
//! use agentline::{Agentline, PermissionMode, RunRequest, agent_cli::{self, Execute}};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let agentline = Agentline::from_env()?;
//! let request = RunRequest::new("Say hello").permission_mode(PermissionMode::AcceptEdits);
//! let result = agent_cli::execute(&agentline, Execute::new(request).on_stdout(|record| println!("{record:?}"))).await;
//! assert!(result.success && !result.messages.is_empty());
//! # #[cfg(feature = "sessions")] {
//! let all = agent_cli::load_messages(&agentline, "gemini", None, result.session_id.as_deref())?;
//! # let _ = all; }
//! # Ok(()) }
//! ```

mod capabilities;
mod execute;
#[cfg(feature = "sessions")]
mod load;

pub use crate::compat::agent_cli::capabilities::{CapabilitySource, CliCapabilities, capabilities};
pub use crate::compat::agent_cli::execute::{Execute, Executed, execute};

#[cfg(feature = "sessions")]
pub use crate::compat::agent_cli::load::{LoadError, load_messages, load_messages_or_none};

use crate::{Agentline, Error, fs::disk_fs::DiskFs};
use agentline_core::{Agent, Problems, detect::find_cli};
use std::{path::PathBuf, sync::Arc};

/// Returns the path of an agent's CLI, or `None` if it is not installed.
///
/// Uses the configured program or the one that the CLI's variable names (`GEMINI_CLI_PATH`, `CLAUDE_CLI_PATH`, …) if it
/// exists. Otherwise searches `PATH`, the usual installation directories, `node_modules` of the project and agentline's
/// cache. Starts no process. Blocks for a few milliseconds.
#[must_use]
pub fn detect_cli(agentline: &Agentline, agent: &str) -> Option<PathBuf> {
    let agent = agentline.registry().find(agent).ok()?;
    let mut host_env = agentline.host_env().clone();
    host_env.configured = agentline.configured(agent.info().id);
    find_cli(&agent.info(), &host_env.search(), &DiskFs)
}

/// Returns the program and the first arguments with which agentline starts an agent, or `None` if it cannot.
///
/// It differs from [`detect_cli`] where the CLI is a script for Node.js, or where agentline uses an adapter.
#[must_use]
pub fn detect_launcher(agentline: &Agentline, agent: &str) -> Option<Vec<String>> {
    let agent = agentline.registry().find(agent).ok()?;
    let program = agentline.detect(&*agent).program?;
    Some(std::iter::once(program.path.to_string_lossy().into_owned()).chain(program.args).collect())
}

fn known(agentline: &Agentline, agent: &str) -> Result<Arc<dyn Agent>, Error> {
    agentline.registry().find(agent).map_err(|problem| Error::Usage(Problems::from(problem)))
}
