//! The surface `-o stream-json` of Gemini CLI: one run per process, one event per line, no input after the prompt.

use super::{
    failures, overlay, refusal,
    session_file::{SessionFileDetail, SessionFileReader},
    tools,
};
use crate::agents::gemini::policy_ack;
use crate::{
    Concurrency, CountScope, Dialogue, DialogueConfig, Event, ExitReason, Failure, FailureKind, InputLine,
    RunId, SessionTarget, SideChannel, Sink, Started, Stream, TokenCount, Tokens, ToolResult, ToolStatus,
    TurnEnd, TurnSpec, UsageSource,
    wire::{Entries, Num, Str, Tolerant as _, wire},
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

wire! { struct Wire<'a> {
    kind: Str<'a> = "type", session: Str<'a> = "session_id", model: Option<Str<'a>> = "model",
    role: Str<'a> = "role", content: Option<Str<'a>> = "content",
    tool: Str<'a> = "tool_name", id: Str<'a> = "tool_id", parameters: Option<&'a RawValue> = "parameters",
    status: Str<'a> = "status", output: Option<Str<'a>> = "output", error: Option<WireError<'a>> = "error",
    severity: Str<'a> = "severity", message: Str<'a> = "message", stats: Option<Stats<'a>> = "stats",
} }
wire! { struct WireError<'a> { kind: Str<'a> = "type", message: Str<'a> = "message" } }
wire! { struct Stats<'a> {
    total: Num = "total_tokens", input: Num = "input_tokens", output: Num = "output_tokens", cached: Num = "cached",
    models: Entries<'a, Stats<'a>> = "models",
} }

/// The dialogue of one headless run.
#[derive(Debug)]
pub(super) struct GeminiStream {
    run: Option<RunId>,
    /// The home directory that the CLI's messages should name.
    users_home: Option<String>,
    file: SessionFileReader,
    followed: bool,
    has_text: bool,
    /// Whether text has arrived since the last tool call.
    turn_has_text: bool,
    /// Whether the result reports success although no model was called.
    unreported: bool,
    /// Whether a request failed after all retries.
    request_failed: bool,
    /// The last `error` event with severity `error`.
    error: Option<Failure>,
    /// A warning that counts as a failure although the result reports success.
    stopped: Option<Failure>,
    /// The names of running tools by call id, because results do not contain them.
    open: BTreeMap<String, String>,
    /// Whether the rules are in force.
    rules: policy_ack::PolicyAckWatch,
}

impl GeminiStream {
    pub(super) fn new(config: &DialogueConfig) -> Self {
        Self {
            run: None,
            users_home: config.users_home.clone(),
            file: SessionFileReader::new(SessionFileDetail::Corrections),
            followed: false,
            has_text: false,
            turn_has_text: false,
            unreported: false,
            request_failed: false,
            error: None,
            stopped: None,
            open: BTreeMap::new(),
            rules: policy_ack::PolicyAckWatch::default(),
        }
    }

    fn follow(&mut self, run: RunId, session: &str, sink: &mut Sink) {
        if !session.is_empty() && !std::mem::replace(&mut self.followed, true) {
            sink.follow(run, SideChannel::SessionFile, session);
        }
    }

    fn stdout(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        sink.read_objects(Some(run), text, |object, sink| {
            let wire = serde_json::from_str::<Wire<'_>>(object).ok().filter(|wire| wire.is_object());
            wire.map(|wire| self.event(run, wire, object, sink)).is_some()
        });
    }

    fn event(&mut self, run: RunId, wire: Wire<'_>, text: &str, sink: &mut Sink) {
        match &*wire.kind {
            "init" => {
                sink.ready();
                self.rules.ready(sink);
                self.follow(run, &wire.session, sink);
                let session_id = Some(wire.session.own()).filter(|s| !s.is_empty());
                let model = wire.model.map(Str::own).filter(|m| !m.is_empty());
                let started = Started { session_id, model, ..Started::default() };
                sink.event(run, started);
            }
            "message" if &*wire.role == "assistant" => {
                self.rules.turn(sink);
                let Some(content) = wire.content else { return sink.event(run, Event::agent(text)) };
                self.turn_has_text |= !content.trim().is_empty();
                self.has_text |= self.turn_has_text;
                sink.event(run, Event::Text { text: content.own() });
            }
            "tool_use" => {
                self.rules.turn(sink);
                self.turn_has_text = false;
                self.open.insert(wire.id.to_string(), wire.tool.to_string());
                let tool = tools::TOOLS.tool_use(wire.id.own(), &wire.tool, wire.parameters);
                sink.event(run, tool);
            }
            "tool_result" => self.tool_result(run, wire, sink),
            "error" => self.error(run, &wire, sink),
            "result" => self.result(run, wire, sink),
            // The echo of the prompt, and events of later versions.
            _ => sink.event(run, Event::agent(text)),
        }
    }

