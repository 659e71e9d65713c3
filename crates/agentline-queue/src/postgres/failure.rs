//! Turns errors of the client and the server into errors of a queue.

use crate::QueueError;
use std::error::Error;
use tokio_postgres::error::SqlState;

/// Describes an error together with its causes.
pub(super) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut parts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        parts.push(cause.to_string());
        source = cause.source();
    }
    parts.dedup();
    // The client says only "db error" before what the server said.
    if parts.len() > 1 && parts[0] == "db error" {
        parts.remove(0);
    }
    parts.join(": ")
}

/// Returns whether a statement was rolled back because of others, so that it can be repeated.
pub(super) fn is_collision(error: &tokio_postgres::Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::T_R_SERIALIZATION_FAILURE) || code == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

/// Classifies the error of a request.
pub(super) fn classify(error: &tokio_postgres::Error) -> QueueError {
    let text = describe(error);
    let Some(code) = error.code().map(SqlState::code) else { return without_code(error, text) };
    match code.get(..2).unwrap_or_default() {
        "28" => QueueError::Unauthorized(text),
        _ if code == SqlState::INVALID_CATALOG_NAME.code() => {
            QueueError::Refused(format!("{text}; create it, for example with `createdb`"))
        }
        // Connections, resources, rollbacks; and interventions such as a shutdown or a timeout.
        "08" | "40" | "53" | "57" => QueueError::Unavailable(text),
        _ if code == SqlState::LOCK_NOT_AVAILABLE.code() => QueueError::Unavailable(text),
        _ => QueueError::Refused(text),
    }
}

/// Classifies an error that did not come from the server. The client does not tell the kind in another way.
fn without_code(error: &tokio_postgres::Error, text: String) -> QueueError {
    match error.to_string().as_str() {
        "authentication error" | "invalid configuration" => QueueError::Unauthorized(text),
        "error performing TLS handshake" if is_cut_off(error) => QueueError::Unavailable(text),
        "error communicating with the server"
        | "error connecting to server"
        | "connection closed"
        | "timeout waiting for server"
        | "unexpected message from server" => QueueError::Unavailable(text),
        _ => QueueError::Refused(text),
    }
}

/// Returns whether the connection ended during a handshake. Otherwise the certificate is at fault.
fn is_cut_off(error: &tokio_postgres::Error) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| {
        io.kind() != std::io::ErrorKind::InvalidData && io.kind() != std::io::ErrorKind::InvalidInput
    })
}

/// Returns whether the server does not offer TLS.
pub(super) fn lacks_tls(error: &tokio_postgres::Error) -> bool {
    error.source().is_some_and(|source| source.to_string() == "server does not support TLS")
}
