//! Checks that an agent in an untrusted workspace is started and addressed in the same way on every path: a cold run, a
//! warm one, a conversation, a run and a conversation over the host.
//!
//! The tests with real agents show that such an agent takes nothing from the workspace. They need not repeat that on
//! every path, because a fake agent shows here that all paths give it the same arguments, variables, files and requests.

use crate::host::Host;
use agentline::{Agentline, Pool, PoolOptions, RunRequest, Surface, detect::HostEnv};
use agentline_tests::{FakeStage, shown};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// An agent, the variable that names its program, and a file of a workspace that configures it.
/// The fake agent has the modes of these two.
const AGENTS: [(&str, &str, &str, &str); 2] = [
    // A fake agent does not confirm that it ignores a file, so this workspace has none.
    ("gemini", "GEMINI_CLI_PATH", "notes.txt", "x"),
    ("claude", "CLAUDE_AGENT_ACP_PATH", ".claude/settings.json", r#"{"env": {"HOSTILE": "1"}}"#),
];

/// The start of an agent: its arguments, its variables, the files that were written for it, and the requests it got.
#[derive(Debug)]
struct AgentStart {
    arguments: String,
    variables: BTreeSet<String>,
    files: BTreeMap<PathBuf, String>,
    requests: Vec<Value>,
}

/// An agent that records how it is started.
struct Recorded {
    stage: FakeStage,
    agent: (&'static str, &'static str),
    program: PathBuf,
}

impl Recorded {
    fn new((name, variable, file, text): (&'static str, &'static str, &str, &str)) -> Self {
        let program = env!("CARGO_BIN_EXE_fake-acp");
        let stage = FakeStage::new(program);
        let path = stage.workspace().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let (start, wrapper) = (stage.path().join("start"), stage.path().join("agent.sh"));
        let start = start.display();
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) exec '{program}' \"$@\";; esac\n\
             rm -rf '{start}'; mkdir '{start}'; echo \"$*\" > '{start}/arguments'; env > '{start}/variables'\n\
             for d in \"$TMPDIR\"/agentline-run-*; do cp -a \"$d\" '{start}/files'; done\n\
             FAKE_ACP_LOG='{start}/log' exec '{program}' \"$@\"\n"
        );
        fs::write(&wrapper, script).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
        Self { stage, agent: (name, variable), program: wrapper }
    }

    /// Returns the caller's variables, of which one names the agent's program.
    fn variables(&self) -> BTreeMap<String, String> {
        let mut variables = self.stage.variables();
        variables.insert(self.agent.1.to_owned(), self.program.to_string_lossy().into_owned());
        variables
    }

    fn agentline(&self) -> Agentline {
        let stage = &self.stage;
        let env = HostEnv::new(self.variables(), stage.path().join("home"), stage.workspace());
        Agentline::new(env).program(self.agent.0, &self.program)
    }

    fn request(&self) -> RunRequest {
        let mut request = RunRequest::new("say hello")
            .agent(self.agent.0)
            .surface(Surface::Acp)
            .working_dir(self.stage.workspace());
        request.quiet_period = Some(std::time::Duration::ZERO);
        request
    }

    /// Returns the last start, without what differs between any two runs: ids, the name of the private directory, and
    /// the directory in which a process is started before it has a workspace.
    fn start(&self) -> AgentStart {
        let at = |name: &str| self.stage.path().join("start").join(name);
        let text = |name: &str| fs::read_to_string(at(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let variables = text("variables");
        let own = without_ids(&private_name(&variables));
        let plain = |text: &str| {
            let text = without_ids(text);
            if own.is_empty() { text } else { text.replace(&own, "PRIVATE") }
        };
        let is_fixed =
            |line: &&str| !["PWD=", "OLDPWD=", "SHLVL=", "_="].iter().any(|name| line.starts_with(name));
        let mut files = BTreeMap::new();
        read_below(&at("files"), Path::new(""), &mut files);
        let requests = text("log").lines().filter_map(|line| opening(&plain(line))).collect();
        AgentStart {
            arguments: plain(&text("arguments")),
            variables: variables.lines().filter(is_fixed).map(&plain).collect(),
            files: files.into_iter().map(|(path, text)| (path, plain(&text))).collect(),
            requests,
        }
    }
}

/// Replaces every UUID in a text.
fn without_ids(text: &str) -> String {
    let is_id = |part: &str| {
        let has_dash = |at: usize| [8, 13, 18, 23].contains(&at);
        part.bytes()
            .enumerate()
            .all(|(at, byte)| if has_dash(at) { byte == b'-' } else { byte.is_ascii_hexdigit() })
    };
    let (mut out, mut rest) = (String::new(), text);
    while let Some(next) = rest.chars().next() {
        match rest.get(..36).filter(|part| is_id(part)) {
            Some(part) => {
                out.push_str("UUID");
                rest = &rest[part.len()..];
            }
            None => {
                out.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    out
}

/// Returns the name of the private directory of a run, or an empty text.
fn private_name(variables: &str) -> String {
    let from = variables.find("agentline-run-").map(|at| &variables[at..]).unwrap_or_default();
    from.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).collect()
}

/// Reads the files below a directory. A link is read as its target.
fn read_below(folder: &Path, name: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), name.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            files.insert(name, format!("link to {}", fs::read_link(path).unwrap().display()));
        } else if kind.is_dir() {
            read_below(&path, &name, files);
        } else {
            files.insert(name, String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
        }
    }
}

/// Returns a logged request that opens or configures a session, without its ids.
fn opening(line: &str) -> Option<Value> {
    let frame: Value = serde_json::from_str(&line[line.find('{')?..]).ok()?;
    let method = frame["method"].as_str()?;
    let is_opening =
        method == "initialize" || method.starts_with("session/new") || method.starts_with("session/set");
    let mut params = frame["params"].clone();
    params.as_object_mut()?.remove("sessionId");
    is_opening.then(|| json!([method, params]))
}

#[tokio::test]
async fn every_path_starts_an_agent_in_the_same_way() {
    for agent in AGENTS {
        let recorded = Recorded::new(agent);
        let is_done = |path: &str, verdict: &Value, shown: &str| {
            assert_eq!(verdict, "done", "{} {path}: {shown}", agent.0);
        };
        let cold = recorded.agentline().run(recorded.request()).await.unwrap().outcome().await;
        is_done("cold", &json!(cold.verdict), &shown(&cold));
        let expected = recorded.start();
        assert!(!expected.variables.is_empty() && expected.requests.len() > 1, "{expected:#?}");
        let same = |path: &str| {
            let (start, agent) = (recorded.start(), agent.0);
            assert_eq!(start.arguments, expected.arguments, "{agent} {path}");
            assert_eq!(start.variables, expected.variables, "{agent} {path}");
            assert_eq!(start.files, expected.files, "{agent} {path}");
            assert_eq!(start.requests, expected.requests, "{agent} {path}");
        };

        let pool = Pool::new(recorded.agentline(), PoolOptions::default());
        let warm = pool.run(recorded.request()).await.unwrap().outcome().await;
        pool.close().await;
        is_done("warm", &json!(warm.verdict), &shown(&warm));
        same("warm");

        let session = recorded.agentline().session(recorded.request()).await.unwrap();
        let told = session.prompt_with(recorded.request()).await.unwrap().outcome().await;
        session.close().await;
        is_done("conversation", &json!(told.verdict), &shown(&told));
        same("conversation");

        let params = json!({"agent": agent.0, "surface": "acp", "quiet_period_ms": 0,
            "working_dir": recorded.stage.workspace()});
        let host = || {
            Host::start(&recorded.variables(), (recorded.agent.1, &recorded.program), recorded.stage.path())
        };
        let told = host().run(params.clone(), "say hello");
        is_done("host", &told["verdict"], &told.to_string());
        same("host");
        let told = host().converse(params, "say hello");
        is_done("conversation over the host", &told["verdict"], &told.to_string());
        same("conversation over the host");
    }
}
