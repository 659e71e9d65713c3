//! Redacts secrets from everything a connection emits. Frames sent to the agent are never redacted.

use crate::secret::{MARK, SHORTEST_SECRET, SIGNIFICANT_LENGTH};
use crate::{
    Diff, Event, Outcome, PermissionEvent, PermissionRequest, ToolLocation, ToolResult, Usage,
    redact::{Patterns, whole_characters},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

/// Redacts the secrets of a run in any spelling or encoding, and keys of well-known formats.
#[derive(Clone)]
pub struct Redactor {
    patterns: Patterns,
    values: Arc<Vec<String>>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new::<&str>([])
    }
}

impl fmt::Debug for Redactor {
    /// Shows only the number of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.values.len()).finish()
    }
}

impl Redactor {
    /// Creates a redactor for these values. Values shorter than [`SHORTEST_SECRET`] are ignored.
    #[must_use]
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let secrets = secrets.into_iter().filter(|s| s.as_ref().chars().nth(SHORTEST_SECRET - 1).is_some());
        let values: Vec<String> = secrets.map(|secret| secret.as_ref().to_owned()).collect();
        Self { patterns: Patterns::new(values.iter().map(String::as_str)), values: Arc::new(values) }
    }

    /// Returns a redactor that also redacts these values.
    #[must_use]
    pub fn and<S: AsRef<str>>(&self, more: &[S]) -> Self {
        Self::new(self.values.iter().map(String::as_str).chain(more.iter().map(AsRef::as_ref)))
    }

    /// Returns a redactor of the secrets of both.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        let new: Vec<&String> = other.values.iter().filter(|value| !self.values.contains(value)).collect();
        if new.is_empty() { self.clone() } else { self.and(&new) }
    }

    /// Returns whether there are no known values to redact. Keys of well-known formats are redacted in any case.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns whether no known value has characters that JSON or a URL escapes. Such values look the same in JSON at any
    /// depth.
    pub(crate) fn is_plain(&self) -> bool {
        let is_escaped = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b'"' | b'%');
        !self.values.iter().any(|value| value.bytes().any(is_escaped))
    }

    /// Returns the patterns to search for.
    pub(crate) fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// Returns the text with every secret replaced.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        replace(text, self.patterns.find(text))
    }

    pub(crate) fn own(&self, text: &mut String) {
        if let Cow::Owned(hidden) = self.text(text) {
            *text = hidden;
        }
    }

    /// Redacts a text that may be truncated, so that it may end with the start of a secret.
    fn own_cut(&self, text: &mut String) {
        if let Cow::Owned(hidden) = replace(text, self.patterns.find_in_cut(text, SIGNIFICANT_LENGTH)) {
            *text = hidden;
        }
    }

    fn usage(&self, usage: &mut Usage) {
        if usage.by_model.keys().any(|model| matches!(self.text(model), Cow::Owned(_))) {
            let models = std::mem::take(&mut usage.by_model);
            usage.by_model = models.into_iter().map(|(m, t)| (self.text(&m).into_owned(), t)).collect();
        }
    }

    pub(crate) fn redact_some(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.own(text);
        }
    }

    fn raw(&self, raw: &mut Box<RawValue>) {
        if let Cow::Owned(hidden) = self.text(raw.get()) {
            // Redacting an object key or an escape can make the JSON invalid. Then the whole value is replaced.
            *raw = RawValue::from_string(hidden)
                .or_else(|_| serde_json::value::to_raw_value(MARK))
                .unwrap_or_else(|_| RawValue::NULL.to_owned());
        }
    }

    pub(crate) fn raw_some(&self, raw: &mut Option<Box<RawValue>>) {
        if let Some(raw) = raw {
            self.raw(raw);
        }
    }

    fn locations(&self, locations: &mut [ToolLocation]) {
        for location in locations {
            self.own(&mut location.path);
        }
    }

    fn diffs(&self, diffs: &mut [Diff]) {
        for Diff { path, old, new } in diffs {
            self.own(path);
            self.redact_some(old);
            self.own(new);
        }
    }

    /// Redacts every text of an event.
    pub fn event(&self, event: &mut Event) {
        match event {
            Event::Text { text } | Event::Thinking { text } => self.own(text),
            Event::Started(started) => {
                self.redact_some(&mut started.model);
                self.redact_some(&mut started.session_id);
                self.redact_some(&mut started.name);
                self.redact_some(&mut started.agent_version);
                self.own(&mut started.cwd);
            }
            Event::ToolUse(tool) => {
                self.own(&mut tool.id);
                self.redact_some(&mut tool.parent_tool_use_id);
                self.raw_some(&mut tool.input);
                self.raw_some(&mut tool.raw_input);
                self.redact_some(&mut tool.path);
                self.own(&mut tool.native_name);
                self.own(&mut tool.name);
                self.redact_some(&mut tool.title);
                self.locations(&mut tool.locations);
                self.diffs(&mut tool.diffs);
            }
            Event::ToolOutput { tool_use_id, text } => {
                self.own(tool_use_id);
                self.own(text);
            }
            Event::ToolResult(ToolResult {
                tool_use_id,
                content,
                reason,
                title,
                locations,
                raw_output,
                diffs,
                status: _,
                is_error: _,
            }) => {
                self.own(tool_use_id);
                self.redact_some(content);
                self.redact_some(reason);
                self.redact_some(title);
                self.locations(locations);
                self.raw_some(raw_output);
                self.diffs(diffs);
            }
            Event::FileChange { path, tool_use_id, diff, change: _, source: _, verified: _ } => {
                self.own(path);
                self.redact_some(tool_use_id);
                self.redact_some(diff);
            }
            Event::Permission(PermissionEvent {
                tool_use_id,
                tool,
                request,
                reason,
                rule,
                by,
                decision: _,
            }) => {
                self.own(tool_use_id);
                self.own(tool);
                self.raw_some(request);
                self.redact_some(reason);
                self.redact_some(rule);
                self.own(by);
            }
            Event::Mode { mode } => self.own(mode),
            Event::Content { block: raw }
            | Event::Plan { entries: raw }
            | Event::Commands { commands: raw }
            | Event::ConfigOption { options: raw }
            | Event::SessionInfo { info: raw } => self.raw(raw),
            Event::Warning { message, .. } => self.own_cut(message),
            Event::Retry { reason, model, .. } => {
                self.own_cut(reason);
                model.iter_mut().for_each(|model| self.own(model));
            }
            Event::Unreadable { sample, length } => {
                // If the line is complete, report the length of the redacted text: it must not reveal the length of the
                // secret, and replaying a tape, which is redacted, must give the same length.
                let is_whole = sample.len() as u64 == *length;
                self.own_cut(sample);
                if is_whole {
                    *length = sample.len() as u64;
                }
            }
            Event::Agent { raw } => self.raw(raw),
            Event::Usage(usage) => self.usage(usage),
            Event::Outcome { outcome } => self.outcome(outcome),
        }
    }

    /// Redacts every text of a permission request. Rules must decide on the original.
    pub fn permission_request(&self, request: &mut PermissionRequest) {
        let PermissionRequest {
            tool_use_id,
            tool,
            native_tool,
            title,
            kind: _,
            input,
            command,
            paths,
            diffs,
            server,
        } = request;
        for text in [tool_use_id, tool, native_tool, title] {
            self.own(text);
        }
        self.raw_some(input);
        self.redact_some(command);
        paths.iter_mut().for_each(|path| self.own(path));
        self.diffs(diffs);
        self.redact_some(server);
    }

    /// Redacts every text of an outcome.
    pub fn outcome(&self, outcome: &mut Outcome) {
        self.own(&mut outcome.text);
        self.own(&mut outcome.stderr_tail);
        self.redact_some(&mut outcome.model);
        self.redact_some(&mut outcome.session_id);
        self.redact_some(&mut outcome.name);
        self.redact_some(&mut outcome.agent_version);
        self.redact_some(&mut outcome.stop_reason);
        self.own(&mut outcome.cwd);
        self.usage(&mut outcome.usage);
        self.raw_some(&mut outcome.output);
        if let Some(error) = &mut outcome.error {
            self.own_cut(&mut error.message);
            self.own(&mut error.stderr_tail);
            self.own(&mut error.stdout_tail);
            error.agent_type.iter_mut().for_each(|name| self.own(name));
            self.redact_some(&mut error.hint);
        }
        for file in &mut outcome.files {
            self.own(&mut file.path);
            self.redact_some(&mut file.tool);
            self.redact_some(&mut file.tool_use_id);
            self.redact_some(&mut file.diff);
        }
        for denial in &mut outcome.denied {
            self.own(&mut denial.reason);
            self.own(&mut denial.tool);
            self.own(&mut denial.native_tool);
            self.own(&mut denial.tool_use_id);
            self.redact_some(&mut denial.rule);
        }
        for warning in &mut outcome.warnings {
            self.own_cut(&mut warning.message);
        }
    }
}

