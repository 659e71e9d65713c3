//! Secrets leave by no door: one veil a connection, laid over what leaves it, never over frames to the agent.

use crate::{Event, Outcome, Usage};
use memchr::{memchr, memmem::Finder};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// What stands in the place of a secret.
pub const MARK: &str = "[redacted]";
/// Shorter values are too common to be hidden everywhere.
pub const SHORTEST_SECRET: usize = 8;
/// From this many bytes on, the beginning of a secret tells something about it.
const TELLING_PART: usize = 4;

/// Knows the secrets of a run and hides them, however a JSON string may have spelled them.
#[derive(Default, Clone)]
pub struct Veil {
    secrets: Vec<Vec<char>>,
    /// The same, where a text spells them as they are.
    plain: Vec<Finder<'static>>,
    /// The bytes that one of them can begin with, escaped or not.
    starts: Bytes,
}

/// A set of bytes.
#[derive(Default, Clone, Copy)]
struct Bytes([u64; 4]);

impl Bytes {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

impl fmt::Debug for Veil {
    /// Not even in a log does it show what it hides.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Veil").field("secrets", &self.secrets.len()).finish()
    }
}

/// How far a secret fits at a place in a text.
pub(crate) struct Fit {
    /// How many of its letters fit.
    pub(crate) letters: usize,
    /// Where they end.
    pub(crate) end: usize,
    /// All of them fit.
    pub(crate) is_whole: bool,
    /// The text ended while everything fitted.
    pub(crate) is_begun: bool,
}

