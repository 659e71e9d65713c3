//! One run on the connection: its specification, its progress, and what has been reported about it.

use super::{super::session_message::stop_reason, calls::ServeCalls};
use crate::{Failure, FailureKind, TurnEnd, TurnSpec, hosted_tools::HostedTools};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServeStep {
    /// Waiting for the event stream.
    Waiting,
    /// Opening the session, and adding its servers.
    Opening,
    /// Waiting for OpenCode to list the tools that the host serves.
    Listing,
    /// OpenCode is working on a prompt.
    Working,
    /// OpenCode has answered.
    Answered,
}

/// The role of a message in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageRole {
    /// A part of the answer.
    Answer,
    /// Anything else: the prompt, the summary of a compaction, or a message of a sub-agent.
    Other,
}

/// One run.
#[derive(Debug)]
pub(super) struct ServeTurn {
    pub(super) spec: TurnSpec,
    /// The options of the prompt that the launch has chosen.
    pub(super) options: Value,
    pub(super) session: Option<String>,
    pub(super) step: ServeStep,
    /// Whether the run is being cancelled.
    pub(super) stopping: bool,
    /// Why agentline stopped the turn, if it did.
    pub(super) given_up: Option<Failure>,
    pub(super) prompts: u32,
    pub(super) requests: u16,
    /// The requests that must be answered before the prompt is sent.
    pub(super) setup: u32,
    /// The provider and the id of the requested model.
    pub(super) model: Option<(String, String)>,
    /// The provider and the id of the model that answered last.
    pub(super) used_model: String,
    pub(super) hosted: HostedTools,
    /// Whether the session has worked on the current prompt, and whether it is idle since.
    pub(super) is_busy: bool,
    pub(super) is_idle: bool,
    /// The response to the current prompt, until it is handled.
    pub(super) reply: Option<String>,
    /// The last error of the session.
    pub(super) error: Option<Failure>,
    /// The number of requests that were too long for the model since the last answer.
    pub(super) overflows: u32,
    /// The number of answers of the model.
    pub(super) answers: u32,
    /// Whether text has arrived since the last prompt.
    pub(super) has_text: bool,
    pub(super) messages: BTreeMap<String, MessageRole>,
    /// How much of each text has been reported, in bytes.
    pub(super) texts: BTreeMap<String, TextPart>,
    /// The steps whose tokens have been counted.
    pub(super) steps: BTreeSet<String>,
    pub(super) calls: ServeCalls,
    /// Permission requests that arrived before the arguments of their calls.
    pub(super) early_requests: Vec<Box<serde_json::value::RawValue>>,
    /// Whether the turn was stopped again, because the first request may have arrived before the prompt.
    pub(super) is_aborted_again: bool,
    /// Rejections that are held back while other requests of the session are open, because a rejection rejects them all.
    pub(super) rejections: Vec<(String, String)>,
}

/// A text or a thought of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextPart {
    pub(super) is_thought: bool,
    pub(super) shown: usize,
}

impl ServeTurn {
    pub(super) fn new(spec: TurnSpec) -> Self {
        let options = spec.meta.as_deref().and_then(|meta| serde_json::from_str(meta).ok());
        Self {
            spec,
            options: options.unwrap_or_default(),
            session: None,
            step: ServeStep::Waiting,
            stopping: false,
            given_up: None,
            prompts: 0,
            requests: 0,
            setup: 0,
            model: None,
            used_model: String::new(),
            hosted: HostedTools::default(),
            is_busy: false,
            is_idle: false,
            reply: None,
            error: None,
            overflows: 0,
            answers: 0,
            has_text: false,
            messages: BTreeMap::new(),
            texts: BTreeMap::new(),
            steps: BTreeSet::new(),
            calls: ServeCalls::default(),
            early_requests: Vec::new(),
            is_aborted_again: false,
            rejections: Vec::new(),
        }
    }

    /// Returns the workspace.
    pub(super) fn directory(&self) -> &str {
        self.spec.session_cwd.as_ref().unwrap_or(&self.spec.info.cwd)
    }

    /// Prepares for another prompt.
    pub(super) fn begin_prompt(&mut self) {
        self.step = ServeStep::Working;
        self.prompts += 1;
        (self.is_busy, self.is_idle, self.has_text) = (false, false, false);
        (self.reply, self.error) = (None, None);
    }

    /// Returns the ids of the messages of the run.
    pub(super) fn into_messages(self) -> Vec<String> {
        self.messages.into_keys().collect()
    }

    /// Returns the result of the turn, from the error and the finish reason of its last message.
    pub(super) fn end(&mut self, error: Option<Failure>, finish: &str) -> TurnEnd {
        let given_up = self.given_up.take();
        let failure = match error {
            _ if given_up.is_some() => given_up,
            Some(failure) if failure.kind == FailureKind::Cancelled && !self.stopping => {
                let text = "OpenCode reported the turn as aborted without a request to abort it";
                Some(Failure::new(FailureKind::NoResult, text))
            }
            Some(failure) => Some(failure),
            None => self.cut_off(finish),
        };
        let stop = stop_reason(finish).unwrap_or(finish);
        let stop = Some(stop.to_owned()).filter(|stop| !stop.is_empty());
        TurnEnd { ok: failure.is_none(), stop, failure }
    }

    /// Returns why an answer without an error is not complete.
    fn cut_off(&self, finish: &str) -> Option<Failure> {
        let (kind, text) = match finish {
            "length" if self.has_text => {
                (FailureKind::ApiError, "the answer was truncated at the model's token limit")
            }
            "length" => (FailureKind::Empty, "the model reached its token limit before it answered"),
            "content-filter" => (FailureKind::Blocked, "the model's service blocked the answer"),
            "error" => {
                return Some(self.error.clone().unwrap_or_else(|| failure("the model's service failed")));
            }
            _ => return None,
        };
        Some(Failure::new(kind, text))
    }
}

fn failure(text: &str) -> Failure {
    Failure::new(FailureKind::ApiError, text)
}
