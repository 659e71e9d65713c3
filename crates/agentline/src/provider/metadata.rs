//! What a provider says about itself, under the keys that workflow engines read.

use agentline_core::{Card, RunRequest};
use serde::Serialize;

/// The settings that engines offer; every other key of the configuration is accepted too.
pub const CONFIG_KEYS: &[&str] =
    &["model", "sandbox", "approval_mode", "include_directories", "allowed_tools", "working_dir", "timeout"];

/// What a provider is. As JSON it has exactly the keys that engines know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Metadata {
    /// Its id.
    pub name: &'static str,
    /// What people read about it.
    pub description: String,
    /// Whether it needs a configuration; it does not.
    pub requires_config: bool,
    /// The settings that it takes.
    pub config_keys: &'static [&'static str],
    /// Seconds until an answer must be there, without a word about it.
    pub default_response_timeout: u64,
    /// It writes files on this machine itself.
    pub fs_ability: &'static str,
}

impl Metadata {
    pub(super) fn of(card: &Card) -> Self {
        Self {
            name: card.provider,
            description: format!("{} AI agent via subprocess", card.title),
            requires_config: false,
            config_keys: CONFIG_KEYS,
            default_response_timeout: RunRequest::default().timeout.as_secs(),
            fs_ability: "local-write",
        }
    }
}
