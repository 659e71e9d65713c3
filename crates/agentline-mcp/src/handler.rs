//! Answers the requests of MCP clients.

use crate::{
    arguments::read,
    client::McpClient,
    outputs::ListReport,
    report,
    run_table::{AgentRun, RunPhase},
    sessions,
    state::ServerState,
    tools::{CancelArgs, ListRunsArgs, ResultArgs, SearchSessionsArgs, WaitArgs},
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
use serde_json::{Map, Value};
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

/// One call of a tool.
#[derive(Clone, Copy)]
struct ToolCall<'a> {
    client: &'a Arc<McpClient>,
    /// The schema of the arguments.
    schema: &'a Map<String, Value>,
    params: &'a CallToolRequestParams,
    context: &'a Context,
}

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
        Ok(ListToolsResult::with_all_items(self.state.tools.clone()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let client = self.client(&context)?;
        let args = params.arguments.clone().unwrap_or_default();
        let Some(tool) = self.state.tools.iter().find(|tool| tool.name == params.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", params.name), None));
        };
        let call =
            ToolCall { client: &client, schema: &tool.input_schema, params: &params, context: &context };
        match &*params.name {
            "agent_run" => self.run(call, args).await,
            "agent_start" => self.start(call, args).await.map(CallToolResponse::from),
            "agent_wait" => self.wait(call, args).await,
            "agent_result" => {
                let run =
                    |args: ResultArgs| find(&client, &args.run).map(|run| report::run(&run, args.offset));
                Ok(either(read(call.schema, args).and_then(run)).into())
            }
            "agent_cancel" => Ok(either(cancel(call, args).await).into()),
            "agent_list" => {
                let list = read(call.schema, args).map(|_: ListRunsArgs| self.list(&client));
                Ok(list.unwrap_or_else(report::failed).into())
            }
            _ => Ok(self.search(call, args).await.unwrap_or_else(report::failed).into()),
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

    async fn run(&self, call: ToolCall<'_>, args: Map<String, Value>) -> Result<CallToolResponse, ErrorData> {
        let ToolCall { client, params, context, .. } = call;
        let until = self.until(None);
        // The client repeats the call with its answers to the questions of a run in progress.
        let run = match &params.request_state {
            Some(run) => {
                take_answers(client, run, params);
                find(client, run)
            }
            None => self.new_run(call, args).await,
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

    async fn start(&self, call: ToolCall<'_>, args: Map<String, Value>) -> Result<CallToolResult, ErrorData> {
        let run = self.new_run(call, args).await;
        Ok(either(run.map(|run| report::run(&run, 0))))
    }

    async fn new_run(&self, call: ToolCall<'_>, args: Map<String, Value>) -> Result<Arc<AgentRun>, String> {
        self.state.start(call.client, read(call.schema, args)?, can_ask(call.context)).await
    }

    async fn wait(
        &self,
        call: ToolCall<'_>,
        args: Map<String, Value>,
    ) -> Result<CallToolResponse, ErrorData> {
        let ToolCall { client, params, context, .. } = call;
        let found = read(call.schema, args).and_then(|args: WaitArgs| {
            take_answers(client, &args.run, params);
            Ok((find(client, &args.run)?, self.until(args.timeout_s)))
        });
        let (run, until) = match found {
            Ok(found) => found,
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
        let budget = &client.scope.budget;
        let report = ListReport {
            agents: self.state.agents.clone(),
            runs: client.all().iter().map(|run| report::row(run)).collect(),
            directories: client.scope.roots.iter().map(|root| root.to_string_lossy().into_owned()).collect(),
            depth: client.scope.depth,
            max_depth: self.state.options.max_depth,
            spent_usd: budget.spent(),
            remaining_usd: budget.remaining(),
        };
        let mut text = format!(
            "agents: {}\ndirectories: {}\ndepth: {} of at most {}\n",
            report.agents.join(", "),
            report.directories.join(", "),
            report.depth,
            report.max_depth,
        );
        if let Some(rest) = report.remaining_usd {
            text.push_str(&format!("budget: ${rest:.4} left, ${:.4} spent\n", report.spent_usd));
        }
        for (run, row) in client.all().iter().zip(&report.runs) {
            text.push_str(&format!("{}: {} {} ({})\n", run.id, run.agent, row.status.name(), run.title));
        }
        report::result(text, &report, false)
    }

    async fn search(&self, call: ToolCall<'_>, args: Map<String, Value>) -> Result<CallToolResult, String> {
        let args: SearchSessionsArgs = read(call.schema, args)?;
        let (agentline, scope) = (self.state.agentline.clone(), call.client.scope.clone());
        let search = spawn_blocking(move || sessions::search(&agentline, &scope, &args));
        match timeout(SEARCH_TIME.min(self.state.options.max_wait), search).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Err("internal error: the search failed".into()),
            Err(_) => Err("the search took too long; search for rarer words or one agent".into()),
        }
    }

    fn until(&self, seconds: Option<f64>) -> Instant {
        let most = self.state.options.max_wait;
        let wanted = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        Instant::now() + wanted.unwrap_or(most).min(most)
    }
}

fn find(client: &McpClient, id: &str) -> Result<Arc<AgentRun>, String> {
    client.find(id).ok_or_else(|| {
        let known: Vec<String> = client.all().iter().map(|run| run.id.clone()).collect();
        match known.is_empty() {
            true => format!("`run`: there is no run `{id}`; agent_start starts one"),
            false => {
                format!("`run`: there is no run `{id}`; the runs of this client are {}", known.join(", "))
            }
        }
    })
}

fn either(result: Result<CallToolResult, String>) -> CallToolResult {
    result.unwrap_or_else(|reason| report::refused(&reason))
}

async fn cancel(call: ToolCall<'_>, args: Map<String, Value>) -> Result<CallToolResult, String> {
    let args: CancelArgs = read(call.schema, args)?;
    let run = find(call.client, &args.run)?;
    run.stop();
    // The answer then has the final state of the run.
    let _ = timeout(CANCEL_TIME, run.ended()).await;
    let mut result = report::run(&run, 0);
    // The cancellation was asked for.
    result.is_error = Some(false);
    Ok(result)
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
        (false, _) => AskBy::None,
        (true, true) => AskBy::Result,
        (true, false) => AskBy::Peer(context.peer.clone()),
    }
}

fn report_to(context: &Context) -> ReportTo {
    match context.meta.get_progress_token() {
        Some(token) => ReportTo::Peer(context.peer.clone(), token),
        None => ReportTo::Discard,
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
