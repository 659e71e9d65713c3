//! What the stories share: a stage whose model answers each prompt by its own script, and what a run told.

use agentline::{Event, Outcome, PermissionMode, Record, Run, RunRequest, Session, ToolStatus};
use agentline_mock::gemini::{Script, ScriptedModel, Step};
use agentline_tests::{Stage, shown};
use serde_json::{Value, json};

/// A stage whose model answers each prompt by the first script whose words stand in it.
pub(crate) fn stage<'a>(scripts: impl IntoIterator<Item = (&'a str, Script)>) -> Stage {
    Stage::with_model(ScriptedModel::matching(scripts).expect("a free port on loopback"))
}

/// A script for one prompt: these calls in one turn, then a word.
pub(crate) fn calling<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Script {
    Script::new([Step::calls(calls), Step::text("said")])
}

/// A call that writes a file.
pub(crate) fn write(path: &str) -> (&'static str, Value) {
    ("write_file", json!({"file_path": path, "content": "new\n"}))
}

/// A call that runs a command.
pub(crate) fn command(text: &str) -> (&'static str, Value) {
    ("run_shell_command", json!({"command": text, "description": "d"}))
}

/// A request in a mode.
pub(crate) fn in_mode(stage: &Stage, mode: PermissionMode) -> RunRequest {
    stage.request("").permission_mode(mode)
}

/// All that a run told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) records: Vec<Record>,
    pub(crate) outcome: Outcome,
}

impl Told {
    /// Reads a run to its end.
    pub(crate) async fn of(mut run: Run) -> Self {
        let mut records = Vec::new();
        while let Some(record) = run.next().await {
            if let Event::Outcome { outcome } = record.event {
                return Self { records, outcome: *outcome };
            }
            records.push(record);
        }
        unreachable!("the last event is the outcome");
    }

    /// Every decision, in order: tool, decision, who decided, why, by which rule.
    pub(crate) fn decisions(&self) -> Vec<String> {
        let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let decisions = self.records.iter().filter_map(|record| match &record.event {
            Event::Permission { tool, decision, by, reason, rule, .. } => {
                Some(format!("{tool} {decision} {by} {} {}", word(reason), word(rule)))
            }
            _ => None,
        });
        decisions.collect()
    }

    /// Every refusal of the outcome: tool, why, by which rule.
    pub(crate) fn denied(&self) -> Vec<String> {
        let rule = |rule: &Option<String>| rule.clone().unwrap_or_else(|| "-".into());
        self.outcome.denied.iter().map(|d| format!("{} {} {}", d.tool, d.reason, rule(&d.rule))).collect()
    }

    /// How the calls ended, in order.
    pub(crate) fn ends(&self) -> Vec<ToolStatus> {
        let ends = self.records.iter().filter_map(|record| match &record.event {
            Event::ToolResult { status, .. } => Some(*status),
            _ => None,
        });
        ends.collect()
    }

    /// The codes of the warnings.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.outcome.warnings.iter().map(|warning| warning.code.as_str()).collect()
    }

    /// Everything, for a failed assertion.
    pub(crate) fn shown(&self) -> String {
        let records: Vec<String> =
            self.records.iter().map(|r| serde_json::to_string(r).unwrap_or_default()).collect();
        format!("{}\n{}", records.join("\n"), shown(&self.outcome))
    }
}

/// Says something in a conversation and reads the run to its end.
pub(crate) async fn say(session: &Session, request: RunRequest, prompt: &str) -> Told {
    let mut request = request;
    request.prompt = prompt.into();
    Told::of(session.prompt_with(request).await.expect("a good request")).await
}
