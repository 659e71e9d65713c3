//! One ACP client on a WebSocket: one message per text frame.

use crate::{
    acp_audit,
    acp_rules::{AcpCheck, AcpRules, limited, refused_binary},
    acp_servers::{AcpSlot, ServedAcpAgent},
    app::{App, Sender},
};
use agentline_acp::AcpTransport;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc::{self, Receiver, channel};

/// How many frames wait in each direction.
const FRAMES: usize = 64;
/// How long the last frames may take.
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// Serves a client until it disconnects, does not read or answer any more, is signed out, or the server stops.
pub(crate) async fn serve(
    socket: WebSocket,
    app: Arc<App>,
    sender: Sender,
    agent: ServedAcpAgent,
    slot: AcpSlot,
) {
    let (to_client, from_client) = socket.split();
    let (to_agent, incoming) = channel(FRAMES);
    let (outgoing, frames) = channel(FRAMES);
    let mut writing = tokio::spawn(write(to_client, frames, app.limits.heartbeat));
    let transport = AcpTransport::new(incoming, outgoing.clone());
    let ServedAcpAgent { server, id, directory } = agent;
    let mut serving = tokio::spawn(async move { server.serve(directory, transport).await });
    let signed_out = sender.clone().signed_out();
    let client = Arc::new(AcpClient { app, sender, agent: id, has_session: AtomicBool::new(false) });
    let has_ended = tokio::select! {
        _ = &mut serving => true,
        _ = &mut writing => false,
        () = client.read(from_client, to_agent, outgoing) => false,
        () = slot.stopping.cancelled() => false,
        () = signed_out => false,
    };
    // The channel of the client's frames is closed by now, so the agent ends or waits for another client.
    if !has_ended {
        let _ = serving.await;
    }
    if !writing.is_finished() && tokio::time::timeout(LAST_FRAMES, &mut writing).await.is_err() {
        writing.abort();
    }
    drop(slot);
}

struct AcpClient {
    app: Arc<App>,
    sender: Sender,
    agent: String,
    /// Whether the client has opened a session, so that its agent counts as in use.
    has_session: AtomicBool,
}

impl AcpClient {
    /// Passes on the frames of the client until it disconnects, exceeds its rates, or is silent for too long: it must
    /// answer pings.
    async fn read(
        self: Arc<Self>,
        mut frames: SplitStream<WebSocket>,
        to_agent: mpsc::Sender<Vec<u8>>,
        to_client: mpsc::Sender<Vec<u8>>,
    ) {
        let limits = &self.app.limits;
        let silence = limits.write_timeout.max(limits.heartbeat * 3);
        while let Ok(Some(Ok(message))) = tokio::time::timeout(silence, frames.next()).await {
            if !self.is_within_rates(&message) {
                let refusal = limited("null", "too many messages or bytes with this token; wait a minute");
                // The client may not read.
                let _ = to_client.try_send(refusal.into_bytes());
                return;
            }
            let refusal = match message {
                Message::Text(text) => match self.check(&text).await {
                    AcpCheck::Refused(refusal) => refusal,
                    _ if to_agent.send(text.as_bytes().to_vec()).await.is_err() => return,
                    _ => None,
                },
                Message::Binary(_) => Some(refused_binary()),
                Message::Ping(_) | Message::Pong(_) => None,
                Message::Close(_) => return,
            };
            if let Some(refusal) = refusal
                && to_client.send(refusal.into_bytes()).await.is_err()
            {
                return;
            }
        }
    }

    fn is_within_rates(&self, message: &Message) -> bool {
        let size = match message {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
            Message::Close(_) => return true,
        };
        let name = &self.sender.token.name;
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.app.acp_messages.take(name.clone()) && self.app.acp_bytes.take_many(name.clone(), size)
    }

    /// Checks a message, and records in the audit log what it starts, answers or ends. On a thread that may block: it reads
    /// the file system, writes the log, and a message can be large.
    async fn check(self: &Arc<Self>, text: &Utf8Bytes) -> AcpCheck {
        let (client, text) = (Arc::clone(self), text.clone());
        let checking = tokio::task::spawn_blocking(move || client.check_now(&text)).await;
        // A message whose check failed is not passed on.
        checking.unwrap_or(AcpCheck::Refused(None))
    }

    fn check_now(&self, text: &str) -> AcpCheck {
        let token = &self.sender.token;
        let check = AcpRules { roots: &self.app.roots, policy: &token.policy }.check(text);
        if let AcpCheck::Request(id) | AcpCheck::Opens(id, _) = &check
            && !self.app.changes.take(token.name.clone())
        {
            return AcpCheck::Refused(Some(limited(id, "too many changes with this token; wait a minute")));
        }
        let (id, opened) = match &check {
            AcpCheck::Opens(id, opened) => (id, opened),
            AcpCheck::Refused(_) => return check,
            AcpCheck::Pass | AcpCheck::Request(_) => {
                if let Some((action, about)) = acp_audit::entry(&self.agent, text) {
                    self.record_message(&check, action, about);
                }
                return check;
            }
        };
        if !self.has_session.load(Ordering::Relaxed) {
            // The load of a kept session may fail, and then the next session is checked again.
            let has_slot = self.app.acp.has_slot(token);
            if !has_slot && !self.app.acp.is_kept(token, &self.agent, opened.continued.as_deref()) {
                let message =
                    "too many agents of this token are in use; load a session that is kept, or wait";
                return AcpCheck::Refused(Some(limited(id, message)));
            }
            self.has_session.store(has_slot, Ordering::Relaxed);
        }
        let directory = opened.directory.to_string_lossy();
        let about = json!({"agent": self.agent, "method": opened.method, "working_dir": directory});
        self.record("acp_session", about);
        check
    }

    /// Records a message. A client that sends many does not replace the whole log.
    fn record_message(&self, check: &AcpCheck, action: &str, about: Value) {
        let token = &self.sender.token.name;
        if *check != AcpCheck::Pass || self.app.acp_audited.take(token.clone()) {
            self.record(action, about);
        } else if self.app.acp_suppressed.take(token.clone()) {
            self.record("acp_suppressed", json!({"agent": self.agent}));
        }
    }

    fn record(&self, action: &str, about: Value) {
        self.app.audit.record_blocking(&self.sender.token.name, self.sender.remote, action, about);
    }
}

/// Sends frames to the client, and pings, until there are no more or the client does not read.
async fn write(
    mut to_client: SplitSink<WebSocket, Message>,
    mut frames: Receiver<Vec<u8>>,
    heartbeat: Duration,
) {
    let mut pings = tokio::time::interval(heartbeat);
    loop {
        let message = tokio::select! {
            frame = frames.recv() => match frame {
                // All frames are JSON.
                Some(frame) => Message::Text(Utf8Bytes::from(String::from_utf8_lossy(&frame).as_ref())),
                None => break,
            },
            _ = pings.tick() => Message::Ping(Vec::new().into()),
        };
        if to_client.send(message).await.is_err() {
            return;
        }
    }
    // The client may be gone.
    let _ = to_client.close().await;
}
