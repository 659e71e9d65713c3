//! Reads the profile of a configured agent.

use super::{Parts, every, variables};
use crate::config::{check::SettingValue, findings::Findings, read};
use crate::{
    AgentProfile, ErrorPattern, ErrorPlace, FailureKind, PermissionMode, ProfileMode, RecordedUsage,
    ReportedUsage, agents::profile_names,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The keys of a profile.
pub(super) const PROFILE_KEYS: &[&str] = &[
    "profile",
    "title",
    "aliases",
    "package",
    "version",
    "min_node",
    "home_page",
    "sign_in_hint",
    "variables",
    "project_files",
    "modes",
    "asks",
    "usage",
    "session_usage",
    "errors",
    "cut_off",
    "noise",
    "max_retries",
    "denials",
    "tools",
    "mcp",
    "mcp_title",
    "mcp_argument",
    "lists_tools_late",
    "files",
    "quiet_period_ms",
    "session_store",
    "quirks",
];
const MODE_KEYS: &[&str] = &["mode", "args", "env"];
const ERROR_KEYS: &[&str] = &["text", "kind", "in", "message"];
const USAGE_KEYS: &[&str] = &["line", "input", "cached", "cache_write", "output", "thoughts"];

/// Reads the keys of a profile among those of an agent.
pub(super) fn profile(parts: &Parts<'_, '_>, findings: &mut Findings) -> Option<AgentProfile> {
    let base = parts.read("profile", findings, shipped);
    let title = parts.read("title", findings, read::word);
    let aliases = parts.read("aliases", findings, read::words);
    let package = parts.read("package", findings, read::word);
    let version = parts.read("version", findings, read::word);
    let min_node = parts.read("min_node", findings, read::small_count);
    let home_page = parts.read("home_page", findings, read::word);
    let sign_in_hint = parts.read("sign_in_hint", findings, read::word);
    let variables = parts.read("variables", findings, read::variable_names);
    let project_files = parts.read("project_files", findings, read::words);
    let modes = parts.read("modes", findings, modes);
    let asks = parts.read("asks", findings, read::flag);
    let usage =
        parts.read("usage", findings, |setting, findings| one_of(setting, findings, ReportedUsage::ALL));
    let session_usage = parts.read("session_usage", findings, session_usage);
    let errors = parts.read("errors", findings, errors);
    let cut_off = parts.read("cut_off", findings, read::words);
    let noise = parts.read("noise", findings, read::words);
    let max_retries = parts.read("max_retries", findings, read::small_count);
    let denials = parts.read("denials", findings, read::words);
    let tools = parts.read("tools", findings, names);
    let mcp = parts.read("mcp", findings, read::flag);
    let mcp_title = parts.read("mcp_title", findings, mcp_title);
    let mcp_argument = parts.read("mcp_argument", findings, mcp_argument);
    let lists_tools_late = parts.read("lists_tools_late", findings, read::flag);
    let files = parts.read("files", findings, files);
    let quiet_period_ms = parts.read("quiet_period_ms", findings, read::pause);
    let session_store = parts.read("session_store", findings, session_store);
    let quirks = parts.read("quirks", findings, read::words);
    Some(AgentProfile {
        base: base?,
        title: title?,
        aliases: aliases?,
        package: package?,
        version: version?,
        min_node: min_node?,
        home_page: home_page?,
        sign_in_hint: sign_in_hint?,
        variables: variables?,
        project_files: project_files?,
        modes: modes?.unwrap_or_default(),
        asks: asks?,
        usage: usage?,
        session_usage: session_usage?,
        errors: errors?,
        cut_off: cut_off?,
        noise: noise?,
        max_retries: max_retries?,
        denials: denials?,
        tools: tools?.unwrap_or_default(),
        mcp: mcp?,
        mcp_title: mcp_title?,
        mcp_argument: mcp_argument?,
        lists_tools_late: lists_tools_late?,
        files: files?.unwrap_or_default(),
        quiet_period_ms: quiet_period_ms?.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        session_store: session_store?,
        quirks: quirks?,
    })
}

/// Reads the name of a shipped profile.
fn shipped(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<String> {
    let names: Vec<&str> = profile_names().collect();
    match setting.value.as_str().filter(|name| names.contains(name)) {
        Some(name) => Some(name.to_owned()),
        None => findings.refuse(setting.must_be_one_of(&names, "a shipped profile")),
    }
}

/// Reads one of a fixed set of words.
fn one_of<T: Copy>(
    setting: &SettingValue<'_>,
    findings: &mut Findings,
    choices: &'static [(&'static str, T)],
) -> Option<T> {
    let word = setting.value.as_str();
    match choices.iter().find(|(name, _)| Some(*name) == word) {
        Some((_, value)) => Some(*value),
        None => {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            findings.refuse(setting.must_be_one_of(&names, "a known value"))
        }
    }
}

