//! Reads the frames of a client.

use crate::{
    failure::{ErrorResponse, INVALID_REQUEST, PARSE_ERROR},
    peer::ClientPeer,
};
use agentline_core::rpc::{self, InvalidMessage, RpcMessage};
use serde_json::value::RawValue;

/// Reads a frame. One that is not a message gets an error response.
pub(crate) fn read_frame<'a>(peer: &ClientPeer, frame: &'a [u8]) -> Option<(RpcMessage<'a>, &'a str)> {
    let refuse = |id: &RawValue, code: i64, message: &str| {
        peer.respond::<()>(id, Err(ErrorResponse::new(code, message)));
    };
    let Ok(text) = std::str::from_utf8(frame) else {
        refuse(RawValue::NULL, PARSE_ERROR, "the frame is not UTF-8");
        return None;
    };
    match rpc::parse(text) {
        Ok(message) => return Some((message, text)),
        Err(InvalidMessage::Json(error)) => {
            refuse(RawValue::NULL, PARSE_ERROR, &format!("the frame is not JSON: {error}"));
        }
        Err(InvalidMessage::NotAnObject) => {
            refuse(RawValue::NULL, INVALID_REQUEST, "a frame must be one object; batches are not supported");
        }
        Err(InvalidMessage::Incomplete { id }) => {
            let message = "the message has neither a method nor a result";
            refuse(id.unwrap_or(RawValue::NULL), INVALID_REQUEST, message);
        }
        Err(_) => refuse(RawValue::NULL, INVALID_REQUEST, "the response has no id"),
    }
    None
}
