//! Errors of a queue.

/// An error of a queue.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The address is not that of a queue.
    #[error("`{address}` is not the address of a queue: {reason}")]
    InvalidAddress {
        /// The address, without a password.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// A name contains characters that it must not have.
    #[error("`{0}` is not a name: use letters, digits, `-` and `_`, at most 200 characters")]
    InvalidName(String),
    /// The connection would not be encrypted.
    #[error("the connection to `{0}` would not be encrypted")]
    Plaintext(String),
    /// The server is too old.
    #[error("{server} {found} is too old; {needed} or newer is needed")]
    TooOld {
        /// The name of the server's software.
        server: String,
        /// Its version.
        found: String,
        /// The oldest supported version.
        needed: String,
    },
    /// The server refused the user.
    #[error("the queue refused the sign-in: {0}")]
    Unauthorized(String),
    /// The queue cannot be reached, or it did not answer in time. The same request may succeed later.
    #[error("the queue cannot be reached: {0}")]
    Unavailable(String),
    /// The place of artifacts cannot be used, and it stays so until somebody changes it.
    #[error("artifacts cannot be stored or read: {0}")]
    Storage(String),
    /// The queue refused a request, and would refuse it again.
    #[error("the queue refused a request: {0}")]
    Refused(String),
    /// Another worker has claimed the job, or it has a result.
    #[error("the claim has ended: another worker has the job")]
    LeaseLost,
    /// Another writer changed the record since it was read.
    #[error("the record `{0}` has been changed by another writer")]
    Conflict(String),
    /// A value is larger than the queue accepts.
    #[error("{what} has {size} bytes; at most {most} are possible")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The largest possible size in bytes.
        most: u64,
    },
    /// An artifact does not have the content that its name says.
    #[error("the artifact `{0}` is damaged")]
    Damaged(String),
}

impl QueueError {
    /// Returns whether the same request may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}
