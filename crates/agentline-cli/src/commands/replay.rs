//! `agentline replay`: plays a recorded run again, or stands in for the agent that was recorded.

mod stand_in;

use crate::{
    args::Output,
    exit,
    render::{Renderer, Telling},
    stop::Stop,
    ui::Ui,
};
use agentline::{Event, PermissionMode, Problem, Tape};
use clap::Args;
use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  agentline run --record run.tape.jsonl \"…\"     record a run
  agentline replay run.tape.jsonl -o json       the same outcome again, without the agent
  agentline replay --as gemini run.tape.jsonl   stand in for Gemini CLI: its lines, its exit code
  agentline replay --as gemini run.tape.jsonl --write-program ./gemini
                                                the same as a program that any tool can start
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// The tape, as `agentline run --record` writes it
    tape: PathBuf,
    /// What standard output holds
    #[arg(short, long, value_name = "FORM", default_value = "text", conflicts_with = "stand_in")]
    output: Output,
    /// The outcome also holds the messages of the run
    #[arg(long, conflicts_with = "stand_in")]
    messages: bool,
    /// Keep the pauses of the recording, instead of playing as fast as possible
    #[arg(long)]
    real_time: bool,
    /// Stand in for this agent's program: print what it printed and exit as it did
    #[arg(long = "as", id = "stand_in", value_name = "AGENT")]
    stand_in: Option<String>,
    /// Write a program that stands in for the agent, instead of doing it
    #[arg(long, value_name = "FILE", requires = "stand_in")]
    write_program: Option<PathBuf>,
    /// Arguments for the agent; they are accepted and change nothing
    #[arg(last = true, requires = "stand_in")]
    args: Vec<String>,
}

pub(crate) fn run(ui: &mut Ui, args: &ReplayArgs) -> Result<u8, Stop> {
    let tape = read(&args.tape)?;
    match (&args.stand_in, &args.write_program) {
        (Some(agent), Some(program)) => stand_in::write_program(ui, &tape, agent, &args.tape, program),
        (Some(agent), None) => stand_in::perform(ui, &tape, agent, args.real_time),
        (None, _) => {
            let pace = if args.real_time { Pace::Recorded } else { Pace::AtOnce };
            play(
                ui,
                &tape,
                Telling {
                    output: args.output,
                    messages: args.messages,
                    thoughts: false,
                    mode: PermissionMode::Default,
                    value_only: false,
                },
                pace,
            )
        }
    }
}

/// How fast a tape is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as possible.
    AtOnce,
    /// With the pauses of the recording.
    Recorded,
    /// With the pauses of the recording, but none longer than this many milliseconds.
    AtMost(u64),
}

impl Pace {
    /// Waits as long as was waited between these moments.
    pub(crate) fn wait(self, from: u64, to: u64) {
        let pause = match self {
            Self::AtOnce => 0,
            Self::Recorded => to.saturating_sub(from),
            Self::AtMost(most) => to.saturating_sub(from).min(most),
        };
        if pause > 0 {
            thread::sleep(Duration::from_millis(pause));
        }
    }
}

/// Plays a tape in one of the forms of a run. Returns the exit code of the run.
pub(crate) fn play(ui: &mut Ui, tape: &Tape, telling: Telling, pace: Pace) -> Result<u8, Stop> {
    let mut renderer = Renderer::new(telling);
    let mut shown: io::Result<()> = Ok(());
    let mut code = None;
    let mut at = 0;
    tape.records(|record| {
        if shown.is_err() {
            return;
        }
        if pace != Pace::AtOnce {
            shown = ui.flush();
            pace.wait(at, record.at_ms);
            at = record.at_ms;
        }
        if let Event::Outcome { outcome } = &record.event {
            code = Some(exit::of(outcome.verdict, tape.cancelled_by()));
        }
        shown = std::mem::replace(&mut shown, Ok(())).and_then(|()| renderer.record(ui, &record));
    })?;
    shown?;
    ui.flush()?;
    code.ok_or_else(|| {
        Problem::new("TAPE", "holds no run").hint("record one with `agentline run --record FILE …`").into()
    })
}

fn read(path: &Path) -> Result<Tape, Stop> {
    let text = fs::read(path).map_err(|error| {
        let hint = "record one with `agentline run --record FILE …`";
        Problem::new("TAPE", format!("`{}` could not be read: {error}", path.display())).hint(hint)
    })?;
    Ok(Tape::read(&String::from_utf8_lossy(&text))?)
}
