//! Executes the requests of this process, one after another on a thread of their own.
//!
//! Writes that wait at the same time share a transaction, which costs as much for several writes as for one. The caller
//! of a write gets its result after the transaction is committed.

use crate::QueueError;
use rusqlite::Connection;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// The largest number of writes that share a transaction, so that other processes get the write lock soon.
const GROUP: usize = 16;

/// Sends the result of a write, unless the transaction could not be committed.
type Reply = Box<dyn FnOnce(Result<(), QueueError>) + Send>;
type Read = Box<dyn FnOnce(&Connection) + Send>;
/// Writes within a transaction, or fails because there is none.
type Write = Box<dyn FnOnce(Result<&Connection, QueueError>) -> Reply + Send>;

enum Request {
    Read(Read),
    Write(Write),
}

/// Sends requests to the thread, which ends with the last sender.
#[derive(Clone, Debug)]
pub(super) struct RequestSender(Sender<Request>);

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Read(_)) { "Read" } else { "Write" })
    }
}

impl RequestSender {
    /// Starts the thread.
    pub(super) fn start(connection: Connection) -> Result<Self, QueueError> {
        let (sender, requests) = channel();
        let started = std::thread::Builder::new()
            .name("sqlite-queue".to_owned())
            .spawn(move || execute(&connection, &requests));
        started.map_err(|error| QueueError::Unavailable(error.to_string()))?;
        Ok(Self(sender))
    }

    /// Calls a function with the connection.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        function: impl FnOnce(&Connection) -> Result<T, QueueError> + Send + 'static,
    ) -> Result<T, QueueError> {
        let (sender, result) = oneshot::channel();
        let read = Request::Read(Box::new(move |connection| drop(sender.send(function(connection)))));
        self.request(read, result).await
    }

    /// Calls a function in a transaction that has the write lock from the beginning. An error undoes what it did.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        function: impl FnOnce(&Connection) -> Result<T, QueueError> + Send + 'static,
    ) -> Result<T, QueueError> {
        let (sender, result) = oneshot::channel();
        let write = Request::Write(Box::new(move |connection| {
            let result = connection.and_then(|connection| undo_on_error(connection, function));
            Box::new(move |committed| drop(sender.send(result.and_then(|value| committed.map(|()| value)))))
        }));
        self.request(write, result).await
    }

    async fn request<T>(
        &self,
        request: Request,
        result: oneshot::Receiver<Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        let stopped = || QueueError::Refused("the thread of the database has stopped".to_owned());
        self.0.send(request).map_err(|_| stopped())?;
        result.await.map_err(|_| stopped())?
    }
}

fn execute(connection: &Connection, requests: &Receiver<Request>) {
    let mut next = None;
    while let Some(request) = next.take().or_else(|| requests.recv().ok()) {
        match request {
            Request::Read(read) => read(connection),
            Request::Write(write) => {
                let mut group = vec![write];
                while group.len() < GROUP && next.is_none() {
                    match requests.try_recv() {
                        Ok(Request::Write(write)) => group.push(write),
                        Ok(read @ Request::Read(_)) => next = Some(read),
                        Err(_) => break,
                    }
                }
                write_together(connection, group);
            }
        }
    }
}

/// Executes writes in one transaction.
fn write_together(connection: &Connection, group: Vec<Write>) {
    let begun = execute_cached(connection, "BEGIN IMMEDIATE");
    let reply = |write: Write| write(begun.clone().and_then(|()| still_open(connection)));
    let replies: Vec<Reply> = group.into_iter().map(reply).collect();
    let committed =
        begun.and_then(|()| still_open(connection)).and_then(|_| execute_cached(connection, "COMMIT"));
    if committed.is_err() && !connection.is_autocommit() {
        // If this fails, too, the next transaction cannot begin, and says so.
        let _ = connection.execute_batch("ROLLBACK");
    }
    for reply in replies {
        reply(committed.clone());
    }
}

/// Returns the connection, unless an error such as a full disk has undone the whole transaction.
fn still_open(connection: &Connection) -> Result<&Connection, QueueError> {
    let ended = || QueueError::Unavailable("another request ended the transaction".to_owned());
    if connection.is_autocommit() { Err(ended()) } else { Ok(connection) }
}

/// Calls a function within a transaction, and undoes what it did if it fails.
fn undo_on_error<T>(
    connection: &Connection,
    function: impl FnOnce(&Connection) -> Result<T, QueueError>,
) -> Result<T, QueueError> {
    execute_cached(connection, "SAVEPOINT request")?;
    let result = function(connection);
    if !connection.is_autocommit() {
        if result.is_err() {
            execute_cached(connection, "ROLLBACK TO request")?;
        }
        execute_cached(connection, "RELEASE request")?;
    }
    result
}

fn execute_cached(connection: &Connection, sql: &str) -> Result<(), QueueError> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the thread busy until the returned sender is dropped, so that the next writes wait together.
    fn occupy(requests: &RequestSender) -> Sender<()> {
        let (release, released) = channel::<()>();
        let wait = Box::new(move |_: &Connection| {
            let _ = released.recv();
        });
        requests.0.send(Request::Read(wait)).expect("a thread");
        release
    }

    fn insert(connection: &Connection, value: i64) -> Result<(), QueueError> {
        connection.execute("INSERT INTO numbers VALUES (?)", [value])?;
        Ok(())
    }

    fn numbers() -> RequestSender {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch("CREATE TABLE numbers (n INTEGER NOT NULL)").expect("a table");
        RequestSender::start(connection).expect("a thread")
    }

    async fn stored(requests: &RequestSender) -> Vec<i64> {
        let select = |db: &Connection| {
            let mut select = db.prepare("SELECT n FROM numbers ORDER BY n")?;
            let rows = select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(rows)
        };
        requests.read(select).await.expect("numbers")
    }

    #[tokio::test]
    async fn failed_write_undoes_only_itself() {
        let requests = numbers();
        let release = occupy(&requests);
        let fail = |db: &Connection| {
            insert(db, 2)?;
            Err::<(), _>(QueueError::LeaseLost)
        };
        let writes = async {
            tokio::join!(
                requests.write(|db| insert(db, 1)),
                requests.write(fail),
                requests.write(|db| insert(db, 3)),
                async { drop(release) }
            )
        };
        let (first, second, third, ()) = writes.await;
        assert!(first.is_ok() && third.is_ok(), "{first:?} {third:?}");
        assert!(matches!(second, Err(QueueError::LeaseLost)), "{second:?}");
        assert_eq!(stored(&requests).await, [1, 3]);
    }

    #[tokio::test]
    async fn transaction_that_ends_fails_all_its_writes() {
        let requests = numbers();
        let release = occupy(&requests);
        let end = |db: &Connection| {
            db.execute_batch("ROLLBACK")?;
            Err::<(), _>(QueueError::Unavailable("the disk is full".to_owned()))
        };
        let writes = async {
            tokio::join!(
                requests.write(|db| insert(db, 1)),
                requests.write(end),
                requests.write(|db| insert(db, 3)),
                async { drop(release) }
            )
        };
        let (first, second, third, ()) = writes.await;
        assert!(first.is_err() && second.is_err() && third.is_err(), "{first:?} {second:?} {third:?}");
        assert_eq!(stored(&requests).await, [0_i64; 0]);
        requests.write(|db| insert(db, 4)).await.expect("a new transaction");
        assert_eq!(stored(&requests).await, [4]);
    }
}
