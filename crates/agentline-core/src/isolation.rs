//! Isolation of an agent's processes, so that none outlives its run.

use serde::{Deserialize, Serialize};

/// Whether an agent runs in its own pid namespace.
///
/// A pid namespace is a Linux feature: when its first process dies, the kernel kills every other process in it. The
/// agent sees and signals only the processes of its own run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Isolation {
    /// A pid namespace for root, who needs no user namespace for it. For other users, same as `None`.
    #[default]
    Auto,
    /// A pid namespace for every user. An ordinary user also needs a user namespace, in which `sudo` and other setuid
    /// programs do not work. If the system refuses it, the run does not start.
    Namespace,
    /// No pid namespace. Processes are found by ancestry and by a variable in their environment, and then killed.
    None,
}

impl Isolation {
    /// All values, the default first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Namespace, Self::None];

    /// Returns the name used in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Namespace => "namespace",
            Self::None => "none",
        }
    }

    /// Returns the value with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|isolation| isolation.name() == name)
    }
}
