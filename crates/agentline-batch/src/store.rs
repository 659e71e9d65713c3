//! An experiment on disk: a directory with a SQLite database and one directory per try of a run.

mod error;
mod imported;
mod suite;

use crate::result::{RunResult, try_dir};
use agentline_fs::{file_lock::FileLock, private_file::create_dir_all};
pub use error::StoreError;
pub(crate) use imported::ImportedRun;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::{HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;
pub(crate) use suite::is_runs;

/// The version of the database's schema.
const VERSION: i64 = 4;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tries (
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    -- NULL while the try is in progress or if it was interrupted.
    ending TEXT,
    cost_usd REAL,
    judge_cost_usd REAL,
    -- NULL until the first command of the try, or its agent, may have started.
    effects_ms INTEGER,
    PRIMARY KEY (run, number)
);
CREATE TABLE IF NOT EXISTS results (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    -- A result that was superseded by a later one is kept, with 1 here.
    superseded INTEGER NOT NULL DEFAULT 0,
    case_id TEXT NOT NULL,
    variant_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    class TEXT NOT NULL,
    result TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_result ON results (run) WHERE superseded = 0;
";

/// What versions 2 to 4 added. A try of an older version may have started its agent at once. Since version 4, the runs of
/// the suite are stored in parts; those of an older version are read as one part.
const MIGRATIONS: [&str; 3] = [
    "ALTER TABLE tries ADD COLUMN cost_usd REAL; ALTER TABLE tries ADD COLUMN judge_cost_usd REAL;",
    "ALTER TABLE tries ADD COLUMN effects_ms INTEGER; UPDATE tries SET effects_ms = started_ms;",
    "",
];

/// The name of the stored description of the suite.
pub(crate) const DESCRIPTION: &str = "description";
/// The name of the stored settings of each variant.
pub(crate) const VARIANT_SETTINGS: &str = "variant_settings";
/// The name of the stored ids of the cases that were run last, in the order of the stored runs.
pub(crate) const SELECTED: &str = "selected_cases";
/// The ending of a try whose agent was cancelled because the batch was stopped.
pub(crate) const CANCELLED: &str = "cancelled";

/// What a try cost in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TryCost {
    /// The cost of the agent, if it is known.
    pub agent_usd: Option<f64>,
    /// The cost of the judges, if it is known.
    pub judge_usd: Option<f64>,
}

impl TryCost {
    /// Creates the cost of a try that no judge has seen.
    #[must_use]
    pub fn of_agent(agent_usd: Option<f64>) -> Self {
        Self { agent_usd, judge_usd: None }
    }

    /// Adds the cost of another try.
    pub fn add(&mut self, other: Self) {
        let sum = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.agent_usd = sum(self.agent_usd, other.agent_usd);
        self.judge_usd = sum(self.judge_usd, other.judge_usd);
    }
}

/// A try that ended without a result after it may have had effects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InterruptedTry {
    /// The number of the try.
    pub(crate) number: u32,
    /// What is known about its cost.
    pub(crate) cost: TryCost,
}

/// An experiment on disk.
#[derive(Debug)]
pub struct Experiment {
    dir: PathBuf,
    database: Connection,
    /// Held while a batch runs; the lock ends with the process.
    lock: Option<FileLock>,
    /// The version of the database, which may be older than this program.
    version: i64,
}

