//! Files and directories: reading within limits, digests, and directories that only the user may read.

pub(crate) mod bounded_lines;
pub(crate) mod cache_dir;
pub(crate) mod caching_fs;
pub(crate) mod digest;
pub mod disk_fs;
pub(crate) mod fingerprint;
pub(crate) mod private_dir;
pub(crate) mod regular_file;
pub(crate) mod space;
pub(crate) mod stamp;
