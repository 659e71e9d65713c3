//! Sessions that an agent stores in a SQLite database. The agent knows the tables; the caller reads them.

use crate::{Millis, RawJson, ReadError, SessionInfo, SessionReader, Tokens};
use std::{borrow::Cow, collections::BTreeSet};

/// How an agent stores sessions in a SQLite database.
pub trait SessionDatabase: Send + Sync {
    /// Returns the names of the tables that it reads.
    fn tables(&self) -> &'static [&'static str];

    /// Returns every session with its metadata, without its content, in no particular order.
    fn sessions(&self, tables: &dyn TableSource) -> Readable<Vec<SessionRow>>;

    /// Returns the records of a session in the order that its reader expects. There are none if no session has this id.
    fn records(&self, tables: &dyn TableSource, id: &str) -> Readable<Vec<RawJson>>;

    /// Returns a record for each answer with tokens in a session and in the sessions of its sub-agents, without its
    /// content: what a run has used so far.
    fn answers(&self, tables: &dyn TableSource, id: &str) -> Readable<Vec<RawJson>>;

    /// Returns the sessions with a row whose bytes pass a test. After a session has passed, its other rows are skipped.
    fn matching(
        &self,
        tables: &dyn TableSource,
        test: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Readable<BTreeSet<String>>;

    /// Creates a reader for the records of a session.
    fn reader(&self) -> Box<dyn SessionReader>;
}

/// Read access to the tables of a database, for a [`SessionDatabase`]. Columns that a table does not have
/// are `NULL`; `octet_length(column)` stands for the size of a value in bytes.
pub trait TableSource {
    /// Passes every row to `each`, and continues after unreadable places. Returns the damage.
    fn all(
        &self,
        table: &'static str,
        columns: &[&str],
        each: &mut dyn FnMut(&dyn TableRow),
    ) -> Vec<ReadError>;

    /// Passes the rows in which the column `key` has this value to `each`. In a damaged database, `each` may see a row
    /// twice and may see rows with another value. Returns the damage.
    fn all_with(
        &self,
        table: &'static str,
        columns: &[&str],
        key: (&str, &str),
        each: &mut dyn FnMut(&dyn TableRow),
    ) -> Vec<ReadError>;
}

/// A row, with its values in the order of the selected columns.
pub trait TableRow {
    /// Returns the bytes of a text or blob, or nothing for another type.
    fn bytes(&self, at: usize) -> &[u8];

    /// Returns a non-negative number without its fraction.
    fn count(&self, at: usize) -> Option<u64>;

    /// Returns a number.
    fn real(&self, at: usize) -> Option<f64>;

    /// Returns a text, or an empty one for another type.
    fn text(&self, at: usize) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(at))
    }
}

/// The metadata of a session, available without reading its messages.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionRow {
    /// The metadata of the session.
    pub info: SessionInfo,
    /// The sum of all tokens, where this version of the agent stores it.
    pub tokens: Option<Tokens>,
    /// The number of messages.
    pub messages: u64,
    /// The number of message parts.
    pub parts: u64,
    /// The size of messages and parts in bytes.
    pub size: u64,
    /// The time of the last write to any of its rows. Together with the counts, it changes whenever the session does.
    pub changed: Millis,
}

/// A value together with the damage found while reading it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Readable<T> {
    /// The readable part.
    pub value: T,
    /// The damage: what could not be read.
    pub damage: Vec<ReadError>,
}

impl<T> Readable<T> {
    /// Creates a value with the damage found while reading it.
    #[must_use]
    pub fn new(value: T, damage: Vec<ReadError>) -> Self {
        Self { value, damage }
    }
}
