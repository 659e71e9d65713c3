//! Runs a prompt of a host: resolves its keys, waits for a slot, and reports its events.

use super::{
    messages::{
        CacheSettings, CheckAnswer, CheckQuestion, EventFilter, PermissionAnswer, PermissionQuestion,
        RpcError, RunLaunched, RunLine, RunParams, RunRetry, ToolAnswer, ToolInvocation, ToolSpec,
    },
    params::{field_names, invalid_value, write},
    peer::HostPeer,
    run_stop::RunStop,
    serve::Host,
};
use crate::admission::{AdmissionPermit, AttemptResult};
use crate::blocking_work::on_blocking_thread;
use crate::{
    agentline::Agentline,
    api::{
        LookedUpRun, look_up,
        retry::{self, AttemptGate, Retries},
    },
    detect::HostEnv,
    fs::private_dir::{self, ATTACHMENTS, PrivateDir},
    pool::Pool,
    resolve::stopped_before,
    run::{
        Launched, Run,
        completion::{CheckResult, CompletionCheck},
        messages::{Completer, RunMessages},
        options::RunOptions,
        permission_handler::{Permission, PermissionHandler},
    },
    schema::Schema,
    settings::Settings,
    tools::{StopRun, Tool, ToolError, ToolHost, ToolOutput},
};
use agentline_core::{
    ClaudeLines, Config, Event, Failure, FailureKind, Layer, Message, Notice, Outcome, PermissionMode,
    Problem, Problems, Record, RunInfo, RunRequest, Signal, Verdict, View, config, config::UnknownKeys,
};
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// The default time limit for responses from the host.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// The maximum length of an attachment's name in bytes. Most file systems allow 255, and a number is put before the
/// name.
const LONGEST_NAME: usize = 200;

/// A run of a host with its settings resolved.
pub(super) struct HostRun {
    pub(super) agentline: Agentline,
    pub(super) request: RunRequest,
    pub(super) options: RunOptions,
    /// Warnings about the keys of the run.
    pub(super) notices: Vec<Notice>,
    /// Attachments that were sent in the request. They are removed with the run.
    pub(super) sent: Option<PrivateDir>,
}

/// The reports that the host receives while a run is in progress.
pub(super) struct Reporting {
    pub(super) events: EventFilter,
    /// Whether text may be merged while the host reads slowly.
    pub(super) merge: bool,
    /// Whether to report the command.
    pub(super) launch: bool,
    /// The permission mode of the run, if its lines in Claude's format are reported.
    pub(super) lines: Option<PermissionMode>,
}

/// The response to `run` and `session/prompt`: the outcome, with additional fields.
#[derive(Serialize)]
struct RunResponse<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [Message<'static>]>,
}

impl Host {
    /// Resolves the keys of a run from the host's files and environment, its defaults, and the run itself.
    pub(super) fn resolve_keys(
        &self,
        keys: Map<String, Value>,
    ) -> Result<(Agentline, RunRequest, Vec<Notice>), RpcError> {
        let agentline = self.agentline();
        let host_env = agentline.host_env();
        let variables = host_env.env.iter().map(|(name, value)| (name.into(), value.into()));
        let mut above = Vec::new();
        for (name, table) in [("initialize", self.defaults()), ("run", keys)] {
            above.push(layer(name, table, host_env)?);
        }
        let settings = Settings::find(&host_env.cwd, None, Some(&host_env.home), variables, above);
        let mut config = settings.build().map_err(|problems| RpcError::usage(&problems.0))?;
        let notices = std::mem::take(&mut config.notices);
        let (agentline, request) = agentline.clone().with_config(&config);
        Ok((agentline, request, notices))
    }

    /// Checks the keys that apply to every run, so that the host receives an error before its first run.
    pub(super) fn check_defaults(&self) -> Result<(), RpcError> {
        let layer = layer("initialize", self.defaults(), self.agentline().host_env())?;
        Config::build(&[layer]).map_err(|problems| RpcError::usage(&problems.0)).map(drop)
    }

    /// Reads a request whose keys the client has resolved.
    pub(super) fn complete_request(
        &self,
        request: Value,
    ) -> Result<(Agentline, RunRequest, Vec<Notice>), RpcError> {
        self.only_on_socket("request")?;
        let mut request: RunRequest = serde_json::from_value(request)
            .map_err(|error| RpcError::usage(&[invalid_value("request", &error)]))?;
        let notices = std::mem::take(&mut request.notices);
        Ok((self.agentline(), request, notices))
    }

