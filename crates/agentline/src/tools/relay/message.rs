//! JSON-RPC messages, whose parameters and results are kept as they were written.

use crate::tools::output::structured_for;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};
use std::borrow::Cow;

/// The JSON-RPC error code for "method not found".
pub(super) const NO_METHOD: i64 = -32601;
/// The first JSON-RPC error code that is reserved for servers.
pub(super) const SERVER_ERROR: i64 = -32000;

/// A message from either side.
#[derive(Deserialize)]
pub(super) struct RelayMessage<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl<'a> RelayMessage<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        // Serde would accept an array as a struct with its fields in order.
        if text.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        serde_json::from_slice(text).ok()
    }

    /// Returns the request id and the reply, if the message is a reply to a request from this client.
    pub(super) fn reply(&self) -> Option<(u64, RelayReply)> {
        if self.method.is_some() {
            return None;
        }
        let id = self.id?.get().parse().ok()?;
        let reply = match self.error {
            Some(error) => RelayReply::Error(error.to_owned()),
            None => RelayReply::Result(self.result.map_or_else(|| raw(&Value::Null), ToOwned::to_owned)),
        };
        Some((id, reply))
    }
}

/// The reply to a request.
#[derive(Debug)]
pub(super) enum RelayReply {
    Result(Box<RawValue>),
    Error(Box<RawValue>),
}

impl RelayReply {
    pub(super) fn result(value: &Value) -> Self {
        Self::Result(raw(value))
    }

    pub(super) fn error(code: i64, message: &str) -> Self {
        Self::Error(raw(&serde_json::json!({"code": code, "message": message})))
    }

    /// Serializes the reply to the request with this id.
    pub(super) fn frame(&self, id: &RawValue) -> Vec<u8> {
        let (result, error) = match self {
            Self::Result(result) => (Some(&**result), None),
            Self::Error(error) => (None, Some(&**error)),
        };
        frame(&Frame { id: Some(id), result, error, ..Frame::default() })
    }
}

/// Serializes a request from this client.
pub(super) fn request(id: u64, method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let id = raw(&Value::from(id));
    frame(&Frame { id: Some(&id), method: Some(method), params, ..Frame::default() })
}

/// Serializes a notification.
pub(super) fn notification(method: &str, params: Option<&RawValue>) -> Vec<u8> {
    frame(&Frame { method: Some(method), params, ..Frame::default() })
}

pub(super) fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a value that is JSON already can be written as JSON")
}

/// The parts of a tool result that decide whether an agent accepts it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResultHead<'a> {
    #[serde(borrow, default)]
    content: Vec<ContentHead<'a>>,
    #[serde(default)]
    structured_content: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct ContentHead<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

/// Adds structured content to a tool result whose text needs it ([`structured_for`]).
pub(super) fn with_structured_content(result: Box<RawValue>) -> Box<RawValue> {
    let head = serde_json::from_str::<ToolResultHead<'_>>(result.get()).ok();
    let head = head.filter(|head| head.structured_content.is_none());
    let text =
        head.and_then(|mut head| (!head.content.is_empty()).then(|| head.content.swap_remove(0).text)?);
    let Some(structured) = text.and_then(|text| structured_for(&text)) else { return result };
    let Ok(mut changed) = serde_json::from_str::<Map<String, Value>>(result.get()) else { return result };
    changed.insert("structuredContent".into(), structured);
    raw(&Value::Object(changed))
}

#[derive(Serialize, Default)]
struct Frame<'a> {
    jsonrpc: Version,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
}

#[derive(Serialize, Default)]
enum Version {
    #[default]
    #[serde(rename = "2.0")]
    Two,
}

fn frame(frame: &Frame<'_>) -> Vec<u8> {
    serde_json::to_vec(frame).expect("texts and raw JSON can be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_with_bare_json_get_structured_content() {
        let changed = |result: Value| -> Value {
            serde_json::from_str(with_structured_content(raw(&result)).get()).unwrap()
        };
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}], "_meta": {"a": 1}});
        let mut expected = text("[1]");
        expected["structuredContent"] = json!({"result": "[1]"});
        assert_eq!(changed(text("[1]")), expected);
        let own = json!({"content": [{"type": "text", "text": "1"}], "structuredContent": {"n": 1}});
        let image = json!({"content": [{"type": "image", "data": "1"}, {"type": "text", "text": "1"}]});
        for kept in
            [text("plain"), text("{\"a\":1}"), own, image, json!({"content": []}), json!({}), json!(7)]
        {
            assert_eq!(changed(kept.clone()), kept);
        }
    }
}
