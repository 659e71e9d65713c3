//! The tape: a header and one line per input of a connection.
//!
//! Replaying it through the same state machine gives the same events and outcome.

mod session;

pub use session::TapeSession;

use crate::{
    AgentId, Connection, ConnectionOutput, DialogueConfig, DiskReport, ExitReason, HostRequestId,
    HostResponse, Input, InputKind, Millis, Notice, Problem, Record, RunId, SideChannel, Signal, Stream,
    Surface, Timeouts, TurnSpec, Version, agents,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The name of this format.
pub const TAPE_SCHEMA: &str = "agentline.tape/1";

/// The first line of a tape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TapeHeader {
    /// The name of the format.
    pub schema: String,
    /// The version of agentline that recorded the tape.
    pub agentline: String,
    /// The agent.
    pub agent: AgentId,
    /// The version of the agent.
    pub agent_version: Option<Version>,
    /// The surface.
    pub surface: Option<Surface>,
    /// The configuration of the dialogue.
    #[serde(rename = "talk", skip_serializing_if = "Option::is_none")]
    pub dialogue: Option<DialogueConfig>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The workspace.
    pub cwd: String,
    /// The names of the agent's environment variables.
    pub variables: Vec<String>,
    /// The time of the recording, in seconds since 1970.
    pub recorded_at: u64,
}

/// One line of a tape.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Entry<'a> {
    at: Millis,
    /// The channel: `in`, `out`, `err`, `session`, `exit`, `disk`, `clock`, and those of the host.
    #[serde(borrow)]
    ch: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    #[serde(rename = "order", skip_serializing_if = "Option::is_none")]
    spec: Option<Box<TurnSpec>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ask: Option<HostRequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<HostResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<Signal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<Notice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<ExitReason>,
}

impl TapeHeader {
    /// Parses the first line of a tape.
    ///
    /// # Errors
    ///
    /// Returns a problem if the line is not the header of a tape, or if the format is newer.
    pub fn read(line: &str) -> Result<Self, Problem> {
        let header: Self = serde_json::from_str(line)
            .ok()
            .filter(|header: &Self| header.schema.starts_with("agentline.tape/"))
            .ok_or_else(|| {
                Problem::new("TAPE", "is not a tape").hint("record one with `agentline run --record FILE …`")
            })?;
        if header.schema != TAPE_SCHEMA {
            let message = format!("has the format `{}`; this version reads `{TAPE_SCHEMA}`", header.schema);
            return Err(Problem::new("TAPE", message).hint("record it again, or update agentline"));
        }
        Ok(header)
    }

    /// Creates the state machine that replays the tape.
    fn machine(&self, timeouts: Timeouts) -> Result<Connection, Problem> {
        let before = || DialogueConfig::new(self.surface.unwrap_or_default(), self.agent_version);
        let dialogue = self.dialogue.clone().unwrap_or_else(before);
        let dialogue = match agents::find(&self.agent) {
            Ok(agent) => agent.dialogue(&dialogue),
            // The dialogue of an agent from the configuration depends only on its profile.
            Err(_) if dialogue.surface == Surface::Acp => agents::configured_dialogue(&dialogue),
            Err(unknown) => return Err(unknown),
        };
        Ok(Connection::new(dialogue, timeouts))
    }

