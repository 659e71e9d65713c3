//! An HTTP client that checks every answer against the OpenAPI document, and reads streams of events.

use crate::contract;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// A client with a token.
#[derive(Clone)]
pub(crate) struct HttpClient {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

/// A complete answer.
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpReply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// An event of a stream: its id, type and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SseEvent {
    pub(crate) id: u64,
    pub(crate) event: String,
    pub(crate) data: String,
}

impl SseEvent {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).expect("JSON")
    }
}

/// A stream of events.
pub(crate) struct EventStream {
    response: Response<Incoming>,
    bytes: Vec<u8>,
    last: u64,
}

impl HttpClient {
    pub(crate) fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: token.to_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> HttpReply {
        self.send("GET", path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> HttpReply {
        self.send("POST", path, &[], Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> HttpReply {
        self.send("DELETE", path, &[], None).await
    }

    /// Signs a browser in with a link, and returns its cookie.
    pub(crate) async fn sign_in(&self) -> String {
        let link = self.post("/v1/login-links", serde_json::json!({})).await.json();
        let answer = self.send_plain("GET", link["path"].as_str().expect("a path"), &[], None).await;
        assert_eq!(answer.status, 303);
        let cookie = answer.headers["set-cookie"].to_str().expect("text");
        cookie.split(';').next().expect("a pair").to_owned()
    }

    /// Sends a request with the token, and checks the answer against the document.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> HttpReply {
        let token = format!("Bearer {}", self.token);
        let headers: Vec<(&str, &str)> =
            [("authorization", token.as_str())].into_iter().chain(headers.iter().copied()).collect();
        let answer = self.send_plain(method, path, &headers, body.as_ref()).await;
        contract::check(method, path, body.as_ref(), &answer);
        answer
    }

    /// Sends a request with these headers only.
    pub(crate) async fn send_plain(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> HttpReply {
        let response = self.open(method, path, headers, body).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        HttpReply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        if body.is_some() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::new(Bytes::from(text))).expect("a request");
        sender.send_request(request).await.expect("a response")
    }

    /// Opens the stream of a run's events after an event.
    pub(crate) async fn events(&self, run: &str, after: u64) -> EventStream {
        let token = format!("Bearer {}", self.token);
        self.events_as(("authorization", token.as_str()), run, after).await
    }

    /// Opens the stream with this header instead of the token.
    pub(crate) async fn events_as(&self, sender: (&str, &str), run: &str, after: u64) -> EventStream {
        let after_text = after.to_string();
        let headers = [sender, ("last-event-id", after_text.as_str())];
        let response = self.open("GET", &format!("/v1/runs/{run}/events"), &headers, None).await;
        EventStream { response, bytes: Vec::new(), last: after }
    }

    /// Reads all events of a run, until the server ends the stream.
    pub(crate) async fn all_events(&self, run: &str) -> Vec<SseEvent> {
        let stream = self.events(run, 0).await;
        let kind = stream.response.headers()["content-type"].to_str().expect("text").to_owned();
        let events = stream.rest().await;
        contract::check_stream(&kind, &events);
        events
    }
}

impl EventStream {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the next event; `None` at the end of the stream or when it breaks.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.bytes.drain(..end + 2).collect();
                match self.parse(std::str::from_utf8(&block).expect("UTF-8")) {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let frame = self.response.body_mut().frame().await?.ok()?;
            self.bytes.extend_from_slice(&frame.into_data().ok()?);
        }
    }

    fn parse(&self, block: &str) -> Option<SseEvent> {
        let (mut id, mut event, mut data) = (self.last, None, None);
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("id", value)) => id = value.parse().expect("a number"),
                Some(("event", value)) => event = Some(value.to_owned()),
                Some(("data", value)) => data = Some(value.to_owned()),
                _ => {}
            }
        }
        Some(SseEvent { id, event: event?, data: data? })
    }

    /// Returns the next event of a type.
    pub(crate) async fn until(&mut self, event: &str) -> SseEvent {
        loop {
            let next = self.next().await.unwrap_or_else(|| panic!("no event `{event}`"));
            if next.event == event {
                return next;
            }
        }
    }

    pub(crate) async fn rest(mut self) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
