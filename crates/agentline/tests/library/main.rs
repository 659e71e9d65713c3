//! Tests the library through its public interface.

mod active_runs;
mod errors;
mod settings;
mod snapshot;
mod tools;
#[cfg(unix)]
mod unprivileged_user;
