//! The environment for one run of the fake agent, and checks that apply to every run.

use agentline::{
    Agentline, Event, Outcome, Record, RunRequest, Surface, detect::HostEnv, supervisor::Supervisor,
};
use agentline_tests::{running_with, survivors, wait_in_runtime, wait_until};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The agent's key, which no run may show.
pub(crate) const SECRET: &str = "AIzaSy-fault-0123456789-abcdefghij";

/// The content of every workspace before a run.
pub(crate) const EXISTING_FILE: (&str, &str) = ("kept.txt", "as it was\n");

/// Everything that one run needs. It is removed with the run.
pub(crate) struct HeadlessStage {
    dir: tempfile::TempDir,
}

/// The result of a run.
pub(crate) struct Played {
    pub(crate) records: Vec<Record>,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    pub(crate) tape: String,
}

impl HeadlessStage {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("agentline-fault-").tempdir().expect("a temporary folder");
        for name in ["home/.gemini/tmp", "home/.gemini/history", "ws", "tmp"] {
            fs::create_dir_all(dir.path().join(name)).expect("a folder");
        }
        let settings = r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#;
        fs::write(dir.path().join("home/.gemini/settings.json"), settings).expect("settings");
        fs::write(dir.path().join("ws").join(EXISTING_FILE.0), EXISTING_FILE.1).expect("a file");
        Self { dir }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    pub(crate) fn tape(&self) -> PathBuf {
        self.dir.path().join("run.tape")
    }

    /// Returns the file to which the children of a fault write their ids.
    pub(crate) fn pids(&self) -> PathBuf {
        self.dir.path().join("pids")
    }

    pub(crate) fn agentline(&self) -> Agentline {
        let env = BTreeMap::from([
            ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
            ("HOME".to_owned(), self.dir.path().join("home").to_string_lossy().into_owned()),
            ("TMPDIR".to_owned(), self.dir.path().join("tmp").to_string_lossy().into_owned()),
        ]);
        let host_env = HostEnv::new(env, self.dir.path().join("home"), self.workspace());
        Agentline::new(host_env)
            .program("gemini", env!("CARGO_BIN_EXE_fake-gemini"))
            .supervisor(Supervisor::Path(env!("CARGO_BIN_EXE_supervised-host").into()))
    }

    /// Returns a request for a fault. The parameters `dir` and `pid_file` are filled in if they are `true`.
    pub(crate) fn request(&self, surface: Surface, fault: &str, args: &Value) -> RunRequest {
        let mut args = args.clone();
        for (name, path) in [("dir", self.workspace()), ("pid_file", self.pids())] {
            if args.get(name) == Some(&Value::Bool(true)) {
                args[name] = path.to_string_lossy().into();
            }
        }
        RunRequest::new("What is 2 + 2? Write it down.")
            .surface(surface)
            .model("gemini-2.5-flash")
            .api_key(SECRET)
            .working_dir(self.workspace())
            .env("FAKE_AGENT_FAULT", fault)
            .env("FAKE_AGENT_ARGS", args.to_string())
            .timeout(Duration::from_secs(60))
            .record(self.tape())
            .agent_option("extensions", Vec::<String>::new())
    }

    /// Runs to the end and makes the checks that apply to every run.
    pub(crate) async fn play(&self, request: RunRequest) -> Played {
        let home = listing(&self.dir.path().join("home/.gemini"));
        let began = Instant::now();
        let mut run = self.agentline().run(request).await.expect("the request is valid");
        let id = run.id().to_owned();
        let mut records = Vec::new();
        while let Some(record) = run.next().await {
            records.push(record);
        }
        let took = began.elapsed();
        wait_in_runtime("the end of the run's processes", || survivors(&id).is_empty()).await;
        let path = self.pids().to_string_lossy().into_owned();
        wait_in_runtime("the end of the children", || running_with(&path).is_empty()).await;
        let Some(Event::Outcome { outcome }) = records.last().map(|r| r.event.clone()) else {
            panic!("the outcome is not the last event: {:?}", records.last());
        };
        assert_eq!(listing(&self.dir.path().join("home/.gemini")), home, "the user's files are unchanged");
        assert_eq!(
            listing(&self.dir.path().join("tmp")),
            BTreeSet::new(),
            "the temporary directory is empty"
        );
        let tape =
            fs::read(self.tape()).map(|t| String::from_utf8_lossy(&t).into_owned()).unwrap_or_default();
        let played = Played { records, outcome: *outcome, took, tape };
        played.check();
        played
    }

