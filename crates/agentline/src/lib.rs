//! Drives coding-agent command-line tools and reports what they did: the answer, the files that changed, the cost, and
//! whether the run succeeded.

mod agentline;
mod api;
pub mod blocking;
pub mod cache;
mod compat;
pub mod detect;
pub mod doctor;
mod error;
mod fs;
pub mod host;
pub mod install;
mod pool;
pub mod process;
mod resolve;
mod run;
pub mod schema;
#[cfg(feature = "sessions")]
pub mod sessions;
pub mod settings;
pub mod tools;
mod workspace;

pub use crate::agentline::Agentline;
pub use crate::compat::provider::{Provider, ProviderError, ProviderResult};
pub use crate::compat::{agent_cli, provider};
pub use crate::fs::disk_fs;
#[cfg(unix)]
pub use crate::host::daemon;
pub use crate::resolve::attachments;
pub use crate::run::messages::{Completer, MessageSource, RunMessages};
pub use crate::run::options::RunOptions;
pub use crate::run::requests::{HandledRequest, Permission, PermissionHandler, RequestHandler};
pub use crate::run::session::Session;
pub use crate::run::typed::{Typed, TypedError, run_typed};
pub use crate::run::{completion, validate};
pub use crate::workspace::{files, snapshot, trust};
pub use agentline_core as core;
pub use agentline_core::*;
pub use error::Error;
pub use pool::{Pool, PoolOptions, PoolStatus, ProcessStatus};
pub use run::{Canceller, Launched, Run};
pub use schema::Schema;

/// Compiles the examples of the README and the documentation pages.
#[cfg(all(doctest, feature = "sessions"))]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/conversations.md")]
#[doc = include_str!("../../../docs/tools.md")]
#[doc = include_str!("../../../docs/pool.md")]
#[doc = include_str!("../../../docs/coming-from.md")]
struct PagesDoctests;
