//! Answers the requests of MCP clients.

use crate::{
    client::McpClient,
    report,
    run_table::{AgentRun, RunPhase},
    sessions,
    state::ServerState,
    tools::{self, CancelArgs, ListRunsArgs, ResultArgs, SearchSessionsArgs, StartRunArgs, WaitArgs},
    wait::{AskBy, ReportTo, Waited, elicitation, is_accepted, wait},
};
use hyper::http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities,
        CreateTaskResult, GetTaskParams, GetTaskResult, Implementation, InputRequest, InputRequiredResult,
        ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
        UpdateTaskParams,
    },
    service::RequestContext,
    task_manager::{TaskContext, TaskExit, TaskOptions},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

/// What models read about the server.
const INSTRUCTIONS: &str = "Starts other coding agents. Use agent_run for a short task. For a long one, or several at \
     once, use agent_start and then agent_wait until each run is over. An agent sees only its prompt and its \
     directory.";
/// How long `agent_cancel` waits for the end of the run.
const CANCEL_TIME: Duration = Duration::from_secs(15);
/// How long a search may take.
const SEARCH_TIME: Duration = Duration::from_secs(40);
/// How long a task is kept after the longest time that its run can take.
const KEPT_TASK: Duration = Duration::from_secs(600);
/// How often clients should ask for the state of a task.
const POLL_TASK_MS: u64 = 2000;

/// Where the client of a request comes from.
#[derive(Clone)]
pub(crate) enum ClientSource {
    /// All requests come from one client.
    One(Arc<McpClient>),
    /// The HTTP request has it.
    OfRequest,
}

/// The handler of one connection.
#[derive(Clone)]
pub(crate) struct AgentToolHandler {
    pub(crate) state: Arc<ServerState>,
    pub(crate) client: ClientSource,
}

type Context = RequestContext<RoleServer>;

/// Stops a run whose id the client does not know, if the call that started it is dropped.
struct StopUnlessKnown(Option<Arc<AgentRun>>);

impl Drop for StopUnlessKnown {
    fn drop(&mut self) {
        if let Some(run) = &self.0 {
            run.stop();
        }
    }
}

impl ServerHandler for AgentToolHandler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
            .with_server_info(Implementation::new("agentline", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all(self.state.options.max_wait.as_secs())))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let client = self.client(&context)?;
        let args = params.arguments.clone().unwrap_or_default();
        match &*params.name {
            "agent_run" => self.run(&client, args, &params, &context).await,
            "agent_start" => self.start(&client, read(args)?, &context).await.map(CallToolResponse::from),
            "agent_wait" => self.wait(&client, read(args)?, &params, &context).await,
            "agent_result" => {
                let args: ResultArgs = read(args)?;
                let result = find(&client, &args.run).map(|run| report::run(&run, args.offset));
                Ok(either(result).into())
            }
            "agent_cancel" => {
                let args: CancelArgs = read(args)?;
                Ok(cancel(&client, &args.run).await.into())
            }
            "agent_list" => {
                let _: ListRunsArgs = read(args)?;
                Ok(self.list(&client).into())
            }
            "sessions_search" => Ok(self.search(&client, read(args)?).await.into()),
            name => Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None)),
        }
    }

    async fn get_task(&self, params: GetTaskParams, context: Context) -> Result<GetTaskResult, ErrorData> {
        self.client(&context)?.tasks.get_task(&params.task_id).map(GetTaskResult::new)
    }

    async fn update_task(&self, params: UpdateTaskParams, context: Context) -> Result<(), ErrorData> {
        self.client(&context)?.tasks.update_task(&params.task_id, params.input_responses)
    }

    async fn cancel_task(&self, params: CancelTaskParams, context: Context) -> Result<(), ErrorData> {
        self.client(&context)?.tasks.cancel_task(&params.task_id)
    }
}

impl AgentToolHandler {
    fn client(&self, context: &Context) -> Result<Arc<McpClient>, ErrorData> {
        let found = match &self.client {
            ClientSource::One(client) => Some(Arc::clone(client)),
            ClientSource::OfRequest => context
                .extensions
                .get::<Parts>()
                .and_then(|parts| parts.extensions.get::<Arc<McpClient>>())
                .cloned(),
        };
        found.ok_or_else(|| ErrorData::internal_error("the request belongs to no client", None))
    }

