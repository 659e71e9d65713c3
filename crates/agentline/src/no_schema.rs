//! Stands in for the module `schema` in builds without the feature `schema`, which check no JSON Schema.

use crate::{answer_error::AnswerError, tools::AnswerTool};
use agentline_core::{Problem, Problems};
use serde_json::Value;
use std::{convert::Infallible, path::Path, time::Duration};

/// The name of the tool with which an agent submits its answer.
pub(crate) const STRUCTURED_OUTPUT: &str = "structured_output";

/// A JSON Schema. No value of this type exists in this build.
#[derive(Clone, Debug)]
pub struct Schema(Infallible);

impl Schema {
    /// Fails: a run with a schema cannot start in this build.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Problems> {
        let message = format!("this build of agentline cannot check `{}`", path.display());
        let hint = "enable the Cargo feature `schema` of the crate `agentline`";
        Err(Problem::new("output_schema", message).hint(hint).into())
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

    pub(crate) fn summary(&self) -> String {
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
