//! Replaces what differs between two recordings of the same behavior by stable values: paths, ids, times and ports.

use regex::{Captures, Regex};
use std::{collections::BTreeMap, path::Path};

/// The path that replaces the directory of the test environment.
const STAGE: &str = "/stage";
/// The path that replaces the directory into which agents are installed.
const AGENTS: &str = "/agents";
/// The path that replaces the home of the user who records.
const HOME: &str = "/home/user";
/// The longest prompt that is kept. A longer one would only make tapes larger.
const LONGEST_PROMPT: usize = 10_000;

/// Patterns whose matches are replaced by a constant.
const CONSTANTS: &[(&str, &str)] = &[
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2026-01-01T00:00:00.000Z"),
    (r"\d{4}-\d\d-\d\dT\d\d-\d\d(-\d\d-\d{3}Z)?", "2026-01-01T00-00"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:8080"),
    (r#""recorded_at":\d+"#, r#""recorded_at":1767225600"#),
    (r"Today's date is [^(]*\(", "Today's date is Thursday, January 1, 2026 ("),
    (r"\(node:\d+\)", "(node:1)"),
    (r"P(G?)ID: \d+", "P${1}ID: 1"),
    (r"agentline-([a-z]+)-[A-Za-z0-9]{12}\b", "agentline-$1-private"),
    // In the statistics that the agent prints, which are strings of the tape.
    (r#"(\\"[A-Za-z_]*(?i:duration|latency)[A-Za-z_]*\\":\s*)\d+"#, "${1}100"),
];

/// Returns the text that replaces a number.
type Numbering = fn(usize) -> String;

/// Patterns whose matches are numbered in the order of their first appearance, and the text with that number.
const NUMBERED: &[(&str, Numbering)] = &[
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", |n| {
        format!("{n:08x}-0000-4000-8000-000000000000")
    }),
    (r"\b[0-9a-f]{64}\b", |n| format!("{n:064x}")),
    (r"\b[0-9a-f]{32}\b", |n| format!("{n:032x}")),
    // Calls are named after the millisecond in which they began.
    (r"_1[0-9]{12}_", |n| format!("_{}_", 1_700_000_000_000 + n)),
];

/// Replaces the same text by the same value in everything that one run left.
pub(crate) struct Scrubber {
    literal: Vec<(String, String)>,
    constants: Vec<(Regex, &'static str)>,
    numbered: Vec<(Regex, Numbering, BTreeMap<String, usize>)>,
}

impl Scrubber {
    /// Creates a scrubber for the directory of a test environment, the program of an agent and a prompt.
    pub(crate) fn new(stage: &Path, agent: &Path, prompt: &str) -> Self {
        let mut literal = Vec::new();
        if prompt.len() > LONGEST_PROMPT {
            let short: String = prompt.chars().take(100).collect();
            literal.push((prompt.to_owned(), short));
        }
        let mut path = |path: &Path, name: &str| {
            for path in [path.canonicalize().unwrap_or_default(), path.to_owned()] {
                let text = path.to_string_lossy().into_owned();
                if text.len() > 1 {
                    literal.push((text, name.to_owned()));
                }
            }
        };
        path(stage, STAGE);
        if let Some(agents) = agent.ancestors().find(|folder| folder.ends_with("agents")) {
            path(agents, AGENTS);
        }
        if let Some(home) = std::env::home_dir() {
            path(&home, HOME);
        }
        let regex = |pattern: &str| Regex::new(pattern).expect("a valid pattern");
        Self {
            literal,
            constants: CONSTANTS.iter().map(|(pattern, text)| (regex(pattern), *text)).collect(),
            numbered: NUMBERED
                .iter()
                .map(|(pattern, name)| (regex(pattern), *name, BTreeMap::new()))
                .collect(),
        }
    }

    /// Replaces everything that is not stable.
    pub(crate) fn scrub(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.literal {
            text = text.replace(from.as_str(), to);
        }
        for (regex, to) in &self.constants {
            text = regex.replace_all(&text, *to).into_owned();
        }
        for (regex, name, known) in &mut self.numbered {
            let replaced = regex.replace_all(&text, |found: &Captures<'_>| {
                let next = known.len() + 1;
                name(*known.entry(found[0].to_owned()).or_insert(next))
            });
            text = replaced.into_owned();
        }
        self.short_ids(&text)
    }

    /// Replaces the first part of an id, which file names contain.
    fn short_ids(&self, text: &str) -> String {
        let (_, name, known) = &self.numbered[0];
        known.iter().fold(text.to_owned(), |text, (id, number)| {
            text.replace(&format!("-{}.", &id[..8]), &format!("-{}.", &name(*number)[..8]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unstable_values_are_replaced_and_equal_ones_stay_equal() {
        let mut scrubber = Scrubber::new(Path::new("/tmp/a-1"), Path::new("/c/agents/x/bin/x"), "hi");
        let id = "9429c9ac-45af-4313-b3df-e687cb7d4993";
        let found = scrubber.scrub(&format!(
            "/tmp/a-1/ws {id} session-2026-11-15T10-50-9429c9ac.jsonl 2026-11-15T10:50:31.903Z \
             /c/agents/x write_file_1794739832376_0 http://127.0.0.1:4711/v1 {id}"
        ));
        let stable = "00000001-0000-4000-8000-000000000000";
        assert_eq!(
            found,
            format!(
                "/stage/ws {stable} session-2026-01-01T00-00-00000001.jsonl 2026-01-01T00:00:00.000Z \
                 /agents/x write_file_1700000000001_0 http://127.0.0.1:8080/v1 {stable}"
            )
        );
        assert_eq!(scrubber.scrub(id), stable, "in a later text too");
    }
}
