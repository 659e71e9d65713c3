//! Checks Claude compatibility with Claude's own SDK: its types accept our JSON, and its `query()` drives another agent
//! through agentline.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod fields;
mod query;
mod types;
