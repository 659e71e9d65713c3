//! ACP over a WebSocket.

use crate::{
    acp_socket,
    app::{App, Sender},
    extract::Params,
    http_error::ApiError,
};
use axum::{
    Extension,
    extract::{
        State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The query of a connection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcpQuery {
    /// The name of an agent.
    #[serde(default)]
    agent: Option<String>,
}

pub(crate) async fn connect(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Sender>,
    Params(query): Params<AcpQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|error| ApiError::bad_request(error.body_text()))?;
    if sender.token.policy.daily_cost_usd.is_some() {
        return Err(ApiError::forbidden(
            "a token with a daily budget cannot use ACP, whose cost it does not count",
        ));
    }
    let slot = app.acp.slot(&sender.token)?;
    let (finding, by) = (Arc::clone(&app), sender.clone());
    let agent = tokio::task::spawn_blocking(move || {
        let agent = finding.acp.find(&by.token, query.agent.as_deref())?;
        finding.audit.record_blocking(&by.token.name, by.remote, "acp", json!({"agent": agent.id}));
        Ok::<_, ApiError>(agent)
    });
    let agent = agent.await.map_err(|error| ApiError::internal(error.to_string()))??;
    let limit = app.limits.start_bytes;
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit);
    Ok(upgrade.on_upgrade(move |socket| acp_socket::serve(socket, app, sender, agent, slot)))
}
