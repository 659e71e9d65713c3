//! Checks that no file, schema or answer outlasts the timeout of a run.

#[path = "hostile_input/large_files.rs"]
mod large_files;
#[path = "hostile_input/machine.rs"]
mod machine;
#[path = "hostile_input/output.rs"]
mod output;
#[path = "hostile_input/user.rs"]
mod user;
#[path = "hostile_input/workspace.rs"]
mod workspace;
