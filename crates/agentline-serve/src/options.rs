//! The options of a server, and why it cannot start.

use agentline::prices::PriceTable;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// The options of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The address to listen on. Port 0 chooses a free port.
    pub listen: SocketAddr,
    /// The directories in which runs may work. Links are resolved at the start.
    pub roots: Vec<PathBuf>,
    /// The directory of the stored events, the owner's token and the audit log.
    pub dir: PathBuf,
    /// The certificate chain and the private key, as PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether an address other than loopback may be served without TLS.
    pub insecure_plaintext: bool,
    /// Further names that clients may use in `Host`, without a port.
    pub allowed_hosts: Vec<String>,
    /// The file of further tokens with their policies.
    pub tokens: Option<PathBuf>,
    /// The maximum number of agent processes.
    pub processes: usize,
    /// The prices for the cost of runs in progress.
    pub prices: PriceTable,
    /// The prompt of the demo, if this server is for trying the page.
    pub demo_prompt: Option<String>,
    /// The agent of the demo. The owner's token, which browsers have, may use no other one.
    pub demo_agent: Option<String>,
    /// The limits of requests and of what is stored.
    pub limits: ServeLimits,
}

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeLimits {
    /// The maximum number of connections. One remote address other than loopback gets a quarter of them. Further ones are
    /// closed at once.
    pub connections: usize,
    /// The maximum size of a request that starts a run, which may contain attachments, and of an ACP message, in bytes.
    pub start_bytes: usize,
    /// The maximum size of other requests in bytes.
    pub body_bytes: usize,
    /// How many requests with more than 64 KB are read and parsed at the same time. Others wait for the read timeout.
    pub large_bodies: usize,
    /// How many lists and searches of saved sessions and experiments, and reports, are in progress at the same time.
    /// Others wait for the read timeout.
    pub scans: usize,
    /// How long a client may take to send the head of a request, and again its body.
    pub read_timeout: Duration,
    /// How long a connection may be stuck because its client does not read.
    pub write_timeout: Duration,
    /// The interval of heartbeats in a stream of events.
    pub heartbeat: Duration,
    /// State changes per minute and token. A request over ACP is one, too.
    pub changes_per_minute: u32,
    /// Requests per minute and address with a wrong token. Further ones get status 429.
    pub wrong_tokens_per_minute: u32,
    /// The maximum size of the stored events of one run in bytes. The oldest are removed first.
    pub run_bytes: u64,
    /// The maximum size of all stored events in bytes. The oldest runs are removed first.
    pub total_bytes: u64,
    /// The age at which an ended run is removed.
    pub max_age: Duration,
    /// How many bytes of the latest events of a run are kept in memory for all of its clients.
    pub ring_bytes: usize,
    /// How long runs may take to end when the server stops, and again their outcomes to be stored.
    pub stop_timeout: Duration,
    /// The maximum number of ACP connections. Further ones get status 429.
    pub acp_connections: usize,
    /// Messages of ACP clients per minute and token. A client that exceeds it is disconnected.
    pub acp_messages_per_minute: u32,
    /// Bytes in messages of ACP clients per minute and token. A client that exceeds it is disconnected.
    pub acp_bytes_per_minute: u32,
    /// How long the sessions of an ACP client that has disconnected are kept.
    pub acp_session_time: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 2_048,
            start_bytes: 32 << 20,
            body_bytes: 1 << 20,
            large_bodies: 4,
            scans: 4,
            read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(60),
            heartbeat: Duration::from_secs(10),
            changes_per_minute: 120,
            wrong_tokens_per_minute: 20,
            run_bytes: 64 << 20,
            total_bytes: 1 << 30,
            max_age: Duration::from_secs(30 * 24 * 60 * 60),
            ring_bytes: 1 << 20,
            stop_timeout: Duration::from_secs(30),
            acp_connections: 64,
            acp_messages_per_minute: 6_000,
            acp_bytes_per_minute: 128 << 20,
            acp_session_time: Duration::from_secs(10 * 60),
        }
    }
}

impl ServeOptions {
    /// Creates options for a server on a free loopback port that stores its data in a directory. Without a root, no run
    /// can start.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            roots: Vec::new(),
            dir: dir.into(),
            tls: None,
            insecure_plaintext: false,
            allowed_hosts: Vec::new(),
            tokens: None,
            processes: 4,
            prices: PriceTable::built_in(),
            demo_prompt: None,
            demo_agent: None,
            limits: ServeLimits::default(),
        }
    }
}

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An option is invalid.
    #[error("{key}: {message}")]
    Option {
        /// The option, as a flag.
        key: &'static str,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
    /// A file, a directory or the address cannot be used.
    #[error("cannot use {what}")]
    Io {
        /// The file, directory or address.
        what: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The server has stopped, but could not store the last events.
    #[error("the last events could not be stored, and are lost: {reason}")]
    NotStored {
        /// Why the store cannot write.
        reason: String,
    },
    /// The store cannot be used.
    #[error("the store of events cannot be used")]
    Store(#[from] rusqlite::Error),
}

impl ServeError {
    pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn option(key: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Option { key, message: message.into(), hint: hint.into() }
    }
}
