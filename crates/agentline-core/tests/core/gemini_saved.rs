//! Tests sessions that real versions of Gemini CLI saved.

mod fixtures;
mod long;
mod properties;
mod unusual_records;

use crate::saved_text::{load, text_of};
use agentline_core::{SavedSession, SessionFormat};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/gemini/saved")
}

/// One file: its name, format and text.
pub(crate) struct Saved {
    pub(crate) name: String,
    pub(crate) form: SessionFormat,
    pub(crate) text: String,
}

impl Saved {
    pub(crate) fn load(&self) -> SavedSession {
        load("gemini", self.form, &self.text)
    }
}

/// Returns the files of one recording.
pub(crate) fn files(recording: &str) -> Vec<Saved> {
    let names = list(&root().join(recording));
    let file = |name: String| {
        let form = if name.ends_with(".jsonl") { SessionFormat::Lines } else { SessionFormat::Whole };
        let text = std::fs::read_to_string(root().join(recording).join(&name)).expect("the file is readable");
        Saved { name, form, text }
    };
    names.into_iter().filter(|name| name != "projects.json").map(file).collect()
}

fn list(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut names: Vec<String> =
        files.map(|f| f.expect("a file").file_name().into_string().expect("a plain name")).collect();
    names.sort();
    names
}

/// Returns every recording as `version/name`.
pub(crate) fn recordings() -> Vec<String> {
    let mut all = Vec::new();
    for version in list(&root()) {
        all.extend(list(&root().join(&version)).into_iter().map(|name| format!("{version}/{name}")));
    }
    all
}

#[test]
fn recordings_match_their_snapshots() {
    let all = recordings();
    assert!(all.len() >= 17, "{all:?}");
    for recording in all {
        let describe = |file: Saved| format!("# {}\n{}", file.name, text_of(&file.load()));
        let text: Vec<String> = files(&recording).into_iter().map(describe).collect();
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "../captures/gemini/saved_snapshots" }, {
            insta::assert_snapshot!(recording.replace('/', "_"), text.join("\n"));
        });
    }
}
