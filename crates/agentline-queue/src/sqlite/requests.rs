//! Executes the requests of this process, one after another on a thread of their own.
//!
//! Writes that wait at the same time share a transaction, which costs as much for several writes as for one. The caller
//! of a write gets its result after the transaction is committed.

use super::thread::RequestThread;
use crate::QueueError;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tokio::sync::oneshot;

/// The largest number of writes that share a transaction, so that other processes get the write lock soon.
const GROUP: usize = 16;

/// The largest size of the values that they write together, in bytes. A larger value has a transaction of its own.
const GROUP_BYTES: usize = 8 << 20;

/// Sends the result of a write, unless the transaction could not be committed.
type Reply = Box<dyn FnOnce(Result<(), QueueError>) + Send>;
type Read = Box<dyn FnOnce(&Connection) + Send>;
/// Writes within a transaction, or fails because there is none.
type WriteFunction = Box<dyn FnOnce(Result<&Connection, QueueError>) -> Reply + Send>;

/// A write, and the size of its values in bytes.
struct Write(usize, WriteFunction);

enum Request {
    Read(Read),
    Write(Write),
}

/// Sends requests to the thread, which ends with the last sender.
#[derive(Clone, Debug)]
pub(super) struct RequestSender(Arc<RequestThread<Request>>);

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Read(_)) { "Read" } else { "Write" })
    }
}

impl RequestSender {
    /// Starts the thread.
    pub(super) fn start(connection: Connection) -> Result<Self, QueueError> {
        let thread = RequestThread::start(move |requests| execute(&connection, &requests));
        Ok(Self(Arc::new(thread.map_err(|error| QueueError::Unavailable(error.to_string()))?)))
    }

    /// Calls a function with the connection.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        function: impl FnOnce(&Connection) -> Result<T, QueueError> + Send + 'static,
    ) -> Result<T, QueueError> {
        let (sender, result) = oneshot::channel();
        let read = Request::Read(Box::new(move |connection| {
            drop(sender.send(caught(|| function(connection))));
        }));
        self.request(read, result).await
    }

    /// Calls a function in a transaction that has the write lock from the beginning. An error undoes what it did.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        function: impl FnOnce(&Connection) -> Result<T, QueueError> + Send + 'static,
    ) -> Result<T, QueueError> {
        self.write_values(0, function).await
    }

    /// As [`write`](Self::write), for values of this size in bytes.
    pub(super) async fn write_values<T: Send + 'static>(
        &self,
        size: usize,
        function: impl FnOnce(&Connection) -> Result<T, QueueError> + Send + 'static,
    ) -> Result<T, QueueError> {
        let (sender, result) = oneshot::channel();
        let write: WriteFunction = Box::new(move |connection| {
            let result = connection.and_then(|connection| undo_on_error(connection, function));
            Box::new(move |committed| drop(sender.send(result.and_then(|value| committed.map(|()| value)))))
        });
        self.request(Request::Write(Write(size, write)), result).await
    }

    async fn request<T>(
        &self,
        request: Request,
        result: oneshot::Receiver<Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        let stopped = || QueueError::Refused("the thread of the database has stopped".to_owned());
        if !self.0.send(request) {
            return Err(stopped());
        }
        result.await.map_err(|_| stopped())?
    }
}

fn execute(connection: &Connection, requests: &Receiver<Request>) {
    let mut next = None;
    while let Some(request) = next.take().or_else(|| requests.recv().ok()) {
        match request {
            Request::Read(read) => read(connection),
            Request::Write(write) => {
                let group;
                (group, next) = group_of(write, requests);
                write_together(connection, group);
            }
        }
    }
}

/// Returns a write with those that wait behind it and fit into its transaction, and the request after them.
fn group_of(first: Write, requests: &Receiver<Request>) -> (Vec<Write>, Option<Request>) {
    let mut size = first.0;
    let mut group = vec![first];
    while group.len() < GROUP {
        match requests.try_recv() {
            Ok(Request::Write(write)) if size.saturating_add(write.0) <= GROUP_BYTES => {
                size += write.0;
                group.push(write);
            }
            Ok(next) => return (group, Some(next)),
            Err(_) => break,
        }
    }
    (group, None)
}

/// Executes writes in one transaction.
fn write_together(connection: &Connection, group: Vec<Write>) {
    let begun = execute_cached(connection, "BEGIN IMMEDIATE");
    let reply = |write: Write| (write.1)(begun.clone().and_then(|()| still_open(connection)));
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
    let result = caught(|| function(connection));
    if result.is_err() && !connection.is_autocommit() && undo(connection).is_err() {
        // Nothing is committed together with what the failed request did.
        connection.execute_batch("ROLLBACK")?;
    }
    if !connection.is_autocommit() {
        execute_cached(connection, "RELEASE request")?;
    }
    result
}

