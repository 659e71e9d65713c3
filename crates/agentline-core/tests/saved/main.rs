//! Tests the saved sessions: how recordings are read, and the properties of every session,
//! whether complete, truncated or damaged.

mod agents;
mod locations;
mod offloaded;
mod old_versions;
mod properties;
mod recordings;
mod token_counts;
mod transplant;
