//! Real conversations over ACP, recorded with a scripted model and replayed with our own requests. A recorded reply is
//! fed once the connection has sent the matching request.

use super::harness::{AcpHarness, capabilities, gemini};
use crate::play::Player;
use agentline_core::{
    ConnectionOutput, DialogueConfig, ExitReason, HostRequestId, HostResponse, InputKind, PermissionDecision,
    RunId, SessionTarget, Signal, Stream, Surface, TurnSpec, acp_dialogue,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// One recorded conversation.
pub(crate) struct Recorded {
    /// `agent/name`.
    pub(crate) name: String,
    pub(crate) agent: String,
    pub(crate) lines: Vec<RecordedLine>,
}

/// One recorded message.
#[derive(Clone, Debug)]
pub(crate) struct RecordedLine {
    ms: u64,
    dir: String,
    msg: Value,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// Returns every recorded conversation, sorted by name.
pub(crate) fn all() -> Vec<Recorded> {
    let mut found: Vec<Recorded> =
        ["gemini", "opencode", "claude", "codex"].into_iter().flat_map(of_agent).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(found.len() > 45, "only {} recordings were found", found.len());
    found
}

pub(crate) fn find(name: &str) -> Recorded {
    all().into_iter().find(|r| r.name == name).unwrap_or_else(|| panic!("recording {name} is missing"))
}

fn of_agent(agent: &'static str) -> impl Iterator<Item = Recorded> {
    let files = std::fs::read_dir(root().join(agent).join("acp")).expect("the recordings exist");
    files.map(move |file| {
        let path = file.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("the file is readable");
        let lines = text.lines().map(|line| {
            let mut entry: Value = serde_json::from_str(line).expect("a line is JSON");
            RecordedLine {
                ms: entry["ms"].as_u64().expect("a time"),
                dir: entry["dir"].as_str().expect("a direction").to_owned(),
                msg: entry["msg"].take(),
            }
        });
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a plain name");
        Recorded { name: format!("{agent}/{stem}"), agent: agent.to_owned(), lines: lines.collect() }
    })
}

/// Replays recordings and maps recorded requests to those of the connection.
pub(crate) struct Replay {
    pub(crate) harness: AcpHarness,
    /// Recorded request ids and those of the connection.
    ids: BTreeMap<String, Value>,
    /// The agent's requests by id, with the options offered.
    requests: BTreeMap<String, (HostRequestId, Value)>,
    /// The last run in each session.
    last: BTreeMap<String, RunId>,
    pub(crate) runs: u32,
    /// Runs that only opened a session.
    pub(crate) openers: Vec<RunId>,
    damage: Option<Damage>,
}

/// A function that damages a line before it is fed.
pub(crate) type Damage = Box<dyn FnMut(String) -> Vec<String>>;

impl Recorded {
    /// Returns the agent's messages with this method.
    pub(crate) fn messages(&self, method: &str) -> Vec<Value> {
        let is_of = |line: &&RecordedLine| line.dir == "<-" && line.msg["method"] == method;
        self.lines.iter().filter(is_of).map(|line| line.msg.clone()).collect()
    }

    pub(crate) fn play(&self) -> Replay {
        self.play_with(None)
    }

    /// Creates a connection for its agent, with the capabilities that the recorder offered.
    pub(crate) fn harness(&self) -> AcpHarness {
        let can = self.lines.iter().find(|l| l.msg["method"] == "initialize");
        let fs = |name: &str| can.is_some_and(|l| l.msg["params"]["clientCapabilities"]["fs"][name] == true);
        let mut dialogue = DialogueConfig::new(Surface::Acp, None);
        (dialogue.read_files, dialogue.write_files) = (fs("readTextFile"), fs("writeTextFile"));
        // This agent had a turn limit in its settings.
        dialogue.agent_max_turns = (self.name == "gemini/loop_and_maxturns").then_some(3);
        // Recordings of other agents use the generic dialogue, to show how well an unknown agent is understood.
        AcpHarness::with(if self.agent == "gemini" { gemini(&dialogue) } else { acp_dialogue(&dialogue) })
    }

    /// Replays the conversation, changing every line of stdout.
    pub(crate) fn play_with(&self, damage: Option<Damage>) -> Replay {
        let can = self.lines.iter().find(|l| l.msg["method"] == "initialize");
        let mut replay = Replay {
            harness: self.harness(),
            ids: BTreeMap::new(),
            requests: BTreeMap::new(),
            last: BTreeMap::new(),
            runs: 0,
            openers: Vec::new(),
            damage,
        };
        if can.is_none() {
            // This recording has no handshake, but the connection always sends one.
            replay.harness.reply("initialize", &capabilities("0.61.0"));
        }
        for line in &self.lines {
            replay.entry(line);
        }
        replay.finish();
        replay
    }
}

impl Replay {
    /// Wraps a player with its outputs so far.
    pub(crate) fn of(player: Player, runs: u32) -> Self {
        Self {
            harness: AcpHarness::of(player),
            ids: BTreeMap::new(),
            requests: BTreeMap::new(),
            last: BTreeMap::new(),
            runs,
            openers: Vec::new(),
            damage: None,
        }
    }

    fn entry(&mut self, entry: &RecordedLine) {
        let player = &mut self.harness.player;
        if entry.ms > player.now {
            player.wait(entry.ms - player.now);
        }
        match &*entry.dir {
            "->" => self.ours(&entry.msg),
            "<-" => self.theirs(&entry.msg),
            "stderr" => {
                for line in entry.msg.as_str().unwrap_or_default().lines() {
                    self.harness.player.stderr(line);
                }
            }
            "exit" => {
                let code = entry.msg["code"].as_i64().and_then(|c| i32::try_from(c).ok());
                self.harness.player.exit(code.map_or(ExitReason::Signal(9), ExitReason::Code));
            }
            _ => {}
        }
    }

    /// Converts a message of the recorder to an order, a cancellation or an answer.
    fn ours(&mut self, msg: &Value) {
        self.probes();
        let session = msg["params"]["sessionId"].as_str().unwrap_or_default().to_owned();
        let mut spec = TurnSpec::default();
        spec.collect_changes = true;
        spec.info.agent = "agent".into();
        spec.info.cwd = msg["params"]["cwd"].as_str().unwrap_or("/ws").to_owned();
        match msg["method"].as_str() {
            Some("initialize") if !self.ids.values().any(|id| *id == json!(0)) => {
                self.harness.frames();
                self.ids.insert(msg["id"].to_string(), json!(0));
            }
            Some("session/new") => {
                spec.only_open = true;
                self.spec(spec, msg);
            }
            Some("session/load") => {
                spec.only_open = true;
                spec.session = SessionTarget::Load(session);
                self.spec(spec, msg);
            }
            Some("session/prompt") => {
                let texts = msg["params"]["prompt"].as_array().cloned().unwrap_or_default();
                spec.prompt = texts.iter().filter_map(|b| b["text"].as_str()).collect();
                spec.session = SessionTarget::Open(session);
                self.spec(spec, msg);
            }
            Some("session/cancel") => {
                if let Some(run) = self.last.get(&session) {
                    self.harness.player.take(InputKind::Cancel { run: *run, signal: Signal::Interrupt });
                }
            }
            Some(_) => {}
            None => self.answer(msg),
        }
    }

    fn spec(&mut self, spec: TurnSpec, msg: &Value) {
        self.runs += 1;
        let run = RunId(self.runs);
        if spec.only_open {
            self.openers.push(run);
        }
        if let SessionTarget::Open(session) | SessionTarget::Load(session) = &spec.session {
            self.last.insert(session.clone(), run);
        }
        self.harness.player.prompt_as(run, spec);
        for frame in self.harness.frames() {
            if frame["method"] == msg["method"] {
                self.ids.insert(msg["id"].to_string(), frame["id"].clone());
            }
        }
    }

    fn answer(&mut self, msg: &Value) {
        let Some((ask, offered)) = self.requests.remove(&msg["id"].to_string()) else { return };
        let result = &msg["result"];
        let chosen = &result["outcome"]["optionId"];
        let kind = offered.as_array().into_iter().flatten().find(|o| o["optionId"] == *chosen);
        let allows = kind.and_then(|o| o["kind"].as_str()).is_some_and(|k| k.starts_with("allow"));
        let answer = match (&result["content"], &result["outcome"], &msg["error"]) {
            (Value::String(text), ..) => HostResponse::Text(text.clone()),
            (_, Value::Object(_), _) if allows => {
                HostResponse::PermissionDecided(PermissionDecision::allow("test"))
            }
            (_, Value::Object(_), _) => {
                HostResponse::PermissionDecided(PermissionDecision::deny("test", "said_no"))
            }
            (_, _, Value::Object(error)) if offered.is_null() => {
                HostResponse::Error(error["message"].as_str().unwrap_or_default().to_owned())
            }
            (_, _, Value::Object(_)) => {
                HostResponse::PermissionDecided(PermissionDecision::deny("test", "said_no"))
            }
            _ => HostResponse::Done,
        };
        self.harness.answer(ask, answer);
    }

    /// Feeds a message of the agent.
    fn theirs(&mut self, msg: &Value) {
        let mut msg = msg.clone();
        if msg["method"].is_null() {
            // Replies to requests that the connection would not send are skipped.
            let Some(ours) = self.ids.get(&msg["id"].to_string()) else { return };
            msg["id"] = ours.clone();
        }
        let from = self.harness.player.out.len();
        self.feed(&msg);
        if !msg["method"].is_null() && !msg["id"].is_null() {
            let asked = self.harness.player.out[from..].iter().find_map(|o| match o {
                ConnectionOutput::Ask(_, id, _) => Some(*id),
                _ => None,
            });
            if let Some(ask) = asked {
                self.requests.insert(msg["id"].to_string(), (ask, msg["params"]["options"].clone()));
            }
        }
        // The reply to a request contains the id of a new session.
        if let Some(session) = msg["result"]["sessionId"].as_str() {
            self.last.entry(session.to_owned()).or_insert(RunId(self.runs));
        }
    }

    fn feed(&mut self, msg: &Value) {
        let line = msg.to_string();
        let lines = match &mut self.damage {
            Some(damage) => damage(line),
            None => vec![line],
        };
        for line in lines {
            self.harness.player.line(Stream::Stdout, &line);
        }
    }

    /// Replies to requests that only the connection sends.
    fn probes(&mut self) {
        for _ in 0..20 {
            let frames = self.harness.frames();
            let probes: Vec<_> = frames.into_iter().filter(|f| f["method"] == "session/set_mode").collect();
            if probes.is_empty() {
                return;
            }
            for probe in probes {
                self.harness.send(&json!({"jsonrpc": "2.0", "id": probe["id"], "result": {}}));
            }
        }
    }

    /// Ends the replay. If the recording stopped early, time advances to the end.
    fn finish(&mut self) {
        self.probes();
        self.harness.player.take(InputKind::Retire);
        self.harness.player.ticks_to_the_end();
    }
}