    /// Formats the header as a line.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Formats an input as a line of a tape.
#[must_use]
pub fn tape_line(input: &Input<'_>) -> String {
    let mut entry = Entry { at: input.at, ..Entry::default() };
    match &input.kind {
        InputKind::Started => entry.ch = "up".into(),
        InputKind::Line { stream, text } => {
            (entry.ch, entry.run) = channel(*stream);
            entry.text = Some(Cow::Borrowed(text));
        }
        InputKind::TooLong { stream, text, length } => {
            (entry.ch, entry.run) = channel(*stream);
            entry.text = Some(Cow::Borrowed(text));
            entry.length = Some(*length);
        }
        InputKind::Activity { stream } => (entry.ch, entry.run) = channel(*stream),
        InputKind::Prompt { run, spec } => {
            entry.ch = "prompt".into();
            entry.run = Some(*run);
            entry.spec = Some(spec.clone());
        }
        InputKind::Answer { ask, answer: HostResponse::ChangesCollected(disk) } => {
            entry.ch = "disk".into();
            entry.ask = Some(*ask);
            entry.disk = Some(disk.clone());
        }
        InputKind::Answer { ask, answer } => {
            entry.ch = "answer".into();
            entry.ask = Some(*ask);
            entry.answer = Some(answer.clone());
        }
        InputKind::Cancel { run, signal } => {
            entry.ch = "cancel".into();
            entry.run = Some(*run);
            entry.signal = Some(*signal);
        }
        InputKind::Notice { run, notice } => {
            entry.ch = "notice".into();
            entry.run = Some(*run);
            entry.notice = Some(notice.clone());
        }
        InputKind::ClientMessage { text } => {
            entry.ch = "client".into();
            entry.text = Some(Cow::Borrowed(text));
        }
        InputKind::StdoutClosed => entry.ch = "mute".into(),
        InputKind::Retire => entry.ch = "retire".into(),
        InputKind::Tick => entry.ch = "clock".into(),
        InputKind::Exit(exit) => {
            entry.ch = "exit".into();
            entry.exit = Some(*exit);
        }
    }
    serde_json::to_string(&entry).unwrap_or_default()
}

/// Formats bytes sent to the agent as a line of a tape. Replay ignores such lines; they are for inspection.
#[must_use]
pub fn tape_frame(at: Millis, frame: &str) -> String {
    let entry = Entry { at, ch: "in".into(), text: Some(Cow::Borrowed(frame)), ..Entry::default() };
    serde_json::to_string(&entry).unwrap_or_default()
}

/// Formats a message to the client of an agent as a line of a tape. Replay ignores such lines, too.
#[must_use]
pub fn tape_client_message(at: Millis, message: &str) -> String {
    let entry = Entry { at, ch: "to-client".into(), text: Some(Cow::Borrowed(message)), ..Entry::default() };
    serde_json::to_string(&entry).unwrap_or_default()
}

fn channel(stream: Stream) -> (Cow<'static, str>, Option<RunId>) {
    match stream {
        Stream::Stdout => ("out".into(), None),
        Stream::Stderr => ("err".into(), None),
        Stream::Side(run, SideChannel::SessionFile) => ("session".into(), Some(run)),
        Stream::Side(run, SideChannel::ToolHost) => ("tools".into(), Some(run)),
    }
}

/// A recorded connection.
#[derive(Debug)]
#[non_exhaustive]
pub struct Tape {
    /// The header.
    pub header: TapeHeader,
    /// The inputs, in order.
    pub inputs: Vec<Input<'static>>,
}

impl Tape {
    /// Parses a tape. Invalid lines are skipped, so that a truncated tape can still be replayed.
    ///
    /// # Errors
    ///
    /// Returns a problem if the text is not a tape, or if the format is newer.
    pub fn read(text: &str) -> Result<Self, Problem> {
        let mut lines = text.lines();
        let header = TapeHeader::read(lines.next().unwrap_or_default())?;
        let inputs =
            lines.filter_map(|line| serde_json::from_str::<Entry<'_>>(line).ok()?.into_input()).collect();
        Ok(Self { header, inputs })
    }

    /// Replays the tape through a new state machine and passes on every output.
    ///
    /// # Errors
    ///
    /// Returns a problem if the agent of the tape is not known.
    pub fn play(&self, mut each: impl FnMut(ConnectionOutput)) -> Result<(), Problem> {
        let timeouts = self.inputs.iter().find_map(|input| match &input.kind {
            InputKind::Prompt { spec, .. } => Some(spec.timeouts),
            _ => None,
        });
        let mut connection = self.header.machine(timeouts.unwrap_or_default())?;
        let mut out = Vec::new();
        for input in &self.inputs {
            connection.take(input, &mut out);
            out.drain(..).for_each(&mut each);
        }
        // A truncated tape also ends: time advances until no timeout is pending.
        while !connection.is_finished()
            && let Some(at) = connection.deadline()
        {
            connection.take(&Input { at, kind: InputKind::Tick }, &mut out);
            out.drain(..).for_each(&mut each);
        }
        Ok(())
    }

    /// Replays the tape and passes on what the caller of the run saw: every event, with the outcome last.
    ///
    /// # Errors
    ///
    /// Returns a problem if the agent of the tape is not known.
    pub fn records(&self, mut each: impl FnMut(Record)) -> Result<(), Problem> {
        let mut last = (0, 0);
        self.play(|output| match output {
            ConnectionOutput::Event(_, record) => {
                last = (record.seq, record.at_ms);
                each(record);
            }
            ConnectionOutput::Done(_, outcome) => each(Record::last(last, *outcome)),
            _ => {}
        })
    }

    /// Returns the signal with which the caller cancelled the run, if any.
    #[must_use]
    pub fn cancelled_by(&self) -> Option<Signal> {
        self.inputs.iter().find_map(|input| match input.kind {
            InputKind::Cancel { signal, .. } => Some(signal),
            _ => None,
        })
    }
}

/// Replays a tape line by line, so that a long tape need not be in memory.
#[derive(Debug)]
pub struct TapePlayer {
    header: TapeHeader,
    /// The inputs before the first prompt, which contains the timeouts for the state machine.
    early: Vec<Input<'static>>,
    connection: Option<Connection>,
    last: (u32, Millis),
    cancelled_by: Option<Signal>,
}

/// The maximum number of inputs before the first prompt.
const MOST_EARLY: usize = 1000;

impl TapePlayer {
    /// Starts with the first line of a tape.
    ///
    /// # Errors
    ///
    /// Returns a problem if the line is not the header of a tape, or if the format is newer.
    pub fn new(first_line: &str) -> Result<Self, Problem> {
        let header = TapeHeader::read(first_line)?;
        Ok(Self { header, early: Vec::new(), connection: None, last: (0, 0), cancelled_by: None })
    }