/// Replaces each of these ranges with a mark.
pub(crate) fn replace(text: &str, ranges: Vec<Range<usize>>) -> Cow<'_, str> {
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for range in ranges {
        let range = whole_characters(text, range);
        out.push_str(&text[from..range.start.max(from)]);
        out.push_str(MARK);
        from = range.end.max(from);
    }
    Cow::Owned(out + &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::StreamRedactor;
    use proptest::prelude::*;

    const SECRET: &str = "sk-Zx9/é\"tail";

    fn spell(secret: &str, choices: &[u8]) -> String {
        let mut out = String::new();
        for (i, c) in secret.chars().enumerate() {
            match choices.get(i).copied().unwrap_or(0) % 3 {
                1 => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                2 => {
                    let quoted = serde_json::to_string(&c.to_string()).unwrap();
                    out.push_str(&quoted[1..quoted.len() - 1]);
                }
                _ => out.push(c),
            }
        }
        out
    }

    #[test]
    fn short_values_are_not_redacted() {
        assert_eq!(Redactor::new(["short"]).text("a short text"), "a short text");
        assert!(Redactor::new(["short"]).is_empty());
    }

    #[test]
    fn secrets_in_nested_json_are_redacted() {
        let redactor = Redactor::new([SECRET]);
        let once = serde_json::to_string(SECRET).unwrap();
        let twice = serde_json::to_string(&once).unwrap();
        for text in [SECRET.to_owned(), once, twice] {
            let hidden = redactor.text(&text).into_owned();
            assert!(hidden.contains(MARK) && !hidden.contains("Zx9"), "{text} -> {hidden}");
        }
    }

    #[test]
    fn redacted_line_does_not_reveal_the_length_of_a_secret() {
        let mut event = Event::unreadable("key password-two!", 17);
        Redactor::new(["password-two"]).event(&mut event);
        let Event::Unreadable { sample, length } = event else { panic!("still a line") };
        assert_eq!((sample.as_str(), length), ("key [redacted]!", 15));
    }

    #[test]
    fn longer_of_overlapping_secrets_is_fully_redacted() {
        assert_eq!(Redactor::new(["password", "password-two"]).text("x password-two y"), "x [redacted] y");
    }

    #[test]
    fn unescaped_and_escaped_text_are_redacted_alike() {
        let redactor = Redactor::new(["password", "password-two", "wordpass", "größte-Größe"]);
        for text in [
            "",
            "nothing",
            "password",
            "passwordpass and passwordpassword-two",
            "wordpassword",
            "die größte-Größe, größte-Größ",
        ] {
            // With a backslash in the text, any letter may be escaped.
            let escaped = format!("{text}\\");
            assert_eq!(format!("{}\\", redactor.text(text)), redactor.text(&escaped), "{text}");
        }
        // Of two overlapping secrets, neither is shown in part.
        assert_eq!(redactor.text("x wordpassword y"), "x [redacted] y");
    }

    #[test]
    fn invalid_json_is_not_shown() {
        let redactor = Redactor::new(["nSECRETSECRET"]);
        let mut raw = RawValue::from_string(r#"{"a":"\nSECRETSECRET"}"#.to_owned()).unwrap();
        redactor.raw(&mut raw);
        assert!(!raw.get().contains("SECRETSECRET"));
        serde_json::from_str::<serde_json::Value>(raw.get()).unwrap();
    }

    proptest! {
        #[test]
        fn every_json_spelling_of_a_secret_is_redacted(choices in proptest::collection::vec(any::<u8>(), 0..16)) {
            let text = format!("before {} after", spell(SECRET, &choices));
            prop_assert_eq!(Redactor::new([SECRET]).text(&text), "before [redacted] after");
        }

        #[test]
        fn secret_is_redacted_at_any_split(cuts in proptest::collection::vec(0usize..60, 0..12), times in 1usize..3) {
            let redactor = Redactor::new([SECRET]);
            let text = format!("sk- then s{} and sk-Zx", SECRET.repeat(times));
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| text.is_char_boundary(*c)).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let (mut stream, mut output, mut from) = (StreamRedactor::default(), String::new(), 0);
            for cut in cuts {
                output.extend(stream.push(redactor.patterns(), text[from..cut].to_owned()));
                from = cut;
            }
            output.extend(stream.finish(redactor.patterns()));
            // Up to three letters are shown before the secret is detected.
            let parts: Vec<&str> = output.split(MARK).collect();
            prop_assert_eq!(parts.len(), times + 1);
            prop_assert_eq!(parts[times], " and sk-Zx");
            for (i, part) in parts[..times].iter().enumerate() {
                let more = part.strip_prefix(if i == 0 { "sk- then s" } else { "" });
                prop_assert!(more.is_some_and(|more| more.len() < SIGNIFICANT_LENGTH && SECRET.starts_with(more)), "{}", output);
            }
        }
    }
}
