//! Tests agentline with the real agents, and with tapes recorded from them.

mod acp_agents;
mod acp_first;
#[cfg(unix)]
mod acp_gemini;
#[cfg(target_os = "linux")]
mod cache_gemini;
mod first_path;
#[cfg(target_os = "linux")]
mod gemini_flood;
mod gemini_keys;
mod gemini_launch;
mod gemini_ledger;
mod gemini_limits;
mod gemini_live;
mod gemini_output;
#[cfg(target_os = "linux")]
mod gemini_processes;
mod gemini_rules;
mod gemini_verdicts;
mod messages_of_a_run;
mod opencode_sessions;
#[cfg(target_os = "linux")]
mod ordinary_user;
#[cfg(target_os = "linux")]
mod pool_gemini;
mod saved_sessions;
