//! Runs: start, list, events, permissions, outcome, files.

use super::blocking;
use crate::{
    app::{App, Sender},
    engine::max_cost,
    event_stream::EventClient,
    extract::{JsonBody, Params, StartBody},
    http_error::ApiError,
    messages::{
        Cancelling, Decided, EventBatch, EventsQuery, FileQuery, OpenPermissions, OutcomeQuery,
        PermissionReply, Resync, RunFiles, RunList, RunOutcome, RunQuery, ServedRun, StartRun, Steer,
    },
    ongoing_run::OngoingRun,
    roots::below,
    start::StartRules,
    store::{Head, Position, RunLog},
    token_use::TokenSlot,
};
use agentline::host::messages::Cancelled;
use agentline_fs::regular_file::read_regular;
use axum::{
    Extension, Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde_json::{Map, Value, json};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// The longest wait of a request.
const MAX_WAIT: u64 = 60_000;
/// How much one poll returns in bytes.
const POLL_BYTES: usize = 1 << 20;
/// The maximum size of a file in a workspace that is returned.
const FILE_LIMIT: u64 = 8 << 20;

type Shared = State<Arc<App>>;
type Sent = Extension<Sender>;

pub(crate) async fn start(
    State(app): Shared,
    Extension(sender): Sent,
    StartBody(body): StartBody,
) -> Result<Response, ApiError> {
    let engine = Arc::clone(&app.engine);
    let starting = engine.detached(async move {
        let start = checked_start(&app, &sender, body).await?;
        let keys = &start.params.keys;
        if !keys.contains_key("prompt_file") && keys.get("prompt").is_none_or(|prompt| prompt == "") {
            return Err(ApiError::usage("prompt", "is missing", "say what the agent should do"));
        }
        let slot = take_slot(&app, &sender)?;
        let turn = app.engine.admit(&sender.token, max_cost(keys)).await?;
        let info = app.engine.run(start, &sender.token, slot, turn).await?.info();
        let about = json!({"run": info.run, "agent": info.agent, "model": info.model,
            "working_dir": info.working_dir, "permission_mode": info.permission_mode});
        app.audit.record(&sender.token.name, sender.remote, "run", about).await;
        Ok(info)
    });
    let info = starting.await?;
    Ok((StatusCode::CREATED, Json(info)).into_response())
}

/// Checks a request for a run or conversation, whose paths it resolves.
pub(super) async fn checked_start(
    app: &Arc<App>,
    sender: &Sender,
    body: Value,
) -> Result<StartRun, ApiError> {
    let (app, token) = (Arc::clone(app), Arc::clone(&sender.token));
    let checking = blocking(move || {
        StartRules { roots: &app.roots, policy: &token.policy, agents: app.agentline.registry() }.read(body)
    });
    checking.await
}

/// Takes a slot of the sender's token for a run or conversation. Agents that wait for an ACP client count, too.
pub(super) fn take_slot(app: &App, sender: &Sender) -> Result<TokenSlot, ApiError> {
    let token = &sender.token;
    let slot = token.in_use.take(token.policy.max_concurrent, || app.acp.kept_agents(&token.name));
    slot.ok_or_else(|| {
        ApiError::rate_limited("too many runs of this token are in progress")
            .hint("wait until one has ended, or close a conversation")
    })
}

pub(crate) async fn list(
    State(app): Shared,
    Extension(sender): Sent,
    Params(query): Params<RunQuery>,
) -> Result<Json<RunList>, ApiError> {
    let mut version = app.engine.store.version();
    if let Some(known) = query.changed_since {
        let wait = Duration::from_millis(query.wait_ms.unwrap_or(0).min(MAX_WAIT));
        // Without a change in time, the list is the same.
        wait_for(version.wait_for(|version| *version != known), wait, &sender).await?;
    }
    let version = *version.borrow();
    let runs = app.engine.store.runs(query, App::owner(&sender)).await?;
    let runs = runs.into_iter().map(|run| app.engine.find(&run.run).map_or(run, |live| live.info()));
    let mut list = RunList::default();
    (list.runs, list.version) = (runs.collect(), version);
    Ok(Json(list))
}

/// Waits for a change, for at most this time. Fails when the browser that sent the request is signed out.
async fn wait_for<T>(
    change: impl Future<Output = T>,
    time: Duration,
    sender: &Sender,
) -> Result<(), ApiError> {
    tokio::select! {
        _ = change => Ok(()),
        () = tokio::time::sleep(time) => Ok(()),
        () = sender.clone().signed_out() => Err(ApiError::unauthorized()),
    }
}

/// Returns a run that the sender may see, and its live part if it is in progress.
async fn find(
    app: &App,
    sender: &Sender,
    run: &str,
) -> Result<(ServedRun, Option<Arc<OngoingRun>>), ApiError> {
    let live = app.engine.find(run);
    let found = match &live {
        Some(live) => Some(live.info()),
        None => app.engine.store.run(run).await?,
    };
    let visible = found.filter(|run| App::may_see(sender, &run.started_by));
    visible.map(|run| (run, live)).ok_or_else(|| ApiError::not_found("the run"))
}

/// Returns a run that the sender may change.
async fn find_live(app: &App, sender: &Sender, run: &str) -> Result<Arc<OngoingRun>, ApiError> {
    let (info, live) = find(app, sender, run).await?;
    if !App::may_change(sender, &info.started_by) {
        return Err(ApiError::forbidden("this token may only read this run"));
    }
    live.ok_or_else(|| ApiError::conflict("the run is over"))
}

async fn find_log(app: &App, run: &str) -> Result<Arc<RunLog>, ApiError> {
    app.engine.store.log(run).await?.ok_or_else(|| ApiError::not_found("the run"))
}

pub(crate) async fn show(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
) -> Result<Json<ServedRun>, ApiError> {
    Ok(Json(find(&app, &sender, &run).await?.0))
}

/// Returns where a client continues: after the event of the header, or else of the query.
fn position(headers: &HeaderMap, query: &EventsQuery) -> Result<u64, ApiError> {
    let Some(header) = headers.get("last-event-id").filter(|value| !value.is_empty()) else {
        return Ok(query.after.unwrap_or(0));
    };
    let number = header.to_str().ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| ApiError::bad_request("`Last-Event-ID` is not a number"))
}

