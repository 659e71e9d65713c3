//! Common parts of the scripted models of [`openai`](crate::openai), [`anthropic`](crate::anthropic) and
//! [`responses`](crate::responses): the steps, the requests, and the server.
//!
//! A request without tools is one that the agent makes for itself, for example for a title; the API's module may name
//! others. It gets a short text and does not advance the script.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::http::{HttpConnection, Incoming};
use crate::server::{After, LoopbackServer, lock};
use crate::step::{ModelFault, ScriptedAnswer};

pub use crate::step::ModelTokens;

/// The answer to a helper request.
const HELPED: &str = "A scripted session";

/// One answer of a scripted model.
///
/// ```
/// use agentline_mock::scripted::ModelStep;
/// use serde_json::json;
///
/// let step = ModelStep::thought("I will write it.")
///     .and_text("Writing.")
///     .and_call("write", json!({"filePath": "/tmp/a.txt", "content": "a\n"}));
/// ```
pub type ModelStep = ScriptedAnswer<ModelPart, HttpError>;

/// An error in the format of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpError {
    /// The HTTP status.
    pub status: u16,
    /// The message.
    pub message: String,
}

/// A part of a [`ModelStep`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelPart {
    /// A text.
    Text(String),
    /// Reasoning.
    Thought(String),
    /// A call of a tool with JSON arguments.
    Call {
        /// The namespace of the tool, if it has one.
        namespace: Option<String>,
        /// The name of the tool.
        name: String,
        /// The arguments.
        args: Value,
    },
    /// A call of a tool whose input is plain text.
    Plain {
        /// The name of the tool.
        name: String,
        /// The input.
        input: String,
    },
}

impl ModelStep {
    /// Answers with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of([]).and_text(text)
    }

    /// Answers with reasoning.
    pub fn thought(text: impl Into<String>) -> Self {
        Self::of([ModelPart::Thought(text.into())])
    }

    /// Answers with a tool call.
    pub fn call(name: impl Into<String>, args: Value) -> Self {
        Self::of([]).and_call(name, args)
    }

    /// Answers with a call to a tool in a namespace, as Codex has for MCP servers (`mcp__server`).
    pub fn call_in(namespace: impl Into<String>, name: impl Into<String>, args: Value) -> Self {
        Self::of([ModelPart::Call { namespace: Some(namespace.into()), name: name.into(), args }])
    }

    /// Answers with a call to a tool whose input is plain text, as Codex has for patches.
    pub fn plain_call(name: impl Into<String>, input: impl Into<String>) -> Self {
        Self::of([ModelPart::Plain { name: name.into(), input: input.into() }])
    }

    /// Answers with an HTTP status and an error in the format of the API.
    pub fn error(status: u16, message: impl Into<String>) -> Self {
        Self::fault(ModelFault::Error(HttpError { status, message: message.into() }))
    }

    /// Adds a text.
    #[must_use]
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.and(ModelPart::Text(text.into()))
    }

    /// Adds a tool call.
    #[must_use]
    pub fn and_call(self, name: impl Into<String>, args: Value) -> Self {
        self.and(ModelPart::Call { namespace: None, name: name.into(), args })
    }

    /// Returns whether it calls a tool.
    pub(crate) fn calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, ModelPart::Call { .. } | ModelPart::Plain { .. }))
    }
}

/// The implementation of one API.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The end of the path of a prompt.
    pub(crate) path: &'static str,
    /// Returns the whole event stream of an answer. The number differs for each request.
    pub(crate) events: fn(step: &ModelStep, model: &str, number: u64) -> String,
    /// Returns the answer to a helper request that offers tools.
    pub(crate) helped: fn(body: &Value) -> Option<&'static str>,
    pub(crate) error: fn(status: u16, message: &str) -> Value,
    pub(crate) offered_tools: fn(body: &Value) -> Vec<String>,
    pub(crate) user_texts: fn(body: &Value) -> Vec<String>,
    pub(crate) tool_results: fn(body: &Value) -> Vec<String>,
    /// Returns the number of model turns.
    pub(crate) turn: fn(body: &Value) -> usize,
}

