//! Codex's saved sessions, called rollouts. They contain the model's input and output as well as UI events, so most
//! content is stored twice.

mod calls;
mod exec;
mod patch;
mod records;
mod results;
mod titles;

use crate::agents::codex::sessions::records::{CodexPayload, CodexRecord, CodexTokenUsage};
use crate::agents::codex::sessions::titles::titles;
use crate::agents::codex::{Codex, store, transplant};
use crate::{
    ContentStore, Entry, EntryPart, FileSystem, Millis, RawJson, Role, SavedResult, SavedSession, SavedTool,
    SessionFile, SessionFilePattern, SessionFormat, SessionReader, SessionRoot, SessionSource, SessionWriter,
    Tokens, ToolStatus,
    agents::line_reader::{LineReader, first_keys},
    wire::{Str, Tolerant},
};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Prefixes of texts that Codex sends to the model as user messages.
const WRAPPERS: &[&str] = &[
    "<environment_context>",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "<permissions instructions>",
    "<skill>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<subagent_notification>",
    "# AGENTS.md instructions",
];

/// The length of a UUID.
const UUID: usize = 36;

/// The record types that have an envelope.
const KINDS: &[&str] = &["session_meta", "response_item", "event_msg", "turn_context", "compacted"];

impl SessionSource for Codex {
    fn roots(&self, env: &BTreeMap<String, String>, home: &Path, fs: &dyn FileSystem) -> Vec<SessionRoot> {
        let folder = store::home(env, home);
        // Sessions are in subfolders by year, month and day.
        let mut roots = vec![SessionRoot::files(folder.join("sessions"), 3)];
        let archive = folder.join("archived_sessions");
        if fs.exists(&archive) {
            roots.push(SessionRoot::files(archive, 3));
        }
        roots
    }

    fn folder(&self, agent_home: &Path, _cwd: &Path, _fs: &dyn FileSystem) -> Option<PathBuf> {
        Some(agent_home.join("sessions"))
    }

    fn file_pattern(&self, folder: PathBuf, session: &str, fs: &dyn FileSystem) -> SessionFilePattern {
        let suffix = format!("-{session}.jsonl");
        let mut days = days(&folder, fs);
        let newest = days.next().unwrap_or(folder);
        let has_session = |day: &PathBuf| {
            fs.list(day).is_some_and(|names| names.iter().any(|name| name.ends_with(&suffix)))
        };
        let found = if has_session(&newest) { None } else { days.find(has_session) };
        SessionFilePattern::new(found.unwrap_or(newest), suffix)
    }

    fn file(&self, path: &Path) -> Option<SessionFile> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.strip_prefix("rollout-")?;
        // The name is a timestamp and a UUID, followed by a suffix in further files of the same session.
        let stem = stem.split('_').next().unwrap_or(stem);
        let id = stem.len().checked_sub(UUID).and_then(|at| stem.get(at..)).map(str::to_owned);
        Some(SessionFile { form: Some(SessionFormat::Lines), id, parent: None })
    }

    fn format(&self, head: &[u8]) -> Option<SessionFormat> {
        let keys = first_keys(head);
        let has = |name: &str| keys.iter().any(|(key, _)| key == name);
        let executed = keys.iter().any(|(key, kind)| key == "type" && exec::KINDS.contains(&kind.as_str()));
        let enveloped = keys.iter().any(|(key, kind)| key == "type" && KINDS.contains(&kind.as_str()));
        let bare = has("id") && has("timestamp") && has("instructions") && !has("type");
        ((enveloped && has("payload")) || executed || bare).then_some(SessionFormat::Lines)
    }

    fn titles(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> BTreeMap<String, String> {
        let file = store::home(env, home).join("session_index.jsonl");
        let text = fs.read(&file).unwrap_or_default();
        titles(&String::from_utf8_lossy(&text))
    }

    /// Returns `true`: after a rewind, Codex continues in another file, which records where the first one is
    /// cut.
    fn files_continue(&self) -> bool {
        true
    }

    fn reader(&self, format: SessionFormat) -> Option<Box<dyn SessionReader>> {
        (format == SessionFormat::Lines).then(|| Box::new(CodexReader::new()) as _)
    }

    fn writer(&self) -> Option<SessionWriter> {
        Some(|session, context| Ok(transplant::write(session, context)))
    }

    fn provider(&self) -> Option<&'static str> {
        Some("openai")
    }
}

