//! The test environment for the fake ACP agent, which replaces a known agent: a home, a workspace, and a mark on every
//! started process.

use agentline::{Agentline, PermissionMode, RunRequest, detect::HostEnv};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Everything that one test needs. It is removed with the test.
#[derive(Debug)]
pub struct FakeStage {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl FakeStage {
    /// Creates an environment for this program: `env!("CARGO_BIN_EXE_fake-acp")`.
    ///
    /// # Panics
    /// Panics if the temporary directory cannot be created.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let dir = tempfile::Builder::new().prefix("agentline-fake-").tempdir().expect("a temporary folder");
        for name in ["home", "ws", "tmp"] {
            fs::create_dir(dir.path().join(name)).expect("a folder");
        }
        Self { dir, program: program.into() }
    }

    /// Returns the test's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    /// Returns the text that every process of this test has in its environment.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("MARK_OF_THE_TEST={}", self.dir.path().display())
    }

    /// Returns the caller's variables.
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

    /// Returns the library with the environment of this user.
    #[must_use]
    pub fn agentline(&self) -> Agentline {
        Agentline::new(HostEnv::new(self.variables(), self.dir.path().join("home"), self.workspace()))
    }

    /// Returns a run whose turn plays this script. It may start commands, so it does not share its process.
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

    /// Returns a run that cannot start commands, so that it can share its process.
    #[must_use]
    pub fn sharing(&self, script: &str) -> RunRequest {
        self.request(script).permission_mode(PermissionMode::Plan)
    }

    /// Returns the live processes of this test.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn living(&self) -> Vec<u32> {
        crate::survivors(&self.mark())
    }
}
