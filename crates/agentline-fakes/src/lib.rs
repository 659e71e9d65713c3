//! Fake agents with faults on request, for tests.
//!
//! - [`fake_agent`] is a program that replaces Gemini CLI and has faults on request: it writes invalid lines,
//!   hangs, reports false results, floods, crashes or leaves processes behind. `fake-agent --list` names every fault.
//!
//! - [`fake_acp`] is an ACP agent. A prompt scripts its own turn (`say`, `think`, `ask write_file …`), and
//!   there are more than a hundred named faults. `fake-acp-agent --list` names them.
//!
//! Nothing that ships depends on this crate. Everything is blocking and built on threads, so that a fault is exactly
//! the requested one.

mod os;

pub mod fake_acp;
pub mod fake_agent;
