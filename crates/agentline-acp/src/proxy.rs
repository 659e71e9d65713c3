//! Serves a client with an agent that speaks ACP itself: frames pass through, and this module adds policy, budget, changed
//! files, redaction and clocks.

mod prompts;
mod reconnect;
mod request_ids;

use crate::{
    budget::SharedBudget,
    failure::{ErrorResponse, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST},
    frame,
    params::{self, OpenSession},
    peer::ClientPeer,
    read::read_frame,
    redaction::FrameRedactor,
    running_agent::{RunningAgent, directory_of, next_of_agent},
    sessions::{HeldAgents, HeldTicket, ServeEnd},
    workspace::{Workspace, WorkspaceSettings},
};
use agentline_core::rpc::{self, RpcMessage};
use prompts::{PromptEnd, ProxiedPrompt};
use reconnect::{Reconnectable, Reload};
use request_ids::{AgentRequest, RequestIds};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::HashMap, path::PathBuf, time::Duration};
use tokio::{sync::mpsc::Receiver, task::JoinSet, time::Instant};

/// How often to check whether the agent has read something.
const FULL_POLL: Duration = Duration::from_millis(50);
/// How long an agent may leave much of what the client has sent unread.
const MOST_FULL: Duration = Duration::from_secs(120);

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
    ids: RequestIds,
    ended: JoinSet<PromptEnd>,
    /// The state for later clients, if the agent outlives its client.
    reconnectable: Option<Reconnectable>,
    /// Since when so much waits for the agent that the client is not read, although the client reads.
    full_since: Option<Instant>,
}

