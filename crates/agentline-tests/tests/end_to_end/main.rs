//! Tests agentline end to end, with the real agents, with tapes of them and with fake agents.
//!
//! The suites are modules of one program: it is linked once, and the suites overlap. To run one of them:
//! `cargo test -p agentline-tests --test end_to_end attacks::`. Tests start in the order of their names, so the suite
//! of the longest tests has the first name and that of the shortest tests the last one: at the end, no long test runs
//! alone.

#[cfg(target_os = "linux")]
mod agent_conformance;
mod agents;
#[cfg(unix)]
mod attacks;
mod cli;
mod clients;
mod fakes;
