//! The address of a server, and whether connections to it are encrypted.

use crate::options::{UNENCODED, has_unencoded_password};
use crate::{ConnectOptions, QueueError, without_password};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long the connection to one address of the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the server is and how to connect to it.
pub(super) struct ServerAddress {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// The address for messages, without the password and the parameters.
    pub(super) shown: String,
}

impl ServerAddress {
    /// Reads an address. `PGPASSWORD` is the password if it has none.
    pub(super) fn parse(address: &str, options: &ConnectOptions) -> Result<Self, QueueError> {
        let shown = without_password(address);
        let invalid = |reason: String| QueueError::InvalidAddress { address: shown.clone(), reason };
        let has_password = has_unencoded_password(address);
        // What the parser does not understand may be a part of the password.
        let describe = |error: &tokio_postgres::Error| {
            if has_password { UNENCODED.to_owned() } else { super::failure::describe(error) }
        };
        let (address, mode) = take_ssl_mode(address);
        let mut config: Config =
            address.parse().map_err(|error: tokio_postgres::Error| invalid(describe(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("it has no host".to_owned()));
        }
        let mode = match mode.as_deref() {
            Some(mode) => Some(ssl_mode(mode).map_err(&invalid)?),
            None => None,
        };
        let Some(mode) = choose(&config, mode, options) else { return Err(QueueError::Plaintext(shown)) };
        if config.get_password().is_none()
            && let Some(password) = std::env::var_os("PGPASSWORD")
        {
            config.password(password.as_encoded_bytes());
        }
        if config.get_application_name().is_none() {
            config.application_name("agentline");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        config.ssl_mode(mode);
        let tls = client_config(mode, options.ca.as_deref()).map_err(&invalid)?;
        Ok(Self { config, tls: MakeRustlsConnect::new(tls), shown })
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerAddress").field(&self.shown).finish()
    }
}

/// Separates `sslmode` from an address, because the client does not know all of its values.
fn take_ssl_mode(address: &str) -> (String, Option<String>) {
    let Some((base, query)) = address.split_once('?') else { return (address.to_owned(), None) };
    let (modes, others): (Vec<&str>, Vec<&str>) =
        query.split('&').partition(|parameter| parameter.starts_with("sslmode="));
    let mode = modes.last().and_then(|mode| mode.split_once('=')).map(|(_, mode)| mode.to_owned());
    let rest = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
    (rest, mode)
}

fn ssl_mode(mode: &str) -> Result<SslMode, String> {
    match mode {
        "disable" => Ok(SslMode::Disable),
        "allow" | "prefer" => Ok(SslMode::Prefer),
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        _ => Err(format!("`sslmode={mode}` is unknown; use `disable`, `prefer`, `require` or `verify-full`")),
    }
}

/// Decides about TLS; `None` if the connection would be unencrypted and that is not allowed.
fn choose(config: &Config, mode: Option<SslMode>, options: &ConnectOptions) -> Option<SslMode> {
    if is_local(config) {
        // A server on this machine often has a certificate that nothing trusts, and its connections cannot be
        // read on the way.
        let default = if options.ca.is_some() { SslMode::Prefer } else { SslMode::Disable };
        return Some(if has_only_sockets(config) { SslMode::Disable } else { mode.unwrap_or(default) });
    }
    match mode {
        _ if options.allow_plaintext => Some(mode.unwrap_or(SslMode::Prefer)),
        Some(SslMode::Disable) => None,
        _ => Some(SslMode::Require),
    }
}

/// Returns whether all connections stay on this machine.
fn is_local(config: &Config) -> bool {
    if !config.get_hostaddrs().is_empty() {
        return config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}

fn has_only_sockets(config: &Config) -> bool {
    config.get_hostaddrs().is_empty() && !config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)))
}

/// Returns how TLS verifies the server: with the certificates of the system, and those of a file.
fn client_config(mode: SslMode, ca: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if mode != SslMode::Disable {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = ca {
            let unreadable = |error: &dyn fmt::Display| format!("cannot read `{}`: {error}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
                let certificate = certificate.map_err(|error| unreadable(&error))?;
                roots.add(certificate).map_err(|error| unreadable(&error))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(address: &str, allow_plaintext: bool, ca: bool) -> Result<SslMode, QueueError> {
        let ca = ca.then(|| Path::new("/dev/null").to_owned());
        let options = ConnectOptions { allow_plaintext, ca, ..ConnectOptions::default() };
        ServerAddress::parse(address, &options).map(|address| address.config.get_ssl_mode())
    }

    #[test]
    fn connections_to_other_machines_are_encrypted_unless_plaintext_is_allowed() {
        for (address, mode) in [
            ("postgres://u@127.0.0.1/db", SslMode::Disable),
            ("postgres://u@127.0.0.1/db?sslmode=prefer", SslMode::Prefer),
            ("postgresql://u@[::1]:5433/db", SslMode::Disable),
            ("postgres://u@localhost/db?sslmode=verify-full&connect_timeout=3", SslMode::Require),
            ("postgres:///db?host=/run/postgresql&user=u", SslMode::Disable),
            ("postgres://u@db.example/db", SslMode::Require),
            ("postgres://u@db.example/db?sslmode=prefer", SslMode::Require),
            ("postgres://u@127.0.0.1,db.example/db", SslMode::Require),
            ("postgres://u@localhost/db?hostaddr=10.0.0.1", SslMode::Require),
        ] {
            assert_eq!(parse(address, false, false).expect("an address"), mode, "{address}");
        }
        let plain = "postgres://u:secret@db.example/db?sslmode=disable&password=secret";
        let error = parse(plain, false, false).expect_err("plaintext");
        assert_eq!(error.to_string(), "the connection to `postgres://db.example/db` would not be encrypted");
        assert_eq!(parse(plain, true, false).expect("allowed"), SslMode::Disable);
        assert_eq!(parse("postgres://u@db.example/db", true, false).expect("allowed"), SslMode::Prefer);
        assert_eq!(parse("postgres://u@localhost/db", false, true).expect("an address"), SslMode::Prefer);
    }

    #[test]
    fn invalid_addresses_are_refused_without_their_password() {
        for address in [
            "postgres://u:secret@/db",
            "postgres://u:secret@localhost:x/db",
            "postgres://u:secret@localhost/db?sslmode=maybe",
            "postgres://u:secret@localhost/db?password=secret&colour=red",
            "postgres://u:a/secret@localhost/db?sslmode=maybe",
        ] {
            let error = parse(address, false, false).expect_err(address);
            assert!(matches!(error, QueueError::InvalidAddress { .. }), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
