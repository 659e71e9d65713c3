//! Checks that an agent in an untrusted workspace is started and addressed in the same way on every path: a cold run, a
//! warm one, a conversation, a run and a conversation over the host.
//!
//! The tests with real agents show that such an agent takes nothing from the workspace. They need not repeat that on
//! every path, because a fake agent shows here that all paths give it the same arguments, variables, files and requests.

use crate::attacks::host::AttackedHost;
use agentline::{Agentline, Pool, PoolOptions, RunRequest, Surface, Trust, detect::HostEnv};
use agentline_tests::{FakeStage, shown};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// An agent that a fake one replaces.
#[derive(Clone, Copy)]
struct Agent {
    name: &'static str,
    /// The variable that names its program.
    variable: &'static str,
    /// A file of a workspace that configures it, and its content.
    file: (&'static str, &'static str),
    /// The package beside its program, which tells its version.
    package: &'static str,
    /// The modes of the fake agent, if it needs those of this one.
    modes: &'static str,
}

// A fake agent does not confirm that it ignores a file, so this workspace has none.
const GEMINI: Agent =
    Agent { name: "gemini", variable: "GEMINI_CLI_PATH", file: ("notes.txt", "x"), package: "", modes: "" };

const CLAUDE: Agent = Agent {
    name: "claude",
    variable: "CLAUDE_AGENT_ACP_PATH",
    file: (".claude/settings.json", r#"{"env": {"HOSTILE": "1"}}"#),
    package: "",
    modes: "",
};

const CODEX: Agent = Agent {
    name: "codex",
    variable: "CODEX_ACP_PATH",
    file: (".codex/config.toml", "model = \"hostile\"\n"),
    // Only of this version is it known how to open a workspace without trust.
    package: r#"{"name": "@agentclientprotocol/codex-acp", "version": "2.6.0"}"#,
    modes: "agent,read-only,workspace-write,agent-full-access",
};

const OPENCODE: Agent = Agent {
    name: "opencode",
    variable: "OPENCODE_PATH",
    file: ("opencode.json", r#"{"permission": {"*": "allow"}}"#),
    package: "",
    modes: "build,plan",
};

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
    agent: Agent,
    program: PathBuf,
}

impl Recorded {
    fn new(agent: Agent) -> Self {
        let program = env!("CARGO_BIN_EXE_fake-acp");
        let stage = FakeStage::new(program);
        let path = stage.workspace().join(agent.file.0);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, agent.file.1).unwrap();
        if !agent.package.is_empty() {
            fs::write(stage.path().join("package.json"), agent.package).unwrap();
        }
        let (start, wrapper) = (stage.path().join("start"), stage.path().join("agent.sh"));
        let start = start.display();
        let modes = agent.modes;
        let modes = if modes.is_empty() { String::new() } else { format!("FAKE_ACP_MODES={modes}") };
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) exec '{program}' \"$@\";; esac\n\
             rm -rf '{start}'; mkdir '{start}'; echo \"$*\" > '{start}/arguments'; env > '{start}/variables'\n\
             for d in \"$TMPDIR\"/agentline-run-*; do cp -a \"$d\" '{start}/files'; done\n\
             {modes} FAKE_ACP_LOG='{start}/log' exec '{program}' \"$@\"\n"
        );
        fs::write(&wrapper, script).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
        Self { stage, agent, program: wrapper }
    }

    /// Returns the caller's variables, of which one names the agent's program.
    fn variables(&self) -> BTreeMap<String, String> {
        let mut variables = self.stage.variables();
        variables.insert(self.agent.variable.to_owned(), self.program.to_string_lossy().into_owned());
        variables
    }

    fn agentline(&self) -> Agentline {
        let stage = &self.stage;
        let env = HostEnv::new(self.variables(), stage.path().join("home"), stage.workspace());
        Agentline::new(env).program(self.agent.name, &self.program)
    }

    fn request(&self) -> RunRequest {
        let mut request = RunRequest::new("say hello")
            .agent(self.agent.name)
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
    // A title comes from the prompt, and a conversation is opened without one.
    let is_opening = method == "initialize"
        || method.starts_with("session/new")
        || (method.starts_with("session/set") && method != "session/set_title");
    let mut params = frame["params"].clone();
    params.as_object_mut()?.remove("sessionId");
    is_opening.then(|| json!([method, params]))
}

