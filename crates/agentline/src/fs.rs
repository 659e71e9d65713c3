//! Files and directories: reading within limits, digests, and directories that only the user may read.

#[cfg(feature = "host")]
pub(crate) mod bounded_lines;
pub(crate) mod digester;
pub(crate) mod path_bytes;
pub(crate) mod private_dir;
pub(crate) mod space;

pub use agentline_fs::disk_fs;
pub(crate) use agentline_fs::{
    caching_fs, digest, fingerprint, readable, regular_file, remove, stamp, user_dirs,
};