    /// Returns the signal with which the caller has cancelled the run so far, if any.
    #[must_use]
    pub fn cancelled_by(&self) -> Option<Signal> {
        self.cancelled_by
    }

    /// Replays the next line and returns what the caller of the run saw at that point. An invalid line is skipped.
    ///
    /// # Errors
    ///
    /// Returns a problem if the agent of the tape is not known.
    pub fn line(&mut self, line: &str) -> Result<Vec<Record>, Problem> {
        let input = serde_json::from_str::<Entry<'_>>(line).ok().and_then(Entry::into_input);
        let Some(input) = input else { return Ok(Vec::new()) };
        if let InputKind::Cancel { signal, .. } = input.kind {
            self.cancelled_by.get_or_insert(signal);
        }
        let Some(connection) = &mut self.connection else {
            let timeouts = match &input.kind {
                InputKind::Prompt { spec, .. } => Some(spec.timeouts),
                _ if self.early.len() >= MOST_EARLY => Some(Timeouts::default()),
                _ => None,
            };
            self.early.push(input);
            return timeouts.map_or_else(|| Ok(Vec::new()), |timeouts| self.begin(timeouts));
        };
        let mut out = Vec::new();
        connection.take(&input, &mut out);
        Ok(self.records(out))
    }

    /// Ends the replay and returns the last records. For a truncated tape, time advances until no timeout is pending.
    ///
    /// # Errors
    ///
    /// Returns a problem if the agent of the tape is not known.
    pub fn finish(mut self) -> Result<Vec<Record>, Problem> {
        let mut records = match &self.connection {
            Some(_) => Vec::new(),
            None => self.begin(Timeouts::default())?,
        };
        let mut out = Vec::new();
        if let Some(connection) = &mut self.connection {
            while !connection.is_finished()
                && let Some(at) = connection.deadline()
            {
                connection.take(&Input { at, kind: InputKind::Tick }, &mut out);
            }
        }
        records.extend(self.records(out));
        Ok(records)
    }

    fn begin(&mut self, timeouts: Timeouts) -> Result<Vec<Record>, Problem> {
        let mut connection = self.header.machine(timeouts)?;
        let mut out = Vec::new();
        for input in std::mem::take(&mut self.early) {
            connection.take(&input, &mut out);
        }
        self.connection = Some(connection);
        Ok(self.records(out))
    }

