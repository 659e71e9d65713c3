//! Opens, continues and closes the conversations of a host.

use crate::host::{
    messages::{EventFilter, RpcError, RunParams, SessionOpened, SessionPrompt},
    open_conversations::Conversation,
    run_stop::RunStop,
    runs::{Reporting, run_response},
    serve::Host,
};
use crate::run::messages::Completer;
use agentline_core::Problem;
use serde_json::value::RawValue;
use std::sync::Arc;

impl Host {
    /// Opens a conversation. Cancelling ends its agent.
    pub(super) async fn open(
        &self,
        run: &Arc<str>,
        params: RunParams,
        stop: &RunStop,
    ) -> Result<SessionOpened, RpcError> {
        refuse_fields_of_runs(&params)?;
        let mut host_run = self.host_run(run, params)?;
        // The warnings apply to every prompt of the conversation.
        host_run.request.notices = std::mem::take(&mut host_run.notices);
        let session = tokio::select! {
            session = host_run.agentline.session_with(host_run.request, host_run.options) => session?,
            _ = stop.cancelled() => {
                let message = "the conversation was cancelled before it was opened";
                return Err(RpcError::new(RpcError::CANCELLED, message));
            }
        };
        let opened =
            SessionOpened { session: uuid::Uuid::new_v4().to_string(), session_id: session.id().to_owned() };
        let conversation = Conversation {
            session: Arc::new(session),
            _sent: host_run.sent.map(Arc::new),
            _work: self.begin_work().map(Arc::new),
        };
        self.conversations.lock().insert(opened.session.clone(), conversation);
        Ok(opened)
    }

    /// Sends a prompt in a conversation.
    pub(super) async fn prompt(
        &self,
        run: &Arc<str>,
        params: SessionPrompt,
        stop: &RunStop,
    ) -> Result<Box<RawValue>, RpcError> {
        let conversation = self.conversations.find(&params.session)?;
        let completer = params.messages.then(|| Completer::new(&self.agentline(), &params.prompt));
        let started = conversation.session.prompt(params.prompt).await?;
        let reporting = Reporting { events: params.events, merge: true, launch: false, lines: None };
        let (outcome, messages) = self.follow(run, &reporting, started, completer, stop).await;
        run_response(outcome, messages.as_ref(), &[])
    }

    /// Closes a conversation and waits until its agent has exited, unless a prompt is still active.
    pub(super) async fn close(&self, name: &str) -> Result<(), RpcError> {
        let conversation = self.conversations.find(name)?;
        self.conversations.lock().remove(name);
        conversation.close().await;
        Ok(())
    }
}

/// Refuses the fields of `run` that have no effect in `session/open`.
fn refuse_fields_of_runs(params: &RunParams) -> Result<(), RpcError> {
    let of_prompt = "pass it with each prompt";
    let of_run = "omit it, or use a run";
    let problems: Vec<Problem> = [
        ("events", params.events != EventFilter::default(), of_prompt),
        ("messages", params.messages, of_prompt),
        ("view", params.view.is_some(), of_run),
        ("lines", params.lines, of_run),
        ("warm", params.warm.is_some(), of_run),
        ("max_retries", params.max_retries.is_some(), of_run),
        ("max_retry_wait_s", params.max_retry_wait_s.is_some(), of_run),
        ("merge_events", params.merge_events.is_some(), of_run),
        ("report_launch", params.report_launch, of_run),
    ]
    .into_iter()
    .filter(|(_, is_set, _)| *is_set)
    .map(|(name, _, hint)| Problem::new(name, "has no effect in a conversation").hint(hint))
    .collect();
    if problems.is_empty() { Ok(()) } else { Err(RpcError::usage(&problems)) }
}
