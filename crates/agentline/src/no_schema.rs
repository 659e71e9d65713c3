//! Stands in for the module `schema` in builds without the feature `schema`, which check no JSON Schema.

use crate::tools::AnswerTool;
use agentline_core::{Problem, Problems};
use serde_json::Value;
use std::{convert::Infallible, fmt, path::Path, time::Duration};

/// The name of the tool with which an agent submits its answer.
pub(crate) const STRUCTURED_OUTPUT: &str = "structured_output";

/// A JSON Schema. No value of this type exists in this build.
#[derive(Clone, Debug)]
pub struct Schema(Infallible);

impl Schema {
    /// Fails: a run with a schema cannot start in this build.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Problems> {
        let what = format!("this build of agentline cannot check `{}`", path.display());
        let hint = "enable the Cargo feature `schema` of the crate `agentline`";
        Err(Problem::new("output_schema", what).hint(hint).into())
    }

    pub(crate) fn document(&self) -> &Value {
        match self.0 {}
    }

    pub(crate) fn structured(&self) -> AnswerTool {
        match self.0 {}
    }

    pub(crate) fn instruction(&self, _by_tool: bool) -> String {
        match self.0 {}
    }

    pub(crate) fn gist(&self) -> String {
        match self.0 {}
    }

    pub(crate) async fn value_of(
        &self,
        _text: &str,
        _handed_in: Option<Value>,
        _left: Duration,
    ) -> Result<Value, AnswerError> {
        match self.0 {}
    }
}

/// The reason why an answer has no value. No value of this type exists in this build.
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

/// The error of a check that did not finish in time. No value of this type exists in this build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckTimeout(pub(crate) Duration);

impl fmt::Display for CheckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the check did not finish within {:?}", self.0)
    }
}
