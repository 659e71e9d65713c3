//! Problems with a request or configuration: the key, what is wrong, and how to fix it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A problem with a request or a setting, found before anything was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// The key or flag, as the user would write it.
    pub key: String,
    /// What is wrong, with the value if it is short.
    pub message: String,
    /// The value, if it is not in the message. Never a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What to write instead.
    pub hint: Option<String>,
    /// The origin of the value: a file, `environment`, `flag`.
    pub source: Option<String>,
}

impl Problem {
    /// Creates a problem with this key.
    #[must_use]
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into(), value: None, hint: None, source: None }
    }

    /// Adds a hint about how to fix the problem.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the value.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// Adds the origin of the value.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.key, self.message)?;
        match (&self.value, &self.source) {
            (Some(value), Some(source)) => write!(f, " (`{value}` from {source})")?,
            (Some(value), None) => write!(f, " (`{value}`)")?,
            (None, Some(source)) => write!(f, " (from {source})")?,
            (None, None) => {}
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Returns the known word that is most similar to `word`, if it is similar enough to be a likely correction.
///
/// ```
/// use agentline_core::nearest;
/// assert_eq!(nearest("timout", ["timeout", "model"]), Some("timeout"));
/// assert_eq!(nearest("modle", ["timeout", "model"]), Some("model"));
/// assert_eq!(nearest("zzz", ["timeout", "model"]), None);
/// ```
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().collect();
    let allowed = (word.len() / 3).clamp(1, 3);
    known.into_iter().filter_map(|k| Some((distance(&word, k, allowed)?, k))).min().map(|(_, k)| k)
}

/// Returns the edit distance (substitutions, insertions, deletions and transpositions), or `None` if it exceeds `most`.
fn distance(a: &[char], b: &str, most: usize) -> Option<usize> {
    let b: Vec<char> = b.chars().collect();
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    // Common prefixes and suffixes do not change the distance.
    let alike = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[alike..], &b[alike..]);
    let alike = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - alike], &b[..b.len() - alike]);
    // Only three rows of the table are kept, and in each only the cells at most `most` from the diagonal are computed.
    let far = most + 1;
    let mut before = vec![far; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).map(|j| j.min(far)).collect();
    let mut row = before.clone();
    for i in 1..=a.len() {
        row.fill(far);
        row[0] = i.min(far);
        for j in i.saturating_sub(most).max(1)..=(i + most).min(b.len()) {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(row[j - 1] + 1).min(last[j] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row[j] = least.min(far);
        }
        std::mem::swap(&mut before, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    Some(last[b.len()]).filter(|distance| *distance <= most)
}

/// All problems with a request or configuration, reported together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Returns `Ok` if there are no problems.
    ///
    /// # Errors
    ///
    /// Returns the problems, if there are any.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl From<Vec<Problem>> for Problems {
    fn from(problems: Vec<Problem>) -> Self {
        Self(problems)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_is_bounded() {
        let count = |a: &str, b: &str, most| distance(&a.chars().collect::<Vec<_>>(), b, most);
        let rows: &[(&str, &str, usize)] = &[
            ("same", "same", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abcd", "abdc", 1),
            ("gemini-2.5-pro", "gemini-2.5-por", 1),
            ("gemini-2.5-pro", "gemini-3-pro", 3),
            ("timeout", "tiemuot", 2),
            ("abcdef", "bcdefa", 2),
            ("kitten", "sitting", 3),
            ("grün", "grau", 2),
        ];
        for (a, b, far) in rows {
            for (a, b) in [(a, b), (b, a)] {
                for most in 0..5 {
                    assert_eq!(count(a, b, most), Some(*far).filter(|far| *far <= most), "{a} {b} {most}");
                }
            }
        }
    }
}
