//! The surface `-o json` of Gemini CLI: one object at the end, on stdout or, after a failure, on stderr. Events during
//! the run are read from the session file.

use super::{
    failures, overlay,
    session_file::{SessionFileDetail, SessionFileReader},
    stream,
};
use crate::agents::gemini::policy_ack;
use crate::{
    Concurrency, CountScope, Dialogue, DialogueConfig, Event, ExitReason, Failure, FailureKind, InputLine,
    RunId, SessionTarget, SideChannel, Sink, Started, Stream, TokenCount, Tokens, TurnEnd, TurnSpec,
    UsageSource,
    wire::{Entries, LinePart, List, Num, Str, Tolerant as _, mend_surrogates, parts, wire},
};

wire! { struct Doc<'a> {
    session: Option<Str<'a>> = "session_id", response: Option<Str<'a>> = "response", error: Option<DocError<'a>> = "error",
    warnings: List<Str<'a>> = "warnings", stats: Stats<'a> = "stats",
} }
wire! { struct DocError<'a> { kind: Str<'a> = "type", message: Str<'a> = "message", code: Num = "code" } }
wire! { struct Stats<'a> { models: Entries<'a, Model<'a>> = "models", tools: Tools<'a> = "tools" } }
wire! { struct Tools<'a> { calls: Num = "totalCalls" } }
wire! { struct Model<'a> { tokens: Counts<'a> = "tokens", api: Api<'a> = "api", roles: Option<Roles<'a>> = "roles" } }
wire! { struct Roles<'a> { main: Api<'a> = "main" } }
wire! { struct Api<'a> { requests: Num = "totalRequests", errors: Num = "totalErrors" } }
wire! { struct Counts<'a> {
    prompt: Num = "prompt", output: Num = "candidates", total: Num = "total", cached: Num = "cached", thoughts: Num = "thoughts", tool: Num = "tool",
} }

/// The dialogue of one headless run.
#[derive(Debug)]
pub(super) struct GeminiJson {
    run: Option<RunId>,
    /// The home directory that the CLI's messages should name.
    users_home: Option<String>,
    file: SessionFileReader,
    session: Option<String>,
    model: Option<String>,
    started: bool,
    /// The lines of stdout that may be an incomplete document, and their number.
    open: Option<(String, usize)>,
    /// The document, which is reported after the session file was read to its end.
    doc: Option<String>,
    /// The lines of an incomplete JSON block on stderr.
    block: Vec<String>,
    /// The first complete block on stderr that looks like the document.
    err: Option<String>,
    /// Whether a request failed after all retries.
    request_failed: bool,
    /// Whether the document reports success although no model was called.
    unreported: bool,
    /// Whether the document contains an answer.
    answered: bool,
    /// Whether the rules are in force.
    rules: policy_ack::PolicyAckWatch,
}

impl GeminiJson {
    pub(super) fn new(config: &DialogueConfig) -> Self {
        Self {
            run: None,
            users_home: config.users_home.clone(),
            file: SessionFileReader::new(SessionFileDetail::Everything),
            session: None,
            model: None,
            started: false,
            open: None,
            doc: None,
            block: Vec::new(),
            err: None,
            request_failed: false,
            unreported: false,
            answered: false,
            rules: policy_ack::PolicyAckWatch::default(),
        }
    }

    fn start(&mut self, run: RunId, session: Option<String>, sink: &mut Sink) {
        if !std::mem::replace(&mut self.started, true) {
            sink.ready();
            let session_id = session.or_else(|| self.session.clone());
            let started = Started { session_id, model: self.model.clone(), ..Started::default() };
            sink.event(run, started);
        }
    }

    /// Processes one line of stdout. The document is a block of separate lines, from an opening to a closing brace.
    fn stdout(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        if let Some((block, lines)) = &mut self.open {
            if text != "{" && *lines < MOST_LINES {
                *lines += 1;
                block.push('\n');
                block.push_str(text);
                if text.starts_with('}') {
                    let (block, _) = self.open.take().unwrap_or_default();
                    self.search(run, &block, sink);
                }
                return;
            }
            self.discard_block(run, sink);
        }
        match text.trim_end().strip_suffix('{') {
            Some(before) if self.doc.is_none() => {
                self.open = Some(("{".to_owned(), 1));
                unreadable(run, before, sink);
            }
            _ => self.search(run, text, sink),
        }
    }

    /// Reports the collected lines as unreadable, because they are not the document.
    fn discard_block(&mut self, run: RunId, sink: &mut Sink) {
        if let Some((block, _)) = self.open.take() {
            unreadable(run, &block, sink);
        }
    }

    /// Finds the document in a text that may contain other output.
    fn search(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        if self.found(run, text, sink) {
            return;
        }
        for part in parts(text) {
            match part {
                LinePart::Object(object) if self.found(run, object, sink) => {}
                LinePart::Object(rest) | LinePart::Noise(rest) => unreadable(run, rest, sink),
            }
        }
    }