impl Experiment {
    /// Opens an experiment for a batch, and creates it if necessary.
    ///
    /// # Errors
    /// Fails if another batch uses the directory, or if it cannot be written.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let wrong = |error| StoreError::Io(dir.to_owned(), error);
        create_dir_all(dir).map_err(wrong)?;
        let file =
            File::options().create(true).truncate(false).write(true).open(dir.join("lock")).map_err(wrong)?;
        let lock = FileLock::try_new(file).map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::Locked(dir.to_owned()),
            TryLockError::Error(error) => wrong(error),
        })?;
        Self::with_database(dir, Some(lock))
    }

    /// Opens an experiment to read it, also while a batch runs.
    ///
    /// # Errors
    /// Fails if there is no experiment in the directory.
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        if !database_path(dir).is_file() {
            return Err(StoreError::Missing(dir.to_owned()));
        }
        Self::with_database(dir, None)
    }

    fn with_database(dir: &Path, lock: Option<FileLock>) -> Result<Self, StoreError> {
        let mut flags = OpenFlags::default();
        // Reading neither creates a database nor changes one. It is not opened read-only, because SQLite would then leave
        // its files `-wal` and `-shm` behind.
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, lock.is_some());
        let database = Connection::open_with_flags(database_path(dir), flags)?;
        database.pragma_update(None, "query_only", lock.is_none())?;
        database.busy_timeout(Duration::from_secs(30))?;
        let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version > VERSION {
            return Err(StoreError::Newer(dir.to_owned()));
        }
        if lock.is_some() {
            database.pragma_update(None, "journal_mode", "wal")?;
            // A result survives a killed batch. A power failure may lose the last ones, which are then run again.
            database.pragma_update(None, "synchronous", "normal")?;
            let transaction = database.unchecked_transaction()?;
            transaction.execute_batch(SCHEMA)?;
            // A new database has version 0 and the newest schema.
            for (migration, since) in MIGRATIONS.iter().zip(2..) {
                if (1..since).contains(&version) {
                    transaction.execute_batch(migration)?;
                }
            }
            transaction.pragma_update(None, "user_version", VERSION)?;
            transaction.commit()?;
        }
        let version = if lock.is_some() { VERSION } else { version };
        Ok(Self { dir: dir.to_owned(), database, lock, version })
    }

    /// Returns the directory of the experiment.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether this process holds the lock.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Stores a value about the whole experiment.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn set_meta(&self, name: &str, value: &str) -> Result<(), StoreError> {
        self.set_all_meta(&[(name, value)])
    }

    /// Stores values about the whole experiment, all or none.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn set_all_meta(&self, values: &[(&str, &str)]) -> Result<(), StoreError> {
        let transaction = self.database.unchecked_transaction()?;
        insert_meta(&transaction, values)?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns a value about the whole experiment.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn meta(&self, name: &str) -> Result<Option<String>, StoreError> {
        let mut statement = self.database.prepare("SELECT value FROM meta WHERE name = ?1")?;
        Ok(statement.query_row([name], |row| row.get(0)).optional()?)
    }

    /// Begins a try of a run, and returns its number, from 1, and its directory.
    ///
    /// # Errors
    /// Fails if the database or the directory cannot be written.
    pub fn begin_try(&self, run: &str, now_ms: u64) -> Result<(u32, PathBuf), StoreError> {
        // The key becomes a part of a path.
        if !is_key(run) {
            return Err(StoreError::InvalidKey(run.to_owned()));
        }
        let mut statement = self.database.prepare(
            "INSERT INTO tries (run, number, started_ms)
             VALUES (?1, (SELECT COALESCE(MAX(number), 0) + 1 FROM tries WHERE run = ?1), ?2) RETURNING number",
        )?;
        let number: u32 = statement.query_row(params![run, signed(now_ms)], |row| row.get(0))?;
        let dir = self.dir.join(try_dir(run, number));
        create_dir_all(&dir).map_err(|error| StoreError::Io(dir.clone(), error))?;
        Ok((number, dir))
    }

    /// Records how a try ended that is no result, such as one that is repeated after an infrastructure failure.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn end_try(
        &self,
        run: &str,
        number: u32,
        ending: &str,
        cost: TryCost,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        end_try(&self.database, run, number, ending, cost, now_ms)
    }

    /// Records that the agent of a try, or a command before it, is about to start. From now on, the try may have effects.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn begin_effects(&self, run: &str, number: u32, now_ms: u64) -> Result<(), StoreError> {
        let mut statement =
            self.database.prepare("UPDATE tries SET effects_ms = ?3 WHERE run = ?1 AND number = ?2")?;
        statement.execute(params![run, number, signed(now_ms)])?;
        Ok(())
    }

    /// Returns the last try of each run that may have had effects and was interrupted or cancelled, by the key of the
    /// run. Only for an experiment that no other process runs.
    pub(crate) fn interrupted_tries(&self) -> Result<HashMap<String, InterruptedTry>, StoreError> {
        let mut statement = self.database.prepare(
            "SELECT run, MAX(number), cost_usd, judge_cost_usd FROM tries
             WHERE effects_ms IS NOT NULL AND (ending IS NULL OR ending = ?1) GROUP BY run",
        )?;
        let rows = statement.query_map([CANCELLED], |row| {
            let cost = TryCost { agent_usd: row.get(2)?, judge_usd: row.get(3)? };
            Ok((row.get(0)?, InterruptedTry { number: row.get(1)?, cost }))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns the number of the last try of a run; 0 if there is none.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn last_try(&self, run: &str) -> Result<u32, StoreError> {
        let mut statement =
            self.database.prepare("SELECT COALESCE(MAX(number), 0) FROM tries WHERE run = ?1")?;
        Ok(statement.query_row([run], |row| row.get(0))?)
    }

    /// Returns the position of the last try among all tries, in the order in which they began; 0 if there is none.
    pub(crate) fn position_of_last_try(&self) -> Result<i64, StoreError> {
        let mut statement = self.database.prepare("SELECT COALESCE(MAX(rowid), 0) FROM tries")?;
        Ok(statement.query_row([], |row| row.get(0))?)
    }

    /// Returns the tries that began after the one at this position: their runs and numbers.
    pub(crate) fn tries_after(&self, position: i64) -> Result<HashSet<(String, u32)>, StoreError> {
        let mut statement = self.database.prepare("SELECT run, number FROM tries WHERE rowid > ?1")?;
        let rows = statement.query_map([position], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Moves a try to the end of the order in which the tries began.
    pub(crate) fn move_to_end(&self, run: &str, number: u32) -> Result<(), StoreError> {
        let sql =
            "UPDATE tries SET rowid = (SELECT MAX(rowid) + 1 FROM tries) WHERE run = ?1 AND number = ?2";
        self.database.execute(sql, params![run, number])?;
        Ok(())
    }

    /// Returns how the tries of a run ended that are no result, and what each cost, the oldest first.
    pub(crate) fn ended_tries(&self, run: &str) -> Result<Vec<(String, Option<f64>)>, StoreError> {
        let mut statement = self.database.prepare(
            "SELECT ending, cost_usd FROM tries WHERE run = ?1 AND ending IN ('retried', 'cancelled') ORDER BY number",
        )?;
        let rows = statement.query_map([run], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Forgets the tries of a run.
    pub(crate) fn forget(&self, run: &str) -> Result<(), StoreError> {
        self.database.execute("DELETE FROM tries WHERE run = ?1", [run])?;
        Ok(())
    }

    /// Returns what all tries of each run cost: those with a result, those that were retried or cancelled, and those
    /// whose result was superseded.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn costs(&self) -> Result<HashMap<String, TryCost>, StoreError> {
        let mut costs = HashMap::new();
        if self.version < 2 {
            return Ok(costs);
        }
        let mut statement = self.database.prepare(
            "SELECT run, SUM(cost_usd), SUM(judge_cost_usd) FROM tries
             WHERE cost_usd IS NOT NULL OR judge_cost_usd IS NOT NULL GROUP BY run",
        )?;
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, String>(0)?, TryCost { agent_usd: row.get(1)?, judge_usd: row.get(2)? }))
        })?;
        for row in rows {
            let (run, cost) = row?;
            costs.insert(run, cost);
        }
        Ok(costs)
    }

    /// Commits the result of a run, exactly once.
    ///
    /// # Errors
    /// Fails if the run already has a result, or if the database cannot be written.
    pub fn commit(&self, result: &RunResult) -> Result<(), StoreError> {
        let transaction = self.database.unchecked_transaction()?;
        insert(&transaction, result)?;
        transaction.commit()?;
        Ok(())
    }

    /// Replaces the result of a run, if it has one, all at once: a killed process leaves the old result or the new one.
    /// The earlier result is kept.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn replace(&self, result: &RunResult) -> Result<(), StoreError> {
        let transaction = self.database.unchecked_transaction()?;
        supersede(&transaction, &result.key)?;
        insert(&transaction, result)?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns the current results by the key of their run.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn results(&self) -> Result<HashMap<String, RunResult>, StoreError> {
        let mut statement =
            self.database.prepare("SELECT result FROM results WHERE superseded = 0 ORDER BY id")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        let mut results = HashMap::new();
        for row in rows {
            if let Some(result) = read_result(&row?) {
                results.insert(result.key.clone(), result);
            }
        }
        Ok(results)
    }
}

/// Reads a stored result. A row that a newer version wrote may have values that this one does not know. A directory
/// elsewhere was not written by a batch.
fn read_result(text: &str) -> Option<RunResult> {
    let result: RunResult = serde_json::from_str(text).ok()?;
    let is_own = result.key.bytes().all(|byte| byte.is_ascii_hexdigit())
        && result.dir == try_dir(&result.key, result.tries);
    is_own.then_some(result)
}

fn insert_meta(database: &Connection, values: &[(&str, &str)]) -> Result<(), StoreError> {
    let mut statement =
        database.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
    for (name, value) in values {
        statement.execute(params![name, value])?;
    }
    Ok(())
}

fn supersede(database: &Connection, run: &str) -> Result<(), StoreError> {
    database
        .prepare_cached("UPDATE results SET superseded = 1 WHERE run = ?1 AND superseded = 0")?
        .execute([run])?;
    Ok(())
}

/// Adds a result and ends its try.
fn insert(database: &Connection, result: &RunResult) -> Result<(), StoreError> {
    let json = serde_json::to_string(result).unwrap_or_default();
    let mut statement = database.prepare(
        "INSERT INTO results (run, case_id, variant_id, attempt, class, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let inserted = statement.execute(params![
        result.key,
        result.case,
        result.variant,
        result.attempt,
        result.class.name(),
        json
    ]);
    match inserted {
        Err(rusqlite::Error::SqliteFailure(error, _))
            if error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE =>
        {
            return Err(StoreError::Committed(result.key.clone()));
        }
        inserted => inserted?,
    };
    let cost = TryCost { agent_usd: result.cost_usd, judge_usd: result.judge_cost_usd };
    end_try(database, &result.key, result.tries, result.class.name(), cost, result.finished_ms)
}

