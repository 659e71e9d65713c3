//! Small shared types: times, ids, surfaces and versions.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Milliseconds since the start of the connection. The shell passes them in; the core has no clock.
pub type Millis = u64;

/// The id of a run within a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub u32);

/// The id of a request to the host. It is derived from the run, so that a single run can be extracted from a shared
/// tape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostRequestId(pub u32);

/// One way to communicate with an agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Surface {
    /// A single JSON object at the end of the run.
    Json,
    /// One line per event.
    #[default]
    StreamJson,
    /// JSON-RPC over stdio (Agent Client Protocol).
    Acp,
    /// The agent's own JSON-RPC protocol over stdio.
    AppServer,
    /// The agent's own HTTP server on loopback.
    Serve,
}

impl Surface {
    /// All surfaces, in the order used by help texts.
    pub const ALL: &[Self] = &[Self::Json, Self::StreamJson, Self::Acp, Self::AppServer, Self::Serve];

    /// Returns the name used in flags, files and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::StreamJson => "stream-json",
            Self::Acp => "acp",
            Self::AppServer => "app-server",
            Self::Serve => "serve",
        }
    }

    /// Returns whether every agent on this surface stays alive between prompts and asks the host while it works. An
    /// agent may do so on other surfaces as well: see [`AgentDescription::is_live`](crate::AgentDescription::is_live).
    #[must_use]
    pub fn is_live(self) -> bool {
        match self {
            Self::Json | Self::StreamJson => false,
            Self::Acp | Self::AppServer | Self::Serve => true,
        }
    }

    /// Parses a name; `stream_json` is accepted too.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|s| s.name() == word.replace('_', "-"))
    }
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A version of an agent, compared numerically. Suffixes after `-`, `+` or a space are ignored. It serializes as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Parses versions such as `1.2.3`, `v1.2` and `0.61.0-nightly.1`.
    ///
    /// ```
    /// use agentline_core::Version;
    /// assert_eq!(Version::parse("v0.61.0-preview.2"), Some(Version(0, 61, 0)));
    /// assert_eq!(Version::parse("latest"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let core = text.split(['-', '+', ' ']).next()?;
        let mut parts = core.split('.').map(|p| p.parse::<u32>().ok());
        let major = parts.next()??;
        let minor = parts.next().unwrap_or(Some(0))?;
        let patch = parts.next().unwrap_or(Some(0))?;
        Some(Self(major, minor, patch))
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is not a version"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}