/// One request to a scripted model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelRequest {
    /// The path with its query.
    pub path: String,
    /// Header names are in lower case.
    pub headers: BTreeMap<String, String>,
    /// The JSON body, or `null` if it was not JSON.
    pub body: Value,
    /// The time of arrival in milliseconds after the model started.
    pub at_ms: u64,
    /// Whether it is a turn of the agent, which advances the script.
    pub is_turn: bool,
    /// The token counts of the answer, if it had any.
    pub tokens: Option<ModelTokens>,
    wire: &'static Wire,
}

impl ModelRequest {
    /// Returns the names of the tools that the agent offered, in its order.
    #[must_use]
    pub fn offered_tools(&self) -> Vec<String> {
        (self.wire.offered_tools)(&self.body)
    }

    /// Returns every text of the user's turns, oldest first. Agents add texts of their own.
    #[must_use]
    pub fn user_texts(&self) -> Vec<String> {
        (self.wire.user_texts)(&self.body)
    }

    /// Returns the tool results sent so far as text, oldest first.
    #[must_use]
    pub fn tool_results(&self) -> Vec<String> {
        (self.wire.tool_results)(&self.body)
    }

    /// Returns the number of model turns in this conversation: the index of the next step in its script.
    #[must_use]
    pub fn turn(&self) -> usize {
        (self.wire.turn)(&self.body)
    }
}

/// A model that answers by script. It serves until it is dropped.
pub struct ScriptedModel {
    server: LoopbackServer,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl ScriptedModel {
    pub(crate) fn in_order(wire: &'static Wire, steps: Vec<ModelStep>) -> io::Result<Self> {
        let asked = AtomicU64::new(0);
        Self::by_prompt(wire, move |_| {
            let index = asked.fetch_add(1, Ordering::SeqCst);
            let step = usize::try_from(index).ok().and_then(|index| steps.get(index));
            step.cloned().unwrap_or_else(|| {
                let length = steps.len();
                ModelStep::error(
                    500,
                    format!("script ran out: request {} to a script of {length} answers", index + 1),
                )
            })
        })
    }

    pub(crate) fn by_prompt(
        wire: &'static Wire,
        respond: impl Fn(&ModelRequest) -> ModelStep + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let started = Instant::now();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let next = AtomicU64::new(1);
        let server = LoopbackServer::start({
            let requests = Arc::clone(&requests);
            move |incoming, connection, wait| {
                let is_post = incoming.method == "POST";
                if incoming.method == "HEAD" {
                    connection.answer(200, "text/plain", b"")?;
                    return Ok(After::Open);
                }
                let request = read(incoming, wire, started);
                let index = {
                    let mut requests = lock(&requests);
                    requests.push(request.clone());
                    requests.len() - 1
                };
                let path = request.path.split('?').next().unwrap_or_default();
                if !is_post || !path.ends_with(wire.path) {
                    return send_json(
                        connection,
                        404,
                        &(wire.error)(404, "the scripted model has no such path"),
                    );
                }
                let helped = || ModelStep::text((wire.helped)(&request.body).unwrap_or(HELPED));
                let step = if request.is_turn { respond(&request) } else { helped() };
                lock(&requests)[index].tokens = step.fault.is_none().then_some(step.usage);
                let model = request.body["model"].as_str().unwrap_or_default();
                send(wire, &step, model, next.fetch_add(1, Ordering::SeqCst), connection, wait)
            }
        })?;
        Ok(Self { server, requests })
    }

    /// Returns the base address, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns every request so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.requests).clone()
    }

