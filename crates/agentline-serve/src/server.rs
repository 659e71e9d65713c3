//! Starts and stops the server.

use crate::{
    acp_audit,
    acp_servers::AcpServers,
    app::App,
    audit::AuditLog,
    engine::{EngineOptions, ServeEngine},
    listener,
    options::{ServeError, ServeOptions},
    rate::RateLimit,
    roots::Roots,
    routes, running,
    sign_in::BrowserSessions,
    store::Store,
    tokens::AccessTokens,
};
use agentline::Agentline;
use agentline_fs::{file_lock::FileLock, private_file};
use std::{net::SocketAddr, sync::Arc};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// A running server.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    address: SocketAddr,
    stop: CancellationToken,
    accepting: JoinHandle<()>,
    /// Held as long as the server uses its directory; the lock ends with the process.
    _lock: FileLock,
}

impl Server {
    /// Starts a server. Runs that a killed server left in the directory end with an outcome.
    ///
    /// # Errors
    /// Fails if an option is invalid, if the directory is in use, or if the address cannot be used.
    pub async fn start(agentline: Agentline, options: ServeOptions) -> Result<Self, ServeError> {
        check(&options)?;
        let dir = &options.dir;
        private_file::create_dir_all(dir).map_err(ServeError::io(dir.display()))?;
        let lock = running::lock(dir)?;
        let roots = Roots::new(&options.roots)?;
        let tokens = AccessTokens::read(dir, options.tokens.as_deref(), options.demo_agent.clone())?;
        let acceptor = listener::tls(options.tls.as_ref())?;
        let audit = AuditLog::open(dir)?;
        let listener = TcpListener::bind(options.listen).await.map_err(ServeError::io(options.listen))?;
        let address = listener.local_addr().map_err(ServeError::io(options.listen))?;
        let (store, unfinished) = Store::open(dir, &options.limits)?;
        let engine_options = EngineOptions {
            processes: options.processes.max(1),
            prices: options.prices,
            stop_time: options.limits.stop_timeout,
        };
        let engine = ServeEngine::start(agentline.clone(), Arc::new(store), unfinished, engine_options).await;
        let app = Arc::new(App {
            acp: AcpServers::new(agentline.clone(), roots.clone(), &options.limits),
            agentline,
            engine,
            tokens,
            sign_in: BrowserSessions::default(),
            roots,
            audit,
            limits: options.limits,
            demo_prompt: options.demo_prompt,
            allowed_hosts: options.allowed_hosts.iter().map(|name| name.to_ascii_lowercase()).collect(),
            is_tls: acceptor.is_some(),
            large_bodies: Arc::new(Semaphore::new(options.limits.large_bodies)),
            large_queries: Arc::new(Semaphore::new(options.limits.large_bodies)),
            scans: Arc::new(Semaphore::new(options.limits.scans)),
            changes: RateLimit::new(options.limits.changes_per_minute),
            acp_messages: RateLimit::new(options.limits.acp_messages_per_minute),
            acp_bytes: RateLimit::new(options.limits.acp_bytes_per_minute),
            acp_audited: RateLimit::new(acp_audit::MOST_PER_MINUTE),
            acp_suppressed: RateLimit::new(1),
            wrong_tokens: RateLimit::new(options.limits.wrong_tokens_per_minute),
        });
        let stop = CancellationToken::new();
        let router = routes::router(Arc::clone(&app));
        running::write_address(&options.dir, address, url_of(&app, address))?;
        let accepting =
            tokio::spawn(listener::accept(listener, acceptor, router, options.limits, stop.clone()));
        Ok(Self { app, address, stop, accepting, _lock: lock })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the state that all requests share.
    pub(crate) fn app(&self) -> &App {
        &self.app
    }

    /// Returns the URL of the page.
    #[must_use]
    pub fn url(&self) -> String {
        url_of(&self.app, self.address)
    }

    /// Returns a URL that signs a browser in once, within ten minutes.
    #[must_use]
    pub fn login_url(&self) -> String {
        format!("{}/login?once={}", self.url(), self.app.sign_in.new_link())
    }

    /// Returns the owner's token.
    #[must_use]
    pub fn token(&self) -> &str {
        self.app.tokens.owner()
    }

    /// Ends all runs and all agents of ACP clients, stores the outcomes of the runs, lets clients receive them, and closes
    /// all connections.
    ///
    /// # Errors
    /// Fails if outcomes cannot be stored in time, for example because the disk is full. The runs have ended, and get an
    /// outcome when the server starts again.
    pub async fn stop(self) -> Result<(), ServeError> {
        let (stored, ()) = tokio::join!(self.app.engine.stop(), self.app.acp.stop());
        self.stop.cancel();
        // A panic of the task was reported by the runtime.
        let _ = self.accepting.await;
        stored.map_err(|reason| ServeError::NotStored { reason })
    }
}

fn url_of(app: &App, address: SocketAddr) -> String {
    let scheme = if app.is_tls { "https" } else { "http" };
    match app.allowed_hosts.first() {
        Some(name) => format!("{scheme}://{name}:{}", address.port()),
        None => format!("{scheme}://{address}"),
    }
}

/// Refuses options that would expose the server.
fn check(options: &ServeOptions) -> Result<(), ServeError> {
    let is_local = options.listen.ip().is_loopback();
    if !is_local && options.tls.is_none() && !options.insecure_plaintext {
        let message = format!("{} is not a loopback address and has no TLS", options.listen.ip());
        let hint = "add --tls-cert and --tls-key, or --insecure-plaintext if something else encrypts";
        return Err(ServeError::option("--listen", message, hint));
    }
    let bad =
        options.allowed_hosts.iter().find(|name| name.contains(['/', ':', '@', ' ']) || name.is_empty());
    if let Some(name) = bad {
        let message = format!("`{name}` is not a host name");
        return Err(ServeError::option("--allow-host", message, "write a name without scheme and port"));
    }
    Ok(())
}
