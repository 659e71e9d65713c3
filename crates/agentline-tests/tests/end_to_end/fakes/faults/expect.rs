//! The expected result of a run with a fault, and how a row of the table is played and compared.

use crate::fakes::faults::stage::{HeadlessStage, Played};
use agentline::{FailureKind, RunRequest, Surface, Verdict};
use agentline_core::{ChangeSource, FileChangeKind};
use serde_json::{Value, json};
use std::time::Duration;

/// A changed file: its path, the kind of change, its source, and whether it was verified on the disk.
pub(crate) type Row4 = (&'static str, FileChangeKind, ChangeSource, bool);

/// The file that a tool of the fake agent writes, reported by the tool and found on the disk.
pub(crate) const BY_TOOL: Row4 = ("hello.txt", FileChangeKind::Created, ChangeSource::Tool, true);
/// The same file, found only on the disk.
pub(crate) const UNATTRIBUTED: Row4 = ("hello.txt", FileChangeKind::Created, ChangeSource::Unknown, true);

/// One fault and its expected result on each surface.
pub(crate) struct Row {
    pub(crate) fault: &'static str,
    args: Value,
    tune: fn(RunRequest) -> RunRequest,
    stream: ExpectedRun,
    json: ExpectedRun,
}

/// The expected result of a run.
#[derive(Clone)]
pub(crate) struct ExpectedRun {
    verdict: Verdict,
    kind: Option<FailureKind>,
    text: Option<String>,
    reported: Option<String>,
    unreadable: Option<u32>,
    lines: Option<Vec<u64>>,
    files: Option<Vec<Row4>>,
    also: fn(&Played),
    within: Duration,
}

pub(crate) fn row(fault: &'static str, stream: ExpectedRun, json: ExpectedRun) -> Row {
    Row { fault, args: json!({}), tune: |request| request, stream, json }
}

/// Creates a row with the same result on both surfaces.
pub(crate) fn both(fault: &'static str, expected: ExpectedRun) -> Row {
    row(fault, expected.clone(), expected)
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
        let stage = HeadlessStage::new();
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
        let expected = if surface == Surface::Json { &self.json } else { &self.stream };
        expected.compare(&played, &format!("{} on {}", self.fault, surface.name()));
    }
}

fn expected(verdict: Verdict, kind: Option<FailureKind>) -> ExpectedRun {
    ExpectedRun {
        verdict,
        kind,
        text: None,
        reported: None,
        unreadable: Some(0),
        lines: None,
        files: Some(Vec::new()),
        also: |_| {},
        within: Duration::from_secs(90),
    }
}

pub(crate) fn done(text: &str) -> ExpectedRun {
    expected(Verdict::Done, None).text(text)
}

pub(crate) fn empty() -> ExpectedRun {
    expected(Verdict::Empty, Some(FailureKind::Empty)).text("")
}

pub(crate) fn failed(kind: FailureKind) -> ExpectedRun {
    expected(Verdict::Failed, Some(kind)).text("")
}

pub(crate) fn ends(verdict: Verdict, kind: FailureKind) -> ExpectedRun {
    expected(verdict, Some(kind)).text("")
}

pub(crate) fn timed_out(kind: FailureKind) -> ExpectedRun {
    expected(Verdict::TimedOut, Some(kind)).text("").within(60)
}

impl ExpectedRun {
    /// Expects this text of the last turn, and the same reported text unless `reported` is set.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.text = Some(text.to_owned());
        self
    }

    /// Expects this reported text, joined.
    pub(crate) fn reported(mut self, reported: impl Into<String>) -> Self {
        self.reported = Some(reported.into());
        self
    }

    /// Accepts any text.
    pub(crate) fn any_text(mut self) -> Self {
        (self.text, self.reported) = (None, None);
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

    fn compare(&self, played: &Played, case: &str) {
        let outcome = &played.outcome;
        let kind = outcome.error.as_ref().map(|e| e.kind);
        assert_eq!((outcome.verdict, kind), (self.verdict, self.kind), "{case}: {:?}", outcome.error);
        if let Some(text) = &self.text {
            assert_eq!(&outcome.text, text, "{case}: the text");
            assert_eq!(
                &played.texts().concat(),
                self.reported.as_ref().unwrap_or(text),
                "{case}: reported text"
            );
        }
        if let Some(count) = self.unreadable {
            assert_eq!(outcome.unreadable_lines, count, "{case}: lines that could not be read");
        }
        if let Some(lines) = &self.lines {
            let mut lines_found: Vec<u64> = played.unreadable().iter().map(|(line, _)| *line).collect();
            lines_found.dedup();
            assert_eq!(&lines_found, lines, "{case}: unreadable lines");
        }
        if let Some(files) = &self.files {
            let found: Vec<_> =
                outcome.files.iter().map(|f| (f.path.as_str(), f.change, f.source, f.verified)).collect();
            assert_eq!(&found, files, "{case}: files");
        }
        assert!(
            outcome.error.as_ref().is_none_or(|e| !e.message.trim().is_empty()),
            "{case}: the error has a reason"
        );
        assert!(played.took < self.within, "{case}: took {:?}", played.took);
        (self.also)(played);
    }
}
