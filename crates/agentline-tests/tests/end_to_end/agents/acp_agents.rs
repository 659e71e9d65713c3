//! Tests agents of other vendors with the real programs and scripted models. Each file covers one topic.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod command_line;
mod compare;
mod configured;
mod conversation;
pub(crate) mod harness;
mod installed;
mod permissions;
mod pool;
mod provider;
mod rules;
mod tools;
mod transplant;
