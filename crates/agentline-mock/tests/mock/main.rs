//! Tests the fake agents and the scripted model from outside.

mod fake_acp;
mod fake_agent;
mod scripted_model;
mod scripted_wires;
