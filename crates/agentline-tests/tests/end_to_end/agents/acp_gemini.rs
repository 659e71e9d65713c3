//! Tests Gemini CLI over ACP with the real program and a scripted model. Each file covers one topic.

// The commands in these tests need a Unix shell.

mod command_line;
mod compatibility;
mod conversation;
mod files;
pub(crate) mod harness;
mod observed_behaviour;
mod permissions;
mod structured;
mod surfaces;
mod tools;
mod until;
