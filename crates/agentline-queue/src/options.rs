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

/// Returns an address without its user, password, token and parameters, for messages.
///
/// A password may contain `/`, `?` and `@` that should have been encoded, so nothing before the last `@` is shown.
#[must_use]
pub fn without_password(address: &str) -> String {
    if address.starts_with("sqlite:") {
        return address.to_owned();
    }
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.split_once(':').map_or_else(|| "…".into(), |(scheme, _)| format!("{scheme}:…"));
    };
    let (secret, shown) = rest.rsplit_once('@').unwrap_or(("", rest));
    // The last `@` may be in a parameter, and what follows it part of a password.
    if secret.split_once('?').is_some_and(|(_, parameters)| parameters.contains('=')) {
        return format!("{scheme}://…");
    }
    format!("{scheme}://{}", shown.split('?').next().unwrap_or_default())
}

/// Returns whether the user or password of an address contains `/` or `?`, which end the name of the host.
pub(crate) fn has_unencoded_password(address: &str) -> bool {
    let rest = address.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    rest.contains('@') && !authority.contains('@')
}

/// What is wrong with an address whose password is not encoded.
pub(crate) const UNENCODED: &str =
    "a password with `/`, `?`, `#` or `@` must be written with `%2F`, `%3F`, `%23` or `%40`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_password() {
        for (address, shown) in [
            ("nats://u:p@ss@host:4222/x", "nats://host:4222/x"),
            ("nats://token@host", "nats://host"),
            ("nats://u:p/a@ss@host:4222/x", "nats://host:4222/x"),
            ("nats://u:p?ss@host:4222", "nats://host:4222"),
            ("postgres://u:a/b?c=d@host/db", "postgres://…"),
            ("postgres://host/db?password=se@cret", "postgres://…"),
            ("postgres://host/db?password=secret", "postgres://host/db"),
            ("nats:u:secret@host", "nats:…"),
            ("host=db password=secret", "…"),
            ("sqlite:queue.db", "sqlite:queue.db"),
        ] {
            assert_eq!(without_password(address), shown);
        }
    }
}