fn end_try(
    database: &Connection,
    run: &str,
    number: u32,
    ending: &str,
    cost: TryCost,
    now_ms: u64,
) -> Result<(), StoreError> {
    let mut statement = database.prepare(
        "UPDATE tries SET ended_ms = ?3, ending = ?4, cost_usd = ?5, judge_cost_usd = ?6
         WHERE run = ?1 AND number = ?2",
    )?;
    statement.execute(params![run, number, signed(now_ms), ending, cost.agent_usd, cost.judge_usd])?;
    Ok(())
}

fn database_path(dir: &Path) -> PathBuf {
    dir.join("experiment.sqlite")
}

/// Returns whether a text can be the key of a run, and so the name of a directory.
fn is_key(run: &str) -> bool {
    !run.is_empty() && run.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(class: &str, cost: f64) -> RunResult {
        RunResult { cost_usd: Some(cost), ..RunResult::example("00", "c", "v", class) }
    }

    #[test]
    fn result_is_replaced_completely_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = Experiment::open(dir.path()).expect("an experiment");
        experiment.begin_try("00", 1).expect("a try");
        experiment.commit(&result("passed", 0.5)).expect("a result");
        assert!(matches!(experiment.commit(&result("failed", 0.5)), Err(StoreError::Committed(_))));
        let class = || experiment.results().expect("results")["00"].class.name();
        // What a process that is killed after the first statement leaves behind.
        let trigger =
            "CREATE TRIGGER stop BEFORE INSERT ON results BEGIN SELECT RAISE(ABORT, 'stopped'); END";
        experiment.database.execute_batch(trigger).expect("a trigger");
        experiment.replace(&result("failed", 0.5)).expect_err("nothing can be inserted");
        assert_eq!(class(), "passed");
        experiment.database.execute_batch("DROP TRIGGER stop").expect("no trigger");
        experiment.replace(&result("failed", 0.5)).expect("a result");
        assert_eq!(class(), "failed");
        let rows: u32 = experiment
            .database
            .query_row("SELECT COUNT(*) FROM results", [], |row| row.get(0))
            .expect("a number");
        assert_eq!(rows, 2, "the earlier result is kept");
    }

    #[test]
    fn every_try_costs_and_a_result_that_is_graded_again_costs_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = Experiment::open(dir.path()).expect("an experiment");
        experiment.begin_try("00", 1).expect("a try");
        experiment.end_try("00", 1, "retried", TryCost::of_agent(Some(0.25)), 2).expect("an end");
        let (number, _) = experiment.begin_try("00", 3).expect("a try");
        let last = |class: &str| RunResult {
            tries: number,
            judge_cost_usd: Some(0.125),
            dir: try_dir("00", number),
            ..result(class, 0.5)
        };
        experiment.commit(&last("passed")).expect("a result");
        experiment.replace(&last("failed")).expect("a result");
        let cost = TryCost { agent_usd: Some(0.75), judge_usd: Some(0.125) };
        assert_eq!(experiment.costs().expect("costs"), HashMap::from([("00".to_owned(), cost)]));
        assert_eq!(experiment.last_try("00").expect("a number"), 2);
    }

    #[test]
    fn only_tries_that_may_have_had_effects_and_have_no_end_were_interrupted() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = Experiment::open(dir.path()).expect("an experiment");
        let begin = |run: &str, has_effects: bool| {
            let (number, _) = experiment.begin_try(run, 1).expect("a try");
            if has_effects {
                experiment.begin_effects(run, number, 2).expect("a start");
            }
            number
        };
        let cost = TryCost::of_agent(Some(0.25));
        let end = |run: &str, ending: &str| experiment.end_try(run, 1, ending, cost, 3).expect("an end");
        begin("waited", false);
        begin("retried", true);
        end("retried", "retried");
        begin("cancelled", true);
        end("cancelled", CANCELLED);
        begin("killed", true);
        begin("killed", true);
        begin("killed", false);
        begin("00", true);
        experiment.commit(&result("passed", 0.5)).expect("a result");
        let expected = [
            ("cancelled".to_owned(), InterruptedTry { number: 1, cost }),
            ("killed".to_owned(), InterruptedTry { number: 2, cost: TryCost::default() }),
        ];
        assert_eq!(experiment.interrupted_tries().expect("tries"), HashMap::from(expected));
    }

    #[test]
    fn reading_changes_nothing_and_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        drop(Experiment::open(dir.path()).unwrap());
        let names =
            || std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let before: std::collections::BTreeSet<_> = names();
        let experiment = Experiment::read(dir.path()).unwrap();
        assert!(experiment.set_meta("name", "x").is_err());
        assert_eq!(experiment.meta("name").unwrap(), None);
        drop(experiment);
        assert_eq!(names(), before);
    }

    #[test]
    fn experiment_of_an_older_version_is_read_and_migrated() {
        let effects = "    -- NULL until the first command of the try, or its agent, may have started.\n    \
                       effects_ms INTEGER,\n";
        let second = SCHEMA.replace(effects, "");
        let first = second.replace("    cost_usd REAL,\n    judge_cost_usd REAL,\n", "");
        assert!(SCHEMA.len() > second.len() && second.len() > first.len());
        for (version, schema) in [(1, first), (2, second), (3, SCHEMA.to_owned())] {
            let dir = tempfile::tempdir().expect("a directory");
            let old = Connection::open(database_path(dir.path())).expect("a database");
            old.execute_batch(&schema).expect("an old schema");
            old.pragma_update(None, "user_version", version).expect("a version");
            old.execute("INSERT INTO tries (run, number, started_ms) VALUES ('ff', 1, 1)", [])
                .expect("an interrupted try");
            old.execute(r#"INSERT INTO meta VALUES ('runs', '{"i": "k"}')"#, []).expect("runs");
            let runs = Some(HashMap::from([("i".to_owned(), "k".to_owned())]));
            let experiment = Experiment::read(dir.path()).expect("an experiment");
            assert_eq!(
                (experiment.suite_runs().expect("runs"), experiment.costs().expect("costs").len()),
                (runs.clone(), 0)
            );
            let experiment = Experiment::open(dir.path()).expect("an experiment");
            assert_eq!(experiment.suite_runs().expect("runs"), runs);
            experiment.begin_try("00", 1).expect("a try");
            experiment.commit(&result("passed", 0.5)).expect("a result");
            assert_eq!(experiment.costs().expect("costs")["00"].agent_usd, Some(0.5));
            let interrupted: Vec<String> =
                experiment.interrupted_tries().expect("tries").into_keys().collect();
            // Since version 3, it is known that this try had not started its agent.
            let expected: &[&str] = if version < 3 { &["ff"] } else { &[] };
            assert_eq!(interrupted, expected);
            drop(experiment);
            Experiment::open(dir.path()).expect("a migrated experiment");
        }
    }
}
