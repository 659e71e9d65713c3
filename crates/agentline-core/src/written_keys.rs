//! The names with which a caller wrote keys, so that problems name what the caller can find.

use crate::Problem;
use std::collections::BTreeMap;

/// The names of keys as a caller wrote them, where they differ from the names in the table of settings: flags,
/// variables, and other spellings.
///
/// They do not change what a request means, so all values are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct WrittenKeys(BTreeMap<&'static str, String>);

impl PartialEq for WrittenKeys {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl WrittenKeys {
    /// Records how a key was written last.
    pub(crate) fn record(&mut self, key: &'static str, written: &str) {
        if key == written {
            self.0.remove(key);
        } else {
            self.0.insert(key, written.to_owned());
        }
    }

    /// Names the keys in a problem as the caller wrote them.
    pub(crate) fn name(&self, mut problem: Problem) -> Problem {
        for (key, written) in &self.0 {
            let (quoted, shown) = (format!("`{key}`"), format!("`{written}`"));
            problem.message = problem.message.replace(&quoted, &shown);
            problem.hint = problem.hint.map(|hint| hint.replace(&quoted, &shown));
            if problem.key == *key {
                // Some messages begin with their key, which stands before the message of a flag or variable already.
                if let Some(rest) = problem.message.strip_prefix(&format!("{key} ")) {
                    let is_key = !written.starts_with("--") && !written.starts_with("AGENTLINE_");
                    problem.message = if is_key { format!("{written} {rest}") } else { rest.to_owned() };
                }
                problem.key.clone_from(written);
            }
        }
        problem
    }
}
