//! Serves a client with an agent whose own surface is translated.

use crate::{
    budget::SharedBudget,
    conversation::AcpConversation,
    failure::{ErrorResponse, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND},
    history,
    params::{self, OneSession, OpenSession},
    peer::ClientPeer,
    read::read_frame,
    record::resolved,
    sessions::{HeldAgents, HeldTicket, KnownSession, ServeEnd},
    workspace::{Workspace, WorkspaceSettings},
};
use agentline_core::{AgentInfo, Surface, rpc::RpcMessage};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc::Receiver},
    task::JoinSet,
};

/// The version of the protocol.
const PROTOCOL: u64 = 1;
/// How many sessions a client may have open. Each has a process of its own.
const SESSIONS: usize = 16;
const FULL: &str = "too many sessions are open in this connection; close one with `session/close`";

/// The sessions of one client, and the requests in progress.
pub(crate) struct NativeAgent {
    sessions: NativeSessions,
    first: Workspace,
    tasks: JoinSet<()>,
}

/// The sessions of one client. Cheap to clone.
#[derive(Clone)]
struct NativeSessions {
    settings: WorkspaceSettings,
    peer: ClientPeer,
    budget: SharedBudget,
    /// Where agents wait for a client, if they do.
    held: Option<HeldAgents>,
    conversations: Arc<Mutex<HashMap<String, OpenConversation>>>,
    slots: Arc<Semaphore>,
    /// The number of tapes.
    tapes: Arc<AtomicU32>,
}

/// An open session, and its slot.
struct OpenConversation {
    conversation: Arc<AcpConversation>,
    slot: OwnedSemaphorePermit,
}

/// A request that is carried out in a task of its own.
type RequestTask = std::pin::Pin<Box<dyn Future<Output = Result<Value, ErrorResponse>> + Send>>;

impl NativeAgent {
    pub(crate) fn new(
        settings: WorkspaceSettings,
        peer: ClientPeer,
        first: Workspace,
        held: Option<HeldAgents>,
    ) -> Self {
        let (budget, conversations) = (SharedBudget::default(), Arc::default());
        let slots = Arc::new(Semaphore::new(SESSIONS));
        let tapes = Arc::default();
        let sessions = NativeSessions { settings, peer, budget, held, conversations, slots, tapes };
        Self { sessions, first, tasks: JoinSet::new() }
    }

    pub(crate) fn peer(&self) -> &ClientPeer {
        &self.sessions.peer
    }

    /// Serves a client from this frame on, until it disconnects.
    pub(crate) async fn serve(
        &mut self,
        first: Option<Vec<u8>>,
        incoming: &mut Receiver<Vec<u8>>,
    ) -> ServeEnd {
        let mut next = first;
        loop {
            let frame = match next.take() {
                Some(frame) => Some(frame),
                None => incoming.recv().await,
            };
            let Some(frame) = frame else { return ServeEnd::Disconnected };
            if let Some(to) = self.frame(&frame).await {
                return ServeEnd::Moves { to, frame };
            }
            while self.tasks.try_join_next().is_some() {}
        }
    }

    /// Ends everything that was started for the client.
    pub(crate) async fn close(mut self) {
        // Aborting the requests stops their runs.
        self.tasks.shutdown().await;
        self.sessions.close_all().await;
    }

    /// Handles a frame. Returns the agent that the client gets instead of this one, if there is one.
    async fn frame(&mut self, frame: &[u8]) -> Option<HeldTicket> {
        let sessions = &self.sessions;
        let (message, _) = read_frame(&sessions.peer, frame)?;
        match message {
            RpcMessage::Request { id, method, params } => {
                let task = match sessions.known(&method, params).await {
                    Ok(KnownSession::Held(ticket)) => return Some(ticket),
                    Ok(KnownSession::Here(session)) => sessions.show_again(session, method == "session/load"),
                    Ok(KnownSession::Unknown) => sessions.request(&method, params, &self.first),
                    Err(error) => ready(Err(error)),
                };
                let (peer, id, client) =
                    (sessions.peer.clone(), id.to_owned(), sessions.peer.client_number());
                self.tasks.spawn(async move { peer.respond_to(client, &id, task.await) });
            }
            RpcMessage::Notification { method, params } if method == "session/cancel" => {
                if let Ok(conversation) = sessions.named(params) {
                    conversation.cancel();
                }
            }
            RpcMessage::Notification { .. } => {}
            RpcMessage::Response { id, result } => {
                let answer = result.map(ToOwned::to_owned).map_err(|error| error.message.into_owned());
                sessions.peer.answered(id, answer);
            }
        }
        None
    }
}

