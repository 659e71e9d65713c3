//! How a queue is opened.

use std::path::PathBuf;

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
