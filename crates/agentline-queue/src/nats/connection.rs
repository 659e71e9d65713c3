//! Opens connections: addresses, encryption and sign-in.

use super::requests::{TIMEOUT, unavailable};
use super::version::check_version;
use crate::options::{UNENCODED, has_unencoded_password};
use crate::{ConnectOptions, QueueError, without_password};
use async_nats::rustls::pki_types::{CertificateDer, pem::PemObject};
use async_nats::rustls::{ClientConfig, RootCertStore, crypto::ring};
use async_nats::{Client, ConnectError, ConnectErrorKind, Event, ServerAddr};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;

/// How often the server is asked for a sign of life. After three without an answer, the client connects again.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to connect again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The parts of an address.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    is_tls: bool,
    user: Option<String>,
    password: Option<String>,
    /// Hosts of one cluster, with their ports.
    servers: Vec<String>,
}

/// Connects to a server. Also returns how often the connection has ended.
pub(super) async fn open(
    address: &str,
    options: &ConnectOptions,
) -> Result<(Client, watch::Receiver<u64>), QueueError> {
    let parsed = Address::parse(address)?;
    let addresses = parsed.server_addresses(address)?;
    let is_local = addresses.iter().all(|server| is_loopback(server.host()));
    let needs_tls = parsed.is_tls || !(is_local || options.allow_plaintext);
    let (ended, ends) = watch::channel(0);
    let mut connect = async_nats::ConnectOptions::new()
        .name("agentline")
        .event_callback(move |event| {
            if matches!(event, Event::Disconnected) {
                ended.send_modify(|count| *count += 1);
            }
            std::future::ready(())
        })
        .connection_timeout(TIMEOUT)
        .request_timeout(Some(TIMEOUT))
        .ping_interval(PING_INTERVAL)
        .require_tls(needs_tls)
        .tls_client_config(tls_config(options.ca.as_deref())?)
        .max_reconnects(None)
        .reconnect_delay_callback(pause);
    if !needs_tls && !options.allow_plaintext {
        // Other servers of the cluster are not on this machine, and the connection to them would not be encrypted.
        connect = connect.ignore_discovered_servers();
    }
    connect = match (parsed.user, parsed.password) {
        (Some(user), Some(password)) => connect.user_and_password(user, password),
        (Some(token), None) => connect.token(token),
        _ => connect,
    };
    if let Some(file) = &options.credentials {
        connect = connect.credentials_file(file).await.map_err(|error| {
            QueueError::Unauthorized(format!("the credentials file `{}`: {error}", file.display()))
        })?;
    }
    let connected = tokio::time::timeout(2 * TIMEOUT, connect.connect(addresses.clone())).await;
    let client = match connected {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => {
            let is_plaintext = needs_tls && has_no_tls(&addresses).await;
            return Err(describe(address, &error, is_plaintext));
        }
        Err(_) => {
            let reason = format!("`{}` did not answer in time", without_password(address));
            return Err(QueueError::Unavailable(reason));
        }
    };
    check_version(&client.server_info().version)?;
    Ok((client, ends))
}

impl Address {
    fn parse(address: &str) -> Result<Self, QueueError> {
        let invalid = |reason: &str| QueueError::InvalidAddress {
            address: without_password(address),
            reason: reason.to_owned(),
        };
        let (scheme, rest) = address.split_once("://").ok_or_else(|| invalid("it has no `://`"))?;
        if has_unencoded_password(address) {
            return Err(invalid(UNENCODED));
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (Some(user_info), hosts),
            None => (None, authority),
        };
        if hosts.split(',').any(str::is_empty) {
            return Err(invalid("it names no host"));
        }
        let (user, password) = match user_info.map(|info| info.split_once(':').ok_or(info)) {
            Some(Ok((user, password))) => (Some(user), Some(password)),
            Some(Err(token)) => (Some(token), None),
            None => (None, None),
        };
        let decode =
            |text: &str| percent_decode(text).ok_or_else(|| invalid("`%` is not followed by two digits"));
        Ok(Self {
            is_tls: scheme == "tls",
            user: user.map(decode).transpose()?,
            password: password.map(decode).transpose()?,
            servers: hosts.split(',').map(str::to_owned).collect(),
        })
    }

    fn server_addresses(&self, address: &str) -> Result<Vec<ServerAddr>, QueueError> {
        let scheme = if self.is_tls { "tls" } else { "nats" };
        let parse = |server: &String| {
            format!("{scheme}://{server}").parse::<ServerAddr>().map_err(|error| QueueError::InvalidAddress {
                address: without_password(address),
                reason: error.to_string(),
            })
        };
        self.servers.iter().map(parse).collect()
    }
}

