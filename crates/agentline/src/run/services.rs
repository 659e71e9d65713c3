//! The services of a run: the tools served to the agent, the handler of its requests, and the checks of its answers.

use crate::{
    agentline::Inner,
    error::Error,
    resolve::{CheckedRun, attachments::read_attachments, spec::ResolvedRun},
    run::{
        active_run::{self, RequestAnswers},
        completion::CompletionCheck,
        options::RunOptions,
        requests::RequestHandler,
        tool_server::ToolServer,
        validate::Validator,
    },
    schema::{STRUCTURED_OUTPUT, Schema},
    tools::{RunningTools, ToolOffer},
};
use agentline_core::{Agent, HostRequest, HostResponse, McpServer, Problems, TurnSpec};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// The maximum time limit of a run, so that computing its end cannot overflow.
const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The services of a run.
pub(crate) struct RunServices {
    pub(crate) answers: RequestAnswers,
    pub(crate) tool_server: Option<ToolServer>,
    /// Whether the tools are served for this run only and end with it.
    pub(crate) serves_alone: bool,
}

/// The tools that are served for a run.
pub(crate) enum ServedTools {
    /// Tools that are served from now on.
    Now(Option<RunningTools>),
    /// The tools that the session was opened with. `hands_in` says whether one of them submits the structured value.
    Already { tool_server: Option<ToolServer>, hands_in: bool },
}

impl RunServices {
    /// Returns services that serve no tools and answer no requests.
    pub(crate) fn none() -> Self {
        Self { answers: active_run::no_answers(), tool_server: None, serves_alone: true }
    }
}

impl Inner {
    /// Serves the caller's tools, the tool for the structured value, and relays of other servers. Must be called inside
    /// a runtime.
    pub(crate) fn serve(
        &self,
        agent: &dyn Agent,
        cwd: &Path,
        options: &RunOptions,
        foreign: &BTreeMap<String, McpServer>,
    ) -> Result<Option<RunningTools>, Error> {
        let (schema, host) = (options.tool_schema(), options.tools.clone());
        if schema.is_none() && host.is_none() && foreign.is_empty() {
            return Ok(None);
        }
        let env: BTreeMap<OsString, OsString> =
            self.host_env.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let mut offer = ToolOffer::new().cwd(cwd).env(env).supervisor(self.supervisor.clone());
        offer = offer.isolation(self.isolation).kill_deadline(self.kill_deadline.clone());
        offer = offer.added_arguments(agent.added_arguments());
        for (name, server) in foreign {
            offer = offer.server(name, server.clone());
        }
        if let Some(schema) = schema {
            offer = offer.structured(schema.structured());
        }
        host.unwrap_or_default().serve(offer).map(Some)
    }

