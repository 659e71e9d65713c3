//! Runs that another machine has executed: their results, tries and files.

use super::{Experiment, StoreError, TryCost, end_try, insert, is_key, read_result, signed, supersede};
use crate::result::{RunResult, try_dir};
use agentline_fs::{private_file::create_dir_all, remove::remove_tree};
use rusqlite::{OptionalExtension, params};
use std::path::Path;

/// A run that another machine has executed.
#[derive(Clone, Debug)]
pub(crate) struct ImportedRun {
    /// The result, with the number of its try here.
    pub(crate) result: RunResult,
    /// How the tries directly before it ended, and what each cost.
    pub(crate) tries: Vec<(String, Option<f64>)>,
}

impl Experiment {
    /// Moves what a run has left to its place, if there is anything, and returns the number of its try: after the tries
    /// that this experiment has, and `earlier` ones that are stored together with it.
    pub(crate) fn place_files(&self, run: &str, earlier: usize, files: &Path) -> Result<u32, StoreError> {
        // The key becomes a part of a path.
        if !is_key(run) {
            return Err(StoreError::InvalidKey(run.to_owned()));
        }
        let earlier = u32::try_from(earlier).unwrap_or(u32::MAX);
        let number = self.last_try(run)?.saturating_add(earlier).saturating_add(1);
        let dir = self.dir.join(try_dir(run, number));
        let wrong = |error| StoreError::Io(dir.clone(), error);
        create_dir_all(&dir).map_err(wrong)?;
        if files.exists() {
            // A process that was killed before the result was committed may have left files there.
            remove_tree(&dir);
            std::fs::rename(files, &dir).map_err(wrong)?;
        }
        Ok(number)
    }

    /// Stores the tries of a run and commits its result, all or nothing. The earlier result is kept if it is replaced.
    ///
    /// # Errors
    /// Fails if the run already has a result that is not replaced, or if the database cannot be written.
    pub(crate) fn commit_imported(
        &self,
        imported: &ImportedRun,
        is_replacing: bool,
    ) -> Result<(), StoreError> {
        let ImportedRun { result, tries } = imported;
        let transaction = self.database.unchecked_transaction()?;
        let mut begin = transaction
            .prepare_cached("INSERT OR IGNORE INTO tries (run, number, started_ms) VALUES (?1, ?2, ?3)")?;
        let first = result.tries.saturating_sub(u32::try_from(tries.len()).unwrap_or(u32::MAX));
        for number in first..=result.tries {
            begin.execute(params![result.key, number, signed(result.finished_ms)])?;
        }
        drop(begin);
        for (number, (ending, cost)) in (first..).zip(tries) {
            let cost = TryCost::of_agent(*cost);
            end_try(&transaction, &result.key, number, ending, cost, result.finished_ms)?;
        }
        if is_replacing {
            supersede(&transaction, &result.key)?;
        }
        insert(&transaction, result)?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns what the result of a run and the tries directly before it cost, if that is known.
    pub(crate) fn cost_with_tries(&self, run: &str) -> Result<Option<f64>, StoreError> {
        let mut select =
            self.database.prepare_cached("SELECT result FROM results WHERE run = ?1 AND superseded = 0")?;
        let text: Option<String> = select.query_row([run], |row| row.get(0)).optional()?;
        let Some(result) = text.and_then(|text| read_result(&text)) else { return Ok(None) };
        if result.cost_now().is_none() && !result.is_free() {
            return Ok(None);
        }
        let mut sum = self.database.prepare_cached(
            "SELECT TOTAL(cost_usd) FROM tries
             WHERE run = ?1 AND number < ?2 AND ending IN ('retried', 'cancelled') AND number > (
                SELECT COALESCE(MAX(number), 0) FROM tries
                WHERE run = ?1 AND number < ?2 AND ending NOT IN ('retried', 'cancelled')
             )",
        )?;
        let tries: f64 = sum.query_row(params![run, result.tries], |row| row.get(0))?;
        Ok(Some(result.cost_now().unwrap_or(0.0) + tries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_run_is_stored_with_its_tries_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = Experiment::open(dir.path()).expect("an experiment");
        let tries = vec![("retried".to_owned(), Some(0.25)), ("retried".to_owned(), None)];
        let imported = |number, cost| {
            let result = RunResult::example("00", "c", "v", "passed");
            let dir = try_dir("00", number);
            let result = RunResult { tries: number, dir, cost_usd: Some(cost), ..result };
            ImportedRun { result, tries: tries.clone() }
        };
        experiment.commit_imported(&imported(3, 1.0), false).expect("a result");
        assert_eq!(experiment.last_try("00").expect("tries"), 3);
        assert_eq!(experiment.cost_with_tries("00").expect("a cost"), Some(1.25));
        experiment.commit_imported(&imported(6, 2.0), false).expect_err("it has a result");
        assert_eq!(experiment.last_try("00").expect("tries"), 3);
        experiment.commit_imported(&imported(6, 2.0), true).expect("another result");
        assert_eq!(experiment.results().expect("results")["00"].cost_usd, Some(2.0));
        assert_eq!(experiment.costs().expect("costs")["00"].agent_usd, Some(3.5));
        // The tries before the first result are not those of the second one.
        assert_eq!(experiment.cost_with_tries("00").expect("a cost"), Some(2.25));
    }
}