    /// Resolves the parameters of a run.
    pub(super) fn host_run(&self, run: &Arc<str>, mut params: RunParams) -> Result<HostRun, RpcError> {
        let sent = files_sent(&mut params.keys)?;
        let foreign = remove_foreign(&mut params.keys, &params.ignore_unknown);
        let mut schema = None;
        match params.output_schema.take() {
            Some(Value::String(path)) => drop(params.keys.insert("output_schema".into(), path.into())),
            Some(Value::Null) | None => {}
            Some(document) => schema = Some(Schema::from_value(document).map_err(|p| RpcError::usage(&p.0))?),
        }
        let (agentline, request, mut notices) = match params.request.take() {
            Some(request) => self.complete_request(request)?,
            None => {
                let (agentline, mut request, notices) =
                    self.resolve_keys(std::mem::take(&mut params.keys))?;
                request.temporary_workspace = params.temporary_workspace;
                (agentline, request, notices)
            }
        };
        notices.extend(foreign);
        let mut options = RunOptions { schema, ..RunOptions::new() };
        let time = params.answer_timeout_ms.map_or(ANSWER_TIME, Duration::from_millis);
        if !params.tools.is_empty() {
            options.tools = Some(host_tools(&self.peer, run, &params)?);
        }
        if params.ask_permission {
            options.permission_handler = Some(permission_handler(self.peer.clone(), Arc::clone(run), time));
        }
        if params.check {
            options.until = Some(checker(self.peer.clone(), Arc::clone(run), time));
        }
        Ok(HostRun { agentline, request, options, notices, sent })
    }

    /// Checks the parameters of a run for its agent; the prompt may be missing. Returns the warnings. Starts nothing.
    pub(super) fn validate(&self, mut params: RunParams) -> Result<Vec<Notice>, RpcError> {
        params.keys.entry("prompt").or_insert_with(|| "ready".into());
        let mut host_run = self.host_run(&Arc::from("validate"), params)?;
        host_run.request.needs_live |= host_run.options.needs_live();
        host_run.agentline.inner().plan(host_run.request).map_err(|problems| RpcError::usage(&problems.0))?;
        Ok(host_run.notices)
    }

    /// Runs a prompt to its outcome.
    pub(super) async fn run(
        self: &Arc<Self>,
        run: &Arc<str>,
        params: RunParams,
        stop: &RunStop,
    ) -> Result<Box<RawValue>, RpcError> {
        let mut reporting = Reporting {
            events: params.events.clone(),
            merge: params.merge_events.unwrap_or(true),
            launch: params.report_launch,
            lines: None,
        };
        let (with_messages, with_lines) = (params.messages, params.lines);
        let view = params.view.map_or(View::Claude, View::from);
        let warm = params.warm.unwrap_or(true);
        let max_retries = params.max_retries;
        let wait = params.max_retry_wait_s.map_or_else(|| self.retry_wait(), Duration::from_secs);
        let host_run = self.host_run(run, params)?;
        reporting.lines = with_lines.then_some(host_run.request.permission_mode);
        let completer = || {
            with_messages.then(|| Completer::new(&host_run.agentline, &host_run.request.prompt).view(view))
        };
        let (request, options) = (host_run.request.clone(), host_run.options.clone());
        let pool = warm.then(|| self.pool());
        let started = match look_up(&host_run.agentline, pool.as_ref(), request, options).await? {
            // A cached run needs no model request, so it does not wait for a slot.
            LookedUpRun::Over(known) => Ok(*known),
            LookedUpRun::New(new) => {
                // The key `retries` replaces the host's own default.
                let default = || host_run.request.retries.map_or_else(|| self.retries(), |_| 0);
                let refusals = max_retries.unwrap_or_else(default);
                let retries = Retries::of(&host_run.request).refusals(refusals, wait);
                let gate = HostGate { host: Arc::clone(self) };
                tokio::select! {
                    permit = gate.admit() => Ok(retry::start(new, retries, gate, permit).await?),
                    signal = stop.cancelled() => Err(stopped_before(&info(run, &host_run.request), signal)),
                }
            }
        };
        let (outcome, messages) = match started {
            Ok(started) => self.follow(run, &reporting, started, completer(), stop).await,
            Err(outcome) => (outcome, None),
        };
        drop(host_run.sent);
        run_response(outcome, messages.as_ref(), &host_run.notices)
    }

