//! Conversations: open, prompt, close.

use super::runs::{checked_start, take_slot};
use crate::{
    app::{App, Sender},
    conversation::{ConversationState, TurnPlace},
    extract::{JsonBody, StartBody},
    http_error::ApiError,
    messages::{ConversationList, NextPrompt, ServedConversation},
};
use axum::{
    Extension, Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use serde_json::json;
use std::{cmp::Reverse, sync::Arc};

type Shared = State<Arc<App>>;
type Sent = Extension<Sender>;

pub(crate) async fn open(
    State(app): Shared,
    Extension(sender): Sent,
    StartBody(body): StartBody,
) -> Result<Response, ApiError> {
    let engine = Arc::clone(&app.engine);
    let opening = engine.detached(async move {
        let start = checked_start(&app, &sender, body).await?;
        let slot = take_slot(&app, &sender)?;
        // It costs nothing yet.
        app.engine.admit(&sender.token, None).await?;
        let opened = app.engine.open(start, &sender.token, slot).await?;
        let about = json!({"conversation": opened.conversation, "agent": opened.agent,
            "working_dir": opened.working_dir});
        app.audit.record(&sender.token.name, sender.remote, "conversation", about).await;
        Ok(opened)
    });
    let opened = opening.await?;
    Ok((StatusCode::CREATED, Json(opened)).into_response())
}

pub(crate) async fn list(State(app): Shared, Extension(sender): Sent) -> Json<ConversationList> {
    let mut list = ConversationList::default();
    let all: Vec<Arc<ConversationState>> = app.engine.conversations().values().cloned().collect();
    let visible = all.iter().map(|one| one.info()).filter(|one| App::may_see(&sender, &one.started_by));
    list.conversations = visible.collect();
    list.conversations.sort_by_key(|one| Reverse(one.opened_at_ms));
    Json(list)
}

fn find(app: &App, sender: &Sender, id: &str) -> Result<Arc<ConversationState>, ApiError> {
    let found = app.engine.conversation(id);
    let visible = found.filter(|conversation| App::may_see(sender, &conversation.info().started_by));
    visible.ok_or_else(|| ApiError::not_found("the conversation"))
}

/// Returns a conversation that the sender may change.
fn find_own(app: &App, sender: &Sender, id: &str) -> Result<Arc<ConversationState>, ApiError> {
    let conversation = find(app, sender, id)?;
    if App::may_change(sender, &conversation.info().started_by) {
        return Ok(conversation);
    }
    Err(ApiError::forbidden("this token may only read this conversation"))
}

pub(crate) async fn show(
    State(app): Shared,
    Extension(sender): Sent,
    Path(id): Path<String>,
) -> Result<Json<ServedConversation>, ApiError> {
    Ok(Json(find(&app, &sender, &id)?.info()))
}

pub(crate) async fn prompt(
    State(app): Shared,
    Extension(sender): Sent,
    Path(id): Path<String>,
    JsonBody(next): JsonBody<NextPrompt>,
) -> Result<Response, ApiError> {
    let conversation = find_own(&app, &sender, &id)?;
    let engine = Arc::clone(&app.engine);
    let prompting = engine.detached(async move {
        let run = app.engine.prompt(&conversation, next, TurnPlace::Last, &sender.token).await?.info();
        let about = json!({"conversation": id, "run": run.run});
        app.audit.record(&sender.token.name, sender.remote, "prompt", about).await;
        Ok(run)
    });
    let run = prompting.await?;
    Ok((StatusCode::CREATED, Json(run)).into_response())
}

pub(crate) async fn close(
    State(app): Shared,
    Extension(sender): Sent,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let conversation = find_own(&app, &sender, &id)?;
    if conversation.mark_closed() {
        let engine = Arc::clone(&app.engine);
        let closing = engine.detached(async move {
            let about = json!({"conversation": id});
            app.audit.record(&sender.token.name, sender.remote, "close", about).await;
            app.engine.close(&conversation).await
        });
        closing.await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
