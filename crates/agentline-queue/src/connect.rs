//! Opens the queue at an address.

use crate::with_artifacts::WithArtifacts;
use crate::{Queue, QueueError};
use std::path::PathBuf;
use std::sync::Arc;

/// How a queue is opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Whether a connection to another machine may be unencrypted.
    pub allow_plaintext: bool,
    /// A file with the certificates of authorities that are trusted in addition to those of the system.
    pub ca: Option<PathBuf>,
    /// A file with credentials for NATS.
    pub credentials: Option<PathBuf>,
    /// Where artifacts are stored, if not in the queue: the path of a directory, or an `s3://` address.
    pub artifacts: Option<String>,
}

/// Opens the queue at an address: `sqlite:PATH`, `nats://HOST`, `tls://HOST` (NATS with TLS) or `postgres://HOST/NAME`.
///
/// # Errors
/// Fails if the address is invalid, or if the queue cannot be reached or refuses the connection.
pub async fn connect(address: &str, options: &ConnectOptions) -> Result<Arc<dyn Queue>, QueueError> {
    WithArtifacts::wrap(open(address, options).await?, options)
}

async fn open(address: &str, options: &ConnectOptions) -> Result<Arc<dyn Queue>, QueueError> {
    let scheme = address.split(':').next().unwrap_or_default();
    let _ = options;
    match scheme {
        #[cfg(feature = "nats")]
        "nats" | "tls" => Ok(Arc::new(crate::NatsQueue::connect(address, options).await?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let path = address.strip_prefix("sqlite:").unwrap_or_default();
            Ok(Arc::new(crate::SqliteQueue::open(std::path::Path::new(path)).await?))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(crate::PostgresQueue::connect(address, options).await?)),
        _ => {
            let reason = "it begins with none of `sqlite:`, `nats://`, `tls://` and `postgres://`".to_owned();
            Err(QueueError::InvalidAddress { address: without_password(address), reason })
        }
    }
}

/// Returns an address without its user, password or token, for messages.
#[must_use]
pub fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_password() {
        for (address, shown) in [
            ("nats://u:p@ss@host:4222/x", "nats://host:4222/x"),
            ("nats://token@host", "nats://host"),
            ("postgres://host/db?user=a@b", "postgres://host/db?user=a@b"),
            ("sqlite:queue.db", "sqlite:queue.db"),
        ] {
            assert_eq!(without_password(address), shown);
        }
    }
}
