//! One connection to the server, with its prepared statements.

use super::address::ServerAddress;
use super::failure::{classify, describe, lacks_tls};
use crate::QueueError;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Socket, Statement};

/// The oldest supported version.
const OLDEST: u32 = 13;

/// The channel of notifications.
pub(super) const CHANNEL: &str = "agentline";

/// The settings of a session. The statements are made for the indexes. Without these settings, a plan that was made while
/// the tables were empty would read whole tables until the server has counted their rows.
const SETTINGS: &str = "
SET default_transaction_isolation = 'read committed';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET jit = off;
SET plan_cache_mode = force_generic_plan;
SET statement_timeout = '60s';
SET client_min_messages = warning;
";

/// The server, and who is told about its notifications.
#[derive(Debug)]
pub(super) struct DatabaseServer {
    address: ServerAddress,
    /// Counts notifications.
    announce: watch::Sender<u64>,
}

impl DatabaseServer {
    pub(super) fn new(address: ServerAddress, announce: watch::Sender<u64>) -> Self {
        Self { address, announce }
    }

    /// Opens a connection.
    pub(super) async fn open(self: &Arc<Self>) -> Result<DatabaseSession, QueueError> {
        let connected = self.address.config.connect(self.address.tls.clone()).await;
        let (client, connection) = connected.map_err(|error| self.classify(&error))?;
        check_version(connection.parameter("server_version").unwrap_or_default())?;
        tokio::spawn(drive(connection, self.clone()));
        client.batch_execute(SETTINGS).await.map_err(|error| classify(&error))?;
        Ok(DatabaseSession {
            client,
            statements: Mutex::default(),
            listens: AtomicBool::new(false),
            used_at: Mutex::new(Instant::now()),
        })
    }

    fn classify(&self, error: &Error) -> QueueError {
        if lacks_tls(error) {
            return QueueError::Plaintext(self.address.shown.clone());
        }
        match classify(error) {
            QueueError::Unavailable(text) => {
                QueueError::Unavailable(format!("`{}`: {text}", self.address.shown))
            }
            other => other,
        }
    }
}

/// Exchanges the messages of a connection until it ends.
async fn drive<S>(mut connection: Connection<Socket, S>, server: Arc<DatabaseServer>)
where
    S: tokio_postgres::tls::TlsStream + Unpin,
{
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(_))) => server.announce.send_modify(|count| *count += 1),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => break,
        }
    }
    // What a waiting caller looked at may have changed without a notification.
    server.announce.send_modify(|count| *count += 1);
}

/// Checks the version of the server, such as `15.14 (Debian 15.14-0+deb12u1)`.
fn check_version(version: &str) -> Result<(), QueueError> {
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    if version[..digits].parse().is_ok_and(|major: u32| major >= OLDEST) {
        return Ok(());
    }
    let found = version.split(' ').next().unwrap_or_default().to_owned();
    Err(QueueError::TooOld { server: "PostgreSQL".into(), found, needed: OLDEST.to_string() })
}

/// A connection. Several requests can use it at the same time; the server answers them in their order.
#[derive(Debug)]
pub(super) struct DatabaseSession {
    pub(super) client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
    listens: AtomicBool,
    used_at: Mutex<Instant>,
}

impl DatabaseSession {
    /// Returns a prepared statement.
    pub(super) async fn prepare(&self, sql: &'static str) -> Result<Statement, Error> {
        let prepared = self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = prepared {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        statements.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Begins to receive notifications.
    pub(super) async fn listen(&self) -> Result<(), QueueError> {
        let listened = self.client.batch_execute(&format!("LISTEN {CHANNEL}")).await;
        listened.map_err(|error| QueueError::Unavailable(describe(&error)))?;
        self.listens.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn listens(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    pub(super) fn used_at(&self) -> Instant {
        *self.used_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mark_used(&self) {
        *self.used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_before_13_are_refused_by_name() {
        for version in ["13.0", "15.14 (Debian 15.14-0+deb12u1)", "19beta1", "20devel"] {
            check_version(version).expect("a supported version");
        }
        for version in ["12.22 (Debian 12.22-1)", "9.6.24", ""] {
            let error = check_version(version).expect_err("a version that is too old");
            assert!(matches!(error, QueueError::TooOld { .. }), "{error}");
        }
        let error = check_version("12.22 (Debian 12.22-1)").expect_err("a version that is too old");
        assert_eq!(error.to_string(), "PostgreSQL 12.22 is too old; 13 or newer is needed");
    }
}
