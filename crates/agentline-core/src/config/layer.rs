//! One source of settings: the text of a file, the environment, the flags, or a map of the caller.

use super::findings::{Findings, UnknownKeys};
use crate::{Notice, Problem};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf};

/// Settings from one source.
///
/// Layers are passed lowest first, on top of the built-in one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Layer {
    /// The name used in problems and `config show`: a path, `environment` or `flag`.
    pub name: String,
    pub(super) kind: LayerKind,
    body: Body,
    pub(super) base: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    pub(super) is_of_workspace: bool,
    /// The notice to show if the layer is ignored for lack of full trust.
    pub(super) unless_trusted: Option<Box<Notice>>,
    pub(super) unknown_keys: UnknownKeys,
    /// Returns names that are no settings but that an unknown key may be a misspelling of.
    pub(super) other_names: fn() -> Vec<String>,
}

/// The kind of a layer, which determines how its values are spelled and named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// Typed values under the names of the keys.
    Table,
    /// Text only: lists are split at commas, and numbers and booleans are parsed.
    Environment,
    /// Typed values from command-line flags.
    Flags,
}

#[derive(Clone, Debug)]
enum Body {
    Text(String),
    /// The text of a file that contains only prices.
    Prices(String),
    Table(Map<String, Value>),
    Broken(Problem),
    /// The user trusts the workspace, as stored by `agentline trust`.
    Trusted,
    /// The user trusted the workspace, but it has changed since.
    TrustLost(Notice),
}

/// The prefix of agentline's environment variables.
pub(super) const VARIABLES: &str = "AGENTLINE_";

/// The name of the layer with the trust stored by `agentline trust`.
pub(super) const STORED_TRUST: &str = "agentline trust";

/// Variables with the prefix that are not settings.
const NOT_SETTINGS: &[&str] = &["AGENTLINE_CONFIG", "AGENTLINE_REAL_AGENTS"];

impl Layer {
    /// Creates a layer from the text of a TOML file.
    #[must_use]
    pub fn file(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::of(name.into(), LayerKind::Table, Body::Text(text.into()))
    }

    /// Creates a layer from the text of a TOML file that contains only prices.
    ///
    /// The rows are `[models."ID"]`, or `[prices.models."ID"]` as in a settings file.
    #[must_use]
    pub fn prices(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::of(name.into(), LayerKind::Table, Body::Prices(text.into()))
    }

    /// Creates a layer from the `AGENTLINE_…` variables among `variables`; empty ones count as unset.
    #[must_use]
    pub fn environment<N: AsRef<str>, V: Into<String>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        let table = variables
            .into_iter()
            .filter(|(name, _)| !NOT_SETTINGS.contains(&name.as_ref()))
            .filter_map(|(name, value)| {
                let key = name.as_ref().strip_prefix(VARIABLES)?.to_lowercase();
                Some((key, value.into())).filter(|(_, value)| !value.is_empty())
            })
            .map(|(key, value)| (key, Value::String(value)))
            .collect();
        Self::of("environment".into(), LayerKind::Environment, Body::Table(table))
    }

    /// Creates a layer from command-line flags, under the names of the keys.
    #[must_use]
    pub fn flags(table: Map<String, Value>) -> Self {
        Self::of("flag".into(), LayerKind::Flags, Body::Table(table))
    }

    /// Creates a layer from a map of a program, such as a provider's configuration.
    #[must_use]
    pub fn map(name: impl Into<String>, table: Map<String, Value>) -> Self {
        Self::of(name.into(), LayerKind::Table, Body::Table(table))
    }

    /// Creates a layer for a source that could not be read; the problem is reported with all others.
    #[must_use]
    pub fn broken(name: impl Into<String>, problem: Problem) -> Self {
        Self::of(name.into(), LayerKind::Table, Body::Broken(problem))
    }

    /// Creates a layer that trusts the workspace in full, as stored by `agentline trust`.
    ///
    /// It replaces only the default of `trust`, so it must be the lowest layer.
    #[must_use]
    pub fn trusted() -> Self {
        Self::of(STORED_TRUST.into(), LayerKind::Table, Body::Trusted)
    }

    /// Creates a layer for a workspace that has changed since the user trusted it.
    ///
    /// The notice is shown unless another layer sets `trust`.
    #[must_use]
    pub fn trust_lost(notice: Notice) -> Self {
        Self::of(STORED_TRUST.into(), LayerKind::Table, Body::TrustLost(notice))
    }

    /// Sets the directory that relative paths in this layer start from: that of the file.
    #[must_use]
    pub fn base(mut self, folder: impl Into<PathBuf>) -> Self {
        self.base = Some(folder.into());
        self
    }

    /// Sets the directory that `~` at the start of a path means in this layer.
    #[must_use]
    pub fn home(mut self, folder: impl Into<PathBuf>) -> Self {
        self.home = Some(folder.into());
        self
    }

    /// Marks the layer as part of the workspace.
    ///
    /// Its author may not be the user, so it may only choose and restrict unless the user trusts the workspace in full.
    #[must_use]
    pub fn of_workspace(mut self) -> Self {
        self.is_of_workspace = true;
        self
    }

    /// Ignores the whole layer unless the workspace is trusted in full; the notice explains why.
    #[must_use]
    pub fn only_trusted(mut self, notice: Notice) -> Self {
        self.unless_trusted = Some(Box::new(notice));
        self
    }

    /// Sets the treatment of unknown keys.
    #[must_use]
    pub fn unknown_keys(mut self, unknown_keys: UnknownKeys) -> Self {
        self.unknown_keys = unknown_keys;
        self
    }

    /// Sets names that are no settings but that the hint about an unknown key may suggest.
    #[must_use]
    pub fn other_names(mut self, names: fn() -> Vec<String>) -> Self {
        self.other_names = names;
        self
    }

    /// Returns whether the layer is the text of a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.body, Body::Text(_) | Body::Prices(_))
    }

    fn of(name: String, kind: LayerKind, body: Body) -> Self {
        Self {
            name,
            kind,
            body,
            base: None,
            home: None,
            is_of_workspace: false,
            unless_trusted: None,
            unknown_keys: UnknownKeys::Warn,
            other_names: Vec::new,
        }
    }

    /// Returns whether the layer may have a key that `is_wanted`. A text is not parsed for it.
    pub(super) fn may_have(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        match &self.body {
            Body::Table(table) => table.keys().any(|key| is_wanted(key)),
            Body::Text(_) | Body::Trusted => true,
            Body::Prices(_) | Body::Broken(_) | Body::TrustLost(_) => false,
        }
    }

    /// Returns the keys and values; empty if the text cannot be parsed, which is then one of the findings.
    pub(super) fn open(&self, findings: &mut Findings) -> OpenedLayer {
        match &self.body {
            Body::Table(table) => OpenedLayer { table: table.clone(), lines: BTreeMap::new() },
            Body::Broken(problem) => {
                findings.problems.push(problem.clone());
                OpenedLayer::default()
            }
            Body::TrustLost(notice) => {
                findings.trust_lost = Some(notice.clone());
                OpenedLayer::default()
            }
            Body::Trusted => OpenedLayer {
                table: Map::from_iter([("trust".to_owned(), "full".into())]),
                lines: BTreeMap::new(),
            },
            Body::Text(text) => self.parse(text, findings),
            Body::Prices(text) => {
                let mut opened = self.parse(text, findings);
                let prices = opened.table.remove("prices").unwrap_or_else(|| opened.table.into());
                OpenedLayer { table: Map::from_iter([("prices".to_owned(), prices)]), lines: BTreeMap::new() }
            }
        }
    }

    fn parse(&self, text: &str, findings: &mut Findings) -> OpenedLayer {
        match toml::from_str::<toml::Table>(text) {
            Ok(table) => OpenedLayer { table: json_table(table), lines: lines(text) },
            Err(_) => {
                findings.problems.extend(syntax_problems(&self.name, text));
                OpenedLayer::default()
            }
        }
    }
}

