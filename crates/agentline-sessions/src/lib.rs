//! Finds, lists, reads, searches, counts, follows and renders the sessions that a user's coding agents have saved.
//!
//! A [`SessionStore`] finds the sessions of each agent. It reads files and databases, and never changes them; only
//! [`Transplant`] adds a new session. Sessions of all agents have one form, `SavedSession` of `agentline-core`.
//!
//! ```
//! use agentline_core::{PriceTable, agents::built_in};
//! use agentline_sessions::{Query, SessionFilter, SessionStore, render};
//! use std::{collections::BTreeMap, fs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A home directory with one session of Claude Code. `SessionStore::from_env` reads those of the current user.
//! let home = tempfile::tempdir()?;
//! let project = home.path().join(".claude/projects/-work");
//! fs::create_dir_all(&project)?;
//! fs::write(
//!     project.join("11111111-aaaa-4000-8000-000000000001.jsonl"),
//!     r#"{"type":"user","uuid":"u1","sessionId":"11111111-aaaa-4000-8000-000000000001","cwd":"/work","timestamp":"2026-11-15T04:01:00.000Z","message":{"role":"user","content":"Name a prime."}}
//! {"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"11111111-aaaa-4000-8000-000000000001","timestamp":"2026-11-15T04:02:00.000Z","message":{"id":"m1","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"Seven."}],"usage":{"input_tokens":9,"output_tokens":3}}}
//! "#,
//! )?;
//! let store = SessionStore::new(built_in(), BTreeMap::new(), home.path());
//!
//! let listed = store.list(&SessionFilter::new())?;
//! assert_eq!((listed[0].title.as_deref(), listed[0].answers), (Some("Name a prime."), 1));
//! assert_eq!(store.search(&Query::new(["seven"]))?.len(), 1);
//!
//! let session = store.load(&store.find("11111111", home.path())?)?;
//! let tree = render::SessionTree::new(&session, &[], &PriceTable::built_in());
//! let mut page = Vec::new();
//! render::markdown(&mut page, &tree, render::SessionDetail::default(), &render::TimeFormat::utc())?;
//! assert!(String::from_utf8(page)?.contains("Seven."));
//! # Ok(())
//! # }
//! ```
//!
//! Facts about sessions are kept in one index file, if the store has a directory for it. An index entry is valid only
//! while the files it describes are unchanged. All functions block.
//!
//! # Features
//!
//! - `render` (default): the module `render`, which writes a session as text, Markdown or an HTML page.
//! - `tokio`: `SessionWatch::next`, which waits for changes in a tokio runtime. Without it, call
//!   [`SessionWatch::poll`] at intervals.

mod candidate;
mod database;
mod error;
mod facts;
mod filter;
mod find;
mod gather;
mod index;
mod lines;
mod list;
mod load;
mod location;
mod project;
#[cfg(feature = "render")]
pub mod render;
mod scan;
mod search;
pub mod sqlite;
mod stamp;
mod store;
mod temporary_store;
mod transplant;
mod usage;
mod watch;

pub use error::SessionError;
pub use filter::SessionFilter;
pub use list::Summary;
pub use location::{FoundSession, SessionLocation};
pub use search::{Case, Hit, HitPlace, Query, SearchResult};
pub use store::SessionStore;
pub use transplant::{Transplant, TransplantOptions};
pub use usage::{UsageBy, UsageRow};
pub use watch::{SessionChange, SessionWatch};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctest;
