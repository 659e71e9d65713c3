//! A stage for the fake ACP agent, which stands where an agent of ours would: a home, a workspace, and a mark on all that
//! is started.

use agentline::{Agentline, PermissionMode, RunRequest, detect::HostEnv};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Everything that one test needs; removed with it.
#[derive(Debug)]
pub struct FakeStage {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl FakeStage {
    /// A stage for this program: `env!("CARGO_BIN_EXE_fake-acp")`.
    ///
    /// # Panics
    /// The machine has no room for a stage.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let dir = tempfile::Builder::new().prefix("agentline-fake-").tempdir().expect("a temporary folder");
        for folder in ["home", "ws", "tmp"] {
            fs::create_dir(dir.path().join(folder)).expect("a folder");
        }
        Self { dir, program: program.into() }
    }

    /// The folder of the stage.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    /// What every process of this stage has in its environment.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("MARK_OF_THE_TEST={}", self.dir.path().display())
    }

    /// The caller's variables.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<String, String> {
        let path = |name: &str| self.dir.path().join(name).to_string_lossy().into_owned();
        [
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", path("home")),
            ("TMPDIR", path("tmp")),
            ("GEMINI_API_KEY", "no-key-of-anything".to_owned()),
            ("GEMINI_CLI_PATH", self.program.to_string_lossy().into_owned()),
            ("MARK_OF_THE_TEST", self.dir.path().to_string_lossy().into_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// The library for this stage's user.
    #[must_use]
    pub fn agentline(&self) -> Agentline {
        Agentline::new(HostEnv::new(self.variables(), self.dir.path().join("home"), self.workspace()))
    }

    /// A run whose turn plays this script. It may start commands, so it is alone on its process.
    #[must_use]
    pub fn request(&self, script: &str) -> RunRequest {
        let mut request = RunRequest::new(script)
            .permission_mode(PermissionMode::Bypass)
            .working_dir(self.workspace())
            .timeout(Duration::from_secs(90))
            .pass_env("MARK_OF_THE_TEST");
        request.quiet_period = Some(Duration::ZERO);
        request
    }

    /// A run that may start nothing, so that it can have others beside it.
    #[must_use]
    pub fn sharing(&self, script: &str) -> RunRequest {
        self.request(script).permission_mode(PermissionMode::Plan)
    }

    /// Processes of this stage that live.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn living(&self) -> Vec<u32> {
        crate::survivors(&self.mark())
    }
}