/// The settings of a layer, with the line number of each if they come from a text.
#[derive(Default)]
pub(super) struct OpenedLayer {
    pub(super) table: Map<String, Value>,
    pub(super) lines: BTreeMap<String, usize>,
}

fn json_table(table: toml::Table) -> Map<String, Value> {
    table.into_iter().map(|(key, value)| (key, json(value))).collect()
}

fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        // JSON has no `nan` and `inf`; as text, they are rejected where a number is expected.
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
        }
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(table) => json_table(table).into(),
    }
}

/// The maximum number of syntax errors reported per text.
const MAX_FAULTS: usize = 20;

/// Returns the syntax errors of a text with line and column. Only the first error of each line is reported, since
/// others tend to follow from it.
fn syntax_problems(name: &str, text: &str) -> Vec<Problem> {
    let (_, errors) = toml::de::DeTable::parse_recoverable(text);
    let index = LineIndex::new(text);
    let mut faults = BTreeMap::new();
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        let line = index.line(at);
        if faults.len() == MAX_FAULTS {
            break;
        }
        faults.entry(line).or_insert_with(|| {
            let column = index.column(at);
            Problem::new(format!("{name}:{line}:{column}"), format!("invalid TOML: {}", error.message()))
                .hint("see https://toml.io for the syntax")
        });
    }
    faults.into_values().collect()
}

/// The offsets of the lines of a text, to convert many positions efficiently.
struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    fn new(text: &'a str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(newlines).collect() }
    }

    /// Returns the line of a byte offset, counted from one.
    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    /// Returns the column of a byte offset in its line, counted from one.
    fn column(&self, at: usize) -> usize {
        let start = self.starts[self.line(at) - 1];
        self.text.get(start..at).map_or(0, |before| before.chars().count()) + 1
    }
}

/// Returns the line of every key, by its path (`agents.gemini.program`).
fn lines(text: &str) -> BTreeMap<String, usize> {
    fn note(
        lines: &mut BTreeMap<String, usize>,
        index: &LineIndex<'_>,
        path: &str,
        table: &toml::de::DeTable<'_>,
    ) {
        for (key, value) in table {
            let path =
                if path.is_empty() { key.get_ref().to_string() } else { format!("{path}.{}", key.get_ref()) };
            if let Some(inner) = value.get_ref().as_table() {
                note(lines, index, &path, inner);
            }
            lines.insert(path, index.line(key.span().start));
        }
    }
    let mut found = BTreeMap::new();
    if let Ok(table) = toml::de::DeTable::parse(text) {
        note(&mut found, &LineIndex::new(text), "", table.get_ref());
    }
    found
}
