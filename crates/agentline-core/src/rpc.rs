//! A tolerant JSON-RPC 2.0 reader and writer, with one message per line. An invalid line is reported, but never
//! answered and never fatal.

use crate::wire::{Str, Tolerant as _, wire};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json, value::RawValue};

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
    id: Present<'a> = "id", method: Option<Str<'a>> = "method", params: Present<'a> = "params",
    result: Present<'a> = "result", error: Present<'a> = "error",
} }
wire! { struct WireError<'a> { code: Code = "code", message: Str<'a> = "message", data: Present<'a> = "data" } }

/// An error that the other side reports.
#[derive(Debug, Default)]
pub(crate) struct JsonRpcError<'a> {
    /// The error code, or 0 if there is none.
    pub(crate) code: i64,
    /// The error message.
    pub(crate) message: Str<'a>,
    /// Additional data.
    pub(crate) data: Option<&'a RawValue>,
}

/// The result of a request.
pub(crate) type RpcResult<'a> = Result<&'a RawValue, JsonRpcError<'a>>;

/// One message.
#[derive(Debug)]
pub(crate) enum RpcMessage<'a> {
    /// A request, which expects a reply.
    Request { id: &'a RawValue, method: Str<'a>, params: &'a RawValue },
    /// A notification, which expects no reply.
    Notice { method: Str<'a>, params: &'a RawValue },
    /// A reply to a request.
    Reply { id: &'a RawValue, result: RpcResult<'a> },
}

/// Parses one message. Returns `None` if the text is not a message.
pub(crate) fn read(text: &str) -> Option<RpcMessage<'_>> {
    let wire = serde_json::from_str::<Wire<'_>>(text).ok().filter(|wire| wire.is_object())?;
    let params = wire.params.0.unwrap_or(RawValue::NULL);
    match (wire.id.0, wire.method) {
        (Some(id), Some(method)) => Some(RpcMessage::Request { id, method, params }),
        (None, Some(method)) => Some(RpcMessage::Notice { method, params }),
        (Some(id), None) => {
            let error = wire.error.0.filter(|raw| raw.get() != "null");
            let result = match (error, wire.result.0) {
                (Some(raw), _) => {
                    let error = serde_json::from_str::<WireError<'_>>(raw.get()).unwrap_or_default();
                    Err(JsonRpcError {
                        code: error.code.0.unwrap_or(0),
                        message: error.message,
                        data: error.data.0,
                    })
                }
                (None, Some(result)) => Ok(result),
                (None, None) => return None,
            };
            Some(RpcMessage::Reply { id, result })
        }
        (None, None) => None,
    }
}

/// Formats a request as a line.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> String {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// Formats a notification as a line.
pub(crate) fn notice(method: &str, params: &Value) -> String {
    line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// Formats a reply as a line. The id is returned exactly as received.
pub(crate) fn reply(id: &RawValue, result: &Value) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n", id.get())
}

/// Formats an error reply as a line.
pub(crate) fn refuse(id: &RawValue, code: i64, message: &str) -> String {
    let error = json!({"code": code, "message": message});
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}\n", id.get())
}

fn line(message: &Value) -> String {
    format!("{message}\n")
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
                reply(read, &json!({})),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n")
            );
        }
    }

    #[test]
    fn null_result_is_a_result_and_null_error_is_absent() {
        let Some(RpcMessage::Reply { result: Ok(result), .. }) = read(r#"{"id":1,"result":null}"#) else {
            panic!()
        };
        assert_eq!(result.get(), "null");
        assert!(matches!(
            read(r#"{"id":1,"result":{},"error":null}"#),
            Some(RpcMessage::Reply { result: Ok(_), .. })
        ));
        let Some(RpcMessage::Reply { result: Err(error), .. }) =
            read(r#"{"id":1,"error":{"code":-32000,"message":"no","data":{"a":1}}}"#)
        else {
            panic!()
        };
        assert_eq!((error.code, &*error.message, error.data.unwrap().get()), (-32000, "no", r#"{"a":1}"#));
        assert!(matches!(
            read(r#"{"id":1,"error":"broken"}"#),
            Some(RpcMessage::Reply { result: Err(JsonRpcError { code: 0, .. }), .. })
        ));
    }

    #[test]
    fn invalid_messages_are_rejected() {
        for text in ["", "42", "[]", "null", "{}", "\"x\"", r#"{"id":1}"#, r#"{"id":1,"meth"#, "plain text"] {
            assert!(read(text).is_none(), "{text}");
        }
        assert!(
            matches!(read(r#"{"method":"m"}"#), Some(RpcMessage::Notice { params, .. }) if params.get() == "null")
        );
    }
}
