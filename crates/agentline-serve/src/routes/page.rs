//! The page, its files, and the description of the interface.

use crate::{http_error::ApiError, openapi, page};
use axum::{
    extract::Path,
    http::header,
    response::{Html, IntoResponse as _, Response},
};

pub(crate) async fn index() -> Html<&'static str> {
    Html(page::INDEX)
}

pub(crate) async fn asset(Path(name): Path<String>) -> Result<Response, ApiError> {
    let file = page::FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| ApiError::not_found("the file"))?;
    let headers = [(header::CONTENT_TYPE, file.content_type), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, file.text).into_response())
}

pub(crate) async fn favicon() -> ApiError {
    ApiError::not_found("the icon")
}

pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi::document().to_string()).into_response()
}

pub(crate) async fn docs() -> Html<String> {
    Html(openapi::html())
}