impl NativeSessions {
    /// Returns where a session is that the client opens again, if agents wait for clients.
    async fn known(&self, method: &str, params: &RawValue) -> Result<KnownSession, ErrorResponse> {
        match &self.held {
            Some(held) if matches!(method, "session/load" | "session/resume") => {
                held.find(&params::read(params)?, self.peer.records()).await
            }
            _ => Ok(KnownSession::Unknown),
        }
    }

    /// Replays an open session to the client, and responds once no prompt is active in it.
    fn show_again(&self, session: String, replays: bool) -> RequestTask {
        if replays {
            self.peer.replay(&session);
        }
        let conversation = self.find(&session);
        Box::pin(async move {
            let conversation = conversation?;
            conversation.idle().await;
            Ok(json!({"modes": conversation.modes()}))
        })
    }

    /// Begins a request. The part that must precede the next frame is done at once, and the rest in the returned future.
    fn request(&self, method: &str, params: &RawValue, first: &Workspace) -> RequestTask {
        let this = self.clone();
        match method {
            "initialize" => ready(Ok(initialized(first, self.held.is_some()))),
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
                    self.peer.records().close(conversation.id());
                    self.remove(conversation.id())
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
        let of_settings = workspace.clone();
        self.peer.add_redactor(&blocking(move || of_settings.redactor()).await?);
        let slot = self.take_slot(resumed.as_deref()).await?;
        workspace.number_tape(self.tapes.fetch_add(1, Ordering::Relaxed) + 1);
        if let Some(id) = &resumed {
            self.begin_record(id, &params.cwd);
        }
        if let (Some(id), true) = (&resumed, replays) {
            self.replay(&workspace, id.clone(), params.cwd.clone()).await?;
        }
        let opened = AcpConversation::open(workspace, self.peer.clone(), self.budget.clone()).await;
        let conversation = opened.inspect_err(|_| {
            if let Some(id) = &resumed {
                self.peer.records().close(id);
            }
        })?;
        let mut result = json!({"modes": conversation.modes()});
        if resumed.is_none() {
            self.begin_record(conversation.id(), &params.cwd);
            result["sessionId"] = conversation.id().into();
        }
        let id = conversation.id().to_owned();
        let open = OpenConversation { conversation: Arc::new(conversation), slot };
        self.lock().insert(id, open);
        Ok(result)
    }

    /// Returns a slot for a session. If the session is already open, it ends: an agent must not have one session twice.
    async fn take_slot(&self, session: Option<&str>) -> Result<OwnedSemaphorePermit, ErrorResponse> {
        let open = session.and_then(|id| self.lock().remove(id));
        if let Some(OpenConversation { conversation, slot }) = open {
            conversation.cancel();
            close(Some(conversation)).await;
            return Ok(slot);
        }
        let full = |_| ErrorResponse::new(INVALID_REQUEST, FULL);
        Arc::clone(&self.slots).try_acquire_owned().map_err(full)
    }

    /// Begins the record of a session, if agents wait for clients.
    fn begin_record(&self, session: &str, directory: &Path) {
        if self.held.is_some() {
            self.peer.records().open(session, resolved(directory), Value::Null);
        }
    }

    async fn replay(&self, workspace: &Workspace, id: String, cwd: PathBuf) -> Result<(), ErrorResponse> {
        let (agentline, agent) = (workspace.agentline.clone(), workspace.request.agent.to_string());
        let session = id.clone();
        let updates = blocking(move || history::updates(&agentline, &agent, &session, &cwd)).await?;
        for update in updates {
            self.peer.update(&id, &update);
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
        let found = self.lock().get(id).map(|open| Arc::clone(&open.conversation));
        found.ok_or_else(|| ErrorResponse::unknown_session(id))
    }

    fn remove(&self, id: &str) -> Option<Arc<AcpConversation>> {
        self.lock().remove(id).map(|open| open.conversation)
    }

    async fn close_all(&self) {
        let all: Vec<_> = self.lock().drain().map(|(_, open)| open.conversation).collect();
        let mut closing = JoinSet::new();
        for conversation in all {
            closing.spawn(close(Some(conversation)));
        }
        closing.join_all().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OpenConversation>> {
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

fn initialized(first: &Workspace, holds: bool) -> Value {
    let resumes = holds
        || first.find_agent().is_some_and(|agent| {
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
            "sessionCapabilities": if resumes { json!({"close": {}, "resume": {}}) } else { json!({"close": {}}) },
        },
        "authMethods": [],
    })
}
