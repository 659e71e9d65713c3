//! Records a run and replays it exactly: `cargo run -p agentline --example replay_tape`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "examples print their results")]

mod stage;

use agentline::{
    PermissionMode, RunRequest, blocking,
    tape::{ConnectionOutput, Tape},
};
use agentline_mock::gemini::demo_script;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    agentline::init();
    let stage = stage::set(demo_script())?;
    let file = stage.workspace.with_file_name("run.tape.jsonl");
    let request = RunRequest::new("Write a program")
        .model("gemini-2.5-pro")
        .permission_mode(PermissionMode::Bypass)
        .record(&file);
    let first = blocking::run(&stage.agentline, request, |_event, _stop| {})?;
    let tape = Tape::read(&std::fs::read_to_string(&file)?)?;
    let mut again = None;
    tape.play(|output| {
        if let ConnectionOutput::Done(_, outcome) = output {
            again = Some(outcome);
        }
    })?;
    let again = again.ok_or("the tape has no end")?;
    println!(
        "recorded: {} in {} ms, replayed: {}",
        first.verdict.name(),
        first.duration_ms,
        again.verdict.name()
    );
    assert_eq!(serde_json::to_string(&first)?, serde_json::to_string(&again)?);
    Ok(())
}
