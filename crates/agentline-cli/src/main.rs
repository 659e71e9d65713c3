//! The `agentline` program.
fn main() {}
