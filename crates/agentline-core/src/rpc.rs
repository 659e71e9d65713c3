//! A tolerant JSON-RPC 2.0 reader and writer, with one message per line. Agents over ACP, `agentline host` and its
//! clients use it.

use crate::{
    RunId,
    wire::{Str, Tolerant as _, wire},
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::{borrow::Cow, collections::BTreeMap};

/// The code for a method that is not supported.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The code for an internal error.
pub(crate) const INTERNAL_ERROR: i64 = -32603;

/// The raw text of a value that is present, including `null`.
#[derive(Default, Debug, Clone, Copy)]
pub(crate) struct Present<'a>(pub(crate) Option<&'a RawValue>);

impl<'de> Deserialize<'de> for Present<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(d).map(|raw| Self(Some(raw)))
    }
}

/// A signed number, which may be written as a string.
#[derive(Default, Debug, Clone, Copy)]
struct Code(Option<i64>);

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(d)?.get();
        let text = raw.trim_matches('"');
        let by_float = || text.parse::<f64>().ok().filter(|n| n.abs() < 1e15).map(|n| n as i64);
        Ok(Self(text.parse().ok().or_else(by_float)))
    }
}

wire! { struct Wire<'a> {
    id: Present<'a> = "id", method: Present<'a> = "method", params: Present<'a> = "params",
    result: Present<'a> = "result", error: Present<'a> = "error",
} }
wire! { struct WireError<'a> { code: Code = "code", message: Str<'a> = "message", data: Present<'a> = "data" } }

/// An error that the other side reports.
#[derive(Debug, Default)]
pub struct JsonRpcError<'a> {
    /// The error code, or 0 if there is none.
    pub code: i64,
    /// The error message.
    pub message: Cow<'a, str>,
    /// Additional data.
    pub data: Option<&'a RawValue>,
}

/// The result of a request.
pub type RpcResult<'a> = Result<&'a RawValue, JsonRpcError<'a>>;

/// One message.
#[derive(Debug)]
pub enum RpcMessage<'a> {
    /// A request, which expects a response.
    Request {
        /// The id, which may be any JSON value.
        id: &'a RawValue,
        /// The method.
        method: Cow<'a, str>,
        /// The parameters, or `null`.
        params: &'a RawValue,
    },
    /// A notification, which expects no response.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The parameters, or `null`.
        params: &'a RawValue,
    },
    /// The response to a request.
    Response {
        /// The id of the request.
        id: &'a RawValue,
        /// The result, or the error.
        result: RpcResult<'a>,
    },
}

/// The reason why a line is not a message.
#[derive(Debug)]
pub enum InvalidMessage<'a> {
    /// The line is not JSON.
    Json(serde_json::Error),
    /// The line is JSON, but not an object.
    NotAnObject,
    /// The object has neither a method nor a result nor an error.
    Incomplete {
        /// The id, if there is one.
        id: Option<&'a RawValue>,
    },
    /// The object is a response, but has no id.
    ResponseWithoutId,
}

/// Parses one message. Returns `None` if the text is not a message.
#[must_use]
pub fn read(text: &str) -> Option<RpcMessage<'_>> {
    message(text, |_| true).ok()
}

/// Parses one message. Unlike [`read`], it does not accept a method that is not a string.
///
/// # Errors
/// Returns why the text is not a message.
pub fn parse(text: &str) -> Result<RpcMessage<'_>, InvalidMessage<'_>> {
    message(text, |method| method.starts_with('"'))
}

fn message(text: &str, is_method: impl Fn(&str) -> bool) -> Result<RpcMessage<'_>, InvalidMessage<'_>> {
    let wire = serde_json::from_str::<Wire<'_>>(text).map_err(InvalidMessage::Json)?;
    if !wire.is_object() {
        return Err(InvalidMessage::NotAnObject);
    }
    let params = wire.params.0.unwrap_or(RawValue::NULL);
    let id = wire.id.0;
    let method = wire.method.0.filter(|raw| raw.get() != "null" && is_method(raw.get()));
    if let Some(method) = method {
        let Str(method) = serde_json::from_str(method.get()).map_err(InvalidMessage::Json)?;
        return Ok(match id {
            Some(id) => RpcMessage::Request { id, method, params },
            None => RpcMessage::Notification { method, params },
        });
    }
    // Some programs send both fields, one of them null.
    let error = wire.error.0.filter(|raw| raw.get() != "null");
    let result = match (error, wire.result.0) {
        (Some(raw), _) => {
            let error = serde_json::from_str::<WireError<'_>>(raw.get()).unwrap_or_default();
            let code = error.code.0.unwrap_or(0);
            Err(JsonRpcError { code, message: error.message.0, data: error.data.0 })
        }
        (None, Some(result)) => Ok(result),
        (None, None) => return Err(InvalidMessage::Incomplete { id }),
    };
    id.map(|id| RpcMessage::Response { id, result }).ok_or(InvalidMessage::ResponseWithoutId)
}

/// Returns an id in one spelling. A peer may return the same id with other escapes or another spelling of a number.
#[must_use]
pub fn id_key(id: &RawValue) -> String {
    serde_json::from_str::<Value>(id.get()).map_or_else(|_| id.get().to_owned(), |id| id.to_string())
}

