//! The environment for runs of the fake ACP agent, and checks that apply to every run.

use agentline::{
    Agentline, Event, Outcome, PermissionMode, Record, Run, RunRequest, Surface, agents::AgentRegistry,
    config::AgentSettings, detect::HostEnv, supervisor::Supervisor,
};
use agentline_core::Tape;
use agentline_tests::{survivors, wait_in_runtime};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The fake agent in place of a known agent.
pub(crate) const GEMINI: &str = "gemini";
/// The fake agent as an agent of which only the command is known.
pub(crate) const UNKNOWN: &str = "unknown";

/// Everything that the runs of one case need. It is removed with the case.
pub(crate) struct AcpFaultStage {
    dir: tempfile::TempDir,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct AcpPlayed {
    pub(crate) records: Vec<Record>,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

impl AcpFaultStage {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("agentline-acp-").tempdir().expect("a temporary folder");
        for name in ["home/.gemini", "ws", "tmp"] {
            fs::create_dir_all(dir.path().join(name)).expect("a folder");
        }
        let settings = r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#;
        fs::write(dir.path().join("home/.gemini/settings.json"), settings).expect("settings");
        Self { dir }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.path("ws")
    }

    pub(crate) fn tape(&self) -> PathBuf {
        self.path("tape")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn agentline(&self) -> Agentline {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let env = BTreeMap::from([
            ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
            ("HOME".to_owned(), text(self.path("home"))),
            ("TMPDIR".to_owned(), text(self.path("tmp"))),
        ]);
        let host_env = HostEnv::new(env, self.path("home"), self.workspace());
        Agentline::new(host_env)
            .program(GEMINI, env!("CARGO_BIN_EXE_fake-acp"))
            .agents(registry())
            .supervisor(Supervisor::Path(env!("CARGO_BIN_EXE_supervised-host").into()))
    }

    /// Returns a request to an agent with this fault. Every permission request is allowed, and there is no quiet
    /// period. The timeouts are long enough for a busy machine.
    pub(crate) fn request(&self, fault: &str, prompt: &str) -> RunRequest {
        RunRequest::new(prompt)
            .surface(Surface::Acp)
            .permission_mode(PermissionMode::Auto)
            .api_key("AIzaSy-acp-0123456789-abcdefghij")
            .working_dir(self.workspace())
            .env("FAKE_ACP_FAULT", fault)
            // It also marks every process of the agent: no other run has this directory in its environment.
            .env("FAKE_ACP_LOG", self.path("log").to_string_lossy())
            .quiet_period(Duration::ZERO)
            .timeout(Duration::from_secs(180))
            .idle_timeout(Duration::from_secs(90))
            .startup_timeout(Duration::from_secs(90))
            .agent_option("extensions", Vec::<String>::new())
    }

    /// Waits for the end of processes that are being killed. Those that are not would stay for much longer.
    pub(crate) async fn nothing_runs(&self) {
        let mark = self.path("log").to_string_lossy().into_owned();
        wait_in_runtime("the end of all processes", || survivors(&mark).is_empty()).await;
    }
}

fn registry() -> AgentRegistry {
    let mut settings = AgentSettings::default();
    settings.command = Some(vec![env!("CARGO_BIN_EXE_fake-acp").to_owned()]);
    AgentRegistry::of(&BTreeMap::from([(UNKNOWN.to_owned(), settings)]))
}

impl AcpPlayed {
    /// Reads a run to its end.
    pub(crate) async fn of(run: Run, began: Instant) -> Self {
        Self::seen(run, began, |_| {}).await
    }

    /// Reads a run to its end and passes every event to a function.
    pub(crate) async fn seen(mut run: Run, began: Instant, mut see: impl FnMut(&Event)) -> Self {
        let mut records = Vec::new();
        while let Some(record) = run.next().await {
            see(&record.event);
            records.push(record);
        }
        let Some(Event::Outcome { outcome }) = records.last().map(|r| r.event.clone()) else {
            panic!("the outcome is not the last event: {:?}", records.last());
        };
        let played = Self { records, outcome: *outcome, took: began.elapsed() };
        played.check();
        played
    }

    /// Returns the types of the events in order.
    pub(crate) fn story(&self) -> Vec<String> {
        let name = |record: &Record| {
            let event = serde_json::to_value(&record.event).expect("an event is JSON");
            event["type"].as_str().unwrap_or_default().to_owned()
        };
        self.records.iter().map(name).collect()
    }

    /// Checks that apply to every run.
    fn check(&self) {
        let outcomes = self.records.iter().filter(|r| matches!(r.event, Event::Outcome { .. })).count();
        assert_eq!(outcomes, 1, "exactly one outcome");
        let starts = self.records.iter().map(|r| matches!(r.event, Event::Started(_)));
        assert!(starts.eq((0..self.records.len()).map(|at| at == 0)), "`started` is the first event, once");
        let numbers: Vec<usize> = self.records.iter().map(|r| r.seq as usize).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len()), "numbered without a gap: {numbers:?}");
        assert!(self.records.is_sorted_by_key(|r| r.at_ms), "in order of time");
        let mut open = BTreeSet::new();
        for record in &self.records {
            match &record.event {
                Event::ToolUse(tool) => {
                    assert!(open.insert(&*tool.id), "a call is reported once: {}", tool.id)
                }
                Event::ToolResult(result) => {
                    let tool_use_id = &result.tool_use_id;
                    assert!(open.remove(tool_use_id.as_str()), "a result without a call: {tool_use_id}");
                }
                _ => {}
            }
        }
        assert_eq!(open, BTreeSet::new(), "calls without a result");
    }

    /// Asserts that the tape replays to identical events.
    pub(crate) fn equals_its_tape(&self, tape: &Path, case: &str) {
        let json = |record: &Record| serde_json::to_value(record).expect("a record is JSON");
        let mut again: Vec<Value> = Vec::new();
        let tape = fs::read_to_string(tape).expect("a tape");
        let tape = Tape::read(&tape).unwrap_or_else(|problem| panic!("{case}: no tape: {problem:?}"));
        tape.records(|record| again.push(json(&record)))
            .unwrap_or_else(|problem| panic!("{case}: not played: {problem:?}"));
        let first: Vec<Value> = self.records.iter().map(json).collect();
        let differs = first.iter().zip(&again).find(|(first, again)| first != again);
        assert_eq!(differs, None, "{case}: the tape differs");
        assert_eq!(first.len(), again.len(), "{case}: the tape has more or fewer events: {:?}", again.last());
    }
}
