//! The server itself: its agents, its pool, its directories.

use super::blocking;
use crate::{
    app::{App, Sender},
    clock::now_ms,
    extract::Params,
    http_error::ApiError,
    messages::{Directories, DirectoryQuery, ServerInfo},
};
use agentline::{
    PermissionMode,
    host::messages::{AgentQuery, Detected, Party},
};
use axum::{
    Extension, Json,
    extract::{Path, State},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// How many subdirectories are returned.
const DIRECTORIES: usize = 2_000;

pub(crate) async fn info(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Sender>,
) -> Json<ServerInfo> {
    let agents = app.agentline.registry().all();
    Json(ServerInfo {
        server: Party::new("agentline", env!("CARGO_PKG_VERSION")),
        roots: app.roots.all().iter().map(|root| root.to_string_lossy().into_owned()).collect(),
        agents: agents.iter().map(|agent| agent.info().id.to_owned()).collect(),
        permission_modes: PermissionMode::NAMES.iter().map(|name| (*name).to_owned()).collect(),
        user: sender.token.name.clone(),
        policy: sender.token.policy.clone(),
        demo_prompt: app.demo_prompt.clone(),
        now_ms: now_ms(),
    })
}

pub(crate) async fn agents(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    Ok(Json(app.engine.call("agents", &json!({})).await?))
}

pub(crate) async fn agent(
    State(app): State<Arc<App>>,
    Path(agent): Path<String>,
) -> Result<Json<Detected>, ApiError> {
    let mut query = AgentQuery::default();
    query.agent = Some(agent);
    Ok(Json(app.engine.host()?.ask("detect", &query).await?))
}

pub(crate) async fn pool(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    Ok(Json(app.engine.call("pool/status", &json!({})).await?))
}

pub(crate) async fn directories(
    State(app): State<Arc<App>>,
    Params(query): Params<DirectoryQuery>,
) -> Result<Json<Directories>, ApiError> {
    let listing = blocking(move || {
        let path = app.roots.resolve("path", query.path.as_deref().unwrap_or("."))?;
        let entries = std::fs::read_dir(&path).map_err(|_| ApiError::not_found("the directory"))?;
        let is_dir = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let names = entries.filter_map(Result::ok).filter(is_dir).take(DIRECTORIES);
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(Directories { path: path.to_string_lossy().into_owned(), directories: names })
    });
    Ok(Json(listing.await?))
}
