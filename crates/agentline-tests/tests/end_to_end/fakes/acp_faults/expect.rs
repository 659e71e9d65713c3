//! The expected result of a fault: with a separate agent, as a prompt of a conversation, and on the pool.

use crate::fakes::acp_faults::stage::{AcpFaultStage, AcpPlayed, GEMINI, UNKNOWN};
use agentline::{
    Error, Event, FailureKind, Outcome, Permission, PermissionHandler, PermissionMode, Pool, PoolOptions,
    Run, RunOptions, RunRequest, Verdict,
};
use agentline_core::{ChangeSource, FileChangeKind, Phase};
use agentline_fakes::fake_acp::fault;
use agentline_tests::PATIENCE;
use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The text of a normal prompt after the fault, which must arrive.
const AFTERWARDS: &str = "say Fine.";

/// A changed file: its path, the kind of change, its source, and whether it was verified on the disk.
type FileRow = (&'static str, FileChangeKind, ChangeSource, bool);

/// Returns a file that a tool reported and that was found on the disk.
pub(crate) const fn by_tool(path: &'static str) -> FileRow {
    (path, FileChangeKind::Created, ChangeSource::Tool, true)
}

/// Returns a file that was only found on the disk.
pub(crate) const fn by_nobody(path: &'static str) -> FileRow {
    (path, FileChangeKind::Created, ChangeSource::Unknown, true)
}

/// One fault and its expected result.
pub(crate) struct AcpRow {
    pub(crate) fault: &'static str,
    /// The fault with a parameter, if its default takes too long.
    spelled: &'static str,
    prompt: Option<&'static str>,
    tune: fn(RunRequest) -> RunRequest,
    stop: StopAt,
    expected: ExpectedResult,
    /// The expected result with an unknown agent, if it differs.
    unknown: Option<ExpectedResult>,
    afterwards: Afterwards,
    on_the_pool: OnThePool,
    taped: bool,
}

/// Whether and when the caller cancels the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopAt {
    Never,
    /// While a tool runs.
    AtTool,
    /// While a permission request is pending.
    WhenAsked,
}

/// The state of the conversation after the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Afterwards {
    /// The next prompt is answered.
    Continues,
    /// The conversation was never opened, for the same reason as the run.
    NotOpened,
    /// The agent has exited, and the next prompt reports that.
    Exited,
    /// The next prompt has the same result.
    Persists,
}

/// The result of a run on the pool whose agent has the fault, while the next agent does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnThePool {
    /// The same as without a pool.
    Same,
    /// Nothing had happened: the run is retried on the next agent and succeeds.
    Again,
}

/// The expected result of a run.
#[derive(Clone)]
pub(crate) struct ExpectedResult {
    verdict: Verdict,
    kind: Option<FailureKind>,
    text: Option<&'static str>,
    files: Vec<FileRow>,
    denied: usize,
    warnings: Option<&'static [&'static str]>,
    unreadable: u32,
    also: fn(&AcpPlayed),
}

pub(crate) fn row(fault: &'static str, expected: ExpectedResult) -> AcpRow {
    AcpRow {
        fault,
        spelled: fault,
        prompt: None,
        tune: |request| request,
        stop: StopAt::Never,
        expected,
        unknown: None,
        afterwards: Afterwards::Continues,
        on_the_pool: OnThePool::Same,
        taped: true,
    }
}

impl AcpRow {
    /// Sets the parameter of the fault.
    pub(crate) fn spelled(mut self, spelled: &'static str) -> Self {
        self.spelled = spelled;
        self
    }

    /// Uses another prompt than the fault's own.
    pub(crate) fn prompt(mut self, prompt: &'static str) -> Self {
        self.prompt = Some(prompt);
        self
    }

    pub(crate) fn tune(mut self, tune: fn(RunRequest) -> RunRequest) -> Self {
        self.tune = tune;
        self
    }

    pub(crate) fn stop(mut self, stop: StopAt) -> Self {
        self.stop = stop;
        self
    }

    /// Sets the expected result with an unknown agent.
    pub(crate) fn unknown(mut self, expected: ExpectedResult) -> Self {
        self.unknown = Some(expected);
        self
    }