    async fn run(
        &self,
        client: &Arc<McpClient>,
        args: Map<String, Value>,
        params: &CallToolRequestParams,
        context: &Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let until = self.until(None);
        // The client repeats the call with its answers to the questions of a run in progress.
        let run = match &params.request_state {
            Some(run) => {
                take_answers(client, run, params);
                find(client, run)
            }
            None => self.state.start(client, read(args)?, can_ask(context)).await,
        };
        let run = match run {
            Ok(run) => run,
            Err(reason) => return Ok(report::refused(&reason).into()),
        };
        if context.client_capabilities().is_some_and(|client| client.supports_tasks()) {
            return Ok(self.task(client, run).into());
        }
        let mut guard = StopUnlessKnown(Some(Arc::clone(&run)));
        let waited = wait(&run, until, ask_by(context), report_to(context), &context.ct).await;
        if !matches!(waited, Waited::Cancelled) {
            guard.0 = None;
        }
        answer(&run, waited)
    }

    async fn start(
        &self,
        client: &McpClient,
        args: StartRunArgs,
        context: &Context,
    ) -> Result<CallToolResult, ErrorData> {
        Ok(match self.state.start(client, args, can_ask(context)).await {
            Ok(run) => report::run(&run, 0),
            Err(reason) => report::refused(&reason),
        })
    }

    async fn wait(
        &self,
        client: &McpClient,
        args: WaitArgs,
        params: &CallToolRequestParams,
        context: &Context,
    ) -> Result<CallToolResponse, ErrorData> {
        take_answers(client, &args.run, params);
        let until = self.until(args.timeout_s);
        let run = match find(client, &args.run) {
            Ok(run) => run,
            Err(reason) => return Ok(report::refused(&reason).into()),
        };
        let waited = wait(&run, until, ask_by(context), report_to(context), &context.ct).await;
        answer(&run, waited)
    }

    /// Makes a task of the run, which ends with it.
    fn task(&self, client: &Arc<McpClient>, run: Arc<AgentRun>) -> CreateTaskResult {
        let tasks = client.tasks.clone();
        let kept = u64::try_from(KEPT_TASK.as_millis()).unwrap_or(u64::MAX);
        let time = u64::try_from(run.timeout.as_millis()).unwrap_or(u64::MAX);
        let options =
            TaskOptions::new().with_ttl_ms(time.saturating_add(kept)).with_poll_interval_ms(POLL_TASK_MS);
        let task = client.tasks.spawn(options, |context| {
            Box::pin(async move {
                let never = CancellationToken::new();
                let until = Instant::now() + run.timeout + KEPT_TASK;
                let by = AskBy::Task(context.clone(), tasks);
                let waited = tokio::select! {
                    waited = wait(&run, until, by, ReportTo::Task(context.clone()), &never) => waited,
                    () = context.cancelled() => Waited::Cancelled,
                };
                end_task(&run, &context, waited).await
            })
        });
        CreateTaskResult::new(task)
    }

    fn list(&self, client: &McpClient) -> CallToolResult {
        let agents = self.state.agents();
        let runs: Vec<Value> = client.all().iter().map(|run| report::row(run).into()).collect();
        let mut text = format!("agents: {}\n", agents.join(", "));
        for run in client.all() {
            let row = report::row(&run);
            let word = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            text.push_str(&format!("{}: {} {} ({})\n", run.id, run.agent, word("status"), run.title));
        }
        let budget = &self.state.budget;
        let structured = json!({
            "agents": agents,
            "runs": runs,
            "directories": client.scope.roots.iter().map(|root| root.to_string_lossy()).collect::<Vec<_>>(),
            "depth": client.scope.depth,
            "max_depth": self.state.options.max_depth,
            "spent_usd": budget.spent(),
            "remaining_usd": budget.remaining(),
        });
        report::result(text, structured, false)
    }