    /// Waits for the next event of a run and, unless its events are merged, for the host.
    async fn next_record(&self, started: &mut Run, reporting: &Reporting) -> Option<Record> {
        if !reporting.merge {
            self.peer.outbox.wait_for_room().await;
        }
        started.next().await
    }

    /// Reports the events of a run, and cancels it if the host requests it. Returns the outcome, with the messages if a
    /// completer is given.
    pub(super) async fn follow(
        &self,
        run: &Arc<str>,
        reporting: &Reporting,
        mut started: Run,
        mut completer: Option<Completer>,
        stop: &RunStop,
    ) -> (Outcome, Option<RunMessages>) {
        let mut transcript = completer.as_mut().map(|completer| {
            completer.started(&started);
            completer.transcript()
        });
        if reporting.launch
            && let Some(Launched { command, withheld }) = started.launched().cloned()
        {
            let (run, run_id) = (run.to_string(), started.id().to_owned());
            self.peer.outbox.notify("run/launched", &RunLaunched { run, run_id, command, withheld });
        }
        let mut lines = reporting.lines.map(ClaudeLines::new);
        let canceller = started.canceller();
        let mut stopping = false;
        let mut last = None;
        loop {
            let record = tokio::select! {
                record = self.next_record(&mut started, reporting) => record,
                signal = stop.cancelled(), if !stopping => {
                    stopping = true;
                    canceller.cancel_with(signal);
                    continue;
                }
            };
            let Some(record) = record else { break };
            if let Some(transcript) = &mut transcript {
                transcript.take(&record);
            }
            let mut printed = Vec::new();
            if let Some(lines) = &mut lines {
                lines.take(&record, |line| printed.push(RunLine { run: run.to_string(), line }));
            }
            if let Event::Retry { attempt, wait_ms, reason, model } = &record.event {
                let (reason, model) = (reason.clone(), model.clone());
                let retry =
                    RunRetry { run: run.to_string(), attempt: *attempt, wait_ms: *wait_ms, reason, model };
                self.peer.outbox.notify("run/retry", &retry);
            }
            if let Event::Outcome { outcome } = record.event {
                // The outcome is the response to the request.
                last = Some(*outcome);
            } else if is_selected(&reporting.events, &record) {
                self.peer.outbox.event(run, record, reporting.merge);
            }
            printed.iter().for_each(|line| self.peer.outbox.notify("run/line", line));
        }
        // A run always ends with an outcome. If it did not, the host would still need a response.
        let mut outcome =
            last.unwrap_or_else(|| stopped_before(&info(run, &RunRequest::default()), Signal::Terminate));
        if let Some(hint) = outcome.error.as_mut().and_then(|error| error.hint.as_mut()) {
            *hint = self.hint(hint);
        }
        let (Some(completer), Some(transcript)) = (completer, transcript) else { return (outcome, None) };
        on_blocking_thread(move || {
            let messages = completer.complete(transcript, &outcome);
            (outcome, Some(messages))
        })
        .await
    }
}

/// Returns the outcome in the form that the host receives.
pub(super) fn run_response(
    mut outcome: Outcome,
    messages: Option<&RunMessages>,
    notices: &[Notice],
) -> Result<Box<RawValue>, RpcError> {
    let notices = notices.iter().chain(messages.and_then(|messages| messages.warning.as_ref()));
    outcome.warnings.extend(notices.cloned());
    let messages = messages.map(|messages| &*messages.messages);
    write(&RunResponse { outcome: &outcome, messages })
}

fn info(run: &str, request: &RunRequest) -> RunInfo {
    let mut info = RunInfo::of_request(request);
    run.clone_into(&mut info.run_id);
    info
}

fn is_selected(events: &EventFilter, record: &Record) -> bool {
    match events {
        EventFilter::All(all) => *all,
        EventFilter::Types(types) => types.iter().any(|event_type| event_type == record.event.type_word()),
    }
}

/// Limits how many attempts of a host's runs are in progress.
struct HostGate {
    host: Arc<Host>,
}

impl AttemptGate for HostGate {
    type Permit = AdmissionPermit;

    const REPORTS_ALL: bool = true;

    async fn admit(&self) -> AdmissionPermit {
        self.host.admission.acquire().await
    }

    fn ended(&self, outcome: &Outcome, retries: u32) -> Option<Duration> {
        let result = attempt_result(outcome);
        let wait = self.host.admission.record_result(result, retries + 1, retry_after(outcome));
        (result == AttemptResult::Refused).then_some(wait)
    }

