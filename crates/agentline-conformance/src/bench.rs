//! The environment of one target: a private home, a scripted model, and a directory for each scenario.

use crate::script::{Scripts, mark, mark_in};
use crate::target::TestedSurface;
use agentline::{Agentline, Error, HostEnv, PermissionMode, Pool, PoolOptions, Run, RunOptions, RunRequest};
use agentline_mock::agents::{AgentModel, ScriptedAgent, ServedRequest};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

/// The variable that marks the agent of a scenario, so that its processes can be found.
const MARK_VARIABLE: &str = "AGENTLINE_CONFORMANCE";

/// How many agents are kept warm. More than two would compete for the processor and for memory.
const WARM_PROCESSES: usize = 2;

/// The environment of one target. It is removed when it is dropped.
pub(crate) struct Bench {
    pub(crate) target: TestedSurface,
    pub(crate) scripted: &'static ScriptedAgent,
    pub(crate) scripts: Scripts,
    model: AgentModel,
    agentline: Agentline,
    /// Warm agents, if the surface supports them.
    pool: Option<Pool>,
    dir: tempfile::TempDir,
}

impl Bench {
    /// Creates the environment. `path` is the caller's search path for programs.
    pub(crate) fn new(
        target: TestedSurface,
        scripted: &'static ScriptedAgent,
        path: &str,
    ) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("agentline-conformance-").tempdir()?;
        // Agents report resolved paths.
        let root = fs::canonicalize(dir.path())?;
        let scripts = Scripts::default();
        let model = scripted.model({
            let scripts = scripts.clone();
            move |request| scripts.answer(request)
        })?;
        let (home, tmp) = (root.join("home"), root.join("tmp"));
        fs::create_dir_all(&home)?;
        fs::create_dir_all(&tmp)?;
        let mut env = model.prepare(&home)?;
        env.insert("PATH".into(), path.to_owned());
        env.insert("HOME".into(), home.to_string_lossy().into_owned());
        env.insert("TMPDIR".into(), tmp.to_string_lossy().into_owned());
        let host_env = HostEnv::new(env, &home, &root);
        let agentline = Agentline::new(host_env).program(scripted.id, &target.program);
        let pool = target.is_warm().then(|| {
            let mut options = PoolOptions::default();
            options.max_processes = WARM_PROCESSES;
            Pool::new(agentline.clone(), options)
        });
        Ok(Self { target, scripted, scripts, model, agentline, pool, dir })
    }

    /// Prepares the workspace of a scenario.
    pub(crate) fn scene(self: &Arc<Self>, number: usize) -> io::Result<Scene> {
        let root = fs::canonicalize(self.dir.path())?.join(format!("scenario-{number:04}"));
        let (workspace, outside) = (root.join("workspace"), root.join("outside"));
        fs::create_dir_all(&workspace)?;
        fs::create_dir_all(&outside)?;
        Ok(Scene { bench: Arc::clone(self), mark: mark(number), workspace, outside })
    }

    /// Ends the warm agents.
    pub(crate) async fn close(&self) {
        if let Some(pool) = &self.pool {
            pool.close().await;
        }
    }
}

/// One scenario on one target.
pub(crate) struct Scene {
    pub(crate) bench: Arc<Bench>,
    pub(crate) mark: String,
    pub(crate) workspace: PathBuf,
    /// A directory outside the workspace.
    pub(crate) outside: PathBuf,
}

impl Scene {
    /// Returns the absolute path of a file in the workspace.
    pub(crate) fn path(&self, name: &str) -> String {
        self.workspace.join(name).to_string_lossy().into_owned()
    }

    /// Returns the absolute path of a file outside the workspace.
    pub(crate) fn outside(&self, name: &str) -> String {
        self.outside.join(name).to_string_lossy().into_owned()
    }

    /// Creates a file in the workspace, before the run.
    pub(crate) fn create(&self, name: &str, content: &str) {
        // The comparison of files reports a file that could not be created.
        let _ = fs::write(self.workspace.join(name), content);
    }

    /// Returns whether a file of the workspace exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.workspace.join(name).exists()
    }

    /// Returns a number that no other scenario has, for commands that are recognized afterwards.
    pub(crate) fn unique(&self) -> String {
        let digits: String = self.mark.chars().filter(char::is_ascii_digit).collect();
        format!("{}{digits}", std::process::id())
    }

    /// Returns a prompt with the mark of this scenario.
    pub(crate) fn prompt(&self, text: &str) -> String {
        format!("{} {text}", self.mark)
    }

    /// Returns the request of the scenario before it is changed: everything is permitted, with the default model.
    pub(crate) fn request(&self) -> RunRequest {
        let mut request = RunRequest::new(self.prompt("Do the task of this scenario."))
            .agent(self.bench.scripted.id)
            .surface(self.bench.target.surface)
            .permission_mode(PermissionMode::Bypass)
            .working_dir(&self.workspace)
            .startup_timeout(Duration::from_secs(90))
            .idle_timeout(Duration::from_secs(60))
            .timeout(Duration::from_secs(150));
        request.model = self.bench.scripted.model.map(str::to_owned);
        request
    }

    /// Starts a run on a warm agent, or on a process of its own.
    pub(crate) async fn start(
        &self,
        request: RunRequest,
        options: RunOptions,
        cold: bool,
    ) -> Result<Run, Error> {
        match &self.bench.pool {
            Some(pool) if !cold => pool.run_with(request, options).await,
            _ => self.bench.agentline.run_with(request.env(MARK_VARIABLE, &self.mark), options).await,
        }
    }

    /// Opens a conversation.
    pub(crate) async fn session(&self, request: RunRequest) -> Result<agentline::Session, Error> {
        self.bench.agentline.session(request).await
    }

    /// Returns the variable with which the processes of a cold run are marked.
    pub(crate) fn process_mark(&self) -> String {
        format!("{MARK_VARIABLE}={}", self.mark)
    }

    /// Returns the requests to the model in this scenario.
    pub(crate) fn log(&self) -> Vec<ServedRequest> {
        let all = self.bench.model.log();
        all.into_iter().filter(|request| mark_in(&request.user_texts) == Some(self.mark.as_str())).collect()
    }

    /// Returns the number of turns that have reached the model.
    pub(crate) fn turns(&self) -> usize {
        self.bench.scripts.turns(&self.mark)
    }

    /// Returns the files of the workspace with their content.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let path = Path::new(path);
        fs::read(self.workspace.join(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Returns the variables of a caller that agents need: where programs are found.
pub(crate) fn search_path(env: &BTreeMap<String, String>) -> String {
    env.get("PATH").cloned().unwrap_or_default()
}
