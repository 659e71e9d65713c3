//! A conformance kit: runs the same scenarios on every agent, surface and version, against scripted models, and reports
//! where they differ.
//!
//! A [`Scenario`] says what the model answers, what the request is, and what the outcome must be, once for all agents.
//! Where an agent forces a difference, [`exceptions`] lists it with its reason. [`run`] plays scenarios on each
//! [`TestedSurface`] and returns a [`Matrix`].
//!
//! Agents run with a private home, no real key, and a model on loopback.

mod bench;
mod compare;
pub mod exceptions;
mod expected;
mod kit;
mod matrix;
mod observed;
mod page;
mod play;
mod processes;
mod scenario;
pub mod scenarios;
mod script;
mod target;

pub use exceptions::Exception;
pub use expected::{Aspect, Difference};
pub use kit::{Progress, is_supported, run};
pub use matrix::{Cell, CellStatus, Matrix};
pub use page::updated_page;
pub use scenario::{Group, Scenario, Tier};
pub use target::{TargetError, TestedSurface};
