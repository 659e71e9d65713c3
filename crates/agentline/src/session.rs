//! A conversation: one session of a live agent, and prompts in it one after another.

use crate::{
    agentline::{Agentline, Inner},
    error::Error,
    gear::Sides,
    live::LiveHandle,
    options::RunOptions,
    ready::{not_ready_in_time, not_started, preparation_time},
    run::Run,
    schema::Schema,
    seat::Tell,
};
use agentline_core::{Event, ModelInfo, Problem, Problems, RunRequest, Spent, Surface, Tokens, Want};
use std::{sync::Arc, time::Instant};

/// A conversation with a live agent. Dropping it ends the agent and everything that it started.
///
/// Each prompt is a run of its own, with its events, outcome, clocks and limits; the agent remembers what was said
/// before. A run may be stopped in the middle; the conversation goes on with the next prompt.
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
    live: LiveHandle,
    id: String,
    request: RunRequest,
    models: Vec<ModelInfo>,
    options: RunOptions,
    /// What the session was opened with; it is served as long as the session lives.
    sides: Option<Sides>,
    /// One prompt at a time: agents stop the first when they are given a second.
    turn: tokio::sync::Mutex<()>,
}

impl Agentline {
    /// Opens a conversation. The prompt of the request is not used; all else holds for every prompt of the session.
    ///
    /// # Errors
    /// What was asked for is wrong; or the agent could not be started or did not open a session, with the outcome that
    /// says why.
    pub async fn session(&self, request: RunRequest) -> Result<Session, Error> {
        self.session_with(request, RunOptions::default()).await
    }

    /// Opens a conversation with what the program gives it: tools, somebody to be asked.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub async fn session_with(
        &self,
        mut request: RunRequest,
        mut options: RunOptions,
    ) -> Result<Session, Error> {
        let begun = Instant::now();
        request.needs_live = true;
        if request.surface.is_none() {
            request.surface = Some(Surface::Acp);
        }
        if request.surface != Some(Surface::Acp) {
            let problem = Problem::new("surface", "a conversation needs an agent that stays alive");
            return Err(Problems::from(problem.hint("leave `surface` out, or set it to `acp`")).into());
        }
        let mut opening = request.clone();
        if opening.prompt.trim().is_empty() {
            // Nothing is prompted; the checks of a request still want words.
            opening.prompt = "open".into();
        }
        // Limits are for each prompt, but the turns that an agent is told of at its start it counts over all of them.
        opening.limits.max_turns = None;
        if let (None, Some(path)) = (&options.schema, &request.output_schema) {
            // The tool for it is served as long as the session lives.
            let path = self.here().cwd.join(path);
            let read =
                self.blocking_within(preparation_time(&request), move |_| Schema::from_file(&path)).await;
            let read = read.ok_or_else(|| Error::NotOpened(Box::new(not_ready_in_time(&request))))?;
            options.schema = Some(read?);
        }
        let given = options.clone();
        let time = preparation_time(&opening);
        let prepared = self.blocking_within(time, move |inner| inner.make_ready(opening, &given)).await;
        let prepared = prepared.ok_or_else(|| Error::NotOpened(Box::new(not_ready_in_time(&request))))?;
        let mut ready = match prepared? {
            Ok(ready) => *ready,
            Err(outcome) => return Err(Error::NotOpened(outcome)),
        };
        tokio::time::sleep(ready.must_wait().map_err(Error::NotOpened)?).await;
        let mut trip = ready.trip;
        if let Some(workspace) = trip.workspace.take() {
            // All prompts have the same one, and it goes when the agent is gone.
            request.working_dir = Some(workspace.path().to_owned());
            ready.start.workspace = Some(workspace);
        }
        trip.order.only_open = true;
        trip.order.settle = false;
        // There is no answer yet that could fit a schema or pass a check.
        trip.order.review = false;
        let (who, agent) = (trip.order.who.clone(), ready.start.agent);
        // They end with the session, not with its opening.
        let sides = trip.gear.sides.clone();
        trip.gear.serves_alone = false;
        let live = LiveHandle::start(self.inner(), ready.start, &who.run_id, begun)
            .map_err(|error| Error::NotOpened(Box::new(not_started(&who, agent, &error))))?;
        let mut opening = live.run(trip, Tell::AtOnce);
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
                    sides,
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
    /// The agent's own id of the session, with which it can be resumed later.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The models that the agent offers, as it told when the session was opened.
    #[must_use]
    pub fn models(&self) -> &[ModelInfo] {
        &self.models
    }

    /// What all prompts so far have used together, as far as it was told.
    #[must_use]
    pub fn usage(&self) -> Tokens {
        self.live.state().spent.tokens
    }

    /// What all prompts so far have used and cost, by model.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.live.state().spent
    }

    /// What holds for every prompt; change a copy of it for [`prompt_with`](Self::prompt_with).
    #[must_use]
    pub fn request(&self) -> RunRequest {
        self.request.clone()
    }

    /// Says something to the agent. Waits until the run before it is over.
    ///
    /// # Errors
    /// As [`Agentline::run`].
    pub async fn prompt(&self, prompt: impl Into<String>) -> Result<Run, Error> {
        let mut request = self.request();
        request.prompt = prompt.into();
        self.prompt_with(request).await
    }

    /// Says something to the agent with other clocks, limits, attachments, mode or model than the session's.
    ///
    /// # Errors
    /// As [`Agentline::run`].
    pub async fn prompt_with(&self, mut request: RunRequest) -> Result<Run, Error> {
        let agent = self.agentline.roster().find(&self.request.agent).map_err(Problems::from)?;
        Problems(agent.unenforced_in_session(&self.request, &request)).into_result()?;
        let _turn = self.turn.lock().await;
        let before = self.live.wait_for(|state| state.seats == 0).await;
        request.surface = Some(Surface::Acp);
        // The session is open; only a new process would load a stored one.
        request.resume = None;
        request.session_id = None;
        request.record = None;
        let notices = std::mem::take(&mut request.notices);
        let same_servers = request.mcp_servers == self.request.mcp_servers
            && request.mcp_settings_path == self.request.mcp_settings_path;
        let home = Arc::clone(&self.live.agent_home);
        let (mut options, sides) = (self.options.clone(), self.sides.clone());
        if request.output_schema != self.request.output_schema {
            options.schema = None;
        }
        let asked = request.clone();
        let work = move |inner: &Inner| inner.make_trip(request, &home, &options, sides);
        let Some(made) = self.agentline.blocking_within(preparation_time(&asked), work).await else {
            return Ok(Run::over(not_ready_in_time(&asked)));
        };
        let run = match made? {
            Ok(mut trip) => {
                trip.order.session = Want::Open(self.id.clone());
                if same_servers {
                    // The session has them, behind relays of ours.
                    trip.order.servers.clear();
                }
                let run = self.live.run(*trip, Tell::AtOnce);
                // The next prompt looks whether somebody has the seat; so it is taken before that one may look.
                self.live.wait_for(|state| state.served > before.served).await;
                run
            }
            Err(outcome) => Run::over(*outcome),
        };
        Ok(run.with_notices(notices))
    }

    /// Ends the conversation and waits until the agent and everything that it started are gone.
    pub async fn close(self) {
        self.live.close().await;
        if let Some(sides) = &self.sides {
            sides.close().await;
        }
    }
}