    fn tool_result(&mut self, run: RunId, wire: Wire<'_>, sink: &mut Sink) {
        let tool = self.open.remove(&*wire.id).unwrap_or_default();
        let message = wire.error.as_ref().map(|e| e.message.to_string()).filter(|m| !m.is_empty());
        let content = message.clone().or(wire.output.map(Str::own));
        let refused = match &*wire.status {
            "success" => refusal::of_success(&tool, content.as_deref().unwrap_or_default()),
            _ => wire.error.as_ref().and_then(|e| refusal::of_type(&e.kind, &tool, &e.message)),
        };
        sink.event(
            run,
            match (&*wire.status, refused) {
                (_, Some(reason)) => ToolResult::refused(wire.id.own(), reason, content),
                ("success", None) => ToolResult::new(wire.id.own(), ToolStatus::Ok, content),
                (_, None) => ToolResult::new(wire.id.own(), ToolStatus::Error, content),
            },
        );
    }

    fn error(&mut self, run: RunId, wire: &Wire<'_>, sink: &mut Sink) {
        let failure = failures::of_answer(&wire.message, self.turn_has_text);
        if &*wire.severity == "error" {
            sink.hint(Some(run), failure.clone());
            self.error = Some(failure);
        } else if matches!(failure.kind, FailureKind::Loop | FailureKind::Blocked) {
            self.stopped = Some(failure);
        }
        sink.event(run, Event::warning("agent", &*wire.message));
    }

    fn result(&mut self, run: RunId, wire: Wire<'_>, sink: &mut Sink) {
        let mut used_model = true;
        if let Some(stats) = &wire.stats {
            used_model = stats.total.0 != Some(0) || !stats.models.0.is_empty();
            for (model, stats) in &stats.models.0 {
                sink.count(
                    run,
                    TokenCount::new(UsageSource::Stream, CountScope::Model(model.to_string()), tokens(stats)),
                );
            }
            sink.count(run, TokenCount::new(UsageSource::Stream, CountScope::Run, tokens(stats)));
        }
        let own = wire.error.filter(|e| e.is_object()).map(|e| {
            let message = overlay::with_users_home(&e.message, self.users_home.as_deref());
            let failure = failures::of_text(&message).agent_type(&*e.kind);
            if e.kind.starts_with("FatalTurnLimited") {
                Failure { kind: FailureKind::AgentTurns, ..failure }
            } else {
                failure
            }
        });
        // The agent may still succeed after an error, but not after a loop or a block.
        let ended_by = |f: &Failure| {
            &*wire.status != "success" || matches!(f.kind, FailureKind::Loop | FailureKind::Blocked)
        };
        let on_the_way = self.error.take().filter(ended_by);
        let failure = own.or(on_the_way).or_else(|| self.stopped.take());
        let end = match (failure, &*wire.status) {
            (Some(failure), _) => TurnEnd::failed(Some(failure)),
            // The reason is known only when everything has been read.
            (None, "success") if !used_model && !self.has_text => {
                self.unreported = true;
                TurnEnd::failed(None)
            }
            (None, "success") => TurnEnd::ok(),
            (None, "error") => TurnEnd::failed(None),
            (None, other) => {
                let message = format!("the agent reported an unknown result status: `{other}`");
                TurnEnd::failed(Some(Failure::new(FailureKind::NoResult, message)))
            }
        };
        sink.end(run, end);
    }
}

/// Returns the failure for a reported success without a model call: old versions hide errors of the service, and every
/// version drops a prompt that does not fit.
pub(super) fn unreported(request_failed: bool) -> Failure {
    if request_failed {
        return Failure::new(
            FailureKind::ApiError,
            "the model's service rejected the request; this version of Gemini CLI does not report why",
        );
    }
    Failure::new(
        FailureKind::ContextOverflow,
        "the prompt exceeds the model's context window; no request was sent",
    )
}

fn tokens(stats: &Stats<'_>) -> Tokens {
    Tokens {
        input: stats.input.0,
        output: stats.output.0,
        cached: stats.cached.0,
        total: stats.total.0,
        ..Tokens::default()
    }
}

impl Dialogue for GeminiStream {
    fn room(&self) -> Concurrency {
        Concurrency::Once
    }

    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink) {
        self.run = Some(run);
        self.rules.begin(spec);
        if let SessionTarget::Named(session) | SessionTarget::Load(session) = &spec.session {
            self.follow(run, session, sink);
        }
        sink.frame(spec.prompt.clone());
        sink.shut();
    }

    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink) {
        let Some(run) = self.run else { return };
        match line.stream {
            Stream::Stdout => self.stdout(run, line.text, sink),
            Stream::Stderr => {
                self.request_failed |= line.text.starts_with(failures::REQUEST_FAILED);
                if !self.rules.stderr(line.text, sink) {
                    let text = overlay::with_users_home(line.text, self.users_home.as_deref());
                    failures::stderr_line(&text, sink);
                }
            }
            Stream::Side(run, _) => self.file.line(run, line.text, sink),
        }
    }

    fn exit(&mut self, exit: ExitReason, sink: &mut Sink) {
        if self.unreported {
            sink.hint(self.run, unreported(self.request_failed));
        }
        if let ExitReason::Code(code) = exit
            && let Some(failure) = failures::of_exit(code)
        {
            sink.hint(self.run, failure);
        }
    }
}