pub(crate) async fn events(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
    headers: HeaderMap,
    Params(query): Params<EventsQuery>,
) -> Result<Response, ApiError> {
    let after = position(&headers, &query)?;
    let (_, live) = find(&app, &sender, &run).await?;
    let log = find_log(&app, &run).await?;
    if after > 0 && matches!(log.next(after), Position::End) {
        // This status stops an `EventSource` that reconnects after the outcome.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let client = EventClient {
        store: Arc::clone(&app.engine.store),
        log,
        run,
        after,
        heartbeat: app.limits.heartbeat,
        attached: live.map(|live| live.attach()),
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store, no-transform"),
        // Tells nginx not to buffer.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, client.into_body(sender.signed_out())).into_response())
}

pub(crate) async fn poll(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
    headers: HeaderMap,
    Params(query): Params<EventsQuery>,
) -> Result<Json<EventBatch>, ApiError> {
    let mut after = position(&headers, &query)?;
    let (_, live) = find(&app, &sender, &run).await?;
    let _attached = live.map(|live| live.attach());
    let log = find_log(&app, &run).await?;
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(25_000).min(MAX_WAIT));
    let mut head = log.head();
    let waiting = head.wait_for(|head| head.ended || head.last != after);
    // Without an event in time, the answer is empty.
    wait_for(waiting, wait, &sender).await?;
    let mut batch = EventBatch::default();
    if let Position::Lost(resync) = log.next(after) {
        after = resync.first.saturating_sub(1);
        batch.resync = Some(resync);
    }
    let limit = query.limit.unwrap_or(500).clamp(1, 5_000);
    let Head { last, ended } = *log.head().borrow();
    batch.events = app.engine.store.numbered(&run, after, limit, POLL_BYTES).await?;
    let first = batch.events.first().map_or(last + 1, |event| event.id);
    if after < last && first > after + 1 {
        // Events were removed meanwhile, or all of them.
        log.pruned(first);
        batch.resync = Some(Resync { requested: after, first, last });
        after = first - 1;
    }
    let reached = batch.events.last().map_or(after, |event| event.id);
    batch.last = last.max(reached);
    batch.ended = ended && reached >= last;
    Ok(Json(batch))
}

pub(crate) async fn cancel(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
    JsonBody(request): JsonBody<Cancelling>,
) -> Result<Json<Cancelled>, ApiError> {
    let (info, live) = find(&app, &sender, &run).await?;
    if !App::may_change(&sender, &info.started_by) {
        return Err(ApiError::forbidden("this token may only read this run"));
    }
    if request.signal.is_some_and(|signal| !matches!(signal, 2 | 9 | 15)) {
        return Err(ApiError::usage("signal", "must be 2, 9 or 15", "omit it"));
    }
    let Some(live) = live else { return Ok(Json(Cancelled::default())) };
    let engine = Arc::clone(&app.engine);
    let cancelling = engine.detached(async move {
        // Cancelling is not limited in its rate, so only the first of several requests is recorded.
        if !live.cancelled.is_cancelled() {
            app.audit.record(&sender.token.name, sender.remote, "cancel", json!({"run": run})).await;
        }
        Ok(app.engine.cancel(&live, request.signal).await)
    });
    Ok(Json(cancelling.await?))
}

