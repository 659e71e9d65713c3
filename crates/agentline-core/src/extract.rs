//! Finds the JSON value in an answer: in a fenced block, bare, or surrounded by prose.
//!
//! The search takes linear time, so a hostile answer costs no more than any other of its length.

use serde::de::IgnoredAny;
use serde_json::Value;
use std::ops::Range;

/// The maximum number of candidates per answer.
const MOST_CANDIDATES: usize = 32;
/// The nesting limit of `serde_json`.
const DEEPEST: usize = 127;

/// Returns the JSON value that a text most likely means: the first of [`json_candidates`].
///
/// ```
/// let answer = "Here you are:\n```json\n{\"primes\": [2, 3]}\n```\nAnything else?";
/// assert_eq!(agentline_core::extract_json(answer).unwrap()["primes"][1], 3);
/// assert_eq!(agentline_core::extract_json("none {at all}"), None);
/// ```
#[must_use]
pub fn extract_json(text: &str) -> Option<Value> {
    json_candidates(text).into_iter().next()
}

/// Returns the text of the JSON value that a text most likely means, exactly as written.
#[must_use]
pub fn extract_json_text(text: &str) -> Option<&str> {
    let whole = bare(text);
    if is_json(whole) {
        return Some(whole);
    }
    spans(text).into_iter().map(|span| bare(&text[span])).find(|inner| is_json(inner))
}

/// Returns all JSON values that a text may mean, most likely first.
///
/// The order is: the whole text; fenced blocks marked `json`, last one first; other fenced blocks, last one first;
/// objects and arrays in prose, longest one first.
#[must_use]
pub fn json_candidates(text: &str) -> Vec<Value> {
    if let Some(value) = parsed(text) {
        return vec![value];
    }
    spans(text).into_iter().filter_map(|span| parsed(&text[span])).take(MOST_CANDIDATES).collect()
}

/// Returns the ranges that may contain values, most likely first.
fn spans(text: &str) -> Vec<Range<usize>> {
    let mut fenced = fences(text);
    fenced.reverse();
    fenced.sort_by_key(|fence| !fence.is_json);
    let mut bare = containers(text);
    bare.sort_by_key(|span| std::cmp::Reverse((span.len(), span.start)));
    // A value that fills a block is found twice; skip the duplicate to avoid checking it again.
    let blocks: Vec<Range<usize>> =
        fenced.into_iter().map(|fence| fence.inner).take(MOST_CANDIDATES).collect();
    let is_new = |span: &Range<usize>| !blocks.iter().any(|k| text[k.clone()].trim() == &text[span.clone()]);
    let bare: Vec<Range<usize>> = bare.into_iter().take(MOST_CANDIDATES).filter(is_new).collect();
    blocks.into_iter().chain(bare).collect()
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(bare(text)).ok()
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Strips a byte order mark and whitespace around a value.
fn bare(text: &str) -> &str {
    text.trim_start_matches('\u{feff}').trim()
}

/// A block between two lines of three backticks or tildes, or from such a line to the end.
struct Fence {
    inner: Range<usize>,
    is_json: bool,
}

fn fences(text: &str) -> Vec<Fence> {
    let mut found = Vec::new();
    let mut open: Option<(&str, Fence)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        let line = line.trim();
        match &mut open {
            None => {
                let mark = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
                if let Some(mark) = mark {
                    let word = line.trim_start_matches(['`', '~']).trim().to_ascii_lowercase();
                    // A block that opens and closes on one line is found as bare JSON.
                    if !word.contains(mark) {
                        let is_json = word.starts_with("json");
                        open = Some((mark, Fence { inner: next..text.len(), is_json }));
                    }
                }
            }
            Some((mark, _)) if line.starts_with(*mark) && line.trim_matches(['`', '~']).is_empty() => {
                if let Some((_, mut fence)) = open.take() {
                    fence.inner.end = at;
                    found.push(fence);
                }
            }
            Some(_) => {}
        }
        at = next;
    }
    found.extend(open.map(|(_, fence)| fence));
    found
}

/// Returns the ranges of objects and arrays that are not part of larger ones.
fn containers(text: &str) -> Vec<Range<usize>> {
    let mut scan = Scan { text, at: 0, open: Vec::new(), next: Next::Value, string: None, whole: Vec::new() };
    while let Some(open) = memchr::memchr2(b'{', b'[', &text.as_bytes()[scan.at..]) {
        scan.at += open;
        scan.run();
    }
    scan.whole
}

/// The token expected next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

/// Parses from one bracket as long as the text is JSON. Complete inner values are kept if the outer one is incomplete.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// The open brackets: the position, and whether it opens an object.
    open: Vec<(usize, bool)>,
    next: Next,
    /// The start of the last token, if it was a string.
    string: Option<usize>,
    whole: Vec<Range<usize>>,
}

