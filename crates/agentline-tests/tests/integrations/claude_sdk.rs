//! Checks Claude compatibility with Claude's own SDK: its types accept our JSON, and its `query()` drives another agent
//! through agentline.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod fields;
mod query;
mod types;