/// Formats a request as a line.
#[must_use]
pub fn request(id: u64, method: &str, params: &impl Serialize) -> String {
    line(&RequestLine { id, jsonrpc: VERSION, method, params })
}

/// Formats a request with any id as a line.
pub(crate) fn request_with_id(id: &RawValue, method: &str, params: &impl Serialize) -> String {
    line(&RequestLine { id, jsonrpc: VERSION, method, params })
}

/// Formats a notification as a line.
#[must_use]
pub fn notification(method: &str, params: &impl Serialize) -> String {
    line(&NotificationLine { jsonrpc: VERSION, method, params })
}

/// Formats a response as a line. The id is returned exactly as received.
#[must_use]
pub fn response(id: &RawValue, result: &impl Serialize) -> String {
    line(&ResponseLine { jsonrpc: VERSION, id, result })
}

/// Formats an error response as a line. The id is returned exactly as received.
#[must_use]
pub fn error_response(id: &RawValue, error: &impl Serialize) -> String {
    line(&ErrorLine { jsonrpc: VERSION, id, error })
}

/// Formats an error response with a code and a message as a line.
pub(crate) fn refuse(id: &RawValue, code: i64, message: &str) -> String {
    error_response(id, &json!({"code": code, "message": message}))
}

/// The run of calls that belong to no run.
pub(crate) const NO_RUN: RunId = RunId(0);

/// The calls of a dialogue that have no response yet.
#[derive(Debug)]
pub(crate) struct PendingCalls<C>(BTreeMap<u64, (RunId, C)>);

impl<C> Default for PendingCalls<C> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<C> PendingCalls<C> {
    /// Records a call and formats its request as a line. The id is derived from the run and from the number of the call
    /// (below 4096) in it, so that one run extracted from a shared tape replays identically.
    pub(crate) fn request(
        &mut self,
        run: RunId,
        call: C,
        number: u64,
        method: &str,
        params: &Value,
    ) -> String {
        let id = u64::from(run.0) << 12 | number;
        self.0.insert(id, (run, call));
        request(id, method, params)
    }

    /// Returns the call that a response belongs to. Some agents return the id as a string.
    pub(crate) fn take(&mut self, id: &RawValue) -> Option<(RunId, C)> {
        self.0.remove(&id.get().trim_matches('"').parse().ok()?)
    }
}

const VERSION: &str = "2.0";

#[derive(Serialize)]
struct RequestLine<'a, I, P> {
    id: I,
    jsonrpc: &'static str,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct NotificationLine<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct ResponseLine<'a, R> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: &'a R,
}

#[derive(Serialize)]
struct ErrorLine<'a, E> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    error: &'a E,
}

fn line(message: &impl Serialize) -> String {
    // Writing to memory fails only for maps whose keys are not text, and messages have none.
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbers_strings_or_null_and_round_trip() {
        for id in ["7", "\"a\\u0062\"", "null", "1.5"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":1}}}}"#);
            let Some(RpcMessage::Request { id: read, method, params }) = read(&text) else {
                panic!("{text}")
            };
            assert_eq!((read.get(), &*method, params.get()), (id, "m", r#"{"a":1}"#));
            assert_eq!(
                response(read, &json!({})),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n")
            );
        }
    }

    #[test]
    fn null_result_is_a_result_and_null_error_is_absent() {
        let Some(RpcMessage::Response { result: Ok(result), .. }) = read(r#"{"id":1,"result":null}"#) else {
            panic!()
        };
        assert_eq!(result.get(), "null");
        assert!(matches!(
            read(r#"{"id":1,"result":{},"error":null}"#),
            Some(RpcMessage::Response { result: Ok(_), .. })
        ));
        let Some(RpcMessage::Response { result: Err(error), .. }) =
            read(r#"{"id":1,"error":{"code":-32000,"message":"no","data":{"a":1}}}"#)
        else {
            panic!()
        };
        assert_eq!((error.code, &*error.message, error.data.unwrap().get()), (-32000, "no", r#"{"a":1}"#));
        assert!(matches!(
            read(r#"{"id":1,"error":"broken"}"#),
            Some(RpcMessage::Response { result: Err(JsonRpcError { code: 0, .. }), .. })
        ));
    }

    #[test]
    fn invalid_messages_are_rejected() {
        for text in ["", "42", "[]", "null", "{}", "\"x\"", r#"{"id":1}"#, r#"{"id":1,"meth"#, "plain text"] {
            assert!(read(text).is_none(), "{text}");
        }
        assert!(read(r#"{"method":5}"#).is_some());
        assert!(matches!(parse(r#"{"method":5}"#), Err(InvalidMessage::Incomplete { id: None })));
        assert!(matches!(parse("{"), Err(InvalidMessage::Json(_))));
        assert!(matches!(parse("[]"), Err(InvalidMessage::NotAnObject)));
        assert!(
            matches!(parse(r#"{"id":1}"#), Err(InvalidMessage::Incomplete { id: Some(id) }) if id.get() == "1")
        );
        assert!(matches!(parse(r#"{"result":1}"#), Err(InvalidMessage::ResponseWithoutId)));
        assert!(
            matches!(read(r#"{"method":"m"}"#), Some(RpcMessage::Notification { params, .. }) if params.get() == "null")
        );
    }
}
