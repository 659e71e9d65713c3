//! Scripted models on loopback and fake agents that misbehave on command.
//!
//! Four things are here, both made for tests, for demos and for people who test their own pipelines:
//!
//! - [`gemini::ScriptedModel`] is a Gemini API on `127.0.0.1` that plays a [`gemini::Script`]. A real Gemini CLI
//!   talks to it as if it were Google's server, so a whole run costs nothing and ends the same way each time.
//!
//! ```no_run
//! use agentline_mock::gemini::{Script, ScriptedModel, Step};
//! use serde_json::json;
//!
//! let model = ScriptedModel::start(Script::new([
//!     Step::call("write_file", json!({"file_path": "hello.txt", "content": "hi\n"})),
//!     Step::text("All done. 4"),
//! ]))?;
//! // Run the agent with the variables of `model.env()`, then look at what it asked for:
//! assert_eq!(model.requests_to_main().len(), 2);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! - [`openai`], [`anthropic`] and [`responses`] are the same for the APIs of other agents, with fewer words.
//!
//! - [`fake_agent`] is a program that passes for Gemini CLI and misbehaves on command: it writes broken lines,
//!   hangs, lies, floods, crashes, leaves processes behind. `fake-agent --list` names every fault.
//!
//! - [`fake_acp`] is an agent that speaks ACP. A prompt scripts its own turn (`say`, `think`, `ask write_file …`), and
//!   more than a hundred named faults make it err. `fake-acp-agent --list` names them.
//!
//! Everything is blocking and built on threads and on a hand-written HTTP/1.1, so that a fault (a connection that
//! drops after the first chunk, a server that never answers) is exactly the fault that was asked for.

mod http;
mod os;
mod server;

pub mod anthropic;
pub mod demo;
pub mod fake_acp;
pub mod fake_agent;
pub mod gemini;
pub mod openai;
pub mod responses;
pub mod scripted;
