//! Checks that moving the content to a store after every record does not change a session.

use super::recordings;
use agentline_core::{
    BlockOrder, ContentStore, RawJson, Redactor, SavedSession, SessionFormat, agents, unified_message,
};
use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

#[derive(Default)]
struct Memory(Mutex<Vec<u8>>);

impl ContentStore for Memory {
    fn write(&self, bytes: &[u8]) -> Option<Range<u64>> {
        let mut all = self.0.lock().ok()?;
        let start = all.len() as u64;
        all.extend_from_slice(bytes);
        Some(start..all.len() as u64)
    }

    fn read(&self, location: Range<u64>) -> Option<Vec<u8>> {
        let range = usize::try_from(location.start).ok()?..usize::try_from(location.end).ok()?;
        self.0.lock().ok()?.get(range).map(<[u8]>::to_vec)
    }
}

fn jsonl_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            jsonl_below(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "jsonl") {
            files.push(path);
        }
    }
}

/// Returns every recorded session in line format: its agent and its text.
fn recordings() -> Vec<(&'static str, String)> {
    let captures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let mut all = Vec::new();
    for agent in ["claude", "codex", "gemini"] {
        let mut files = Vec::new();
        jsonl_below(&captures.join(agent).join("saved"), &mut files);
        assert!(!files.is_empty(), "{agent}");
        all.extend(files.into_iter().map(|path| (agent, fs::read_to_string(path).expect("a text"))));
    }
    all
}

fn read(agent: &str, text: &str, store: Option<&Arc<dyn ContentStore>>) -> SavedSession {
    let agent = agents::find(agent).expect("the agent is listed");
    let mut fold = agent.sessions().reader(SessionFormat::Lines).expect("the file has lines");
    for line in text.lines() {
        fold.take(RawJson::new(line));
        store.into_iter().for_each(|store| fold.offload(store));
    }
    fold.finish()
}

fn rendered(mut session: SavedSession) -> String {
    let mut all = String::new();
    for entry in session.loaded_entries() {
        let message = unified_message(&session.info, &entry, BlockOrder::Turn);
        all += &serde_json::to_string(&message).expect("JSON");
        all.push('\n');
    }
    session.load();
    all + &recordings::format_session(&session)
}

#[test]
fn offloaded_session_is_identical() {
    for (agent, text) in recordings() {
        let store: Arc<dyn ContentStore> = Arc::new(Memory::default());
        let offloaded = read(agent, &text, Some(&store));
        assert!(offloaded.entries.iter().all(|entry| entry.parts.is_empty()), "{agent}: {text}");
        assert_eq!(rendered(offloaded), rendered(read(agent, &text, None)), "{agent}");
    }
}

#[test]
fn offloaded_session_is_redacted_identically() {
    // Words of every recording, whole and split between two answers, serve as secrets.
    for (agent, text) in recordings() {
        let plain = read(agent, &text, None);
        let texts: Vec<String> = plain.entries.iter().map(|entry| entry.text()).collect();
        let words = texts.iter().flat_map(|text| text.split_whitespace()).filter(|word| word.len() > 8);
        let mut secrets: Vec<String> = words.take(3).map(str::to_owned).collect();
        let answers: Vec<&str> = plain
            .entries
            .iter()
            .filter(|entry| entry.role == agentline_core::Role::Assistant)
            .flat_map(|entry| &entry.parts)
            .filter_map(|part| match part {
                agentline_core::EntryPart::Text { text } if text.len() > 5 && text.is_ascii() => {
                    Some(text.as_str())
                }
                _ => None,
            })
            .collect();
        secrets.extend(
            answers.windows(2).map(|pair| format!("{}{}", &pair[0][pair[0].len() - 5..], &pair[1][..5])),
        );
        let redactor = Redactor::new(secrets);
        let redacted = |mut session: SavedSession| {
            redactor.session(&mut session);
            rendered(session)
        };
        let store: Arc<dyn ContentStore> = Arc::new(Memory::default());
        let offloaded = read(agent, &text, Some(&store));
        assert_eq!(redacted(offloaded), redacted(plain), "{agent}");
    }
}
