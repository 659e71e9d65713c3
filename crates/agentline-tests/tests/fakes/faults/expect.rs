//! The expected result of a run with a fault, and how a row of the table is played and compared.

use crate::faults::stage::{Played, Stage};
use agentline::{FailureKind, RunRequest, Surface, Verdict};
use agentline_core::{ChangeSource, FileChangeKind};
use serde_json::{Value, json};
use std::time::Duration;

/// A changed file: its path, the kind of change, its source, and whether it was verified on the disk.
pub(crate) type Row4 = (&'static str, FileChangeKind, ChangeSource, bool);

/// The file that a tool of the fake agent writes, reported by the tool and found on the disk.
pub(crate) const BY_TOOL: Row4 = ("hello.txt", FileChangeKind::Created, ChangeSource::Tool, true);
/// The same file, found only on the disk.
pub(crate) const BY_NOBODY: Row4 = ("hello.txt", FileChangeKind::Created, ChangeSource::Unknown, true);

/// One fault and its expected result on each surface.
pub(crate) struct Row {
    pub(crate) fault: &'static str,
    args: Value,
    tune: fn(RunRequest) -> RunRequest,
    stream: Want,
    json: Want,
}

/// The expected result of a run.
#[derive(Clone)]
pub(crate) struct Want {
    verdict: Verdict,
    kind: Option<FailureKind>,
    text: Option<String>,
    told: Option<String>,
    unreadable: Option<u32>,
    lines: Option<Vec<u64>>,
    files: Option<Vec<Row4>>,
    also: fn(&Played),
    within: Duration,
}

pub(crate) fn row(fault: &'static str, stream: Want, json: Want) -> Row {
    Row { fault, args: json!({}), tune: |request| request, stream, json }
}

/// Creates a row with the same result on both surfaces.
pub(crate) fn both(fault: &'static str, want: Want) -> Row {
    row(fault, want.clone(), want)
}

impl Row {
    pub(crate) fn args(mut self, args: Value) -> Self {
        self.args = args;
        self
    }

    pub(crate) fn tune(mut self, tune: fn(RunRequest) -> RunRequest) -> Self {
        self.tune = tune;
        self
    }

    /// Sets short timeouts, for an agent that hangs.
    pub(crate) fn hangs(self) -> Self {
        self.tune(|request| {
            request
                .idle_timeout(Duration::from_secs(2))
                .tool_timeout(Duration::from_secs(2))
                .startup_timeout(Duration::from_secs(6))
                .retry_patience(Duration::from_secs(2))
                .timeout(Duration::from_secs(40))
        })
    }

    /// Plays the row and compares the result.
    #[expect(clippy::print_stdout, reason = "a test prints the duration of each fault")]
    pub(crate) async fn play(&self, surface: Surface) {
        let stage = Stage::new();
        let request = (self.tune)(stage.request(surface, self.fault, &self.args));
        let played = stage.play(request).await;
        let outcome = &played.outcome;
        println!(
            "{:<26} {:<12} {:<18} {:<18} {:>6} ms",
            self.fault,
            surface.name(),
            outcome.verdict.name(),
            outcome.error.as_ref().map(|e| format!("{:?}", e.kind)).unwrap_or_default(),
            played.took.as_millis(),
        );
        let want = if surface == Surface::Json { &self.json } else { &self.stream };
        want.compare(&played, &format!("{} on {}", self.fault, surface.name()));
    }
}

fn want(verdict: Verdict, kind: Option<FailureKind>) -> Want {
    Want {
        verdict,
        kind,
        text: None,
        told: None,
        unreadable: Some(0),
        lines: None,
        files: Some(Vec::new()),
        also: |_| {},
        within: Duration::from_secs(90),
    }
}

pub(crate) fn done(text: &str) -> Want {
    want(Verdict::Done, None).text(text)
}

pub(crate) fn empty() -> Want {
    want(Verdict::Empty, Some(FailureKind::Empty)).text("")
}

pub(crate) fn failed(kind: FailureKind) -> Want {
    want(Verdict::Failed, Some(kind)).text("")
}

pub(crate) fn ends(verdict: Verdict, kind: FailureKind) -> Want {
    want(verdict, Some(kind)).text("")
}

pub(crate) fn timed_out(kind: FailureKind) -> Want {
    want(Verdict::TimedOut, Some(kind)).text("").within(60)
}

impl Want {
    /// Expects this text of the last turn, and the same reported text unless `told` is set.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.text = Some(text.to_owned());
        self
    }

    /// Expects this reported text, joined.
    pub(crate) fn told(mut self, told: impl Into<String>) -> Self {
        self.told = Some(told.into());
        self
    }

    /// Accepts any text.
    pub(crate) fn any_text(mut self) -> Self {
        (self.text, self.told) = (None, None);
        self
    }

    pub(crate) fn unreadable(mut self, count: u32) -> Self {
        self.unreadable = Some(count);
        self
    }

    pub(crate) fn any_unreadable(mut self) -> Self {
        self.unreadable = None;
        self
    }

    /// Expects these unreadable lines of standard output.
    pub(crate) fn lines(mut self, lines: impl IntoIterator<Item = u64>) -> Self {
        let lines: Vec<u64> = lines.into_iter().collect();
        self.unreadable = u32::try_from(lines.len()).ok();
        self.lines = Some(lines);
        self
    }

    pub(crate) fn files(mut self, files: &[Row4]) -> Self {
        self.files = Some(files.to_vec());
        self
    }

    pub(crate) fn any_files(mut self) -> Self {
        self.files = None;
        self
    }

    /// Adds another check.
    pub(crate) fn also(mut self, also: fn(&Played)) -> Self {
        self.also = also;
        self
    }

    /// Sets the maximum duration in seconds, on a busy machine.
    pub(crate) fn within(mut self, seconds: u64) -> Self {
        self.within = Duration::from_secs(seconds);
        self
    }

    fn compare(&self, played: &Played, what: &str) {
        let outcome = &played.outcome;
        let kind = outcome.error.as_ref().map(|e| e.kind);
        assert_eq!((outcome.verdict, kind), (self.verdict, self.kind), "{what}: {:?}", outcome.error);
        if let Some(text) = &self.text {
            assert_eq!(&outcome.text, text, "{what}: the text");
            assert_eq!(&played.texts().concat(), self.told.as_ref().unwrap_or(text), "{what}: reported text");
        }
        if let Some(count) = self.unreadable {
            assert_eq!(outcome.unreadable_lines, count, "{what}: lines that could not be read");
        }
        if let Some(lines) = &self.lines {
            let mut told: Vec<u64> = played.unreadable().iter().map(|(line, _)| *line).collect();
            told.dedup();
            assert_eq!(&told, lines, "{what}: unreadable lines");
        }
        if let Some(files) = &self.files {
            let told: Vec<_> =
                outcome.files.iter().map(|f| (f.path.as_str(), f.change, f.source, f.verified)).collect();
            assert_eq!(&told, files, "{what}: files");
        }
        assert!(
            outcome.error.as_ref().is_none_or(|e| !e.message.trim().is_empty()),
            "{what}: the error has a reason"
        );
        assert!(played.took < self.within, "{what}: took {:?}", played.took);
        (self.also)(played);
    }
}
