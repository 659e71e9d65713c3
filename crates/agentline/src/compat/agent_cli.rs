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

use crate::{Agentline, Error};
use agentline_core::{Agent, Problems};
use std::{path::PathBuf, sync::Arc};

/// Returns the path of an agent's program, or `None` if it is not installed.
///
/// Uses the configured program or the one that the agent's variable names. Otherwise searches `PATH`, the usual
/// installation directories, `node_modules` of the project and agentline's cache. Starts no process. Blocks for a few
/// milliseconds.
#[must_use]
pub fn detect_cli(agentline: &Agentline, agent: &str) -> Option<PathBuf> {
    let agent = agentline.registry().find(agent).ok()?;
    agentline.detect(&*agent).program.map(|program| program.path)
}

fn known(agentline: &Agentline, agent: &str) -> Result<Arc<dyn Agent>, Error> {
    agentline.registry().find(agent).map_err(|problem| Error::Usage(Problems::from(problem)))
}