/// Returns the directories of the days that have sessions, newest first.
fn days<'a>(folder: &Path, fs: &'a dyn FileSystem) -> impl Iterator<Item = PathBuf> + use<'a> {
    let newest_first = |folder: PathBuf| {
        let mut names = fs.list(&folder).unwrap_or_default();
        names.sort();
        names.into_iter().rev().map(move |name| folder.join(name))
    };
    newest_first(folder.to_owned()).flat_map(newest_first).flat_map(newest_first)
}

/// Reads the lines of a rollout.
#[derive(Debug)]
pub(super) struct CodexReader {
    lines: LineReader,
    model: Option<String>,
    /// The number of the first record of each entry.
    ordinals: Vec<u64>,
    /// The number of the current record.
    ordinal: u64,
    /// The answer to which further items are added.
    open: Option<usize>,
    /// The last answer of the session.
    last: Option<usize>,
    /// The position of each call by its id: the entry and the index of the part.
    calls: HashMap<String, (usize, usize)>,
    /// The status of calls whose result has not been read yet.
    hints: HashMap<String, ToolStatus>,
    /// The tokens counted so far, from the beginning of the thread as Codex counts them.
    counted: Option<Tokens>,
    /// The tokens and the number of requests that are not attributed to an answer yet.
    waiting: Option<(Tokens, u64)>,
}

impl SessionReader for CodexReader {
    fn take(&mut self, record: RawJson) {
        let mut mended = String::new();
        let Some(line) = self.lines.read::<CodexRecord<'_>>(record.as_str(), &mut mended) else { return };
        let at = self.lines.moment(&line.timestamp);
        self.ordinal = line.ordinal.0.unwrap_or(self.lines.count);
        match line.payload {
            Some(payload) => self.record(&line.kind, payload, at, &record),
            None if line.kind.is_empty() && !line.id.is_empty() => {
                self.lines.session.info.id = line.id.own();
            }
            None if exec::KINDS.contains(&&*line.kind) => self.exec_line(&record),
            None => {
                let item = serde_json::from_str::<CodexPayload<'_>>(record.as_str()).unwrap_or_default();
                self.item(item, at, &record);
            }
        }
    }

    fn offload(&mut self, store: &Arc<dyn ContentStore>) {
        self.lines.session.offload(store);
    }

    fn session(&self) -> &SavedSession {
        &self.lines.session
    }

    fn finish(self: Box<Self>) -> SavedSession {
        self.lines.session
    }
}

impl CodexReader {
    /// Creates an empty reader.
    pub(super) fn new() -> Self {
        Self {
            lines: LineReader::new("codex"),
            model: None,
            ordinals: Vec::new(),
            ordinal: 0,
            open: None,
            last: None,
            calls: HashMap::new(),
            hints: HashMap::new(),
            counted: None,
            waiting: None,
        }
    }

    fn record(&mut self, kind: &str, payload: CodexPayload<'_>, at: Option<Millis>, record: &RawJson) {
        match kind {
            "session_meta" => self.header(payload),
            "turn_context" if !payload.model.is_empty() => {
                self.model = Some(payload.model.own());
                self.lines.session.info.model.clone_from(&self.model);
            }
            "response_item" => self.item(payload, at, record),
            "event_msg" => self.event(payload, at, record),
            "token_usage_record" => {
                if let Some(usage) = payload.usage.filter(Tolerant::is_object) {
                    let used = tokens(&usage);
                    let before = self.counted.unwrap_or_default();
                    self.counted = Some(payload.thread_usage.map_or(before.plus(used), |all| tokens(&all)));
                    self.spent(used, Some(payload.response.own()));
                }
                self.open = None;
            }
            "compacted" => {
                if let Some(entry) = self.lines.session.entries.last_mut()
                    && entry.role == Role::Assistant
                    && payload.message.contains(entry.loaded().text().trim())
                {
                    // Codex, not the user, asked the model for the summary.
                    entry.context = true;
                }
                self.notice("Conversation compacted".to_owned(), at, record);
                if !payload.message.is_empty() {
                    let id = format!("{}-summary", self.synthetic_id(at));
                    let mut entry = self.entry(&id, Role::User, at, record);
                    entry.context = true;
                    entry.parts.push(EntryPart::text(payload.message.own()));
                    self.add_entry(entry);
                }
            }
            _ => {}
        }
    }

