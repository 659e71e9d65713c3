//! Readers for single values, such as lists, times and modes. Each returns the value or records a problem.

use super::{check::SettingValue, findings::Findings};
use crate::config::parse::{comma_list, duration_in};
use crate::{
    Isolation, ModelValidation, PermissionMode, Rule, RuleError, Sandbox, Surface, SystemMode, Trust,
    naming::snake_case,
    time::{self, LAST_SECOND, rfc3339},
};
use serde_json::Value;
use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

/// The longest accepted time. Timeouts are added to times, and much larger values would overflow.
const LONGEST_TIME: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Descriptions of the accepted values for the documentation, by name of the reader.
pub(super) const KINDS: &[(&str, &str)] = &[
    ("text", "string"),
    ("word", "string"),
    ("path", "path"),
    ("paths", "list of paths"),
    ("words", "list of strings"),
    ("rules", "list of strings"),
    ("variable_names", "list of strings"),
    ("flag", "`true` or `false`"),
    ("clock", "seconds, or a duration such as `\"10m\"`"),
    ("pause", "milliseconds, or a duration such as `\"500ms\"`"),
    ("count", "whole number"),
    ("small_count", "whole number"),
    ("size", "whole number"),
    ("dollars", "number"),
    ("surface", "`auto`, `json`, `stream-json`, `acp`, `app-server`, `serve`"),
    ("mode", "`default`, `accept-edits`, `bypass`, `plan`"),
    ("system_mode", "`append`, `replace`"),
    ("validation", "`warn`, `strict`"),
    ("moment", "RFC 3339 such as `\"2030-01-01T00:00:00Z\"`, or seconds since 1970"),
    ("trust", "`run`, `full`, `no`"),
    ("isolation", "`auto`, `namespace`, `none`"),
    ("sandbox", "`true`, `false`, or the name of a program such as `docker`"),
    ("variables", "table, or list of `\"NAME=VALUE\"`"),
    ("servers", "table, or list of `\"name=URL\"` and `\"name=command args…\"`"),
    ("agents", "table"),
    ("prices", "table"),
    ("program", "program name, or path"),
];

/// Returns the unit of a bare number in seconds, and the hint on how to write a time.
fn unit(setting: &SettingValue<'_>) -> (f64, &'static str) {
    if snake_case(&setting.name).ends_with("_ms") {
        (0.001, "write milliseconds, or a duration such as `500ms`, `10m`, `1h30m`")
    } else {
        (1.0, "write seconds, or a duration such as `10m`, `1h30m`, `500ms`")
    }
}

