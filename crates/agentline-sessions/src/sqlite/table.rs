//! Reads tables whose columns depend on the version of the agent, skipping damaged places.

use agentline_core::{ReadError, TableRow};
use rusqlite::{Connection, Row, Statement, types::ValueRef};
use std::collections::BTreeSet;

/// After this many failed probes for a readable row, the distance between probes doubles.
const PROBES_PER_STEP: u32 = 16;

/// The maximum number of damaged places, after which the rest of a table is skipped.
const MOST_BREAKS: usize = 10_000;

/// The existing columns of each table.
#[derive(Debug, Default)]
pub(super) struct Tables(BTreeSet<(String, String)>);

/// A row, with its values in the order of the selected columns.
struct Values<'a>(&'a Row<'a>);

impl TableRow for Values<'_> {
    fn bytes(&self, at: usize) -> &[u8] {
        match self.0.get_ref(at + 1) {
            Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => bytes,
            _ => &[],
        }
    }

    fn count(&self, at: usize) -> Option<u64> {
        match self.0.get_ref(at + 1) {
            Ok(ValueRef::Integer(n)) => u64::try_from(n).ok(),
            Ok(ValueRef::Real(n)) if n >= 0.0 => Some(n as u64),
            _ => None,
        }
    }

    fn real(&self, at: usize) -> Option<f64> {
        match self.0.get_ref(at + 1) {
            Ok(ValueRef::Integer(n)) => Some(n as f64),
            Ok(ValueRef::Real(n)) => Some(n),
            _ => None,
        }
    }
}

impl Tables {
    /// Reads the columns of these tables.
    ///
    /// # Errors
    /// Fails if the file is not a database.
    pub(super) fn inspect(connection: &Connection, tables: &[&str]) -> rusqlite::Result<Self> {
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).or_else(cut_is_fine)?;
        let mut all = BTreeSet::new();
        for table in tables {
            let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            let mut rows = columns.query([table])?;
            while let Ok(Some(row)) = rows.next() {
                all.insert(((*table).to_owned(), row.get(0)?));
            }
        }
        Ok(Self(all))
    }

    fn has(&self, table: &str, column: &str) -> bool {
        self.0.contains(&(table.to_owned(), column.to_owned()))
    }

    /// Returns the damage if a table does not exist.
    fn missing(&self, table: &str) -> Option<ReadError> {
        let exists = self.0.iter().any(|(name, _)| name == table);
        (!exists).then(|| ReadError::new(None, format!("the database has no table `{table}`")))
    }

    /// Returns the select list, with `NULL` for columns that this version does not have.
    fn selected(&self, table: &str, columns: &[&str]) -> String {
        let inner = |c: &str| {
            c.strip_prefix("octet_length(").and_then(|c| c.strip_suffix(')')).unwrap_or(c).to_owned()
        };
        let named = columns.iter().map(|c| if self.has(table, &inner(c)) { c } else { "NULL" });
        format!("rowid,{}", named.collect::<Vec<_>>().join(","))
    }

    /// Reads the rows in which a column has this value, by an index. If the index is damaged, reads all rows, so `each`
    /// may see a row twice and may see rows with another value.
    pub(super) fn matching(
        &self,
        connection: &Connection,
        table: &'static str,
        columns: &[&str],
        (key, value): (&str, &str),
        each: &mut dyn FnMut(&dyn TableRow),
    ) -> Vec<ReadError> {
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

    /// Reads every row in the order of `rowid`, and continues after unreadable places.
    pub(super) fn all(
        &self,
        connection: &Connection,
        table: &'static str,
        columns: &[&str],
        each: &mut dyn FnMut(&dyn TableRow),
    ) -> Vec<ReadError> {
        if let Some(missing) = self.missing(table) {
            return vec![missing];
        }
        let selected = self.selected(table, columns);
        let select = |condition: &str| {
            format!("SELECT {selected} FROM {table} NOT INDEXED WHERE rowid{condition} ORDER BY rowid")
        };
        let mut reading = || -> rusqlite::Result<Vec<ReadError>> {
            let mut behind = connection.prepare(&select(">?1"))?;
            let mut last = i64::MIN;
            let Err(first) = read(&mut behind, last, &mut last, each) else { return Ok(Vec::new()) };
            let mut next_one = connection.prepare(&format!("{} LIMIT 1", select(">=?1")))?;
            for _ in 0..MOST_BREAKS {
                let Some(found) = behind_the_break(&mut next_one, last.max(0)) else { break };
                last = found - 1;
                if read(&mut behind, last, &mut last, each).is_ok() {
                    break;
                }
                // The rows of a damaged page may be in any order, so make sure that each iteration advances.
                last = last.max(found);
            }
            Ok(vec![unreadable(table, &first)])
        };
        reading().unwrap_or_else(|error| vec![unreadable(table, &error)])
    }
}

/// Returns the first readable row id after a damaged place, or `None` if there are no more rows. The probes move
/// further apart the longer none succeeds; a bisection then finds the exact row.
fn behind_the_break(next_one: &mut Statement<'_>, last: i64) -> Option<i64> {
    let mut probe = |at: i64| read(next_one, at, &mut 0, &mut |_| {});
    let (mut broken, mut step) = (last, 1);
    for probes in 1.. {
        let at = broken.checked_add(step)?;
        match probe(at) {
            Ok(false) => return None,
            Ok(true) => {
                let mut readable = at;
                while readable - broken > 1 {
                    let middle = broken + (readable - broken) / 2;
                    *(if probe(middle).is_ok() { &mut readable } else { &mut broken }) = middle;
                }
                return Some(readable);
            }
            Err(_) => broken = at,
        }
        if probes % PROBES_PER_STEP == 0 {
            step = step.checked_mul(2)?;
        }
    }
    None
}

/// Passes the rows from `from` on to `each` and stores the last row id. Returns whether there was a row.
fn read(
    select: &mut Statement<'_>,
    from: i64,
    last: &mut i64,
    each: &mut dyn FnMut(&dyn TableRow),
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

/// Accepts a truncated schema table, which is read as far as possible.
fn cut_is_fine(error: rusqlite::Error) -> rusqlite::Result<()> {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => Ok(()),
        _ => Err(error),
    }
}

fn unreadable(table: &str, error: &rusqlite::Error) -> ReadError {
    ReadError::new(None, format!("the table `{table}` is only partly readable: {error}"))
}
