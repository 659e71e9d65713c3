//! Gemini CLI over ACP, shown on the real program with a scripted model: one story a file.

// The commands in these stories are those of a Unix shell.

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
