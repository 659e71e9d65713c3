//! Tests agentline with the real agents, and with tapes recorded from them.

pub(crate) mod acp_agents;
#[cfg(unix)]
mod acp_gemini;
#[cfg(target_os = "linux")]
mod cache_gemini;
#[cfg(target_os = "linux")]
mod claude_native;
#[cfg(target_os = "linux")]
mod codex_native;
#[cfg(target_os = "linux")]
mod downloads;
#[cfg(unix)]
mod gemini_acp_launch;
mod gemini_changes;
#[cfg(target_os = "linux")]
mod gemini_flood;
mod gemini_headless;
mod gemini_keys;
mod gemini_launch;
mod gemini_limits;
mod gemini_output;
#[cfg(target_os = "linux")]
mod gemini_processes;
#[cfg(unix)]
mod gemini_resume;
mod gemini_rules;
mod gemini_verdicts;
mod library_examples;
#[cfg(target_os = "linux")]
mod mcp_clients;
mod opencode_native;
mod opencode_sessions;
#[cfg(target_os = "linux")]
mod pool_gemini;
mod run_messages;
mod saved_sessions;
mod tapes;
#[cfg(target_os = "linux")]
mod unprivileged_user;
