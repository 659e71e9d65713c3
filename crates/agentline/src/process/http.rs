//! HTTP over loopback, for agents that serve it: frames become requests, and responses and server-sent events become
//! messages, one line each.
//!
//! A frame is a JSON object with `id`, `method`, `path` and, if there is one, `body`. These are the messages:
//!
//! | message | meaning |
//! |---|---|
//! | `{"stream":"open"}` | the event stream is open, at first or again; events before it may be lost |
//! | `{"stream":"closed","error":"…"}` | the event stream cannot be opened; no more messages follow |
//! | `{"event":…}` | an event |
//! | `{"id":…,"status":200,"body":…}` | the response to a request |
//! | `{"id":…,"error":"…"}` | a request without a response |
//!
//! The agent prints its address. Only a loopback address is used, and every request carries the password that the agent
//! was started with, so that no other user of the machine can use the agent.

mod events;
mod response;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use events::EventReader;
use response::Response;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::TcpStream,
    sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel},
    task::{JoinHandle, JoinSet},
    time::timeout,
};

/// The number of messages that may wait for the reader. After that, the agent has to wait.
const WAITING_MESSAGES: usize = 64;
/// The longest body of a response and the longest event, in bytes.
const MAX_MESSAGE: usize = 64 << 20;
/// The longest line of the agent's output that is searched for its address, in bytes.
const MAX_LINE: usize = 4096;
/// The silence after which the event stream counts as broken. The agent sends a heartbeat every ten seconds.
const STREAM_SILENCE: Duration = Duration::from_secs(60);
/// The wait before the event stream is opened again, at first and at most.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How long to try to open the event stream again.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How to reach an agent that serves HTTP on the loopback interface.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpService {
    /// The text at the start of the line with which the agent prints its address, before the address.
    pub announcement: String,
    /// The path of the event stream.
    pub events: String,
    /// The user name for the password.
    pub user: String,
    /// The password that the agent was started with.
    pub password: String,
}

impl HttpService {
    /// Creates the description of a service.
    #[must_use]
    pub fn new(
        announcement: impl Into<String>,
        events: impl Into<String>,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        Self {
            announcement: announcement.into(),
            events: events.into(),
            user: user.into(),
            password: password.into(),
        }
    }
}

/// Formats the description without its password.
impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("events", &self.events).finish_non_exhaustive()
    }
}

/// The connection to an agent that serves HTTP.
#[derive(Debug)]
pub(super) struct HttpTransport {
    service: HttpService,
    /// The unfinished line of the agent's output, until the address is known.
    line: Option<Vec<u8>>,
    commands: Option<UnboundedSender<Command>>,
    messages: Receiver<Vec<u8>>,
    has_exited: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
enum Command {
    Connect(SocketAddr),
    Send(Vec<u8>),
    /// The agent has printed an address that is not used.
    Refuse(String),
}

/// What a request needs besides its own content.
#[derive(Clone, Debug)]
struct Server {
    address: SocketAddr,
    authorization: Arc<str>,
    events: Arc<str>,
    has_exited: Arc<AtomicBool>,
}

impl HttpTransport {
    /// Creates the connection to an agent that has not printed its address yet.
    pub(super) fn start(service: HttpService) -> Self {
        let (commands, received) = unbounded_channel();
        let (sender, messages) = channel(WAITING_MESSAGES);
        let has_exited = Arc::new(AtomicBool::new(false));
        let server = Server {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            authorization: STANDARD.encode(format!("{}:{}", service.user, service.password)).into(),
            events: service.events.as_str().into(),
            has_exited: Arc::clone(&has_exited),
        };
        let task = tokio::spawn(serve(received, sender, server));
        Self { service, line: Some(Vec::new()), commands: Some(commands), messages, has_exited, task }
    }

    /// Searches the agent's standard output for its address.
    pub(super) fn printed(&mut self, bytes: &[u8]) {
        let Some(mut line) = self.line.take() else { return };
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(&part[..part.len().min(MAX_LINE.saturating_sub(line.len()))]);
            if part.ends_with(b"\n") {
                if let Some(command) = self.address_in(&String::from_utf8_lossy(&line)) {
                    return self.command(command);
                }
                line.clear();
            }
        }
        self.line = Some(line);
    }

    fn address_in(&self, line: &str) -> Option<Command> {
        let text = line.strip_prefix(&*self.service.announcement)?.trim();
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        Some(match address.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Command::Connect(address),
            _ => Command::Refuse(format!("the agent listens on `{text}`, which is not a loopback address")),
        })
    }

    /// Queues a frame as a request.
    pub(super) fn write(&self, frame: Vec<u8>) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(Command::Send(frame));
        }
    }

    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
        }
    }

    /// Waits for the next message. Returns `None` when no more follow. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.messages.recv().await
    }

    /// Returns a message that has already arrived.
    pub(super) fn arrived(&mut self) -> Option<Vec<u8>> {
        self.messages.try_recv().ok()
    }

    /// Returns the number of messages that have arrived.
    pub(super) fn waiting(&self) -> usize {
        self.messages.len()
    }

    /// Ends the connection: the agent has exited, so that open requests end by themselves.
    pub(super) fn end(&mut self) {
        self.has_exited.store(true, Ordering::Relaxed);
        self.commands = None;
    }
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connects once the address is known, follows the events, and sends the requests.
async fn serve(mut commands: UnboundedReceiver<Command>, messages: Sender<Vec<u8>>, mut server: Server) {
    let mut early = Vec::new();
    server.address = loop {
        match commands.recv().await {
            Some(Command::Connect(address)) => break address,
            Some(Command::Send(frame)) => early.push(frame),
            Some(Command::Refuse(reason)) => {
                let _ = messages.send(closed(&reason)).await;
                return;
            }
            None => return,
        }
    };
    // The first request is sent when the stream is open, so that its events are not missed.
    let Some(stream) = open_stream(&server, &messages).await else { return };
    // Dropping the set aborts its tasks.
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_events(server.clone(), stream, messages.clone()));
    for frame in early {
        tasks.spawn(request(server.clone(), frame, messages.clone()));
    }
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Send(frame)) => _ = tasks.spawn(request(server.clone(), frame, messages.clone())),
                Some(_) => {}
                None => break,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    // The agent has exited. What it has sent is still in the sockets.
    while tasks.join_next().await.is_some() {}
}

