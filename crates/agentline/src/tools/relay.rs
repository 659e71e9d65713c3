//! Relays messages between the agent and another MCP server, so that a dead or hanging server is detected and reported,
//! and no server is started twice.
//!
//! Messages are forwarded as they were written, under new ids, rather than through a client library that would have to
//! know every method and field. So unknown methods and fields pass unchanged. Only `initialize` is handled here,
//! because a server is started before the agent asks for it. Requests to a failed server are also answered here, and
//! results that an agent would reject get structured content (`output.rs`).

mod command;
mod link;
mod message;
mod web;

use super::http_answer::{HttpAnswer, plain};
use crate::process::{Isolation, KillDeadline, Spawn, StdoutMode, Supervisor};
use crate::tools::{in_flight::InFlight, side_sender::SideSender};
use agentline_core::McpServer;
use command::CommandLink;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    Method, Response, StatusCode,
    body::{Bytes, Frame},
    header::{self, HeaderValue},
};
use link::{ServerLink, ServerUnavailable};
use message::{NO_METHOD, RelayMessage, RelayReply, SERVER_ERROR, with_structured_content};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::BTreeMap, convert::Infallible, ffi::OsString, path::PathBuf, sync::Arc, time::Duration,
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use web::WebLink;

/// The protocol version of `initialize`. An older server answers with its own.
const PROTOCOL: &str = "2025-06-18";

/// The environment in which the programs of relayed servers run.
pub(super) struct RelayContext {
    pub(super) cwd: PathBuf,
    pub(super) env: BTreeMap<OsString, OsString>,
    pub(super) supervisor: Supervisor,
    pub(super) isolation: Isolation,
    pub(super) kill_deadline: Option<KillDeadline>,
    /// The maximum time for a server to initialize or to answer a list request.
    pub(super) patience: Duration,
}

/// One relayed server, as the agent sees it.
pub(super) struct Relay {
    link: Arc<ServerLink>,
    transport: Transport,
    patience: Duration,
    pub(super) in_flight: InFlight,
    closed: CancellationToken,
}

enum Transport {
    Command(Arc<CommandLink>),
    Web(Arc<WebLink>),
    /// The server's configuration is invalid.
    Invalid,
}

impl Relay {
    /// Starts or connects to a server. The task ends with the server, or when `closed` is cancelled.
    pub(super) fn start(
        name: String,
        server: &McpServer,
        context: &RelayContext,
        side: SideSender,
        closed: CancellationToken,
    ) -> (Arc<Self>, JoinHandle<()>) {
        let link = ServerLink::new(name, side);
        let patience = context.patience;
        let relay = |transport| {
            let (link, closed) = (Arc::clone(&link), closed.clone());
            Arc::new(Self { link, transport, patience, in_flight: InFlight::default(), closed })
        };
        match server {
            McpServer::Command { command, args, env } => {
                let (transport, frames) = CommandLink::new();
                let relay = relay(Transport::Command(Arc::clone(&transport)));
                let spawn = spawn(command, args, env, context);
                let task = tokio::spawn({
                    let relay = Arc::clone(&relay);
                    async move {
                        let stop = relay.closed.child_token();
                        let carried =
                            command::run_server(spawn, transport, frames, Arc::clone(&link), stop.clone());
                        let ((), error) = tokio::join!(relay.initialize(&stop), carried);
                        if let Some(error) = error {
                            link.mark_dead(&error);
                        }
                    }
                });
                (relay, task)
            }
            McpServer::Url { url, headers } => match WebLink::new(url, headers, Arc::clone(&link)) {
                Ok(transport) => {
                    let relay = relay(Transport::Web(Arc::clone(&transport)));
                    let task = tokio::spawn({
                        let relay = Arc::clone(&relay);
                        async move {
                            relay.initialize(&relay.closed.child_token()).await;
                            relay.closed.cancelled().await;
                            transport.close().await;
                        }
                    });
                    (relay, task)
                }
                Err(error) => {
                    link.mark_dead(&error);
                    (relay(Transport::Invalid), tokio::spawn(async {}))
                }
            },
            _ => {
                link.mark_dead("unknown type of server");
                (relay(Transport::Invalid), tokio::spawn(async {}))
            }
        }
    }

