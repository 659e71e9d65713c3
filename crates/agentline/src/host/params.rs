//! Reads the parameters of requests and formats their results.

use super::messages::RpcError;
use agentline_core::Problem;
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
pub(super) fn read<T: DeserializeOwned + Default>(params: Value) -> Result<T, RpcError> {
    if params.is_null() {
        return Ok(T::default());
    }
    T::deserialize(&params).map_err(|error| RpcError::usage(&invalid_keys::<T>(&params, &error)))
}

/// Returns a problem for each key that does not match.
fn invalid_keys<T: DeserializeOwned>(params: &Value, error: &serde_json::Error) -> Vec<Problem> {
    let alone = |(key, value): (&String, &Value)| {
        let error = T::deserialize(&json!({ key: value })).err()?.to_string();
        // The missing field belongs to another key, which is omitted here.
        let is_of_another = error.starts_with("missing field");
        (!is_of_another).then(|| Problem::new(key.clone(), format!("invalid value: {error}")))
    };
    let keys: Vec<Problem> = params.as_object().into_iter().flatten().filter_map(alone).collect();
    if keys.is_empty() { vec![Problem::new("params", format!("invalid parameters: {error}"))] } else { keys }
}

/// Formats a result.
pub(super) fn write(value: &impl serde::Serialize) -> Result<Box<RawValue>, RpcError> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| RpcError::new(RpcError::INTERNAL, error.to_string()))
}
