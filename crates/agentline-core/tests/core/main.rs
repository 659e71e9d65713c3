//! The core as a machine: recorded runs, invented ones and damaged ones go in, and what comes out is held to its promises.

mod acp;
mod capture;
mod clocks;
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
mod verdicts;
