//! The user's setup of an agent: sign-in, stored secrets, settings and trusted folders.

use crate::{FileSystem, Problem};
use serde::Serialize;
use std::{collections::BTreeMap, path::Path};

/// Inspects the user's setup of an agent. Every method has a default for an agent whose setup is not known.
pub trait SetupProbe: Send + Sync {
    /// Returns every sign-in method that was checked, in the order in which the agent prefers them for a run in `cwd`.
    fn sign_in(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<SignIn> {
        let _ = (cwd, env, home, fs);
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
    fn settings_problems(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<Problem> {
        let _ = (cwd, env, home, fs);
        Vec::new()
    }

    /// Returns whether the agent trusts a directory by default, if known.
    fn trusts(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Option<bool> {
        let _ = (cwd, env, home, fs);
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