/// Replaces `%XX`.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend(parts.next()?.bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(part.get(2..)?.bytes());
    }
    String::from_utf8(bytes).ok()
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Trusts the authorities of the system and those in a file.
fn tls_config(ca: Option<&Path>) -> Result<ClientConfig, QueueError> {
    let mut roots = RootCertStore::empty();
    // A machine without certificates can still use those of the file.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca {
        let invalid = |error: &dyn std::fmt::Display| {
            QueueError::Refused(format!("the certificates in `{}`: {error}", file.display()))
        };
        let certificates = CertificateDer::pem_file_iter(file).map_err(|error| invalid(&error))?;
        for certificate in certificates {
            roots.add(certificate.map_err(|error| invalid(&error))?).map_err(|error| invalid(&error))?;
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(unavailable)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn pause(attempt: usize) -> Duration {
    let exponent = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
    if attempt <= 1 {
        Duration::ZERO
    } else {
        (Duration::from_millis(10) * 2_u32.pow(exponent)).min(LONGEST_PAUSE)
    }
}

/// Returns whether a server says that it has no TLS.
async fn has_no_tls(servers: &[ServerAddr]) -> bool {
    let read = |server: ServerAddr| async move {
        let connection = tokio::net::TcpStream::connect((server.host(), server.port())).await.ok()?;
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line).await.ok()?;
        let info: serde_json::Value = serde_json::from_str(line.strip_prefix("INFO ")?).ok()?;
        Some(["tls_required", "tls_available"].iter().all(|key| info[key] != true))
    };
    for server in servers {
        if let Ok(Some(true)) = tokio::time::timeout(TIMEOUT, read(server.clone())).await {
            return true;
        }
    }
    false
}

fn describe(address: &str, error: &ConnectError, is_plaintext: bool) -> QueueError {
    let shown = without_password(address);
    match error.kind() {
        _ if is_plaintext => QueueError::Plaintext(shown),
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            QueueError::Unauthorized(error.to_string())
        }
        ConnectErrorKind::ServerParse => {
            QueueError::InvalidAddress { address: shown, reason: error.to_string() }
        }
        ConnectErrorKind::Tls => QueueError::Refused(format!("`{shown}`: {error}")),
        _ if is_certificate_error(error) => QueueError::Refused(format!("`{shown}`: {error}")),
        _ => QueueError::Unavailable(format!("`{shown}`: {error}")),
    }
}

/// Returns whether the certificate of the server is not trusted, which does not change by trying again.
fn is_certificate_error(error: &ConnectError) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.to_string().contains("certificate") {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_into_their_parts() {
        let parsed = Address::parse("tls://u%40x:p%2Fw@a:1,b").expect("an address");
        let expected = Address {
            is_tls: true,
            user: Some("u@x".into()),
            password: Some("p/w".into()),
            servers: vec!["a:1".into(), "b".into()],
        };
        assert_eq!(parsed, expected);
        let parsed = Address::parse("nats://token@host/").expect("an address");
        assert_eq!((parsed.user.as_deref(), parsed.password), (Some("token"), None));
        for address in
            ["nats://", "nats://u:p@", "nats:host", "nats://a,,b", "nats://%4@host", "nats://u:1/2@host"]
        {
            Address::parse(address).expect_err("no address");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example", "10.0.0.1", "example.com", "0.0.0.0", "::"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    /// Answers the first requests of a client as a server of this version, and then ends the connection if it is to.
    async fn greet(listener: &tokio::net::TcpListener, version: &str, ends: bool) {
        use tokio::io::AsyncWriteExt;
        let (stream, _) = listener.accept().await.expect("a client");
        let (read, mut write) = stream.into_split();
        let info = serde_json::json!({
            "server_id": "s", "server_name": "s", "version": version, "go": "", "host": "127.0.0.1", "port": 1,
            "max_payload": 1_048_576, "proto": 1, "client_id": 1, "headers": true, "client_ip": "127.0.0.1",
        });
        write.write_all(format!("INFO {info}\r\n").as_bytes()).await.expect("a write");
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if line.starts_with("PING") {
                write.write_all(b"PONG\r\n").await.expect("a write");
                if ends {
                    return;
                }
            }
        }
    }

    #[tokio::test]
    async fn older_server_is_refused_after_the_connection_to_another_one() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("nats://{}", listener.local_addr().expect("an address"));
        let servers = tokio::spawn(async move {
            greet(&listener, "2.10.0", true).await;
            greet(&listener, "2.9.10", false).await;
        });
        let (client, mut ends) = open(&address, &ConnectOptions::default()).await.expect("a connection");
        let requests = super::super::requests::Requests::new(client, ends.clone());
        ends.wait_for(|ends| *ends > 0).await.expect("the end of the connection");
        let error = requests.ready().await.expect_err("an old server");
        assert_eq!(error.to_string(), "NATS server 2.9.10 is too old; 2.10 or newer is needed");
        let again = requests.ready().await;
        assert!(matches!(again, Err(QueueError::TooOld { .. })), "{again:?}");
        servers.abort();
    }
}