/// The next event of a connection.
enum Step {
    Client(Option<Vec<u8>>),
    Agent(Option<String>),
    Ended(PromptEnd),
    Clock,
    /// The agent does not read.
    Full,
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
            ids: RequestIds::default(),
            ended: JoinSet::new(),
            reconnectable: held.map(Reconnectable::new),
            full_since: None,
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
                Step::Full if incoming.is_closed() => return ServeEnd::Disconnected,
                Step::Full if self.is_stuck() => {
                    self.refuse_all("the agent does not read what the client sends");
                    return ServeEnd::AgentExited;
                }
                Step::Full => {}
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
        let is_full = self.agent.as_ref().is_some_and(RunningAgent::is_full);
        // An agent whose output is held back for a slow client may wait for that.
        let is_unread = is_full && self.peer.has_room();
        self.full_since = if is_unread { self.full_since.or_else(|| Some(Instant::now())) } else { None };
        let (peer, agent) = (&self.peer, &mut self.agent);
        // In no fixed order: an agent that never pauses must not delay a cancellation.
        tokio::select! {
            frame = next_of_agent(peer, agent) => Step::Agent(frame),
            Some(Ok(end)) = self.ended.join_next() => Step::Ended(end),
            frame = incoming.recv(), if !is_full => Step::Client(frame),
            () = until(clock) => Step::Clock,
            () = tokio::time::sleep(FULL_POLL), if is_full => Step::Full,
        }
    }

    /// Returns whether the agent has not read anything for so long that it never will.
    fn is_stuck(&self) -> bool {
        self.full_since.is_some_and(|since| since.elapsed() > MOST_FULL)
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
                    self.peer.respond::<()>(id, Err(error));
                }
            }
            RpcMessage::Notification { method, .. } if method == "$/cancel_request" => {
                if let Some(text) = self.cancel_request(text) {
                    self.send_to_agent(&text);
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

    /// Returns whether the current client has sent a request with this id that has no response yet.
    fn is_in_use(&self, id: &str) -> bool {
        let is_loaded = self.reconnectable.as_ref().is_some_and(|clients| clients.is_loading(id));
        is_loaded || self.key_at_agent(id).is_some()
    }

    /// Returns the agent's id of an open request of the current client.
    fn key_at_agent(&self, id: &str) -> Option<&str> {
        let prompts = self.prompts.iter().filter(|(_, prompt)| !prompt.is_orphaned).map(|(key, _)| key);
        self.pending.keys().chain(prompts).find(|key| self.ids.is(key, id)).map(String::as_str)
    }

    /// Returns a `$/cancel_request` as the agent gets it. It gets none for a request of an earlier client.
    fn cancel_request<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let Some(id) = frame::cancelled_id(text) else {
            // The agent could find the id of another client's request in it.
            return self.reconnectable.is_none().then(|| text.into());
        };
        match self.key_at_agent(&id) {
            Some(key) if key != id => frame::with_cancelled_id(text, key).map(Cow::from),
            None if self.prompts.contains_key(&id) || self.ids.is_late(&id) => None,
            _ => Some(text.into()),
        }
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
        let AgentRequest { key, text } = self.for_agent(id, text);
        if matches!(method, "initialize" | "authenticate") {
            self.handshake.retain(|(known, _)| *known != key);
            self.handshake.push((key.clone(), text.clone().into_owned()));
        }
        self.note_request(&key, method, params);
        let time = self.time_for(method);
        self.pending.insert(key, Instant::now() + time);
        self.send_to_agent(&text);
        Ok(())
    }

    /// Returns a request as the agent gets it. Another client may have used its id.
    fn for_agent<'a>(&mut self, id: &RawValue, text: &'a str) -> AgentRequest<'a> {
        let (pending, prompts) = (&self.pending, &self.prompts);
        self.ids.for_agent(id, text, |key| pending.contains_key(key) || prompts.contains_key(key))
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
            let workspace = self.workspace.clone();
            self.agent = Some(self.start_in(&workspace).await?);
            self.ids.clear_late();
        }
        Ok(())
    }

    /// Starts the agent, and repeats the requests that an earlier process of it has got.
    async fn start_in(&self, workspace: &Workspace) -> Result<RunningAgent, ErrorResponse> {
        let mut agent = RunningAgent::start(workspace).await?;
        self.peer.add_redactor(&agent.process.redactor());
        for (id, text) in &self.handshake {
            agent.process.send(text.clone());
            // The client gets a response that the first process has not sent.
            if !self.pending.contains_key(id) {
                agent.repeated.insert(id.clone());
            }
        }
        Ok(agent)
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
        if workspace.request.record.is_some()
            && let Some(before) = self.agent.take()
        {
            // Both would write the tape.
            before.process.close().await;
        }
        let mut agent = self.start_in(&workspace).await?;
        agent.is_used = true;
        self.workspace = workspace;
        self.ids.clear_late();
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
        self.send_all_to_client(safe.unwrap_or_default());
    }

    /// Sends frames of the agent to the client. The rest of a text does not precede a frame with its beginning.
    fn send_all_to_client(&mut self, frames: Vec<String>) {
        let count = frames.len();
        let mut has_rests = false;
        for (at, frame) in frames.into_iter().enumerate() {
            has_rests |= self.send_to_client(frame, at + 1 == count);
        }
        if has_rests {
            self.release_rests();
        }
    }

    /// Sends a frame of the agent to the client. The response to a prompt waits for the outcome. Returns whether rests of
    /// texts follow the frames after this one.
    fn send_to_client(&mut self, frame: String, is_last: bool) -> bool {
        let mut has_rests = false;
        if let Some(id) = frame::response_id(&frame) {
            if let Some(prompt) = self.prompts.get_mut(&id) {
                prompt.response = Some(frame);
                return false;
            }
            if self.ids.take_late(&id) {
                self.late_response(&id, &frame);
                return false;
            }
            self.pending.remove(&id);
            has_rests = !is_last;
            if is_last {
                self.release_rests();
            }
            if self.take_repeated(&id) {
                return has_rests;
            }
        }
        if let Some(frame) = self.observed(frame) {
            let frame = match frame::response_id(&frame) {
                Some(id) => self.ids.restored(&id, frame),
                None => frame,
            };
            self.peer.send_as_is(frame);
        }
        has_rests
    }

    /// Takes the response to a repeated request, which the client already has. Returns whether it is one.
    fn take_repeated(&mut self, id: &str) -> bool {
        let Some(agent) = &mut self.agent else { return false };
        let is_repeated = agent.repeated.remove(id);
        if is_repeated && agent.repeated.is_empty() {
            agent.waiting.drain(..).for_each(|waiting| agent.process.send(waiting));
        }
        is_repeated
    }

    /// Passes on everything that the agent has already sent.
    fn catch_up(&mut self) {
        while let Some(frame) = self.agent.as_mut().and_then(|agent| agent.process.waiting()) {
            self.agent_frame(&frame);
        }
        self.held_frames(FrameRedactor::release);
    }

    /// Passes on the rests of texts in sessions without an active prompt: they do not continue.
    fn release_rests(&mut self) {
        let active: Vec<String> = self.prompts.values().map(|prompt| prompt.session.clone()).collect();
        self.held_frames(|held| held.release_rests(|session| !active.iter().any(|active| active == session)));
    }

    /// Passes on frames that the redactor has held back.
    fn held_frames(&mut self, take: impl FnOnce(&mut FrameRedactor) -> Vec<String>) {
        let frames = self.agent.as_mut().map(|agent| take(&mut agent.redactor));
        self.send_all_to_client(frames.unwrap_or_default());
    }

    /// Answers the requests that the agent has not answered in time.
    fn clock(&mut self) {
        let now = Instant::now();
        if self.agent.as_ref().and_then(|agent| agent.redactor.deadline()).is_some_and(|when| now >= when) {
            self.held_frames(FrameRedactor::release);
        }
        let late: Vec<String> =
            self.pending.iter().filter(|(_, when)| now >= **when).map(|(id, _)| id.clone()).collect();
        for id in late {
            self.pending.remove(&id);
            self.refuse(&id, "the agent did not respond in time");
            self.opening_failed(&id);
            self.ids.add_late(id);
        }
    }

    /// Answers everything that is still open after the agent has exited.
    async fn agent_exited(&mut self) {
        // The outcomes of the prompts have the reason. They follow the exit at once.
        while let Some(Ok(end)) = self.ended.join_next().await {
            self.prompt_ended(end);
        }
        self.catch_up();
        self.held_frames(FrameRedactor::finish);
        self.refuse_all("the agent has exited");
    }

    /// Answers all requests, whose agent will not.
    fn refuse_all(&self, message: &str) {
        let prompts = self.prompts.iter().filter(|(_, prompt)| !prompt.is_orphaned).map(|(id, _)| id);
        for id in self.pending.keys().chain(prompts) {
            self.refuse(id, message);
        }
    }

    fn refuse(&self, id: &str, message: &str) {
        if let Ok(id) = serde_json::from_str::<&RawValue>(self.ids.of_client(id)) {
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
