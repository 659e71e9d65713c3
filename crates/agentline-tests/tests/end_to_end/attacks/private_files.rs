//! Checks that private directories are private, locked and intact while a process uses them.

#[cfg(target_os = "linux")]
mod locks;
#[cfg(target_os = "linux")]
mod modes;
#[cfg(target_os = "linux")]
mod resumed;
#[cfg(target_os = "linux")]
mod tampering;