    /// Builds the services of a run and completes its turn. Blocks.
    pub(crate) fn services(
        &self,
        resolved: &ResolvedRun,
        options: &RunOptions,
        served: ServedTools,
        spec: &mut TurnSpec,
    ) -> Result<RunServices, Error> {
        let request = &resolved.plan.request;
        spec.attachments = read_attachments(&request.attachments, &self.host_env.cwd)?;
        let is_open = matches!(served, ServedTools::Already { .. });
        let (tool_server, hands_in) = match served {
            ServedTools::Now(serving) => (serving.map(ToolServer::new), true),
            ServedTools::Already { tool_server, hands_in } => (tool_server, hands_in),
        };
        if !resolved.plan.is_live {
            return Ok(RunServices { tool_server, ..RunServices::none() });
        }
        let mut handler = RequestHandler::in_resolved(request, &resolved.session.cwd)?
            .trusted_servers(&resolved.session.trusted_servers);
        if let Some(permission_handler) = &options.permission_handler {
            handler = handler.permission_handler(permission_handler.clone());
        }
        let has_tools =
            options.tool_schema().is_some() || options.tools.as_ref().is_some_and(|host| !host.is_empty());
        if has_tools {
            let host = options.tools.clone().unwrap_or_default();
            handler = handler.own_server(host.name());
            spec.hosted = host.tool_names();
        }
        if is_open {
            // The tools were listed when the session was opened.
            spec.hosted.clear();
        }
        let mut validator =
            Validator::new(&resolved.session.cwd).limits(request.repair_turns, request.max_rounds);
        if let Some(schema) = options.tool_schema() {
            if !is_open {
                spec.hosted.push(STRUCTURED_OUTPUT.to_owned());
            }
            spec.prompt = format!("{}\n\n{}", spec.prompt, schema.instruction(hands_in));
            validator = validator.schema(schema.clone(), hands_in);
        } else if let Some(schema) = &options.schema {
            validator = validator.schema(schema.clone(), false);
        }
        let by_command = || {
            request.until.as_ref().map(|line| {
                CompletionCheck::command(line, self.host_env.env.clone(), self.supervisor.clone())
                    .kill_deadline(self.kill_deadline.clone())
            })
        };
        if let Some(check) = options.until.clone().or_else(by_command) {
            validator = validator.until(check);
        }
        if options.permission_handler.is_some()
            && !resolved.agent.passes_denial_reasons(resolved.plan.surface)
        {
            validator = validator.feedback(handler.feedback());
        }
        spec.validate = validator.is_needed();
        let now = Instant::now();
        let end = now.checked_add(request.timeout).unwrap_or_else(|| now + MAX_TIMEOUT);
        let answers = answers(handler, validator, end, options.asks_client);
        Ok(RunServices { answers, tool_server, serves_alone: !is_open })
    }

    /// Loads the schema file of the request unless the caller has set a schema, and adds the names of the served tools
    /// to the request. Blocks.
    pub(crate) fn with_schema(
        &self,
        checked: &mut CheckedRun,
        options: &RunOptions,
    ) -> Result<RunOptions, Error> {
        let CheckedRun { agent, plan, .. } = checked;
        let (request, surface) = (&mut plan.request, plan.surface);
        let mut options = options.clone();
        if let (None, Some(path)) = (&options.schema, &request.output_schema) {
            let read = Schema::from_file(&self.host_env.cwd.join(path));
            options.schema = Some(read.map_err(|problems| Problems(request.as_written(problems.0)))?);
        }
        let checks =
            |schema: &&Schema| !options.is_conversation && agent.takes_schema(surface, schema.document());
        request.answer_schema =
            options.schema.as_ref().filter(checks).map(|schema| schema.document().clone());
        options.agent_checks_schema = request.answer_schema.is_some();
        let host = options.tools.clone().unwrap_or_default();
        let mut own = host.tool_names();
        own.extend(options.tool_schema().map(|_| STRUCTURED_OUTPUT.to_owned()));
        if !own.is_empty() {
            Problems(host.ambiguous_servers(request.mcp_servers.keys())).into_result()?;
        }
        request.own_tools = own.into_iter().map(|tool| format!("mcp__{}__{tool}", host.name())).collect();
        Ok(options)
    }
}

fn answers(handler: RequestHandler, validator: Validator, end: Instant, asks_client: bool) -> RequestAnswers {
    let validator = Arc::new(tokio::sync::Mutex::new(validator));
    Arc::new(move |ask, redactor| {
        let (handler, validator) = (handler.clone().redactor(redactor), Arc::clone(&validator));
        Box::pin(async move {
            if let HostRequest::Validate { text, value } = ask {
                let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                let validated = validator.lock().await.validate(&text, value.as_deref(), left).await;
                return (validated.notices, validated.answer);
            }
            let answered = if asks_client { handler.screen(ask).await } else { handler.answer(ask).await };
            // A refusal of any kind of request is reported as a decision.
            let answer = match (answered.is_denial(), answered.ruling) {
                (true, Some(ruling)) => HostResponse::PermissionDecided(ruling),
                _ => answered.answer,
            };
            (Vec::new(), answer)
        })
    })
}