    /// Stores the document and ends the run, if the text is the first document. Returns whether it is.
    fn found(&mut self, run: RunId, text: &str, sink: &mut Sink) -> bool {
        if self.doc.is_some() {
            return false;
        }
        let mended = mend_surrogates(text);
        let text = mended.as_deref().unwrap_or(text);
        let Some(doc) = document(text) else { return false };
        self.end(run, &doc, sink);
        self.doc = Some(text.to_owned());
        true
    }

    fn end(&mut self, run: RunId, doc: &Doc<'_>, sink: &mut Sink) {
        let soft = |w: &Str<'_>| {
            Some(failures::of_text(w)).filter(|f| matches!(f.kind, FailureKind::Loop | FailureKind::Blocked))
        };
        self.answered |= doc.answered();
        let failure = doc.error.as_ref().map(|e| failure_of(e, doc.answered()));
        let failure = failure.or_else(|| doc.warnings.0.iter().find_map(soft));
        // The reason is known only when everything has been read.
        let is_rejected = doc.is_rejected();
        self.request_failed |= is_rejected;
        self.unreported = failure.is_none() && !doc.answered() && (is_rejected || !doc.used_model());
        let ok = failure.is_none() && !self.unreported;
        sink.end(run, if ok { TurnEnd::ok() } else { TurnEnd::failed(failure) });
    }

    /// Reports what the document contains in addition to the session file.
    fn report(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let Some(doc) = document(text) else { return };
        let (used_model, answered) = (doc.used_model(), doc.answered());
        let only_model = doc.only_model().map(str::to_owned);
        self.start(run, doc.session.map(Str::own), sink);
        // A router of the CLI may have chosen another model than the requested one.
        if let Some(model) = only_model {
            sink.model(run, model);
        }
        let mut turns = 0;
        for (name, model) in doc.stats.models.0 {
            // Old versions do not distinguish requests of the main agent from others.
            turns += model.roles.as_ref().map_or(&model.api, |roles| &roles.main).answered();
            let t = model.tokens;
            let tokens = Tokens {
                input: t.prompt.0,
                output: t.output.0,
                cached: t.cached.0,
                thoughts: t.thoughts.0,
                tool: t.tool.0.filter(|n| *n > 0),
                total: t.total.0,
                ..Tokens::default()
            };
            let mut count = TokenCount::new(UsageSource::Stream, CountScope::Model(name.own()), tokens);
            count.requests = model.api.requests.0;
            sink.count(run, count);
        }
        for warning in doc.warnings.0 {
            sink.event(run, Event::warning("agent", warning.own()));
        }
        let response = doc.response.map(Str::own).unwrap_or_default();
        if answered && let Some(text) = unreported_part(&response, &self.file.last_text) {
            sink.event(run, Event::Text { text: text.to_owned() });
        }
        // Retried requests are not turns. After a failure, they cannot be distinguished.
        if !self.file.has_reported() && doc.error.is_none() {
            let clip = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            sink.tally(run, clip(turns), clip(doc.stats.tools.calls.0.unwrap_or(0)));
        }
        if used_model && !self.file.was_read {
            let message = "the session file could not be read: tools and earlier text are not reported, and `files` is based only on the disk";
            sink.event(run, Event::warning("no_session_file", message));
        }
    }

    /// Processes one line of stderr. A failed run prints its document there, between other lines and sometimes twice.
    fn stderr(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        self.request_failed |= text.starts_with(failures::REQUEST_FAILED);
        let begins = text == "{" || text == "[ERROR] {";
        if begins {
            // An incomplete block is not the document.
            self.replay_lines(sink);
        } else if self.block.is_empty() {
            if !self.rules.stderr(text, sink) {
                failures::stderr_line(text, sink);
            }
            return;
        }
        self.block.push(text.to_owned());
        if text == "}" {
            let mut lines = std::mem::take(&mut self.block);
            lines[0] = "{".to_owned();
            let block = lines.join("\n");
            let block = mend_surrogates(&block).unwrap_or(block);
            match document(&block) {
                Some(doc) => {
                    // Other programs write JSON to stderr too. This is the agent's result if it contains the id of the
                    // session.
                    let names_it = doc.session.as_ref().map(|s| &*s.0) == self.session.as_deref();
                    if names_it && self.session.is_some() && self.err.is_none() && self.doc.is_none() {
                        self.end(run, &doc, sink);
                    }
                    self.err.get_or_insert(block);
                }
                None => lines.iter().for_each(|line| failures::stderr_line(line, sink)),
            }
        } else if self.block.len() > LONGEST_BLOCK {
            self.replay_lines(sink);
        }
    }

    /// Handles the collected lines as ordinary lines, because they are not the document.
    fn replay_lines(&mut self, sink: &mut Sink) {
        for line in std::mem::take(&mut self.block) {
            failures::stderr_line(&line, sink);
        }
    }
}

fn unreadable(run: RunId, text: &str, sink: &mut Sink) {
    if !text.trim().is_empty() {
        sink.event(run, Event::unreadable(text.trim_end(), text.len() as u64));
    }
}

