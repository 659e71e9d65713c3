//! A compiled query, in two forms: filters for the raw bytes of a file, where JSON may have escaped the text, and
//! expressions for the text itself. The filters have no false negatives.

use super::{Case, Problem, Query};
use regex::{Regex, RegexBuilder, bytes};
use regex_syntax::hir::{Hir, HirKind};
use std::{
    fmt::Write,
    io::{self, Read},
};

/// A compiled query.
#[derive(Debug)]
pub(super) struct Needle {
    /// One expression per word. An entry must match all of them.
    pub(super) words: Vec<Regex>,
    /// Expressions that the bytes of a file must all match, rarest first.
    filters: Vec<bytes::Regex>,
    /// The maximum number of bytes that a filter matches.
    longest: usize,
}

/// The maximum number of bytes of a character: two `\uXXXX` escapes of a surrogate pair.
const LONGEST_LETTER: usize = 12;
/// The number of bytes scanned at once. A chunk fits in the processor's cache, a complete file may not.
const CHUNK: usize = 256 * 1024;

impl Needle {
    pub(super) fn new(query: &Query) -> Result<Self, Problem> {
        let words: Vec<&String> = query.words.iter().filter(|word| !word.trim().is_empty()).collect();
        if words.is_empty() {
            let hint = "pass a word, such as `agentline sessions search refactor`";
            return Err(Problem::new("words", "no search words").hint(hint));
        }
        let insensitive = match query.case {
            Case::Sensitive => false,
            Case::Insensitive => true,
            Case::Smart => !words.iter().any(|word| has_capital(word, query.regex)),
        };
        let mut runs: Vec<String> = Vec::new();
        let mut compiled = Vec::new();
        for word in words {
            let (pattern, needed) = if query.regex {
                (word.clone(), needed_by(word)?)
            } else {
                let phrase: Vec<String> = word.split_whitespace().map(regex::escape).collect();
                (phrase.join(r"\s+"), vec![word.clone()])
            };
            let regex = RegexBuilder::new(&pattern).case_insensitive(insensitive).multi_line(true).build();
            compiled.push(regex.map_err(|error| wrong(word, &error.to_string()))?);
            runs.extend(needed.iter().flat_map(|text| runs_of(text)).map(str::to_owned));
        }
        // The longest run is assumed to be the rarest.
        runs.sort_by_key(|run| std::cmp::Reverse(run.chars().count()));
        runs.dedup();
        let longest = runs.first().map_or(0, |run| run.chars().count() * LONGEST_LETTER);
        let filters = runs.iter().filter_map(|run| as_written(run, insensitive)).collect();
        Ok(Self { words: compiled, filters, longest })
    }

    /// Returns whether a row with these bytes may contain part of a match. Other rows may contain the rest.
    pub(super) fn may_be_partly_in(&self, bytes: &[u8]) -> bool {
        self.filters.first().is_none_or(|filter| filter.is_match(bytes))
    }

    /// Returns whether a file may contain a match. `buffer` is scratch space that can be reused.
    pub(super) fn may_be_in(&self, mut file: impl Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let mut missing: Vec<&bytes::Regex> = self.filters.iter().collect();
        buffer.resize(CHUNK.max(self.longest * 2), 0);
        let mut filled = 0;
        while !missing.is_empty() {
            let read = match file.read(&mut buffer[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if read == 0 {
                return Ok(false);
            }
            filled += read;
            missing.retain(|filter| !filter.is_match(&buffer[..filled]));
            // The end of this chunk is scanned again with the next one, so that no match is split.
            let overlap = filled.min(self.longest);
            buffer.copy_within(filled - overlap..filled, 0);
            filled = overlap;
        }
        Ok(true)
    }
}

fn wrong(word: &str, error: &str) -> Problem {
    let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Problem::new("words", format!("`{word}` is not a valid regular expression: {reason}"))
        .hint("omit `--regex` to search for the literal text")
}

/// Returns whether a word contains an uppercase letter, other than in a class such as `\S`.
fn has_capital(word: &str, regex: bool) -> bool {
    let mut escaped = false;
    word.chars().any(|letter| {
        let is_name = regex && escaped;
        escaped = letter == '\\' && !escaped;
        letter.is_uppercase() && !is_name
    })
}

/// Returns the runs of letters and digits in a text. Everything between them may be escaped, or be added by the agent's
/// reader, such as the colon between the subject and the text of a thought.
fn runs_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|run| !run.is_empty())
}

/// Returns texts that every match of an expression contains.
fn needed_by(pattern: &str) -> Result<Vec<String>, Problem> {
    let hir = regex_syntax::parse(pattern).map_err(|error| wrong(pattern, &error.to_string()))?;
    let mut texts = Vec::new();
    collect(&hir, &mut texts);
    Ok(texts)
}

fn collect(hir: &Hir, texts: &mut Vec<String>) {
    match hir.kind() {
        HirKind::Literal(literal) => texts.extend(String::from_utf8(literal.0.to_vec()).ok()),
        HirKind::Capture(capture) => collect(&capture.sub, texts),
        HirKind::Concat(all) => all.iter().for_each(|hir| collect(hir, texts)),
        HirKind::Repetition(repeated) if repeated.min > 0 => collect(&repeated.sub, texts),
        _ => {}
    }
}

