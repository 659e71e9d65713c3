//! Serves a client with an agent that speaks ACP itself: frames pass through, and this module adds policy, budget, changed
//! files, redaction and clocks.

mod prompts;
mod reconnect;

use crate::{
    budget::SharedBudget,
    failure::{ErrorResponse, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST},
    frame,
    params::{self, OpenSession},
    peer::ClientPeer,
    read::read_frame,
    running_agent::{RunningAgent, directory_of, next_of_agent},
    sessions::{HeldAgents, HeldTicket, ServeEnd},
    workspace::{Workspace, WorkspaceSettings},
};
use agentline_core::rpc::{self, RpcMessage};
use prompts::{PromptEnd, ProxiedPrompt};
use reconnect::{Reconnectable, Reload};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::HashMap, path::PathBuf, time::Duration};
use tokio::{sync::mpsc::Receiver, task::JoinSet, time::Instant};

/// One client and its agent.
pub(crate) struct ProxiedAgent {
    settings: WorkspaceSettings,
    peer: ClientPeer,
    budget: SharedBudget,
    workspace: Workspace,
    agent: Option<RunningAgent>,
    /// The requests that must be repeated if another process of the agent takes over, in order.
    handshake: Vec<(String, String)>,
    /// The requests that the agent has not answered, with the time by which it must.
    pending: HashMap<String, Instant>,
    /// The prompts in progress, by the id of the request.
    prompts: HashMap<String, ProxiedPrompt>,
    ended: JoinSet<PromptEnd>,
    /// The state for later clients, if the agent outlives its client.
    reconnectable: Option<Reconnectable>,
}

/// The next event of a connection.
enum Step {
    Client(Option<Vec<u8>>),
    Agent(Option<String>),
    Ended(PromptEnd),
    Clock,
}

impl ProxiedAgent {
    pub(crate) fn new(
        settings: WorkspaceSettings,
        peer: ClientPeer,
        workspace: Workspace,
        held: Option<HeldAgents>,
    ) -> Self {
        Self {
            settings,
            peer,
            budget: SharedBudget::default(),
            workspace,
            agent: None,
            handshake: Vec::new(),
            pending: HashMap::new(),
            prompts: HashMap::new(),
            ended: JoinSet::new(),
            reconnectable: held.map(Reconnectable::new),
        }
    }

    pub(crate) fn peer(&self) -> &ClientPeer {
        &self.peer
    }

    /// Serves a client from this frame on, until it disconnects or the agent exits. In that case, every request has got a
    /// response.
    pub(crate) async fn serve(
        &mut self,
        first: Option<Vec<u8>>,
        incoming: &mut Receiver<Vec<u8>>,
    ) -> ServeEnd {
        let mut first = first.map(|frame| Step::Client(Some(frame)));
        loop {
            let step = match first.take() {
                Some(step) => step,
                None => self.next(incoming).await,
            };
            match step {
                Step::Client(Some(frame)) => {
                    if let Some(to) = self.client_frame(&frame).await {
                        return ServeEnd::Moves { to, frame };
                    }
                }
                Step::Client(None) => return ServeEnd::Disconnected,
                Step::Agent(Some(frame)) => self.agent_frame(&frame),
                Step::Agent(None) => break,
                Step::Ended(end) => self.prompt_ended(end),
                Step::Clock => self.clock(),
            }
        }
        self.agent_exited().await;
        ServeEnd::AgentExited
    }

    /// Ends everything that was started for the client.
    pub(crate) async fn close(mut self) {
        // Aborting the prompts stops their runs.
        self.ended.shutdown().await;
        if let Some(agent) = self.agent {
            agent.process.close().await;
        }
    }