    async fn search(&self, client: &McpClient, args: SearchSessionsArgs) -> CallToolResult {
        let (agentline, scope) = (self.state.agentline.clone(), client.scope.clone());
        let search = spawn_blocking(move || sessions::search(&agentline, &scope, &args));
        either(match timeout(SEARCH_TIME.min(self.state.options.max_wait), search).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Err("internal error: the search failed".into()),
            Err(_) => Err("the search took too long; search for rarer words or one agent".into()),
        })
    }

    fn until(&self, seconds: Option<f64>) -> Instant {
        let most = self.state.options.max_wait;
        let wanted = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        Instant::now() + wanted.unwrap_or(most).min(most)
    }
}

/// Reads the arguments of a tool.
fn read<A: DeserializeOwned>(args: Map<String, Value>) -> Result<A, ErrorData> {
    serde_json::from_value(args.into())
        .map_err(|error| ErrorData::invalid_params(format!("invalid arguments: {error}"), None))
}

fn find(client: &McpClient, id: &str) -> Result<Arc<AgentRun>, String> {
    client.find(id).ok_or_else(|| {
        let known: Vec<String> = client.all().iter().map(|run| run.id.clone()).collect();
        match known.is_empty() {
            true => format!("there is no run `{id}`; agent_start starts one"),
            false => format!("there is no run `{id}`; the runs of this client are {}", known.join(", ")),
        }
    })
}

fn either(result: Result<CallToolResult, String>) -> CallToolResult {
    result.unwrap_or_else(|reason| report::refused(&reason))
}

async fn cancel(client: &McpClient, id: &str) -> CallToolResult {
    let run = match find(client, id) {
        Ok(run) => run,
        Err(reason) => return report::refused(&reason),
    };
    run.stop();
    // The answer then has the final state of the run.
    let _ = timeout(CANCEL_TIME, run.ended()).await;
    let mut result = report::run(&run, 0);
    // The cancellation was asked for.
    result.is_error = Some(false);
    result
}

/// Passes the answers that a client sent with a repeated call to the run.
fn take_answers(client: &McpClient, run: &str, params: &CallToolRequestParams) {
    let Some(board) = client.find(run).and_then(|run| run.board.clone()) else { return };
    for (id, answer) in params.input_responses.iter().flatten() {
        if let Some(question) = board.find(id) {
            question.answer(is_accepted(answer));
        }
    }
}

/// Returns whether the client of a request can be asked for permissions.
fn can_ask(context: &Context) -> bool {
    context.client_capabilities().is_some_and(|client| asks_with_forms(&client))
}

/// Clients that declare no mode know forms, the only mode of earlier protocols.
fn asks_with_forms(client: &ClientCapabilities) -> bool {
    client.elicitation.as_ref().is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

fn ask_by(context: &Context) -> AskBy {
    let is_new = context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    match (can_ask(context), is_new) {
        (false, _) => AskBy::Nobody,
        (true, true) => AskBy::Result,
        (true, false) => AskBy::Peer(context.peer.clone()),
    }
}

fn report_to(context: &Context) -> ReportTo {
    match context.meta.get_progress_token() {
        Some(token) => ReportTo::Peer(context.peer.clone(), token),
        None => ReportTo::Nobody,
    }
}

fn answer(run: &AgentRun, waited: Waited) -> Result<CallToolResponse, ErrorData> {
    match waited {
        Waited::Over | Waited::Running => Ok(report::run(run, 0).into()),
        Waited::Input(questions) => {
            let input = |question: &Arc<crate::question::RunQuestion>| {
                (question.id.clone(), InputRequest::Elicitation(elicitation(question)))
            };
            let requests = questions.iter().map(input).collect();
            Ok(InputRequiredResult::new(Some(requests), Some(run.id.clone())).into())
        }
        Waited::Cancelled => Err(ErrorData::internal_error("the call was cancelled", None)),
    }
}

async fn end_task(run: &AgentRun, context: &TaskContext, waited: Waited) -> Result<CallToolResult, TaskExit> {
    if !matches!(waited, Waited::Over) {
        run.stop();
        run.ended().await;
    }
    let is_cancelled = context.is_cancel_requested();
    match &run.view().borrow().phase {
        RunPhase::Over(_) if !is_cancelled => Ok(report::run(run, 0)),
        _ if is_cancelled => Err(TaskExit::Cancelled),
        _ => Ok(report::run(run, 0)),
    }
}
