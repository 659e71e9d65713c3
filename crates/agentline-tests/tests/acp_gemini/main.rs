//! Gemini CLI over ACP, shown on the real program with a scripted model: one story a file.

mod conversation;
mod files;
mod permissions;
mod structured;
mod talk;
mod tools;
mod until;
