//! An agent that speaks ACP with a client of this program: it is started, supervised and recorded like any other, and its
//! prompts are runs.

use crate::{
    agentline::{Agentline, Inner},
    error::Error,
    resolve::{StartFailure, not_ready_in_time, not_started, preparation_time},
    run::{
        Run,
        active_run::CompletionTiming,
        client_port::{ClientMessages, client_port},
        live_process::ProcessHandle,
        options::RunOptions,
        resolved::PendingStart,
        services::ServedTools,
    },
    workspace::snapshot::ActiveRuns,
};
use agentline_core::{ClientSessions, Limits, Problems, Redactor, RunRequest, SessionTarget, Surface};
use std::{sync::Arc, time::Instant};

/// An agent process that speaks ACP with a client. Dropping it ends the agent and everything that it started.
///
/// The messages of both sides pass through it. The policy of the request decides first on what the agent asks the client
/// for, and a prompt of the client is a run with its own outcome, timeouts and limits.
#[derive(Debug)]
pub struct AcpProcess {
    prompts: AcpPrompts,
    messages: ClientMessages,
}

/// Sends the prompts of a client to its agent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AcpPrompts {
    agentline: Agentline,
    live: Arc<ProcessHandle>,
    request: RunRequest,
}

impl Agentline {
    /// Returns the surface of an agent's conversations, or `None` if it has none. It is the one of the request, if that
    /// names one.
    ///
    /// # Errors
    /// Fails if the agent is not known.
    pub fn live_surface(&self, request: &RunRequest) -> Result<Option<Surface>, Problems> {
        let agent = self.registry().find(&request.agent)?;
        Ok(request.surface.or_else(|| self.inner().live_surface(&*agent, &request.agent)))
    }

    /// Starts an agent that speaks ACP with a client. The request applies to every prompt; its own prompt, MCP servers and
    /// resumed session are ignored, because the client has its own.
    ///
    /// # Errors
    /// Fails if the request is invalid, or, with an outcome, if the agent could not be started.
    pub async fn acp_process(&self, mut request: RunRequest) -> Result<AcpProcess, Error> {
        let started_at = Instant::now();
        request.surface = Some(Surface::Acp);
        request.needs_live = true;
        request.mcp_servers.clear();
        (request.resume, request.session_id) = (None, None);
        // No prompt is sent, but the checks of a request require a text.
        request.prompt = "prompt of a client".into();
        let mut opening = request.clone();
        // Limits apply to each prompt, but an agent counts the turn limit of its start over all prompts.
        opening.limits.max_turns = None;
        let planned = self.inner().plan(opening)?;
        let time = preparation_time(&request);
        let work = move |inner: &Inner| {
            let mut resolved = inner.resolve(planned, &client_options())?;
            let session = &resolved.run.session;
            let mut sessions = ClientSessions::default();
            sessions.mode.clone_from(&session.mode);
            sessions.model = session.model.as_ref().map(|model| model.id.clone());
            sessions.meta.clone_from(&session.meta);
            resolved.process.dialogue.client = Some(Box::new(sessions));
            let info = resolved.run.turn.info.clone();
            let agent = Arc::clone(&resolved.run.agent);
            let process = inner.prepare_process(Arc::clone(&agent), resolved.process);
            let process = process.map_err(|error| match error {
                Error::Usage(_) => StartFailure::Error(error),
                error => StartFailure::Over(Box::new(inner.not_prepared(&info, &error))),
            })?;
            Ok::<_, StartFailure>((process, info, agent))
        };
        let prepared = self.blocking_within(time, work).await;
        let prepared = prepared.ok_or_else(|| Error::NotOpened(Box::new(not_ready_in_time(&request))))?;
        let (process, info, agent) = match prepared {
            Ok(prepared) => prepared,
            Err(StartFailure::Over(outcome)) => return Err(Error::NotOpened(outcome)),
            Err(StartFailure::Error(error)) => return Err(error),
        };
        let (port, messages) = client_port();
        let live = ProcessHandle::start_for_client(port, self.inner(), process, &info.run_id, started_at)
            .map_err(|error| Error::NotOpened(Box::new(not_started(&info, &*agent, &error))))?;
        request.record = None;
        let prompts = AcpPrompts { agentline: self.clone(), live: Arc::new(live), request };
        Ok(AcpProcess { prompts, messages })
    }
}

fn client_options() -> RunOptions {
    RunOptions { is_conversation: true, asks_client: true, ..RunOptions::default() }
}

impl AcpProcess {
    /// Sends a message of the client to the agent, unless the agent has exited. A prompt is sent by
    /// [`AcpPrompts::send`] instead, and the message that cancels it precedes the cancellation of its run.
    pub fn send(&self, message: impl Into<String>) {
        self.messages.send(message.into());
    }

    /// Returns whether much of what was sent waits for the agent, so that the caller should wait before it sends more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.messages.is_full()
    }

    /// Returns the next message for the client, with secrets not yet redacted, or `None` after the agent has exited.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<String> {
        self.messages.next().await
    }

    /// Returns the next message for the client if there already is one. When the outcome of a prompt is known, all of its
    /// messages are there.
    pub fn waiting(&mut self) -> Option<String> {
        self.messages.waiting()
    }

    /// Returns a handle that sends prompts.
    #[must_use]
    pub fn prompts(&self) -> AcpPrompts {
        self.prompts.clone()
    }

    /// Returns a redactor of the secrets that the agent knows.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        self.prompts.live.redactor().clone()
    }

    /// Ends the agent and waits until it and everything that it started are gone. Handles for prompts must be dropped
    /// before.
    pub async fn close(self) {
        drop(self.messages);
        if let Some(live) = Arc::into_inner(self.prompts.live) {
            live.close().await;
        }
    }
}

impl AcpPrompts {
    /// Sends the prompt of a client in an open session, with these limits. `message` is the request as the client sent it.
    ///
    /// # Errors
    /// Fails if the request is invalid, for example because the workspace no longer exists.
    pub async fn send(
        &self,
        session: impl Into<String>,
        message: impl Into<String>,
        limits: Limits,
    ) -> Result<Run, Error> {
        let mut request = self.request.clone();
        request.limits = limits;
        let planned = self.agentline.inner().plan(request)?;
        let start = PendingStart::Planned(Box::new((planned, client_options())));
        let (time, late) = start.limit();
        let home = Arc::clone(&self.live.agent_home);
        let work = move |inner: &Inner| {
            let resolved = start.resolve(inner)?;
            let served = ServedTools::Already { tool_server: None, hands_in: false };
            let (run, options) = (&resolved.run, &resolved.options);
            let prepared = inner.prepared_run(run, &home, options, served, &ActiveRuns::default())?;
            Ok::<_, StartFailure>(Box::new(prepared))
        };
        let Some(prepared) = self.agentline.blocking_within(time, work).await else {
            return Ok(Run::over(late));
        };
        match prepared {
            Ok(mut prepared) => {
                let spec = &mut prepared.spec;
                spec.session = SessionTarget::Open(session.into());
                spec.client_message = Some(message.into());
                (spec.mode, spec.model) = (None, None);
                Ok(self.live.run(*prepared, CompletionTiming::AtOnce))
            }
            Err(StartFailure::Over(outcome)) => Ok(Run::over(*outcome)),
            Err(StartFailure::Error(error)) => Err(error),
        }
    }
}
