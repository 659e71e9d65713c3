//! The type of agent ids.

use serde::{Deserialize, Serialize};
use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

/// The id of an agent, such as `gemini`. A request also accepts an alias.
///
/// Clones share the text. In JSON and in the configuration, it is a plain string.
///
/// ```
/// use agentline_core::AgentId;
/// let id = AgentId::from("gemini");
/// assert_eq!(id, "gemini");
/// assert_eq!(id.to_string(), "gemini");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Returns the text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The empty id, for values that are filled in later.
impl Default for AgentId {
    fn default() -> Self {
        Self::from("")
    }
}

impl Deref for AgentId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for AgentId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for AgentId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for AgentId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl From<String> for AgentId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<&String> for AgentId {
    fn from(id: &String) -> Self {
        Self::from(id.as_str())
    }
}

impl From<&Self> for AgentId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl From<AgentId> for String {
    fn from(id: AgentId) -> Self {
        id.as_str().to_owned()
    }
}

impl PartialEq<str> for AgentId {
    fn eq(&self, id: &str) -> bool {
        *self.0 == *id
    }
}

impl PartialEq<String> for AgentId {
    fn eq(&self, id: &String) -> bool {
        *self.0 == **id
    }
}

impl PartialEq<&str> for AgentId {
    fn eq(&self, id: &&str) -> bool {
        *self.0 == **id
    }
}
