//! Computes a digest of a sequence of values. The input may be secret; the digest is not.

use sha2::{Digest, Sha256};

/// An incremental digest of text, numbers and bytes.
#[derive(Default)]
pub(crate) struct Digester(Sha256);

impl Digester {
    /// Adds bytes, preceded by their length, so that adjacent values cannot be confused.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    pub(crate) fn number(&mut self, number: usize) {
        self.0.update(number.to_le_bytes());
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

impl std::fmt::Write for Digester {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
