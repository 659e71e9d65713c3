//! Tests the Agent Client Protocol as a state machine, with scripted, recorded and damaged agents.

mod after_the_answer;
mod basics;
mod compatibility;
mod concurrent_sessions;
mod damaged_input;
mod failed_requests;
pub(crate) mod harness;
mod numbers;
mod opening;
mod quirks;
mod recorded;
mod replay;
mod tools;
mod updates;
