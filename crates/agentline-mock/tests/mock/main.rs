//! Tests the scripted models from outside.

mod scripted_model;
mod scripted_wires;