/// What a request adds, in the library and over the host.
type Variant = (fn(RunRequest) -> RunRequest, &'static str);

/// An untrusted workspace, a trusted one, and one with a rule that the agent or agentline enforces.
const VARIANTS: [Variant; 3] = [
    (|request| request, "{}"),
    (|request| request.trust(Trust::Full), r#"{"trust": "full"}"#),
    (|request| request.deny("Write(src/**)"), r#"{"deny": ["Write(src/**)"]}"#),
];

/// Asserts that all five paths start this agent in the same way.
async fn assert_same_starts(agent: Agent) {
    let recorded = Recorded::new(agent);
    let mut starts = Vec::new();
    for (tune, more) in VARIANTS {
        let is_done = |path: &str, verdict: &Value, shown: &str| {
            assert_eq!(verdict, "done", "{} {more} {path}: {shown}", agent.name);
        };
        let request = || tune(recorded.request());
        let cold = recorded.agentline().run(request()).await.unwrap().outcome().await;
        is_done("cold", &json!(cold.verdict), &shown(&cold));
        let expected = recorded.start();
        assert!(!expected.variables.is_empty() && expected.requests.len() > 1, "{expected:#?}");
        let same = |path: &str| {
            let (start, agent) = (recorded.start(), agent.name);
            assert_eq!(start.arguments, expected.arguments, "{agent} {more} {path}");
            assert_eq!(start.variables, expected.variables, "{agent} {more} {path}");
            assert_eq!(start.files, expected.files, "{agent} {more} {path}");
            assert_eq!(start.requests, expected.requests, "{agent} {more} {path}");
        };

        let pool = Pool::new(recorded.agentline(), PoolOptions::default());
        let warm = pool.run(request()).await.unwrap().outcome().await;
        pool.close().await;
        is_done("warm", &json!(warm.verdict), &shown(&warm));
        same("warm");

        let session = recorded.agentline().session(request()).await.unwrap();
        let outcome = session.prompt_with(request()).await.unwrap().outcome().await;
        session.close().await;
        is_done("conversation", &json!(outcome.verdict), &shown(&outcome));
        same("conversation");

        let mut params = json!({"agent": agent.name, "surface": "acp", "quiet_period_ms": 0,
            "working_dir": recorded.stage.workspace()});
        let more: Value = serde_json::from_str(more).unwrap();
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let host = || {
            AttackedHost::start(
                &recorded.variables(),
                (agent.variable, &recorded.program),
                recorded.stage.path(),
            )
        };
        let outcome = host().run(params.clone(), "say hello");
        is_done("host", &outcome["verdict"], &outcome.to_string());
        same("host");
        let outcome = host().converse(params, "say hello");
        is_done("conversation over the host", &outcome["verdict"], &outcome.to_string());
        same("conversation over the host");
        starts.push(expected);
    }
    // Trust makes a difference, which the comparison above would not show if it were lost on every path.
    assert!(
        agent.name == "gemini"
            || (starts[0].variables != starts[1].variables || starts[0].requests != starts[1].requests),
        "{}: {:#?}",
        agent.name,
        starts[0]
    );
}

#[tokio::test]
async fn every_path_starts_gemini_in_the_same_way() {
    assert_same_starts(GEMINI).await;
}

#[tokio::test]
async fn every_path_starts_claude_code_in_the_same_way() {
    assert_same_starts(CLAUDE).await;
}

#[tokio::test]
async fn every_path_starts_codex_in_the_same_way() {
    assert_same_starts(CODEX).await;
}

#[tokio::test]
async fn every_path_starts_opencode_in_the_same_way() {
    assert_same_starts(OPENCODE).await;
}
