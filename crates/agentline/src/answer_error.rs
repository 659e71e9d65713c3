//! The error of an answer that was checked against a schema. Builds with and without the feature `schema` share it.

use std::{fmt, time::Duration};

/// The reason why an answer has no value.
#[derive(Clone, Debug)]
pub(crate) enum AnswerError {
    /// The answer does not match the schema: the validation errors.
    Invalid(Vec<String>),
    /// The check did not finish in time.
    Timeout(CheckTimeout),
}

impl From<Vec<String>> for AnswerError {
    fn from(errors: Vec<String>) -> Self {
        Self::Invalid(errors)
    }
}

impl From<CheckTimeout> for AnswerError {
    fn from(timeout: CheckTimeout) -> Self {
        Self::Timeout(timeout)
    }
}

/// The error of a check that did not finish in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckTimeout(pub(crate) Duration);

impl fmt::Display for CheckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64().ceil();
        write!(f, "the check of the answer against the schema did not finish within {seconds} s")
    }
}
