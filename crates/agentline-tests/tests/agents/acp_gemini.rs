//! Tests Gemini CLI over ACP with the real program and a scripted model. Each file covers one topic.

// The commands in these tests need a Unix shell.

mod command_line;
mod compatibility;
mod conversation;
mod files;
mod permissions;
mod questions;
mod resume;
mod structured;
mod surfaces;
mod talk;
mod tools;
mod until;
