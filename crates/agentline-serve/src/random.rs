//! Random texts that cannot be guessed.

use agentline_fs::digest::hex;

/// Returns 64 characters with at least 240 random bits.
pub(crate) fn random() -> String {
    let mut bytes = [0; 32];
    let parts = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    for (to, part) in bytes.chunks_exact_mut(16).zip(&parts) {
        to.copy_from_slice(part.as_bytes());
    }
    hex(&bytes)
}
