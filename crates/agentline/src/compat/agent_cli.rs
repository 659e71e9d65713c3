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
//! let all = agent_cli::load_messages(&agentline, "gemini", None, result.session_id.as_deref())?;
//! # let _ = all; Ok(()) }
//! ```

mod capabilities;
mod execute;

pub use crate::compat::agent_cli::capabilities::{CapabilitySource, CliCapabilities, capabilities};
pub use crate::compat::agent_cli::execute::{Execute, Executed, execute};

use crate::{Agentline, Error, sessions::SessionFilter};
use agentline_core::{Agent, BlockOrder, Message, Problems, unified_view};
use std::path::{Path, PathBuf};

/// An error from loading the messages of a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The agent has no saved session for this project, or none with this id.
    #[error("No {agent} session found for project: {}", .project.display())]
    NoSession {
        /// The display name of the agent.
        agent: String,
        /// The project directory.
        project: PathBuf,
    },
    /// The session is damaged and no entry of it is readable.
    #[error("cannot read the session: {0}")]
    Damaged(String),
    /// The agent is unknown, or the session could not be searched or read.
    #[error(transparent)]
    Other(#[from] Error),
}

/// Returns the path of an agent's program, or `None` if it is not installed.
///
/// Uses the configured program or the one that the agent's variable names. Otherwise searches `PATH`, the usual
/// installation directories, `node_modules` of the project and agentline's cache. Starts no process. Blocks for a few
/// milliseconds.
#[must_use]
pub fn detect_cli(agentline: &Agentline, agent: &str) -> Option<PathBuf> {
    let agent = agentline.registry().find(agent).ok()?;
    agentline.detect(agent).program.map(|program| program.path)
}

/// Loads the messages of a saved session in the `unified` view.
///
/// Without a session id, loads the latest session of the project. Without a project, uses the current directory.
/// Blocks.
///
/// # Errors
/// Fails if there is no such session (see [`load_messages_or_none`]) or if no entry of it is readable. A session that
/// is damaged in part yields its readable messages.
pub fn load_messages(
    agentline: &Agentline,
    agent: &str,
    project: Option<&Path>,
    session_id: Option<&str>,
) -> Result<Vec<Message<'static>>, LoadError> {
    let known = known(agentline, agent)?;
    let info = known.info();
    let cwd = &agentline.host_env().cwd;
    let project = project.map_or_else(|| cwd.clone(), |project| cwd.join(project));
    let store = agentline.sessions();
    let filter = SessionFilter::new().agent(info.id);
    let found =
        store.find_of(session_id.unwrap_or("latest"), &project, &filter).map_err(|error| match error {
            Error::NoSession(_) => {
                let agent = info.title.strip_suffix(" CLI").unwrap_or(info.title).to_owned();
                LoadError::NoSession { agent, project: project.clone() }
            }
            other => LoadError::Other(other),
        })?;
    let session = store.load(&found)?;
    if let (true, Some(damage)) = (session.entries.is_empty(), session.damage.first()) {
        return Err(LoadError::Damaged(damage.message.clone()));
    }
    Ok(unified_view(&session, BlockOrder::Grouped, false).map(Message::into_owned).collect())
}

/// Loads messages like [`load_messages`], but returns an empty list if there is no such session.
///
/// # Errors
/// Fails if the agent is unknown or the session cannot be read at all.
pub fn load_messages_or_none(
    agentline: &Agentline,
    agent: &str,
    project: Option<&Path>,
    session_id: Option<&str>,
) -> Result<Vec<Message<'static>>, LoadError> {
    match load_messages(agentline, agent, project, session_id) {
        Err(LoadError::NoSession { .. }) => Ok(Vec::new()),
        loaded => loaded,
    }
}

fn known(agentline: &Agentline, agent: &str) -> Result<&'static dyn Agent, Error> {
    agentline.registry().find(agent).map_err(|problem| Error::Usage(Problems::from(problem)))
}
