//! Opens the queue at an address.

use crate::with_artifacts::WithArtifacts;
use crate::{ConnectOptions, Queue, QueueError, without_password};
use std::sync::Arc;

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
