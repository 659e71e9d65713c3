//! The agents of other vendors through agentline, shown on the real programs with scripted models: one story a file.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod cast;
mod command_line;
mod configured;
mod conversation;
mod installed;
mod permissions;
mod pool;
mod rules;
mod saved;
mod tools;
mod trust;
