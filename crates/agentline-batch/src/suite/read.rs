//! Reads the parts of a suite from a document.

use super::mistakes::{Mistakes, joined};
use super::{BatchLimits, Variant};
use crate::class::{Class, ClassTable};
use crate::document::{DocumentNode, NodeValue};
use agentline_core::config::find;
use serde_json::{Map, Value};
use std::time::Duration;

/// The keys of a suite.
pub(crate) const SUITE_KEYS: &[&str] = &[
    "name",
    "description",
    "defaults",
    "prompt",
    "vars",
    "cases",
    "variants",
    "matrix",
    "repeat",
    "checks",
    "workspace",
    "share_workspace",
    "repeatable",
    "hidden",
    "setup",
    "teardown",
    "limits",
    "classes",
];

/// The keys of a case.
pub(crate) const CASE_KEYS: &[&str] = &[
    "id",
    "prompt",
    "vars",
    "tags",
    "workspace",
    "hidden",
    "setup",
    "teardown",
    "checks",
    "overrides",
    "repeatable",
];

/// The keys of a variant beside the settings of its runs.
pub(crate) const VARIANT_KEYS: &[&str] = &["id", "prompt", "repeatable"];

/// The keys of an entry of `cases` that names files with cases.
pub(crate) const SOURCE_KEYS: &[&str] = &["file", "glob", "vars", "tags"];

/// The keys of `limits`.
pub(crate) const LIMIT_KEYS: &[&str] = &["cost", "tokens", "failures", "infrastructure_in_a_row", "time"];

/// Settings of a run that a suite provides in its own way, and what to use instead.
const OWN: &[(&str, &str)] = &[
    ("working_dir", "use `workspace`"),
    ("prompt_file", "use `prompt`, or `cases: {glob: \"prompts/*.md\"}`"),
    ("resume", "every run of a suite is a new session"),
    ("session_id", "every run of a suite is a new session"),
    ("record", "every run of a suite is recorded"),
    ("name", "use the `id` of the case"),
    ("deadline", "use `timeout`, or `limits: {time: …}` for the whole batch"),
];

/// A case before its templates are filled in.
#[derive(Clone, Debug)]
pub(super) struct RawCase {
    /// The file and line.
    pub(super) file: String,
    pub(super) line: usize,
    /// The path in the suite, for messages: `cases[2]`.
    pub(super) key: String,
    pub(super) id: Option<String>,
    pub(super) prompt: Option<String>,
    pub(super) vars: Map<String, Value>,
    pub(super) tags: Vec<String>,
    pub(super) overrides: Map<String, Value>,
    /// The table of the case, for the keys that inherit from the suite.
    pub(super) node: DocumentNode,
}

impl RawCase {
    /// Reads a case from its table.
    pub(super) fn read(node: &DocumentNode, key: &str, mistakes: &mut Mistakes) -> Self {
        mistakes.table(node, key, CASE_KEYS);
        let overrides = settings(node, key, "overrides", &[], mistakes);
        Self {
            file: mistakes.file.clone(),
            line: node.line,
            key: key.to_owned(),
            id: mistakes.text(node, key, "id"),
            prompt: mistakes.text(node, key, "prompt"),
            vars: variables(node, key, mistakes),
            tags: mistakes.texts(node, key, "tags"),
            overrides,
            node: node.clone(),
        }
    }
}

/// Reads the variables of a case or suite.
pub(super) fn variables(table: &DocumentNode, parent: &str, mistakes: &mut Mistakes) -> Map<String, Value> {
    match table.get("vars") {
        None => Map::new(),
        Some(node) if node.is_null() => Map::new(),
        Some(node) => {
            if node.entries().is_none() {
                mistakes.add(
                    node.line,
                    &joined(parent, "vars"),
                    "is not a table",
                    "write `vars: {name: value}`",
                );
            }
            node.map()
        }
    }
}

/// Reads settings of runs under a key. Each key must be a setting of `agentline run`.
pub(super) fn settings(
    table: &DocumentNode,
    parent: &str,
    key: &str,
    without: &[&str],
    mistakes: &mut Mistakes,
) -> Map<String, Value> {
    let path = joined(parent, key);
    match table.get(key) {
        None => Map::new(),
        Some(node) if node.is_null() => Map::new(),
        Some(node) => settings_of(node, &path, without, mistakes),
    }
}