/// Reads how each permission mode is served: the name of the agent's own mode, or a table.
fn modes(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<BTreeMap<String, ProfileMode>> {
    let Value::Object(table) = setting.value else {
        return findings
            .refuse(setting.must_be("a table").hint("write `{ default = \"…\", bypass = \"…\" }`"));
    };
    every(table, |name, value| {
        let part = setting.part(name, value);
        let Some(mode) = PermissionMode::parse(name) else {
            let problem = part.problem(format!("{} is not a permission mode", part.name));
            return findings
                .refuse(problem.hint(format!("use one of: {}", PermissionMode::NAMES.join(", "))));
        };
        let Value::Object(table) = value else {
            return Some((mode.name().to_owned(), ProfileMode::named(read::word(&part, findings)?)));
        };
        let parts = Parts::of(&part, table, MODE_KEYS, findings);
        let own = parts.read("mode", findings, read::word);
        let args = parts.read("args", findings, read::words);
        let env = parts.read("env", findings, variables);
        let (own, args, env) = (own?, args?.unwrap_or_default(), env?.unwrap_or_default());
        Some((mode.name().to_owned(), ProfileMode { mode: own, args, env }))
    })
}

/// Reads how the lines of a session file record answers of the model.
fn session_usage(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<RecordedUsage> {
    let hint =
        "write `{ line = '{\"type\":\"usage\"*', input = [\"usage.input\"], output = [\"usage.output\"] }`";
    let Value::Object(table) = setting.value else {
        return findings.refuse(setting.must_be("a table").hint(hint));
    };
    let parts = Parts::of(setting, table, USAGE_KEYS, findings);
    let line = parts.read("line", findings, read::word);
    let mut paths = |key| parts.read(key, findings, read::words);
    let (input, cached, cache_write) = (paths("input"), paths("cached"), paths("cache_write"));
    let (output, thoughts) = (paths("output"), paths("thoughts"));
    let (input, output) = (input?.unwrap_or_default(), output?.unwrap_or_default());
    match line? {
        Some(line) if !input.is_empty() && !output.is_empty() => Some(RecordedUsage {
            line,
            input,
            output,
            cached: cached?.unwrap_or_default(),
            cache_write: cache_write?.unwrap_or_default(),
            thoughts: thoughts?.unwrap_or_default(),
        }),
        _ => {
            let problem = setting.problem(format!("{} needs `line`, `input` and `output`", setting.name));
            findings.refuse(problem.hint(hint))
        }
    }
}

/// Reads the texts with which an agent reports errors.
fn errors(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Vec<ErrorPattern>> {
    let hint = "write `errors = [{ text = \"Error: *429*\", kind = \"rate_limited\" }]`";
    let Value::Array(items) = setting.value else {
        return findings.refuse(setting.must_be("a list").hint(hint));
    };
    let read: Vec<Option<ErrorPattern>> = items
        .iter()
        .enumerate()
        .map(|(i, value)| {
            let part = setting.part(&i.to_string(), value);
            let Value::Object(table) = value else {
                return findings.refuse(part.must_be("a table").hint(hint));
            };
            let parts = Parts::of(&part, table, ERROR_KEYS, findings);
            let text = parts.read("text", findings, read::word);
            let kind = parts.read("kind", findings, failure_kind);
            let place =
                parts.read("in", findings, |setting, findings| one_of(setting, findings, ErrorPlace::ALL));
            let message = parts.read("message", findings, read::word);
            let (place, message) = (place?.unwrap_or_default(), message?);
            match (text?, kind?) {
                (Some(text), Some(_)) if place == ErrorPlace::Text && text.starts_with('*') => {
                    let message = format!("{} would match ordinary answers", part.name);
                    findings.refuse(part.problem(message).hint(
                        "begin the pattern with the text that the agent begins with, or use `in = \"error\"` for error responses",
                    ))
                }
                (Some(text), Some(kind)) => Some(ErrorPattern { text, kind, place, message }),
                _ => findings
                    .refuse(part.problem(format!("{} needs both `text` and `kind`", part.name)).hint(hint)),
            }
        })
        .collect();
    read.into_iter().collect()
}

/// Reads the kind of a failure.
fn failure_kind(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<FailureKind> {
    match serde_json::from_value(setting.value.clone()) {
        Ok(kind) => Some(kind),
        Err(_) => {
            let known = ["rate_limited", "not_authenticated", "api_error", "network", "context_overflow"];
            let problem = setting.must_be("the kind of a failure");
            findings.refuse(problem.hint(format!("use a kind of `error.kind`, such as {}", known.join(", "))))
        }
    }
}

/// Reads a table of names.
fn names(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<BTreeMap<String, String>> {
    let Value::Object(table) = setting.value else {
        return findings.refuse(setting.must_be("a table").hint("write `{ write = \"Write\" }`"));
    };
    every(table, |name, value| Some((name.to_owned(), read::word(&setting.part(name, value), findings)?)))
}

/// Reads the name of a tool and of its argument.
fn mcp_argument(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<String> {
    let path = read::word(setting, findings)?;
    if path.split_once('.').is_some_and(|(tool, argument)| !tool.is_empty() && !argument.is_empty()) {
        return Some(path);
    }
    let problem = setting.problem(format!("{} must name a tool and its argument", setting.name));
    findings.refuse(problem.hint("write them as `use_tool.tool_name`"))
}

/// Reads the title of a call to a tool of an MCP server.
fn mcp_title(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<String> {
    let title = read::word(setting, findings)?;
    let is_single = |name: &str| title.matches(name).count() == 1;
    if is_single("{server}") && is_single("{tool}") && !title.contains("}{") {
        return Some(title);
    }
    findings.refuse(
        setting
            .problem(format!(
                "{} must contain `{{server}}` and `{{tool}}`, apart from each other",
                setting.name
            ))
            .hint("write a title such as `{server}: {tool}`"),
    )
}

/// Reads the files of a profile.
fn files(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<BTreeMap<String, String>> {
    let Value::Object(table) = setting.value else {
        return findings.refuse(setting.must_be("a table").hint("write `{ \"settings.json\" = \"…\" }`"));
    };
    every(table, |name, value| {
        let part = setting.part(name, value);
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
            let problem = part.problem(format!("{} is not the name of a file", part.name));
            return findings.refuse(problem.hint("use a name without `/` and without a leading `.`"));
        }
        Some((name.to_owned(), read::word(&part, findings)?))
    })
}

/// Reads the path of a session's file, which must name the session.
fn session_store(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<String> {
    let path = read::word(setting, findings)?;
    let is_absolute = path.starts_with("~/") || path.starts_with('/');
    if is_absolute && path.contains("{id}") && !path.split('/').any(|part| part == "..") {
        return Some(path);
    }
    findings.refuse(
        setting
            .problem(format!("{} must be an absolute path with `{{id}}`", setting.name))
            .hint("write a path such as `~/.my-agent/sessions/{id}.jsonl`"),
    )
}
