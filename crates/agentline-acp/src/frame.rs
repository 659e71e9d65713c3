//! Frames between client and agent: reads the parts that the proxy needs, and adds to a response.

use agentline_core::rpc::{self, RpcMessage};
use serde_json::{Value, json, value::RawValue};
use std::collections::BTreeMap;

/// Returns the id of a response in one spelling, or `None` if the frame is not a response.
pub(crate) fn response_id(frame: &str) -> Option<String> {
    match rpc::read(frame)? {
        RpcMessage::Response { id, .. } => Some(rpc::id_key(id)),
        _ => None,
    }
}

/// Returns whether a response is an error.
pub(crate) fn is_error(frame: &str) -> bool {
    matches!(rpc::read(frame), Some(RpcMessage::Response { result: Err(_), .. }))
}

/// Adds the entries of `meta` to `_meta` of a result. Everything else stays as it was written.
pub(crate) fn with_meta(frame: &str, meta: &Value) -> Option<String> {
    let Some(RpcMessage::Response { result: Ok(result), .. }) = rpc::read(frame) else { return None };
    let result = result.get();
    let start = (result.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(result).ok()?;
    let added = match fields.get("_meta") {
        // `null` has no entries to keep.
        Some(theirs) if theirs.get() != "null" => {
            let mut all: BTreeMap<String, Value> = serde_json::from_str(theirs.get()).ok()?;
            all.extend(meta.as_object()?.clone());
            let from = (theirs.get().as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
            let all = serde_json::to_string(&all).ok()?;
            return Some(replaced(frame, from..from + theirs.get().len(), &all));
        }
        Some(null) => {
            let from = (null.get().as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
            return Some(replaced(frame, from..from + null.get().len(), &meta.to_string()));
        }
        None => format!("\"_meta\":{meta}"),
    };
    let comma = if fields.is_empty() { "" } else { "," };
    Some(replaced(frame, start + 1..start + 1, &format!("{added}{comma}")))
}

/// Adds to the response to `initialize` that sessions can be loaded.
pub(crate) fn with_load_session(frame: &str) -> Option<String> {
    let Some(RpcMessage::Response { id, result: Ok(result) }) = rpc::read(frame) else { return None };
    let mut result: Value = serde_json::from_str(result.get()).ok()?;
    let capabilities = result.as_object_mut()?.entry("agentCapabilities").or_insert_with(|| json!({}));
    capabilities.as_object_mut()?.insert("loadSession".to_owned(), true.into());
    Some(rpc::response(id, &result).trim_end().to_owned())
}

fn replaced(frame: &str, range: std::ops::Range<usize>, with: &str) -> String {
    let mut frame = frame.to_owned();
    frame.replace_range(range, with);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_response_stays_as_it_was_written() {
        let meta = json!({"agentline": 1});
        let check =
            |frame: &str, expected: &str| assert_eq!(with_meta(frame, &meta).as_deref(), Some(expected));
        check(
            r#"{ "id": 7,"result" : {"stopReason":  "end_turn", "n": 12345678901234567890}, "x": 1.0 }"#,
            r#"{ "id": 7,"result" : {"_meta":{"agentline":1},"stopReason":  "end_turn", "n": 12345678901234567890}, "x": 1.0 }"#,
        );
        check(r#"{"id":7,"result":{}}"#, r#"{"id":7,"result":{"_meta":{"agentline":1}}}"#);
        check(
            r#"{"id":7,"result":{"a":1,"_meta":{"b":{}}}}"#,
            r#"{"id":7,"result":{"a":1,"_meta":{"agentline":1,"b":{}}}}"#,
        );
        check(r#"{"id":7,"result":{"_meta":null}}"#, r#"{"id":7,"result":{"_meta":{"agentline":1}}}"#);
        assert_eq!(with_meta(r#"{"id":7,"error":{}}"#, &meta), None);
        assert_eq!(
            (response_id(r#"{"id":"a\u0062","result":1}"#), response_id("{}")),
            (Some("\"ab\"".to_owned()), None)
        );
    }
}
