//! Tables whose columns depend on the version that made them, read as far as they are readable.

use agentline_core::Damage;
use rusqlite::{Connection, Row, Statement, types::ValueRef};
use std::{borrow::Cow, collections::BTreeSet};

/// After so many looks for a readable row they are made twice as far apart.
const LOOKS: u32 = 16;

/// With more broken places than this, the rest of a table is given up.
const MOST_BREAKS: usize = 10_000;

/// Which columns of which tables there are.
#[derive(Debug, Default)]
pub(super) struct Tables(BTreeSet<(String, String)>);

/// A row; its values are numbered as the columns that were asked for.
pub(super) struct Values<'a>(&'a Row<'a>);

impl Values<'_> {
    /// The bytes of a text; empty for anything else.
    pub(super) fn bytes(&self, at: usize) -> &[u8] {
        match self.0.get_ref(at + 1) {
            Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => bytes,
            _ => &[],
        }
    }

    pub(super) fn text(&self, at: usize) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(at))
    }

    /// A number that is not negative.
    pub(super) fn count(&self, at: usize) -> Option<u64> {
        match self.0.get_ref(at + 1) {
            Ok(ValueRef::Integer(n)) => u64::try_from(n).ok(),
            Ok(ValueRef::Real(n)) if n >= 0.0 => Some(n as u64),
            _ => None,
        }
    }

    pub(super) fn real(&self, at: usize) -> Option<f64> {
        match self.0.get_ref(at + 1) {
            Ok(ValueRef::Integer(n)) => Some(n as f64),
            Ok(ValueRef::Real(n)) => Some(n),
            _ => None,
        }
    }
}

impl Tables {
    /// # Errors
    /// It is no database.
    pub(super) fn look(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).or_else(cut_is_fine)?;
        let mut all = BTreeSet::new();
        for table in ["session", "message", "part"] {
            let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            let mut rows = columns.query([table])?;
            while let Ok(Some(row)) = rows.next() {
                all.insert((table.to_owned(), row.get(0)?));
            }
        }
        Ok(Self(all))
    }

    fn has(&self, table: &str, column: &str) -> bool {
        self.0.contains(&(table.to_owned(), column.to_owned()))
    }

    /// What is wrong when a table is not there.
    fn missing(&self, table: &str) -> Option<Damage> {
        let is_there = self.0.iter().any(|(name, _)| name == table);
        (!is_there).then(|| Damage::new(None, format!("the database has no table `{table}`")))
    }

    /// What to select; columns that this version does not have are null.
    fn selected(&self, table: &str, columns: &[&str]) -> String {
        let inner = |c: &str| {
            c.strip_prefix("octet_length(").and_then(|c| c.strip_suffix(')')).unwrap_or(c).to_owned()
        };
        let named = columns.iter().map(|c| if self.has(table, &inner(c)) { c } else { "NULL" });
        format!("rowid,{}", named.collect::<Vec<_>>().join(","))
    }

    /// The rows in which a column is this, by an index. Should that be damaged, rows may come again, and others with them.
    pub(super) fn matching(
        &self,
        connection: &Connection,
        table: &'static str,
        columns: &[&str],
        (key, value): (&str, &str),
        mut each: impl FnMut(&Values<'_>),
    ) -> Vec<Damage> {
        if let Some(missing) = self.missing(table) {
            return vec![missing];
        }
        let selected = self.selected(table, columns);
        let mut by_index = || -> rusqlite::Result<()> {
            let mut select = connection.prepare(&format!("SELECT {selected} FROM {table} WHERE {key}=?1"))?;
            let mut rows = select.query([value])?;
            while let Some(row) = rows.next()? {
                each(&Values(row));
            }
            Ok(())
        };
        match by_index() {
            Ok(()) => Vec::new(),
            Err(error) => {
                let damage = self.all(connection, table, columns, each);
                if damage.is_empty() { vec![unreadable(table, &error)] } else { damage }
            }
        }
    }

    /// Every row, in the order of the table's pages. Behind places that cannot be read, reading goes on.
    pub(super) fn all(
        &self,
        connection: &Connection,
        table: &'static str,
        columns: &[&str],
        mut each: impl FnMut(&Values<'_>),
    ) -> Vec<Damage> {
        if let Some(missing) = self.missing(table) {
            return vec![missing];
        }
        let selected = self.selected(table, columns);
        let select = |wanted: &str| {
            format!("SELECT {selected} FROM {table} NOT INDEXED WHERE rowid{wanted} ORDER BY rowid")
        };
        let mut reading = || -> rusqlite::Result<Vec<Damage>> {
            let mut behind = connection.prepare(&select(">?1"))?;
            let mut last = i64::MIN;
            let Err(first) = read(&mut behind, last, &mut last, &mut each) else { return Ok(Vec::new()) };
            let mut next_one = connection.prepare(&format!("{} LIMIT 1", select(">=?1")))?;
            for _ in 0..MOST_BREAKS {
                let Some(found) = behind_the_break(&mut next_one, last.max(0)) else { break };
                last = found - 1;
                if read(&mut behind, last, &mut last, &mut each).is_ok() {
                    break;
                }
                // Rows of a broken page may be in any order, and each look must lead on.
                last = last.max(found);
            }
            Ok(vec![unreadable(table, &first)])
        };
        reading().unwrap_or_else(|error| vec![unreadable(table, &error)])
    }
}

/// Where reading can go on when the rows behind this one cannot be read; `None` where there are no more. The longer nothing
/// is found the wider the steps become, and the last one is gone over again in halves.
fn behind_the_break(next_one: &mut Statement<'_>, last: i64) -> Option<i64> {
    let mut look = |at: i64| read(next_one, at, &mut 0, &mut |_| {});
    let (mut broken, mut step) = (last, 1);
    for looks in 1.. {
        let at = broken.checked_add(step)?;
        match look(at) {
            Ok(false) => return None,
            Ok(true) => {
                let mut readable = at;
                while readable - broken > 1 {
                    let middle = broken + (readable - broken) / 2;
                    *(if look(middle).is_ok() { &mut readable } else { &mut broken }) = middle;
                }
                return Some(readable);
            }
            Err(_) => broken = at,
        }
        if looks % LOOKS == 0 {
            step = step.checked_mul(2)?;
        }
    }
    None
}

/// Hands over the rows from a place on, and keeps the last one's number. Says whether there was any.
fn read(
    select: &mut Statement<'_>,
    from: i64,
    last: &mut i64,
    each: &mut dyn FnMut(&Values<'_>),
) -> rusqlite::Result<bool> {
    let mut rows = select.query([from])?;
    let mut any = false;
    while let Some(row) = rows.next()? {
        *last = row.get(0)?;
        any = true;
        each(&Values(row));
    }
    Ok(any)
}

/// A table of tables that breaks off is read as far as it goes.
fn cut_is_fine(error: rusqlite::Error) -> rusqlite::Result<()> {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => Ok(()),
        _ => Err(error),
    }
}

fn unreadable(table: &str, error: &rusqlite::Error) -> Damage {
    Damage::new(None, format!("not all of the table `{table}` can be read: {error}"))
}
