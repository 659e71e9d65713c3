//! The surface `exec --json` of Codex: one run per process, one event per line, no input after the prompt.

use super::{
    failures::{self, FailedRequests, RECONNECTING},
    items::ThreadItem,
    session_file::CodexSessionFile,
    tools::TOOLS,
};
use crate::{
    Concurrency, CountScope, Dialogue, Event, ExitReason, Failure, FailureKind, InputLine, RunId,
    SessionTarget, SideChannel, Sink, Started, Stream, TokenCount, Tokens, ToolResult, TurnEnd, TurnSpec,
    UsageSource,
    wire::{Num, Str, Tolerant as _, wire},
};
use std::collections::BTreeSet;

wire! { struct Line<'a> {
    kind: Str<'a> = "type", thread: Str<'a> = "thread_id", item: ThreadItem<'a> = "item", usage: Option<Usage<'a>> = "usage",
    error: ErrorText<'a> = "error", message: Str<'a> = "message",
} }
wire! { struct ErrorText<'a> { message: Str<'a> = "message" } }
wire! { struct Usage<'a> {
    input: Num = "input_tokens", cached: Num = "cached_input_tokens", written: Num = "cache_write_input_tokens",
    output: Num = "output_tokens", reasoning: Num = "reasoning_output_tokens",
} }

/// The dialogue of one run.
#[derive(Debug, Default)]
pub(super) struct CodexExec {
    run: Option<RunId>,
    model: Option<String>,
    /// Whether the thread has earlier turns, whose tokens the usage includes.
    is_resumed: bool,
    /// Reads the tokens of each request.
    file: CodexSessionFile,
    has_text: bool,
    open: BTreeSet<String>,
    closed: BTreeSet<String>,
    ended: bool,
    failed_requests: FailedRequests,
    /// The number of calls that were refused and are known only from stderr.
    refused: u32,
}

impl CodexExec {
    fn stdout(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        sink.read_objects(Some(run), text, |object, sink| {
            let line = serde_json::from_str::<Line<'_>>(object).ok().filter(|line| line.is_object());
            line.map(|line| self.event(run, &line, object, sink)).is_some()
        });
    }

    fn event(&mut self, run: RunId, line: &Line<'_>, text: &str, sink: &mut Sink) {
        match &*line.kind {
            "thread.started" => {
                sink.ready();
                let session_id = Some(line.thread.to_string()).filter(|id| !id.is_empty());
                let started = Started { session_id, model: self.model.clone(), ..Started::default() };
                sink.event(run, started);
                sink.follow(run, SideChannel::SessionFile, &line.thread);
            }
            "turn.started" => sink.alive(run),
            "item.started" => self.announce(run, &line.item, sink),
            "item.updated" => sink.event(run, Event::agent(text)),
            "item.completed" => self.item(run, &line.item, text, sink),
            "turn.completed" => {
                if let Some(usage) = &line.usage {
                    self.used(run, usage, sink);
                }
                self.end(run, TurnEnd::ok(), sink);
            }
            "turn.failed" => {
                let failure = failures::of_text(&line.error.message, self.has_text);
                self.end(run, TurnEnd::failed(Some(failure)), sink);
            }
            "error" => {
                sink.event(run, Event::agent(text));
                let failure = failures::of_text(&line.message, self.has_text);
                if !line.message.starts_with(RECONNECTING) {
                    return sink.hint(Some(run), failure);
                }
                if self.failed_requests.give_up(&line.message, &failure) {
                    // This surface has no message for that, so the process is ended.
                    sink.abort(failure);
                } else {
                    sink.event(run, failures::retry_warning(&line.message, &failure));
                    sink.retry(failure);
                }
            }
            _ => sink.event(run, Event::agent(text)),
        }
    }

    fn item(&mut self, run: RunId, item: &ThreadItem<'_>, text: &str, sink: &mut Sink) {
        self.failed_requests = FailedRequests::default();
        match &*item.kind {
            "agent_message" => {
                self.has_text |= !item.text.trim().is_empty();
                sink.event(run, Event::Text { text: item.text.to_string() });
            }
            "reasoning" => sink.event(run, Event::Thinking { text: item.text.to_string() }),
            // Despite its name, this item is a warning.
            "error" => sink.event(run, Event::warning("agent", item.message.to_string())),
            _ if item.call().is_some() => {
                self.announce(run, item, sink);
                if self.open.remove(&*item.id) {
                    self.closed.insert(item.id.to_string());
                    sink.event(run, item.ended(None));
                }
            }
            _ => sink.event(run, Event::agent(text)),
        }
    }

