//! Saved sessions of the user's agents: list, search, show, usage.

use super::{blocking, scan};
use crate::{
    app::{App, Sender},
    extract::{JsonBody, Params},
    http_error::ApiError,
    messages::{SessionAccess, SessionsFilterQuery, UsageGrouping},
    roots::Roots,
};
use agentline::{
    Error,
    host::messages::{SessionsLoad, SessionsQuery},
    sessions::SessionFilter,
};
use agentline_sessions::{UsageBy, UsageRow};
use axum::{Extension, Json, extract::State};
use serde_json::{Map, Value, json};
use std::{path::Path, sync::Arc};

type Shared = State<Arc<App>>;
type Sent = Extension<Sender>;

/// How many sessions or results are returned by default.
const LIMIT: usize = 200;

/// Refuses a token that may read no sessions. Returns whether it may read those of all directories.
fn may_read(sender: &Sender) -> Result<bool, ApiError> {
    match sender.token.policy.sessions {
        SessionAccess::None => Err(ApiError::forbidden("this token may not read saved sessions")),
        SessionAccess::Roots => Ok(false),
        SessionAccess::All => Ok(true),
    }
}

/// Returns whether a session belongs to a served directory.
fn is_served(roots: &Roots, session: &Value) -> bool {
    let info = session.get("session").or(session.get("info")).unwrap_or(session);
    let dir = info.get("cwd").or(info.get("project")).and_then(Value::as_str);
    dir.is_some_and(|dir| roots.contain(Path::new(dir)))
}

/// Lists or searches, and removes what the sender may not see.
async fn query(
    app: &Arc<App>,
    sender: &Sender,
    method: &'static str,
    list: &str,
    mut query: SessionsQuery,
) -> Result<Json<Value>, ApiError> {
    let sees_all = may_read(sender)?;
    let limit = query.limit.unwrap_or(LIMIT);
    query.limit = sees_all.then_some(limit);
    let calling = Arc::clone(app);
    let mut found = scan(app, async move { calling.engine.call(method, &query).await }).await?;
    if let Some(found) = found.get_mut(list).and_then(Value::as_array_mut).filter(|_| !sees_all) {
        found.retain(|session| is_served(&app.roots, session));
        found.truncate(limit);
    }
    Ok(Json(found))
}

pub(crate) async fn list(
    State(app): Shared,
    Extension(sender): Sent,
    Params(filter): Params<SessionsFilterQuery>,
) -> Result<Json<Value>, ApiError> {
    let mut wanted = SessionsQuery::default();
    (wanted.agent, wanted.project) = (filter.agent, filter.project);
    (wanted.since, wanted.until, wanted.limit) = (filter.since, filter.until, filter.limit);
    query(&app, &sender, "sessions/list", "sessions", wanted).await
}

pub(crate) async fn search(
    State(app): Shared,
    Extension(sender): Sent,
    JsonBody(wanted): JsonBody<SessionsQuery>,
) -> Result<Json<Value>, ApiError> {
    if wanted.words.iter().all(String::is_empty) {
        return Err(ApiError::usage("words", "is empty", "name at least one word"));
    }
    query(&app, &sender, "sessions/search", "results", wanted).await
}

pub(crate) async fn show(
    State(app): Shared,
    Extension(sender): Sent,
    Params(mut wanted): Params<SessionsLoad>,
) -> Result<Json<Value>, ApiError> {
    let sees_all = may_read(&sender)?;
    // The host also accepts a path of a file, which a client must not choose.
    let selector = wanted.session.get_or_insert_with(|| "latest".to_owned());
    if selector.contains(['/', '\\', '\0']) || selector.starts_with('.') {
        return Err(ApiError::usage("session", "is not an id", "use an id, a prefix of it, or `latest`"));
    }
    let calling = Arc::clone(&app);
    let loading = async move {
        if let Some(project) = wanted.project.clone() {
            let roots = calling.roots.clone();
            blocking(move || roots.resolve("project", &project)).await?;
        }
        calling.engine.call("sessions/load", &wanted).await
    };
    let loaded = scan(&app, loading).await?;
    if !sees_all && !is_served(&app.roots, &loaded) {
        return Err(ApiError::not_found("the session"));
    }
    Ok(Json(loaded))
}

pub(crate) async fn usage(
    State(app): Shared,
    Extension(sender): Sent,
    Params(filter): Params<SessionsFilterQuery>,
) -> Result<Json<Value>, ApiError> {
    if !may_read(&sender)? {
        return Err(ApiError::forbidden("this token may not read the usage of all sessions"));
    }
    let by = match filter.by {
        UsageGrouping::Day => UsageBy::Day,
        UsageGrouping::Week => UsageBy::Week,
        UsageGrouping::Month => UsageBy::Month,
        UsageGrouping::Agent => UsageBy::Agent,
        UsageGrouping::Model => UsageBy::Model,
        UsageGrouping::Project => UsageBy::Project,
        UsageGrouping::Session => UsageBy::Session,
    };
    let name = json!(filter.by);
    let store = app.agentline.sessions();
    let counting = blocking(move || {
        let mut selected = SessionFilter::new();
        (selected.since, selected.until) = (filter.since, filter.until);
        selected.project = filter.project.map(Into::into);
        selected.agents = filter.agent.into_iter().map(Into::into).collect();
        store.usage(&selected, by).map_err(|error| ApiError::from(Error::from(error)))
    });
    let rows = scan(&app, counting).await?;
    let sum = UsageRow::sum(&rows);
    let rows: Vec<Value> = rows.iter().map(row).collect();
    Ok(Json(json!({"by": name, "rows": rows, "total": row(&sum)})))
}

fn row(row: &UsageRow) -> Value {
    let mut value = serde_json::to_value(row).unwrap_or_else(|_| Value::Object(Map::new()));
    value["turns"] = row.answers.into();
    value
}
