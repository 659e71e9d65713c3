//! The answers of the HTTP listener.

use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{Response, StatusCode, body::Bytes};
use std::convert::Infallible;

/// An answer, whose body may be a stream.
pub(super) type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;

/// Creates an answer with a plain text.
pub(super) fn plain(status: StatusCode, message: &str) -> HttpAnswer {
    let mut answer = Response::new(Full::new(Bytes::copy_from_slice(message.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
