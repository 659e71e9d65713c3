//! Small names that everything shares: moments, runs, questions, surfaces.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Milliseconds since the connection began. The shell hands them in; the core has no clock.
pub type Millis = u64;

/// Which run of a connection something belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub u32);

/// Which question something answers. It is a function of the run, so that one run can be cut out of a shared tape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AskId(pub u32);

/// One way to talk to an agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Surface {
    /// One object when the run ends.
    Json,
    /// One line per event.
    #[default]
    StreamJson,
    /// JSON-RPC over stdio (Agent Client Protocol).
    Acp,
}

impl Surface {
    /// All surfaces, in the order in which help texts name them.
    pub const ALL: &[Self] = &[Self::Json, Self::StreamJson, Self::Acp];

    /// The word for it in flags, files and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::StreamJson => "stream-json",
            Self::Acp => "acp",
        }
    }

    /// Reads the word; `stream_json` is accepted too.
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

/// A version of an agent, compared number by number. Anything behind a `-` is ignored. As JSON it is the text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Reads `1.2.3`, `v1.2`, `0.61.0-nightly.1`.
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