    /// Expects that no conversation can be opened.
    pub(crate) fn not_opened(mut self) -> Self {
        self.afterwards = Afterwards::NotOpened;
        self
    }

    /// Expects that the agent exits.
    pub(crate) fn exits(mut self) -> Self {
        self.afterwards = Afterwards::Exited;
        self
    }

    /// Expects that the fault persists.
    pub(crate) fn persists(mut self) -> Self {
        self.afterwards = Afterwards::Persists;
        self
    }

    /// Expects that the pool retries the run.
    pub(crate) fn again(mut self) -> Self {
        self.on_the_pool = OnThePool::Again;
        self
    }

    /// Records no tape, because that would take longer than all other rows together.
    pub(crate) fn untaped(mut self) -> Self {
        self.taped = false;
        self
    }

    fn request(&self, stage: &AcpFaultStage) -> RunRequest {
        let prompt = self.prompt.unwrap_or_else(|| fault(self.fault).expect("it is in the table").prompt);
        (self.tune)(stage.request(self.spelled, prompt))
    }

    /// Plays the row in all three ways.
    pub(crate) async fn play(&self) {
        self.alone(GEMINI, &self.expected).await;
        self.alone(UNKNOWN, self.unknown.as_ref().unwrap_or(&self.expected)).await;
        self.in_a_conversation().await;
        self.on_a_pool().await;
    }

    /// Runs with a separate agent, once as a known agent and once as an unknown one.
    async fn alone(&self, agent: &str, expected: &ExpectedResult) {
        let case = format!("{} of the agent {agent}", self.fault);
        let stage = AcpFaultStage::new();
        let began = Instant::now();
        let (options, asked) = self.options();
        let mut request = self.request(&stage).agent(agent);
        if agent == UNKNOWN {
            request.api_key = None;
            request.agent_options.remove("extensions");
        }
        if self.taped {
            request = request.record(stage.tape());
        }
        let run = stage.agentline().run_with(request, options).await.expect("the request is valid");
        let played = self.watch(run, &asked, began).await;
        stage.nothing_runs().await;
        expected.compare(&played, &case);
        if self.taped {
            played.equals_its_tape(&stage.tape(), &case);
        }
    }

    async fn in_a_conversation(&self) {
        let case = format!("{} in a conversation", self.fault);
        let stage = AcpFaultStage::new();
        let began = Instant::now();
        let (options, asked) = self.options();
        // Flags of the agent persist. A script is played once, so that the second prompt is played without it.
        let request = self.request(&stage).env("FAKE_ACP_FAULT_PROMPTS", "1");
        match stage.agentline().session_with(request.clone(), options).await {
            Err(Error::NotOpened(outcome)) => {
                assert_eq!(self.afterwards, Afterwards::NotOpened, "{case}: {:?}", outcome.error);
                self.expected.ends(&outcome, &case);
            }
            Err(other) => panic!("{case}: {other}"),
            Ok(session) => {
                assert_ne!(self.afterwards, Afterwards::NotOpened, "{case}: the session was opened");
                let run = session.prompt(request.prompt).await.expect("a valid prompt");
                let played = self.watch(run, &asked, began).await;
                self.expected.ends(&played.outcome, &case);
                self.expected.assert_text(&played.outcome, &case);
                let began = Instant::now();
                let next =
                    AcpPlayed::of(session.prompt(AFTERWARDS).await.expect("a valid prompt"), began).await;
                match self.afterwards {
                    Afterwards::Exited => {
                        let kind = next.outcome.error.as_ref().map(|e| e.kind);
                        assert_eq!(kind, Some(FailureKind::Crashed), "{case}: afterwards");
                    }
                    Afterwards::Persists => self.expected.ends(&next.outcome, &case),
                    _ => assert_done(&next.outcome, &case),
                }
                session.close().await;
            }
        }
        stage.nothing_runs().await;
    }

