//! A long-lived agentline process for programs in any language: JSON-RPC 2.0, one message per line, over two streams.
//!
//! The program (the *host*) sends requests. Runs report their events as notifications and send requests of their own to
//! the host: permission to use a tool, a call to a host function, a check whether the task is complete. All runs of a
//! host share one pool of warm agents. `docs/host-protocol.md` describes the protocol; [`messages`] has its types.

mod conversations;
#[cfg(unix)]
pub mod daemon;
mod error;
mod lookup_messages;
mod lookups;
pub mod messages;
mod open_conversations;
mod outbox;
mod params;
mod peer;
mod registered_run;
mod run_stop;
mod runs;
#[cfg(feature = "sessions")]
mod saved_sessions;
mod serve;
mod work_guard;

pub use serve::{HostOptions, serve};