    fn announce(&mut self, run: RunId, item: &ThreadItem<'_>, sink: &mut Sink) {
        if self.open.contains(&*item.id) || self.closed.contains(&*item.id) {
            return;
        }
        let Some(tool) = item.call() else { return };
        sink.event(run, tool);
        if let Some(fact) = item.more_files() {
            sink.tool_fact(run, fact);
        }
        self.open.insert(item.id.to_string());
    }

    /// Reports the tokens of the run. Codex counts them from the beginning of the thread, so in a resumed thread only the
    /// session file has those of the run.
    fn used(&self, run: RunId, usage: &Usage<'_>, sink: &mut Sink) {
        if self.is_resumed {
            return;
        }
        let reasoning = usage.reasoning.0;
        let tokens = Tokens {
            input: usage.input.0,
            output: usage.output.0.map(|output| output.saturating_sub(reasoning.unwrap_or(0))),
            cached: usage.cached.0,
            cache_write: usage.written.0.filter(|n| *n > 0),
            thoughts: reasoning,
            ..Tokens::default()
        };
        sink.count(run, TokenCount::new(UsageSource::Stream, CountScope::Run, tokens));
    }

    fn end(&mut self, run: RunId, end: TurnEnd, sink: &mut Sink) {
        self.ended = true;
        sink.end(run, end);
    }
}

impl Dialogue for CodexExec {
    fn room(&self) -> Concurrency {
        Concurrency::Once
    }

    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink) {
        self.run = Some(run);
        self.model = spec.info.model.clone();
        self.is_resumed = matches!(spec.session, SessionTarget::Load(_));
        sink.frame(spec.prompt.clone());
        sink.shut();
    }

    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink) {
        let Some(run) = self.run else { return };
        match line.stream {
            Stream::Stdout => self.stdout(run, line.text, sink),
            Stream::Stderr => {
                // A session that cannot be resumed and a refused call are reported only here.
                if line.text.contains("no rollout found") {
                    sink.hint(Some(run), failures::of_text(line.text, false));
                }
                if let Some((native, reason)) = refusal(line.text) {
                    self.refused += 1;
                    let id = format!("refused_{}", self.refused);
                    sink.event(run, TOOLS.tool_use(id.clone(), native, None));
                    sink.event(run, ToolResult::refused(id, "agent", Some(reason)));
                }
                failures::stderr_line(line.text, sink);
            }
            Stream::Side(run, _) => self.file.line(run, line.text, sink),
        }
    }

    fn exit(&mut self, exit: ExitReason, sink: &mut Sink) {
        if let (ExitReason::Code(2), false) = (exit, self.ended) {
            let meaning = "Codex rejected its arguments";
            sink.hint(self.run, Failure::of_exit(FailureKind::Input, meaning, 2));
        }
    }
}

/// Returns the tool of a call that Codex refused and the reason, from a line of its log.
fn refusal(line: &str) -> Option<(&'static str, String)> {
    let (_, error) = line.split_once("codex_core::tools::router: error=")?;
    if error.starts_with("patch rejected:") {
        return Some(("apply_patch", error.to_owned()));
    }
    let rejected = error.starts_with("exec_command failed:") && error.contains("Rejected(");
    rejected.then(|| ("exec_command", error.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read_from_the_log() {
        let patch = "2026-11-15T04:34:26.213573Z ERROR codex_core::tools::router: error=patch rejected: writing is blocked by \
                     read-only sandbox; rejected by user approval settings";
        assert_eq!(refusal(patch).unwrap().0, "apply_patch");
        let command = r#"2026-11-15T04:34:27Z ERROR codex_core::tools::router: error=exec_command failed: CreateProcess { message: "Rejected(\"`rm -rf x` rejected: no\")" }"#;
        assert_eq!(refusal(command).unwrap().0, "exec_command");
        assert_eq!(refusal("ERROR codex_core::tools::router: error=exec_command failed: not found"), None);
        assert_eq!(refusal("Reading additional input from stdin..."), None);
    }
}
