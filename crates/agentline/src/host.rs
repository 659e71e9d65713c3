//! One long-lived agentline for a program in any language: JSON-RPC 2.0, a line a message, over two streams.
//!
//! The program (the *host*) sends requests; runs tell their events by notifications, and ask the host by requests of
//! their own: may this tool run, what does this function of yours answer, is the task complete. All runs of a host share one
//! pool of warm agents. `docs/host-protocol.md` has the protocol; [`messages`] are its types.

mod broker;
mod lookups;
pub mod messages;
mod outbox;
mod peer;
mod runs;
mod serve;
mod talks;

pub use serve::{HostOptions, serve};
