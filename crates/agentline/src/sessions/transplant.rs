//! Transplants a session to another agent: stores it, with the agent's own program where that is needed, and reads it
//! back.

use crate::{Agentline, Error, fs::disk_fs::canonicalize};
use agentline_core::{AgentId, Loss, NewSession, NewSessionStorage, Problem};
use agentline_sessions::{FoundSession, SessionFilter, Transplant, TransplantOptions};
use serde::Serialize;
use std::{
    io::{self, Read as _, Seek as _, Write as _},
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// The time limit of an import.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// The maximum length of an error message of the program.
const MESSAGE_BYTES: u64 = 2000;

/// A session that was transplanted to another agent.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Transplanted {
    /// The agent that continues the session.
    pub agent: AgentId,
    /// The id of the new session.
    pub id: String,
    /// The project of the new session.
    pub project: PathBuf,
    /// The files or the database that hold the new session.
    pub files: Vec<PathBuf>,
    /// What the new session lost, the most important first.
    pub losses: Vec<Loss>,
}

impl Agentline {
    /// Writes a saved session as a new session of another agent, which can then be resumed. Blocks.
    ///
    /// # Errors
    /// Fails if the session cannot be read or converted, or if the new session cannot be stored.
    pub fn transplant(
        &self,
        found: &FoundSession,
        options: &TransplantOptions,
    ) -> Result<Transplanted, Error> {
        let store = self.sessions();
        let transplant = store.transplant(found, options)?;
        if transplant.write()?.is_none() {
            self.import(&transplant)?;
        }
        let agent = AgentId::from(transplant.agent().info().id);
        let filter = SessionFilter::new().agent(agent.clone());
        let stored = store.find_of(transplant.id(), transplant.project(), &filter)?;
        let losses = transplant.losses(&store.load(&stored)?);
        Ok(Transplanted {
            agent,
            id: transplant.id().to_owned(),
            project: transplant.project().to_owned(),
            files: stored.locations().map(|location| location.path().to_owned()).collect(),
            losses,
        })
    }

    /// Lets the agent's own program import a session.
    fn import(&self, transplant: &Transplant) -> Result<(), Error> {
        let NewSession { records, storage: NewSessionStorage::Import { args, env }, .. } =
            transplant.new_session()
        else {
            return Ok(());
        };
        let info = transplant.agent().info();
        let detection = self.detect(transplant.agent());
        let project = canonicalize(transplant.project());
        let project = project.unwrap_or_else(|_| transplant.project().to_owned());
        let foreign = detection.in_workspace(&project, &self.host_env().home).is_some();
        let Some(program) = detection.program.filter(|_| !foreign) else {
            let problem = Problem::new("--to", format!("{} is not installed", info.title));
            return Err(Error::Usage(
                problem.hint("run `agentline doctor` to see where it was searched").into(),
            ));
        };
        let mut file = tempfile::Builder::new().prefix("agentline-transplant-").suffix(".json").tempfile();
        let written = file.as_mut().map_err(|error| io::Error::from(error.kind())).and_then(|file| {
            records.iter().try_for_each(|record| file.write_all(record.as_str().as_bytes()))?;
            file.flush()
        });
        let folder = std::env::temp_dir();
        written.map_err(Error::io("write to", &folder))?;
        let file = file.map_err(Error::io("write to", &folder))?;
        let mut command = Command::new(&program.path);
        command.args(&program.args).args(args).arg(file.path());
        command.env_clear().envs(&self.host_env().env).envs(env.iter().map(|(name, value)| (name, value)));
        command.current_dir(transplant.project()).stdin(Stdio::null());
        let failed = |message: String| {
            let problem =
                Problem::new("--to", format!("{} did not import the session: {message}", info.title));
            Error::NoSession(problem.hint("run `agentline doctor` to check the installation"))
        };
        match run(&mut command) {
            Ok((Some(status), _)) if status.success() => Ok(()),
            Ok((Some(status), message)) if message.is_empty() => Err(failed(status.to_string())),
            Ok((Some(_), message)) => Err(failed(message)),
            Ok((None, _)) => Err(failed(format!("no result after {} s", IMPORT_TIMEOUT.as_secs()))),
            Err(error) => Err(failed(format!("cannot start {}: {error}", program.path.display()))),
        }
    }
}

/// Runs a command to its end. Returns its status and the end of its error output, or no status if it took too long.
fn run(command: &mut Command) -> io::Result<(Option<ExitStatus>, String)> {
    let mut errors = tempfile::tempfile()?;
    let mut child = command.stdout(Stdio::null()).stderr(errors.try_clone()?).spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > IMPORT_TIMEOUT {
            // Reap the process even if it has just exited or the kill failed.
            let _ignored = child.kill();
            let _ignored = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let length = errors.metadata()?.len();
    errors.seek(io::SeekFrom::Start(length.saturating_sub(MESSAGE_BYTES)))?;
    let mut message = Vec::new();
    errors.take(MESSAGE_BYTES).read_to_end(&mut message)?;
    Ok((status, String::from_utf8_lossy(&message).trim().to_owned()))
}
