//! The open conversations of a host.

use crate::host::{messages::RpcError, work_guard::WorkGuard};
use crate::{fs::private_dir::PrivateDir, run::session::Session};
use agentline_core::Problem;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The open conversations by name.
#[derive(Default)]
pub(super) struct Conversations {
    open: Mutex<HashMap<String, Conversation>>,
}

/// An open conversation.
#[derive(Clone)]
pub(super) struct Conversation {
    pub(super) session: Arc<Session>,
    /// Attachments that were sent in `session/open`.
    pub(super) _sent: Option<Arc<PrivateDir>>,
    /// An open conversation keeps the daemon alive.
    pub(super) _work: Option<Arc<WorkGuard>>,
}

impl Conversations {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Conversation>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open conversation.
    pub(super) fn find(&self, name: &str) -> Result<Conversation, RpcError> {
        self.lock().get(name).cloned().ok_or_else(|| {
            let problem = Problem::new("session", format!("no open conversation `{name}`"));
            RpcError::usage(&[problem.hint("open one with `session/open`")])
        })
    }

    /// Closes all conversations.
    pub(super) async fn close_all(&self) {
        let all: Vec<Conversation> = self.lock().drain().map(|(_, conversation)| conversation).collect();
        for conversation in all {
            conversation.close().await;
        }
    }
}

impl Conversation {
    /// Ends the agent. If a prompt is active, the session is dropped when that prompt ends.
    pub(super) async fn close(self) {
        if let Some(session) = Arc::into_inner(self.session) {
            session.close().await;
        }
    }
}
