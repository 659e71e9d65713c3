//! The messages of a run, completed at its end from the session that the agent saved.
//!
//! The stream lacks thinking, the tokens of individual messages and the changes to files; the session has them.

#[cfg(feature = "sessions")]
mod saved;

use crate::{Agentline, run::Run};
use agentline_core::{Message, Millis, Notice, Outcome, Redactor, Transcript, View};
use std::time::{SystemTime, UNIX_EPOCH};

/// The source of the messages of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageSource {
    /// The agent's saved session: complete.
    Session,
    /// The agent's output while it ran.
    Stream,
}

/// The messages of a run, without the prompt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunMessages {
    /// The messages in order.
    pub messages: Vec<Message<'static>>,
    /// The source of the messages.
    pub source: MessageSource,
    /// A warning if the messages may be incomplete.
    pub warning: Option<Notice>,
}

/// The reason for incomplete messages in a build without the feature `sessions`.
#[cfg(any(test, not(feature = "sessions")))]
const WITHOUT_SESSIONS: &str =
    "this build of agentline does not read saved sessions; enable the Cargo feature `sessions`";

/// Completes the messages of one run.
#[derive(Clone, Debug)]
pub struct Completer {
    #[cfg(feature = "sessions")]
    agentline: Agentline,
    #[cfg(feature = "sessions")]
    prompt: String,
    redactor: Option<Redactor>,
    began: Millis,
    view: View,
}

impl Completer {
    /// Creates a completer for a run of this prompt that is about to begin.
    #[must_use]
    pub fn new(agentline: &Agentline, prompt: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX);
        #[cfg(not(feature = "sessions"))]
        let _ = (agentline, prompt);
        Self {
            #[cfg(feature = "sessions")]
            agentline: agentline.clone(),
            #[cfg(feature = "sessions")]
            prompt: prompt.trim().to_owned(),
            redactor: None,
            began,
            view: View::Claude,
        }
    }

    /// Sets the view of the messages. The default is `claude`.
    #[must_use]
    pub fn view(mut self, view: View) -> Self {
        self.view = view;
        self
    }

    /// Returns a transcript to collect the events of the run.
    #[must_use]
    pub fn transcript(&self) -> Transcript {
        Transcript::started_at(self.began)
    }

    /// Takes the redactor and start time of a started run. The messages of a run without a redactor are not completed.
    pub fn started(&mut self, run: &Run) {
        self.redactor = run.redactor().cloned();
        // A replayed run took place at another time.
        self.began = run.began().unwrap_or(self.began);
    }

    /// Returns the messages of the run with this outcome. Blocks while it reads the agent's session.
    #[must_use]
    pub fn complete(&self, transcript: Transcript, outcome: &Outcome) -> RunMessages {
        match self.saved(&transcript, outcome) {
            Ok(messages) => RunMessages { messages, source: MessageSource::Session, warning: None },
            Err(reason) => of_stream(transcript, self.view, &reason),
        }
    }

    /// Returns why the messages cannot be read from the agent's session.
    #[cfg(not(feature = "sessions"))]
    fn saved(&self, _: &Transcript, _: &Outcome) -> Result<Vec<Message<'static>>, String> {
        Err(WITHOUT_SESSIONS.into())
    }
}

/// Returns the messages of the stream, with a warning that says why they are incomplete.
fn of_stream(transcript: Transcript, view: View, reason: &str) -> RunMessages {
    let messages = match view {
        View::Unified => transcript.into_unified(),
        _ => transcript.into_messages(),
    };
    // A run without messages has lost nothing.
    let warning = (!messages.is_empty()).then(|| {
        let message =
            format!("the messages come from the stream and lack details of the saved session: {reason}");
        Notice::new("messages_incomplete", message)
    });
    RunMessages { messages, source: MessageSource::Stream, warning }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{Event, Failure, FailureKind, Origin, Record, RunInfo, Verdict};

    #[test]
    fn messages_without_the_sessions_feature_come_from_the_stream_with_a_warning_that_names_it() {
        assert_eq!(
            of_stream(Transcript::started_at(0), View::Claude, WITHOUT_SESSIONS).warning,
            None,
            "nothing is lost"
        );
        let mut transcript = Transcript::started_at(0);
        transcript.take(&Record::new(1, 0, Origin::Stdout, None, Event::Text { text: "hello".into() }));
        let failure = Failure::new(FailureKind::ApiError, "no");
        let outcome = Outcome::not_started(&RunInfo::default(), Verdict::Failed, failure);
        transcript.take(&Record::last((2, 0), outcome));
        let completed = of_stream(transcript, View::Claude, WITHOUT_SESSIONS);
        assert_eq!((completed.messages.len(), completed.source), (1, MessageSource::Stream));
        let warning = completed.warning.expect("a warning");
        assert_eq!(warning.code, "messages_incomplete");
        assert!(warning.message.contains("enable the Cargo feature `sessions`"), "{}", warning.message);
    }
}
