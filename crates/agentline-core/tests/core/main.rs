//! Tests the core as a state machine with recorded, invented and damaged runs, and checks its invariants.

mod acp;
mod capture;
mod claude_stream;
mod codex_native;
mod concurrent_runs;
mod configuration_docs;
mod corrections;
mod damaged_recordings;
mod decoder;
mod gemini_saved;
mod invariants;
mod json_surface;
mod limits;
mod play;
mod reasons;
mod saved_records;
mod saved_text;
mod secrets;
mod start_event;
mod timeouts;
mod tool_tables;
mod verdicts;
