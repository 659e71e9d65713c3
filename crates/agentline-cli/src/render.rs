//! Tells a run on standard output, in the form that was asked for.

mod claude;
mod events;
mod human;
mod json;
mod messages;
mod promptfoo;
mod provider;
pub(crate) mod saved;
pub(crate) mod table;
pub(crate) mod words;

use crate::{args::Output, ui::Ui};
use agentline::{Completer, PermissionMode, Record};
use std::io;

/// What is told, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telling {
    /// In which form.
    pub(crate) output: Output,
    /// The outcome also holds the messages.
    pub(crate) messages: bool,
    /// The reasoning is shown, where only the answer would be.
    pub(crate) thoughts: bool,
    /// The permission mode of the run, for the form of Claude Code.
    pub(crate) mode: PermissionMode,
    /// The value is the answer, and the words around it are not shown.
    pub(crate) value_only: bool,
}

impl Telling {
    /// The form alone, for a run of which nothing else is known.
    pub(crate) fn plain(output: Output) -> Self {
        let mode = PermissionMode::Default;
        Self { output, messages: false, thoughts: false, mode, value_only: false }
    }
}

/// Tells one run.
pub(crate) struct Renderer {
    form: Box<dyn Form>,
}

/// One form of telling a run.
trait Form {
    /// Before the first event.
    fn begin(&mut self, ui: &mut Ui) {
        ui.busy("starting the agent");
    }

    /// The agent is here, and what it saves completes the messages.
    fn complete_by(&mut self, _completer: &Completer) {}

    /// One event; the last one is the outcome.
    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()>;
}

impl Renderer {
    pub(crate) fn new(telling: Telling) -> Self {
        let form: Box<dyn Form> = match telling.output {
            Output::Text => Box::new(human::Human::new(&telling)),
            Output::Json => Box::new(json::Json::new(telling.messages)),
            Output::Events => Box::new(events::Events::new(telling.messages)),
            Output::Claude => Box::new(claude::Claude::new(telling.mode)),
            Output::Provider => Box::new(provider::Provider::default()),
            Output::Promptfoo => Box::new(promptfoo::Promptfoo),
        };
        Self { form }
    }

    /// The agent is here, and what it saves completes the messages.
    pub(crate) fn complete_by(&mut self, completer: &Completer) {
        self.form.complete_by(completer);
    }

    /// Before the first event.
    pub(crate) fn begin(&mut self, ui: &mut Ui) {
        self.form.begin(ui);
    }

    /// One event; the last one is the outcome.
    pub(crate) fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        self.form.record(ui, record)
    }
}
