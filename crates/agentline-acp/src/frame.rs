//! Frames between client and agent: reads the parts that the proxy needs, and adds to a response.

use agentline_core::rpc::{self, RpcMessage};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::{collections::BTreeMap, ops::Range};

/// The parameters of `$/cancel_request`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelRequest<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

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
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(result.get()).ok()?;
    let mut all: BTreeMap<String, Value> = match fields.get("_meta") {
        // `null` has no entries to keep.
        Some(theirs) if theirs.get() != "null" => serde_json::from_str(theirs.get()).ok()?,
        _ => BTreeMap::new(),
    };
    all.extend(meta.as_object()?.clone());
    with_field(frame, result, "_meta", &serde_json::to_string(&all).ok()?)
}

/// Replaces the id of a request or a response. Everything else stays as it was written.
pub(crate) fn with_id(frame: &str, id: &str) -> Option<String> {
    let (RpcMessage::Request { id: old, .. } | RpcMessage::Response { id: old, .. }) = rpc::read(frame)?
    else {
        return None;
    };
    Some(replaced(frame, position(frame, old)?, id))
}

/// Returns the id of the request that a `$/cancel_request` names, in one spelling.
pub(crate) fn cancelled_id(frame: &str) -> Option<String> {
    named_request(frame).map(rpc::id_key)
}

/// Replaces the id of the request that a `$/cancel_request` names. Everything else stays as it was written.
pub(crate) fn with_cancelled_id(frame: &str, id: &str) -> Option<String> {
    Some(replaced(frame, position(frame, named_request(frame)?)?, id))
}

fn named_request(frame: &str) -> Option<&RawValue> {
    let Some(RpcMessage::Notification { params, .. }) = rpc::read(frame) else { return None };
    let params: CancelRequest<'_> = serde_json::from_str(params.get()).ok()?;
    Some(params.request_id)
}

/// Adds to the response to `initialize` that sessions can be loaded. Everything else stays as it was written.
pub(crate) fn with_load_session(frame: &str) -> Option<String> {
    let Some(RpcMessage::Response { result: Ok(result), .. }) = rpc::read(frame) else { return None };
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(result.get()).ok()?;
    match fields.get("agentCapabilities").filter(|theirs| theirs.get() != "null") {
        Some(capabilities) => with_field(frame, capabilities, "loadSession", "true"),
        None => with_field(frame, result, "agentCapabilities", "{\"loadSession\":true}"),
    }
}

/// Sets a field of an object in a frame.
fn with_field(frame: &str, object: &RawValue, name: &str, value: &str) -> Option<String> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(object.get()).ok()?;
    if let Some(old) = fields.get(name) {
        return Some(replaced(frame, position(frame, old)?, value));
    }
    let start = position(frame, object)?.start + 1;
    let comma = if fields.is_empty() { "" } else { "," };
    Some(replaced(frame, start..start, &format!("\"{name}\":{value}{comma}")))
}

/// Returns the position of a value that was read from the frame.
fn position(frame: &str, value: &RawValue) -> Option<Range<usize>> {
    let start = (value.get().as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
    Some(start..start + value.get().len())
}

fn replaced(frame: &str, range: Range<usize>, with: &str) -> String {
    let mut frame = frame.to_owned();
    frame.replace_range(range, with);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_session_can_be_loaded_whatever_the_agent_says() {
        for (frame, expected) in [
            (
                r#"{ "x":1.0, "id":1,"result":{"n": 12345678901234567890,"agentCapabilities":{"loadSession" : false,"a":{}}}}"#,
                r#"{ "x":1.0, "id":1,"result":{"n": 12345678901234567890,"agentCapabilities":{"loadSession" : true,"a":{}}}}"#,
            ),
            (
                r#"{"id":1,"result":{"agentCapabilities":{ }}}"#,
                r#"{"id":1,"result":{"agentCapabilities":{"loadSession":true }}}"#,
            ),
            (
                r#"{"id":1,"result":{"agentCapabilities":null}}"#,
                r#"{"id":1,"result":{"agentCapabilities":{"loadSession":true}}}"#,
            ),
            (r#"{"id":1,"result":{}}"#, r#"{"id":1,"result":{"agentCapabilities":{"loadSession":true}}}"#),
        ] {
            assert_eq!(with_load_session(frame).as_deref(), Some(expected));
        }
        assert_eq!(with_load_session(r#"{"id":1,"error":{}}"#), None);
    }

    #[test]
    fn the_id_of_a_cancelled_request_is_replaced() {
        let frame = r#"{ "method":"$/cancel_request","params":{"a":7, "requestId" : 7}}"#;
        assert_eq!(cancelled_id(frame).as_deref(), Some("7"));
        assert_eq!(
            with_cancelled_id(frame, "\"b\"").as_deref(),
            Some(r#"{ "method":"$/cancel_request","params":{"a":7, "requestId" : "b"}}"#)
        );
        assert_eq!(cancelled_id(r#"{"method":"$/cancel_request","params":{}}"#), None);
    }

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
