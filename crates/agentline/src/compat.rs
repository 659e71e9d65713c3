//! Interfaces modeled on other libraries: a provider for workflow engines, and the functions of an agent-CLI
//! SDK.

pub mod agent_cli;
pub mod provider;
