//! The JSON Schema that an answer must fit: read, checked, asked for, and held against a value.
//!
//! Drafts 4, 6, 7, 2019-09 and 2020-12 are known; `$schema` says which, and without it 2020-12 is meant. `format` is a
//! hint from 2019-09 on and is held before that, as the drafts say. References lead to places in the schema itself;
//! nothing is ever fetched.

mod check;
mod depth;
pub(crate) mod limit;
mod say;
mod wrap;

use crate::{regular_file::read_to_limit, tools::Structured};
use agentline_core::{Problem, Problems};
use check::Compiled;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;
use std::{fmt, fs, io, path::Path, sync::Arc};

/// The tool by which an agent hands in its answer.
pub const STRUCTURED_OUTPUT: &str = "structured_output";

/// What the model reads about that tool.
const DESCRIPTION: &str = "Hands in the final answer of this task. Call it exactly once, when all other work is done, with \
                           the complete answer. If it reports that something is wrong, correct that and call it again.";
/// The key that people write.
const KEY: &str = "output_schema";
/// Nobody writes a longer schema, and no model reads one.
const LONGEST_FILE: u64 = 4 << 20;
/// How much of a schema is repeated to a model.
const LONGEST_GIST: usize = 4000;

/// A JSON Schema, found good. A clone is cheap.
#[derive(Clone)]
pub struct Schema {
    inner: Arc<Inner>,
}

struct Inner {
    document: Value,
    compiled: Compiled,
}

impl Schema {
    /// Reads a file, which may be a pipe. Blocks until the pipe ends.
    ///
    /// # Errors
    /// It cannot be read, is not JSON or no JSON Schema; the problem names `output_schema` and the way out.
    pub fn from_file(path: &Path) -> Result<Self, Problems> {
        let wrong = |what: String| {
            let problem = Problem::new(KEY, format!("`{}` {what}", path.display()));
            problem.hint("name a file that holds a JSON Schema")
        };
        // It may be a pipe: whoever calls this limits the time.
        let read = fs::File::open(path).and_then(|file| read_to_limit(file, LONGEST_FILE));
        let bytes = read.map_err(|why| match why.kind() {
            io::ErrorKind::FileTooLarge => wrong(format!("is longer than {} MB", LONGEST_FILE >> 20)),
            io::ErrorKind::IsADirectory => wrong("is not a file".into()),
            _ => wrong(format!("cannot be read: {why}")),
        })?;
        let text =
            String::from_utf8(bytes).map_err(|_| wrong("cannot be read: it is not UTF-8 text".into()))?;
        let document = serde_json::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|why| wrong(format!("is not JSON: {why}")))?;
        Self::from_value(document).map_err(|problems| {
            let at = |problem: Problem| problem.source(path.display().to_string());
            Problems(problems.0.into_iter().map(at).collect())
        })
    }

    /// Takes a schema that is at hand.
    ///
    /// # Errors
    /// It is no JSON Schema; the problem names `output_schema` and the way out.
    pub fn from_value(document: Value) -> Result<Self, Problems> {
        if !document.is_object() {
            let problem = Problem::new(KEY, "is not a JSON Schema: that is an object");
            return Err(problem
                .hint("write something like `{\"type\": \"object\", \"properties\": {…}}`")
                .into());
        }
        let compiled = Compiled::new(&document)?;
        Ok(Self { inner: Arc::new(Inner { document, compiled }) })
    }

    /// The schema of a type.
    ///
    /// # Errors
    /// The type describes itself by something that is no JSON Schema.
    pub fn from_type<T: JsonSchema>() -> Result<Self, Problems> {
        let generator = SchemaSettings::draft2020_12().into_generator();
        Self::from_value(generator.into_root_schema_for::<T>().into())
    }

    /// The schema as it was given.
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.inner.document
    }

    /// Holds a value against the schema.
    ///
    /// # Errors
    /// What is wrong, one sentence each: where, what was expected, what was found.
    pub fn check(&self, value: &Value) -> Result<(), Vec<String>> {
        self.inner.compiled.check(value, "")
    }

    /// What the tool `structured_output` takes: `{"data": …}`, or `{"items": […]}` where the schema is of type `array`,
    /// because the input of a tool is always an object.
    #[must_use]
    pub fn tool_input(&self) -> Value {
        wrap::around(&self.inner.document)
    }

    /// Takes the value out of what the tool was called with. A model that forgets the object around the value, or that
    /// hands it in as text, is understood too, as long as it fits.
    ///
    /// # Errors
    /// What is wrong, for the model to read.
    pub fn take(&self, input: &Value) -> Result<Value, Vec<String>> {
        let key = wrap::key(&self.inner.document);
        for meant in wrap::readings(input, key) {
            if self.check(&meant).is_ok() {
                return Ok(meant);
            }
        }
        match input.get(key) {
            Some(value) => match self.inner.compiled.check(value, &format!("/{key}")) {
                Ok(()) => Ok(value.clone()),
                Err(wrong) => Err(wrong),
            },
            None => Err(vec![format!("the argument `{key}` is missing; it holds the whole answer")]),
        }
    }

    /// The tool by which an agent hands in a value of this schema. What is wrong with one is told to the model.
    #[must_use]
    pub fn structured(&self) -> Structured {
        let schema = self.clone();
        let check = move |input: Value| {
            let schema = schema.clone();
            async move {
                let taken = limit::check_within(limit::LONGEST_CHECK, move || schema.take(&input)).await;
                match taken {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(wrong)) => Err(format!("the answer does not fit:\n{}", listed(&wrong))),
                    Err(timeout) => Err(timeout.to_string()),
                }
            }
        };
        Structured::new(self.tool_input(), check).name(STRUCTURED_OUTPUT).description(DESCRIPTION)
    }

    /// What is added to a prompt so that the answer comes as a value: by the tool where the agent has it, else as text.
    #[must_use]
    pub fn instruction(&self, by_tool: bool) -> String {
        if by_tool {
            return format!(
                "When you are done, hand in your final answer by calling the tool `{STRUCTURED_OUTPUT}` exactly once. \
                 An answer that is only written as text does not count."
            );
        }
        format!(
            "Your final answer must be one JSON value and nothing else: no words before or after it. It must fit this \
             JSON Schema:\n{}",
            self.gist()
        )
    }

    /// The schema as text for a model: all of it, or its outline where it is long.
    #[must_use]
    pub fn gist(&self) -> String {
        say::gist(&self.inner.document, LONGEST_GIST)
    }
}

/// Shows the schema, not what was made of it.
impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.inner.document).finish()
    }
}

/// One line for each sentence.
pub(crate) fn listed(sentences: &[String]) -> String {
    let lines: Vec<String> = sentences.iter().map(|sentence| format!("- {sentence}")).collect();
    lines.join("\n")
}

/// The beginning of a text, with a mark where it was cut.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
