//! Readers for settings that are tables: variables, MCP servers, agents, prices.

mod profile;

use super::{
    check::SettingValue,
    findings::{Findings, one_line, shorten},
    read,
};
use crate::AgentSettings;
use crate::config::parse::{comma_list, parse_env, parse_mcp};
use crate::{LongPrice, McpServer, Price, PriceTable, agents, naming::snake_case, nearest};
use profile::{PROFILE_KEYS, profile};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf};

const AGENT_KEYS: &[&str] = &["program", "args", "env", "surface", "command"];
const SERVER_KEYS: &[&str] = &["type", "command", "args", "env", "url", "headers"];
/// The types of servers in the settings of agents, and the key that each needs. agentline derives the type from that key.
const SERVER_TYPES: &[(&str, &str)] =
    &[("stdio", "command"), ("http", "url"), ("streamable-http", "url"), ("streamable_http", "url")];
const PRICE_KEYS: &[&str] = &["input", "output", "cached", "cache_write", "cache_write_long", "long"];
const LONG_PRICE_KEYS: &[&str] = &["above", "input", "output", "cached", "cache_write", "cache_write_long"];
const PRICES_KEYS: &[&str] = &["models", "as_of"];

/// Reads variables, given as a table or as a list of `NAME=VALUE`.
pub(super) fn variables(
    setting: &SettingValue<'_>,
    findings: &mut Findings,
) -> Option<BTreeMap<String, String>> {
    match &*unpacked(setting) {
        Value::Object(table) => every(table, |name, value| {
            let part = setting.part(name, value);
            match value {
                // Numbers and booleans are common here and become text.
                Value::Number(_) | Value::Bool(_) => Some((name.to_owned(), value.to_string())),
                _ => Some((name.to_owned(), read::text(&part, findings)?)),
            }
        }),
        Value::Array(items) => each_word(setting, items, findings, parse_env),
        _ => findings.refuse(setting.must_be("a table").hint("write `NAME = \"value\"` in a table")),
    }
}

/// Reads MCP servers, given as a table by name or as a list of `name=URL` and `name=command args…`.
pub(super) fn servers(
    setting: &SettingValue<'_>,
    findings: &mut Findings,
) -> Option<BTreeMap<String, McpServer>> {
    match &*unpacked(setting) {
        Value::Object(table) => every(table, |name, value| {
            Some((name.to_owned(), server(name, &setting.part(name, value), findings)?))
        }),
        Value::Array(items) => each_word(setting, items, findings, parse_mcp),
        _ => findings.refuse(
            setting
                .must_be("a table")
                .hint("write `name = { url = \"…\" }` or `name = { command = \"…\" }` in a table"),
        ),
    }
}

fn server(name: &str, setting: &SettingValue<'_>, findings: &mut Findings) -> Option<McpServer> {
    let hint = "write `url = \"…\"` for a remote server, or `command = \"…\"` for a local one";
    let table = match setting.value {
        Value::Object(table) => table,
        Value::String(text) => {
            return match parse_mcp(&format!("{name}={text}")) {
                Ok((_, server)) => Some(server),
                Err(error) => findings.refuse(setting.problem(error)),
            };
        }
        _ => return findings.refuse(setting.must_be("a table").hint(hint)),
    };
    let parts = Parts::of(setting, table, SERVER_KEYS, findings);
    let env = parts.read("env", findings, variables)?.unwrap_or_default();
    let args = parts.read("args", findings, read::words)?.unwrap_or_default();
    let headers = parts.read("headers", findings, variables)?.unwrap_or_default();
    let kind = parts.read("type", findings, read::word)?;
    if let Some(kind) = &kind
        && !SERVER_TYPES.iter().any(|(name, key)| name == kind && table.contains_key(*key))
    {
        let message = format!("{}.type is `{}`, which does not fit", setting.name, shorten(&one_line(kind)));
        return findings.refuse(
            setting.problem(message).hint("use `stdio` with a `command` or `http` with a `url`, or omit it"),
        );
    }
    match (parts.read("command", findings, read::word)?, parts.read("url", findings, read::word)?) {
        (Some(command), None) => Some(McpServer::Command { command, args, env }),
        (None, Some(url)) => Some(McpServer::Url { url, headers }),
        (Some(_), Some(_)) => {
            findings.refuse(setting.without_value("has both `url` and `command`").hint(hint))
        }
        (None, None) => findings.refuse(setting.without_value("has neither `url` nor `command`").hint(hint)),
    }
}