    async fn on_a_pool(&self) {
        let case = format!("{} on the pool", self.fault);
        let stage = AcpFaultStage::new();
        let pool = Pool::new(stage.agentline(), PoolOptions::default());
        let (options, asked) = self.options();
        let once = stage.path("once").to_string_lossy().into_owned();
        let request =
            self.request(&stage).env("FAKE_ACP_FAULT_PROMPTS", "1").env("FAKE_ACP_FAULT_ONCE", once);
        let run = pool.run_with(request.clone(), options).await.expect("the request is valid");
        let played = self.watch(run, &asked, Instant::now()).await;
        let again = self.on_the_pool == OnThePool::Again;
        if again {
            assert_eq!(played.outcome.verdict, Verdict::Done, "{case}: {:?}", played.outcome.error);
        } else {
            self.expected.ends(&played.outcome, &case);
            self.expected.assert_text(&played.outcome, &case);
        }
        assert_eq!(pool.status().retried, u64::from(again), "{case}: started again");
        if again || matches!(self.afterwards, Afterwards::Continues | Afterwards::Exited) {
            let mut next = request;
            AFTERWARDS.clone_into(&mut next.prompt);
            let next = AcpPlayed::of(pool.run(next).await.expect("a valid request"), Instant::now()).await;
            assert_done(&next.outcome, &case);
        }
        pool.close().await;
        stage.nothing_runs().await;
    }

    /// Adds a permission handler that never answers, if the row needs one.
    fn options(&self) -> (RunOptions, Arc<Notify>) {
        let asked = Arc::new(Notify::new());
        if self.stop != StopAt::WhenAsked {
            return (RunOptions::new(), asked);
        }
        let notify = Arc::clone(&asked);
        let silent = PermissionHandler::new(move |_| {
            notify.notify_one();
            pending::<Permission>()
        });
        (RunOptions::new().permission_handler(silent), asked)
    }

    /// Reads the run to its end, and cancels it if the row requires it.
    async fn watch(&self, run: Run, asked: &Arc<Notify>, began: Instant) -> AcpPlayed {
        let canceller = run.canceller();
        match self.stop {
            StopAt::Never => AcpPlayed::of(run, began).await,
            StopAt::AtTool => {
                let see = |event: &Event| {
                    if matches!(event, Event::ToolUse(_)) {
                        canceller.cancel();
                    }
                };
                AcpPlayed::seen(run, began, see).await
            }
            StopAt::WhenAsked => {
                let played = tokio::spawn(AcpPlayed::of(run, began));
                asked.notified().await;
                canceller.cancel();
                played.await.expect("no panic")
            }
        }
    }
}

/// Asserts that the prompt after the fault was answered. Late text of the previous turn may be next to it.
fn assert_done(outcome: &Outcome, case: &str) {
    assert_eq!(outcome.verdict, Verdict::Done, "{case}: afterwards {:?}", outcome.error);
    assert!(outcome.text.contains("Fine."), "{case}: afterwards {:?}", outcome.text);
}

fn expected(verdict: Verdict, kind: Option<FailureKind>, text: &'static str) -> ExpectedResult {
    ExpectedResult {
        verdict,
        kind,
        text: Some(text),
        files: Vec::new(),
        denied: 0,
        warnings: Some(&[]),
        unreadable: 0,
        also: |_| {},
    }
}

pub(crate) fn done(text: &'static str) -> ExpectedResult {
    expected(Verdict::Done, None, text)
}

pub(crate) fn ends(verdict: Verdict, kind: FailureKind, text: &'static str) -> ExpectedResult {
    expected(verdict, Some(kind), text)
}

pub(crate) fn failed(kind: FailureKind, text: &'static str) -> ExpectedResult {
    ends(Verdict::Failed, kind, text)
}

pub(crate) fn timed_out(kind: FailureKind, text: &'static str) -> ExpectedResult {
    ends(Verdict::TimedOut, kind, text)
}

pub(crate) fn cancelled(text: &'static str) -> ExpectedResult {
    ends(Verdict::Cancelled, FailureKind::Cancelled, text)
}

pub(crate) fn denied(text: &'static str) -> ExpectedResult {
    ExpectedResult { denied: 1, ..expected(Verdict::DoneWithDenials, None, text) }
}

