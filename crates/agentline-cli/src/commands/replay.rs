//! `agentline replay`: replays a recorded run, or stands in for the recorded agent.

mod stand_in;

use crate::{
    error::CommandError,
    exit,
    output::OutputFormat,
    render::{RenderOptions, Renderer},
    ui::Ui,
};
use agentline::{Event, Problem, Record, Signal};
use agentline_core::{SavedSession, Tape, TapePlayer, TapeSession};
use clap::Args;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  agentline run --record run.tape.jsonl \"…\"     record a run
  agentline replay run.tape.jsonl -o json       print the same outcome without the agent
  agentline replay --as gemini run.tape.jsonl   act as Gemini CLI: same output, same exit code
  agentline replay --as gemini run.tape.jsonl --write-program ./gemini
                                                write a program that does the same
";

/// How every tape begins.
const TAPE_START: &str = "{\"schema\":\"agentline.tape/";
/// The maximum length of a line. Recorded lines of agents are shorter.
const LONGEST_LINE: u64 = 512 << 20;
/// The maximum time to wait for the first bytes of a pipe.
const FIRST_BYTES: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// Tape written by `agentline run --record`
    tape: PathBuf,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text", conflicts_with = "stand_in")]
    output: OutputFormat,
    /// Include the messages of the run in the outcome
    #[arg(long, conflicts_with = "stand_in")]
    messages: bool,
    /// Replay with the recorded pauses instead of as fast as possible
    #[arg(long)]
    real_time: bool,
    /// Act as this agent's program: print its recorded output and exit with its code
    #[arg(long = "as", id = "stand_in", value_name = "AGENT")]
    stand_in: Option<String>,
    /// Write a program that acts as the agent, and exit
    #[arg(long, value_name = "FILE", requires = "stand_in")]
    write_program: Option<PathBuf>,
    /// Arguments for the agent (ignored)
    #[arg(last = true, requires = "stand_in")]
    args: Vec<String>,
}

pub(crate) fn run(ui: &mut Ui, args: &ReplayArgs) -> Result<u8, CommandError> {
    match (&args.stand_in, &args.write_program) {
        (Some(agent), Some(program)) => stand_in::write_program(ui, agent, &args.tape, program),
        (Some(agent), None) => stand_in::print_output(ui, &args.tape, agent, args.real_time),
        (None, _) => {
            let pace = if args.real_time { Pace::Recorded } else { Pace::AtOnce };
            play_file(
                ui,
                &args.tape,
                RenderOptions { messages: args.messages, ..RenderOptions::plain(args.output) },
                pace,
            )
        }
    }
}

/// The speed at which a tape is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as possible.
    AtOnce,
    /// With the recorded pauses.
    Recorded,
    /// With the recorded pauses, each limited to this many milliseconds.
    AtMost(u64),
}

impl Pace {
    /// Waits for the recorded pause between two times.
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

/// Plays a tape in one of the output formats of a run. Returns the exit code of the run.
pub(crate) fn play(ui: &mut Ui, tape: &Tape, options: RenderOptions, pace: Pace) -> Result<u8, CommandError> {
    let mut show = Show::new(options, pace);
    let mut shown: io::Result<()> = Ok(());
    tape.records(|record| {
        if shown.is_ok() {
            shown = show.record(ui, &record, tape.cancelled_by());
        }
    })?;
    shown?;
    show.end(ui)
}

/// Plays the tape of a file or a pipe line by line.
fn play_file(ui: &mut Ui, path: &Path, options: RenderOptions, pace: Pace) -> Result<u8, CommandError> {
    let mut show = Show::new(options, pace);
    let mut lines = TapeLines::open(path)?;
    let mut player = TapePlayer::new(&lines.next()?.unwrap_or_default())?;
    while let Some(line) = lines.next()? {
        for record in player.line(&line)? {
            show.record(ui, &record, player.cancelled_by())?;
        }
    }
    let cancelled_by = player.cancelled_by();
    for record in player.finish()? {
        show.record(ui, &record, cancelled_by)?;
    }
    show.end(ui)
}

/// Returns the conversation on a tape, or `None` if the file is not a tape.
pub(crate) fn tape_session(path: &Path) -> Result<Option<SavedSession>, CommandError> {
    let is_tape = || -> io::Result<bool> {
        let mut start = Vec::new();
        File::open(path)?.take(TAPE_START.len() as u64).read_to_end(&mut start)?;
        Ok(start == TAPE_START.as_bytes())
    };
    if !path.is_file() || !is_tape().unwrap_or(false) {
        return Ok(None);
    }
    let mut lines = TapeLines::open(path)?;
    let mut session = TapeSession::new(&lines.next()?.unwrap_or_default())?;
    while let Some(line) = lines.next()? {
        session.line(&line)?;
    }
    Ok(Some(session.finish()?))
}

/// Renders a run while it is played.
struct Show {
    renderer: Renderer,
    pace: Pace,
    at: u64,
    code: Option<u8>,
}

impl Show {
    fn new(options: RenderOptions, pace: Pace) -> Self {
        Self { renderer: Renderer::new(options), pace, at: 0, code: None }
    }

