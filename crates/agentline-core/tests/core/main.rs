//! Tests the core as a state machine with recorded, invented and damaged runs, and checks its invariants.

mod acp;
mod capture;
mod clocks;
mod configuration_docs;
mod corrections;
mod damage;
mod decoder;
mod gemini_saved;
mod invariants;
mod json_surface;
mod limits;
mod play;
mod rooms;
mod saved_text;
mod secrets;
mod tool_tables;
mod verdicts;
