//! Drives coding-agent command-line tools and tells the truth about what they did.

pub mod process;
pub mod snapshot;
