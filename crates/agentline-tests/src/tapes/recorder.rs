//! Records a scenario on the real agent.

use super::{RecordedFacts, TapeFiles, TapeScenario, compare, event_lines, replay_text, scrub::Scrubber};
use crate::{TestStage, real_gemini};
use agentline::{Event, Surface, blocking};
use std::{collections::BTreeMap, fs, io, path::Path};

/// A new recording of a scenario, with stable values.
#[derive(Debug)]
pub struct Recording {
    name: String,
    tape: String,
    facts: RecordedFacts,
}

/// Runs a scenario on the real agent and records it.
///
/// # Panics
/// Panics if real agents are disabled, the request is refused, or the replay differs from the run.
#[must_use]
pub fn record(scenario: &TapeScenario, surface: Surface) -> Recording {
    let stage = scenario.stage();
    let path = stage.outside().join("run.tape.jsonl");
    let request = scenario.request(&stage).surface(surface).record(&path);
    let prompt = request.prompt.clone();
    let mut live = Vec::new();
    let outcome = blocking::run(&stage.agentline().prices(scenario.price_table()), request, |record, _| {
        if !matches!(record.event, Event::Outcome { .. }) {
            live.push(record.clone());
        }
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
    #[cfg(target_os = "linux")]
    assert_eq!(crate::survivors(&outcome.run_id), [0_u32; 0], "{}: processes remain", scenario.name);

    let program = real_gemini().expect("real agents are enabled").path;
    let mut scrubber = Scrubber::new(&stage.outside(), &program, &prompt);
    let tape = scrubber.scrub(&fs::read_to_string(&path).expect("the tape was written"));
    let live = scrubber.scrub(&event_lines(&crate::RunRecord { records: live, outcome }));
    // The replay of the tape with stable values gives the events of the run with stable values.
    let replayed = event_lines(&replay_text(&tape));
    let name = scenario.tape_name(surface);
    if let Some(difference) = compare::unified_difference(&name, &live, &replayed) {
        panic!("the replay differs from the run:\n{difference}");
    }
    let mut facts = RecordedFacts::of(&stage);
    facts.files.values_mut().for_each(|text| *text = scrubber.scrub(text));
    Recording { name, tape, facts }
}

impl Recording {
    /// Returns how this recording differs from the stored one, or `None` if it does not.
    #[must_use]
    pub fn difference(&self) -> Option<String> {
        let files = TapeFiles::of(&self.name);
        let stored = fs::read_to_string(&files.tape).unwrap_or_default();
        let facts = |facts: &RecordedFacts| serde_json::to_string(facts).expect("facts are JSON") + "\n";
        let old = if files.expected.exists() { facts(&files.facts()) } else { String::new() };
        let old = compare::by_channel(&stored) + &old;
        let new = compare::by_channel(&self.tape) + &facts(&self.facts);
        compare::unified_difference(&self.name, &old, &new)
    }

    /// Stores this recording and the events that its replay gives.
    ///
    /// # Errors
    /// Returns the error of the file that could not be written.
    pub fn store(&self) -> io::Result<()> {
        let files = TapeFiles::of(&self.name);
        fs::create_dir_all(super::folder())?;
        fs::write(&files.tape, &self.tape)?;
        store_expected(&self.name, &self.facts)
    }
}

/// Stores the events that the replay of a stored tape gives now.
pub(crate) fn store_expected(name: &str, facts: &RecordedFacts) -> io::Result<()> {
    let files = TapeFiles::of(name);
    let facts = serde_json::to_string(facts)?;
    let events = event_lines(&replay_text(&fs::read_to_string(&files.tape)?));
    fs::write(&files.expected, format!("{facts}\n{events}"))
}

/// Returns the files of the workspace and their content.
pub(super) fn files_of(stage: &TestStage) -> BTreeMap<String, String> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).expect("a file of the workspace");
                let text = fs::read_to_string(&path).unwrap_or_default();
                found.insert(name.to_string_lossy().into_owned(), text);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&stage.workspace(), &stage.workspace(), &mut found);
    found
}
