//! Drives coding-agent command-line tools and tells the truth about what they did.

pub mod cache;
pub mod detect;
pub mod install;
pub mod look;
pub mod process;
pub mod snapshot;
