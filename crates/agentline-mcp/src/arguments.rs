//! Checks the arguments of a tool against its schema, so that a model that made a mistake reads what to change.

use agentline_core::nearest;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The maximum length of a value in a message, in characters.
const LONGEST_VALUE: usize = 60;

/// Reads the arguments of a tool with this schema.
///
/// # Errors
/// Returns one line for each wrong argument: its name, what is wrong, and what to write instead.
pub(crate) fn read<A: DeserializeOwned>(
    schema: &Map<String, Value>,
    mut args: Map<String, Value>,
) -> Result<A, String> {
    // Many models write null for what they leave out.
    args.retain(|_, value| !value.is_null());
    let problems = check(schema, &args);
    if problems.is_empty() {
        return serde_json::from_value(args.into()).map_err(|error| format!("invalid arguments: {error}"));
    }
    Err(problems.join("\n"))
}

fn check(schema: &Map<String, Value>, args: &Map<String, Value>) -> Vec<String> {
    let empty = Map::new();
    let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let missing = required.filter_map(Value::as_str).filter(|name| !args.contains_key(*name));
    let missing = missing.map(|name| format!("`{name}` is missing; {}", described(&known[name])));
    let wrong = args.iter().filter_map(|(name, value)| match known.get(name) {
        Some(property) => wrong_value(name, value, property),
        None => Some(unknown(name, known)),
    });
    missing.chain(wrong).collect()
}

fn unknown(name: &str, known: &Map<String, Value>) -> String {
    let names = || known.keys().map(String::as_str);
    match nearest(name, names()) {
        Some(near) => format!("`{name}` is not an argument of this tool; did you mean `{near}`?"),
        None if known.is_empty() => format!("`{name}` is not an argument of this tool; it has none"),
        None => {
            let names: Vec<String> = names().map(|name| format!("`{name}`")).collect();
            format!("`{name}` is not an argument of this tool; use {}", names.join(", "))
        }
    }
}

fn wrong_value(name: &str, value: &Value, property: &Value) -> Option<String> {
    let kind = property["type"].as_str().unwrap_or_default();
    let has_kind = match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => true,
    };
    let is_offered = property["enum"].as_array().is_none_or(|offered| offered.contains(value));
    let too_small = |bound: f64, is_exclusive: bool| {
        value.as_f64().is_some_and(|value| value < bound || is_exclusive && value <= bound)
    };
    let is_in_range = !property["minimum"].as_f64().is_some_and(|least| too_small(least, false))
        && !property["exclusiveMinimum"].as_f64().is_some_and(|bound| too_small(bound, true));
    let is_long_enough = property["minLength"].as_u64().is_none_or(|least| {
        value.as_str().is_none_or(|text| text.chars().take(1).count() as u64 >= least.min(1))
    });
    if has_kind && is_offered && is_in_range && is_long_enough {
        return None;
    }
    let shown: String = value.to_string().chars().take(LONGEST_VALUE).collect();
    Some(format!("`{name}` must be {}, not {shown}", expected(property, kind)))
}

fn expected(property: &Value, kind: &str) -> String {
    if let Some(offered) = property["enum"].as_array() {
        let words: Vec<String> =
            offered.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
        return format!("one of {}", words.join(", "));
    }
    let kind = match kind {
        "integer" => "a whole number",
        "number" => "a number",
        "string" if property["minLength"].is_u64() => "a text that is not empty",
        "string" => "a text",
        other => other,
    };
    match (property["minimum"].as_f64(), property["exclusiveMinimum"].as_f64()) {
        (Some(least), _) => format!("{kind} of at least {least}"),
        (None, Some(bound)) => format!("{kind} above {bound}"),
        (None, None) => kind.to_owned(),
    }
}

/// Returns the first sentence of the description of an argument.
fn described(property: &Value) -> String {
    let text = property["description"].as_str().unwrap_or_default();
    let sentence = text.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let mut chars = sentence.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        schema::schema_of,
        tools::{ListRunsArgs, ResultArgs, StartRunArgs},
    };
    use serde_json::json;

    fn refusal<A: DeserializeOwned + schemars::JsonSchema>(args: Value) -> String {
        let args = args.as_object().unwrap().clone();
        read::<A>(&schema_of::<A>(), args).err().unwrap_or_default()
    }

    #[test]
    fn message_names_the_argument_and_the_fix() {
        for (args, message) in [
            (json!({}), "`prompt` is missing; the task for the agent"),
            (json!({"prompt": ""}), "`prompt` must be a text that is not empty, not \"\""),
            (json!({"prompt": 7}), "`prompt` must be a text that is not empty, not 7"),
            (
                json!({"prompt": "x", "modle": "m"}),
                "`modle` is not an argument of this tool; did you mean `model`?",
            ),
            (json!({"prompt": "x", "timeout_s": "60"}), "`timeout_s` must be a number above 0, not \"60\""),
            (json!({"prompt": "x", "timeout_s": 0}), "`timeout_s` must be a number above 0, not 0"),
            (json!({"prompt": "x", "max_cost": -1}), "`max_cost` must be a number above 0, not -1"),
            (
                json!({"prompt": "x", "permission_mode": "yolo"}),
                "`permission_mode` must be one of `plan`, `default`, `accept-edits`, `bypass`, not \"yolo\"",
            ),
            (json!({"prompt": "x", "model": null, "timeout_s": 1.5}), ""),
        ] {
            assert_eq!(refusal::<StartRunArgs>(args.clone()), message, "{args}");
        }
        assert_eq!(
            refusal::<ResultArgs>(json!({"run": "run-1", "offset": -1})),
            "`offset` must be a whole number of at least 0, not -1"
        );
        assert_eq!(
            refusal::<ListRunsArgs>(json!({"verbose": true})),
            "`verbose` is not an argument of this tool; it has none"
        );
        let both = refusal::<StartRunArgs>(json!({"text": "x", "zzz": 1}));
        assert_eq!(both.lines().count(), 3, "{both}");
    }
}