    fn pool(&self) -> Option<Pool> {
        Some(self.host.pool())
    }
}

/// Returns how the model's service responded to an attempt.
fn attempt_result(outcome: &Outcome) -> AttemptResult {
    match outcome.verdict {
        Verdict::RateLimited => AttemptResult::Refused,
        Verdict::Done | Verdict::DoneWithDenials | Verdict::Empty => AttemptResult::Answered,
        _ => AttemptResult::Unknown,
    }
}

/// Returns how long the service asked to wait, if it did.
fn retry_after(outcome: &Outcome) -> Option<Duration> {
    outcome.error.as_ref()?.retry_after_ms.map(Duration::from_millis)
}

/// Removes the keys that resemble no known key, if they are among these names. Returns a warning for each.
fn remove_foreign(keys: &mut Map<String, Value>, names: &[String]) -> Vec<Notice> {
    let mut notices = Vec::new();
    for name in names {
        let Some(value) = keys.get(name) else { continue };
        let alone = Layer::map("run", Map::from_iter([(name.clone(), value.clone())]));
        let is_unknown = |notice: &Notice| notice.code == "unknown_key" && config::find(name).is_none();
        if let Ok(config) = Config::build(&[alone.unknown_keys(UnknownKeys::RefuseSimilar)])
            && config.notices.iter().any(is_unknown)
        {
            keys.remove(name);
            notices.extend(config.notices);
        }
    }
    notices
}

/// Creates the layer of keys that a program sent. An unknown key is an error: unlike a file, the program can react to it.
fn layer(name: &str, mut table: Map<String, Value>, host_env: &HostEnv) -> Result<Layer, RpcError> {
    flatten_cache(&mut table)?;
    let layer = Layer::map(name, table).base(host_env.cwd.clone()).home(host_env.home.clone());
    Ok(layer.unknown_keys(UnknownKeys::Refuse).other_names(field_names::<RunParams>))
}

/// Replaces a `cache` object with the keys that it stands for.
fn flatten_cache(keys: &mut Map<String, Value>) -> Result<(), RpcError> {
    let Some(table) = keys.get("cache").filter(|value| value.is_object()).cloned() else { return Ok(()) };
    let settings: CacheSettings = serde_json::from_value(table).map_err(|error| {
        let problem = invalid_value("cache", &error);
        RpcError::usage(&[problem.hint("use true, false, or {\"dir\": \"…\", \"max_age_s\": 3600}")])
    })?;
    keys.insert("cache".into(), settings.on.unwrap_or(true).into());
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            keys.insert(key.to_owned(), value);
        }
    };
    put("cache_path", settings.dir.map(Value::from));
    put("cache_max_age", settings.max_age_s.map(Value::from));
    put("cache_impure", settings.impure.map(Value::from));
    put("cache_max_mb", settings.max_mb.map(Value::from));
    Ok(())
}

/// Writes attachments whose content is in the request to files.
fn files_sent(keys: &mut Map<String, Value>) -> Result<Option<PrivateDir>, RpcError> {
    let Some(list) = keys.get_mut("attachments").and_then(Value::as_array_mut) else { return Ok(None) };
    if list.iter().all(|one| !one.is_object()) {
        return Ok(None);
    }
    let wrong = |i: usize, message: &str| {
        let problem = Problem::new(format!("attachments.{i}"), message.to_owned());
        RpcError::usage(&[problem.hint("use a path, or {\"name\": \"a.png\", \"data\": \"…base64…\"}")])
    };
    let failed = |error: std::io::Error| {
        RpcError::new(RpcError::INTERNAL, format!("cannot store an attachment: {error}"))
    };
    let folder = PrivateDir::create(&std::env::temp_dir(), ATTACHMENTS).map_err(failed)?;
    for (i, one) in list.iter_mut().enumerate() {
        let Some(file) = one.as_object() else { continue };
        let word = |key: &str| file.get(key).and_then(Value::as_str);
        let name = word("name").unwrap_or("attachment");
        let is_name = !name.contains('\0') && name.len() <= LONGEST_NAME;
        let name = PathBuf::from(name)
            .file_name()
            .filter(|_| is_name)
            .map(|name| folder.path().join(format!("{i}-{}", name.to_string_lossy())));
        let name = name.ok_or_else(|| wrong(i, "`name` is not a file name"))?;
        let bytes = match (word("data"), word("text")) {
            (Some(data), _) => {
                use base64::Engine as _;
                let decoded = base64::engine::general_purpose::STANDARD.decode(data);
                decoded.map_err(|_| wrong(i, "`data` is not base64"))?
            }
            (None, Some(text)) => text.as_bytes().to_vec(),
            (None, None) => return Err(wrong(i, "`data` or `text` is required")),
        };
        private_dir::write_new(&name, &bytes).map_err(failed)?;
        *one = Value::String(name.to_string_lossy().into_owned());
    }
    Ok(Some(folder))
}