    fn header(&mut self, meta: CodexPayload<'_>) {
        let info = &mut self.lines.session.info;
        if !info.id.is_empty() {
            // A further file of the session may continue from an earlier record. A forked session may contain the
            // header of the original one.
            if *meta.base.thread == *info.id
                && let Some(end) = meta.base.end.0
            {
                let from = self.ordinals.partition_point(|ordinal| *ordinal < end);
                self.leave_behind(from);
            }
            return;
        }
        let known = |text: Str<'_>| Some(text.own()).filter(|text| !text.is_empty());
        info.id = meta.id.own();
        info.project = known(meta.cwd);
        info.agent_version = known(meta.version);
        info.parent = known(meta.source.agent.spawn.parent);
    }

    /// Creates an id from the position of the record. Line numbers alone are ambiguous, because a session may continue
    /// in another file.
    fn synthetic_id(&self, at: Option<Millis>) -> String {
        at.map_or_else(|| format!("line-{}", self.lines.count), |at| format!("at-{at}-{}", self.ordinal))
    }

    fn entry(&self, id: &str, role: Role, at: Option<Millis>, record: &RawJson) -> Entry {
        let id = if id.is_empty() { self.synthetic_id(at) } else { id.to_owned() };
        let mut entry = Entry::new(id, role);
        entry.timestamp = at;
        entry.originals.push(record.clone());
        entry
    }

    /// Adds a message from the agent itself.
    fn notice(&mut self, text: String, at: Option<Millis>, record: &RawJson) {
        self.open = None;
        let mut entry = self.entry("", Role::System, at, record);
        entry.parts.push(EntryPart::text(text));
        self.add_entry(entry);
    }

    fn add_entry(&mut self, entry: Entry) -> usize {
        self.ordinals.push(self.ordinal);
        self.lines.session.entries.push(entry);
        self.ordinals.len() - 1
    }

    /// Processes an item of the model's input or output.
    fn item(&mut self, item: CodexPayload<'_>, at: Option<Millis>, record: &RawJson) {
        match &*item.kind {
            "message" if &*item.role == "assistant" => {
                let parts = pieces(&item);
                self.push_answer(&item.id, parts, at, record);
            }
            "message" => self.add_message(&item, at, record),
            "reasoning" => {
                let thoughts = item.summary.0.into_iter().chain(item.content.0).map(|piece| piece.text.own());
                let text = thoughts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
                // Encrypted reasoning has no readable text, but its record is kept.
                let parts = (!text.is_empty()).then(|| EntryPart::thinking(text)).into_iter().collect();
                self.push_answer(&item.id, parts, at, record);
            }
            "function_call" => self.called(&item.id, calls::function(&item), at, record),
            "custom_tool_call" => self.called(&item.id, calls::plain(&item), at, record),
            "local_shell_call" => self.called(&item.id, calls::local_shell(&item), at, record),
            "web_search_call" => {
                let id = if item.id.is_empty() { self.synthetic_id(at) } else { item.id.0.to_string() };
                let mut tool = calls::web_search(&item, &id);
                let failed = &*item.status == "failed";
                let status = if failed { ToolStatus::Error } else { ToolStatus::Ok };
                tool.result = Some(SavedResult::new(status, ""));
                self.called(&id, tool, at, record);
            }
            kind if kind.ends_with("_call_output") => self.returned(&item, at, record),
            _ => {}
        }
    }

    /// Processes a prompt or a message that Codex inserted.
    fn add_message(&mut self, item: &CodexPayload<'_>, at: Option<Millis>, record: &RawJson) {
        self.open = None;
        let role = if &*item.role == "user" { Role::User } else { Role::System };
        let mut entry = self.entry(&item.id, role, at, record);
        entry.parts = pieces(item);
        let text = entry.text();
        let own = WRAPPERS.iter().any(|prefix| text.trim_start().starts_with(prefix));
        let kinds = &item.meta.kinds.0;
        let harness = !kinds.is_empty() && !kinds.iter().any(|kind| kind.starts_with("user."));
        entry.context = role != Role::User || own || harness;
        if !entry.parts.is_empty() {
            self.add_entry(entry);
        }
    }

