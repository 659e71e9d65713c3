//! Texts about a run for people: tool calls, activity, failures.

use crate::ui::{Paint, Ui};
use agentline::{Event, FailureKind, Outcome, ToolUse, Verdict};
use agentline_core::terminal_text::{duration, fit, plain};
use agentline_sessions::render::{TextRenderer, TextStyle};
use std::path::Path;

/// The maximum length of a reason in a line.
const MAX_REASON_LENGTH: usize = 72;

/// Shows the current activity on a terminal.
pub(super) fn activity(ui: &mut Ui, event: &Event) {
    if !ui.shows_progress() {
        return;
    }
    match event {
        Event::Started(_) | Event::ToolResult(_) => ui.busy("waiting for the model"),
        Event::Thinking { .. } => ui.busy("thinking"),
        Event::Text { .. } => ui.busy("answering"),
        Event::ToolUse(tool) => ui.busy(&call(tool)),
        Event::Retry { .. } => ui.busy("waiting for the next attempt"),
        _ => {}
    }
}

/// Describes a retry: why, when, and with which model.
pub(super) fn retry(attempt: u32, wait_ms: u64, reason: &str, model: Option<&str>) -> String {
    let model = model.map(|model| format!(" with {}", plain(model))).unwrap_or_default();
    let wait = if wait_ms == 0 { String::new() } else { format!(" in {}", duration(wait_ms)) };
    format!("{}; starting attempt {attempt}{model}{wait}", plain(&first_line(reason)))
}

/// Describes a tool call in a few words: `Write hello.txt`, `Bash cargo test`.
fn call(tool: &ToolUse) -> String {
    TextRenderer::new(TextStyle::brief()).call_line(tool)
}

/// Returns the command that continues the session of a run, or `None` if there is nothing to continue.
///
/// `here` is the current directory, from which the command is typed.
pub(crate) fn resume_command(outcome: &Outcome, here: &Path) -> Option<String> {
    let session = outcome.session_id.as_deref().filter(|_| outcome.turns > 0)?;
    let directory = match Path::new(&outcome.cwd) == here {
        true => String::new(),
        false => format!(" --cwd {}", shell_word(&outcome.cwd)),
    };
    let (agent, session) = (shell_word(&outcome.agent), shell_word(session));
    Some(format!("agentline run --agent {agent}{directory} --resume {session} \"continue\""))
}

/// Returns the line that says how to continue the session of a run.
pub(crate) fn resume_line(outcome: &Outcome) -> Option<String> {
    let here = std::env::current_dir().unwrap_or_default();
    resume_command(outcome, &here).map(|command| format!("continue with `{command}`"))
}

/// Quotes a word for a shell, if necessary.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Writes why a run failed, with a hint, to standard error. `keeps_session` is whether its session can be continued.
pub(super) fn failure(ui: &mut Ui, outcome: &Outcome, keeps_session: bool) {
    if let Some(error) = &outcome.error {
        let message = format!("{} ({})", plain(&error.message), outcome.verdict.name());
        let can_resume = keeps_session && outcome.verdict == Verdict::Cancelled;
        let resume = resume_line(outcome).filter(|_| can_resume);
        ui.error(&message, resume.as_deref().or(error.hint.as_deref()));
        let is_unclear = matches!(error.kind, FailureKind::Crashed | FailureKind::NoResult);
        if is_unclear && !ui.is_verbose() {
            agent_stderr(ui, outcome);
        }
    } else if outcome.verdict == Verdict::DoneWithDenials {
        let tools: Vec<String> = outcome.denied.iter().map(shown_tool).collect();
        ui.error(
            &format!("denied tools: {} (done_with_denials)", tools.join(", ")),
            Some(denial_hint(&outcome.denied)),
        );
    }
}

/// Writes the last lines of the agent's standard error, if there are any.
pub(super) fn agent_stderr(ui: &mut Ui, outcome: &Outcome) {
    let tail: Vec<&str> = outcome.stderr_tail.lines().rev().take(10).collect();
    if tail.is_empty() {
        return;
    }
    ui.print_status("last lines of the agent's standard error:");
    for line in tail.into_iter().rev() {
        let line = ui.paint(Paint::Dim, &format!("  {}", plain(line)));
        ui.print_status(line);
    }
}

/// Returns a hint for refused tools, which depends on the reasons.
fn denial_hint(denied: &[agentline_core::Denial]) -> &'static str {
    let all = |reason: &str| denied.iter().all(|denial| denial.reason == reason);
    if all("outside_workspace") {
        "allow the directory with `--include-dir DIR`, or choose another workspace with `--cwd`"
    } else if all("command_substitution") {
        "this agent cannot be allowed to use `$(…)` or backticks in commands; ask for commands without them, or for a script"
    } else {
        "allow them with `--allow TOOL`, or use another `--permission-mode`"
    }
}

fn shown_tool(denial: &agentline_core::Denial) -> String {
    let name = if denial.tool.is_empty() { &denial.native_tool } else { &denial.tool };
    match denial.reason.as_str() {
        "" => plain(name).into_owned(),
        reason => format!("{} ({})", plain(name), plain(&first_line(reason))),
    }
}

/// Returns the first line of a text, shortened, with `…` if there are more.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let more = if text.lines().nth(1).is_some() { " …" } else { "" };
    format!("{}{more}", fit(&plain(line), MAX_REASON_LENGTH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline::ToolKind;

    #[test]
    fn tool_call_is_described_by_its_target() {
        let mut tool = ToolUse::new("1", "Bash", "run_shell_command", ToolKind::Shell);
        assert_eq!(call(&tool), "Bash");
        tool.input = serde_json::from_str(r#"{"description":"d","command":"ls\nrm -rf /"}"#).ok();
        assert_eq!(call(&tool), "Bash ls …");
        tool.input = None;
        tool.path = Some("a\u{1b}[2Jb".into());
        assert_eq!(call(&tool), "Bash a[2Jb");
        tool.path = Some("a\u{202e}txt.exe\u{2069}".into());
        assert_eq!(call(&tool), "Bash atxt.exe");
    }

    #[test]
    fn resume_command_can_be_typed_as_it_is() {
        let mut outcome = Outcome::not_started(
            &agentline_core::RunInfo::default(),
            Verdict::Cancelled,
            agentline_core::Failure::new(FailureKind::Cancelled, ""),
        );
        outcome.cwd = "/srv/it's here".into();
        outcome.agent = "gemini".into();
        assert_eq!(resume_command(&outcome, Path::new("/srv")), None, "there is no session");
        outcome.session_id = Some("8fb09d0d".into());
        assert_eq!(resume_command(&outcome, Path::new("/srv")), None, "the session is empty");
        outcome.turns = 1;
        assert_eq!(
            resume_command(&outcome, Path::new("/srv")).as_deref(),
            Some(r#"agentline run --agent gemini --cwd '/srv/it'\''s here' --resume 8fb09d0d "continue""#)
        );
        assert_eq!(
            resume_command(&outcome, Path::new("/srv/it's here")).as_deref(),
            Some(r#"agentline run --agent gemini --resume 8fb09d0d "continue""#)
        );
    }
}
