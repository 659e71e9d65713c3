//! Loads the messages of a saved session.

use crate::{
    Agentline, Error,
    compat::agent_cli::known,
    sessions::{SessionError, SessionFilter},
};
use agentline_core::{BlockOrder, Message, unified_view};
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
            SessionError::NoSession(_) => {
                let agent = info.title.strip_suffix(" CLI").unwrap_or(info.title).to_owned();
                LoadError::NoSession { agent, project: project.clone() }
            }
            other => LoadError::Other(other.into()),
        })?;
    let session = store.load(&found).map_err(Error::from)?;
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