pub(crate) async fn outcome(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
    Params(query): Params<OutcomeQuery>,
) -> Result<Json<RunOutcome>, ApiError> {
    let (_, live) = find(&app, &sender, &run).await?;
    let _attached = live.map(|live| live.attach());
    let log = find_log(&app, &run).await?;
    let mut head = log.head();
    let wait = Duration::from_millis(query.wait_ms.min(MAX_WAIT));
    // Without an outcome in time, it is null.
    wait_for(head.wait_for(|head| head.ended), wait, &sender).await?;
    let mut answer = RunOutcome::default();
    let text = app.engine.store.outcome(&run).await?;
    answer.outcome = text.and_then(|text| serde_json::from_str(&text).ok());
    Ok(Json(answer))
}

pub(crate) async fn files(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
) -> Result<Json<RunFiles>, ApiError> {
    find(&app, &sender, &run).await?;
    let mut answer = RunFiles::default();
    if let Some(outcome) = app.engine.store.outcome(&run).await? {
        let outcome: Value = serde_json::from_str(&outcome).unwrap_or_default();
        answer.files = objects(outcome.get("files"));
        return Ok(Json(answer));
    }
    // While the run is in progress: the last report on each file.
    for data in app.engine.store.file_changes(&run).await? {
        let Ok(Value::Object(mut change)) = serde_json::from_str::<Value>(&data) else { continue };
        ["seq", "at_ms", "type", "from", "line"].iter().for_each(|field| drop(change.remove(*field)));
        answer.files.retain(|known| known.get("path") != change.get("path"));
        answer.files.push(change);
    }
    Ok(Json(answer))
}

fn objects(list: Option<&Value>) -> Vec<Map<String, Value>> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object).cloned().collect()
}

pub(crate) async fn file(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
    Params(query): Params<FileQuery>,
) -> Result<Response, ApiError> {
    let (info, _) = find(&app, &sender, &run).await?;
    let missing = || ApiError::not_found("the file");
    let dir = PathBuf::from(info.working_dir.ok_or_else(missing)?);
    let roots = app.roots.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let path = below(&dir, &query.path).filter(|path| roots.contain(path))?;
        read_regular(&path, FILE_LIMIT).ok()
    });
    let bytes = reading.await.ok().flatten().ok_or_else(missing)?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
    ];
    Ok((headers, bytes).into_response())
}

pub(crate) async fn permissions(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
) -> Result<Json<OpenPermissions>, ApiError> {
    let (_, live) = find(&app, &sender, &run).await?;
    Ok(Json(OpenPermissions { permissions: live.map(|live| live.pending()).unwrap_or_default() }))
}

pub(crate) async fn reply(
    State(app): Shared,
    Extension(sender): Sent,
    Path((run, id)): Path<(String, String)>,
    JsonBody(reply): JsonBody<PermissionReply>,
) -> Result<Json<Decided>, ApiError> {
    let live = find_live(&app, &sender, &run).await?;
    let engine = Arc::clone(&app.engine);
    let answering = engine.detached(async move {
        let always = reply.always;
        let decision = app.engine.answer(&live, &id, reply, &sender.token.name).await?;
        let about = json!({"run": run, "permission": id, "decision": decision, "always": always});
        app.audit.record(&sender.token.name, sender.remote, "permission", about).await;
        Ok(Decided { decision })
    });
    Ok(Json(answering.await?))
}

pub(crate) async fn steer(
    State(app): Shared,
    Extension(sender): Sent,
    Path(run): Path<String>,
    JsonBody(steer): JsonBody<Steer>,
) -> Result<Response, ApiError> {
    let live = find_live(&app, &sender, &run).await?;
    let engine = Arc::clone(&app.engine);
    let steering = engine.detached(async move {
        let next = app.engine.steer(&live, steer, &sender.token).await?.info();
        let about = json!({"run": run, "next": next.run});
        app.audit.record(&sender.token.name, sender.remote, "steer", about).await;
        Ok(next)
    });
    let next = steering.await?;
    Ok((StatusCode::CREATED, Json(next)).into_response())
}
