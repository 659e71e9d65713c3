//! Drives coding-agent command-line tools and reports what they did: the answer, the files that changed, the cost, and
//! whether the run succeeded.

mod abandoned;
mod active_run;
pub mod agent_cli;
mod agentline;
mod answer;
pub mod attach;
pub mod blocking;
mod bounded_lines;
pub mod cache;
#[cfg(unix)]
pub mod daemon;
pub mod detect;
mod digest;
pub mod doctor;
mod drive;
mod equip;
mod error;
pub mod files;
mod finds;
mod follow;
pub mod host;
pub mod install;
mod integrity;
mod link;
mod live;
pub mod look;
mod look_once;
mod options;
mod pool;
mod prepare;
mod private_dir;
pub mod process;
pub mod provider;
mod ready;
mod regular_file;
pub mod review;
mod run;
mod run_messages;
pub mod schema;
mod seen;
mod services;
mod session;
mod session_cleanup;
pub mod sessions;
pub mod settings;
pub mod snapshot;
mod tape_file;
mod temp_dir;
mod told;
pub mod tools;
mod typed;
pub mod until;
mod watchdog;
mod workspace;
pub mod workspace_trust;

pub use crate::agentline::Agentline;
pub use crate::answer::{HandledRequest, Permission, PermissionHandler, RequestHandler};
pub use agentline_core as core;
pub use agentline_core::*;
pub use error::Error;
pub use options::RunOptions;
pub use pool::{Pool, PoolOptions, PoolStatus, ProcessStatus};
pub use provider::{Provider, ProviderError, ProviderResult};
pub use run::{Canceller, Launched, Run};
pub use run_messages::{Completer, MessageSource, RunMessages};
pub use schema::Schema;
pub use session::Session;
pub use typed::{Typed, TypedError, run_typed};

/// Compiles the examples of the README and the documentation pages.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/conversations.md")]
#[doc = include_str!("../../../docs/tools.md")]
#[doc = include_str!("../../../docs/pool.md")]
#[doc = include_str!("../../../docs/coming-from.md")]
struct PagesDoctests;
