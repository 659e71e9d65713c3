//! What a scenario expects of a run, and how an expectation differs from what was observed.

use agentline::outcome::FileChangeKind;
use agentline::{FailureKind, ToolStatus, Verdict};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// The expected outcome of a scenario. Aspects that are not set are not compared, except files and tokens.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) verdict: Verdict,
    /// The exit code of the program.
    pub(crate) exit: u8,
    pub(crate) kind: Option<FailureKind>,
    pub(crate) text: Option<String>,
    pub(crate) thinking: Option<String>,
    /// The tools that were called, by their canonical names.
    pub(crate) tools: Option<Vec<(String, ToolStatus)>>,
    pub(crate) denied: Vec<String>,
    /// The changed files of the workspace; `None` for any.
    pub(crate) files: Option<Vec<(String, FileChangeKind)>>,
    /// The content of files after the run, or `None` for a file that must not exist.
    pub(crate) disk: Vec<(String, Option<String>)>,
    pub(crate) output: Option<Value>,
    /// Texts that a request to the model must contain.
    pub(crate) reaches_model: Vec<String>,
    /// Tools that the agent must offer to the model.
    pub(crate) offers: Vec<String>,
    /// The number of turns that reach the model.
    pub(crate) turns: Option<usize>,
    pub(crate) max_turns: Option<usize>,
    /// The time from the first request to the outcome.
    pub(crate) within: Option<Duration>,
    pub(crate) tokens: bool,
    pub(crate) model: bool,
    /// The command lines that must not be running afterwards.
    pub(crate) no_process: Option<String>,
}

impl Expected {
    /// Expects a finished run with this answer. Tokens and model are compared with the model's own log.
    pub(crate) fn done(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), tokens: true, model: true, ..Self::verdict(Verdict::Done) }
    }

    /// Expects a finished run in which these tools were denied.
    pub(crate) fn denied(text: impl Into<String>, tools: &[&str]) -> Self {
        Self {
            text: Some(text.into()),
            denied: tools.iter().map(|&tool| tool.to_owned()).collect(),
            tokens: true,
            ..Self::verdict(Verdict::DoneWithDenials)
        }
    }

    /// Expects a failure of this kind.
    pub(crate) fn failed(verdict: Verdict, kind: FailureKind) -> Self {
        Self { kind: Some(kind), ..Self::verdict(verdict) }
    }

    fn verdict(verdict: Verdict) -> Self {
        Self {
            verdict,
            exit: exit_code(verdict),
            kind: None,
            text: None,
            thinking: None,
            tools: None,
            denied: Vec::new(),
            files: Some(Vec::new()),
            disk: Vec::new(),
            output: None,
            reaches_model: Vec::new(),
            offers: Vec::new(),
            turns: None,
            max_turns: None,
            within: None,
            tokens: false,
            model: false,
            no_process: None,
        }
    }

    pub(crate) fn thinking(mut self, text: &str) -> Self {
        self.thinking = Some(text.to_owned());
        self
    }

    pub(crate) fn tool(mut self, name: &str, status: ToolStatus) -> Self {
        self.tools.get_or_insert_default().push((name.to_owned(), status));
        self
    }

    /// Expects a changed file with this content afterwards; `None` for a deleted file.
    pub(crate) fn file(mut self, path: &str, change: FileChangeKind, content: Option<&str>) -> Self {
        self.files.get_or_insert_default().push((path.to_owned(), change));
        self.disk(path, content)
    }

    /// Expects a file of the workspace, or an absolute path, with this content.
    pub(crate) fn disk(mut self, path: &str, content: Option<&str>) -> Self {
        self.disk.push((path.to_owned(), content.map(str::to_owned)));
        self
    }

    pub(crate) fn output(mut self, value: Value) -> Self {
        self.output = Some(value);
        self
    }

    pub(crate) fn reaches_model(mut self, text: &str) -> Self {
        self.reaches_model.push(text.to_owned());
        self
    }

    pub(crate) fn offers(mut self, tool: &str) -> Self {
        self.offers.push(tool.to_owned());
        self
    }

    pub(crate) fn turns(mut self, count: usize) -> Self {
        self.turns = Some(count);
        self
    }

    pub(crate) fn max_turns(mut self, count: usize) -> Self {
        self.max_turns = Some(count);
        self
    }

    pub(crate) fn within(mut self, seconds: u64) -> Self {
        self.within = Some(Duration::from_secs(seconds));
        self
    }

    pub(crate) fn any_text(mut self) -> Self {
        self.text = None;
        self
    }

    pub(crate) fn any_files(mut self) -> Self {
        self.files = None;
        self
    }

    pub(crate) fn no_process(mut self, command: String) -> Self {
        self.no_process = Some(command);
        self
    }
}

/// Returns the exit code that users and scripts rely on. It is stated here a second time, because it must never change.
fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Done => 0,
        Verdict::NotInstalled => 3,
        Verdict::NotAuthenticated => 4,
        Verdict::DoneWithDenials => 5,
        Verdict::Empty => 6,
        Verdict::LimitReached => 7,
        Verdict::TimedOut => 8,
        Verdict::RateLimited => 9,
        Verdict::InvalidOutput => 10,
        Verdict::Untrusted => 11,
        Verdict::Cancelled => 130,
        _ => 1,
    }
}

/// The aspects of a run that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Aspect {
    /// The verdict.
    Verdict,
    /// The exit code of the program.
    ExitCode,
    /// The kind of the error.
    Kind,
    /// The answer.
    Text,
    /// The reasoning.
    Thinking,
    /// The tool calls and their statuses.
    Tools,
    /// The denied tools.
    Denied,
    /// The changed files.
    Files,
    /// The content of files.
    Disk,
    /// The structured value.
    Output,
    /// What reached the model.
    Model,
    /// The tools that the agent offered.
    Offered,
    /// The number of requests.
    Requests,
    /// The time.
    Time,
    /// The tokens.
    Tokens,
    /// The tokens of requests that the agent makes for its own purposes.
    OwnRequests,
    /// The model in the outcome.
    ModelName,
    /// The order of events.
    Events,
    /// Processes that were left.
    Processes,
    /// The run did not start, or the kit failed.
    Start,
}

impl Aspect {
    /// Returns the name of the aspect.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::ExitCode => "exit_code",
            Self::Kind => "kind",
            Self::Text => "text",
            Self::Thinking => "thinking",
            Self::Tools => "tools",
            Self::Denied => "denied",
            Self::Files => "files",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::Model => "model",
            Self::Offered => "offered",
            Self::Requests => "requests",
            Self::Time => "time",
            Self::Tokens => "tokens",
            Self::OwnRequests => "own_requests",
            Self::ModelName => "model_name",
            Self::Events => "events",
            Self::Processes => "processes",
            Self::Start => "start",
        }
    }
}

/// One aspect of a run that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The aspect.
    pub aspect: Aspect,
    /// What was expected.
    pub expected: String,
    /// What was observed.
    pub observed: String,
}

impl Difference {
    pub(crate) fn new(aspect: Aspect, expected: impl Into<String>, observed: impl Into<String>) -> Self {
        Self { aspect, expected: shorten(&expected.into()), observed: shorten(&observed.into()) }
    }
}

/// Returns the beginning of a long text and its length.
fn shorten(text: &str) -> String {
    const LONGEST: usize = 300;
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let begin: String = text.chars().take(LONGEST / 2).collect();
    format!("{begin}… ({} bytes)", text.len())
}
