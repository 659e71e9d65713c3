//! Gemini's `-o json`: one object on stdout at the end, or one on stderr when it failed. What happens on the way is
//! read from the session file.

use super::{
    failures, proof,
    session_file::{SessionFile, Telling},
    stream,
};
use crate::{
    Count, Dialogue, End, Event, Exit, Failure, Kind, Line, Order, Room, RunId, Say, Side, Source, Span,
    Started, Stream, Tokens, Want,
    wire::{Entries, List, Num, Part, Str, Tolerant as _, mend_surrogates, parts, wire},
};

wire! { struct Doc<'a> {
    session: Option<Str<'a>> = "session_id", response: Option<Str<'a>> = "response", error: Option<DocError<'a>> = "error",
    warnings: List<Str<'a>> = "warnings", stats: Stats<'a> = "stats",
} }
wire! { struct DocError<'a> { message: Str<'a> = "message", code: Num = "code" } }
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
    file: SessionFile,
    session: Option<String>,
    model: Option<String>,
    started: bool,
    out: String,
    /// A JSON block in stderr that is being read.
    block: Vec<String>,
    /// The first whole one that looks like the document.
    err: Option<String>,
    /// A request failed for good.
    talk_failed: bool,
    /// The agent answered, but nothing came from its session file.
    untold: bool,
    /// Whether the rules are in force.
    rules: proof::Watch,
}

impl GeminiJson {
    pub(super) fn new() -> Self {
        Self {
            run: None,
            file: SessionFile::new(Telling::Everything),
            session: None,
            model: None,
            started: false,
            out: String::new(),
            block: Vec::new(),
            err: None,
            talk_failed: false,
            untold: false,
            rules: proof::Watch::default(),
        }
    }

    fn start(&mut self, run: RunId, session: Option<String>, say: &mut Say) {
        if !std::mem::replace(&mut self.started, true) {
            say.ready();
            let session_id = session.or_else(|| self.session.clone());
            let started = Started { session_id, model: self.model.clone(), ..Started::default() };
            say.event(run, Event::Started(Box::new(started)));
        }
    }

    /// Reads the document, if the text is one.
    fn document(&mut self, run: RunId, text: &str, say: &mut Say) -> bool {
        let Ok(doc) = serde_json::from_str::<Doc<'_>>(text) else { return false };
        if !doc.is_object() || (doc.response.is_none() && doc.error.is_none()) {
            return false;
        }
        self.start(run, doc.session.map(Str::own), say);
        let asked_the_model = !doc.stats.models.0.is_empty() || !doc.stats.is_object();
        let mut turns = 0;
        for (name, model) in doc.stats.models.0 {
            // Old versions do not tell which requests were the agent's own.
            turns += model.roles.as_ref().map_or(&model.api, |roles| &roles.main).answered();
            let t = model.tokens;
            let tokens = Tokens {
                input: t.prompt.0,
                output: t.output.0,
                cached: t.cached.0,
                thoughts: t.thoughts.0,
                tool: t.tool.0.filter(|n| *n > 0),
                total: t.total.0,
            };
            let mut count = Count::new(Source::Stream, Span::Model(name.own()), tokens);
            count.requests = model.api.requests.0;
            say.count(run, count);
        }
        let calls = doc.stats.tools.calls.0.unwrap_or(0);
        let had_text = doc.response.as_ref().is_some_and(|r| !r.trim().is_empty());
        let failure = doc.error.as_ref().map(|e| failure_of(e, had_text)).or_else(|| {
            let soft = |w: &Str<'_>| {
                Some(failures::of_text(w)).filter(|f| matches!(f.kind, Kind::Loop | Kind::Blocked))
            };
            doc.warnings.0.iter().find_map(soft)
        });
        for warning in doc.warnings.0 {
            say.event(run, Event::warning("agent", warning.own()));
        }
        let response = doc.response.map(Str::own).unwrap_or_default();
        let answered = !response.trim().is_empty();
        // The session file may have told the last turn already.
        if answered && response.trim() != self.file.last_text.trim() {
            self.file.last_text.clone_from(&response);
            say.event(run, Event::Text { text: response });
        }
        if !self.file.has_told() {
            self.untold = asked_the_model;
            // Requests that were tried again are no turns; where it failed they cannot be told apart.
            if doc.error.is_none() {
                let clip = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
                say.tally(run, clip(turns), clip(calls));
            }
        }
        let end = match failure {
            None if !asked_the_model && !answered => End::failed(Some(stream::unheard(self.talk_failed))),
            None => End::ok(),
            failure => End::failed(failure),
        };
        say.end(run, end);
        if answered {
            self.rules.turn(say);
        }
        true
    }

    /// Finds the document between other text.
    fn search(&mut self, run: RunId, text: &str, say: &mut Say) -> bool {
        if self.document(run, text, say) {
            return true;
        }
        if let Some(mended) = mend_surrogates(text) {
            return self.search(run, &mended, say);
        }
        let mut found = false;
        for part in parts(text) {
            match part {
                Part::Object(object) if !found => found = self.document(run, object, say),
                Part::Object(rest) | Part::Noise(rest) => {
                    say.event(run, Event::unreadable(rest.trim(), rest.len() as u64))
                }
            }
        }
        found
    }

    /// A failed run prints its document on stderr, between other lines, sometimes twice.
    fn stderr(&mut self, text: &str, say: &mut Say) {
        self.talk_failed |= text.starts_with(failures::TALK_FAILED);
        let begins = text == "{" || text == "[ERROR] {";
        if begins {
            // One that never ended was none.
            self.give_back(say);
        } else if self.block.is_empty() {
            if !self.rules.stderr(text, say) {
                failures::stderr_line(text, say);
            }
            return;
        }
        self.block.push(text.to_owned());
        if text == "}" {
            let mut lines = std::mem::take(&mut self.block);
            lines[0] = "{".to_owned();
            let block = lines.join("\n");
            if is_document(&block) {
                self.err.get_or_insert(block);
            } else {
                lines.iter().for_each(|line| failures::stderr_line(line, say));
            }
        } else if self.block.len() > LONGEST_BLOCK {
            self.give_back(say);
        }
    }

    /// Lines that were taken for the beginning of the document are lines like any others.
    fn give_back(&mut self, say: &mut Say) {
        for line in std::mem::take(&mut self.block) {
            failures::stderr_line(&line, say);
        }
    }
}