    /// Returns the requests that advanced the script.
    #[must_use]
    pub fn turns(&self) -> Vec<ModelRequest> {
        lock(&self.requests).iter().filter(|request| request.is_turn).cloned().collect()
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("address", &self.server.address).finish_non_exhaustive()
    }
}

fn read(incoming: Incoming, wire: &'static Wire, started: Instant) -> ModelRequest {
    let body: Value = serde_json::from_slice(&incoming.body).unwrap_or(Value::Null);
    let path = incoming.target.split('?').next().unwrap_or_default();
    let offers_tools = items(&body["tools"]).next().is_some();
    ModelRequest {
        is_turn: path.ends_with(wire.path) && offers_tools && (wire.helped)(&body).is_none(),
        path: incoming.target,
        headers: incoming.headers,
        body,
        at_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        tokens: None,
        wire,
    }
}

fn send(
    wire: &Wire,
    step: &ModelStep,
    model: &str,
    number: u64,
    connection: &mut HttpConnection,
    wait: &dyn Fn(u64) -> bool,
) -> io::Result<After> {
    if step.delay_ms > 0 && !wait(step.delay_ms) {
        return Ok(After::Closed);
    }
    match &step.fault {
        Some(ModelFault::Hang) => {
            connection.wait_for_close();
            return Ok(After::Closed);
        }
        Some(ModelFault::Drop) => {
            connection.drop_now();
            return Ok(After::Closed);
        }
        Some(ModelFault::Error(HttpError { status, message })) => {
            return send_json(connection, *status, &(wire.error)(*status, message));
        }
        Some(ModelFault::DropMidway | ModelFault::HangMidway) | None => {}
    }
    let events = (wire.events)(step, model, number);
    connection.start_stream("text/event-stream")?;
    if let Some(fault) = &step.fault {
        connection.piece(until_text(&events, step).as_bytes())?;
        connection.flush()?;
        match fault {
            ModelFault::HangMidway => connection.wait_for_close(),
            _ => connection.drop_now(),
        }
        return Ok(After::Closed);
    }
    connection.piece(events.as_bytes())?;
    connection.end_stream()?;
    Ok(After::Open)
}

/// Returns the events up to the first one with the text of the answer.
fn until_text<'a>(events: &'a str, step: &ModelStep) -> &'a str {
    let text = step.parts.iter().find_map(|part| match part {
        ModelPart::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let at = text.and_then(|text| events.find(text)).unwrap_or(0);
    let end = events[at..].find("\n\n").map_or(events.len(), |end| at + end + 2);
    &events[..end]
}

fn send_json(connection: &mut HttpConnection, status: u16, body: &Value) -> io::Result<After> {
    connection.answer(status, "application/json", body.to_string().as_bytes())?;
    Ok(After::Open)
}

/// Returns one event of a stream, with its type as the event's name.
pub(crate) fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// Divides a text into the pieces in which a model sends it. A short text is one piece.
pub(crate) fn pieces(text: &str) -> Vec<&str> {
    const LONGEST: usize = 1000;
    let mut rest = text;
    let mut pieces = Vec::new();
    while rest.len() > LONGEST {
        let end = (1..=LONGEST).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or(rest.len());
        let (piece, others) = rest.split_at(end);
        pieces.push(piece);
        rest = others;
    }
    pieces.push(rest);
    pieces
}

/// Returns the elements of a list, or none for any other value.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the texts of a content that is either one string or a list of blocks.
pub(crate) fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::String(text) => vec![text.clone()],
        other => items(other).filter_map(|block| block["text"].as_str()).map(str::to_owned).collect(),
    }
}

/// Returns an error in the format of OpenAI's APIs.
pub(crate) fn openai_error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        400 if message.contains("context") => ("invalid_request_error", json!("context_length_exceeded")),
        400 | 401 => ("invalid_request_error", Value::Null),
        404 => ("invalid_request_error", json!("model_not_found")),
        429 => ("requests", json!("rate_limit_exceeded")),
        _ => ("server_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "code": code, "param": null}})
}
