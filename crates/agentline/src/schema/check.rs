//! Validates with the crate `boon`; no other module depends on it except `message`.

use super::depth;
use crate::schema::message;
use agentline_core::{Problem, Problems};
use boon::{CompileError, Compiler, Draft, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde_json::Value;
use std::error::Error;

/// The URL of the schema itself. It is never fetched, so it need not exist.
const SCHEMA_URL: &str = "agentline://schema/";

/// A schema compiled for validation.
pub(super) struct CompiledSchema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl CompiledSchema {
    /// Compiles a schema, or returns its problems.
    pub(super) fn new(document: &Value) -> Result<Self, Problems> {
        if !depth::is_bounded(document) {
            let message =
                format!("nests references and alternatives more than {} levels deep", depth::DEEPEST);
            return Err(Problem::new(super::KEY, message).hint("make the schema flatter").into());
        }
        depth::with_stack(|| Self::compile(document))
    }

    fn compile(document: &Value) -> Result<Self, Problems> {
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        compiler.use_loader(Box::new(Nothing));
        let mut schemas = Schemas::new();
        let wrong = |error: CompileError| Problems::from(problem(&error, document));
        compiler.add_resource(SCHEMA_URL, document.clone()).map_err(wrong)?;
        let index = compiler.compile(SCHEMA_URL, &mut schemas).map_err(wrong)?;
        Ok(Self { schemas, index })
    }

    /// Validates a value against the schema. Reported locations are prefixed with `at`.
    pub(super) fn check(&self, value: &Value, at: &str) -> Result<(), Vec<String>> {
        depth::with_stack(|| {
            self.schemas.validate(value, self.index).map_err(|error| message::sentences(&error, value, at))
        })
    }
}

/// A loader that fetches nothing.
struct Nothing;

impl UrlLoader for Nothing {
    fn load(&self, _url: &str) -> Result<Value, Box<dyn Error>> {
        Err("remote schemas are not fetched".into())
    }
}

fn problem(error: &CompileError, document: &Value) -> Problem {
    let wrong = |message: String| Problem::new(super::KEY, message);
    let location = |url: &str| url.trim_start_matches(SCHEMA_URL).to_owned();
    match error {
        CompileError::LoadUrlError { url, .. } if is_draft(document, url) => {
            wrong(format!("uses an unknown draft: `{url}`"))
                .hint("set `$schema` to draft 2020-12, 2019-09, 7, 6 or 4, or remove it")
        }
        CompileError::UnsupportedDraft { url } | CompileError::InvalidMetaSchemaUrl { url, .. } => {
            wrong(format!("uses an unknown draft: `{}`", location(url)))
                .hint("set `$schema` to draft 2020-12, 2019-09, 7, 6 or 4, or remove it")
        }
        CompileError::LoadUrlError { url, .. } => {
            wrong(format!("refers to `{}`, but remote schemas are not fetched", location(url)))
                .hint("copy it to `$defs` and refer to it as `#/$defs/NAME`")
        }
        CompileError::JsonPointerNotFound(at) => {
            wrong(format!("refers to `{}`, which does not exist", location(at))).hint("fix the `$ref`")
        }
        CompileError::InvalidRegex { regex, src, .. } => {
            wrong(format!("has an invalid pattern: `{regex}`: {src}")).hint("fix the `pattern`")
        }
        CompileError::ValidationError { src, .. } => of_meta(src, document),
        other => wrong(format!(
            "is not a valid JSON Schema: {}",
            message::bounded(&other.to_string().replace(SCHEMA_URL, ""))
        ))
        .hint("fix the schema"),
    }
}

fn of_meta(error: &ValidationError<'_, '_>, document: &Value) -> Problem {
    let sentences = message::sentences(error, document, "");
    Problem::new(super::KEY, format!("is not a valid JSON Schema: {}", sentences.join("; ")))
        .hint("fix the schema")
}

fn is_draft(document: &Value, url: &str) -> bool {
    let draft = document["$schema"].as_str().unwrap_or_default();
    !draft.is_empty() && draft.trim_end_matches('#') == url.trim_end_matches('#')
}
