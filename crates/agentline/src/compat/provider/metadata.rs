//! The metadata of a provider, under the keys that workflow engines read.

use agentline_core::{AgentInfo, RunRequest};
use serde::Serialize;

/// The settings that engines offer. Every other configuration key is accepted too.
pub const CONFIG_KEYS: &[&str] =
    &["model", "sandbox", "approval_mode", "include_directories", "allowed_tools", "working_dir", "timeout"];

/// The description of a provider. As JSON, it has exactly the keys that engines know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Metadata {
    /// The provider id.
    pub name: String,
    /// A description for users.
    pub description: String,
    /// Whether a configuration is required. Always `false`.
    pub requires_config: bool,
    /// The settings that the provider accepts.
    pub config_keys: &'static [&'static str],
    /// The default time limit for an answer, in seconds.
    pub default_response_timeout: u64,
    /// The kind of file access: the agent writes local files itself.
    pub fs_ability: &'static str,
}

impl Metadata {
    pub(super) fn of(info: &AgentInfo<'_>) -> Self {
        Self {
            name: info.provider.to_owned(),
            description: format!("{} AI agent via subprocess", info.title),
            requires_config: false,
            config_keys: CONFIG_KEYS,
            default_response_timeout: RunRequest::default().timeout.as_secs(),
            fs_ability: "local-write",
        }
    }
}