impl Scan<'_> {
    /// Parses a value and stops where to search for the next bracket: after the parsed text, or inside the last string
    /// if parsing failed right after it, since that may not have been a string.
    fn run(&mut self) {
        self.open.clear();
        (self.next, self.string) = (Next::Value, None);
        while self.token().is_some() {
            if self.open.is_empty() {
                return;
            }
        }
        self.at = self.string.map_or(self.at, |start| start + 1);
    }

    /// Consumes one token if it is valid at this position.
    fn token(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        self.at += bytes[self.at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let byte = *bytes.get(self.at)?;
        let value = matches!(self.next, Next::Value | Next::ValueOrEnd);
        let key = matches!(self.next, Next::Key | Next::KeyOrEnd);
        match byte {
            b'{' | b'[' if value && self.open.len() < DEEPEST => {
                self.open.push((self.at, byte == b'{'));
                self.next = if byte == b'{' { Next::KeyOrEnd } else { Next::ValueOrEnd };
                self.at += 1;
            }
            b'}' if matches!(self.next, Next::KeyOrEnd | Next::CommaOrEnd) => self.close(true)?,
            b']' if matches!(self.next, Next::ValueOrEnd | Next::CommaOrEnd) => self.close(false)?,
            b',' if self.next == Next::CommaOrEnd => {
                let in_object = self.open.last()?.1;
                self.next = if in_object { Next::Key } else { Next::Value };
                self.at += 1;
            }
            b':' if self.next == Next::Colon => {
                self.next = Next::Value;
                self.at += 1;
            }
            b'"' if value || key => {
                self.string = Some(self.at);
                self.at = self.end_of_string()?;
                self.next = if key { Next::Colon } else { Next::CommaOrEnd };
                return Some(());
            }
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' if value => {
                let part = |b: &&u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
                let end = self.at + bytes[self.at..].iter().take_while(part).count();
                serde_json::from_str::<IgnoredAny>(&self.text[self.at..end]).ok()?;
                self.next = Next::CommaOrEnd;
                self.at = end;
            }
            _ => return None,
        }
        self.string = None;
        Some(())
    }

    fn close(&mut self, object: bool) -> Option<()> {
        let (start, _) = self.open.pop_if(|(_, is_object)| *is_object == object)?;
        self.at += 1;
        self.next = Next::CommaOrEnd;
        while self.whole.pop_if(|inner| inner.start > start).is_some() {}
        self.whole.push(start..self.at);
        Some(())
    }

    /// Returns the end of the string that starts here.
    fn end_of_string(&self) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let mut at = self.at + 1;
        loop {
            at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
            if bytes[at] == b'"' {
                let end = at + 1;
                let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'\\';
                if bytes[self.at..end].iter().all(is_plain) {
                    return Some(end);
                }
                return serde_json::from_str::<IgnoredAny>(&self.text[self.at..end]).ok().map(|_| end);
            }
            at += 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::time::{Duration, Instant};

    #[test]
    fn extracted_text_is_verbatim() {
        let texts = ["{\"b\": 1.0,  \"a\": 2}", "so: [1,  2] ok", "```json\n{\"x\":\n1}\n```", "\u{feff} 7 "];
        let found = texts.map(extract_json_text);
        assert_eq!(found, [Some("{\"b\": 1.0,  \"a\": 2}"), Some("[1,  2]"), Some("{\"x\":\n1}"), Some("7")]);
        assert_eq!(extract_json_text("none {at all}"), None);
        for text in texts {
            assert_eq!(
                extract_json_text(text).and_then(|t| serde_json::from_str(t).ok()),
                extract_json(text)
            );
        }
    }

    #[test]
    fn values_are_found_in_every_common_position() {
        let table: &[(&str, Option<Value>)] = &[
            ("", None),
            ("no value here", None),
            ("{\"a\": 1}", Some(json!({"a": 1}))),
            ("  [1, 2]\n", Some(json!([1, 2]))),
            ("\u{feff}{\"a\": 1}", Some(json!({"a": 1}))),
            ("42", Some(json!(42))),
            ("\"text\"", Some(json!("text"))),
            ("null", Some(json!(null))),
            ("```json\n{\"a\": 1}\n```", Some(json!({"a": 1}))),
            ("```\n{\"a\": 1}\n```", Some(json!({"a": 1}))),
            ("~~~json\n[1]\n~~~\n", Some(json!([1]))),
            ("````json\n{\"a\": 1}\n````", Some(json!({"a": 1}))),
            ("   ```JSON5\n {\"a\": 1}\n   ```", Some(json!({"a": 1}))),
            ("```json\r\n{\"a\": 1}\r\n```\r\n", Some(json!({"a": 1}))),
            ("```json\n42\n```", Some(json!(42))),
            ("```json {\"a\": 1} ```", Some(json!({"a": 1}))),
            ("cut short:\n```json\n{\"a\": 1}", Some(json!({"a": 1}))),
            ("Before\n\n```json\n{\"a\": 1}\n```\n\nThat is {what} I found.", Some(json!({"a": 1}))),
            (
                "first\n```json\n{\"draft\": 1}\n```\nno, rather\n```json\n{\"last\": 1}\n```",
                Some(json!({"last": 1})),
            ),
            ("```json\n{\"a\": 1}\n```\nrun it by\n```sh\ntest 1\n```", Some(json!({"a": 1}))),
            ("```\n{\"b\": 1}\n```\n```json\n{\"a\": 1}\n```\n```\n{\"c\": 1}\n```", Some(json!({"a": 1}))),
            ("```json\n{\"a\": \"```\"}\n```", Some(json!({"a": "```"}))),
            ("```json\nthe value:\n{\"a\": 1}\n```", Some(json!({"a": 1}))),
            ("The answer is {\"a\": {\"b\": [1, 2]}}, I think.", Some(json!({"a": {"b": [1, 2]}}))),
            ("As [1] says: {\"a\": 1}", Some(json!({"a": 1}))),
            ("{\"a\": 1} and then {\"b\": 2}", Some(json!({"b": 2}))),
            ("{\"a\": 1, \"b\": 2} is better than {\"b\": 2}", Some(json!({"a": 1, "b": 2}))),
            ("an open { before {\"a\": 1}", Some(json!({"a": 1}))),
            ("5\" wide, { \"or so: {\"a\": 1}", Some(json!({"a": 1}))),
            ("{\"cut\": {\"a\": 1}, \"of", Some(json!({"a": 1}))),
            ("{'a': 1} but {\"a\": 1,} and {\"a\" 1} and {\"a\": 01} and [1 2]", None),
            ("{\"a\": \"\\x\"} {\"a\": \"line\nbreak\"}", None),
            ("{\"a\": \"} \\\" {\"} end", Some(json!({"a": "} \" {"}))),
            ("{\"a\": \"b\\\\\"} end", Some(json!({"a": "b\\"}))),
            ("{]} [}] {\"a\": 1]", None),
            (
                "value: {\"é\": \"日本\", \"n\": -1.5e3, \"t\": true, \"z\": null}",
                Some(json!({"é": "日本", "n": -1500.0, "t": true, "z": null})),
            ),
            ("fn main() { let x = [1, 2]; }", Some(json!([1, 2]))),
            ("{\"a\":tru} {\"a\":1}x", Some(json!({"a": 1}))),
        ];
        for (text, expected) in table {
            assert_eq!(extract_json(text), *expected, "{text}");
        }
    }

    #[test]
    fn every_value_is_a_candidate_once() {
        let text = "see [1]\n```json\n{\"a\": 1}\n```\nor\n```\n{\"b\": 1}\n```\nor {\"c\": [1]} or {}";
        let found = json_candidates(text);
        assert_eq!(found, [json!({"a": 1}), json!({"b": 1}), json!({"c": [1]}), json!([1]), json!({})]);
        assert_eq!(json_candidates(&"[1] ".repeat(1000)).len(), MOST_CANDIDATES);
    }

    #[test]
    fn adversarial_answers_are_searched_in_linear_time() {
        let million = 1_000_000;
        let floods = [
            "{",
            "[",
            "{\"",
            "[\"",
            "[\",",
            "[[],",
            "{\"a\":",
            "[\"\\",
            "[1,",
            "\"{",
            "```\n",
            "{\"{\":\"[",
            "[{},",
            "\\\"[",
        ];
        for flood in floods {
            let text = flood.repeat(million / flood.len()) + " {\"a\": \"the end\"}";
            let started_at = Instant::now();
            let found = json_candidates(&text);
            // Each takes a fraction of a second; one pass per bracket would take hours.
            assert!(started_at.elapsed() < Duration::from_secs(20), "{flood}: {:?}", started_at.elapsed());
            assert!(found.len() <= MOST_CANDIDATES);
        }
        for flood in ["{", "[", "{\"a\":", "[[],", "[1,"] {
            let text = flood.repeat(million / flood.len()) + " {\"a\": \"the end\"} end";
            let found = json_candidates(&text);
            assert!(found.contains(&json!({"a": "the end"})), "{flood}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,8}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn value_between_words_is_found(value in any_json(), before in "[a-z ,.\n]*", after in "[a-z ,.\n]*", pretty: bool) {
            prop_assume!(value.is_object() || value.is_array());
            let json = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = format!("{before}{}{after}", json.unwrap());
            prop_assert_eq!(extract_json(&text), Some(value.clone()));
            let fenced = format!("{before}\n```json\n{value}\n```\n{after}");
            prop_assert_eq!(extract_json(&fenced), Some(value));
        }

        #[test]
        fn extraction_never_panics(text in "[\\[\\]{}\",:\\\\`\n 1ae\u{e9}]{0,200}") {
            for value in json_candidates(&text) {
                prop_assert!(serde_json::to_string(&value).is_ok());
            }
        }
    }
}