/// Reads the settings of agents, by id.
pub(super) fn agents(
    setting: &SettingValue<'_>,
    findings: &mut Findings,
) -> Option<BTreeMap<String, AgentSettings>> {
    let table = unpacked(setting);
    let Value::Object(table) = &*table else {
        return findings
            .refuse(setting.must_be("a table").hint("write `[agents.NAME]` and its keys below it"));
    };
    let entries = every(table, |name, value| {
        let setting = setting.part(name, value);
        let Value::Object(table) = value else {
            return findings.refuse(
                setting.must_be("a table").hint(format!("write `[agents.{name}]` and its keys below it")),
            );
        };
        let parts = Parts::of(&setting, table, &[AGENT_KEYS, PROFILE_KEYS].concat(), findings);
        let program = parts.read("program", findings, program);
        let args = parts.read("args", findings, read::words);
        let env = parts.read("env", findings, variables);
        let surface = parts.read("surface", findings, read::surface);
        let command = parts.read("command", findings, command);
        let profile = profile(&parts, findings);
        let settings = AgentSettings {
            program: program?,
            args: args?,
            env: env?.unwrap_or_default(),
            surface: surface?.flatten(),
            command: command?,
            profile: profile?,
        };
        Some((name.to_owned(), settings))
    })?;
    let mut by_id: BTreeMap<String, AgentSettings> = BTreeMap::new();
    for (name, settings) in entries {
        by_id.entry(agent_id(&name)).or_default().overlay(&settings);
    }
    Some(by_id)
}

