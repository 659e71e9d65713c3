//! Requests to JetStream and their errors.

use super::version::check_version;
use crate::QueueError;
use async_nats::connection::State;
use async_nats::jetstream::{
    self,
    context::{CreateStreamErrorKind, DeleteStreamErrorKind, GetStreamErrorKind},
    response::Response,
    stream::{Config, LastRawMessageErrorKind, Stream},
};
use async_nats::{
    Client, HeaderMap, Message, Request, RequestError, RequestErrorKind, StatusCode, Subscriber,
};
use futures_util::StreamExt;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How long a request may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer to a request for a message that may be available is awaited before the request is repeated.
const PULL_PATIENCE: Duration = Duration::from_secs(1);
/// The space that is left for the header of a message.
const HEADER_SIZE: usize = 512;
const STREAM_NOT_FOUND: u64 = 10059;
const STREAM_NAME_IN_USE: u64 = 10058;
const CONSUMER_NOT_FOUND: u64 = 10014;
/// The stream has another last message of this subject; or a subject has a message that cannot be replaced.
const MISMATCHES: [u64; 3] = [10071, 10164, 10077];

/// A client of JetStream whose requests end in time.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) jetstream: jetstream::Context,
    /// Counts how often the connection has ended.
    ends: watch::Receiver<u64>,
    /// That number when the version of the server was checked. The next connection may be to another server.
    checked: Arc<AtomicU64>,
    /// Subscriptions for answers to requests for messages. The requests of all earlier users were answered.
    idle: Arc<Mutex<Vec<PullInbox>>>,
}

/// A subject for answers, and its subscription. A message that is delivered keeps its own subject, so requests at the same
/// time need several.
#[derive(Debug)]
struct PullInbox {
    subject: String,
    answers: Subscriber,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// It has this sequence.
    Stored(u64),
    /// The last message of the subject is not the expected one.
    Mismatch,
    /// There is no stream for its subject.
    NoStream,
}

/// A message of a stream.
#[derive(Clone, Debug)]
pub(super) struct StoredMessage {
    pub(super) sequence: u64,
    pub(super) payload: Vec<u8>,
    pub(super) headers: HeaderMap,
    /// When the server stored it, in nanoseconds since 1970.
    pub(super) time: i128,
}

#[derive(Deserialize)]
struct Acknowledgement {
    seq: u64,
}

#[derive(Deserialize)]
struct Timestamp {
    ts: String,
}

#[derive(Deserialize)]
struct ConsumerInfo {
    config: ConsumerSettings,
}

#[derive(Deserialize)]
struct ConsumerSettings {
    ack_wait: u64,
}

/// A part of the subjects of a stream.
#[derive(Deserialize)]
struct SubjectPage {
    /// The time of the server.
    ts: String,
    state: SubjectCounts,
    #[serde(default)]
    total: usize,
}

#[derive(Deserialize)]
struct SubjectCounts {
    #[serde(default)]
    subjects: HashMap<String, u64>,
}

impl Requests {
    pub(super) fn new(client: Client, ends: watch::Receiver<u64>) -> Self {
        let jetstream = jetstream::ContextBuilder::new().timeout(TIMEOUT).build(client.clone());
        Self { client, jetstream, ends, checked: Arc::default(), idle: Arc::default() }
    }

    /// Awaits the answer to a request. If the connection ends before, the request fails at once: a server that starts
    /// again does not answer what it was asked before.
    pub(super) async fn answered<T>(&self, request: impl Future<Output = T>) -> Result<T, QueueError> {
        let mut ends = self.ends.clone();
        ends.mark_unchanged();
        tokio::select! {
            answer = request => Ok(answer),
            Ok(()) = ends.changed() => Err(interrupted()),
        }
    }

    /// Waits for the connection, so that a request is not sent later than it is awaited.
    pub(super) async fn ready(&self) -> Result<(), QueueError> {
        let connected = async {
            while self.client.connection_state() != State::Connected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, connected).await.map_err(|_| interrupted())?;
        self.check_server()
    }