    /// Initializes the server. A server that does not answer in time is marked as dead and stopped.
    async fn initialize(&self, stop: &CancellationToken) {
        let params = message::raw(&json!({
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "agentline", "version": env!("CARGO_PKG_VERSION")},
        }));
        let hello = timeout(self.patience, self.request("initialize", Some(&params)));
        let answer = tokio::select! {
            () = stop.cancelled() => return,
            answer = hello => answer,
        };
        let error = match answer {
            Ok(Ok(RelayReply::Result(introduction))) => {
                self.notify("notifications/initialized", None);
                return self.link.mark_ready(introduction);
            }
            Ok(Ok(RelayReply::Error(error))) => format!("initialization failed: {error}"),
            // `command::run_server` reports the reason in more detail.
            Ok(Err(ServerUnavailable(_))) if matches!(self.transport, Transport::Command(_)) => return,
            Ok(Err(ServerUnavailable(error))) => error,
            Err(_) => format!("no response within {} s", self.patience.as_secs_f32()),
        };
        self.link.mark_dead(&error);
        stop.cancel();
    }

    /// Answers an authenticated request from the agent.
    pub(super) async fn answer(&self, method: &Method, body: &Bytes) -> HttpAnswer {
        match *method {
            Method::POST => {}
            Method::GET => return self.events(),
            Method::DELETE => return plain(StatusCode::OK, ""),
            _ => return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET, POST and DELETE are allowed"),
        }
        let Some(RelayMessage { id, method: Some(method), params, .. }) = RelayMessage::parse(body) else {
            let is_answer = RelayMessage::parse(body).is_some_and(|message| message.id.is_some());
            return match is_answer {
                // An answer to a request from the server. Such requests are never forwarded.
                true => plain(StatusCode::ACCEPTED, ""),
                false => plain(StatusCode::BAD_REQUEST, "not a JSON-RPC message"),
            };
        };
        match id {
            Some(id) => json_answer(self.replied(id, &method, params).await.frame(id)),
            None => {
                self.report(&method, params);
                plain(StatusCode::ACCEPTED, "")
            }
        }
    }

    /// Returns the reply to the agent's request, from the server or on its behalf.
    async fn replied(&self, id: &RawValue, method: &str, params: Option<&RawValue>) -> RelayReply {
        let guard = self.in_flight.begin(id.get(), &self.closed);
        let work = async {
            match self.link.health().await {
                Ok(introduction) if method == "initialize" => RelayReply::Result((*introduction).to_owned()),
                Ok(_) => self.forwarded(method, params).await,
                Err(error) => unavailable_reply(&self.link.name, &error, method, params),
            }
        };
        tokio::select! {
            biased;
            () = guard.stop.cancelled() => RelayReply::error(SERVER_ERROR, "the request was cancelled"),
            reply = work => reply,
        }
    }

    async fn forwarded(&self, method: &str, params: Option<&RawValue>) -> RelayReply {
        // Agents list tools before they begin, so a missing answer would block the run.
        let patience = if method.ends_with("/list") { self.patience } else { Duration::MAX };
        let error = match timeout(patience, self.request(method, params)).await {
            Ok(Ok(RelayReply::Result(result))) => {
                if method == "tools/list" {
                    self.link.listed(&names(&result));
                }
                let result = if method == "tools/call" { with_structured_content(result) } else { result };
                return RelayReply::Result(result);
            }
            Ok(Ok(reply)) => return reply,
            Ok(Err(ServerUnavailable(error))) => error,
            Err(_) => format!("no response to `{method}` within {} s", self.patience.as_secs_f32()),
        };
        self.link.report_error(&error);
        unavailable_reply(&self.link.name, &error, method, params)
    }

    /// Handles a notification from the agent.
    fn report(&self, method: &str, params: Option<&RawValue>) {
        match method {
            // Already sent by `initialize`.
            "notifications/initialized" => {}
            // Forwarded under the new id when the request is dropped, which also ends the wait for its answer.
            "notifications/cancelled" => {
                let params = params.and_then(|params| serde_json::from_str::<Value>(params.get()).ok());
                let id = params.map(|params| params["requestId"].to_string()).unwrap_or_default();
                self.in_flight.cancel(&id);
            }
            _ => self.notify(method, params),
        }
    }

    async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<RelayReply, ServerUnavailable> {
        match &self.transport {
            Transport::Command(transport) => transport.request(method, params).await,
            Transport::Web(transport) => transport.request(method, params).await,
            Transport::Invalid => Err(ServerUnavailable("cannot connect".into())),
        }
    }

    fn notify(&self, method: &str, params: Option<&RawValue>) {
        match &self.transport {
            Transport::Command(transport) => transport.notify(method, params),
            Transport::Web(transport) => transport.notify(method, params),
            Transport::Invalid => {}
        }
    }

    /// Returns the server's own messages as an event stream that ends with the run.
    fn events(&self) -> HttpAnswer {
        let state = (self.link.listen(), self.closed.clone());
        let events = stream::unfold(state, |(mut receiver, closed)| async {
            let event = tokio::select! {
                () = closed.cancelled() => None,
                event = receiver.recv() => event,
            };
            event.map(|event| (Ok::<_, Infallible>(Frame::data(event)), (receiver, closed)))
        });
        let mut answer = Response::new(StreamBody::new(events).boxed());
        let kind = HeaderValue::from_static("text/event-stream");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    }
}