/// Returns an expression for the bytes of a run in JSON, where non-ASCII letters may be escaped. Returns `None` if the
/// expression cannot be compiled; the run is then not used as a filter.
fn as_written(run: &str, insensitive: bool) -> Option<bytes::Regex> {
    let mut pattern = String::new();
    for letter in run.chars() {
        if letter.is_ascii() {
            pattern.push(letter);
            continue;
        }
        write!(pattern, "(?:{letter}").ok()?;
        let mut forms = vec![letter];
        if insensitive {
            forms.extend(letter.to_lowercase().chain(letter.to_uppercase()));
        }
        for form in forms {
            pattern.push('|');
            for unit in form.encode_utf16(&mut [0; 2]) {
                write!(pattern, r"\\u(?i:{unit:04x})").ok()?;
            }
        }
        pattern.push(')');
    }
    bytes::RegexBuilder::new(&pattern).case_insensitive(insensitive).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Needle {
        fn may_be_in_text(&self, text: &str) -> bool {
            self.may_be_in(text.as_bytes(), &mut Vec::new()).unwrap()
        }
    }

    fn needle(words: &[&str], case: Case, regex: bool) -> Needle {
        Needle::new(&Query::new(words.iter().copied()).case(case).regex(regex)).unwrap()
    }

    #[test]
    fn every_encoding_of_a_text_passes_the_filter() {
        let texts = [
            "say \"hi there\"",
            "a\\q",
            "größe",
            "日本語",
            "tab\there",
            "one\ntwo",
            "emoji 😀x",
            "C:\\new\\u0041",
        ];
        for text in texts {
            let raw = serde_json::to_string(text).unwrap();
            let nested = serde_json::to_string(&raw).unwrap();
            let by_number: String = raw
                .chars()
                .map(|c| match c {
                    c if c.is_ascii() => c.to_string(),
                    c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect(),
                })
                .collect();
            for case in [Case::Sensitive, Case::Insensitive, Case::Smart] {
                let needle = needle(&[text], case, false);
                for written in [&raw, &nested, &by_number, &by_number.replace("\\uD", "\\ud")] {
                    assert!(needle.may_be_in_text(written), "{text:?} as {written}");
                }
                assert!(needle.words.iter().all(|word| word.is_match(text)), "{text:?}");
                assert!(!needle.may_be_in_text("{\"other\":\"wor*s\"}"), "{text:?}");
            }
        }
    }

    #[test]
    fn case_sensitivity_is_respected() {
        let found = |words: &[&str], case, text: &str| {
            let needle = needle(words, case, false);
            needle.may_be_in_text(text) && needle.words.iter().all(|word| word.is_match(text))
        };
        assert!(found(&["größe"], Case::Smart, "GRÖSSE GRÖßE") && !found(&["Größe"], Case::Smart, "größe"));
        assert!(
            found(&["Error"], Case::Insensitive, "eRROR") && !found(&["error"], Case::Sensitive, "Error")
        );
        assert!(found(&["two words"], Case::Smart, "Two\n  Words"), "a phrase can span a line end");
        assert!(found(&["b", "a"], Case::Smart, "a b") && !found(&["b", "c"], Case::Smart, "a b"));
    }

    #[test]
    fn regex_is_prefiltered_by_its_required_literals() {
        let holds =
            |pattern: &str, text: &str| needle(&[pattern], Case::Sensitive, true).may_be_in_text(text);
        assert!(holds(r"fn (\w+)_test\(", "xx fn some_test() yy"));
        assert!(!holds(r"fn (\w+)_test\(", "no match here"));
        assert!(holds("a+(alpha|beta)", "xaxx"), "optional parts are not used as a filter");
        assert!(holds(r"\d+", "no digits") && holds("(?i)ABC", "abc"));
        let wrong = Needle::new(&Query::new(["a(b"]).regex(true)).unwrap_err();
        assert!(wrong.message.contains("`a(b`") && wrong.hint.is_some(), "{wrong}");
        assert!(Needle::new(&Query::new([" "])).unwrap_err().message.contains("no search words"));
    }

    #[test]
    fn word_is_found_across_chunk_boundaries() {
        /// A reader that returns its content in pieces of chosen sizes.
        struct Pieces<'a>(&'a [u8], usize);
        impl Read for Pieces<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let size = self.1.min(self.0.len()).min(into.len());
                into[..size].copy_from_slice(&self.0[..size]);
                self.0 = &self.0[size..];
                Ok(size)
            }
        }
        let needle = needle(&["größe", "other"], Case::Smart, false);
        let text = format!("{}gr\\u00f6\\u00DFe{}other", "x".repeat(40), "y".repeat(40));
        for size in 1..60 {
            let mut buffer = Vec::new();
            assert!(needle.may_be_in(Pieces(text.as_bytes(), size), &mut buffer).unwrap(), "{size}");
            assert!(!needle.may_be_in(Pieces(&text.as_bytes()[..60], size), &mut buffer).unwrap(), "{size}");
        }
        let long = format!("{}größe{}other", "x".repeat(CHUNK - 3), "y".repeat(2 * CHUNK));
        assert!(needle.may_be_in_text(&long));
    }

    #[test]
    fn character_classes_do_not_count_as_uppercase() {
        assert!(needle(&[r"\Sfoo"], Case::Smart, true).words[0].is_match("xFOO"));
        assert!(!needle(&[r"Foo"], Case::Smart, true).words[0].is_match("foo"));
    }
}