    async fn next(&mut self, incoming: &mut Receiver<Vec<u8>>) -> Step {
        let clocks =
            self.pending.values().copied().chain(self.agent.as_ref().and_then(|a| a.redactor.deadline()));
        let clock = clocks.min();
        let (peer, agent) = (&self.peer, &mut self.agent);
        tokio::select! {
            biased;
            frame = next_of_agent(peer, agent) => Step::Agent(frame),
            Some(Ok(end)) = self.ended.join_next() => Step::Ended(end),
            frame = incoming.recv() => Step::Client(frame),
            () = until(clock) => Step::Clock,
        }
    }

    /// Handles a frame of the client. Returns the agent that the client gets instead of this one, if there is one.
    async fn client_frame(&mut self, frame: &[u8]) -> Option<HeldTicket> {
        let (message, text) = read_frame(&self.peer, frame)?;
        let text = &*on_one_line(text);
        match message {
            RpcMessage::Request { id, method, params } => {
                if self.is_in_use(&rpc::id_key(id)) {
                    let message = "the id of this request is that of another one, which has no response yet";
                    self.peer.respond::<()>(id, Err(ErrorResponse::new(INVALID_REQUEST, message)));
                    return None;
                }
                let handled = match self.reload(id, &method, params).await {
                    Ok(Reload::Moves(ticket)) => return Some(ticket),
                    Ok(Reload::Here) => Ok(()),
                    Ok(Reload::Unknown) => self.client_request(id, &method, params, text).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = handled {
                    self.pending.remove(&rpc::id_key(id));
                    self.peer.respond::<()>(id, Err(error));
                }
            }
            RpcMessage::Notification { method, params } => {
                self.send_to_agent(text);
                if method == "session/cancel" {
                    self.cancel(params);
                }
            }
            RpcMessage::Response { id, .. } => {
                self.client_answered(&rpc::id_key(id));
                self.send_to_agent(text);
            }
        }
        None
    }

    fn is_in_use(&self, id: &str) -> bool {
        let is_stale = self.reconnectable.as_ref().is_some_and(|clients| clients.is_stale(id));
        is_stale || self.prompts.contains_key(id) || self.pending.contains_key(id)
    }

    async fn client_request(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
        text: &str,
    ) -> Result<(), ErrorResponse> {
        match method {
            "session/new" | "session/load" | "session/resume" | "session/fork" => {
                let params: OpenSession = params::read(params)?;
                self.enter(params.cwd).await?;
            }
            "session/prompt" => return self.prompt(id, params, text),
            _ => self.start().await?,
        }
        if matches!(method, "initialize" | "authenticate") {
            self.handshake.retain(|(known, _)| *known != rpc::id_key(id));
            self.handshake.push((rpc::id_key(id), text.to_owned()));
        }
        self.note_request(id, method, params);
        let time = self.time_for(method);
        self.pending.insert(rpc::id_key(id), Instant::now() + time);
        self.send_to_agent(text);
        Ok(())
    }

    /// Returns how long the agent may take for a request. A sign-in waits for a person.
    fn time_for(&self, method: &str) -> Duration {
        let request = &self.workspace.request;
        match method {
            "initialize" | "session/new" | "session/load" | "session/resume" => request.startup_timeout,
            _ => request.timeout,
        }
    }

    /// Starts the agent, unless it is running.
    async fn start(&mut self) -> Result<(), ErrorResponse> {
        if self.agent.is_none() {
            self.agent = Some(RunningAgent::start(&self.workspace).await?);
        }
        Ok(())
    }

    /// Makes sure that the agent runs in the directory of a new session, where its own settings apply.
    async fn enter(&mut self, directory: PathBuf) -> Result<(), ErrorResponse> {
        let workspace = self.settings.of_client(&directory)?;
        let is_same = |agent: &RunningAgent| agent.directory == directory_of(&workspace);
        match &mut self.agent {
            Some(agent) if is_same(agent) => {
                agent.is_used = true;
                return Ok(());
            }
            Some(agent) if agent.is_used => {
                let message = format!(
                    "this connection serves sessions in `{}`; start another one for `{}`",
                    agent.directory.display(),
                    directory.display()
                );
                return Err(ErrorResponse::new(INVALID_PARAMS, message));
            }
            _ => {}
        }
        let mut agent = RunningAgent::start(&workspace).await?;
        agent.is_used = true;
        for (id, text) in &self.handshake {
            agent.process.send(text.clone());
            // The client gets a response that the first process has not sent.
            if !self.pending.contains_key(id) {
                agent.repeated.insert(id.clone());
            }
        }
        self.workspace = workspace;
        if let Some(before) = self.agent.replace(agent) {
            tokio::spawn(before.process.close());
        }
        Ok(())
    }

    fn send_to_agent(&mut self, text: &str) {
        match &mut self.agent {
            Some(agent) if agent.repeated.is_empty() => agent.process.send(text),
            Some(agent) => agent.waiting.push(text.to_owned()),
            None => {}
        }
    }

    fn agent_frame(&mut self, frame: &str) {
        let safe = self.agent.as_mut().map(|agent| agent.redactor.push(frame));
        safe.into_iter().flatten().for_each(|frame| self.send_to_client(frame));
    }

    /// Sends a frame of the agent to the client. The response to a prompt waits for the outcome.
    fn send_to_client(&mut self, frame: String) {
        if let Some(id) = frame::response_id(&frame) {
            if let Some(prompt) = self.prompts.get_mut(&id) {
                prompt.response = Some(frame);
                return;
            }
            self.pending.remove(&id);
            if let Some(agent) = &mut self.agent
                && agent.repeated.remove(&id)
            {
                if agent.repeated.is_empty() {
                    agent.waiting.drain(..).for_each(|waiting| agent.process.send(waiting));
                }
                return;
            }
        }
        if let Some(frame) = self.observed(frame) {
            self.peer.send_as_is(frame);
        }
    }

    /// Passes on everything that the agent has already sent.
    fn catch_up(&mut self) {
        while let Some(frame) = self.agent.as_mut().and_then(|agent| agent.process.waiting()) {
            self.agent_frame(&frame);
        }
        let rest = self.agent.as_mut().map(|agent| agent.redactor.finish());
        rest.into_iter().flatten().for_each(|frame| self.send_to_client(frame));
    }

    /// Answers the requests that the agent has not answered in time.
    fn clock(&mut self) {
        let now = Instant::now();
        if self.agent.as_ref().and_then(|agent| agent.redactor.deadline()).is_some_and(|when| now >= when) {
            let rest = self.agent.as_mut().map(|agent| agent.redactor.finish());
            rest.into_iter().flatten().for_each(|frame| self.send_to_client(frame));
        }
        let late: Vec<String> =
            self.pending.iter().filter(|(_, when)| now >= **when).map(|(id, _)| id.clone()).collect();
        for id in late {
            self.pending.remove(&id);
            self.refuse(&id, "the agent did not respond in time");
        }
    }

    /// Answers everything that is still open after the agent has exited.
    async fn agent_exited(&mut self) {
        // The outcomes of the prompts have the reason. They follow the exit at once.
        while let Some(Ok(end)) = self.ended.join_next().await {
            self.prompt_ended(end);
        }
        self.catch_up();
        for id in self.pending.keys().cloned().collect::<Vec<_>>() {
            self.refuse(&id, "the agent has exited");
        }
    }

    fn refuse(&self, id: &str, message: &str) {
        if let Ok(id) = serde_json::from_str::<&RawValue>(id) {
            self.peer.respond::<()>(id, Err(ErrorResponse::new(INTERNAL_ERROR, message)));
        }
    }
}

/// Returns a message on one line, as the agent expects it. Line breaks are only between the parts of a message.
fn on_one_line(text: &str) -> Cow<'_, str> {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ").into() } else { text.into() }
}

async fn until(clock: Option<Instant>) {
    match clock {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
