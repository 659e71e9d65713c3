//! The live progress of a comparison: one line for each agent on a terminal, else a line when an agent ends.

use crate::ui::Ui;
use agentline::{
    Event, Record,
    compare::{ComparisonResults, Competitor},
};
use agentline_core::terminal_text::{duration, fit, plain};
use agentline_sessions::render::{TextRenderer, TextStyle};

/// The maximum length of an activity.
const MAX_ACTIVITY: usize = 60;

/// What each agent does.
pub(super) struct ComparisonProgress {
    names: Vec<String>,
    activities: Vec<String>,
    is_over: Vec<bool>,
    calls: TextRenderer,
}

impl ComparisonProgress {
    pub(super) fn new(ui: &mut Ui, competitors: &[Competitor]) -> Self {
        let name = |competitor: &Competitor| match &competitor.model {
            Some(model) => format!("{}:{model}", competitor.agent),
            None => competitor.agent.to_string(),
        };
        let names: Vec<String> = competitors.iter().map(name).collect();
        let progress = Self {
            activities: vec!["copying the workspace".to_owned(); names.len()],
            is_over: vec![false; names.len()],
            names,
            calls: TextRenderer::new(TextStyle::brief()),
        };
        progress.show(ui);
        progress
    }

    /// Updates the line of the agent that this event is from.
    pub(super) fn record(&mut self, ui: &mut Ui, index: usize, record: &Record) {
        let activity = match &record.event {
            Event::Started(_) | Event::ToolResult(_) => "waiting for the model".to_owned(),
            Event::Thinking { .. } => "thinking".to_owned(),
            Event::Text { .. } => "answering".to_owned(),
            Event::ToolUse(tool) => self.calls.call_line(tool),
            Event::Retry { .. } => "waiting for the next attempt".to_owned(),
            Event::Outcome { outcome } => {
                self.is_over[index] = true;
                let text = format!("{} after {}", outcome.verdict.name(), duration(outcome.duration_ms));
                if !ui.shows_progress() {
                    ui.print_status(format!("{}: {text}", self.names[index]));
                }
                text
            }
            _ => return,
        };
        self.activities[index] = fit(&plain(&activity), MAX_ACTIVITY);
        self.show(ui);
    }

    fn show(&self, ui: &mut Ui) {
        let width = self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let lines = self
            .names
            .iter()
            .zip(&self.activities)
            .map(|(name, activity)| format!("{name:<width$}  {activity}"));
        let over = self.is_over.iter().filter(|over| **over).count();
        ui.busy_below(&lines.collect::<Vec<_>>(), &format!("{over} of {} done", self.names.len()));
    }

    /// Clears the lines, and shows the ends of agents that never started.
    pub(super) fn finish(&self, ui: &mut Ui, results: &ComparisonResults) {
        ui.clear_spinner();
        let rows = results.rows().iter().zip(&self.is_over).zip(&self.names);
        for ((row, _), name) in rows.filter(|((_, is_over), _)| !**is_over) {
            ui.print_status(format!("{name}: {}", row.outcome.verdict.name()));
        }
        for (row, name) in results.rows().iter().zip(&self.names) {
            for warning in &row.outcome.warnings {
                ui.warn(&format!("{name}: {}", warning.message));
            }
        }
    }
}
