//! Tests the saved sessions of Claude Code and Codex: how recordings are read, and the properties of every session,
//! whether complete, truncated or damaged.

mod agents;
mod look;
mod numbers;
mod offloaded;
mod older;
mod places;
mod promises;
