//! The prompts of a client: each is a run, whose outcome becomes a part of the response.

use super::{ProxiedAgent, request_ids::AgentRequest};
use crate::{
    failure::ErrorResponse,
    frame,
    params::{self, OneSession},
    result::{has_too_many_turns, meta},
    running_agent::PromptToSend,
};
use agentline::{Error, Outcome, Verdict};
use serde_json::{json, value::RawValue};
use tokio::sync::watch;

/// The end of a prompt: the id of its request, and the outcome.
pub(super) type PromptEnd = (String, Result<Box<Outcome>, Error>);

/// A prompt in progress.
pub(super) struct ProxiedPrompt {
    pub(super) session: String,
    /// Whether its client has disconnected, so that its response is not sent.
    pub(super) is_orphaned: bool,
    stop: watch::Sender<bool>,
    /// The agent's response, until the outcome is known.
    pub(super) response: Option<String>,
}

impl ProxiedAgent {
    /// Sends a prompt as a run, within the remaining budget.
    pub(super) fn prompt(
        &mut self,
        id: &RawValue,
        params: &RawValue,
        text: &str,
    ) -> Result<(), ErrorResponse> {
        let params: OneSession = params::read(params)?;
        let limits = self.budget.remaining(&self.workspace.request.limits).map_err(ErrorResponse::used_up)?;
        let Some(agent) = &self.agent else { return Err(ErrorResponse::unknown_session(&params.session_id)) };
        let prompts = agent.process.prompts();
        let (stop, cancelled) = watch::channel(false);
        let session = params.session_id;
        if self.reconnectable.is_some() {
            self.peer.record_prompt(&session, &params.prompt);
        }
        let AgentRequest { key: id, text } = self.for_agent(id, text);
        let sent = PromptToSend { prompts, session: session.clone(), text: text.into_owned(), limits };
        let prompt = ProxiedPrompt { session, is_orphaned: false, stop, response: None };
        self.prompts.insert(id.clone(), prompt);
        self.ended.spawn(async move { (id, sent.run(cancelled).await.map(Box::new)) });
        Ok(())
    }

    /// Cancels the runs of a session. The agent gets the client's own notification.
    pub(super) fn cancel(&self, params: &RawValue) {
        let Ok(params) = params::read::<OneSession>(params) else { return };
        for prompt in self.prompts.values().filter(|prompt| prompt.session == params.session_id) {
            prompt.stop.send_replace(true);
        }
    }

    /// Responds to a prompt, whose outcome is known by now.
    pub(super) fn prompt_ended(&mut self, (id, end): PromptEnd) {
        self.catch_up();
        let Some(mut prompt) = self.prompts.remove(&id) else { return };
        self.release_rests();
        let of_client = self.ids.of_client(&id).to_owned();
        match prompt.response.take() {
            Some(response) => prompt.response = Some(self.ids.restored(&id, response)),
            // It may still come.
            None => self.ids.add_late(id),
        }
        if let Ok(outcome) = &end {
            self.budget.add(outcome);
        }
        let session = prompt.session.clone();
        if !prompt.is_orphaned {
            self.respond_to_prompt(&of_client, prompt, end);
        }
        self.session_is_idle(&session);
    }

    fn respond_to_prompt(&self, id: &str, prompt: ProxiedPrompt, end: Result<Box<Outcome>, Error>) {
        let Ok(request) = serde_json::from_str::<&RawValue>(id) else { return };
        let outcome = match end {
            Ok(outcome) => outcome,
            Err(error) => return self.peer.respond::<()>(request, Err(error.into())),
        };
        let is_stopped = matches!(outcome.verdict, Verdict::LimitReached | Verdict::TimedOut);
        match prompt.response {
            _ if outcome.verdict == Verdict::LimitReached && has_too_many_turns(&outcome) => {
                let result = json!({"stopReason": "max_turn_requests", "_meta": meta(&outcome)});
                self.peer.respond(request, Ok(result));
            }
            Some(response) if frame::is_error(&response) => self.peer.send_as_is(response),
            Some(response) if !is_stopped => {
                let response = frame::with_meta(&response, &meta(&outcome)).unwrap_or(response);
                self.peer.send(&response);
            }
            _ => self.peer.respond::<()>(request, Err(ErrorResponse::of_outcome(&outcome))),
        }
    }
}