impl Veil {
    /// Hides these values; those shorter than [`SHORTEST_SECRET`] are left out.
    #[must_use]
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut secrets: Vec<Vec<char>> = secrets
            .into_iter()
            .map(|s| s.as_ref().chars().collect())
            .filter(|s: &Vec<char>| s.len() >= SHORTEST_SECRET)
            .collect();
        // Of two that begin alike, the longer one must be found first.
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        let mut veil = Self::default();
        for secret in &secrets {
            let bytes = secret.iter().collect::<String>().into_bytes();
            veil.starts.insert(b'\\');
            veil.starts.insert(bytes[0]);
            veil.plain.push(Finder::new(&bytes).into_owned());
        }
        Self { secrets, ..veil }
    }

    /// Whether there is nothing to hide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// The secrets as letters, longest first.
    pub(crate) fn secrets(&self) -> &[Vec<char>] {
        &self.secrets
    }

    /// The text with every secret replaced.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = String::new();
        let mut from = 0;
        while let Some((start, end)) = self.find(text, from) {
            out.push_str(&text[from..start]);
            out.push_str(MARK);
            from = end;
        }
        if from == 0 { Cow::Borrowed(text) } else { Cow::Owned(out + &text[from..]) }
    }

    /// Where the first secret at or after `from` stands.
    fn find(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let rest = text.as_bytes().get(from..)?;
        if memchr(b'\\', rest).is_none() {
            // Without an escape each letter stands for itself. Of two at one place the longer one is taken.
            let found = self.plain.iter().filter_map(|secret| {
                let at = from + secret.find(rest)?;
                Some((at, at + secret.needle().len()))
            });
            return found.min_by_key(|(start, end)| (*start, std::cmp::Reverse(*end)));
        }
        self.candidates(text, from).find_map(|at| {
            self.secrets
                .iter()
                .map(|secret| fit(text, at, secret))
                .find(|fit| fit.is_whole)
                .map(|fit| (at, fit.end))
        })
    }

    /// Where the end of the text may be the beginning of a secret.
    #[must_use]
    pub fn partial_from(&self, text: &str) -> Option<usize> {
        // An escaped character takes six bytes at most at the first level, one more backslash a level above.
        let widest = self.secrets.first().map_or(0, |s| s.len() * 8);
        let mut from = text.len().saturating_sub(widest);
        while !text.is_char_boundary(from) {
            from -= 1;
        }
        self.candidates(text, from).find(|at| self.secrets.iter().any(|s| fit(text, *at, s).is_begun))
    }

    /// Places where a secret could begin: its first letter, or an escape of it.
    fn candidates<'a>(&'a self, text: &'a str, from: usize) -> impl Iterator<Item = usize> + 'a {
        // The byte that a letter begins with is in no other place of another.
        let bytes = text.as_bytes()[from..].iter().enumerate();
        bytes.filter(|(_, byte)| self.starts.contains(**byte)).map(move |(i, _)| from + i)
    }

    fn own(&self, text: &mut String) {
        if let Cow::Owned(hidden) = self.text(text) {
            *text = hidden;
        }
    }

    /// For a text that may have been cut: its end may be the beginning of a secret.
    fn own_cut(&self, text: &mut String) {
        self.own(text);
        if let Some(from) = self.partial_from(text).filter(|from| text.len() - from >= TELLING_PART) {
            text.truncate(from);
            text.push_str(MARK);
        }
    }

    fn usage(&self, usage: &mut Usage) {
        if usage.by_model.keys().any(|model| matches!(self.text(model), Cow::Owned(_))) {
            let models = std::mem::take(&mut usage.by_model);
            usage.by_model = models.into_iter().map(|(m, t)| (self.text(&m).into_owned(), t)).collect();
        }
    }

    fn own_some(&self, text: &mut Option<String>) {
        if let Some(text) = text {
            self.own(text);
        }
    }

    fn raw(&self, raw: &mut Box<RawValue>) {
        if let Cow::Owned(hidden) = self.text(raw.get()) {
            // A hidden key or escape can leave broken JSON behind; then nothing of it is shown.
            *raw = RawValue::from_string(hidden)
                .or_else(|_| serde_json::value::to_raw_value(MARK))
                .unwrap_or_else(|_| RawValue::NULL.to_owned());
        }
    }

    fn raw_some(&self, raw: &mut Option<Box<RawValue>>) {
        if let Some(raw) = raw {
            self.raw(raw);
        }
    }

    /// Hides secrets in every text of an event.
    pub fn event(&self, event: &mut Event) {
        if self.is_empty() {
            return;
        }
        match event {
            Event::Text { text } | Event::Thinking { text } => self.own(text),
            Event::Started(started) => {
                self.own_some(&mut started.model);
                self.own_some(&mut started.session_id);
                self.own_some(&mut started.name);
                self.own_some(&mut started.agent_version);
                self.own(&mut started.cwd);
            }
            Event::ToolUse(tool) => {
                self.own(&mut tool.id);
                self.raw_some(&mut tool.input);
                self.raw_some(&mut tool.raw_input);
                self.own_some(&mut tool.path);
                self.own(&mut tool.native_name);
                self.own(&mut tool.name);
            }
            Event::ToolResult { tool_use_id, content, reason, .. } => {
                self.own(tool_use_id);
                self.own_some(content);
                self.own_some(reason);
            }
            Event::FileChange { path, tool_use_id, .. } => {
                self.own(path);
                self.own_some(tool_use_id);
            }
            Event::Permission { tool_use_id, tool, request, reason, rule, by, .. } => {
                self.own(tool_use_id);
                self.own(tool);
                self.raw_some(request);
                self.own_some(reason);
                self.own_some(rule);
                self.own(by);
            }
            Event::Mode { mode } => self.own(mode),
            Event::Content { block: raw }
            | Event::Plan { entries: raw }
            | Event::Commands { commands: raw }
            | Event::ConfigOption { options: raw }
            | Event::SessionInfo { info: raw } => self.raw(raw),
            Event::Warning { message, .. } => self.own_cut(message),
            Event::Unreadable { sample, length } => {
                // The length of a line that is shown whole is that of what is shown: it must not tell the secret's, and a
                // tape, on which the secret is hidden, must give the same.
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

    /// Hides secrets in every text of an outcome.
    pub fn outcome(&self, outcome: &mut Outcome) {
        if self.is_empty() {
            return;
        }
        self.own(&mut outcome.text);
        self.own(&mut outcome.stderr_tail);
        self.own_some(&mut outcome.model);
        self.own_some(&mut outcome.session_id);
        self.own_some(&mut outcome.name);
        self.own_some(&mut outcome.agent_version);
        self.own_some(&mut outcome.stop_reason);
        self.own(&mut outcome.cwd);
        self.usage(&mut outcome.usage);
        self.raw_some(&mut outcome.output);
        if let Some(error) = &mut outcome.error {
            self.own_cut(&mut error.message);
            self.own(&mut error.stderr_tail);
            self.own_some(&mut error.hint);
        }
        for file in &mut outcome.files {
            self.own(&mut file.path);
            self.own_some(&mut file.tool);
            self.own_some(&mut file.tool_use_id);
        }
        for denial in &mut outcome.denied {
            self.own(&mut denial.reason);
            self.own(&mut denial.tool);
            self.own(&mut denial.native_tool);
            self.own(&mut denial.tool_use_id);
            self.own_some(&mut denial.rule);
        }
        for warning in &mut outcome.warnings {
            self.own_cut(&mut warning.message);
        }
    }
}

/// Fits a secret at a place, each letter as itself or as any escape that JSON knows, at any depth of nesting.
pub(crate) fn fit(text: &str, at: usize, secret: &[char]) -> Fit {
    let mut end = at;
    let stop = |letters, end, is_begun| Fit { letters, end, is_whole: false, is_begun };
    for (letters, &want) in secret.iter().enumerate() {
        let rest = &text[end..];
        let slashes = rest.bytes().take_while(|b| *b == b'\\').count();
        let after = &rest[slashes..];
        let length = match (after.chars().next(), slashes, want) {
            // Only backslashes, or nothing: more may come.
            (None, ..) => return stop(letters, end, true),
            (Some(_), 0, '\\') => None,
            (Some(_), _, '\\') => Some(slashes),
            (Some(c), 0, _) => (c == want).then(|| c.len_utf8()),
            (Some(_), ..) => match escaped(after, want) {
                Some(Ok(length)) => Some(slashes + length),
                Some(Err(())) => return stop(letters, end, true),
                None => None,
            },
        };
        match length {
            Some(length) => end += length,
            None => return stop(letters, end, false),
        }
    }
    Fit { letters: secret.len(), end, is_whole: true, is_begun: false }
}

/// Whether what follows a backslash spells the character: its length, or `Err` when the text ends in the middle.
fn escaped(after: &str, want: char) -> Option<Result<usize, ()>> {
    if let Some(hex) = after.strip_prefix('u') {
        let mut units = [0u16; 2];
        let [unit, ..] = want.encode_utf16(&mut units) else { return None };
        let digits: String = hex.chars().take(4).collect();
        let spelled = format!("{unit:04x}");
        if digits.len() < 4 {
            return spelled.starts_with(&digits.to_ascii_lowercase()).then_some(Err(()));
        }
        return digits.eq_ignore_ascii_case(&spelled).then_some(Ok(5));
    }
    let first = after.chars().next()?;
    let meant = match first {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        c => c,
    };
    (meant == want && (meant != first || !first.is_alphanumeric())).then_some(Ok(first.len_utf8()))
}

/// Holds back the end of a stream of text while it may be the beginning of a secret.
#[derive(Default, Debug)]
pub(crate) struct Held {
    text: String,
}

impl Held {
    /// Takes a piece and gives what may be told now.
    pub(crate) fn push(&mut self, veil: &Veil, piece: String) -> Option<String> {
        if self.text.is_empty() {
            self.text = piece;
        } else {
            self.text.push_str(&piece);
        }
        veil.own(&mut self.text);
        let told = match veil.partial_from(&self.text) {
            Some(from) => {
                let kept = self.text.split_off(from);
                std::mem::replace(&mut self.text, kept)
            }
            None => std::mem::take(&mut self.text),
        };
        (!told.is_empty()).then_some(told)
    }

    /// The stream is over, or something else comes in between: what was held is told.
    pub(crate) fn flush(&mut self) -> Option<String> {
        (!self.text.is_empty()).then(|| std::mem::take(&mut self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "sk-Zx9/é\"tail";

    fn spell(secret: &str, how: &[u8]) -> String {
        let mut out = String::new();
        for (i, c) in secret.chars().enumerate() {
            match how.get(i).copied().unwrap_or(0) % 3 {
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
    fn short_values_are_left_alone() {
        assert_eq!(Veil::new(["short"]).text("a short text"), "a short text");
        assert!(Veil::new(["short"]).is_empty());
    }

    #[test]
    fn nested_json_hides_it_too() {
        let veil = Veil::new([SECRET]);
        let once = serde_json::to_string(SECRET).unwrap();
        let twice = serde_json::to_string(&once).unwrap();
        for text in [SECRET.to_owned(), once, twice] {
            let hidden = veil.text(&text).into_owned();
            assert!(hidden.contains(MARK) && !hidden.contains("Zx9"), "{text} -> {hidden}");
        }
    }

    #[test]
    fn the_length_of_an_unreadable_line_does_not_tell_that_of_a_secret() {
        let mut event = Event::unreadable("key password-two!", 17);
        Veil::new(["password-two"]).event(&mut event);
        let Event::Unreadable { sample, length } = event else { panic!("still a line") };
        assert_eq!((sample.as_str(), length), ("key [redacted]!", 15));
    }

    #[test]
    fn of_two_secrets_the_longer_is_hidden_whole() {
        assert_eq!(Veil::new(["password", "password-two"]).text("x password-two y"), "x [redacted] y");
    }

    #[test]
    fn a_text_without_escapes_is_hidden_like_one_with_them() {
        let veil = Veil::new(["password", "password-two", "wordpass", "größte-Größe"]);
        for text in [
            "",
            "nothing",
            "password",
            "passwordpass and passwordpassword-two",
            "wordpassword",
            "die größte-Größe, größte-Größ",
        ] {
            // With a backslash anywhere, each letter may be spelled in another way.
            let escaped = format!("{text}\\");
            assert_eq!(format!("{}\\", veil.text(text)), veil.text(&escaped), "{text}");
        }
        assert_eq!(veil.text("x wordpassword y"), "x [redacted]word y");
    }

    #[test]
    fn broken_json_is_not_shown() {
        let veil = Veil::new(["nSECRETSECRET"]);
        let mut raw = RawValue::from_string(r#"{"a":"\nSECRETSECRET"}"#.to_owned()).unwrap();
        veil.raw(&mut raw);
        assert!(!raw.get().contains("SECRETSECRET"));
        serde_json::from_str::<serde_json::Value>(raw.get()).unwrap();
    }

    proptest! {
        #[test]
        fn no_spelling_of_json_shows_it(how in proptest::collection::vec(any::<u8>(), 0..16)) {
            let text = format!("before {} after", spell(SECRET, &how));
            prop_assert_eq!(Veil::new([SECRET]).text(&text), "before [redacted] after");
        }

        #[test]
        fn no_split_shows_it(cuts in proptest::collection::vec(0usize..60, 0..12), times in 1usize..3) {
            let veil = Veil::new([SECRET]);
            let text = format!("sk- then s{} and sk-Zx", SECRET.repeat(times));
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| text.is_char_boundary(*c)).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let (mut held, mut told, mut from) = (Held::default(), String::new(), 0);
            for cut in cuts {
                told.extend(held.push(&veil, text[from..cut].to_owned()));
                from = cut;
            }
            told.extend(held.flush());
            prop_assert_eq!(told, format!("sk- then s{} and sk-Zx", MARK.repeat(times)));
        }
    }
}
