//! The engines of queues, started for a test: SQLite, NATS and PostgreSQL.

mod fake_date;
pub mod nats;
mod pip;
pub mod postgres;

use agentline_queue::{ConnectOptions, Queue, connect};
pub use fake_date::FakeDate;
use nats::{NATS, NatsServer, OLDEST_NATS};
use postgres::PostgresServer;
use std::sync::Arc;
use tempfile::TempDir;

/// An engine that tests can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// A file.
    Sqlite,
    /// A NATS server.
    Nats,
    /// The oldest supported NATS server.
    OldestNats,
    /// A PostgreSQL server.
    Postgres,
    /// The oldest supported PostgreSQL server.
    OldestPostgres,
}

impl EngineKind {
    const ALL: [Self; 5] = [Self::Sqlite, Self::Nats, Self::OldestNats, Self::Postgres, Self::OldestPostgres];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Nats => "nats",
            Self::OldestNats => "oldest-nats",
            Self::Postgres => "postgres",
            Self::OldestPostgres => "oldest-postgres",
        }
    }

    /// Returns the engine with a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An engine with its own data, which is stopped and removed when this is dropped.
#[derive(Debug)]
pub enum Engine {
    /// A file.
    Sqlite(TempDir),
    /// A NATS server.
    Nats(NatsServer),
    /// A PostgreSQL server.
    Postgres(PostgresServer),
}

impl Engine {
    /// Starts an engine with empty data; `None` if it is not installed and tests may skip it.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub async fn start(kind: EngineKind) -> Option<Self> {
        match kind {
            EngineKind::Sqlite => Some(Self::Sqlite(tempfile::tempdir().expect("a directory"))),
            EngineKind::Nats => NatsServer::start(NATS).map(Self::Nats),
            EngineKind::OldestNats => NatsServer::start(OLDEST_NATS).map(Self::Nats),
            EngineKind::Postgres => PostgresServer::start().map(Self::Postgres),
            EngineKind::OldestPostgres => PostgresServer::start_oldest().map(Self::Postgres),
        }
    }

    /// Starts an engine whose server has another date, if it can have one.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub async fn start_with_date(kind: EngineKind, date: Option<FakeDate>) -> Option<Self> {
        match kind {
            // A NATS server is a static program, whose date cannot be changed.
            EngineKind::Postgres => PostgresServer::start_with_date(date).map(Self::Postgres),
            kind => Self::start(kind).await,
        }
    }

    /// Returns the address of its queue.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Sqlite(dir) => format!("sqlite:{}", dir.path().join("queue.db").display()),
            Self::Nats(server) => server.url(),
            Self::Postgres(server) => server.url(),
        }
    }

    /// Returns the port of its server; `None` if there is no server.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Sqlite(_) => None,
            Self::Nats(server) => Some(server.port()),
            Self::Postgres(server) => Some(server.port()),
        }
    }

    /// Returns the address of its queue behind a proxy.
    ///
    /// # Panics
    /// Panics if there is no server.
    #[must_use]
    pub fn address_at(&self, port: u16) -> String {
        let own = format!(":{}", self.port().expect("a server"));
        self.address().replacen(&own, &format!(":{port}"), 1)
    }

    /// Kills the server with SIGKILL, and starts it again with its data and its port.
    pub async fn kill_and_restart(&mut self) {
        match self {
            Self::Sqlite(_) => {}
            Self::Nats(server) => server.restart(),
            Self::Postgres(server) => server.restart(),
        }
    }

    /// Connects to its queue.
    ///
    /// # Panics
    /// Panics if that is not possible.
    pub async fn connect(&self) -> Arc<dyn Queue> {
        connect(&self.address(), &ConnectOptions::default()).await.expect("a queue")
    }
}
