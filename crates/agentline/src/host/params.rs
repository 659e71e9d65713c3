//! Reads the parameters of requests and formats their results.

use super::messages::RpcError;
use agentline_core::{Problem, nearest};
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json, value::RawValue};

/// Returns the id of a request whose line cannot be parsed completely, for example because of invalid UTF-8.
pub(super) fn request_id(line: &[u8]) -> Box<RawValue> {
    #[derive(serde::Deserialize)]
    struct RequestId {
        id: Box<RawValue>,
        #[serde(rename = "method")]
        _method: IgnoredAny,
    }
    serde_json::from_slice::<RequestId>(line).map_or_else(|_| RawValue::NULL.to_owned(), |request| request.id)
}

/// Replaces a value if there is a new one.
pub(super) fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

/// Reads parameters. Without any, everything has its default.
pub(super) fn read<T: DeserializeOwned + Default + JsonSchema>(params: Value) -> Result<T, RpcError> {
    if params.is_null() {
        return Ok(T::default());
    }
    if !params.is_object() {
        let problem = Problem::new("params", format!("must be an object, got {}", type_of(&params)));
        return Err(RpcError::usage(&[problem.hint("name each parameter")]));
    }
    T::deserialize(&params).map_err(|error| RpcError::usage(&invalid_keys::<T>(&params, &error)))
}

/// Returns a problem for each key that does not match.
fn invalid_keys<T: DeserializeOwned + JsonSchema>(params: &Value, error: &serde_json::Error) -> Vec<Problem> {
    let alone = |(key, value): (&String, &Value)| {
        let error = T::deserialize(&json!({ key: value })).err()?.to_string();
        if error.starts_with(&format!("unknown field `{key}`")) {
            return Some(unknown_field::<T>(key));
        }
        // The missing field belongs to another key, which is omitted here.
        let is_of_another = error.starts_with("missing field");
        (!is_of_another).then(|| invalid_value(key.clone(), &error))
    };
    let keys: Vec<Problem> = params.as_object().into_iter().flatten().filter_map(alone).collect();
    if keys.is_empty() {
        return vec![Problem::new("params", format!("invalid parameters: {}", without_types(error)))];
    }
    keys
}

/// Returns the problem with a value that has the wrong type.
pub(super) fn invalid_value(key: impl Into<String>, error: &impl ToString) -> Problem {
    Problem::new(key, format!("invalid value: {}", without_types(error)))
}

/// Returns the message of a deserialization error without the names of Rust types, which no client knows.
fn without_types(error: &impl ToString) -> String {
    let mut message = error.to_string();
    for kind in ["internally tagged enum ", "struct variant ", "tuple struct ", "struct ", "enum "] {
        while let Some(at) = message.find(&format!("expected {kind}")) {
            let start = at + "expected ".len();
            let name =
                message[start + kind.len()..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let end = name.map_or(message.len(), |length| start + kind.len() + length);
            message.replace_range(start..end, "an object");
        }
    }
    message
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Returns the problem with a field that does not exist.
fn unknown_field<T: JsonSchema>(key: &str) -> Problem {
    let names = field_names::<T>();
    let hint = match nearest(key, names.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("the fields are {}", names.join(", ")),
    };
    Problem::new(key, "is not a known field").hint(hint)
}

/// Returns the names of the fields of a message.
pub(super) fn field_names<T: JsonSchema>() -> Vec<String> {
    let schema = schemars::schema_for!(T);
    let fields = schema.get("properties").and_then(Value::as_object);
    fields.into_iter().flat_map(|fields| fields.keys().cloned()).collect()
}

/// Formats a result.
pub(super) fn write(value: &impl serde::Serialize) -> Result<Box<RawValue>, RpcError> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| RpcError::new(RpcError::INTERNAL, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_contain_names_of_rust_types() {
        for (error, expected) in [
            (
                "invalid type: string \"x\", expected struct RunParams",
                "invalid type: string \"x\", expected an object",
            ),
            (
                "invalid type: integer `1`, expected struct a::B at line 1",
                "invalid type: integer `1`, expected an object at line 1",
            ),
            ("invalid type: integer `1`, expected a string", "invalid type: integer `1`, expected a string"),
        ] {
            assert_eq!(without_types(&error), expected);
        }
        let error = read::<super::super::messages::RunParams>(json!("x")).unwrap_err();
        assert!(format!("{error:?}").contains("must be an object, got a string"), "{error:?}");
    }
}
