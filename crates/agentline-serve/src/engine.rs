//! Starts runs, follows them to their outcome, and passes on what clients want of them.

mod budget;
mod prompts;

use crate::{
    clock::now_ms,
    conversation::{ConversationState, RunSettings},
    ending,
    host_client::{HostClient, HostReport},
    http_error::ApiError,
    messages::{OnDisconnect, PermissionReply, ServedRun, ServedRunState, StartRun},
    ongoing_run::{OngoingRun, StandingAnswers, outcome_event},
    store::{RunEnd, RunLog, Store, StoredEvent},
    token_use::{StartTurn, TokenSlot},
    tokens::AccessToken,
};
use agentline::{
    Agentline,
    host::{
        HostOptions,
        messages::{Cancel, Cancelled, RpcError},
    },
    prices::PriceTable,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The maximum length of a prompt in the list of runs, in characters.
const PROMPT_SHOWN: usize = 2_000;
/// The longest time for the answer to a permission request.
const MAX_ANSWER_TIME_MS: u64 = 24 * 60 * 60 * 1_000;
/// The default time after which a run without clients is cancelled, if it was started that way.
const GRACE: Duration = Duration::from_secs(10);

/// Starts runs and follows them.
#[derive(Debug)]
pub(crate) struct ServeEngine {
    pub(crate) store: Arc<Store>,
    prices: PriceTable,
    host: OnceLock<Arc<HostClient>>,
    live: Mutex<HashMap<String, Arc<OngoingRun>>>,
    pub(crate) conversations: Mutex<HashMap<String, Arc<ConversationState>>>,
    stopping: CancellationToken,
    stop_time: Duration,
    tasks: TaskTracker,
}

/// The options of the engine.
pub(crate) struct EngineOptions {
    pub(crate) processes: usize,
    pub(crate) prices: PriceTable,
    /// How long runs may take to end when the server stops, and again their outcomes to be stored.
    pub(crate) stop_time: Duration,
}

impl ServeEngine {
    /// Starts the engine. Runs that a killed server left behind get their outcome.
    pub(crate) async fn start(
        agentline: Agentline,
        store: Arc<Store>,
        unfinished: Vec<ServedRun>,
        options: EngineOptions,
    ) -> Arc<Self> {
        let EngineOptions { processes, prices, stop_time } = options;
        let engine = Arc::new(Self {
            store,
            prices,
            host: OnceLock::new(),
            live: Mutex::default(),
            conversations: Mutex::default(),
            stopping: CancellationToken::new(),
            stop_time,
            tasks: TaskTracker::new(),
        });
        for run in unfinished {
            engine.end_interrupted(run).await;
        }
        // Clients must not read such a run before it has ended.
        engine.store.flush().await;
        let mut options = HostOptions::default();
        options.pool.max_processes = processes;
        let taking = Arc::downgrade(&engine);
        let host = HostClient::start(agentline, options, move |report| {
            let engine = taking.upgrade();
            async move {
                if let Some(engine) = engine {
                    engine.take(report).await;
                }
            }
        });
        // Nothing else sets it.
        let _ = engine.host.set(host);
        engine
    }

    /// Returns the client of the host protocol.
    pub(crate) fn host(&self) -> Result<&Arc<HostClient>, ApiError> {
        self.host.get().filter(|_| !self.is_stopping()).ok_or_else(ApiError::unavailable)
    }

    /// Does work that continues when its client disconnects: what it starts is recorded and followed, and what it has
    /// begun is not left half done. The end of the server waits for it.
    pub(crate) async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let working = self.tasks.spawn(work);
        working.await.unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
    }

    /// Calls a method of the host protocol and returns its result.
    pub(crate) async fn call(&self, method: &str, params: &impl Serialize) -> Result<Value, ApiError> {
        Ok(self.host()?.ask(method, params).await?)
    }

    /// Starts a run whose request was checked. Its token has the slot until the run has ended.
    pub(crate) async fn run(
        self: &Arc<Self>,
        mut start: StartRun,
        token: &AccessToken,
        slot: TokenSlot,
        turn: Option<StartTurn>,
    ) -> Result<Arc<OngoingRun>, ApiError> {
        let host = Arc::clone(self.host()?);
        host.call("validate", &start.params).await?;
        let settings = settings_of(&start, token);
        let info = new_run(&settings, token);
        start.params.run = Some(info.run.clone());
        let (sender, begun) = oneshot::channel();
        let engine = Arc::clone(self);
        // A task of its own: it follows the run to its outcome.
        self.tasks.spawn(async move {
            let run = engine.begin(info, StandingAnswers::default(), &settings).await;
            drop(turn);
            // The caller may have stopped waiting.
            let _ = sender.send(Arc::clone(&run));
            let answer = host.call("run", &start.params);
            let answer = engine.until_abandoned(&run, settings.grace, answer).await;
            engine.finish(&run, answer.map(|outcome| outcome.get().to_owned())).await;
            drop(slot);
        });
        begun.await.map_err(|_| ApiError::unavailable())
    }

    /// Stores a new run, so that clients can find it.
    async fn begin(
        &self,
        info: ServedRun,
        standing: StandingAnswers,
        settings: &RunSettings,
    ) -> Arc<OngoingRun> {
        let log = self.store.create(info.clone()).await;
        let run = OngoingRun::new(info, log, standing, settings.answer_time, settings.max_cost);
        self.live().insert(run.id.clone(), Arc::clone(&run));
        // A client that receives the id finds the run, also after a restart.
        self.store.flush().await;
        run
    }

    /// Waits for the end of a run. Cancels it if it was cancelled before, or if it was started to end with its clients.
    async fn until_abandoned<T>(
        &self,
        run: &OngoingRun,
        grace: Duration,
        ending: impl Future<Output = T>,
    ) -> T {
        let mut ending = std::pin::pin!(ending);
        let ends_alone = run.info().on_disconnect == OnDisconnect::Cancel;
        tokio::select! {
            // In this order: the host gets the request before the cancellation of its run.
            biased;
            answer = &mut ending => return answer,
            // The host may not have known the run when it was cancelled.
            () = run.cancelled.cancelled() => {}
            () = run.abandoned(grace), if ends_alone => {}
        }
        self.cancel(run, None).await;
        ending.await
    }

    /// Stores the outcome of a run.
    async fn finish(&self, run: &Arc<OngoingRun>, answer: Result<String, RpcError>) {
        run.end_requests(&self.store).await;
        let text = match answer {
            Ok(outcome) if !self.is_stopping() => outcome,
            Ok(outcome) => {
                let mut outcome: Value = serde_json::from_str(&outcome).unwrap_or_default();
                if outcome["verdict"] == "cancelled" {
                    ending::interrupt(&mut outcome, &run.info());
                }
                outcome.to_string()
            }
            Err(_) if self.is_stopping() => json!(ending::interrupted(&run.info())).to_string(),
            Err(error) => ending::refused(&run.info(), &error).to_string(),
        };
        let text = crate::ongoing_run::one_line(&text);
        let outcome: Value = serde_json::from_str(&text).unwrap_or_default();
        let info = run.change(|info| take_outcome(info, &outcome));
        let event = StoredEvent {
            kind: "outcome".into(),
            data: run.outcome_event(&text),
            end: Some(Box::new(RunEnd { outcome: text, run: info })),
        };
        self.store.append(&run.log, &run.id, event).await;
        self.store.flush().await;
        self.live().remove(&run.id);
    }

    /// Gives an outcome to a run that a killed server left behind.
    async fn end_interrupted(&self, mut run: ServedRun) {
        run.cost_usd = self.last_cost(&run.run).await.or(run.cost_usd);
        let outcome = json!(ending::interrupted(&run));
        take_outcome(&mut run, &outcome);
        let log = Arc::new(RunLog::new(run.first_event, run.last_event, false, 0));
        let text = outcome.to_string();
        let data = outcome_event(run.last_event + 1, 0, &text);
        let (id, end) = (run.run.clone(), Some(Box::new(RunEnd { outcome: text, run })));
        self.store.append(&log, &id, StoredEvent { kind: "outcome".into(), data, end }).await;
    }

    /// Returns what a run had cost at its last report, so that it counts for the budget of its token.
    async fn last_cost(&self, run: &str) -> Option<f64> {
        let usage = self.store.last_usage(run).await.ok()??;
        serde_json::from_str::<Value>(&usage).ok()?.get("cost_usd")?.as_f64()
    }

    /// Takes what the host reports about a run.
    async fn take(&self, report: HostReport) {
        match report {
            HostReport::Event { run, head, event } => {
                let run = self.find(&run);
                if let Some(run) = run {
                    run.take_event(&self.store, &self.prices, head, event.get()).await;
                }
            }
            HostReport::Permission { id, question } => {
                let run = self.find(&question.run);
                let run = run.or_else(|| self.conversation(&question.run)?.active());
                // Without a run, the host denies the request when its time is over.
                let Some(run) = run else { return };
                if let Some(answered) = run.ask(&self.store, id, question).await
                    && let Some(host) = self.host.get()
                {
                    host.answer(&answered.id, &answered.answer);
                }
            }
        }
    }

    /// Answers a permission request.
    pub(crate) async fn answer(
        &self,
        run: &OngoingRun,
        id: &str,
        reply: PermissionReply,
        by: &str,
    ) -> Result<String, ApiError> {
        let answered = run.reply(&self.store, id, reply, by).await?;
        self.host()?.answer(&answered.id, &answered.answer);
        Ok(answered.answer.decision)
    }

    /// Cancels a run. Its outcome still follows.
    pub(crate) async fn cancel(&self, run: &OngoingRun, signal: Option<i32>) -> Cancelled {
        let mut request = Cancel::default();
        (request.run, request.signal) = (run.id.clone(), signal);
        // A run that the host does not know yet, or no longer, needs no other signal.
        if let Some(host) = self.host.get() {
            let _ = host.ask::<Cancelled>("cancel", &request).await;
        }
        // Afterwards, because the host keeps the first signal, and what follows the run sends another one.
        run.cancelled.cancel();
        let mut cancelled = Cancelled::default();
        cancelled.found = true;
        cancelled
    }

    /// Returns a run in progress.
    pub(crate) fn find(&self, run: &str) -> Option<Arc<OngoingRun>> {
        self.live().get(run).cloned()
    }

    /// Returns the runs in progress.
    pub(crate) fn all(&self) -> Vec<Arc<OngoingRun>> {
        self.live().values().cloned().collect()
    }

    /// Returns the runs in progress of a token.
    fn of_token(&self, name: &str) -> impl Iterator<Item = Arc<OngoingRun>> {
        self.all().into_iter().filter(move |run| run.info().started_by == name)
    }

    /// Returns a conversation.
    pub(crate) fn conversation(&self, id: &str) -> Option<Arc<ConversationState>> {
        self.conversations().get(id).cloned()
    }

    /// Returns the conversations.
    pub(crate) fn conversations(&self) -> MutexGuard<'_, HashMap<String, Arc<ConversationState>>> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Ends all runs and stores their outcomes.
    ///
    /// # Errors
    /// Returns the reason if the store cannot write in time, for example because the disk is full.
    pub(crate) async fn stop(&self) -> Result<(), String> {
        self.stopping.cancel();
        for run in self.all() {
            run.cancelled.cancel();
        }
        let ended = async {
            if let Some(host) = self.host.get() {
                host.close().await;
            }
            self.tasks.close();
            self.tasks.wait().await;
        };
        let has_ended = tokio::time::timeout(self.stop_time, ended).await.is_ok();
        let storing = async {
            for run in self.all().iter().filter(|_| !has_ended) {
                self.finish(run, Err(RpcError::new(-32800, "the server stopped"))).await;
            }
            self.store.flush().await;
        };
        let stored = tokio::time::timeout(self.stop_time, storing).await;
        stored.map_err(|_| self.store.failure().unwrap_or_else(|| "the writer does not answer".to_owned()))
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Arc<OngoingRun>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what the runs of a request have in common.
fn settings_of(start: &StartRun, token: &AccessToken) -> RunSettings {
    let keys = &start.params.keys;
    let word = |key: &str| keys.get(key).and_then(Value::as_str).map(str::to_owned);
    let about = ServedRun {
        agent: word("agent"),
        model: word("model"),
        name: word("name"),
        working_dir: word("working_dir"),
        prompt: word("prompt").unwrap_or_default().chars().take(PROMPT_SHOWN).collect(),
        permission_mode: word("permission_mode"),
        on_disconnect: start.on_disconnect,
        started_by: token.name.clone(),
        ..ServedRun::default()
    };
    let answer_time = start.params.answer_timeout_ms.unwrap_or(120_000).min(MAX_ANSWER_TIME_MS);
    RunSettings {
        about,
        answer_time: Duration::from_millis(answer_time),
        grace: start.disconnect_grace_ms.map_or(GRACE, Duration::from_millis),
        max_cost: max_cost(keys),
    }
}

/// Returns the most that a run with these keys may cost.
pub(crate) fn max_cost(keys: &Map<String, Value>) -> Option<f64> {
    let amount = keys.get("max_cost")?;
    amount.as_f64().or_else(|| amount.as_str()?.trim().parse().ok()).filter(|cost| cost.is_finite())
}

/// Returns a run before it starts.
fn new_run(settings: &RunSettings, token: &AccessToken) -> ServedRun {
    let (run, started_at_ms, started_by) = (new_id(), now_ms(), token.name.clone());
    ServedRun { run, started_at_ms, started_by, ..settings.about.clone() }
}

/// Returns a new id of a run or conversation.
fn new_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn take_outcome(info: &mut ServedRun, outcome: &Value) {
    let word = |key: &str| outcome.get(key).and_then(Value::as_str).map(str::to_owned);
    info.state = ServedRunState::Ended;
    info.ended_at_ms = Some(now_ms());
    info.verdict = word("verdict");
    info.cost_usd = outcome.get("cost_usd").and_then(Value::as_f64).or(info.cost_usd);
    info.session_id = word("session_id").or(info.session_id.take());
    info.model = word("model").or(info.model.take());
    info.agent = word("agent").filter(|agent| !agent.is_empty()).or(info.agent.take());
}