type Reply = Response<BufReader<TcpStream>>;

/// Opens the event stream and reports that it is open. Returns `None` if that fails for too long.
async fn open_stream(server: &Server, messages: &Sender<Vec<u8>>) -> Option<Reply> {
    let started = Instant::now();
    let mut wait = RECONNECT.0;
    loop {
        if server.has_exited.load(Ordering::Relaxed) {
            return None;
        }
        let opened = timeout(RECONNECT_TIMEOUT, send(server, "GET", &server.events, None)).await;
        let error = match opened {
            Ok(Ok(reply)) if reply.status == 200 => {
                messages.send(b"{\"stream\":\"open\"}\n".to_vec()).await.ok()?;
                return Some(reply);
            }
            Ok(Ok(reply)) => format!("the agent answered with the status {}", reply.status),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the agent did not answer".to_owned(),
        };
        if started.elapsed() > RECONNECT_TIMEOUT {
            let _ = messages.send(closed(&format!("cannot open the agent's event stream: {error}"))).await;
            return None;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RECONNECT.1);
    }
}

fn closed(error: &str) -> Vec<u8> {
    line(&serde_json::json!({"stream": "closed", "error": error}))
}

fn line(message: &serde_json::Value) -> Vec<u8> {
    format!("{message}\n").into_bytes()
}

/// Passes on events, and opens the stream again when it breaks.
async fn follow_events(server: Server, mut stream: Reply, messages: Sender<Vec<u8>>) {
    loop {
        let mut reader = EventReader::new(MAX_MESSAGE);
        let mut bytes = Vec::new();
        while let Ok(Ok(true)) = timeout(STREAM_SILENCE, stream.read_some(&mut bytes)).await {
            let mut found = Vec::new();
            reader.push(&bytes, |event| found.push(event_line(event)));
            bytes.clear();
            for message in found {
                if messages.send(message).await.is_err() {
                    return;
                }
            }
        }
        match open_stream(&server, &messages).await {
            Some(again) => stream = again,
            None => return,
        }
    }
}

fn event_line(data: &[u8]) -> Vec<u8> {
    let mut message = b"{\"event\":".to_vec();
    push_json(&mut message, data);
    message.extend_from_slice(b"}\n");
    message
}

/// Appends JSON on one line. Anything else becomes a string.
fn push_json(message: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        message.extend_from_slice(b"null");
    } else if serde_json::from_slice::<&RawValue>(data).is_ok() {
        // Outside of strings, line breaks are only white space, and strings cannot contain them.
        message.extend(data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    } else {
        message.extend_from_slice(serde_json::json!(String::from_utf8_lossy(data)).to_string().as_bytes());
    }
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    body: Option<&'a RawValue>,
}

/// Sends a frame as a request and passes on the response.
async fn request(server: Server, frame: Vec<u8>, messages: Sender<Vec<u8>>) {
    let Ok(frame) = serde_json::from_slice::<Frame<'_>>(&frame) else { return };
    let answer = match send(&server, &frame.method, &frame.path, frame.body).await {
        Ok(mut reply) => reply.whole_body(MAX_MESSAGE).await.map(|body| (reply.status, body)),
        Err(error) => Err(error),
    };
    let mut message = format!("{{\"id\":{},", frame.id.get()).into_bytes();
    match answer {
        Ok((status, body)) => {
            message.extend_from_slice(format!("\"status\":{status},\"body\":").as_bytes());
            push_json(&mut message, &body);
        }
        Err(error) => {
            message.extend_from_slice(b"\"error\":");
            message.extend_from_slice(serde_json::json!(error.to_string()).to_string().as_bytes());
        }
    }
    message.extend_from_slice(b"}\n");
    let _ = messages.send(message).await;
}

/// Sends a request on a connection of its own and reads the head of the response.
async fn send(server: &Server, method: &str, path: &str, body: Option<&RawValue>) -> io::Result<Reply> {
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain(method) || !is_plain(path) || !path.starts_with('/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the request has no valid method and path"));
    }
    let mut stream = TcpStream::connect(server.address).await?;
    stream.set_nodelay(true)?;
    let body = body.map_or("", RawValue::get);
    let mut text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Basic {}\r\nConnection: close\r\nAccept: */*\r\n",
        server.address, server.authorization
    );
    if !body.is_empty() {
        text.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    } else if method != "GET" {
        text.push_str("Content-Length: 0\r\n");
    }
    text.push_str("\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes()).await?;
    Response::read(BufReader::new(stream)).await
}

#[cfg(test)]
mod tests;
