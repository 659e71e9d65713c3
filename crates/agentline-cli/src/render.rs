//! Renders a run on standard output in the requested format.

mod claude;
mod events;
mod human;
mod json;
mod messages;
pub(crate) mod phrases;
mod promptfoo;
mod provider;
pub(crate) mod table;

use crate::{output::OutputFormat, ui::Ui};
use agentline::{Event, PermissionMode, Record, messages::Completer};
use std::io;

/// The options of a renderer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenderOptions {
    /// The output format.
    pub(crate) output: OutputFormat,
    /// Whether the outcome includes the messages.
    pub(crate) messages: bool,
    /// Whether reasoning is shown, in formats that omit it.
    pub(crate) thoughts: bool,
    /// The permission mode of the run, for Claude Code's format.
    pub(crate) mode: PermissionMode,
    /// Whether only the value is shown, without the text around it.
    pub(crate) value_only: bool,
    /// Whether the session remains after the run, so that the summary says how to continue it.
    pub(crate) keeps_session: bool,
}

impl RenderOptions {
    /// Creates options with only a format.
    pub(crate) fn plain(output: OutputFormat) -> Self {
        let mode = PermissionMode::Default;
        Self { output, messages: false, thoughts: false, mode, value_only: false, keeps_session: false }
    }
}

/// Renders one run.
pub(crate) struct Renderer {
    renderer: Box<dyn RunRenderer>,
}

/// One output format.
trait RunRenderer {
    /// Prepares the output. Called before the first event.
    fn begin(&mut self, ui: &mut Ui) {
        ui.busy("starting the agent");
    }

    /// Sets the completer that adds messages from the agent's saved session.
    fn complete_by(&mut self, _completer: &Completer) {}

    /// Renders one event; the last one is the outcome.
    fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()>;
}

impl Renderer {
    pub(crate) fn new(options: RenderOptions) -> Self {
        let renderer: Box<dyn RunRenderer> = match options.output {
            OutputFormat::Text => Box::new(human::HumanRenderer::new(&options)),
            OutputFormat::Json => Box::new(json::JsonRenderer::new(options.messages)),
            OutputFormat::Events => Box::new(events::EventsRenderer::new(options.messages)),
            OutputFormat::Claude => Box::new(claude::ClaudeRenderer::new(options.mode)),
            OutputFormat::Provider => Box::new(provider::ProviderRenderer::default()),
            OutputFormat::Promptfoo => Box::new(promptfoo::PromptfooRenderer),
        };
        Self { renderer }
    }

    /// Sets the completer that adds messages from the agent's saved session.
    pub(crate) fn complete_by(&mut self, completer: &Completer) {
        self.renderer.complete_by(completer);
    }

    /// Prepares the output. Must be called before the first event.
    pub(crate) fn begin(&mut self, ui: &mut Ui) {
        self.renderer.begin(ui);
    }

    /// Renders one event; the last one is the outcome.
    pub(crate) fn record(&mut self, ui: &mut Ui, record: &Record) -> io::Result<()> {
        self.renderer.record(ui, record)?;
        if let Event::Outcome { outcome } = &record.event
            && ui.is_verbose()
        {
            phrases::agent_stderr(ui, outcome);
        }
        Ok(())
    }
}
