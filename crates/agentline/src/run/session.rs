//! A conversation: one session of a live agent with successive prompts.

use crate::{
    agentline::{Agentline, Inner},
    error::Error,
    resolve::{StartFailure, not_ready_in_time, not_started, preparation_time},
    run::{
        Run, active_run::CompletionTiming, live_process::ProcessHandle, options::RunOptions,
        resolved::PendingStart, services::ServedTools, tool_server::ToolServer,
    },
    schema::Schema,
    workspace::snapshot::ActiveRuns,
};
use agentline_core::{
    Event, ModelInfo, Notice, Problem, Problems, RunRequest, SessionTarget, Tokens, UsageTotals,
};
use std::{sync::Arc, time::Instant};

/// A conversation with a live agent. Dropping it ends the agent and everything that it started.
///
/// Each prompt is a separate run with its own events, outcome, timeouts and limits. The agent remembers earlier
/// prompts. If a run is stopped, the conversation continues with the next prompt.
///
/// ```no_run
/// # async fn show() -> Result<(), Box<dyn std::error::Error>> {
/// use agentline::{Agentline, RunRequest};
/// let agentline = Agentline::from_env()?;
/// let session = agentline.session(RunRequest::default().working_dir("/srv/project")).await?;
/// let first = session.prompt("What does this project do?").await?.outcome().await;
/// let second = session.prompt("And who uses it?").await?.outcome().await;
/// println!("{}\n{}", first.text, second.text);
/// session.close().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Session {
    agentline: Agentline,
    live: ProcessHandle,
    id: String,
    request: RunRequest,
    models: Vec<ModelInfo>,
    options: RunOptions,
    /// The tool server that the session was opened with, which lives as long as the session.
    tool_server: Option<ToolServer>,
    /// Serializes prompts, because agents stop the current prompt when they receive another one.
    turn: tokio::sync::Mutex<()>,
}

impl Agentline {
    /// Opens a conversation. The prompt of the request is ignored; all other settings apply to every prompt of the
    /// session.
    ///
    /// # Errors
    /// Fails if the request is invalid, or, with an outcome, if the agent could not be started or did not open a
    /// session.
    pub async fn session(&self, request: RunRequest) -> Result<Session, Error> {
        self.session_with(request, RunOptions::default()).await
    }

    /// Opens a conversation with options such as tools and a permission handler.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub async fn session_with(
        &self,
        mut request: RunRequest,
        mut options: RunOptions,
    ) -> Result<Session, Error> {
        let started_at = Instant::now();
        request.needs_live = true;
        options.is_conversation = true;
        let agent = self.registry().find(&request.agent).map_err(Problems::from)?;
        request.surface = request.surface.or_else(|| self.inner().live_surface(&*agent, &request.agent));
        if !request.surface.is_some_and(|surface| agent.is_live(surface)) {
            let problem = Problem::new("surface", "a conversation requires a live surface, such as `acp`");
            return Err(Problems::from(problem.hint("omit `surface`, or set it to `acp`")).into());
        }
        let mut opening = request.clone();
        if opening.prompt.trim().is_empty() {
            // No prompt is sent, but the checks of a request require a text.
            opening.prompt = "open".into();
        }
        // Limits apply to each prompt, but an agent counts the turn limit of its start over all prompts.
        opening.limits.max_turns = None;
        if let (None, Some(path)) = (&options.schema, &request.output_schema) {
            // The tool for the value is served as long as the session lives.
            let path = self.host_env().cwd.join(path);
            let read =
                self.blocking_within(preparation_time(&request), move |_| Schema::from_file(&path)).await;
            let read = read.ok_or_else(|| Error::NotOpened(Box::new(not_ready_in_time(&request))))?;
            options.schema = Some(read.map_err(|problems| Problems(request.as_written(problems.0)))?);
        }
        let run_options = options.clone();
        let time = preparation_time(&opening);
        let planned = self.inner().plan(opening)?;
        let work = move |inner: &Inner| inner.prepare(*inner.resolve(planned, &run_options)?);
        let prepared = self.blocking_within(time, work).await;
        let prepared = prepared.ok_or_else(|| Error::NotOpened(Box::new(not_ready_in_time(&request))))?;
        let mut ready = match prepared {
            Ok(ready) => *ready,
            Err(StartFailure::Over(outcome)) => return Err(Error::NotOpened(outcome)),
            Err(StartFailure::Error(error)) => return Err(error),
        };
        tokio::time::sleep(ready.wait_before_start().map_err(Error::NotOpened)?).await;
        let mut prepared_run = ready.prepared_run;
        if let Some(workspace) = prepared_run.workspace.take() {
            // All prompts share this workspace, which is removed when the agent is gone.
            request.working_dir = Some(workspace.path().to_owned());
            ready.process.workspace = Some(workspace);
        }
        prepared_run.spec.only_open = true;
        prepared_run.spec.collect_changes = false;
        // There is no answer yet to validate.
        prepared_run.spec.validate = false;
        let (info, agent) = (prepared_run.spec.info.clone(), Arc::clone(&ready.process.agent));
        // The tools are served until the session ends, not only during its opening.
        let tool_server = prepared_run.services.tool_server.clone();
        prepared_run.services.serves_alone = false;
        let live = ProcessHandle::start(self.inner(), ready.process, &info.run_id, started_at)
            .map_err(|error| Error::NotOpened(Box::new(not_started(&info, &*agent, &error))))?;
        let mut opening = live.run(prepared_run, CompletionTiming::AtOnce);
        let mut models = Vec::new();
        let outcome = loop {
            match opening.next().await.map(|record| record.event) {
                Some(Event::Started(started)) => models = started.models,
                Some(Event::Outcome { outcome }) => break *outcome,
                Some(_) => {}
                None => break opening.outcome().await,
            }
        };
        match (&outcome.error, &outcome.session_id) {
            (None, Some(id)) => {
                let id = id.clone();
                Ok(Session {
                    agentline: self.clone(),
                    live,
                    id,
                    request,
                    models,
                    options,
                    tool_server,
                    turn: tokio::sync::Mutex::default(),
                })
            }
            _ => {
                live.close().await;
                Err(Error::NotOpened(Box::new(outcome)))
            }
        }
    }
}

