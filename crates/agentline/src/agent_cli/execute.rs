//! `execute`: one prompt, one agent, and what came of it in one object.

use crate::{Agentline, Completer, Launched};
use agentline_core::{Event, Message, Millis, Origin, Outcome, Record, RunRequest, Verdict};
use serde::Serialize;
use serde_json::value::RawValue;
use std::fmt;

/// What to run, and who hears of it.
pub struct Execute<'a> {
    request: RunRequest,
    verbose: bool,
    on_start: Box<dyn FnMut(&Launched) + Send + 'a>,
    on_stdout: Box<dyn FnMut(&Record) + Send + 'a>,
    on_stderr: Box<dyn FnMut(&str) + Send + 'a>,
    on_error: Box<dyn FnMut(&str) + Send + 'a>,
    on_close: Box<dyn FnMut(Option<i32>) + Send + 'a>,
}

impl<'a> Execute<'a> {
    /// Runs this request; its agent, model, permissions, timeout and session are those of the request.
    #[must_use]
    pub fn new(request: RunRequest) -> Self {
        Self {
            request,
            verbose: false,
            on_start: Box::new(|_| {}),
            on_stdout: Box::new(|_| {}),
            on_stderr: Box::new(|_| {}),
            on_error: Box::new(|_| {}),
            on_close: Box::new(|_| {}),
        }
    }

    /// The answer is to hold a JSON value, which becomes `data`.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.request.extract_json = true;
        self
    }

    /// Whoever hears standard error also hears the command and every warning.
    #[must_use]
    pub fn verbose(mut self) -> Self {
        self.verbose = true;
        self
    }

    /// Called once, when the agent was started, with its command.
    #[must_use]
    pub fn on_start(mut self, call: impl FnMut(&Launched) + Send + 'a) -> Self {
        self.on_start = Box::new(call);
        self
    }

    /// Called with everything that the agent says, as it says it.
    #[must_use]
    pub fn on_stdout(mut self, call: impl FnMut(&Record) + Send + 'a) -> Self {
        self.on_stdout = Box::new(call);
        self
    }

    /// Called with what the agent wrote on standard error: what we understood of it at once, the end of it all at the end.
    #[must_use]
    pub fn on_stderr(mut self, call: impl FnMut(&str) + Send + 'a) -> Self {
        self.on_stderr = Box::new(call);
        self
    }

    /// Called once where the run failed, with why.
    #[must_use]
    pub fn on_error(mut self, call: impl FnMut(&str) + Send + 'a) -> Self {
        self.on_error = Box::new(call);
        self
    }

    /// Called once at the end, with the agent's exit code; after everything else.
    #[must_use]
    pub fn on_close(mut self, call: impl FnMut(Option<i32>) + Send + 'a) -> Self {
        self.on_close = Box::new(call);
        self
    }

    fn hear(&mut self, record: &Record) {
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

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Executed {
    /// The agent finished and answered.
    pub success: bool,
    /// The agent's exit code; `None` where a signal ended it, or nothing was started.
    pub exit_code: Option<i32>,
    /// The agent's own session.
    pub session_id: Option<String>,
    /// How long it took, in milliseconds.
    pub duration: Millis,
    /// What came of the prompt, in the view `claude`, completed from the session.
    pub messages: Vec<Message<'static>>,
    /// The JSON value of the answer, where one was asked for.
    pub data: Option<Box<RawValue>>,
    /// What went wrong.
    pub error: Option<String>,
    /// The model's service refused for quota or load.
    pub quota_exceeded: bool,
    /// All that the run came to; `None` where the request itself was refused.
    #[serde(skip)]
    pub outcome: Option<Box<Outcome>>,
}

/// Runs one prompt to its end. Whatever happens is told in the result: it never fails and never hangs.
pub async fn execute(agentline: &Agentline, mut execute: Execute<'_>) -> Executed {
    let mut completer = Completer::new(agentline, &execute.request.prompt);
    let mut run = match agentline.run(execute.request.clone()).await {
        Ok(run) => run,
        Err(error) => return refused(&mut execute, &error.to_string()),
    };
    completer.begun(&run);
    if let Some(launched) = run.launched() {
        (execute.on_start)(launched);
        if execute.verbose {
            (execute.on_stderr)(&launched.command.join(" "));
        }
    }
    let mut transcript = completer.transcript();
    let outcome = loop {
        let Some(record) = run.next().await else {
            return refused(&mut execute, "the run came to no outcome");
        };
        transcript.take(&record);
        execute.hear(&record);
        if let Event::Outcome { outcome } = record.event {
            break outcome;
        }
    };
    let reading = outcome.clone();
    let completed = tokio::task::spawn_blocking(move || completer.complete(transcript, &reading)).await;
    let messages = match completed {
        Ok(completed) => {
            if let Some(warning) = completed.warning.filter(|_| execute.verbose) {
                (execute.on_stderr)(&warning.message);
            }
            completed.messages
        }
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
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
        data: outcome.output.clone(),
        error,
        quota_exceeded: outcome.verdict == Verdict::RateLimited,
        outcome: Some(outcome),
    }
}

fn refused(execute: &mut Execute<'_>, why: &str) -> Executed {
    (execute.on_error)(why);
    (execute.on_close)(None);
    Executed {
        success: false,
        exit_code: None,
        session_id: None,
        duration: 0,
        messages: Vec::new(),
        data: None,
        error: Some(why.to_owned()),
        quota_exceeded: false,
        outcome: None,
    }
}