    fn record(&mut self, ui: &mut Ui, record: &Record, cancelled_by: Option<Signal>) -> io::Result<()> {
        if self.pace != Pace::AtOnce {
            ui.flush()?;
            self.pace.wait(self.at, record.at_ms);
            self.at = record.at_ms;
        }
        if let Event::Outcome { outcome } = &record.event {
            self.code = Some(exit::of(outcome.verdict, cancelled_by));
        }
        self.renderer.record(ui, record)
    }

    fn end(self, ui: &mut Ui) -> Result<u8, CommandError> {
        ui.flush()?;
        self.code.ok_or_else(|| {
            Problem::new("TAPE", "the tape contains no run")
                .hint("record a run with `agentline run --record FILE …`")
                .into()
        })
    }
}

/// Reads the lines of a tape one at a time.
struct TapeLines<'a> {
    path: &'a Path,
    from: BufReader<File>,
}

impl<'a> TapeLines<'a> {
    fn open(path: &'a Path) -> Result<Self, CommandError> {
        let from = open_within(path, FIRST_BYTES).map_err(|error| unreadable(path, &error))?;
        Ok(Self { path, from })
    }

    fn next(&mut self) -> Result<Option<String>, CommandError> {
        let mut line = Vec::new();
        let read = (&mut self.from).take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|error| unreadable(self.path, &error))?;
        if read as u64 > LONGEST_LINE {
            let problem = Problem::new("TAPE", format!("a line is longer than {} MB", LONGEST_LINE >> 20));
            return Err(problem.hint("record the run again").into());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Ok((read > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
    }
}

/// Opens a tape and waits for its first bytes. A pipe without a writer times out, and the thread that reads it is
/// abandoned.
fn open_within(path: &Path, time: Duration) -> io::Result<BufReader<File>> {
    let (send, receive) = mpsc::channel();
    let path = path.to_owned();
    let open = move || {
        let opened = File::open(path).and_then(|file| {
            let mut from = BufReader::with_capacity(64 << 10, file);
            from.fill_buf()?;
            Ok(from)
        });
        // The receiver is gone after the timeout.
        let _ = send.send(opened);
    };
    thread::Builder::new().name("agentline-tape".into()).spawn(open)?;
    receive.recv_timeout(time).unwrap_or_else(|_| {
        let message = format!("no data within {} s", time.as_secs_f64());
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem::new("TAPE", format!("cannot read `{}`: {error}", path.display()))
        .hint("record a run with `agentline run --record FILE …`")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn opening_a_pipe_without_a_writer_times_out() {
        let dir = tempfile::tempdir().unwrap();
        let [silent, pipe] = ["silent", "pipe"].map(|name| dir.path().join(name));
        assert!(Command::new("mkfifo").args([&silent, &pipe]).status().unwrap().success());
        let error = open_within(&silent, Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let writer = thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::write(pipe, "a\n")
        });
        let mut lines = TapeLines::open(&pipe).unwrap();
        assert_eq!(lines.next().unwrap().as_deref(), Some("a"));
        writer.join().unwrap().unwrap();
    }
}
