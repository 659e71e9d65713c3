//! Tests malicious workspaces, inputs and processes with the real agents and with fakes: what must not take effect, and
//! what must not outlast a timeout.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod config_file;
mod gemini_workspace;
mod host;
mod hostile_input;
mod kill_deadline;
mod paths;
mod private_files;
mod process_kills;
mod rules;
mod secrets;
mod sibling_workspace;