    /// Checks the version of the server after each connection.
    fn check_server(&self) -> Result<(), QueueError> {
        let ends = *self.ends.borrow();
        if self.checked.load(Ordering::Relaxed) != ends {
            check_version(&self.client.server_info().version)?;
            self.checked.store(ends, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks that the server has JetStream.
    pub(super) async fn check_jetstream(&self) -> Result<(), QueueError> {
        let answer = self.client.request("$JS.API.INFO", Vec::new().into()).await;
        let disabled = |reason: &str| {
            let hint = "start the NATS server with `-js`, or enable JetStream for the account";
            Err(QueueError::Refused(format!("JetStream is disabled {reason}; {hint}")))
        };
        match answer {
            Ok(message) => match serde_json::from_slice::<Response<Value>>(&message.payload) {
                Ok(Response::Err { error }) if error.error_code().0 == 10039 => disabled("for this account"),
                Ok(Response::Err { error }) => Err(refused(&error)),
                Ok(Response::Ok(_)) => Ok(()),
                Err(error) => Err(unavailable(error)),
            },
            Err(error) if error.kind() == RequestErrorKind::NoResponders => disabled("on the server"),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Checks the size of a payload.
    pub(super) fn check_size(&self, what: &str, payload: &[u8]) -> Result<(), QueueError> {
        let most = self.client.max_payload().saturating_sub(HEADER_SIZE);
        if payload.len() <= most {
            return Ok(());
        }
        Err(QueueError::TooLarge { what: what.to_owned(), size: payload.len() as u64, most: most as u64 })
    }

    /// Publishes a message to a stream. If `expected` is set, it is the sequence of the message that this one replaces,
    /// and 0 if there is none.
    pub(super) async fn publish(
        self,
        subject: String,
        payload: Vec<u8>,
        expected: Option<u64>,
    ) -> Result<Published, QueueError> {
        let mut headers = HeaderMap::new();
        if let Some(expected) = expected {
            headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
        }
        self.publish_with(subject, headers, payload).await
    }

    /// Publishes a message with a header to a stream.
    pub(super) async fn publish_with(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Vec<u8>,
    ) -> Result<Published, QueueError> {
        self.ready().await?;
        let request = Request::new().payload(payload.into()).headers(headers);
        let sent = self.answered(self.client.send_request(subject.clone(), request)).await?;
        let answer = match sent {
            Err(error) if error.kind() == RequestErrorKind::NoResponders => return Ok(Published::NoStream),
            answer => answer.map_err(|error| failed(&subject, &error))?,
        };
        match serde_json::from_slice(&answer.payload).map_err(unavailable)? {
            Response::Ok(Acknowledgement { seq }) => Ok(Published::Stored(seq)),
            Response::Err { error } if MISMATCHES.contains(&error.error_code().0) => Ok(Published::Mismatch),
            Response::Err { error } => Err(refused(&error)),
        }
    }

    /// Sends a message that needs no answer. It may be lost.
    pub(super) async fn notify(&self, subject: &str, payload: Vec<u8>) {
        let publish = self.client.publish(subject.to_owned(), payload.into());
        let _ = tokio::time::timeout(TIMEOUT, publish).await;
    }

    pub(super) async fn subscribe(&self, subject: &'static str) -> Result<Subscriber, QueueError> {
        self.client.subscribe(subject).await.map_err(unavailable)
    }

    /// Requests one message of a consumer, without waiting for it.
    pub(super) async fn pull(&self, stream: &str, consumer: &str) -> Result<Pulled, QueueError> {
        self.ready().await?;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let mut inbox = self.pull_inbox().await?;
        let reply = inbox.subject.clone();
        let send = async |request: &'static str| {
            let sent = self.client.publish_with_reply(subject.clone(), reply.clone(), request.into()).await;
            sent.map_err(unavailable)
        };
        send(r#"{"batch":1,"no_wait":true}"#).await?;
        let answer = tokio::time::timeout(PULL_PATIENCE, inbox.answers.next());
        if let Ok(message) = self.answered(answer).await? {
            if message.is_some() {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(inbox);
            }
            return pulled(message);
        }
        // Server 2.10 does not answer a request without a limit if another one gets the last message at the same time.
        // It answers the second one, which has a limit, and forgets the first when the subscription ends.
        send(r#"{"batch":1,"expires":100000000}"#).await?;
        let message = tokio::time::timeout(TIMEOUT, inbox.answers.next()).await;
        tokio::spawn(return_messages(self.client.clone(), inbox.answers));
        pulled(message.map_err(|_| QueueError::Unavailable(format!("timed out (`{subject}`)")))?)
    }

    /// Returns a subscription for the answer to one request.
    async fn pull_inbox(&self) -> Result<PullInbox, QueueError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(inbox) = idle {
            return Ok(inbox);
        }
        let subject = self.client.new_inbox();
        let answers = self.client.subscribe(subject.clone()).await.map_err(unavailable)?;
        Ok(PullInbox { subject, answers })
    }

    /// Returns the last message of a subject, as the leader of the stream has it.
    pub(super) async fn last(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<StoredMessage>, QueueError> {
        let stream = self.stream(stream).await?;
        match self.answered(stream.get_last_raw_message_by_subject(subject)).await? {
            Ok(message) => Ok(Some(StoredMessage {
                sequence: message.sequence,
                payload: message.payload.into(),
                headers: message.headers,
                time: message.time.unix_timestamp_nanos(),
            })),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                LastRawMessageErrorKind::JetStream(error) if is_missing_stream(&error) => Ok(None),
                LastRawMessageErrorKind::JetStream(error) => Err(refused(&error)),
                _ => Err(unavailable(error)),
            },
        }
    }

    /// Sends a request to the interface of JetStream; `None` if there is no such stream or consumer.
    async fn api<T: DeserializeOwned>(
        &self,
        subject: String,
        request: &Value,
    ) -> Result<Option<T>, QueueError> {
        self.ready().await?;
        let payload = request.to_string();
        let answer = self.client.request(format!("$JS.API.{subject}"), payload.into());
        let answer = self.answered(answer).await?.map_err(|error| failed(&subject, &error))?;
        match serde_json::from_slice(&answer.payload).map_err(unavailable)? {
            Response::Ok(answer) => Ok(Some(answer)),
            Response::Err { error } if is_missing_stream(&error) => Ok(None),
            Response::Err { error } if error.error_code().0 == CONSUMER_NOT_FOUND => Ok(None),
            Response::Err { error } => Err(refused(&error)),
        }
    }

    /// Returns the time after which a consumer delivers a message again; `None` if there is no such consumer.
    pub(super) async fn ack_wait(
        &self,
        stream: &str,
        consumer: &str,
    ) -> Result<Option<Duration>, QueueError> {
        let info: Option<ConsumerInfo> =
            self.api(format!("CONSUMER.INFO.{stream}.{consumer}"), &json!({})).await?;
        Ok(info.map(|info| Duration::from_nanos(info.config.ack_wait)))
    }

    /// Returns the time of the server in nanoseconds since 1970.
    pub(super) async fn server_time(&self, stream: &str) -> Result<i128, QueueError> {
        let answer = self.api(format!("STREAM.INFO.{stream}"), &json!({})).await?;
        let Timestamp { ts } = answer.ok_or_else(|| unavailable("the stream was removed"))?;
        nanoseconds(&ts)
    }

    /// Returns the subjects of the messages of a stream that match a filter, and the time of the server in nanoseconds
    /// since 1970.
    pub(super) async fn subjects(
        &self,
        stream: &str,
        filter: &str,
    ) -> Result<(Vec<String>, i128), QueueError> {
        let (mut found, mut now) = (Vec::new(), 0);
        loop {
            let request = json!({ "subjects_filter": filter, "offset": found.len() });
            let page: Option<SubjectPage> = self.api(format!("STREAM.INFO.{stream}"), &request).await?;
            let Some(page) = page else { return Ok((found, now)) };
            now = nanoseconds(&page.ts)?;
            let is_empty = page.state.subjects.is_empty();
            found.extend(page.state.subjects.into_keys());
            if is_empty || found.len() >= page.total {
                return Ok((found, now));
            }
        }
    }

    /// Returns a stream without asking the server.
    pub(super) async fn stream(&self, name: &str) -> Result<Stream<()>, QueueError> {
        self.ready().await?;
        self.jetstream.get_stream_no_info(name).await.map_err(unavailable)
    }

    /// Returns the state of a stream; `None` if there is none.
    pub(super) async fn state(&self, name: &str) -> Result<Option<jetstream::stream::State>, QueueError> {
        self.ready().await?;
        match self.answered(self.jetstream.get_stream(name)).await? {
            Ok(stream) => Ok(Some(stream.cached_info().state.clone())),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(error) if is_missing_stream(&error) => Ok(None),
                GetStreamErrorKind::JetStream(error) => Err(refused(&error)),
                _ => Err(unavailable(error)),
            },
        }
    }

    /// Returns the number of messages of a stream.
    pub(super) async fn messages(&self, name: String) -> Result<u64, QueueError> {
        Ok(self.state(&name).await?.map_or(0, |state| state.messages))
    }

    /// Creates a stream, unless there is one with this name.
    pub(super) async fn create_stream(&self, config: Config) -> Result<(), QueueError> {
        self.ready().await?;
        match self.jetstream.create_stream(config).await {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                CreateStreamErrorKind::JetStream(error) if error.error_code().0 == STREAM_NAME_IN_USE => {
                    Ok(())
                }
                CreateStreamErrorKind::JetStream(error) => Err(refused(&error)),
                _ => Err(unavailable(error)),
            },
        }
    }

    /// Deletes a stream, if it is there.
    pub(super) async fn delete_stream(&self, name: &str) -> Result<(), QueueError> {
        self.ready().await?;
        match self.jetstream.delete_stream(name).await {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                DeleteStreamErrorKind::JetStream(error) if is_missing_stream(&error) => Ok(()),
                DeleteStreamErrorKind::JetStream(error) => Err(refused(&error)),
                _ => Err(unavailable(error)),
            },
        }
    }

    /// Deletes the messages of a subject.
    pub(super) async fn purge(&self, stream: &str, subject: &str) -> Result<(), QueueError> {
        let request = json!({ "filter": subject });
        self.api::<Value>(format!("STREAM.PURGE.{stream}"), &request).await?;
        Ok(())
    }
}

/// The answer to a request for one message.
#[derive(Debug)]
pub(super) enum Pulled {
    Message(Box<Message>),
    Nothing,
    NoConsumer,
}

/// Gives messages back that arrive after the one that was awaited, so that other workers get them at once.
async fn return_messages(client: Client, mut messages: Subscriber) {
    let until = tokio::time::Instant::now() + TIMEOUT;
    while let Ok(Some(message)) = tokio::time::timeout_at(until, messages.next()).await {
        if let (None, Some(acknowledge)) = (message.status, message.reply) {
            let _ = client.publish(acknowledge, "-NAK".into()).await;
        }
    }
}

fn pulled(message: Option<Message>) -> Result<Pulled, QueueError> {
    let message = message.ok_or_else(|| unavailable("the connection was closed"))?;
    match message.status {
        None => Ok(Pulled::Message(Box::new(message))),
        Some(StatusCode::NO_RESPONDERS) => Ok(Pulled::NoConsumer),
        Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => Ok(Pulled::Nothing),
        Some(status) => {
            let reason = message.description.unwrap_or_default();
            Err(QueueError::Unavailable(format!("NATS answered {status} {reason}")))
        }
    }
}

/// Returns whether an error says that there is no such stream.
pub(super) fn is_missing_stream(error: &jetstream::Error) -> bool {
    error.error_code().0 == STREAM_NOT_FOUND
}

/// Returns a date of the server in nanoseconds since 1970.
fn nanoseconds(date: &str) -> Result<i128, QueueError> {
    Ok(async_nats::datetime::parse_rfc3339(date).map_err(unavailable)?.unix_timestamp_nanos())
}

fn interrupted() -> QueueError {
    QueueError::Unavailable("the connection to the NATS server is interrupted".into())
}

/// An error that may pass.
pub(super) fn unavailable(error: impl Display) -> QueueError {
    QueueError::Unavailable(error.to_string())
}

/// A request that was not answered.
fn failed(subject: &str, error: &RequestError) -> QueueError {
    QueueError::Unavailable(format!("{error} (`{subject}`)"))
}

/// An error that JetStream reported.
pub(super) fn refused(error: &jetstream::Error) -> QueueError {
    // 503: JetStream is starting, or it has no leader at the moment.
    if error.code() == 503 { unavailable(error) } else { QueueError::Refused(error.to_string()) }
}
