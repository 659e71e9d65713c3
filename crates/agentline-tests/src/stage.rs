//! The test environment for one run of the real agent: a separate home, workspace and scripted model.

use crate::{real::real_gemini, real_slots::RealSlot};
use agentline::{Agentline, Event, Outcome, PermissionMode, Record, RunRequest, blocking, detect::HostEnv};
use agentline_mock::gemini::{GeminiModel, SETTINGS, Script};
use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

/// A model that needs no router request and has a price.
pub const MODEL: &str = "gemini-2.5-flash";

/// Everything that one test needs. It is removed with the test.
#[derive(Debug)]
pub struct TestStage {
    dir: tempfile::TempDir,
    /// The agent's model.
    pub model: GeminiModel,
    env: BTreeMap<String, String>,
    _slot: Arc<RealSlot>,
}

impl TestStage {
    /// Creates an environment in which the real agent gets this script.
    ///
    /// # Panics
    /// Panics if the temporary directory cannot be created.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self::with_model(GeminiModel::start(script).expect("a free port on loopback"))
    }

    /// Creates an environment with an existing model.
    ///
    /// # Panics
    /// Panics if the temporary directory cannot be created.
    #[must_use]
    pub fn with_model(model: GeminiModel) -> Self {
        let slot = RealSlot::take();
        let dir = tempfile::Builder::new().prefix("agentline-test-").tempdir().expect("a temporary folder");
        let mut env: BTreeMap<String, String> = model.env().into_iter().collect();
        env.insert("PATH".into(), std::env::var("PATH").unwrap_or_default());
        env.insert("HOME".into(), dir.path().join("home").to_string_lossy().into_owned());
        // The agent writes reports of failed requests to the temporary directory.
        let tmp = dir.path().join("tmp");
        fs::create_dir_all(&tmp).expect("a temporary folder");
        env.insert("TMPDIR".into(), tmp.to_string_lossy().into_owned());
        let stage = Self { dir, model, env, _slot: slot };
        fs::create_dir_all(stage.workspace()).expect("a workspace");
        fs::create_dir_all(stage.home().join(".gemini")).expect("a home");
        stage.settings(SETTINGS);
        stage
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

    /// Returns a directory outside both.
    #[must_use]
    pub fn outside(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Writes the user's settings.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn settings(&self, json: &str) {
        fs::write(self.home().join(".gemini/settings.json"), json).expect("settings");
    }

    /// Writes a file into the workspace.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn file(&self, path: &str, content: &str) {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    }

    /// Reads a file of the workspace.
    #[must_use]
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.workspace().join(path)).ok()
    }

    /// Sets or, with `None`, removes a variable of the caller.
    #[must_use]
    pub fn env(mut self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.env.insert(name.into(), value.into()),
            None => self.env.remove(name),
        };
        self
    }

    /// Returns the caller's variables.
    #[must_use]
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Returns the library with the environment of this user and the real agent.
    ///
    /// # Panics
    /// Panics if real agents are disabled; call [`real_gemini`] first.
    #[must_use]
    pub fn agentline(&self) -> Agentline {
        let program = real_gemini().expect("real agents are enabled");
        let host_env = HostEnv::new(self.env.clone(), self.home(), self.workspace());
        Agentline::new(host_env).program("gemini", program.path)
    }

    /// Returns the default request of a test: everything permitted, no extensions, a model with a price.
    #[must_use]
    pub fn request(&self, prompt: &str) -> RunRequest {
        RunRequest::new(prompt)
            .model(MODEL)
            .permission_mode(PermissionMode::Bypass)
            .working_dir(self.workspace())
            .agent_option("extensions", Vec::<String>::new())
    }

    /// Runs to the end and returns all events and the outcome.
    ///
    /// # Panics
    /// Panics if the request is refused.
    #[must_use]
    pub fn play(&self, request: RunRequest) -> (Vec<Record>, Outcome) {
        let mut records = Vec::new();
        let outcome = blocking::run(&self.agentline(), request, |record, _| {
            if !matches!(record.event, Event::Outcome { .. }) {
                records.push(record.clone());
            }
        });
        (records, outcome.unwrap_or_else(|error| panic!("the request was refused: {error}")))
    }

    /// Runs to the end and returns the outcome.
    #[must_use]
    pub fn outcome(&self, request: RunRequest) -> Outcome {
        self.play(request).1
    }
}

/// Skips the test, with a message, if real agents are disabled.
#[macro_export]
macro_rules! needs_real_gemini {
    () => {
        if $crate::real_gemini().is_none() {
            $crate::skipped(concat!(module_path!(), " line ", line!()));
            return;
        }
    };
}
