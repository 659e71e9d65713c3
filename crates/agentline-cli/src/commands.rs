//! The commands, one file each, with their arguments.

pub(crate) mod agents;
pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod conformance;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod experiment_error;
pub(crate) mod host;
pub(crate) mod install;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod prices;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod stop_signals;
pub(crate) mod trust;
pub(crate) mod undo;
pub(crate) mod worker;