/// The maximum number of lines of the document on stdout, which has a few for each model and tool.
const MOST_LINES: usize = 100_000;

/// Returns the part of an answer that the session file has not reported, which omits trailing whitespace.
fn unreported_part<'a>(response: &'a str, reported: &str) -> Option<&'a str> {
    let rest = match response.strip_prefix(reported) {
        Some(rest) if rest.trim().is_empty() => rest,
        _ if response.trim() == reported.trim() => "",
        _ => response,
    };
    Some(rest).filter(|rest| !rest.is_empty())
}

/// The maximum number of lines of the document on stderr. Its error is a single line of any length.
const LONGEST_BLOCK: usize = 1000;

/// Parses the document. Returns `None` if the text is not one.
fn document(text: &str) -> Option<Doc<'_>> {
    let doc = serde_json::from_str::<Doc<'_>>(text).ok()?;
    (doc.is_object() && (doc.response.is_some() || doc.error.is_some())).then_some(doc)
}

impl Doc<'_> {
    fn used_model(&self) -> bool {
        !self.stats.models.0.is_empty() || !self.stats.is_object()
    }

    /// Returns whether the service rejected all requests.
    fn is_rejected(&self) -> bool {
        let models = &self.stats.models.0;
        models.iter().any(|(_, model)| model.api.errors.0 > Some(0))
            && models.iter().all(|(_, model)| model.api.answered() == 0)
    }

    /// Returns the model that answered, if only one did.
    fn only_model(&self) -> Option<&str> {
        let mut answered = self.stats.models.0.iter().filter(|(_, model)| model.api.answered() > 0);
        let (name, _) = answered.next()?;
        answered.next().is_none().then_some(name)
    }

    fn answered(&self) -> bool {
        self.response.as_ref().is_some_and(|r| !r.trim().is_empty())
    }
}

impl Api<'_> {
    fn answered(&self) -> u64 {
        self.requests.0.unwrap_or(0).saturating_sub(self.errors.0.unwrap_or(0))
    }
}

fn failure_of(error: &DocError<'_>, had_text: bool) -> Failure {
    let by_text = failures::of_answer(&error.message, had_text).agent_type(&*error.kind);
    if by_text.kind != FailureKind::ApiError {
        return by_text;
    }
    match error.code.0 {
        Some(code @ 400..=599) => {
            let by_status = Failure::http(u16::try_from(code).unwrap_or_default(), by_text.message);
            Failure { agent_type: by_text.agent_type, ..by_status }
        }
        Some(code) => match failures::of_exit(i32::try_from(code).unwrap_or_default()) {
            Some(by_exit) => by_exit.explained_by(Some(by_text)),
            None => by_text,
        },
        None => by_text,
    }
}

impl Dialogue for GeminiJson {
    fn room(&self) -> Concurrency {
        Concurrency::Once
    }

    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink) {
        self.run = Some(run);
        self.rules.begin(spec);
        self.model.clone_from(&spec.info.model);
        if let SessionTarget::Named(session) | SessionTarget::Load(session) = &spec.session {
            self.session = Some(session.clone());
            sink.follow(run, SideChannel::SessionFile, session);
        }
        if self.session.is_none() || !spec.follow {
            sink.silent(run);
        }
        sink.frame(spec.prompt.clone());
        sink.shut();
    }

    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink) {
        let Some(run) = self.run else { return };
        match line.stream {
            Stream::Stdout => self.stdout(run, line.text, sink),
            Stream::Stderr => {
                let text = overlay::with_users_home(line.text, self.users_home.as_deref()).into_owned();
                self.stderr(run, &text, sink);
            }
            Stream::Side(run, _) => {
                // The file is written once the agent is ready. This surface reports nothing before that.
                self.start(run, None, sink);
                self.file.line(run, line.text, sink);
            }
        }
    }

    fn exit(&mut self, exit: ExitReason, sink: &mut Sink) {
        let Some(run) = self.run else { return };
        let mut failed = false;
        if let ExitReason::Code(code) = exit {
            failed = code != 0;
            if let Some(failure) = failures::of_exit(code) {
                sink.hint(Some(run), failure);
            }
        }
        self.replay_lines(sink);
        self.discard_block(run, sink);
        // The document on stderr counts if there is none on stdout, or if the exit code reports a failure.
        if let Some(err) = self.err.take().filter(|_| self.doc.is_none() || failed) {
            if let Some(doc) = document(&err) {
                self.end(run, &doc, sink);
            }
            self.doc.get_or_insert(err);
        }
        // All of stderr has been read by now, including the confirmation of the rules.
        if self.answered {
            self.rules.turn(sink);
        }
        if self.unreported {
            sink.hint(Some(run), stream::unreported(self.request_failed));
        }
    }

    fn finish(&mut self, run: RunId, sink: &mut Sink) {
        if let Some(doc) = self.doc.take() {
            self.report(run, &doc, sink);
        }
    }
}
