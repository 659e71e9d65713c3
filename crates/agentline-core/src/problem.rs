//! Problems with a request or configuration: the key, what is wrong, and how to fix it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A problem with a request or a setting, found before anything was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// The key or flag, as the user would write it.
    pub key: String,
    /// The description of the problem, with the value if it is short.
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
        // The name of a flag or variable is its own origin.
        let source = self.source.as_ref().filter(|source| !matches!(&***source, "flag" | "environment"));
        match (&self.value, source) {
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
    let length = word.chars().count();
    let allowed = (length / 3).clamp(1, 3);
    known
        .into_iter()
        // Words of such different lengths are not compared, since the time grows with the product of the lengths.
        .filter(|known| known.chars().count().abs_diff(length) <= allowed)
        .map(|known| (strsim::osa_distance(word, known), known))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, known)| known)
}

/// Formats an error with its sources, as messages show it: `cannot read a.json: permission denied`.
///
/// The `Display` of an error does not repeat its source.
#[must_use]
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
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
    fn nearest_word_may_differ_in_a_third_of_its_letters() {
        for (word, known, is_near) in [
            ("same", "same", true),
            ("", "a", true),
            ("", "ab", false),
            ("ab", "a", true),
            ("abcd", "abdc", true),
            ("abcd", "badc", false),
            ("gemini-2.5-por", "gemini-2.5-pro", true),
            ("gemini-3-pro", "gemini-2.5-pro", true),
            ("tiemuot", "timeout", true),
            ("kitten", "sitting", false),
            ("sitting-room", "kitten-room", true),
            ("grün", "grün", true),
            ("grau", "grün", false),
            ("ü", "ö", true),
        ] {
            assert_eq!(nearest(word, [known]), is_near.then_some(known), "{word} {known}");
        }
        assert_eq!(nearest("mode", ["modes", "model", "code"]), Some("code"));
    }
}
