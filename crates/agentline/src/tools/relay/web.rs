//! A relayed server on plain HTTP: each message is a request of its own, and the answer is JSON or an event stream.
//!
//! `https://` is not supported, because it would need a TLS stack for something that agents do themselves. The server's
//! own event stream, outside the answer to a request, is not opened.

use super::{
    link::{ServerLink, ServerUnavailable},
    message::{self, RelayMessage, RelayReply},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, value::RawValue};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_util::task::AbortOnDropHandle;

/// The maximum size of an answer.
const LONGEST_ANSWER: usize = 64 << 20;
/// The timeout of messages whose answer is not needed.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// The connection to a server on HTTP.
pub(super) struct WebLink {
    uri: Uri,
    headers: HeaderMap,
    /// The session id that the server sends with its first answer, if it uses sessions.
    session: Mutex<Option<HeaderValue>>,
    next: AtomicU64,
    link: Arc<ServerLink>,
}

impl WebLink {
    /// Creates a connection without contacting the server.
    ///
    /// # Errors
    /// Returns what is wrong with the address or a header, without the header's value.
    pub(super) fn new(
        url: &str,
        headers: &BTreeMap<String, String>,
        link: Arc<ServerLink>,
    ) -> Result<Arc<Self>, String> {
        let uri: Uri = url.parse().map_err(|error| format!("invalid URL: {error}"))?;
        if uri.host().is_none() {
            return Err("the URL has no host".into());
        }
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let bad = || format!("invalid header `{name}`");
            let key = HeaderName::try_from(name).map_err(|_| bad())?;
            all.insert(key, HeaderValue::try_from(value).map_err(|_| bad())?);
        }
        let host = uri.authority().map(|authority| authority.as_str().rsplit('@').next().unwrap_or_default());
        let host = HeaderValue::try_from(host.unwrap_or_default()).map_err(|error| error.to_string())?;
        all.insert(header::HOST, host);
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        all.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Ok(Arc::new(Self { uri, headers: all, session: Mutex::default(), next: AtomicU64::new(1), link }))
    }

    pub(super) async fn request(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<RelayReply, ServerUnavailable> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut request = WebRequest { transport: Arc::clone(self), id: Some(id) };
        let answer = self.ask(id, message::request(id, method, params)).await;
        // The request is complete, so there is nothing to cancel.
        request.id = None;
        answer.map_err(ServerUnavailable)
    }

    pub(super) fn notify(self: &Arc<Self>, method: &str, params: Option<&RawValue>) {
        self.send_detached(Method::POST, message::notification(method, params));
    }

    /// Ends the session on the server.
    pub(super) async fn close(&self) {
        if self.session().is_some() {
            let _ = timeout(NOTIFY_TIMEOUT, self.send(Method::DELETE, Vec::new())).await;
        }
    }

    /// Sends a message whose answer is not needed.
    fn send_detached(self: &Arc<Self>, method: Method, body: Vec<u8>) {
        let transport = Arc::clone(self);
        tokio::spawn(async move {
            let _ = timeout(NOTIFY_TIMEOUT, transport.send(method, body)).await;
        });
    }

    async fn ask(&self, id: u64, body: Vec<u8>) -> Result<RelayReply, String> {
        let (answer, _connection) = self.send(Method::POST, body).await?;
        if let Some(session) = answer.headers().get(SESSION) {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        }
        let status = answer.status();
        let events = answer
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if events {
            return self.reply_among_events(id, answer.into_body()).await;
        }
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| format!("the response was interrupted: {error}"))?.to_bytes();
        match RelayMessage::parse(&body).and_then(|message| message.reply()) {
            // Some servers also use an HTTP error status for error responses.
            Some((to, reply)) if to == id => Ok(reply),
            _ if status == StatusCode::OK => Err("the response does not match the request".into()),
            _ => Err(format!("HTTP status {status}")),
        }
    }

    async fn reply_among_events(&self, id: u64, mut body: Incoming) -> Result<RelayReply, String> {
        let mut events = Events::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("the response was interrupted: {error}"))?;
            for event in events.push(frame.data_ref().map_or(&[][..], |data| data)) {
                let Some(message) = RelayMessage::parse(&event) else { continue };
                match message.reply() {
                    Some((to, reply)) if to == id => return Ok(reply),
                    Some(_) => {}
                    None if message.id.is_none() => self.link.forward_notification(&event),
                    None => {}
                }
            }
            if events.waiting() > LONGEST_ANSWER {
                return Err("the response is too large".into());
            }
        }
        Err("the response ended without a result".into())
    }

    /// Sends a request. Returns the head of the answer, and the task of the connection that its body needs.
    async fn send(
        &self,
        method: Method,
        body: Vec<u8>,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), String> {
        let unreachable = |error: &dyn std::fmt::Display| format!("cannot connect: {error}");
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, self.uri.port_u16().unwrap_or(80))).await;
        let stream = stream.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            // Errors are reported to the pending request.
            let _ = connection.await;
        }));
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|error| unreachable(&error))?;
        *request.headers_mut() = self.headers.clone();
        if let Some(session) = self.session() {
            request.headers_mut().insert(SESSION, session);
        }
        let answer = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        Ok((answer, connection))
    }

    fn session(&self) -> Option<HeaderValue> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A pending request. Dropping it before it is complete cancels it on the server.
struct WebRequest {
    transport: Arc<WebLink>,
    id: Option<u64>,
}

impl Drop for WebRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let params = message::raw(&Value::from_iter([("requestId", id)]));
            self.transport.notify("notifications/cancelled", Some(&params));
        }
    }
}

/// Assembles the data of server-sent events.
#[derive(Default)]
struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
    /// Returns the data of the events that are now complete.
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.last() != Some(&b'\n') {
                break;
            }
            let line = std::mem::take(&mut self.line);
            let line = line.trim_ascii_end();
            if line.is_empty() {
                if !self.data.is_empty() {
                    complete.push(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix(b"data:") {
                self.data.extend_from_slice(data.trim_ascii_start());
                // Data of several lines is one text; in JSON, a line break between tokens is whitespace.
                self.data.push(b'\n');
            }
        }
        complete
    }

    fn waiting(&self) -> usize {
        self.line.len() + self.data.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_across_any_split() {
        let text =
            b": hello\r\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nid: 7\ndata:{}\n\n\ndata: lost";
        for size in 1..text.len() {
            let mut events = Events::default();
            let found: Vec<Vec<u8>> = text.chunks(size).flat_map(|chunk| events.push(chunk)).collect();
            assert_eq!(found, [b"{\"a\":\n1}\n".to_vec(), b"{}\n".to_vec()], "in pieces of {size}");
        }
    }
}
