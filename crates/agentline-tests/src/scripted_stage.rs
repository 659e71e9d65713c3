//! The test environment of any built-in agent: its own CLI, a home, a workspace, and a scripted model.

use crate::{real::are_disabled, real_slots::RealSlot};
use agentline::{Agentline, agents, detect::HostEnv, install};
use agentline_mock::{
    agents::{AgentModel, ScriptedAgent, ServedRequest},
    answer::Answer,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

/// One agent with its environment, which is removed on drop.
#[derive(Debug)]
pub struct ScriptedStage {
    /// The agent and its model.
    pub agent: &'static ScriptedAgent,
    /// The agent's model.
    pub model: AgentModel,
    /// The agent's own CLI.
    pub program: PathBuf,
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
    _slot: Arc<RealSlot>,
}

impl ScriptedStage {
    /// Creates the environment of an agent whose model answers by content. Returns `None` if real agents are disabled.
    ///
    /// # Panics
    /// Panics if the agent cannot be installed, or no temporary directory can be created.
    #[must_use]
    pub fn new(id: &str, respond: impl Fn(&ServedRequest) -> Answer + Send + Sync + 'static) -> Option<Self> {
        if are_disabled() {
            return None;
        }
        let slot = RealSlot::take();
        let user = Agentline::from_env().expect("the tests have a home");
        let found = agents::find(id).expect("it is built in");
        let info = found.info();
        let installed = install::ensure(info, info.pinned, user.host_env(), &mut |_| ());
        let program = installed.unwrap_or_else(|error| panic!("{id}: {error}\n{}", error.hint())).path;
        let agent = ScriptedAgent::find(id).expect("a scripted model serves it");
        let model = agent.model(respond).expect("a free port");
        let dir = tempfile::Builder::new().prefix("agentline-stage-").tempdir().expect("a temporary folder");
        let (home, tmp) = (dir.path().join("home"), dir.path().join("tmp"));
        for path in [&home, &tmp, &dir.path().join("ws")] {
            fs::create_dir_all(path).expect("a folder");
        }
        let mut env = model.prepare(&home).expect("a home");
        env.insert("PATH".into(), std::env::var("PATH").unwrap_or_default());
        env.insert("HOME".into(), home.to_string_lossy().into_owned());
        env.insert("TMPDIR".into(), tmp.to_string_lossy().into_owned());
        env.insert(info.path_variable.to_owned(), program.to_string_lossy().into_owned());
        Some(Self { agent, model, program, dir, env, _slot: slot })
    }

    /// Returns the directory of the environment. Its path is in the environment of every process of the agent.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the user's home.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Returns the workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    /// Returns the library with the environment of this user.
    #[must_use]
    pub fn agentline(&self) -> Agentline {
        Agentline::new(HostEnv::new(self.env.clone(), self.home(), self.workspace()))
    }

    /// Returns a command in the workspace with the environment of this user, without input.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.env).current_dir(self.workspace()).stdin(Stdio::null());
        command
    }

    /// Returns the live processes with this environment.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn living(&self) -> Vec<u32> {
        crate::survivors(&self.dir.path().to_string_lossy())
    }
}
