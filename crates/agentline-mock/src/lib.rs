//! Scripted models on loopback, for demos, for tests and for testing other pipelines.
//!
//! - [`gemini::GeminiModel`] is a Gemini API on `127.0.0.1` that plays a [`gemini::Script`]. A real Gemini CLI
//!   uses it like Google's server, so a whole run costs nothing and is deterministic.
//!
//! ```no_run
//! use agentline_mock::gemini::{Script, GeminiModel, GeminiStep};
//! use serde_json::json;
//!
//! let model = GeminiModel::start(Script::new([
//!     GeminiStep::call("write_file", json!({"file_path": "hello.txt", "content": "hi\n"})),
//!     GeminiStep::text("All done. 4"),
//! ]))?;
//! // Run the agent with the variables of `model.env()`, then inspect its requests:
//! assert_eq!(model.requests_to_main().len(), 2);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! - [`openai`], [`anthropic`] and [`responses`] do the same for the APIs of other agents, with fewer options.
//! - [`agents::ScriptedAgent`] serves any of these agents with the same [`answer::Answer`]s.
//!
//! Everything is blocking and built on threads and on a minimal HTTP/1.1 implementation, so that a fault (a connection
//! that drops after the first chunk, a server that never answers) is exactly the requested one.

mod http;
mod server;

pub mod agents;
pub mod answer;
pub mod anthropic;
pub mod demo;
pub mod gemini;
pub mod openai;
pub mod responses;
pub mod scripted;
pub mod step;
