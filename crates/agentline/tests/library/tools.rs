//! Tests tools of a host, and the relay of MCP servers, called over HTTP as an agent calls them.
#![expect(clippy::unwrap_used, reason = "a test must fail if its setup fails")]

mod client;
mod host;
mod offer;
mod relay;
