//! The process of an agent that speaks ACP itself, and the prompts that are sent to it.

use crate::{
    failure::ErrorResponse, peer::ClientPeer, record::resolved, redaction::FrameRedactor,
    workspace::Workspace,
};
use agentline::{AcpProcess, AcpPrompts, Error, Limits, Outcome};
use std::{collections::BTreeSet, path::PathBuf};
use tokio::sync::watch;

/// How many bytes may wait for the first responses of an agent that replaces another one.
const MOST_WAITING: usize = 8 << 20;

/// The process of the agent.
pub(crate) struct RunningAgent {
    pub(crate) process: AcpProcess,
    pub(crate) directory: PathBuf,
    pub(crate) redactor: FrameRedactor,
    /// Whether the client has opened a session on this process.
    pub(crate) is_used: bool,
    /// The repeated requests whose responses the client already has.
    pub(crate) repeated: BTreeSet<String>,
    /// The frames that wait for these responses.
    pub(crate) waiting: Vec<String>,
}

impl RunningAgent {
    pub(crate) async fn start(workspace: &Workspace) -> Result<Self, ErrorResponse> {
        let process = workspace.agentline.acp_process(workspace.request.clone()).await?;
        let redactor = FrameRedactor::new(process.redactor());
        Ok(Self {
            redactor,
            process,
            directory: directory_of(workspace),
            is_used: false,
            repeated: BTreeSet::new(),
            waiting: Vec::new(),
        })
    }

    /// Returns whether so much waits for the agent that the client must wait.
    pub(crate) fn is_full(&self) -> bool {
        self.process.is_full() || self.waiting.iter().map(String::len).sum::<usize>() > MOST_WAITING
    }
}

/// A prompt before its run.
pub(crate) struct PromptToSend {
    pub(crate) prompts: AcpPrompts,
    pub(crate) session: String,
    pub(crate) text: String,
    pub(crate) limits: Limits,
}

impl PromptToSend {
    pub(crate) async fn run(self, mut cancelled: watch::Receiver<bool>) -> Result<Outcome, Error> {
        let run = self.prompts.send(self.session, self.text, self.limits).await?;
        drop(self.prompts);
        let canceller = run.canceller();
        let mut outcome = std::pin::pin!(run.outcome());
        tokio::select! {
            outcome = &mut outcome => return Ok(outcome),
            _ = cancelled.wait_for(|stop| *stop) => canceller.cancel(),
        }
        Ok(outcome.await)
    }
}

/// Waits for the next frame of the agent, while the client reads.
pub(crate) async fn next_of_agent(peer: &ClientPeer, agent: &mut Option<RunningAgent>) -> Option<String> {
    match agent {
        Some(agent) => {
            peer.wait_for_room().await;
            agent.process.next().await
        }
        None => std::future::pending().await,
    }
}

/// Returns the directory of a workspace, with links resolved where that is possible.
pub(crate) fn directory_of(workspace: &Workspace) -> PathBuf {
    resolved(&workspace.request.working_dir.clone().unwrap_or_default())
}
