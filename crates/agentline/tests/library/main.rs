//! Tests the library through its public interface.

mod active_runs;
mod examples;
mod opencode_database;
#[cfg(unix)]
mod ordinary_user;
mod settings;
mod snapshot;
mod tools;