/// Reads the settings in a table, except those under the keys of `without`.
pub(super) fn settings_of(
    node: &DocumentNode,
    path: &str,
    without: &[&str],
    mistakes: &mut Mistakes,
) -> Map<String, Value> {
    let Some(entries) = node.entries() else {
        mistakes.add(
            node.line,
            path,
            "is not a table",
            "write settings of `agentline run`, such as `model: …`",
        );
        return Map::new();
    };
    let mut settings = Map::new();
    for entry in entries.iter().filter(|entry| !without.contains(&entry.key.as_str())) {
        let name = joined(path, &entry.key);
        let Some(setting) = find(&entry.key) else {
            let known = agentline_core::config::keys().iter().map(|key| key.name);
            let hint = agentline_core::nearest(&entry.key, known).map_or_else(
                || "`agentline config show` lists the settings of a run".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            mistakes.add(entry.line, &name, "is not a setting of a run", hint);
            continue;
        };
        if let Some((_, instead)) = OWN.iter().find(|(own, _)| *own == setting.name) {
            mistakes.add(entry.line, &name, "cannot be set in a suite", *instead);
            continue;
        }
        let value = Map::from_iter([(entry.key.clone(), entry.node.value())]);
        let layer = agentline_core::Layer::map(path, value);
        if let Err(problems) = agentline_core::Config::build(&[layer]) {
            for problem in problems.0 {
                mistakes.add(entry.line, &name, problem.message, problem.hint.unwrap_or_default());
            }
            continue;
        }
        // An alias and its key are the same setting.
        settings.insert(entry.key.clone(), entry.node.value());
    }
    settings
}

/// Reads the variants: the list, multiplied by the matrix.
pub(super) fn variants(suite: &DocumentNode, mistakes: &mut Mistakes) -> Vec<Variant> {
    let mut variants = Vec::new();
    let listed = suite.get("variants").filter(|node| !node.is_null());
    if let Some(node) = listed {
        match node.list() {
            Some([]) | None => mistakes.add(
                node.line,
                "variants",
                "is not a list of variants",
                "write `variants: [{id: a, model: …}]`, or leave it out",
            ),
            Some(list) => {
                for (index, node) in list.iter().enumerate() {
                    let key = format!("variants[{index}]");
                    let settings = settings_of(node, &key, VARIANT_KEYS, mistakes);
                    let prompt = mistakes.text(node, &key, "prompt");
                    let id = mistakes.text(node, &key, "id").unwrap_or_else(|| implied_id(&settings, index));
                    let repeatable = mistakes.flag(node, &key, "repeatable");
                    variants.push((Variant { id, settings, prompt, repeatable }, node.line));
                }
            }
        }
    }
    if variants.is_empty() {
        let variant = Variant { id: String::new(), settings: Map::new(), prompt: None, repeatable: None };
        variants.push((variant, suite.line));
    }
    for (name, line, values) in matrix(suite, mistakes) {
        let product = variants.iter().flat_map(|(variant, _)| {
            let name = &name;
            values.iter().map(move |(text, value)| {
                let mut variant = variant.clone();
                variant.settings.insert(name.clone(), value.clone());
                variant.id =
                    if variant.id.is_empty() { text.clone() } else { format!("{}/{text}", variant.id) };
                (variant, line)
            })
        });
        variants = product.collect();
    }
    let mut unique: Vec<Variant> = Vec::new();
    for (mut variant, line) in variants {
        if variant.id.is_empty() {
            "default".clone_into(&mut variant.id);
        }
        if unique.iter().any(|other| other.id == variant.id) {
            let message = format!("two variants have the id `{}`", variant.id);
            mistakes.add(line, "variants", message, "give each variant its own `id`");
        }
        unique.push(variant);
    }
    unique
}

/// Returns an id for a variant without one: its agent and model.
fn implied_id(settings: &Map<String, Value>, index: usize) -> String {
    let words: Vec<&str> = ["agent", "model"].iter().filter_map(|key| settings.get(*key)?.as_str()).collect();
    if words.is_empty() { format!("variant-{}", index + 1) } else { words.join("/") }
}

type MatrixRow = (String, usize, Vec<(String, Value)>);

/// Reads the matrix: for each setting, its values and their texts.
fn matrix(suite: &DocumentNode, mistakes: &mut Mistakes) -> Vec<MatrixRow> {
    let Some(node) = suite.get("matrix").filter(|node| !node.is_null()) else { return Vec::new() };
    let mut rows = Vec::new();
    for entry in node.entries().unwrap_or_default() {
        let key = joined("matrix", &entry.key);
        let values = match &entry.node.content {
            NodeValue::List(list) if !list.is_empty() => list,
            _ => {
                mistakes.add(entry.line, &key, "is not a list of values", "write `model: [a, b]`");
                continue;
            }
        };
        let mut row = Vec::new();
        for value in values {
            let table = DocumentNode {
                line: value.line,
                content: NodeValue::Table(vec![crate::document::TableEntry {
                    key: entry.key.clone(),
                    line: value.line,
                    node: value.clone(),
                }]),
            };
            settings_of(&table, "matrix", &[], mistakes);
            let text = value.text().map_or_else(|| value.value().to_string(), str::to_owned);
            row.push((text, value.value()));
        }
        rows.push((entry.key.clone(), entry.line, row));
    }
    if node.entries().is_none() {
        mistakes.add(node.line, "matrix", "is not a table", "write `matrix: {model: [a, b]}`");
    }
    rows
}

/// Reads the limits of the batch.
pub(super) fn limits(suite: &DocumentNode, mistakes: &mut Mistakes) -> BatchLimits {
    let Some(node) = suite.get("limits").filter(|node| !node.is_null()) else {
        return BatchLimits::default();
    };
    mistakes.table(node, "limits", LIMIT_KEYS);
    let small = |count: Option<u64>| count.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let default = BatchLimits::default();
    BatchLimits {
        cost_usd: mistakes.number(node, "limits", "cost"),
        tokens: mistakes.count(node, "limits", "tokens"),
        failures: small(mistakes.count(node, "limits", "failures")),
        infrastructure_in_a_row: small(mistakes.count(node, "limits", "infrastructure_in_a_row"))
            .or(default.infrastructure_in_a_row),
        time: mistakes.duration(node, "limits", "time"),
    }
}

/// Reads the classes that the suite assigns itself.
pub(super) fn classes(suite: &DocumentNode, mistakes: &mut Mistakes) -> ClassTable {
    let Some(node) = suite.get("classes").filter(|node| !node.is_null()) else {
        return ClassTable::default();
    };
    let mut table = ClassTable::default();
    if node.entries().is_none() {
        mistakes.add(node.line, "classes", "is not a table", "write `classes: {empty: infrastructure}`");
    }
    for entry in node.entries().unwrap_or_default() {
        let key = joined("classes", &entry.key);
        if !crate::class::is_outcome_name(&entry.key) {
            mistakes.add(
                entry.line,
                &key,
                "is neither a verdict nor a kind of failure",
                "use a verdict such as `empty`, or a kind such as `crashed`",
            );
        }
        match entry.node.text().and_then(Class::named) {
            Some(class) => {
                table.0.insert(entry.key.clone(), class);
            }
            None => {
                mistakes.add(entry.node.line, &key, "is not a class", "use passed, failed or infrastructure");
            }
        }
    }
    table
}

impl Mistakes {
    /// Returns the duration under a key of a table: a number of seconds, or text such as `20m`.
    fn duration(&mut self, table: &DocumentNode, parent: &str, key: &str) -> Option<Duration> {
        let node = table.get(key).filter(|node| !node.is_null())?;
        let text = node.text().map_or_else(|| node.value().to_string(), str::to_owned);
        match agentline_core::config::parse_duration(&text) {
            Ok(duration) if !duration.is_zero() => Some(duration),
            _ => {
                self.add(
                    node.line,
                    &joined(parent, key),
                    "is not a duration",
                    "write `90`, `20m` or `1h30m`",
                );
                None
            }
        }
    }
}
