//! What we call Claude-compatible is what Claude's own SDK takes: its types accept our JSON, and its `query()` drives
//! another agent through us.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod fields;
mod query;
mod types;
