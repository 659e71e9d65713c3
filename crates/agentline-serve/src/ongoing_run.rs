//! A run in progress: what is known about it, its permission requests and its clients.

use crate::{
    clock::now_ms,
    host_client::EventHead,
    http_error::ApiError,
    messages::{OpenPermission, PermissionReply, ServedRun, ServedRunState},
    running_cost::with_cost,
    store::{RunLog, Store, StoredEvent},
};
use agentline::{
    host::messages::{PermissionAnswer, PermissionQuestion},
    prices::PriceTable,
};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The answers that hold for all further requests of a run or conversation, by tool.
pub(crate) type StandingAnswers = Arc<Mutex<HashMap<String, PermissionAnswer>>>;

/// A run in progress.
#[derive(Debug)]
pub(crate) struct OngoingRun {
    pub(crate) id: String,
    pub(crate) log: Arc<RunLog>,
    /// Cancelled when the run should end. A queued run then never starts.
    pub(crate) cancelled: CancellationToken,
    info: Mutex<ServedRun>,
    permissions: Mutex<Requests>,
    standing: StandingAnswers,
    answer_time: Duration,
    /// The most that the run may cost.
    max_cost: Option<f64>,
    clients: watch::Sender<usize>,
    started: Instant,
    last_seq: AtomicU64,
}

#[derive(Debug, Default)]
struct Requests {
    open: BTreeMap<u64, OpenRequest>,
    count: u64,
}

#[derive(Debug)]
struct OpenRequest {
    id: Box<RawValue>,
    pending: OpenPermission,
}

/// A permission request that is answered at once.
pub(crate) struct Answered {
    /// The id of the request in the host protocol.
    pub(crate) id: Box<RawValue>,
    pub(crate) answer: PermissionAnswer,
}

