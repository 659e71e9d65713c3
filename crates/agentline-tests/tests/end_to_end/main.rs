//! Tests agentline end to end, with the real agents, with tapes of them and with fake agents.
//!
//! The suites are modules of one program: it is linked once, and the suites overlap. To run one of them:
//! `cargo test -p agentline-tests --test end_to_end hostile::`.

mod agents;
mod cli;
mod fakes;
#[cfg(unix)]
mod hostile;
mod integrations;