    /// Adds parts to the current answer, or begins a new one.
    fn push_answer(
        &mut self,
        id: &str,
        mut parts: Vec<EntryPart>,
        at: Option<Millis>,
        record: &RawJson,
    ) -> usize {
        let open = self.open;
        if let Some((index, entry)) = open.and_then(|index| Some((index, self.entry_at(index)?))) {
            entry.parts.append(&mut parts);
            entry.originals.push(record.clone());
            return index;
        }
        let mut entry = self.entry(id, Role::Assistant, at, record);
        entry.model.clone_from(&self.model);
        entry.parts = parts;
        if let Some((tokens, requests)) = self.waiting.take() {
            (entry.usage, entry.requests) = (Some(tokens), Some(requests));
        }
        let index = self.add_entry(entry);
        (self.open, self.last) = (Some(index), Some(index));
        index
    }

    fn called(&mut self, id: &str, tool: SavedTool, at: Option<Millis>, record: &RawJson) {
        let call = tool.call.id.clone();
        let id = if id.is_empty() { &call } else { id };
        let index = self.push_answer(id, vec![EntryPart::Tool(Box::new(tool))], at, record);
        let Some(entry) = self.entry_at(index) else { return };
        entry.stop_reason = Some("tool_use".to_owned());
        let part_index = entry.parts.len() - 1;
        self.calls.insert(call, (index, part_index));
    }

    /// Returns an entry with its content loaded.
    fn entry_at(&mut self, index: usize) -> Option<&mut Entry> {
        let entry = self.lines.session.entries.get_mut(index)?;
        entry.load();
        Some(entry)
    }

    fn tool(&mut self, call: &str) -> Option<&mut SavedTool> {
        let (index, at) = *self.calls.get(call)?;
        match self.entry_at(index)?.parts.get_mut(at)? {
            EntryPart::Tool(tool) => Some(tool),
            _ => None,
        }
    }

    /// Processes the output of a tool.
    fn returned(&mut self, item: &CodexPayload<'_>, at: Option<Millis>, record: &RawJson) {
        self.open = None;
        let mut result = results::result(item.output);
        result.timestamp = at;
        result.original = Some(record.clone());
        if let Some(status) = self.hints.remove(&*item.call_id)
            && result.status == ToolStatus::Ok
        {
            result.status = status;
        }
        if let Some(tool) = self.tool(&item.call_id) {
            if result.status.is_error() {
                // A failed call changed nothing.
                tool.diff = None;
            }
            tool.result = Some(result);
            return;
        }
        // The call is missing, but its result is still shown.
        let mut entry = self.entry(&item.id, Role::User, at, record);
        entry.results_only = true;
        let lost = SavedTool::without_call(item.call_id.0.to_string(), result);
        entry.parts.push(EntryPart::Tool(Box::new(lost)));
        self.add_entry(entry);
    }

    /// Processes a UI event. Its texts are already stored as items, so only statuses, counts and notices are used.
    fn event(&mut self, event: CodexPayload<'_>, at: Option<Millis>, record: &RawJson) {
        match &*event.kind {
            "token_count" => {
                let (total, last) = (event.info.total, event.info.last);
                if let Some(total) = total.filter(Tolerant::is_object) {
                    self.counted_to(tokens(&total), last.map(|last| tokens(&last)));
                }
            }
            "item_completed" => {
                let Some(item) = event.item else { return };
                let status = results::status(&item.status, item.exit_code.as_deref(), None);
                self.apply_status(&item.id, status, results::diff(item.changes));
            }
            "exec_command_end" | "patch_apply_end" | "mcp_tool_call_end" => {
                let success = event.success.map(|success| success.0);
                let status = results::status(&event.status, event.exit_code.as_deref(), success);
                self.apply_status(&event.call_id, status, results::diff(event.changes));
            }
            "turn_aborted" => {
                let (open, reason) = (self.last, event.reason.own());
                self.cut_off(open);
                let reason = if reason.is_empty() { "interrupted".to_owned() } else { reason };
                self.notice(format!("Turn aborted: {reason}"), at, record);
            }
            "error" => self.notice(event.message.own(), at, record),
            "task_complete" | "turn_complete" => {
                self.open = None;
                if !event.error.message.is_empty() {
                    self.notice(event.error.message.own(), at, record);
                    return;
                }
                let last = self.last.and_then(|index| self.lines.session.entries.get_mut(index));
                if let Some(entry) = last.filter(|entry| entry.stop_reason.is_none()) {
                    entry.stop_reason = Some("end_turn".to_owned());
                }
            }
            "thread_rolled_back" => self.roll_back(event.turns.0.unwrap_or(0)),
            "thread_name_updated" => {
                self.lines.session.info.title = Some(event.thread_name.own()).filter(|name| !name.is_empty());
            }
            _ => {}
        }
    }