impl OngoingRun {
    pub(crate) fn new(
        info: ServedRun,
        log: Arc<RunLog>,
        standing: StandingAnswers,
        answer_time: Duration,
        max_cost: Option<f64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: info.run.clone(),
            log,
            cancelled: CancellationToken::new(),
            info: Mutex::new(info),
            permissions: Mutex::default(),
            standing,
            answer_time,
            max_cost,
            clients: watch::Sender::new(0),
            started: Instant::now(),
            last_seq: AtomicU64::new(0),
        })
    }

    /// Returns what is known about the run.
    pub(crate) fn info(&self) -> ServedRun {
        let mut info = self.lock_info().clone();
        (info.first_event, info.last_event) = (self.log.first(), self.log.last());
        info.pending_permissions = self.permissions().open.len();
        info
    }

    /// Returns what the run takes of a budget: its cost so far, or what it may cost if that is more.
    pub(crate) fn committed_cost(&self) -> f64 {
        self.lock_info().cost_usd.unwrap_or(0.0).max(self.max_cost.unwrap_or(0.0))
    }

    /// Changes what is known about the run, and returns it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ServedRun)) -> ServedRun {
        change(&mut self.lock_info());
        self.info()
    }

    /// Appends an event of the run. Those on usage get the cost so far.
    pub(crate) async fn take_event(&self, store: &Store, prices: &PriceTable, head: EventHead, event: &str) {
        let EventHead { seq, kind } = head;
        self.last_seq.fetch_max(seq, Ordering::Relaxed);
        if kind == "started" {
            let started: Value = serde_json::from_str(event).unwrap_or_default();
            let run = self.change(|info| take_started(info, &started));
            store.update(run).await;
        }
        let mut data = one_line(event);
        if kind == "usage"
            && let Some((with_cost, cost)) = with_cost(&data, prices, self.info().model.as_deref())
        {
            self.change(|info| info.cost_usd = Some(cost));
            data = with_cost;
        }
        store.append(&self.log, &self.id, StoredEvent { kind, data, end: None }).await;
    }

    /// Appends an event of the server.
    pub(crate) async fn report(&self, store: &Store, kind: &str, mut event: Value) {
        event["type"] = kind.into();
        event["from"] = "agentline".into();
        event["at_ms"] = self.age_ms().into();
        let event = StoredEvent { kind: kind.to_owned(), data: event.to_string(), end: None };
        store.append(&self.log, &self.id, event).await;
    }

    /// Returns the last event with this outcome.
    pub(crate) fn outcome_event(&self, outcome: &str) -> String {
        let seq = self.last_seq.load(Ordering::Relaxed) + 1;
        outcome_event(seq, self.age_ms(), outcome)
    }

    /// Takes a permission request. Returns its answer if an earlier one holds for it.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        store: &Arc<Store>,
        id: Box<RawValue>,
        question: PermissionQuestion,
    ) -> Option<Answered> {
        let standing = self
            .standing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&tool_of(&question.ask))
            .cloned();
        let now = now_ms();
        let expires_at_ms = now + u64::try_from(self.answer_time.as_millis()).unwrap_or(u64::MAX / 2);
        let number = {
            let mut requests = self.permissions();
            requests.count += 1;
            requests.count
        };
        let pending = OpenPermission {
            id: format!("p{number}"),
            run: self.id.clone(),
            ask: question.ask,
            asked_at_ms: now,
            expires_at_ms,
        };
        let event = json!({"id": pending.id, "ask": pending.ask, "expires_at_ms": expires_at_ms});
        let name = pending.id.clone();
        if standing.is_none() {
            self.permissions().open.insert(number, OpenRequest { id: id.clone(), pending });
        }
        self.report(store, "permission_request", event).await;
        store.touch();
        if let Some(answer) = standing {
            self.answered(store, &name, &answer, "always").await;
            return Some(Answered { id, answer });
        }
        self.expire(Arc::clone(store), number);
        None
    }

    /// Reports that a request was denied because the time for an answer is over. The host notices it by itself.
    fn expire(self: &Arc<Self>, store: Arc<Store>, number: u64) {
        let (run, time) = (Arc::downgrade(self), self.answer_time);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            let Some(run) = run.upgrade() else { return };
            let Some(request) = run.permissions().open.remove(&number) else { return };
            let answer = denied("no answer in time");
            run.answered(&store, &request.pending.id, &answer, "timeout").await;
        });
    }

    /// Answers a permission request.
    pub(crate) async fn reply(
        &self,
        store: &Store,
        id: &str,
        reply: PermissionReply,
        by: &str,
    ) -> Result<Answered, ApiError> {
        if !matches!(reply.answer.decision.as_str(), "allow" | "deny") {
            let message = "must be `allow` or `deny`";
            return Err(ApiError::usage("decision", message, "use one of the two"));
        }
        let number: u64 = id
            .strip_prefix('p')
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| ApiError::not_found("the permission request"))?;
        let request = {
            let mut requests = self.permissions();
            if number == 0 || number > requests.count {
                return Err(ApiError::not_found("the permission request"));
            }
            let request = requests.open.remove(&number);
            request.ok_or_else(|| ApiError::conflict("the permission request was answered or has expired"))?
        };
        if reply.always {
            let tool = tool_of(&request.pending.ask);
            let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
            standing.insert(tool, reply.answer.clone());
        }
        self.answered(store, id, &reply.answer, by).await;
        Ok(Answered { id: request.id, answer: reply.answer })
    }

    async fn answered(&self, store: &Store, id: &str, answer: &PermissionAnswer, by: &str) {
        let event = json!({"id": id, "decision": answer.decision, "reason": answer.reason, "by": by});
        self.report(store, "permission_answered", event).await;
        store.touch();
    }

    /// Reports that the open requests get no answer, because the run is over.
    pub(crate) async fn end_requests(&self, store: &Store) {
        let open = std::mem::take(&mut self.permissions().open);
        for request in open.into_values() {
            self.answered(store, &request.pending.id, &denied("the run ended"), "ended").await;
        }
    }

    /// Returns the requests that wait for an answer.
    pub(crate) fn pending(&self) -> Vec<OpenPermission> {
        self.permissions().open.values().map(|request| request.pending.clone()).collect()
    }

    /// Counts a client until the guard is dropped.
    pub(crate) fn attach(self: &Arc<Self>) -> AttachedClient {
        self.clients.send_modify(|count| *count += 1);
        AttachedClient { run: Arc::clone(self) }
    }

    /// Waits until the run has had no client for some time.
    pub(crate) async fn abandoned(&self, grace: Duration) {
        let mut clients = self.clients.subscribe();
        loop {
            // The sender lives as long as the run.
            let _ = clients.wait_for(|count| *count == 0).await;
            if tokio::time::timeout(grace, clients.wait_for(|count| *count > 0)).await.is_err() {
                return;
            }
        }
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock_info(&self) -> MutexGuard<'_, ServedRun> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permissions(&self) -> MutexGuard<'_, Requests> {
        self.permissions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that follows a run.
#[derive(Debug)]
pub(crate) struct AttachedClient {
    run: Arc<OngoingRun>,
}

impl Drop for AttachedClient {
    fn drop(&mut self) {
        self.run.clients.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Returns the event that ends a run.
pub(crate) fn outcome_event(seq: u64, at_ms: u64, outcome: &str) -> String {
    format!(r#"{{"seq":{seq},"at_ms":{at_ms},"type":"outcome","from":"agentline","outcome":{outcome}}}"#)
}

/// Returns JSON without line breaks between its tokens, which would end a line of a stream of events.
pub(crate) fn one_line(json: &str) -> String {
    if json.contains(['\r', '\n']) { json.replace(['\r', '\n'], " ") } else { json.to_owned() }
}

fn take_started(info: &mut ServedRun, started: &Value) {
    let word = |key: &str| started.get(key).and_then(Value::as_str).map(str::to_owned);
    info.agent = word("agent").or(info.agent.take());
    info.model = word("model").or(info.model.take());
    info.session_id = word("session_id").or(info.session_id.take());
    info.working_dir = word("cwd").or(info.working_dir.take());
    info.state = ServedRunState::Running;
}

/// Returns what identifies the tool of a request.
fn tool_of(ask: &Value) -> String {
    let word = |key: &str| ask.get(key).and_then(Value::as_str).unwrap_or_default();
    [word("tool"), word("native_tool"), word("server")].join("\n")
}

fn denied(reason: &str) -> PermissionAnswer {
    let mut answer = PermissionAnswer::default();
    (answer.decision, answer.reason) = ("deny".to_owned(), Some(reason.to_owned()));
    answer
}
