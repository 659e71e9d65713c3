//! What an experiment knows about its suite: values, and the names of its runs.

use super::{Experiment, SELECTED, StoreError, insert_meta};
use crate::key::RunKey;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Deserializer, Serializer as _};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

/// What the names of the parts of the stored runs of the suite begin with.
const RUNS: &str = "runs";
/// The number of runs in a part. A suite may have very many runs, so they are never in memory as one text.
const RUNS_PER_PART: usize = 1000;
/// The condition of the parts of the stored runs, also of an older version.
const IS_RUNS: &str = "name = 'runs' OR name GLOB 'runs/*'";

/// Returns whether a stored value is a part of the runs of the suite.
pub(crate) fn is_runs(name: &str) -> bool {
    name.strip_prefix(RUNS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The cases, variants and attempts of runs by their keys.
#[derive(Debug)]
pub(crate) struct RunNames {
    cases: Vec<String>,
    variants: Vec<String>,
    /// The position of each run in the order of the suite's runs.
    positions: HashMap<String, usize>,
}

impl RunNames {
    /// Returns the case, the variant and the attempt of a run.
    pub(crate) fn find(&self, key: &str) -> Option<(String, String, u32)> {
        let position = *self.positions.get(key)?;
        let (rest, variant) = (position / self.variants.len(), position % self.variants.len());
        let (attempt, case) = (rest / self.cases.len(), rest % self.cases.len());
        Some((self.cases[case].clone(), self.variants[variant].clone(), u32::try_from(attempt).ok()?))
    }
}

/// The values of a JSON object in their order.
struct OrderedKeys(Vec<String>);

impl<'de> Deserialize<'de> for OrderedKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = OrderedKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the keys of runs")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedKeys, A::Error> {
                let mut keys = Vec::new();
                while let Some((IgnoredAny, key)) = map.next_entry()? {
                    keys.push(key);
                }
                Ok(OrderedKeys(keys))
            }
        }
        deserializer.deserialize_map(KeyVisitor)
    }
}

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

    /// Returns the names of the runs of the suite that was run last; `None` if they are not stored.
    pub(crate) fn run_names(&self) -> Result<Option<RunNames>, StoreError> {
        let list = |name: &str| -> Result<Option<Vec<String>>, StoreError> {
            Ok(self.meta(name)?.and_then(|text| serde_json::from_str(&text).ok()))
        };
        let (Some(cases), Some(variants)) = (list(SELECTED)?, list("variants")?) else { return Ok(None) };
        let repeat: usize = self.meta("repeat")?.and_then(|text| text.parse().ok()).unwrap_or(1);
        let sql = format!("SELECT value FROM meta WHERE {IS_RUNS} ORDER BY length(name), name");
        let mut statement = self.database.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let mut positions = HashMap::new();
        // The runs of cases that were not selected follow.
        let mut expected = 0..cases.len() * variants.len() * repeat;
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            let Ok(OrderedKeys(keys)) = serde_json::from_str(&text) else { return Ok(None) };
            positions.extend(keys.into_iter().zip(&mut expected));
        }
        Ok(Some(RunNames { cases, variants, positions }))
    }

    /// Writes the values about the whole experiment whose names are `needed` as a JSON array of pairs.
    pub(crate) fn write_meta(&self, writer: impl Write, needed: impl Fn(&str) -> bool) -> io::Result<()> {
        let mut json = serde_json::Serializer::new(writer);
        let failed = |error: rusqlite::Error| io::Error::other(error);
        let mut statement =
            self.database.prepare("SELECT name, value FROM meta ORDER BY name").map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut pairs = json.serialize_seq(None)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let name: String = row.get(0).map_err(failed)?;
            if needed(&name) {
                let value: String = row.get(1).map_err(failed)?;
                pairs.serialize_element(&(name, value))?;
            }
        }
        Ok(pairs.end()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_their_order_and_those_of_other_cases_are_left_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = Experiment::open(dir.path()).expect("an experiment");
        // The order of the identities is another one than that of the runs.
        let run = |n: usize| RunKey { identity: format!("i{}", 9999 - n), key: format!("k{n}") };
        let values = [(SELECTED, r#"["a", "b"]"#), ("variants", r#"["v", "w"]"#), ("repeat", "300")];
        experiment.set_suite((0..1300).map(run), &values[1..]).expect("runs");
        assert!(experiment.run_names().expect("an answer").is_none(), "an older version");
        experiment.set_suite((0..1300).map(run), &values).expect("runs");
        let names = experiment.run_names().expect("an answer").expect("names");
        let named = |case: &str, variant: &str, attempt| Some((case.into(), variant.into(), attempt));
        assert_eq!(names.find("k0"), named("a", "v", 0));
        assert_eq!(names.find("k7"), named("b", "w", 1));
        assert_eq!(names.find("k1001"), named("a", "w", 250));
        assert_eq!(names.find("k1199"), named("b", "w", 299));
        assert_eq!(names.find("k1200"), None);
    }

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
            experiment.write_meta(&mut text, |_| true).expect("values");
            let values: Vec<(String, String)> = serde_json::from_slice(&text).expect("pairs");
            assert_eq!(values.len(), 1 + parts, "{count} runs");
        }
        experiment.set_suite((0..RUNS_PER_PART + 1).map(run), &[]).expect("runs");
        experiment.set_meta("runs/1", "damaged").expect("a value");
        assert_eq!(experiment.suite_runs().expect("an answer"), None);
    }
}
