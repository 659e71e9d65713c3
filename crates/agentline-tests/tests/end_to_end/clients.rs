//! Tests the programs and libraries through which others use agentline.

#[cfg(target_os = "linux")]
mod acp;
mod agent_cli;
mod claude_sdk;
#[cfg(target_os = "linux")]
mod promptfoo;
#[cfg(unix)]
mod provider;
mod provider_real;
#[cfg(target_os = "linux")]
mod python;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod served;
#[cfg(target_os = "linux")]
mod tool_values;
#[cfg(target_os = "linux")]
mod typescript;
