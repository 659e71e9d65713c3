//! Rewrites a saved session for another agent: prepares it, stores it without overwriting anything, and compares
//! the stored session with its source.

use crate::{error::SessionError, location::FoundSession, store::SessionStore};
use agentline_core::{
    Agent, Loss, NewSession, NewSessionStorage, Problem, SavedSession, SessionFormat, TransplantContext,
    transplant_losses,
};
use agentline_fs::{
    digest::{digest, hex},
    disk_fs::DiskFs,
    private_file::{create_dir_all, write_new},
};
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Where a session is transplanted to.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransplantOptions {
    /// The id of the agent that continues the session.
    pub to: String,
    /// The project of the new session; that of the source if `None`.
    pub project: Option<PathBuf>,
    /// The model that the new session names where its format requires one; that of the source if `None`.
    pub model: Option<String>,
}

impl TransplantOptions {
    /// Transplants to this agent, in the project of the source.
    #[must_use]
    pub fn new(to: impl Into<String>) -> Self {
        Self { to: to.into(), ..Self::default() }
    }

    /// Sets the project of the new session, an absolute path.
    #[must_use]
    pub fn project(mut self, project: impl Into<PathBuf>) -> Self {
        self.project = Some(project.into());
        self
    }

    /// Sets the model that the new session names.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }
}

/// A session in another agent's format that is not stored yet.
pub struct Transplant {
    agent: Arc<dyn Agent>,
    project: PathBuf,
    source: SavedSession,
    new: NewSession,
}

impl SessionStore {
    /// Converts a session for another agent. Writes nothing.
    ///
    /// Secrets are redacted as in everything that the store reads.
    ///
    /// # Errors
    /// Fails if the session cannot be read, has no conversation, belongs to the same agent, or if the agent is unknown or
    /// its sessions cannot be written.
    pub fn transplant(
        &self,
        found: &FoundSession,
        options: &TransplantOptions,
    ) -> Result<Transplant, SessionError> {
        let agent = self.target(&options.to)?;
        let (info, source_info) = (agent.info(), found.agent().info());
        if info.id == source_info.id {
            let message = format!("the session already belongs to {}", info.title);
            let hint = format!("resume it with `agentline run -a {} --resume {}`", info.id, found.info.id);
            return Err(problem("--to", message, hint));
        }
        let source = self.load(found)?;
        let project = match (&options.project, &source.info.project) {
            (Some(project), _) => project.clone(),
            (None, Some(project)) => PathBuf::from(project),
            (None, None) => {
                let message = "the session does not say which directory it belongs to";
                return Err(problem("--cwd", message, "pass the directory with `--cwd DIR`"));
            }
        };
        if !project.is_dir() {
            let message = format!("the project of the session, `{}`, is not a directory", project.display());
            return Err(problem("--cwd", message, "pass the directory with `--cwd DIR`"));
        }
        let sha256 = hex(&digest(project.to_string_lossy().as_bytes()));
        let mut context = TransplantContext::new(
            (&project, &sha256),
            (random_bytes(), now()),
            (&self.env, &self.home),
            &DiskFs,
        );
        context.model = options.model.as_deref();
        context.provider = found.agent().sessions().provider();
        let write = agent.sessions().writer().ok_or_else(|| {
            let message = format!("agentline cannot write sessions of {}", info.title);
            let targets = self.agents.iter().filter(|agent| agent.sessions().writer().is_some());
            let names: Vec<&str> = targets.map(|agent| agent.info().id).collect();
            problem("--to", message, format!("choose one of these agents: {}", names.join(", ")))
        })?;
        let new = write(&source, &context).map_err(|problem| SessionError::Usage(problem.into()))?;
        let prepared = Transplant { agent, project, source, new };
        if prepared.preview().entries.is_empty() {
            let message = format!("the session `{}` has no conversation", found.info.id);
            return Err(problem("session", message, "choose another session from `agentline sessions list`"));
        }
        Ok(prepared)
    }

    fn target(&self, name: &str) -> Result<Arc<dyn Agent>, SessionError> {
        let filter = crate::SessionFilter::new().agent(name);
        let agent = self.agents_of(&filter)?.pop();
        agent.ok_or_else(|| {
            problem("--to", format!("`{name}` is not a known agent"), "run `agentline agents`")
        })
    }
}

impl Transplant {
    /// Returns the agent that continues the session.
    #[must_use]
    pub fn agent(&self) -> &dyn Agent {
        &*self.agent
    }

    /// Returns the id of the new session.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.new.id
    }

    /// Returns the project of the new session.
    #[must_use]
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// Returns the session in the target's own format.
    #[must_use]
    pub fn new_session(&self) -> &NewSession {
        &self.new
    }

    /// Returns the new session as the agent's reader reads it.
    #[must_use]
    pub fn preview(&self) -> SavedSession {
        let format = match self.new.storage {
            NewSessionStorage::Lines { .. } => SessionFormat::Lines,
            _ => SessionFormat::Whole,
        };
        let Some(mut reader) = self.agent.sessions().reader(format) else { return SavedSession::default() };
        self.new.records.iter().for_each(|record| reader.take(record.clone()));
        reader.finish()
    }

    /// Returns what a new session lost, compared with its source.
    #[must_use]
    pub fn losses(&self, new: &SavedSession) -> Vec<Loss> {
        transplant_losses(&self.source, new)
    }

    /// Stores a session that consists of files. The session's file appears complete, and an existing file is never
    /// overwritten. Returns its path, or `None` if the agent's program must import the session.
    ///
    /// # Errors
    /// Fails if a file cannot be written, or if the session's file exists.
    pub fn write(&self) -> Result<Option<PathBuf>, SessionError> {
        let NewSessionStorage::Lines { file, markers } = &self.new.storage else { return Ok(None) };
        for (path, content) in markers {
            create_parent(path)?;
            match write_new(path, content.as_bytes()) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(SessionError::io("write", path)(error));
                }
                _ => {}
            }
        }
        let folder = create_parent(file)?;
        self.write_lines(folder, file).map_err(SessionError::io("write", file))?;
        Ok(Some(file.clone()))
    }

    fn write_lines(&self, folder: &Path, file: &Path) -> io::Result<()> {
        // The name has no extension of a session, so that no agent reads the file before it is complete.
        let mut temporary = tempfile::Builder::new().prefix(".agentline-transplant-").tempfile_in(folder)?;
        {
            let mut out = io::BufWriter::new(temporary.as_file_mut());
            for record in &self.new.records {
                out.write_all(record.as_str().as_bytes())?;
                out.write_all(b"\n")?;
            }
            out.flush()?;
        }
        temporary.as_file().sync_all()?;
        temporary.persist_noclobber(file).map(drop).map_err(|error| error.error)
    }
}

fn create_parent(path: &Path) -> Result<&Path, SessionError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    create_dir_all(folder).map_err(SessionError::io("create", folder))?;
    Ok(folder)
}

/// Returns 128 random bits, from the random keys of two hash functions.
fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    for half in bytes.chunks_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(SystemTime::now()).to_be_bytes());
    }
    bytes
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn problem(key: &str, message: impl Into<String>, hint: impl Into<String>) -> SessionError {
    SessionError::Usage(Problem::new(key, message).hint(hint.into()).into())
}

impl fmt::Debug for Transplant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transplant")
            .field("agent", &self.agent.info().id)
            .field("id", &self.new.id)
            .field("storage", &self.new.storage)
            .finish_non_exhaustive()
    }
}
