//! Emits lines that a reader waits for although a secret may start in them: the text before it is emitted, and the rest
//! is held back as a line of its own until the text continues or ends.

use super::{LineRedactor, LineState, PartialMatch, PendingLine};
use std::ops::Range;

impl LineRedactor {
    /// Returns whether lines are held back as a whole.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.pending.iter().any(|line| line.state == LineState::Whole)
    }

    /// Emits all lines that are held back as a whole.
    ///
    /// `streamed` returns the position of the text in a line that continues in later lines. If a secret may start in it,
    /// the text is emitted up to there. The rest follows as another such line before the next one of the same text, unless
    /// that one completes the secret. Other lines are emitted as they are, and only the continuation of a secret is removed.
    pub fn release(&mut self, streamed: impl Fn(&str) -> Option<Range<usize>>, mut each: impl FnMut(&str)) {
        for at in 0..self.pending.len() {
            if self.pending[at].state != LineState::Whole {
                continue;
            }
            let text = streamed(&self.pending[at].text);
            let split = text.and_then(|text| Some((self.possible_secret(at, &text)?, text)));
            let emitted = match split {
                Some((start, text)) => self.split(at, start, text),
                None => self.pending[at].emitted(),
            };
            emitted.iter().for_each(|line| each(line));
        }
        self.forget_emitted();
    }

    /// Emits the rests of texts that do not continue. `is_over` gets the lines.
    pub fn release_rests(&mut self, is_over: impl Fn(&str) -> bool, mut each: impl FnMut(&str)) {
        for line in &mut self.pending {
            if matches!(line.state, LineState::Rest(_)) && is_over(&line.text) {
                line.emitted().iter().for_each(|line| each(line));
            }
        }
        self.forget_emitted();
    }

    /// Returns where the first secret may start that continues after this text of a line.
    fn possible_secret(&self, at: usize, text: &Range<usize>) -> Option<usize> {
        let number = self.first + at;
        let ranges = self.partial_matches.iter().flat_map(|partial| &partial.ranges);
        let ranges: Vec<_> = ranges.filter(|(line, _)| *line == number).map(|(_, range)| range).collect();
        // A line is not divided in two fields.
        if !ranges.iter().all(|range| range.start >= text.start && range.end <= text.end) {
            return None;
        }
        let start = ranges.iter().map(|range| range.start).min()?;
        let edits = self.pending[at].edits.iter().map(|(range, _)| range);
        let cut_by = edits.filter(|range| range.start < start && start < range.end).map(|range| range.start);
        Some(cut_by.min().unwrap_or(start))
    }

    /// Splits a streamed text. The line keeps the rest. Returns the line with the first part, unless that is empty.
    fn split(&mut self, at: usize, start: usize, text: Range<usize>) -> Option<String> {
        let (number, moved) = (self.first + at, start - text.start);
        let line = &mut self.pending[at];
        let shifted = |range: &Range<usize>, by: usize| range.start - by..range.end - by;
        let mut first = PendingLine {
            text: [&line.text[..start], &line.text[text.end..]].concat(),
            edits: Vec::new(),
            state: LineState::Rest(text.start),
        };
        let mut edits = Vec::new();
        for (range, with) in std::mem::take(&mut line.edits) {
            if range.end <= start {
                first.edits.push((range.clone(), with));
            }
            if range.start >= text.end {
                first.edits.push((shifted(&range, text.end - start), with));
            }
            if range.end <= text.start {
                edits.push((range, with));
            } else if range.start >= start {
                edits.push((shifted(&range, moved), with));
            }
        }
        line.text.replace_range(text.start..start, "");
        (line.edits, line.state) = (edits, LineState::Rest(text.start));
        let ranges = self.partial_matches.iter_mut().flat_map(|partial| &mut partial.ranges);
        for (_, range) in ranges.filter(|(line, _)| *line == number) {
            *range = shifted(range, moved);
        }
        first.emitted()
    }

    /// Ends the search at the rests of a text that this line continues: its own partial matches are new ones.
    pub(super) fn end_continued_rests(&mut self, line: &str, starts: &[usize]) {
        let is_continued = |rest: &PendingLine| match rest.state {
            LineState::Rest(from) => starts.contains(&from) && line.get(..from) == rest.text.get(..from),
            _ => false,
        };
        let numbers = (self.first..).zip(&self.pending).filter(|(_, rest)| is_continued(rest));
        let ended: Vec<usize> = numbers.map(|(number, _)| number).collect();
        let is_ended = |partial: &PartialMatch| partial.ranges.iter().any(|(line, _)| ended.contains(line));
        if !ended.is_empty() {
            self.partial_matches.retain(|partial| !is_ended(partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Redactor, secret::MARK};

    const SECRET: &str = "hush-hush-0123456789";

    fn line(stream: u8, text: &str) -> String {
        serde_json::json!({"n": stream, "text": text, "z": "end"}).to_string()
    }

    fn streamed(line: &str) -> Option<Range<usize>> {
        let from = line.find("\"text\":\"")? + 8;
        Some(from..line.find("\",\"z\"")?)
    }

    /// Redacts lines, with a pause after each. Returns the text of each stream, and the number of lines.
    fn redacted(lines: &[(u8, &str)]) -> (Vec<String>, usize) {
        let mut redactor = LineRedactor::new(Redactor::new([SECRET]));
        let mut emitted = Vec::new();
        for (stream, text) in lines {
            redactor.push(&line(*stream, text), |line| emitted.push(line.to_owned()));
            redactor.release(streamed, |line| emitted.push(line.to_owned()));
            assert!(!redactor.is_holding());
        }
        redactor.release_rests(|_| true, |line| emitted.push(line.to_owned()));
        let mut texts = vec![String::new(); 3];
        for line in &emitted {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            texts[value["n"].as_u64().unwrap() as usize].push_str(value["text"].as_str().unwrap());
        }
        (texts, emitted.len())
    }

    #[test]
    fn secret_with_pauses_is_redacted_at_any_cut() {
        let text = format!("it is {SECRET} ok");
        for first in 0..text.len() {
            for second in first..text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                let (texts, _) = redacted(&pieces.map(|piece| (0, piece)));
                let begins = texts[0].strip_suffix(&format!("{MARK} ok")).unwrap_or_default();
                let begins = begins.strip_prefix("it is ").unwrap_or("none");
                assert!(begins.len() < 4 && SECRET.starts_with(begins), "{first} {second}: {}", texts[0]);
            }
        }
    }

    #[test]
    fn text_that_only_begins_like_a_secret_stays_in_order() {
        let (texts, lines) = redacted(&[(0, "a hush-h"), (1, "other"), (0, "onest \"b\""), (0, "hush-")]);
        assert_eq!(texts, ["a hush-honest \"b\"hush-", "other", ""]);
        // The last text is held back as a whole.
        assert_eq!(lines, 5);
        let (texts, _) = redacted(&[(0, "hush-hush"), (0, "-0123"), (1, "x"), (0, "no"), (0, "on")]);
        assert_eq!(texts, ["hush-hush-0123noon", "x", ""]);
    }

    #[test]
    fn line_that_is_no_part_of_a_text_is_emitted_as_it_is() {
        let mut redactor = LineRedactor::new(Redactor::new([SECRET]));
        let mut emitted = Vec::new();
        let lines = [line(0, "it is hush-hush-01"), line(0, "23456789 ok")];
        for line in &lines {
            redactor.push(line, |line| emitted.push(line.to_owned()));
            redactor.release(|_| None, |line| emitted.push(line.to_owned()));
        }
        assert_eq!(emitted, [lines[0].clone(), line(0, &format!("{MARK} ok"))]);
    }
}