impl Session {
    /// Returns the agent's own id for the session, which can be used to resume it later.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the models that the agent offered when the session was opened.
    #[must_use]
    pub fn models(&self) -> &[ModelInfo] {
        &self.models
    }

    /// Returns the total token usage of all prompts so far, as far as the agent reported it.
    #[must_use]
    pub fn usage(&self) -> Tokens {
        self.live.state().spent.tokens
    }

    /// Returns the total usage and cost of all prompts so far, by model.
    #[must_use]
    pub fn spent(&self) -> UsageTotals {
        self.live.state().spent
    }

    /// Returns the request that applies to every prompt; modify it for [`prompt_with`](Self::prompt_with).
    #[must_use]
    pub fn request(&self) -> RunRequest {
        self.request.clone()
    }

    /// Sends a prompt to the agent, after the previous run is over.
    ///
    /// # Errors
    /// As [`Agentline::run`].
    pub async fn prompt(&self, prompt: impl Into<String>) -> Result<Run, Error> {
        let mut request = self.request();
        request.prompt = prompt.into();
        self.prompt_with(request).await
    }

    /// Sends a prompt with other timeouts, limits, attachments, mode or model than the session's.
    ///
    /// # Errors
    /// As [`Agentline::run`].
    pub async fn prompt_with(&self, mut request: RunRequest) -> Result<Run, Error> {
        let agent = self.agentline.registry().find(&self.request.agent).map_err(Problems::from)?;
        Problems(agent.unenforced_in_session(&self.request, &request)).into_result()?;
        let _turn = self.turn.lock().await;
        let before = self.live.wait_for(|state| state.active_runs == 0).await;
        request.surface = self.request.surface;
        // The session is already open; only a new process would load a stored one.
        request.resume = None;
        request.session_id = None;
        request.record = None;
        let mut notices = std::mem::take(&mut request.notices);
        if request.retries.is_some_and(|retries| retries > 0) || !request.fallback_models.is_empty() {
            let message = "a prompt of a conversation is not retried, because the session may already contain it; \
                           `retries` and `fallback_models` have no effect";
            notices.push(Notice::new("not_retried", message));
        }
        let same_servers = request.mcp_servers == self.request.mcp_servers
            && request.mcp_settings_path == self.request.mcp_settings_path;
        let home = Arc::clone(&self.live.agent_home);
        let (mut options, tool_server) = (self.options.clone(), self.tool_server.clone());
        if request.output_schema != self.request.output_schema {
            options.schema = None;
        }
        let start = PendingStart::Planned(Box::new((self.agentline.inner().plan(request)?, options.clone())));
        let (time, late) = start.limit();
        // If the session was opened with the tool that submits a value, the agent uses it. Otherwise it answers with text.
        let served = ServedTools::Already { tool_server, hands_in: options.schema.is_some() };
        let work = move |inner: &Inner| {
            let resolved = start.resolve(inner)?;
            let prepared_run = inner.prepared_run(
                &resolved.run,
                &home,
                &resolved.options,
                served,
                &ActiveRuns::default(),
            )?;
            Ok::<_, StartFailure>(Box::new(prepared_run))
        };
        let Some(prepared) = self.agentline.blocking_within(time, work).await else {
            return Ok(Run::over(late));
        };
        let run = match prepared {
            Ok(mut prepared_run) => {
                prepared_run.spec.session = SessionTarget::Open(self.id.clone());
                if same_servers {
                    // The session already has these servers, through relays.
                    prepared_run.spec.servers.clear();
                }
                let run = self.live.run(*prepared_run, CompletionTiming::AtOnce);
                // The next prompt checks whether a run is active, so this run must be registered first.
                self.live.wait_for(|state| state.served > before.served).await;
                run
            }
            Err(StartFailure::Over(outcome)) => Run::over(*outcome),
            Err(StartFailure::Error(error)) => return Err(error),
        };
        Ok(run.with_notices(notices))
    }

    /// Ends the conversation and waits until the agent and everything that it started are gone.
    pub async fn close(self) {
        self.live.close().await;
        if let Some(tool_server) = &self.tool_server {
            tool_server.close().await;
        }
    }
}
