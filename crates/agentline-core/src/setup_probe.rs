//! The user's setup of an agent: sign-in, stored secrets, settings and trusted folders.

use crate::{FileSystem, Problem};
use serde::Serialize;
use std::{collections::BTreeMap, fmt, path::Path};

/// What a setup depends on: the directory of a run, and the user's environment, home and files.
#[derive(Clone, Copy)]
pub struct SetupContext<'a> {
    /// The directory of a run.
    pub cwd: &'a Path,
    /// The user's environment.
    pub env: &'a BTreeMap<String, String>,
    /// The user's home directory.
    pub home: &'a Path,
    /// The file system.
    pub fs: &'a dyn FileSystem,
}

/// Leaves out the environment, which contains secrets.
impl fmt::Debug for SetupContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupContext")
            .field("cwd", &self.cwd)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

/// Inspects the user's setup of an agent. Every method has a default for an agent whose setup is not known.
pub trait SetupProbe: Send + Sync {
    /// Returns every sign-in method that was checked, in the order in which the agent prefers them.
    fn sign_in(&self, context: &SetupContext<'_>) -> Vec<SignIn> {
        let _ = context;
        Vec::new()
    }

    /// Returns the secrets in the agent's own files for this home and environment: keys, tokens and passwords of tool
    /// servers.
    fn stored_secrets(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<String> {
        let _ = (env, home, fs);
        Vec::new()
    }

    /// Returns problems in the user's own settings of this agent, such as a file that is not JSON.
    fn settings_problems(&self, context: &SetupContext<'_>) -> Vec<Problem> {
        let _ = context;
        Vec::new()
    }

    /// Returns whether the agent trusts the directory by default, if known.
    fn trusts(&self, context: &SetupContext<'_>) -> Option<bool> {
        let _ = context;
        None
    }
}

/// The setup of an agent about which nothing is known.
pub(crate) struct UnknownSetup;

impl SetupProbe for UnknownSetup {}

/// One sign-in method, and whether it is available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SignIn {
    /// A setting, a variable or a file.
    pub source: String,
    /// Whether it was found. The value of a secret is never shown.
    pub found: bool,
    /// Whether the agent will use this one.
    pub wins: bool,
    /// Additional information.
    pub note: Option<String>,
    /// How to make it usable for the agent.
    pub fix: Option<String>,
}

impl SignIn {
    /// Creates a sign-in method that was checked.
    #[must_use]
    pub fn new(source: impl Into<String>, found: bool) -> Self {
        Self { source: source.into(), found, wins: false, note: None, fix: None }
    }

    /// Adds a note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}