/// Reads any text without NUL bytes.
pub(super) fn text(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<String> {
    match setting.value {
        Value::String(text) if text.contains('\0') => {
            findings.refuse(setting.without_value("contains a NUL byte").hint("remove it"))
        }
        Value::String(text) => Some(text.clone()),
        _ => findings.refuse(setting.must_be("a string").hint("put it in quotes")),
    }
}

/// Reads a non-empty text.
pub(super) fn word(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<String> {
    let text = text(setting, findings)?;
    if text.trim().is_empty() {
        let problem = setting.without_value("must not be empty");
        return findings.refuse(problem.hint("remove it to use the default"));
    }
    Some(text)
}

/// Reads a path, relative to the base directory of the layer.
pub(super) fn path(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<PathBuf> {
    word(setting, findings).map(|text| setting.path(&text))
}

/// Reads a list of paths.
pub(super) fn paths(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Vec<PathBuf>> {
    Some(words(setting, findings)?.iter().map(|text| setting.path(text)).collect())
}

/// Reads a list of non-empty texts.
pub(super) fn words(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Vec<String>> {
    list(setting, findings, word)
}

/// Reads a list. A variable may also contain a comma-separated list; other layers need a real list.
fn list(
    setting: &SettingValue<'_>,
    findings: &mut Findings,
    read_item: impl Fn(&SettingValue<'_>, &mut Findings) -> Option<String>,
) -> Option<Vec<String>> {
    let from_variable = setting.is_loose.then(|| setting.value.as_str()).flatten();
    let unpacked =
        from_variable.and_then(|text| serde_json::from_str::<Value>(text).ok()).filter(Value::is_array);
    match (unpacked.as_ref().unwrap_or(setting.value), from_variable) {
        (Value::Array(values), _) => {
            let read: Vec<Option<String>> = values
                .iter()
                .enumerate()
                .map(|(i, value)| read_item(&setting.part(&i.to_string(), value), findings))
                .collect();
            read.into_iter().collect()
        }
        (_, Some(text)) => Some(comma_list(text)),
        _ => findings.refuse(
            setting.must_be("a list").hint(format!("write `{} = {}`", setting.name, setting.key.example)),
        ),
    }
}

/// Reads a list of permission rules.
pub(super) fn rules(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Vec<Rule>> {
    // An empty text is not a rule, with a message of its own.
    let texts = list(setting, findings, text)?;
    let mut read = |text: &String| {
        let refuse =
            |error: RuleError| findings.refuse(setting.problem(error.to_string()).hint(error.hint()));
        Rule::parse(text).map_or_else(refuse, Some)
    };
    let rules: Vec<Option<Rule>> = texts.iter().map(&mut read).collect();
    rules.into_iter().collect()
}

/// Reads names of variables, which contain no `=`.
pub(super) fn variable_names(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Vec<String>> {
    let names = words(setting, findings)?;
    if names.iter().any(|name| name.contains('=')) {
        // The text after the `=` may be a secret, so the value is not shown.
        let problem = setting.problem("accepts only names of variables, but one contains `=`");
        return findings.refuse(
            problem.hint("write only the name to pass on your variable, or use `env` to set another value"),
        );
    }
    Some(names)
}

/// Reads a boolean; a variable may also contain `1`, `yes`, `on` or their opposites.
pub(super) fn flag(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<bool> {
    let read = match setting.value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if setting.is_loose => truth(text),
        _ => None,
    };
    match read {
        Some(flag) => Some(flag),
        None => {
            findings.refuse(setting.must_be("true or false").hint("write `true` or `false`, without quotes"))
        }
    }
}

fn truth(word: &str) -> Option<bool> {
    match word.trim().to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Reads a timeout, which must not be zero because it would expire immediately.
pub(super) fn clock(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Duration> {
    match time(setting, findings)? {
        Some(time) if time > Duration::ZERO => Some(time),
        _ => findings.refuse(setting.must_be_positive().hint(unit(setting).1)),
    }
}

/// Reads a time that may be zero.
pub(super) fn pause(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Duration> {
    match time(setting, findings)? {
        Some(time) => Some(time),
        None => findings.refuse(setting.must_not_be_negative().hint(unit(setting).1)),
    }
}

/// Reads a time given as a number or text; the inner `None` means that it is negative.
fn time(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Option<Duration>> {
    let (unit, way_out) = unit(setting);
    let number = match setting.value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let read = match (number, setting.value) {
        (Some(number), _) if number < 0.0 => return Some(None),
        (Some(number), _) => Duration::try_from_secs_f64(number * unit).ok(),
        (None, Value::String(text)) => duration_in(text, unit).ok(),
        _ => None,
    };
    match read {
        Some(time) if time > LONGEST_TIME => {
            findings.refuse(setting.invalid("must not be longer than 100 years").hint(way_out))
        }
        Some(time) => Some(Some(time)),
        None if setting.value.is_string() => {
            findings.refuse(setting.invalid("must be a duration").hint(way_out))
        }
        None => findings.refuse(setting.must_be("a duration").hint(way_out)),
    }
}

/// Reads a point in time: RFC 3339, or seconds since 1970.
pub(super) fn moment(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<SystemTime> {
    let read = match setting.value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => rfc3339(text.trim()).or_else(|| text.trim().parse().ok()),
        _ => None,
    };
    match read.filter(|seconds| seconds.is_finite() && *seconds > 0.0) {
        Some(seconds) if seconds > LAST_SECOND => findings.refuse(
            setting
                .invalid("must not be later than the year 9999")
                .hint("write it as `2030-01-01T00:00:00Z`, or remove it for no deadline"),
        ),
        Some(seconds) => time::from_seconds(seconds),
        None => findings.refuse(
            setting
                .invalid("must be a point in time")
                .hint("write it as `2030-01-01T00:00:00Z`, with a time zone, or as seconds since 1970"),
        ),
    }
}

/// Reads a whole number.
pub(super) fn count(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<u64> {
    let number = match setting.value {
        // Some JSON writers emit all numbers as floats.
        Value::Number(number) => number.as_u64().or_else(|| {
            number.as_f64().filter(|n| n.fract() == 0.0 && (0.0..=9e15).contains(n)).map(|n| n as u64)
        }),
        Value::String(text) if setting.is_loose => text.trim().parse().ok(),
        _ => None,
    };
    match number {
        Some(number) => Some(number),
        None if setting.value.is_number() || setting.is_loose => findings
            .refuse(setting.invalid("must be a whole number, 0 or more").hint("remove it for no limit")),
        None => findings.refuse(setting.must_be("a whole number").hint("write it without quotes")),
    }
}

/// Reads a whole number that fits into 32 bits.
pub(super) fn small_count(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<u32> {
    narrow(count(setting, findings)?, setting, findings)
}

/// Reads a number of bytes, at least one.
pub(super) fn size(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<usize> {
    match narrow(count(setting, findings)?, setting, findings)? {
        0 => findings.refuse(setting.must_be_positive().hint("write a number of bytes such as `1048576`")),
        size => Some(size),
    }
}

fn narrow<T: TryFrom<u64>>(number: u64, setting: &SettingValue<'_>, findings: &mut Findings) -> Option<T> {
    T::try_from(number)
        .ok()
        .or_else(|| findings.refuse(setting.invalid("is too large").hint("write a smaller number")))
}

/// Reads an amount of US dollars.
pub(super) fn dollars(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<f64> {
    let number = match setting.value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if setting.is_loose => text.trim().trim_start_matches('$').parse().ok(),
        _ => None,
    };
    match number.filter(|n: &f64| n.is_finite() && *n >= 0.0) {
        Some(number) => Some(number),
        None => findings.refuse(
            setting
                .invalid("must be an amount in US dollars, 0 or more")
                .hint("write a number such as `0.50`"),
        ),
    }
}

/// Reads one of a fixed set of words, each of which is `noun`.
fn choice<T>(
    setting: &SettingValue<'_>,
    findings: &mut Findings,
    (choices, noun): (&[&str], &str),
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    match setting.value.as_str().and_then(read) {
        Some(value) => Some(value),
        None => findings.refuse(setting.must_be_one_of(choices, noun)),
    }
}

/// Reads a surface; `auto` reads as `None`.
pub(super) fn surface(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Option<Surface>> {
    let choices: Vec<&str> = ["auto"].into_iter().chain(Surface::ALL.iter().map(|s| s.name())).collect();
    choice(setting, findings, (&choices, "a surface"), |word| {
        if word == "auto" { Some(None) } else { Surface::parse(word).map(Some) }
    })
}

/// Reads a permission mode. For the Gemini key `approval_mode`, the problem lists Gemini's names for the modes.
pub(super) fn mode(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<PermissionMode> {
    let is_approval_mode = snake_case(&setting.name) == "approval_mode";
    let choices =
        if is_approval_mode { &["default", "auto_edit", "yolo", "plan"] } else { PermissionMode::NAMES };
    choice(setting, findings, (choices, "a permission mode"), PermissionMode::parse)
}

/// Reads whether a system prompt extends or replaces the agent's own instructions.
pub(super) fn system_mode(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<SystemMode> {
    choice(setting, findings, (&["append", "replace"], "a system mode"), |word| match word {
        "append" => Some(SystemMode::Append),
        "replace" => Some(SystemMode::Replace),
        _ => None,
    })
}

/// Reads how to handle a model that is not in the agent's list.
pub(super) fn validation(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<ModelValidation> {
    choice(setting, findings, (&["warn", "strict"], "a validation mode"), |word| match word {
        "warn" | "lenient" => Some(ModelValidation::Warn),
        "strict" => Some(ModelValidation::Strict),
        _ => None,
    })
}

/// Reads the trust level of the workspace.
pub(super) fn trust(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Trust> {
    choice(setting, findings, (&["run", "full", "no"], "a trust level"), |word| match word {
        "run" => Some(Trust::Run),
        "full" => Some(Trust::Full),
        "no" => Some(Trust::No),
        _ => None,
    })
}

/// Reads whether agents run in a pid namespace.
pub(super) fn isolation(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Isolation> {
    choice(setting, findings, (&Isolation::ALL.map(Isolation::name), "an isolation"), Isolation::from_name)
}

/// Reads a sandbox: a boolean, or the name of the program that creates it. The agent decides which programs are valid.
pub(super) fn sandbox(setting: &SettingValue<'_>, findings: &mut Findings) -> Option<Sandbox> {
    let switch = |on| if on { Sandbox::On } else { Sandbox::Off };
    if let Value::Bool(on) = setting.value {
        return Some(switch(*on));
    }
    let word = word(setting, findings)?;
    Some(match word.as_str() {
        "none" => Sandbox::Off,
        word => truth(word).map_or_else(|| Sandbox::By(word.to_owned()), switch),
    })
}
