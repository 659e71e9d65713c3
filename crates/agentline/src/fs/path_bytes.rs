//! Paths as bytes with `/` as separator, on each operating system.

use std::path::PathBuf;

/// Appends the bytes of a path with `/` as separator.
#[cfg(unix)]
pub(crate) fn push_path_bytes(path: &std::ffi::OsStr, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(path.as_encoded_bytes());
}

#[cfg(not(unix))]
pub(crate) fn push_path_bytes(path: &std::ffi::OsStr, bytes: &mut Vec<u8>) {
    bytes.extend(path.to_string_lossy().bytes().map(|byte| if byte == b'\\' { b'/' } else { byte }));
}

#[cfg(unix)]
pub(crate) fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;

    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(not(unix))]
pub(crate) fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}