/// Wraps the host's functions as tools.
fn host_tools(peer: &HostPeer, run: &Arc<str>, params: &RunParams) -> Result<ToolHost, RpcError> {
    let mut tools = ToolHost::new();
    if let Some(name) = &params.tool_server {
        tools = tools.server_name(name);
    }
    for spec in &params.tools {
        tools = tools.tool(host_tool(peer.clone(), Arc::clone(run), spec));
    }
    tools.check().map_err(|Problems(problems)| RpcError::usage(&problems))?;
    Ok(tools)
}

fn host_tool(peer: HostPeer, run: Arc<str>, spec: &ToolSpec) -> Tool {
    let schema = spec.input_schema.clone().unwrap_or_else(|| json!({"type": "object"}));
    let limit = spec.timeout_ms.map(Duration::from_millis);
    let name = spec.name.clone();
    let tool = Tool::new(&spec.name, &spec.description, schema, move |input, call| {
        let (peer, name) = (peer.clone(), name.clone());
        let question = ToolInvocation { run: run.to_string(), call: call.number, tool: name, input };
        async move {
            // The time limit of the tool normally ends before this one.
            let cancel_on_drop = CancelOnDrop { peer: &peer, question: &question };
            let answer = peer.ask::<ToolAnswer>("tool/call", &question, Duration::from_secs(86_400)).await;
            std::mem::forget(cancel_on_drop);
            match answer {
                Ok(answer) => {
                    let mut output = ToolOutput::from_value(answer.output);
                    if answer.stop {
                        return Err(StopRun::new(output.text).into());
                    }
                    output.is_error = answer.is_error;
                    if let Some(note) = answer.note.filter(|note| !note.is_empty()) {
                        output.append(&note);
                    }
                    Ok(output)
                }
                Err(error) => Err(ToolError::from(error.to_string())),
            }
        }
    });
    match limit {
        Some(limit) => tool.timeout(limit),
        None => tool,
    }
}

/// Sends `tool/cancel` when a call is dropped before its response.
struct CancelOnDrop<'a> {
    peer: &'a HostPeer,
    question: &'a ToolInvocation,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.peer.outbox.notify("tool/cancel", self.question);
    }
}

/// Returns a handler that asks the host. No response counts as a denial.
fn permission_handler(peer: HostPeer, run: Arc<str>, time: Duration) -> PermissionHandler {
    PermissionHandler::new(move |ask| {
        let peer = peer.clone();
        let question =
            PermissionQuestion { run: run.to_string(), ask: serde_json::to_value(&ask).unwrap_or_default() };
        async move {
            match peer.ask::<PermissionAnswer>("permission/ask", &question, time).await {
                Ok(answer) if answer.decision == "allow" => Permission::Allow,
                Ok(answer) => Permission::Deny(answer.reason.unwrap_or_else(|| "denied by the host".into())),
                Err(error) => Permission::Deny(error.to_string()),
            }
        }
    })
}

/// Returns a check that asks the host. If the host fails to respond, the run ends with that failure.
fn checker(peer: HostPeer, run: Arc<str>, time: Duration) -> CompletionCheck {
    CompletionCheck::fallible(move |input| {
        let peer = peer.clone();
        let question = CheckQuestion {
            run: run.to_string(),
            text: input.text,
            output: input.value.unwrap_or_default(),
            working_dir: input.workspace.to_string_lossy().into_owned(),
        };
        async move {
            match peer.ask::<CheckAnswer>("check", &question, time).await {
                Ok(CheckAnswer { done: true, .. }) => Ok(CheckResult::Done),
                Ok(answer) => {
                    let missing = answer.message.unwrap_or_else(|| "the task is not complete yet".into());
                    Ok(CheckResult::Continue(missing))
                }
                // The agent cannot fix this error, and every further round would cost tokens.
                Err(error) => Err(Failure::new(FailureKind::Tool, format!("the check failed: {error}"))
                    .hint("respond to `check` with `done` within `answer_timeout_ms`")),
            }
        }
    })
}
