//! `execute`: runs one prompt on one agent and returns everything about it in one object.

use crate::{
    agentline::Agentline,
    blocking_work::on_blocking_thread,
    run::{Launched, messages::Completer},
};
use agentline_core::{
    Event, Message, Millis, Origin, Outcome, Record, RunRequest, Verdict, View, error_chain,
    extract_json_text,
};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::fmt;

/// A request to run one prompt, with callbacks for its progress.
pub struct Execute<'a> {
    request: RunRequest,
    json: bool,
    verbose: bool,
    on_start: Box<dyn FnMut(&Launched) + Send + 'a>,
    on_stdout: Box<dyn FnMut(&Record) + Send + 'a>,
    on_stderr: Box<dyn FnMut(&str) + Send + 'a>,
    on_error: Box<dyn FnMut(&str) + Send + 'a>,
    on_close: Box<dyn FnMut(Option<i32>) + Send + 'a>,
}

impl<'a> Execute<'a> {
    /// Creates an execution of this request with no callbacks.
    ///
    /// The agent, model, permissions, timeout and session are those of the request.
    #[must_use]
    pub fn new(request: RunRequest) -> Self {
        Self {
            request,
            json: false,
            verbose: false,
            on_start: Box::new(|_| {}),
            on_stdout: Box::new(|_| {}),
            on_stderr: Box::new(|_| {}),
            on_error: Box::new(|_| {}),
            on_close: Box::new(|_| {}),
        }
    }

    /// Extracts a JSON value from the answer into `data`, if it contains one.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    /// Also passes the command line and all warnings to the `on_stderr` callback.
    #[must_use]
    pub fn verbose(mut self) -> Self {
        self.verbose = true;
        self
    }

    /// Sets a callback that is called once with the command when the agent has started.
    #[must_use]
    pub fn on_start(mut self, call: impl FnMut(&Launched) + Send + 'a) -> Self {
        self.on_start = Box::new(call);
        self
    }

    /// Sets a callback that is called with every event of the run as it happens, except the outcome and the warnings
    /// that `on_stderr` receives.
    #[must_use]
    pub fn on_stdout(mut self, call: impl FnMut(&Record) + Send + 'a) -> Self {
        self.on_stdout = Box::new(call);
        self
    }

    /// Sets a callback for the agent's standard error.
    ///
    /// Recognized warnings are passed as they happen; the tail of the whole stream is passed at the end.
    #[must_use]
    pub fn on_stderr(mut self, call: impl FnMut(&str) + Send + 'a) -> Self {
        self.on_stderr = Box::new(call);
        self
    }

    /// Sets a callback that is called once with the error message if the run fails.
    #[must_use]
    pub fn on_error(mut self, call: impl FnMut(&str) + Send + 'a) -> Self {
        self.on_error = Box::new(call);
        self
    }

    /// Sets a callback that is called last, once, with the agent's exit code.
    #[must_use]
    pub fn on_close(mut self, call: impl FnMut(Option<i32>) + Send + 'a) -> Self {
        self.on_close = Box::new(call);
        self
    }

    fn record(&mut self, record: &Record) {
        match &record.event {
            Event::Outcome { .. } => {}
            Event::Warning { message, .. } if self.verbose || record.from == Origin::Stderr => {
                (self.on_stderr)(message);
            }
            _ => (self.on_stdout)(record),
        }
    }
}

impl fmt::Debug for Execute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execute").field("request", &self.request).finish_non_exhaustive()
    }
}

/// The result of [`execute`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Executed {
    /// Whether the agent finished and answered.
    pub success: bool,
    /// The agent's exit code; `None` if a signal ended the agent or no process was started.
    pub exit_code: Option<i32>,
    /// The agent's own session id.
    pub session_id: Option<String>,
    /// The duration of the run in milliseconds.
    pub duration: Millis,
    /// The messages of the run in the view `unified`, completed from the saved session.
    pub messages: Vec<Message<'static>>,
    /// The text of the answer as a JSON string; with [`Execute::json`], the JSON value that it contains, if any.
    pub data: Option<Box<RawValue>>,
    /// The error message, if the run failed.
    pub error: Option<String>,
    /// Whether the model's service refused the run because of quota or load.
    pub quota_exceeded: bool,
    /// The outcome of the run; `None` if the request itself was rejected.
    #[serde(skip)]
    pub outcome: Option<Outcome>,
}

/// Runs one prompt to its end. Never fails: the result reports all errors.
pub async fn execute(agentline: &Agentline, mut execute: Execute<'_>) -> Executed {
    let mut completer = Completer::new(agentline, &execute.request.prompt).view(View::Unified);
    let mut run = match agentline.run(execute.request.clone()).await {
        Ok(run) => run,
        Err(error) => return refused(&mut execute, &error_chain(&error)),
    };
    completer.started(&run);
    if let Some(launched) = run.launched() {
        (execute.on_start)(launched);
        if execute.verbose {
            (execute.on_stderr)(&launched.command.join(" "));
        }
    }
    let mut transcript = completer.transcript();
    let outcome = loop {
        let Some(record) = run.next().await else {
            return refused(&mut execute, "the run ended without an outcome");
        };
        transcript.take(&record);
        execute.record(&record);
        if let Event::Outcome { outcome } = record.event {
            break *outcome;
        }
    };
    let reading = outcome.clone();
    let completed = on_blocking_thread(move || completer.complete(transcript, &reading)).await;
    if let Some(warning) = completed.warning.filter(|_| execute.verbose) {
        (execute.on_stderr)(&warning.message);
    }
    let messages = completed.messages;
    if !outcome.stderr_tail.is_empty() {
        (execute.on_stderr)(&outcome.stderr_tail);
    }
    let error = outcome.error.as_ref().map(|error| error.message.clone());
    if let Some(error) = &error {
        (execute.on_error)(error);
    }
    (execute.on_close)(outcome.agent_exit_code);
    Executed {
        success: matches!(outcome.verdict, Verdict::Done | Verdict::DoneWithDenials),
        exit_code: outcome.agent_exit_code,
        session_id: outcome.session_id.clone(),
        duration: outcome.duration_ms,
        messages,
        data: outcome.output.clone().or_else(|| data(&outcome.text, execute.json)),
        error,
        quota_exceeded: outcome.verdict == Verdict::RateLimited,
        outcome: Some(outcome),
    }
}

fn data(text: &str, json: bool) -> Option<Box<RawValue>> {
    let value = extract_json_text(text).filter(|_| json);
    let value = value.and_then(|value| RawValue::from_string(value.to_owned()).ok());
    value.or_else(|| to_raw_value(text).ok())
}

fn refused(execute: &mut Execute<'_>, error: &str) -> Executed {
    (execute.on_error)(error);
    (execute.on_close)(None);
    Executed {
        success: false,
        exit_code: None,
        session_id: None,
        duration: 0,
        messages: Vec::new(),
        data: None,
        error: Some(error.to_owned()),
        quota_exceeded: false,
        outcome: None,
    }
}
