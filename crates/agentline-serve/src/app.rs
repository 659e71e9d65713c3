//! The state that all requests share.

use crate::{
    acp_servers::AcpServers,
    audit::AuditLog,
    engine::ServeEngine,
    options::ServeLimits,
    rate::RateLimit,
    roots::Roots,
    sign_in::BrowserSessions,
    tokens::{AccessToken, AccessTokens, OWNER},
};
use agentline::Agentline;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) agentline: Agentline,
    pub(crate) acp: AcpServers,
    pub(crate) engine: Arc<ServeEngine>,
    pub(crate) tokens: AccessTokens,
    pub(crate) sign_in: BrowserSessions,
    pub(crate) roots: Roots,
    pub(crate) audit: AuditLog,
    pub(crate) limits: ServeLimits,
    /// The prompt of the demo, if this server is for trying the page.
    pub(crate) demo_prompt: Option<String>,
    /// Further names that `Host` may have, in lower case.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) is_tls: bool,
    /// For the bodies that are large.
    pub(crate) large_bodies: Arc<Semaphore>,
    /// The same for requests that start no run, so that a token that may only read does not stop others.
    pub(crate) large_queries: Arc<Semaphore>,
    /// For searches, lists and reports that read many files.
    pub(crate) scans: Arc<Semaphore>,
    pub(crate) changes: RateLimit<String>,
    /// Messages of ACP clients, by token.
    pub(crate) acp_messages: RateLimit<String>,
    /// Bytes in messages of ACP clients, by token.
    pub(crate) acp_bytes: RateLimit<String>,
    /// Notifications and answers of ACP clients in the audit log, by token.
    pub(crate) acp_audited: RateLimit<String>,
    /// Entries that some of these are missing, by token.
    pub(crate) acp_suppressed: RateLimit<String>,
    pub(crate) wrong_tokens: RateLimit<IpAddr>,
}

/// The connection of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) token: Arc<AccessToken>,
    pub(crate) remote: SocketAddr,
    /// The end of the browser's session, if a cookie stands for the token.
    pub(crate) session_end: Option<CancellationToken>,
}

impl Sender {
    /// Waits until the browser that sent the request is signed out. A sender with a token never is.
    pub(crate) async fn signed_out(self) {
        match self.session_end {
            Some(end) => end.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl App {
    /// Returns the only owner whose runs a sender may see; `None` if it may see all.
    pub(crate) fn owner(sender: &Sender) -> Option<String> {
        (!sender.token.policy.all_runs).then(|| sender.token.name.clone())
    }

    /// Returns whether a sender may change what this token started. A policy lets it see more, not change more.
    pub(crate) fn may_change(sender: &Sender, started_by: &str) -> bool {
        !sender.token.policy.read_only && (sender.token.name == started_by || sender.token.name == OWNER)
    }

    /// Returns whether a sender may see what this token started.
    pub(crate) fn may_see(sender: &Sender, started_by: &str) -> bool {
        sender.token.policy.all_runs || sender.token.name == started_by
    }
}
