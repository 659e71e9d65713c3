//! The JSON Schema of an answer: parses it, describes it to the model, and validates values against it.
//!
//! Drafts 4, 6, 7, 2019-09 and 2020-12 are supported. `$schema` selects the draft; the default is 2020-12. As the
//! drafts specify, `format` is enforced before 2019-09 and only an annotation since. References resolve within the
//! schema; nothing is ever fetched.

mod answer;
mod check;
mod depth;
mod limit;
mod message;
mod wrap;

use crate::{answer_error::AnswerError, fs::regular_file::read_to_limit, text::listed, tools::AnswerTool};
use agentline_core::{Problem, Problems};
use check::CompiledSchema;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;
use std::{fmt, fs, io, path::Path, sync::Arc};

/// The name of the tool with which an agent submits its answer.
pub const STRUCTURED_OUTPUT: &str = "structured_output";

/// The description of that tool for the model.
const DESCRIPTION: &str = "Submits the final answer of this task. Call it exactly once, when all other work is done, with \
                           the complete answer. If it reports an error, correct the answer and call it again.";
/// The configuration key of the schema.
const KEY: &str = "output_schema";
/// The maximum size of a schema file.
const LONGEST_FILE: u64 = 4 << 20;
/// The maximum length of a schema in a prompt.
const MAX_SUMMARY: usize = 4000;

/// A valid JSON Schema. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    inner: Arc<Inner>,
}

struct Inner {
    document: Value,
    compiled: CompiledSchema,
}

impl Schema {
    /// Reads a schema from a file, which may be a pipe. Blocks until the pipe ends.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not JSON or is not a JSON Schema. The problem names `output_schema` and has
    /// a hint.
    pub fn from_file(path: &Path) -> Result<Self, Problems> {
        let wrong = |message: String| {
            let problem = Problem::new(KEY, format!("`{}` {message}", path.display()));
            problem.hint("use a file that contains a JSON Schema")
        };
        // The file may be a pipe, so callers must limit the time.
        let read = fs::File::open(path).and_then(|file| read_to_limit(file, LONGEST_FILE));
        let bytes = read.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => wrong(format!("is larger than {} MB", LONGEST_FILE >> 20)),
            io::ErrorKind::IsADirectory => wrong("is not a file".into()),
            _ => wrong(format!("cannot be read: {error}")),
        })?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not valid UTF-8".into()))?;
        let document = serde_json::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|error| wrong(format!("is not JSON: {error}")))?;
        Self::from_value(document).map_err(|problems| {
            let at = |problem: Problem| problem.source(path.display().to_string());
            Problems(problems.0.into_iter().map(at).collect())
        })
    }

    /// Creates a schema from a JSON value.
    ///
    /// # Errors
    /// Fails if the value is not a JSON Schema. The problem names `output_schema` and has a hint.
    pub fn from_value(document: Value) -> Result<Self, Problems> {
        if !document.is_object() {
            let problem = Problem::new(KEY, "is not a JSON Schema: expected an object");
            return Err(problem
                .hint("use something like `{\"type\": \"object\", \"properties\": {…}}`")
                .into());
        }
        let compiled = CompiledSchema::new(&document)?;
        Ok(Self { inner: Arc::new(Inner { document, compiled }) })
    }

    /// Creates the schema of a type.
    ///
    /// # Errors
    /// Fails if the type generates an invalid JSON Schema.
    pub fn from_type<T: JsonSchema>() -> Result<Self, Problems> {
        let generator = SchemaSettings::draft2020_12().into_generator();
        Self::from_value(generator.into_root_schema_for::<T>().into())
    }

    /// Returns the original schema document.
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.inner.document
    }

    /// Validates a value against the schema.
    ///
    /// # Errors
    /// Returns one sentence per error, with the location, the expected value and the actual value.
    pub fn check(&self, value: &Value) -> Result<(), Vec<String>> {
        self.inner.compiled.check(value, "")
    }

    /// Returns the input schema of the tool `structured_output`.
    ///
    /// The input of a tool is always an object, so the value is wrapped: `{"data": …}`, or `{"items": […]}` if the
    /// schema is of type `array`.
    #[must_use]
    pub fn tool_input(&self) -> Value {
        wrap::wrapped(&self.inner.document)
    }

    /// Extracts the value from the input of the tool.
    ///
    /// A value without the wrapping object, or one that is encoded as a string, is accepted too if it matches the
    /// schema.
    ///
    /// # Errors
    /// Returns the validation errors, worded for the model.
    pub fn take(&self, input: &Value) -> Result<Value, Vec<String>> {
        let key = wrap::key(&self.inner.document);
        for reading in wrap::readings(input, key) {
            if self.check(&reading).is_ok() {
                return Ok(reading);
            }
        }
        match input.get(key) {
            Some(value) => match self.inner.compiled.check(value, &format!("/{key}")) {
                Ok(()) => Ok(value.clone()),
                Err(wrong) => Err(wrong),
            },
            None => {
                Err(vec![format!("the argument `{key}` is missing; it must contain the complete answer")])
            }
        }
    }

    /// Returns the tool with which an agent submits a value of this schema. Validation errors are reported to the
    /// model.
    #[must_use]
    pub fn structured(&self) -> AnswerTool {
        let schema = self.clone();
        let check = move |input: Value| {
            let schema = schema.clone();
            async move {
                let taken = limit::check_within(limit::LONGEST_CHECK, move || schema.take(&input)).await;
                taken.map(drop).map_err(|error| match error {
                    AnswerError::Invalid(wrong) => {
                        format!("the answer does not match the schema:\n{}", listed(&wrong))
                    }
                    AnswerError::Timeout(timeout) => timeout.to_string(),
                })
            }
        };
        AnswerTool::new(self.tool_input(), check).name(STRUCTURED_OUTPUT).description(DESCRIPTION)
    }

    /// Returns the text that asks the model for a value: with the tool if the agent has it, otherwise as text.
    #[must_use]
    pub fn instruction(&self, by_tool: bool) -> String {
        if by_tool {
            return format!(
                "When you are done, submit your final answer by calling the tool `{STRUCTURED_OUTPUT}` exactly once. \
                 An answer that is only written as text does not count."
            );
        }
        format!(
            "Your final answer must be a single JSON value, with no text before or after it. It must match this \
             JSON Schema:\n{}",
            self.summary()
        )
    }

    /// Returns the schema as text for a model, or an outline if it is long.
    #[must_use]
    pub fn summary(&self) -> String {
        message::summary(&self.inner.document, MAX_SUMMARY)
    }
}

/// Shows the schema document without its compiled form.
impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.inner.document).finish()
    }
}

#[cfg(test)]
mod tests;
