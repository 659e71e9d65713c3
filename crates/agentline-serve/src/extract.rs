//! Reads bodies and queries of requests, with limits and with errors in the format of this interface.

use crate::{
    app::{App, Sender},
    http_error::ApiError,
};
use axum::{
    body::{Body, BodyDataStream, Bytes},
    extract::{FromRequest, FromRequestParts, Query, Request},
    http::{header, request::Parts},
};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

/// The size from which a body is large. Few large ones are read and parsed at the same time.
const LARGE: usize = 64 << 10;
/// How much of a body that is too large is read and forgotten in bytes.
const DRAIN: usize = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// A body in JSON.
pub(crate) struct JsonBody<T>(pub(crate) T);

/// The body of a request that starts a run, which may contain attachments.
pub(crate) struct StartBody(pub(crate) serde_json::Value);

/// A query.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        Ok(Self(read(request, app, app.limits.body_bytes).await?))
    }
}

impl FromRequest<Arc<App>> for StartBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let sender = request.extensions().get::<Sender>();
        if sender.is_none_or(|sender| sender.token.policy.read_only) {
            drain(request.into_body().into_data_stream()).await;
            return Err(ApiError::forbidden("this token may only read"));
        }
        Ok(Self(read(request, app, app.limits.start_bytes).await?))
    }
}

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, ApiError> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(query)| Self(query)).map_err(|error| ApiError::bad_request(error.body_text()))
    }
}

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // A missing body is an empty object.
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| ApiError::bad_request(format!("invalid JSON: {error}")))
}

/// Reads and parses a body. A form of another site cannot have this type of content without a preflight request.
async fn read<T: DeserializeOwned + Send + 'static>(
    request: Request,
    app: &App,
    limit: usize,
) -> Result<T, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(|kind| kind.trim().to_ascii_lowercase());
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if length.and_then(|length| length.parse().ok()).is_some_and(|length: u64| length > limit as u64) {
        drain(request.into_body().into_data_stream()).await;
        return Err(ApiError::too_large(limit));
    }
    let (bytes, permit) = collect(request.into_body(), app, limit).await?;
    if !bytes.is_empty() && kind.as_deref() != Some("application/json") {
        return Err(ApiError::bad_request("the body must have the content type `application/json`"));
    }
    let Some(permit) = permit else { return json(&bytes) };
    let parsing = tokio::task::spawn_blocking(move || {
        let parsed = json(&bytes);
        drop((bytes, permit));
        parsed
    });
    parsing.await.unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
}

/// Reads a body. A large one also gets its permit, without which no more of it is read.
async fn collect(
    body: Body,
    app: &App,
    limit: usize,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), ApiError> {
    let (mut bytes, mut permit) = (Vec::new(), None);
    let mut pieces = body.into_data_stream();
    let mut deadline = Instant::now() + app.limits.read_timeout;
    while let Some(piece) = timeout_at(deadline, pieces.next()).await.map_err(|_| ApiError::timeout())? {
        let piece: Bytes = piece.map_err(|_| ApiError::bad_request("the body is incomplete"))?;
        if bytes.len() + piece.len() > limit {
            drain(pieces).await;
            return Err(ApiError::too_large(limit));
        }
        bytes.extend_from_slice(&piece);
        if bytes.len() > LARGE && permit.is_none() {
            permit = Some(large_permit(app, limit).await?);
            deadline = Instant::now() + app.limits.read_timeout;
        }
    }
    Ok((bytes, permit))
}

/// Waits until few enough large bodies are being read.
async fn large_permit(app: &App, limit: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    let bodies = if limit > app.limits.body_bytes { &app.large_bodies } else { &app.large_queries };
    let waiting = Arc::clone(bodies).acquire_owned();
    let permit = tokio::time::timeout(app.limits.read_timeout, waiting).await.ok().and_then(Result::ok);
    permit.ok_or_else(|| ApiError::rate_limited("too many large requests are in progress"))
}

/// Reads and forgets a part of a body. A connection that is closed with unread data loses the answer.
async fn drain(mut pieces: BodyDataStream) {
    let reading = async {
        let mut size = 0;
        while size < DRAIN
            && let Some(Ok(piece)) = pieces.next().await
        {
            size += piece.len();
        }
    };
    // A client that sends nothing more gets the answer at the end of this time.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}
