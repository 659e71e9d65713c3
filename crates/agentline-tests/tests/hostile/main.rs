//! Hostile workspaces, inputs and neighbours against the real agents and against fakes: what must not get in, and what
//! must not outrun a timeout.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod config_file;
mod gemini_workspace;
mod host;
mod hostile_input;
mod private_files;
mod process_kills;
mod rules;
mod secrets;
mod sibling_workspace;
