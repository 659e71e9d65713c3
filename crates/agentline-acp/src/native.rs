//! Serves a client with an agent whose own surface is translated.

use crate::{
    budget::SharedBudget,
    conversation::AcpConversation,
    failure::{ErrorResponse, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND},
    history,
    params::{self, OneSession, OpenSession},
    peer::ClientPeer,
    read::read_frame,
    workspace::{Workspace, WorkspaceSettings},
};
use agentline_core::{AgentInfo, Surface, rpc::RpcMessage};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::mpsc::Receiver, task::JoinSet};

/// The version of the protocol.
const PROTOCOL: u64 = 1;

/// The sessions of one client.
#[derive(Clone)]
pub(crate) struct NativeAgent {
    settings: WorkspaceSettings,
    peer: ClientPeer,
    budget: SharedBudget,
    conversations: Arc<Mutex<HashMap<String, Arc<AcpConversation>>>>,
}

/// A request that is carried out in a task of its own.
type RequestTask = std::pin::Pin<Box<dyn Future<Output = Result<Value, ErrorResponse>> + Send>>;

impl NativeAgent {
    pub(crate) fn new(settings: WorkspaceSettings, peer: ClientPeer) -> Self {
        Self { settings, peer, budget: SharedBudget::default(), conversations: Arc::default() }
    }

    /// Serves the client until it disconnects, and ends everything that was started for it.
    pub(crate) async fn serve(&self, first: &Workspace, incoming: &mut Receiver<Vec<u8>>) {
        let mut tasks = JoinSet::new();
        while let Some(frame) = incoming.recv().await {
            self.frame(&frame, first, &mut tasks);
            while tasks.try_join_next().is_some() {}
        }
        // Aborting the requests stops their runs.
        tasks.shutdown().await;
        self.close_all().await;
    }

    fn frame(&self, frame: &[u8], first: &Workspace, tasks: &mut JoinSet<()>) {
        let Some((message, _)) = read_frame(&self.peer, frame) else { return };
        match message {
            RpcMessage::Request { id, method, params } => {
                let (peer, id) = (self.peer.clone(), id.to_owned());
                let task = self.request(&method, params, first);
                tasks.spawn(async move { peer.respond(&id, task.await) });
            }
            RpcMessage::Notification { method, params } if method == "session/cancel" => {
                if let Ok(conversation) = self.named(params) {
                    conversation.cancel();
                }
            }
            RpcMessage::Notification { .. } => {}
            RpcMessage::Response { id, result } => {
                let answer = result.map(ToOwned::to_owned).map_err(|error| error.message.into_owned());
                self.peer.answered(id, answer);
            }
        }
    }

    /// Begins a request. What must happen before the next frame happens here, and the rest in the returned future.
    fn request(&self, method: &str, params: &RawValue, first: &Workspace) -> RequestTask {
        let this = self.clone();
        match method {
            "initialize" => ready(Ok(initialized(first))),
            "session/new" | "session/load" | "session/resume" => {
                let (params, replays) = (params::read(params), method == "session/load");
                Box::pin(async move { this.open(params?, replays).await })
            }
            "session/prompt" => {
                let begun = params::read::<OneSession>(params).and_then(|params| {
                    let prompt = self.find(&params.session_id)?.begin()?;
                    Ok((prompt, params.prompt))
                });
                Box::pin(async move {
                    let (prompt, blocks) = begun?;
                    prompt.run(blocks).await
                })
            }
            "session/set_mode" => ready(self.set_mode(params)),
            "session/close" => {
                let closed = self.named(params).map(|conversation| {
                    conversation.cancel();
                    self.lock().remove(conversation.id())
                });
                Box::pin(async move {
                    close(closed?).await;
                    Ok(json!({}))
                })
            }
            method => ready(Err(ErrorResponse::new(METHOD_NOT_FOUND, format!("method not found: {method}")))),
        }
    }

