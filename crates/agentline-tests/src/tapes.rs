//! Tapes of real agents: the scenarios that are recorded, where their tapes are stored, and their replay.
//!
//! A real run shows a behavior once. Its variations are recorded from the real agent with
//! `cargo run -p agentline-tests --bin record-tapes`, and the tests replay the tapes.

mod compare;
mod recorder;
mod scenarios;
mod scrub;

use crate::{run_record::RunRecord, stage::TestStage};
use agentline::{Event, Surface};
use agentline_core::Tape;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

pub use compare::unified_difference;
pub use recorder::{Recording, record};
pub use scenarios::{TapeScenario, parallel_calls, scenarios};

/// Facts that a tape does not contain: about the model and the disk after the recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFacts {
    /// The number of requests to the main model.
    pub model_requests: usize,
    /// The files of the workspace and their content. Other files than texts are empty.
    pub files: BTreeMap<String, String>,
}

impl RecordedFacts {
    /// Returns the facts about a run in an environment.
    #[must_use]
    pub fn of(stage: &TestStage) -> Self {
        Self { model_requests: stage.model.requests_to_main().len(), files: recorder::files_of(stage) }
    }
}

/// A replayed run, with the facts of its recording.
#[derive(Debug)]
pub struct TapedRun {
    /// The events and the outcome.
    pub run: RunRecord,
    /// The facts of the recording.
    pub facts: RecordedFacts,
}

/// The two files of a scenario: the tape, and the facts with the events that its replay must give.
#[derive(Clone, Debug)]
pub struct TapeFiles {
    /// The tape.
    pub tape: PathBuf,
    /// The facts on the first line, then one event per line, with the outcome last.
    pub expected: PathBuf,
}

impl TapeFiles {
    /// Returns the files of a tape by its name, such as `loop.json`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let file = |ending: &str| folder().join(format!("{name}.{ending}.jsonl"));
        Self { tape: file("tape"), expected: file("expected") }
    }

    /// Reads the facts of the recording.
    ///
    /// # Panics
    /// Panics if the file does not exist or has no facts.
    #[must_use]
    pub fn facts(&self) -> RecordedFacts {
        let text = read(&self.expected);
        let first = text.lines().next().unwrap_or_default();
        serde_json::from_str(first)
            .unwrap_or_else(|error| panic!("{}: no facts: {error}", self.expected.display()))
    }
}

/// Returns the directory of all tapes.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tapes")
}

/// Returns the names of all stored tapes, sorted.
///
/// # Panics
/// Panics if the directory cannot be read.
#[must_use]
pub fn stored() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("the folder of the tapes");
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".tape.jsonl").map(ToOwned::to_owned)).collect();
    names.sort();
    names
}

/// Replays a stored tape by its name.
///
/// # Panics
/// Panics if the tape does not exist or contains no run.
#[must_use]
pub fn replay(name: &str) -> TapedRun {
    let files = TapeFiles::of(name);
    TapedRun { run: replay_text(&read(&files.tape)), facts: files.facts() }
}

/// Replays the tape of a scenario that was recorded on this surface.
///
/// # Panics
/// Panics if the tape does not exist or contains no run.
#[must_use]
pub fn replay_on(scenario: &str, surface: Surface) -> TapedRun {
    replay(&format!("{scenario}.{surface}"))
}

/// Replays the text of a tape.
pub(crate) fn replay_text(text: &str) -> RunRecord {
    let tape = Tape::read(text).unwrap_or_else(|problem| panic!("{problem}"));
    let (mut records, mut last) = (Vec::new(), None);
    let played = tape.records(|record| match record.event {
        Event::Outcome { outcome } => last = Some(*outcome),
        _ => records.push(record),
    });
    played.unwrap_or_else(|problem| panic!("{problem}"));
    RunRecord { records, outcome: last.expect("the tape contains a run") }
}

/// Formats what the caller of a run sees, one event per line.
#[must_use]
pub fn event_lines(run: &RunRecord) -> String {
    let json = |value: serde_json::Result<String>| value.expect("an event is JSON") + "\n";
    let events = run.records.iter().map(|record| json(serde_json::to_string(record)));
    events.chain([json(serde_json::to_string(&run.outcome))]).collect()
}

fn read(path: &Path) -> String {
    let text = fs::read_to_string(path);
    let text = text.unwrap_or_else(|error| {
        panic!("{}: {error}\nrecord it: cargo run -p agentline-tests --bin record-tapes", path.display())
    });
    text.replace("\r\n", "\n")
}

/// Stores the events that the replay of a stored tape gives now.
///
/// # Errors
/// Returns the error of the file that could not be written.
pub fn update_expected(name: &str) -> io::Result<()> {
    recorder::store_expected(name, &TapeFiles::of(name).facts())
}
