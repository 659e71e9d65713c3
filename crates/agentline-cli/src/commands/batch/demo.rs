//! The demo suite: the real agent with two prompts against a scripted model, without an account.

use crate::{
    commands::demo::{self, DemoStage},
    error::CommandError,
    ui::Ui,
};
use agentline::Agentline;
use agentline_batch::{Suite, SuiteInput, load};
use agentline_mock::demo::Demo;
use serde_json::Map;
use std::path::PathBuf;

const SUITE: &str = include_str!("demo.suite.yaml");

/// The answers of the scripted model. It answers correctly if told to be careful, and is otherwise often wrong.
const ANSWERS: &[(&str, &str)] = &[
    ("step by step: 17 + 25", "42"),
    ("step by step: 9 * 13", "117"),
    ("step by step: 144 / 12", "12"),
    ("step by step: 1000 - 387", "613"),
    ("step by step: 2 ** 10", "1024"),
    ("step by step: 15 % 4", "3"),
    ("step by step: 81 - 27", "54"),
    ("step by step: 7 * 8", "56"),
    ("step by step: 365 - 52", "313"),
    ("step by step: 99 + 102", "I would have to guess: 200"),
    ("17 + 25", "42"),
    ("9 * 13", "107"),
    ("144 / 12", "14"),
    ("1000 - 387", "623"),
    ("2 ** 10", "1024"),
    ("15 % 4", "4"),
    ("81 - 27", "64"),
    ("7 * 8", "54"),
    ("365 - 52", "303"),
    ("99 + 102", "191"),
];

/// The demo: its suite, and the environment in which it runs.
pub(super) struct SuiteDemo {
    pub(super) suite: Suite,
    pub(super) agentline: Agentline,
    /// Serves the model until it is dropped.
    _stage: DemoStage,
}

/// Prepares the demo: finds or installs the agent, and starts the model.
pub(super) fn prepare(ui: &mut Ui) -> Result<SuiteDemo, CommandError> {
    let input = SuiteInput::Text { name: "demo".into(), text: SUITE.into(), base: PathBuf::new() };
    let suite = load(&input, &Map::new())?;
    let (agentline, stage) = demo::prepare(ui, |home| Demo::with_answers(home, ANSWERS))?;
    Ok(SuiteDemo { suite, agentline, _stage: stage })
}