    async fn open(self, mut params: OpenSession, replays: bool) -> Result<Value, ErrorResponse> {
        let servers = params.servers()?;
        let mut workspace = self.settings.of_client(&params.cwd)?;
        workspace.request.mcp_servers.extend(servers);
        workspace.request.resume.clone_from(&params.session_id);
        let resumed = params.session_id.clone();
        let redactor = workspace.agentline.clone();
        let redactor = blocking(move || redactor.redactor()).await?;
        self.peer.set_redactor(redactor);
        if let Some(id) = &resumed {
            // An agent must not have one session twice.
            let open = self.lock().remove(id);
            close(open).await;
        }
        if let (Some(id), true) = (&resumed, replays) {
            self.replay(&workspace, id.clone(), params.cwd).await?;
        }
        let conversation = AcpConversation::open(workspace, self.peer.clone(), self.budget.clone()).await?;
        let mut result = json!({"modes": conversation.modes()});
        if resumed.is_none() {
            result["sessionId"] = conversation.id().into();
        }
        // An agent may give a resumed session another id. The client knows the one that it has loaded.
        let id = resumed.unwrap_or_else(|| conversation.id().to_owned());
        self.lock().insert(id, Arc::new(conversation));
        Ok(result)
    }

    async fn replay(&self, workspace: &Workspace, id: String, cwd: PathBuf) -> Result<(), ErrorResponse> {
        let (agentline, agent) = (workspace.agentline.clone(), workspace.request.agent.to_string());
        let session = id.clone();
        let updates = blocking(move || history::updates(&agentline, &agent, &session, &cwd)).await?;
        for update in updates {
            self.peer.notify("session/update", &json!({"sessionId": id, "update": update}));
            self.peer.wait_for_room().await;
        }
        Ok(())
    }

    fn set_mode(&self, params: &RawValue) -> Result<Value, ErrorResponse> {
        let params: OneSession = params::read(params)?;
        let mode = params.mode_id.ok_or_else(|| ErrorResponse::new(INVALID_PARAMS, "`modeId` is missing"))?;
        self.find(&params.session_id)?.set_mode(&mode)
    }

    fn named(&self, params: &RawValue) -> Result<Arc<AcpConversation>, ErrorResponse> {
        self.find(&params::read::<OneSession>(params)?.session_id)
    }

    fn find(&self, id: &str) -> Result<Arc<AcpConversation>, ErrorResponse> {
        self.lock().get(id).cloned().ok_or_else(|| ErrorResponse::unknown_session(id))
    }

    async fn close_all(&self) {
        let all: Vec<_> = self.lock().drain().map(|(_, conversation)| conversation).collect();
        let mut closing = JoinSet::new();
        for conversation in all {
            closing.spawn(close(Some(conversation)));
        }
        closing.join_all().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<AcpConversation>>> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a conversation. If a prompt still uses it, the conversation ends with the prompt.
async fn close(conversation: Option<Arc<AcpConversation>>) {
    if let Some(conversation) = conversation.and_then(Arc::into_inner) {
        conversation.close().await;
    }
}

fn ready(result: Result<Value, ErrorResponse>) -> RequestTask {
    Box::pin(std::future::ready(result))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ErrorResponse> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ErrorResponse::new(INTERNAL_ERROR, error.to_string()))
}

fn initialized(first: &Workspace) -> Value {
    let resumes = first.find_agent().is_some_and(|agent| {
        let info: AgentInfo<'_> = agent.info();
        let surface = first.request.surface.or_else(|| info.surfaces.first().copied());
        agent.abilities(surface.unwrap_or(Surface::Acp), None).resumes
    });
    let title = first.find_agent().map(|agent| agent.info().title.to_owned());
    json!({
        "protocolVersion": PROTOCOL,
        "agentInfo": {
            "name": first.request.agent.to_string(),
            "title": title,
            "version": env!("CARGO_PKG_VERSION"),
        },
        "agentCapabilities": {
            "loadSession": resumes,
            "promptCapabilities": {"image": false, "audio": false, "embeddedContext": true},
            "mcpCapabilities": {"http": true, "sse": false},
            "sessionCapabilities": {"close": {}},
        },
        "authMethods": [],
    })
}
