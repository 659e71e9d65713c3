//! What an experiment knows about its suite: values, and the names of its runs.

use super::{Experiment, StoreError, insert_meta};
use crate::key::RunKey;
use serde::Serializer as _;
use serde::ser::SerializeSeq as _;
use std::collections::HashMap;
use std::io::{self, Write};

/// What the names of the parts of the stored runs of the suite begin with.
const RUNS: &str = "runs";
/// The number of runs in a part. A suite may have very many runs, so they are never in memory as one text.
const RUNS_PER_PART: usize = 1000;
/// The condition of the parts of the stored runs, also of an older version.
const IS_RUNS: &str = "name = 'runs' OR name GLOB 'runs/*'";

impl Experiment {
    /// Stores the runs of the suite, as [`Self::suite_runs`] returns them, together with other values.
    pub(crate) fn set_suite(
        &self,
        mut runs: impl Iterator<Item = RunKey>,
        values: &[(&str, &str)],
    ) -> Result<(), StoreError> {
        let transaction = self.database.unchecked_transaction()?;
        transaction.execute(&format!("DELETE FROM meta WHERE {IS_RUNS}"), [])?;
        insert_meta(&transaction, values)?;
        // A suite without runs has one part, too.
        for part in 0.. {
            let runs: Vec<(String, String)> =
                runs.by_ref().take(RUNS_PER_PART).map(|run| (run.identity, run.key)).collect();
            if part > 0 && runs.is_empty() {
                break;
            }
            let mut text = Vec::new();
            // Writing to memory cannot fail.
            let _ = serde_json::Serializer::new(&mut text).collect_map(runs);
            let text = String::from_utf8(text).unwrap_or_default();
            insert_meta(&transaction, &[(&format!("{RUNS}/{part}"), &text)])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Returns the runs of the suite that was run last: the key of each by its identity in the suite. `None` if no
    /// suite is stored, or if it is damaged.
    pub(crate) fn suite_runs(&self) -> Result<Option<HashMap<String, String>>, StoreError> {
        let mut statement = self.database.prepare(&format!("SELECT value FROM meta WHERE {IS_RUNS}"))?;
        let mut rows = statement.query([])?;
        let mut all: Option<HashMap<String, String>> = None;
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            // Without one part, results of its runs would seem to be those of another suite.
            let Ok(runs) = serde_json::from_str::<HashMap<String, String>>(&text) else { return Ok(None) };
            all.get_or_insert_default().extend(runs);
        }
        Ok(all)
    }

    /// Writes all values about the whole experiment as a JSON array of pairs.
    pub(crate) fn write_meta(&self, writer: impl Write) -> io::Result<()> {
        let mut json = serde_json::Serializer::new(writer);
        let failed = |error: rusqlite::Error| io::Error::other(error);
        let mut statement =
            self.database.prepare("SELECT name, value FROM meta ORDER BY name").map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut pairs = json.serialize_seq(None)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let pair: (String, String) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
            pairs.serialize_element(&pair)?;
        }
        Ok(pairs.end()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_large_suite_are_stored_in_parts_and_replaced_together() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = Experiment::open(dir.path()).expect("an experiment");
        assert_eq!(experiment.suite_runs().expect("runs"), None);
        // An older version has stored all runs as one value.
        experiment.set_meta(RUNS, r#"{"00": "11"}"#).expect("runs");
        let expected = HashMap::from([("00".to_owned(), "11".to_owned())]);
        assert_eq!(experiment.suite_runs().expect("runs"), Some(expected));
        let run = |n: usize| RunKey { identity: format!("i{n}"), key: format!("k{n}") };
        for (count, parts) in [(2 * RUNS_PER_PART + 1, 3), (RUNS_PER_PART, 1), (0, 1)] {
            experiment.set_suite((0..count).map(run), &[("name", "s")]).expect("runs");
            let expected: HashMap<_, _> = (0..count).map(|n| (run(n).identity, run(n).key)).collect();
            assert_eq!(experiment.suite_runs().expect("runs"), Some(expected));
            let mut text = Vec::new();
            experiment.write_meta(&mut text).expect("values");
            let values: Vec<(String, String)> = serde_json::from_slice(&text).expect("pairs");
            assert_eq!(values.len(), 1 + parts, "{count} runs");
        }
        experiment.set_suite((0..RUNS_PER_PART + 1).map(run), &[]).expect("runs");
        experiment.set_meta("runs/1", "damaged").expect("a value");
        assert_eq!(experiment.suite_runs().expect("an answer"), None);
    }
}
