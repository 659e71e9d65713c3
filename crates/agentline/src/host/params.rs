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
        (!is_of_another).then(|| Problem::new(key.clone(), format!("invalid value: {error}")))
    };
    let keys: Vec<Problem> = params.as_object().into_iter().flatten().filter_map(alone).collect();
    if keys.is_empty() { vec![Problem::new("params", format!("invalid parameters: {error}"))] } else { keys }
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
