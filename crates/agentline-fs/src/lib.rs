//! Reads and writes files for agentline's crates: within limits, without blocking on a pipe or device, and with new
//! files that only their owner may read.
//!
//! The crate has what both the runner (`agentline`) and the saved sessions (`agentline-sessions`) need. Its interface
//! may change in any version.

pub mod caching_fs;
pub mod digest;
pub mod disk_fs;
pub mod file_lock;
pub mod fingerprint;
pub mod private_file;
pub mod readable;
pub mod regular_file;
pub mod remove;
pub mod stamp;
pub mod user_dirs;