impl ExpectedResult {
    /// Accepts any text.
    pub(crate) fn any_text(mut self) -> Self {
        self.text = None;
        self
    }

    pub(crate) fn files(mut self, files: &[FileRow]) -> Self {
        self.files = files.to_vec();
        self
    }

    pub(crate) fn warns(mut self, codes: &'static [&'static str]) -> Self {
        self.warnings = Some(codes);
        self
    }

    /// Accepts any text and any warnings, because they depend on milliseconds.
    pub(crate) fn any_text_and_warnings(mut self) -> Self {
        (self.text, self.warnings) = (None, None);
        self
    }

    pub(crate) fn unreadable(mut self, lines: u32) -> Self {
        self.unreadable = lines;
        self
    }

    /// Adds another check.
    pub(crate) fn also(mut self, also: fn(&AcpPlayed)) -> Self {
        self.also = also;
        self
    }

    /// Compares everything, for a run with a separate agent.
    fn compare(&self, played: &AcpPlayed, case: &str) {
        let outcome = &played.outcome;
        self.ends(outcome, case);
        self.assert_text(outcome, case);
        let files: Vec<_> =
            outcome.files.iter().map(|f| (f.path.as_str(), f.change, f.source, f.verified)).collect();
        assert_eq!(files, self.files, "{case}: files");
        assert_eq!(outcome.denied.len(), self.denied, "{case}: refused: {:?}", outcome.denied);
        let (malformed, codes): (Vec<&str>, Vec<&str>) =
            outcome.warnings.iter().map(|w| w.code.as_str()).partition(|code| *code == "malformed_lines");
        assert_eq!(malformed.len(), usize::from(self.unreadable > 0), "{case}: one warning about all lines");
        if let Some(warnings) = self.warnings {
            assert_eq!(codes, warnings, "{case}: warnings: {:?}", outcome.warnings);
        }
        assert_eq!(outcome.unreadable_lines, self.unreadable, "{case}: lines that could not be read");
        assert!(played.took < PATIENCE, "{case}: took {:?}", played.took);
        (self.also)(played);
    }

    /// Compares the verdict and the phase.
    fn ends(&self, outcome: &Outcome, case: &str) {
        let kind = outcome.error.as_ref().map(|e| e.kind);
        assert_eq!((outcome.verdict, kind), (self.verdict, self.kind), "{case}: {:?}", outcome.error);
        let phase = outcome.error.as_ref().map(|e| e.phase);
        assert_eq!(phase, self.kind.map(phase_of), "{case}: the phase");
        assert!(
            outcome.error.as_ref().is_none_or(|e| !e.message.trim().is_empty()),
            "{case}: the error has a reason"
        );
    }

    fn assert_text(&self, outcome: &Outcome, case: &str) {
        if let Some(text) = self.text {
            assert_eq!(outcome.text, text, "{case}: the text");
        }
    }
}

/// Returns the documented phase of a kind of failure.
fn phase_of(kind: FailureKind) -> Phase {
    match kind {
        FailureKind::Input
        | FailureKind::Policy
        | FailureKind::SessionNotFound
        | FailureKind::ContextOverflow
        | FailureKind::UnknownModel
        | FailureKind::NotAuthenticated
        | FailureKind::TimeoutStartup
        | FailureKind::Cancelled => Phase::Request,
        FailureKind::Mcp | FailureKind::Tool => Phase::Tool,
        FailureKind::AgentTurns | FailureKind::TimeoutRun => Phase::Budget,
        _ => Phase::Response,
    }
}

/// Sets timeouts for an agent that falls silent while it works: waiting for it gains nothing.
pub(crate) fn impatient(request: RunRequest) -> RunRequest {
    request.idle_timeout(Duration::from_secs(3))
}

/// Sets timeouts for an agent that never opens a session.
pub(crate) fn hasty(request: RunRequest) -> RunRequest {
    request.startup_timeout(Duration::from_secs(5))
}

pub(crate) fn mode(request: RunRequest, mode: PermissionMode) -> RunRequest {
    request.permission_mode(mode)
}