/// Reads a command: a program alone, or with its first arguments.
fn command(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Vec<String>> {
    let mut texts = match setting.value {
        Value::String(_) => vec![read::word(setting, findings)?],
        _ => read::words(setting, findings)?,
    };
    let Some(first) = texts.first_mut() else {
        return findings.refuse(setting.without_value("is empty").hint("write `command = \"…\"`"));
    };
    let value = Value::String(first.clone());
    *first = program(&setting.part("0", &value), findings)?.to_string_lossy().into_owned();
    Some(texts)
}

/// Reads a program: a bare name is searched on PATH, anything else is a path.
pub(super) fn program(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<PathBuf> {
    let text = read::word(setting, findings)?;
    let is_bare = !text.contains(['/', '\\']) && text != "~";
    Some(if is_bare { text.into() } else { setting.path(&text) })
}

/// Returns the id of an agent given its id or alias; an unknown name is returned unchanged.
pub(super) fn agent_id(name: &str) -> String {
    let name = agents::split_version(name).0;
    agents::find(name).map_or_else(|_| name.to_owned(), |agent| agent.info().id.to_owned())
}

/// Reads the rows of a price table.
pub(super) fn prices(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<PriceTable> {
    let table = unpacked(setting);
    let Value::Object(table) = &*table else {
        return findings.refuse(
            setting.must_be("a table").hint("write `[prices.models.\"MODEL\"]` and its keys below it"),
        );
    };
    let parts = Parts::of(setting, table, PRICES_KEYS, findings);
    let models = parts.read("models", findings, |setting, findings| match setting.value {
        Value::Object(models) => {
            every(models, |model, row| Some((model.to_owned(), price(&setting.part(model, row), findings)?)))
        }
        _ => findings.refuse(setting.must_be("a table")),
    })?;
    let as_of = parts.read("as_of", findings, read::text)?;
    Some(PriceTable {
        as_of: as_of.unwrap_or_default(),
        models: models.unwrap_or_default(),
        ..PriceTable::default()
    })
}

fn price(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Price> {
    let Value::Object(table) = setting.value else {
        return findings.refuse(setting.must_be("a table").hint("write `{ input = 1.25, output = 10.0 }`"));
    };
    let parts = Parts::of(setting, table, PRICE_KEYS, findings);
    let long = parts.read("long", findings, |setting, findings| {
        let Value::Object(table) = setting.value else {
            return findings.refuse(
                setting.must_be("a table").hint("write `{ above = 200000, input = 2.5, output = 15.0 }`"),
            );
        };
        let parts = Parts::of(setting, table, LONG_PRICE_KEYS, findings);
        let above = parts.read("above", findings, read::count)?;
        let rates = rates(setting, &parts, findings)?;
        let Some(above) = above else {
            return findings.refuse(
                setting
                    .without_value("needs `above`")
                    .hint("write the number of prompt tokens above which it applies: `above = 200000`"),
            );
        };
        let Price { input, output, cached, cache_write, cache_write_long, long: _ } = rates;
        Some(LongPrice { above, input, output, cached, cache_write, cache_write_long })
    });
    Some(Price { long: long?, ..rates(setting, &parts, findings)? })
}

/// Reads the rates that all prices have, including those for long prompts.
fn rates(setting: &SettingValue<'_>, parts: &Parts<'_, '_>, findings: &mut Findings) -> Option<Price> {
    let mut dollars = |key: &str| parts.read(key, findings, read::dollars);
    let (input, output, cached) = (dollars("input"), dollars("output"), dollars("cached"));
    let (cache_write, cache_write_long) = (dollars("cache_write"), dollars("cache_write_long"));
    match (input?, output?) {
        (Some(input), Some(output)) => Some(Price {
            input,
            output,
            cached: cached?,
            cache_write: cache_write?,
            cache_write_long: cache_write_long?,
            long: None,
        }),
        _ => findings.refuse(
            setting
                .without_value("needs both `input` and `output`")
                .hint("write US dollars per million tokens: `{ input = 1.25, output = 10.0 }`"),
        ),
    }
}

/// The entries of a table with known keys; unknown keys are reported.
pub(super) struct Parts<'a, 'b> {
    setting: &'b SettingValue<'a>,
    table: &'b Map<String, Value>,
}

impl<'a, 'b> Parts<'a, 'b> {
    pub(super) fn of(
        setting: &'b SettingValue<'a>,
        table: &'b Map<String, Value>,
        known: &[&str],
        findings: &mut Findings,
    ) -> Self {
        for name in table.keys().filter(|name| !known.contains(&&*snake_case(name))) {
            let suggestion = nearest(&snake_case(name), known.iter().copied());
            let part = setting.part(name, &Value::Null);
            findings.unknown(
                &part.name,
                &part.source(),
                suggestion.map(|key| format!("{}.{key}", setting.name)),
            );
        }
        Self { setting, table }
    }

    /// Returns `Some(None)` if the key is absent, and `None` if its value is invalid.
    pub(super) fn read<T>(
        &self,
        key: &str,
        findings: &mut Findings,
        read: impl FnOnce(&SettingValue<'_>, &mut Findings) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.table.iter().find(|(name, value)| snake_case(name) == key && !value.is_null()) {
            Some((name, value)) => read(&self.setting.part(name, value), findings).map(Some),
            None => Some(None),
        }
    }
}

/// Reads every entry, so that all problems are found, and returns `None` if any is invalid.
pub(super) fn every<T>(
    table: &Map<String, Value>,
    mut read: impl FnMut(&str, &Value) -> Option<(String, T)>,
) -> Option<BTreeMap<String, T>> {
    let entries: Vec<Option<(String, T)>> =
        table.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| read(name, value)).collect();
    entries.into_iter().collect()
}

/// Reads a list of short forms.
fn each_word<T>(
    setting: &SettingValue<'_>,
    items: &[Value],
    findings: &mut Findings,
    parse: impl Fn(&str) -> Result<(String, T), String>,
) -> Option<BTreeMap<String, T>> {
    let entries: Vec<Option<(String, T)>> = items
        .iter()
        .enumerate()
        .map(|(i, item)| {
            let part = setting.part(&i.to_string(), item);
            let text = read::text(&part, findings)?;
            parse(&text).map_err(|error| findings.problems.push(setting.problem(error))).ok()
        })
        .collect();
    entries.into_iter().collect()
}

/// Returns the value of a table key; the text of a variable is parsed as JSON or as a comma-separated list.
fn unpacked<'a>(setting: &SettingValue<'a>) -> std::borrow::Cow<'a, Value> {
    match setting.value {
        Value::String(text) if setting.is_loose => {
            let list = || Value::Array(comma_list(text).into_iter().map(Value::String).collect());
            let value = serde_json::from_str(text).ok().filter(|v: &Value| v.is_object() || v.is_array());
            std::borrow::Cow::Owned(value.unwrap_or_else(list))
        }
        value => std::borrow::Cow::Borrowed(value),
    }
}
