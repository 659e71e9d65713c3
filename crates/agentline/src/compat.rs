//! Interfaces in the shape of other libraries: a provider for workflow engines, and the functions of an agent CLI.

pub mod agent_cli;
pub mod provider;