fn spawn(command: &str, args: &[String], env: &BTreeMap<String, String>, context: &RelayContext) -> Spawn {
    let mark = format!("mcp-{}", Uuid::new_v4().simple());
    let mut spawn = Spawn::new(command, &context.cwd, mark);
    spawn.args = args.iter().map(OsString::from).collect();
    spawn.env.clone_from(&context.env);
    spawn.env.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
    spawn.stdout = StdoutMode::Pipe;
    spawn.supervisor = context.supervisor.clone();
    spawn.isolation = context.isolation;
    spawn.kill_deadline.clone_from(&context.kill_deadline);
    spawn
}

/// Returns the reply on behalf of a server that does not work. It has no tools, rather than an error that could make
/// the agent fail as a whole.
fn unavailable_reply(name: &str, error: &str, method: &str, params: Option<&RawValue>) -> RelayReply {
    let text = format!("MCP server `{name}` failed: {error}");
    match method {
        "initialize" => {
            let params = params.and_then(|params| serde_json::from_str::<Value>(params.get()).ok());
            let version = params.and_then(|params| params["protocolVersion"].as_str().map(str::to_owned));
            RelayReply::result(&json!({
                "protocolVersion": version.as_deref().unwrap_or(PROTOCOL),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": env!("CARGO_PKG_VERSION")},
            }))
        }
        "ping" => RelayReply::result(&json!({})),
        "tools/list" => RelayReply::result(&json!({"tools": []})),
        "prompts/list" => RelayReply::result(&json!({"prompts": []})),
        "resources/list" => RelayReply::result(&json!({"resources": []})),
        "resources/templates/list" => RelayReply::result(&json!({"resourceTemplates": []})),
        "tools/call" => {
            RelayReply::result(&json!({"content": [{"type": "text", "text": text}], "isError": true}))
        }
        _ => RelayReply::error(NO_METHOD, &text),
    }
}

/// Returns the names in a list of tools.
fn names(list: &RawValue) -> Vec<String> {
    let list: Value = serde_json::from_str(list.get()).unwrap_or_default();
    let tools = list["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

fn json_answer(body: Vec<u8>) -> HttpAnswer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