fn undo(connection: &Connection) -> Result<(), QueueError> {
    execute_cached(connection, "ROLLBACK TO request")
}

/// Calls a function. A panic fails only its request, because the others need the thread.
fn caught<T>(function: impl FnOnce() -> Result<T, QueueError>) -> Result<T, QueueError> {
    // The function owns what it changes besides the database, and an error undoes that.
    catch_unwind(AssertUnwindSafe(function)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(QueueError::Refused(format!("internal error: the request panicked: {message}")))
    })
}

fn execute_cached(connection: &Connection, sql: &str) -> Result<(), QueueError> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    /// Keeps the thread busy until the returned sender is dropped, so that the next writes wait together.
    fn occupy(requests: &RequestSender) -> Sender<()> {
        let (release, released) = channel::<()>();
        let wait = Box::new(move |_: &Connection| {
            let _ = released.recv();
        });
        assert!(requests.0.send(Request::Read(wait)), "the thread has ended");
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

    #[tokio::test]
    async fn write_that_cannot_be_undone_is_not_committed_with_others() {
        let requests = numbers();
        let release = occupy(&requests);
        let keep = |db: &Connection| {
            insert(db, 2)?;
            db.execute_batch("RELEASE request")?;
            Err::<(), _>(QueueError::LeaseLost)
        };
        let writes = async {
            tokio::join!(requests.write(|db| insert(db, 1)), requests.write(keep), async { drop(release) })
        };
        let (first, second, ()) = writes.await;
        assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
        assert_eq!(stored(&requests).await, [0_i64; 0]);
    }

    #[tokio::test]
    async fn panic_fails_only_its_request() {
        let requests = numbers();
        let release = occupy(&requests);
        let panic = |db: &Connection| -> Result<(), QueueError> {
            insert(db, 2)?;
            panic!("an unexpected {}", "value");
        };
        let writes = async {
            tokio::join!(
                requests.write(|db| insert(db, 1)),
                requests.write(panic),
                requests.write(|db| insert(db, 3)),
                requests.read(|_| -> Result<(), QueueError> { panic!("a read") }),
                async { drop(release) }
            )
        };
        let (first, second, third, read, ()) = writes.await;
        assert!(first.is_ok() && third.is_ok(), "{first:?} {third:?}");
        let message = second.expect_err("the panic").to_string();
        assert!(message.ends_with("internal error: the request panicked: an unexpected value"), "{message}");
        assert!(read.expect_err("the panic").to_string().ends_with("the request panicked: a read"));
        assert_eq!(stored(&requests).await, [1, 3]);
    }

    #[test]
    fn group_has_a_bounded_number_and_size_of_values() {
        let sizes = |waiting: &[usize]| {
            let (sender, requests) = channel();
            let write = |size: &usize| Write(*size, Box::new(|_| Box::new(|_| ())));
            let groups = waiting.iter().map(|size| sender.send(Request::Write(write(size))));
            groups.collect::<Result<Vec<()>, _>>().expect("a receiver");
            drop(sender);
            let (mut sizes, mut next) = (Vec::new(), requests.recv().ok());
            while let Some(Request::Write(first)) = next {
                let (group, after) = group_of(first, &requests);
                sizes.push(group.iter().map(|write| write.0).collect::<Vec<_>>());
                next = after.or_else(|| requests.recv().ok());
            }
            sizes
        };
        let half = GROUP_BYTES / 2;
        assert_eq!(sizes(&[half, half, 1]), [vec![half, half], vec![1]]);
        assert_eq!(sizes(&[1, 2 * GROUP_BYTES, 1]), [vec![1], vec![2 * GROUP_BYTES], vec![1]]);
        assert_eq!(sizes(&[0; GROUP + 1]), [vec![0; GROUP], vec![0]]);
    }

    /// Queues a slow request, without waiting for it. Returns whether it has been executed.
    fn slow_request(requests: &RequestSender) -> Arc<AtomicBool> {
        let done = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&done);
        let slow = Box::new(move |_: &Connection| {
            std::thread::sleep(Duration::from_millis(300));
            flag.store(true, Ordering::SeqCst);
        });
        assert!(requests.0.send(Request::Read(slow)), "the thread has ended");
        done
    }

    #[test]
    fn last_sender_waits_for_the_thread() {
        let requests = numbers();
        let done = slow_request(&requests);
        let other = requests.clone();
        drop(requests);
        assert!(!done.load(Ordering::SeqCst), "it was not the last one");
        drop(other);
        assert!(done.load(Ordering::SeqCst));
    }

    #[test]
    fn runtime_waits_for_the_thread_but_its_tasks_do_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let requests = numbers();
        let done = slow_request(&requests);
        runtime.block_on(async { drop(requests) });
        assert!(!done.load(Ordering::SeqCst), "the task waited");
        drop(runtime);
        assert!(done.load(Ordering::SeqCst));
    }
}
