//! The conversations of a host.

use crate::host::{
    messages::{RpcError, RunParams, SessionOpened, SessionPrompt},
    run_stop::RunStop,
    runs::{Reporting, run_response},
    serve::{Host, WorkGuard},
};
use crate::{
    fs::private_dir::PrivateDir,
    run::{messages::Completer, session::Session},
};
use agentline_core::Problem;
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The open conversations by name.
#[derive(Default)]
pub(super) struct Conversations {
    open: Mutex<HashMap<String, Conversation>>,
}

#[derive(Clone)]
struct Conversation {
    session: Arc<Session>,
    /// Attachments that were sent in `session/open`.
    _sent: Option<Arc<PrivateDir>>,
    /// An open conversation keeps the daemon alive.
    _work: Option<Arc<WorkGuard>>,
}

impl Conversations {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Conversation>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> Result<Conversation, RpcError> {
        self.lock().get(name).cloned().ok_or_else(|| {
            let problem = Problem::new("session", format!("no open conversation `{name}`"));
            RpcError::usage(&[problem.hint("open one with `session/open`")])
        })
    }

    /// Closes all conversations.
    pub(super) async fn close_all(&self) {
        let all: Vec<Conversation> = self.lock().drain().map(|(_, conversation)| conversation).collect();
        for conversation in all {
            close(conversation).await;
        }
    }
}

async fn close(conversation: Conversation) {
    // If a prompt is active, the session is dropped when that prompt ends.
    if let Some(session) = Arc::into_inner(conversation.session) {
        session.close().await;
    }
}

impl Host {
    /// Opens a conversation. Cancelling ends its agent.
    pub(super) async fn open(
        &self,
        run: &Arc<str>,
        params: RunParams,
        stop: &RunStop,
    ) -> Result<SessionOpened, RpcError> {
        let mut host_run = self.host_run(run, params)?;
        // The warnings apply to every prompt of the conversation.
        host_run.request.notices = std::mem::take(&mut host_run.notices);
        let session = tokio::select! {
            session = host_run.agentline.session_with(host_run.request, host_run.options) => session?,
            _ = stop.cancelled() => {
                let message = "the conversation was cancelled before it was open";
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
        let going = conversation.session.prompt(params.prompt).await?;
        let reporting = Reporting { events: params.events, merge: true, launch: false };
        let (outcome, messages) = self.follow(run, &reporting, going, completer, stop).await;
        run_response(outcome, messages.as_ref(), &[], None)
    }

    /// Closes a conversation and waits until its agent has exited, unless a prompt is still active.
    pub(super) async fn close(&self, name: &str) -> Result<(), RpcError> {
        let conversation = self.conversations.find(name)?;
        self.conversations.lock().remove(name);
        close(conversation).await;
        Ok(())
    }
}
