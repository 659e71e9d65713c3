//! Tests the fake agents from outside.

mod fake_acp;
mod fake_agent;