/// A block of more lines than this is no document; its error is one line, however long.
const LONGEST_BLOCK: usize = 1000;

fn is_document(text: &str) -> bool {
    let whole = |text: &str| {
        serde_json::from_str::<Doc<'_>>(text)
            .is_ok_and(|doc| doc.is_object() && (doc.response.is_some() || doc.error.is_some()))
    };
    whole(text) || mend_surrogates(text).is_some_and(|mended| whole(&mended))
}

impl Api<'_> {
    fn answered(&self) -> u64 {
        self.requests.0.unwrap_or(0).saturating_sub(self.errors.0.unwrap_or(0))
    }
}

fn failure_of(error: &DocError<'_>, had_text: bool) -> Failure {
    let by_text = failures::of_answer(&error.message, had_text);
    let by_code = match error.code.0 {
        Some(code @ 400..=599) => {
            Some(Failure::http(u16::try_from(code).unwrap_or_default(), by_text.message.clone()))
        }
        Some(code) => failures::of_exit(i32::try_from(code).unwrap_or_default())
            .map(|f| Failure { message: by_text.message.clone(), ..f }),
        None => None,
    };
    match by_code {
        Some(by_code) if by_text.kind == Kind::ApiError => by_code,
        _ => by_text,
    }
}

impl Dialogue for GeminiJson {
    fn room(&self) -> Room {
        Room::Once
    }

    fn prompt(&mut self, run: RunId, order: &Order, say: &mut Say) {
        self.run = Some(run);
        self.rules.begin(order);
        self.model.clone_from(&order.who.model);
        if let Want::Named(session) | Want::Load(session) = &order.session {
            self.session = Some(session.clone());
            say.follow(run, Side::SessionFile, session);
        }
        if self.session.is_none() || !order.follow {
            say.silent(run);
        }
        say.frame(order.prompt.clone());
        say.shut();
    }

    fn line(&mut self, line: Line<'_>, say: &mut Say) {
        match line.stream {
            Stream::Stdout => {
                self.out.push_str(line.text);
                self.out.push('\n');
            }
            Stream::Stderr => self.stderr(line.text, say),
            Stream::Side(run, _) => {
                // The file is written once the agent is up; until then this surface says nothing at all.
                self.start(run, None, say);
                self.file.line(run, line.text, say);
            }
        }
    }

    fn exit(&mut self, exit: Exit, say: &mut Say) {
        let Some(run) = self.run else { return };
        if let Exit::Code(code) = exit
            && let Some(failure) = failures::of_exit(code)
        {
            say.hint(Some(run), failure);
        }
        self.give_back(say);
        let (out, err) = (std::mem::take(&mut self.out), self.err.take());
        let found = !out.trim().is_empty() && self.search(run, out.trim_end(), say);
        if let Some(err) = err.filter(|_| !found) {
            self.search(run, &err, say);
        }
    }

    fn settled(&mut self, run: RunId, say: &mut Say) {
        if self.untold && !self.file.was_read {
            let message = "the session file could not be read: tools and earlier text are not told, and `files` comes from the disk alone";
            say.event(run, Event::warning("no_session_file", message));
        }
    }
}