    /// Asserts that no child of a fault is alive, including those that cleared their environment.
    pub(crate) fn no_child_lives(&self) {
        // Each has the path on its command line. The pids in the file are those of another namespace.
        let path = self.pids().to_string_lossy().into_owned();
        wait_until("the end of the children", || running_with(&path).is_empty());
    }
}

impl Played {
    pub(crate) fn texts(&self) -> Vec<&str> {
        let texts = self.records.iter().filter_map(|r| match &r.event {
            Event::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Returns the numbers and lengths of the lines of standard output that could not be read.
    pub(crate) fn unreadable(&self) -> Vec<(u64, u64)> {
        let lines = self.records.iter().filter_map(|r| match &r.event {
            Event::Unreadable { length, .. } => Some((r.line.unwrap_or(0), *length)),
            _ => None,
        });
        lines.collect()
    }

    pub(crate) fn warned(&self, code: &str) -> bool {
        self.outcome.warnings.iter().any(|w| w.code == code)
    }

    /// Checks that apply to every run.
    fn check(&self) {
        let outcomes = self.records.iter().filter(|r| matches!(r.event, Event::Outcome { .. })).count();
        assert_eq!(outcomes, 1, "exactly one outcome");
        let starts = self.records.iter().map(|r| matches!(r.event, Event::Started(_)));
        assert!(starts.eq((0..self.records.len()).map(|at| at == 0)), "`started` is the first event, once");
        assert!(
            self.records.iter().enumerate().all(|(i, r)| r.seq as usize == i + 1),
            "numbered without a gap"
        );
        assert!(self.records.is_sorted_by_key(|r| r.at_ms), "in order of time");
        let mut open: BTreeMap<&str, u32> = BTreeMap::new();
        for record in &self.records {
            match &record.event {
                Event::ToolUse(tool) => {
                    assert_eq!(open.insert(&tool.id, 0), None, "a call is reported once: {}", tool.id);
                }
                Event::ToolResult(result) => {
                    let tool_use_id = &result.tool_use_id;
                    assert!(
                        open.remove(tool_use_id.as_str()).is_some(),
                        "a result without a call: {tool_use_id}"
                    );
                }
                _ => {}
            }
        }
        assert_eq!(open, BTreeMap::new(), "calls without a result");
        self.shows_no_secret();
    }

    fn shows_no_secret(&self) {
        assert!(!self.texts().concat().contains(SECRET), "the secret is in the joined text");
        for record in &self.records {
            let json = serde_json::to_string(record).expect("a record is JSON");
            assert!(!shows(&json), "the secret is in an event: {}", agentline_core::sample(&json));
        }
        // The chunks on the tape must not give the secret when they are joined either.
        let mut joined = String::new();
        for line in self.tape.lines() {
            assert!(!shows(line), "the secret is on the tape: {}", agentline_core::sample(line));
            let inner = serde_json::from_str::<Value>(line).ok();
            let inner =
                inner.and_then(|v| v["text"].as_str().and_then(|t| serde_json::from_str::<Value>(t).ok()));
            if let Some(content) = inner.as_ref().and_then(|i| i["content"].as_str()) {
                joined.push_str(content);
            }
        }
        assert!(!joined.contains(SECRET), "the secret is on the tape in pieces");
    }
}

/// Returns whether a text shows the secret, in plain or escaped form.
fn shows(text: &str) -> bool {
    text.contains(SECRET)
        || (text.contains("\\u00") && {
            let plain: String = SECRET.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
            text.replace("\\\\", "\\").contains(&plain)
        })
}

/// Waits for the end of processes that are being killed. Those that are not would sleep for much longer.
pub(crate) fn nothing_runs(mark: &str) {
    wait_until("the end of the run's processes", || survivors(mark).is_empty());
}

/// Returns every path below a directory.
fn listing(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            found.insert(entry.path());
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found
}
