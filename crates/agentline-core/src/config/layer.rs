//! One place that settings come from: a file's text, the environment, the flags, or a map of the caller.

use super::check::Findings;
use crate::{Notice, Problem};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf};

/// Settings from one place. Layers are given lowest first; the built-in one stands below all of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Layer {
    /// What problems and `config show` call it: a path, `environment`, `flag`.
    pub name: String,
    pub(super) kind: LayerKind,
    body: Body,
    pub(super) base: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    pub(super) is_of_workspace: bool,
    /// Why nothing of it counts without full trust.
    pub(super) unless_trusted: Option<Box<Notice>>,
}

/// What a layer is, which decides how its values are spelled and named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// Keys under their own names, typed values.
    Table,
    /// Text only: lists are split at commas, numbers and booleans are read.
    Environment,
    /// Typed values that the user wrote as flags.
    Flags,
}

#[derive(Clone, Debug)]
enum Body {
    Text(String),
    /// The text of a file that holds prices alone.
    Prices(String),
    Table(Map<String, Value>),
    Broken(Problem),
    /// The user trusted the workspace with `agentline trust`.
    Trusted,
    /// The user trusted the workspace, and it is no longer what was trusted.
    TrustLost(Notice),
}

/// How the names of our variables begin.
pub(super) const VARIABLES: &str = "AGENTLINE_";

/// The name of the layer that holds what `agentline trust` stored.
pub(super) const STORED_TRUST: &str = "agentline trust";

/// Variables with our prefix that are not settings.
const NOT_SETTINGS: &[&str] = &["AGENTLINE_CONFIG", "AGENTLINE_REAL_AGENTS"];

impl Layer {
    /// The text of a TOML file.
    #[must_use]
    pub fn file(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::of(name.into(), LayerKind::Table, Body::Text(text.into()))
    }

    /// The text of a TOML file that holds prices and nothing else: `[models."ID"]`, or `[prices.models."ID"]` as a file of
    /// settings has it.
    #[must_use]
    pub fn prices(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::of(name.into(), LayerKind::Table, Body::Prices(text.into()))
    }

    /// The `AGENTLINE_…` variables among these; empty ones count as not set.
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

    /// What the user wrote as flags, under the names of the keys.
    #[must_use]
    pub fn flags(table: Map<String, Value>) -> Self {
        Self::of("flag".into(), LayerKind::Flags, Body::Table(table))
    }

    /// A map of a program: a provider's configuration, a line of a batch.
    #[must_use]
    pub fn map(name: impl Into<String>, table: Map<String, Value>) -> Self {
        Self::of(name.into(), LayerKind::Table, Body::Table(table))
    }

    /// A place that could not be read; the problem is told with all others.
    #[must_use]
    pub fn broken(name: impl Into<String>, problem: Problem) -> Self {
        Self::of(name.into(), LayerKind::Table, Body::Broken(problem))
    }

    /// The user trusts the workspace in full, as `agentline trust` stored it. It replaces the default of `trust` and
    /// nothing else, so it must be the lowest layer.
    #[must_use]
    pub fn trusted() -> Self {
        Self::of(STORED_TRUST.into(), LayerKind::Table, Body::Trusted)
    }

    /// The user trusted the workspace, and it is no longer what was trusted. The notice is shown unless another layer
    /// sets `trust`.
    #[must_use]
    pub fn trust_lost(notice: Notice) -> Self {
        Self::of(STORED_TRUST.into(), LayerKind::Table, Body::TrustLost(notice))
    }

    /// Relative paths in this layer start from here: the folder of the file.
    #[must_use]
    pub fn base(mut self, folder: impl Into<PathBuf>) -> Self {
        self.base = Some(folder.into());
        self
    }

    /// What `~` at the start of a path means in this layer.
    #[must_use]
    pub fn home(mut self, folder: impl Into<PathBuf>) -> Self {
        self.home = Some(folder.into());
        self
    }

    /// This layer came with the workspace, and so from whoever wrote that: it may choose and restrict, and counts in full
    /// only when the user trusts the workspace in full.
    #[must_use]
    pub fn of_workspace(mut self) -> Self {
        self.is_of_workspace = true;
        self
    }

    /// Without full trust nothing of this layer counts, and the notice says why.
    #[must_use]
    pub fn only_trusted(mut self, notice: Notice) -> Self {
        self.unless_trusted = Some(Box::new(notice));
        self
    }

    /// Whether it is the text of a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.body, Body::Text(_) | Body::Prices(_))
    }

    fn of(name: String, kind: LayerKind, body: Body) -> Self {
        Self { name, kind, body, base: None, home: None, is_of_workspace: false, unless_trusted: None }
    }

    /// The keys and values; nothing when the text cannot be read, which is then among the findings.
    pub(super) fn open(&self, findings: &mut Findings) -> Opened {
        match &self.body {
            Body::Table(table) => Opened { table: table.clone(), lines: BTreeMap::new() },
            Body::Broken(problem) => {
                findings.problems.push(problem.clone());
                Opened::default()
            }
            Body::TrustLost(notice) => {
                findings.trust_lost = Some(notice.clone());
                Opened::default()
            }
            Body::Trusted => Opened {
                table: Map::from_iter([("trust".to_owned(), "full".into())]),
                lines: BTreeMap::new(),
            },
            Body::Text(text) => self.parse(text, findings),
            Body::Prices(text) => {
                let mut opened = self.parse(text, findings);
                let prices = opened.table.remove("prices").unwrap_or_else(|| opened.table.into());
                Opened { table: Map::from_iter([("prices".to_owned(), prices)]), lines: BTreeMap::new() }
            }
        }
    }

    fn parse(&self, text: &str, findings: &mut Findings) -> Opened {
        match toml::from_str::<toml::Table>(text) {
            Ok(table) => Opened { table: json_table(table), lines: lines(text) },
            Err(_) => {
                findings.problems.extend(syntax_problems(&self.name, text));
                Opened::default()
            }
        }
    }
}

/// A layer's settings, and on which line each of them stands where they came from a text.
#[derive(Default)]
pub(super) struct Opened {
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
        // JSON has no `nan` and `inf`; as words they are refused where a number is wanted.
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
        }
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(table) => json_table(table).into(),
    }
}

/// No more faults of one text are reported.
const MAX_FAULTS: usize = 20;

/// What is wrong with the text itself, with line and column; of each line only the first fault, for others follow from it.
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
            Problem::new(format!("line {line}, column {column}"), format!("is not TOML: {}", error.message()))
                .hint("see https://toml.io for how values are written")
                .source(format!("{name}:{line}"))
        });
    }
    faults.into_values().collect()
}

/// Where the lines of a text begin, so that many places in it are found in no more time than one.
struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    fn new(text: &'a str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(newlines).collect() }
    }

    /// The line of a byte, counted from one.
    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    /// The column of a byte in its line, counted from one.
    fn column(&self, at: usize) -> usize {
        let start = self.starts[self.line(at) - 1];
        self.text.get(start..at).map_or(0, |before| before.chars().count()) + 1
    }
}

/// The line of every key, by its path (`agents.gemini.program`).
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