    fn records(&mut self, out: Vec<ConnectionOutput>) -> Vec<Record> {
        let mut records = Vec::new();
        for output in out {
            match output {
                ConnectionOutput::Event(_, record) => {
                    self.last = (record.seq, record.at_ms);
                    records.push(record);
                }
                ConnectionOutput::Done(_, outcome) => records.push(Record::last(self.last, *outcome)),
                _ => {}
            }
        }
        records
    }
}

/// One observable action of an agent. The actions on a tape are enough to simulate the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TapeAction {
    /// A line on standard output, with its time.
    Out(Millis, String),
    /// A line on standard error, with its time.
    Err(Millis, String),
    /// The exit of the process.
    Exit(ExitReason),
}

impl TapeAction {
    /// Parses a line of a tape. Returns `None` if it records something else or is invalid.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let input = serde_json::from_str::<Entry<'_>>(line).ok()?.into_input()?;
        match input.kind {
            InputKind::Line { stream: Stream::Stdout, text } => Some(Self::Out(input.at, text.into_owned())),
            InputKind::Line { stream: Stream::Stderr, text } => Some(Self::Err(input.at, text.into_owned())),
            InputKind::Exit(exit) => Some(Self::Exit(exit)),
            _ => None,
        }
    }
}

impl Entry<'_> {
    fn into_input(self) -> Option<Input<'static>> {
        let side = |run: Option<RunId>, side| Some(Stream::Side(run?, side));
        let stream = match &*self.ch {
            "out" => Some(Stream::Stdout),
            "err" => Some(Stream::Stderr),
            "session" => side(self.run, SideChannel::SessionFile),
            "tools" => side(self.run, SideChannel::ToolHost),
            _ => None,
        };
        let text = self.text.map(|t| Cow::Owned(t.into_owned()));
        let kind = match (stream, &*self.ch) {
            (Some(stream), _) => match (text, self.length) {
                (Some(text), Some(length)) => InputKind::TooLong { stream, text, length },
                (Some(text), None) => InputKind::Line { stream, text },
                (None, _) => InputKind::Activity { stream },
            },
            (None, "up") => InputKind::Started,
            (None, "prompt") => InputKind::Prompt { run: self.run?, spec: self.spec? },
            (None, "disk") => {
                InputKind::Answer { ask: self.ask?, answer: HostResponse::ChangesCollected(self.disk?) }
            }
            (None, "answer") => InputKind::Answer { ask: self.ask?, answer: self.answer? },
            (None, "cancel") => InputKind::Cancel { run: self.run?, signal: self.signal? },
            (None, "notice") => InputKind::Notice { run: self.run?, notice: self.notice? },
            (None, "client") => InputKind::ClientMessage { text: text? },
            (None, "mute") => InputKind::StdoutClosed,
            (None, "retire") => InputKind::Retire,
            (None, "clock") => InputKind::Tick,
            (None, "exit") => InputKind::Exit(self.exit?),
            _ => return None,
        };
        Some(Input { at: self.at, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_round_trips() {
        let run = RunId(1);
        let kinds = [
            InputKind::Started,
            InputKind::Line { stream: Stream::Stdout, text: "{\"a\":\"\u{fffd}\\n\"}".into() },
            InputKind::TooLong { stream: Stream::Stderr, text: "x".into(), length: 9 },
            InputKind::Activity { stream: Stream::Side(run, SideChannel::SessionFile) },
            InputKind::Prompt { run, spec: Box::new(TurnSpec { prompt: "p".into(), ..TurnSpec::default() }) },
            InputKind::Answer {
                ask: HostRequestId(3),
                answer: HostResponse::PermissionDecided(crate::PermissionDecision::deny("rule", "no")),
            },
            InputKind::Answer {
                ask: HostRequestId(3),
                answer: HostResponse::ChangesCollected(DiskReport::default()),
            },
            InputKind::Cancel { run, signal: Signal::Interrupt },
            InputKind::Notice { run, notice: Notice::new("a", "b") },
            InputKind::StdoutClosed,
            InputKind::Retire,
            InputKind::Tick,
            InputKind::Exit(ExitReason::Signal(9)),
        ];
        for kind in kinds {
            let line = tape_line(&Input { at: 5, kind });
            let again = serde_json::from_str::<Entry<'_>>(&line).unwrap().into_input().unwrap();
            assert_eq!(tape_line(&again), line);
        }
    }

    #[test]
    fn invalid_tape_is_refused_with_a_hint() {
        let problem = Tape::read("{}").unwrap_err();
        assert!(problem.hint.unwrap().contains("--record"));
        let later =
            format!("{}\n", TapeHeader { schema: "agentline.tape/9".into(), ..TapeHeader::default() }.line());
        assert!(Tape::read(&later).unwrap_err().message.contains("agentline.tape/9"));
    }
}