    /// Applies the status and the diff of a call, which are stored separately from its output.
    fn apply_status(&mut self, call: &str, status: Option<ToolStatus>, diff: Option<crate::SavedDiff>) {
        let Some(tool) = self.tool(call) else { return };
        let Some(status) = status else {
            tool.diff = diff.or(tool.diff.take());
            return;
        };
        tool.diff = None;
        match &mut tool.result {
            Some(result) if result.status == ToolStatus::Ok => result.status = status,
            Some(_) => {}
            None => {
                self.hints.insert(call.to_owned(), status);
            }
        }
    }

    /// Marks calls of the last answer that have no result as cancelled.
    fn cut_off(&mut self, answer: Option<usize>) {
        let Some(entry) = answer.and_then(|index| self.entry_at(index)) else { return };
        for part in &mut entry.parts {
            if let EntryPart::Tool(tool) = part
                && tool.result.is_none()
            {
                tool.result = Some(SavedResult::new(ToolStatus::Cancelled, ""));
            }
        }
    }

    /// Abandons the last turns.
    fn roll_back(&mut self, turns: u64) {
        let entries = &mut self.lines.session.entries;
        let prompts = entries.iter().enumerate().rev().filter(|(_, entry)| entry.is_prompt());
        let Some(position) = usize::try_from(turns).ok().and_then(|turns| turns.checked_sub(1)) else {
            return;
        };
        let from = prompts.map(|(index, _)| index).nth(position).unwrap_or(0);
        self.leave_behind(from);
    }

    fn leave_behind(&mut self, from: usize) {
        let entries = &mut self.lines.session.entries;
        self.lines.session.abandoned.extend(entries.drain(from..));
        self.ordinals.truncate(from);
        self.calls.retain(|_, (index, _)| *index < from);
        self.open = None;
        self.last = entries.iter().rposition(|entry| entry.role == Role::Assistant);
    }

    /// Applies a token count from the beginning of the thread.
    fn counted_to(&mut self, total: Tokens, last: Option<Tokens>) {
        let used = match self.counted {
            Some(before) if before == total => return,
            Some(before) if before.input <= total.input && before.output <= total.output => {
                total.minus(before)
            }
            // A thread that continues in a new file also counts the tokens of the old one.
            _ => last.unwrap_or(total),
        };
        self.counted = Some(total);
        self.spent(used, None);
        self.open = None;
    }

    /// Adds the usage of one request. The response id is the same in every copy of the session.
    fn spent(&mut self, used: Tokens, response: Option<String>) {
        let Some(entry) = self.last.and_then(|index| self.lines.session.entries.get_mut(index)) else {
            let (before, requests) = self.waiting.unwrap_or_default();
            self.waiting = Some((before.plus(used), requests + 1));
            return;
        };
        entry.usage = Some(entry.usage.unwrap_or_default().plus(used));
        entry.requests = Some(entry.requests.unwrap_or(0) + 1);
        if entry.counted_as.is_none() {
            entry.counted_as = response.filter(|response| !response.is_empty());
        }
    }
}

fn pieces(item: &CodexPayload<'_>) -> Vec<EntryPart> {
    let parts = item.content.0.iter().map(|piece| match &*piece.image {
        "" => EntryPart::text(&*piece.text),
        url => EntryPart::Media(results::image(url)),
    });
    parts.filter(|part| !matches!(part, EntryPart::Text { text } if text.is_empty())).collect()
}

/// Returns the tokens of a response from its `usage`.
pub(super) fn usage_of(usage: &RawValue) -> Option<Tokens> {
    let usage: CodexTokenUsage<'_> = serde_json::from_str(usage.get()).ok()?;
    usage.is_object().then(|| tokens(&usage))
}

/// Converts a token count. Codex includes reasoning in the output; `Tokens` does not.
fn tokens(count: &CodexTokenUsage<'_>) -> Tokens {
    let thoughts = count.thoughts.0;
    Tokens {
        input: count.input.0,
        output: count.output.0.map(|output| output.saturating_sub(thoughts.unwrap_or(0))),
        cached: count.cached.0,
        cache_write: count.cache_write.0,
        thoughts,
        total: count.total.0,
        ..Tokens::default()
    }
}
