//! The real agents as clients of `agentline mcp`, started as a user starts them: each starts other agents and gets their
//! answers and files, and what it started ends with it.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod settings;

use agentline_mock::{
    agents::ServedRequest,
    answer::{Action, Answer},
};
use agentline_tests::{ScriptedStage, exit_of, output_of, running_with, skipped, unique_tag, wait_until};
use serde_json::{Value, json};
use settings::{ClientSettings, ServerCommand};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_agentline-under-test");
const FAKE: &str = env!("CARGO_BIN_EXE_fake-acp");
/// The mark of the client's prompt.
const OUTER: &str = "[outer]";
/// The last answer of a client.
const FAREWELL: &str = "The other agents are done.";
/// The answer of the first inner agent.
const ANSWER: &str = "kumquat from within";
/// The variable whose value marks the processes of one client.
const MARK: &str = "MARK_OF_THE_CLIENT";

/// The agents that are clients, and how each is configured. The agent that a client starts first is another process of the
/// same one.
const CLIENTS: &[(&str, ClientSettings)] = &[
    ("gemini", settings::GEMINI),
    ("claude", settings::CLAUDE),
    ("codex", settings::CODEX),
    ("opencode", settings::OPENCODE),
];

/// A client with its model, its settings and the mark of its processes.
struct Client {
    id: &'static str,
    stage: ScriptedStage,
    settings: ClientSettings,
    mark: String,
}

impl Client {
    /// Creates a client whose model answers like this. Returns `None` if real agents are disabled.
    fn new(
        id: &'static str,
        settings: ClientSettings,
        respond: impl Fn(&ServedRequest, &Path) -> Answer + Send + Sync + 'static,
    ) -> Option<Self> {
        let workspace = Arc::new(OnceLock::<PathBuf>::new());
        let known = Arc::clone(&workspace);
        let stage = ScriptedStage::new(id, move |request| respond(request, known.get().unwrap()))?;
        workspace.set(stage.workspace()).unwrap();
        let config = stage.home().join(".config/agentline");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("config.toml"), format!("[agents.fake]\ncommand = {FAKE:?}\n")).unwrap();
        let mark = format!("client-{}", unique_tag());
        let client = Self { id, stage, settings, mark };
        (settings.write)(&client.stage.home(), &client.server());
        Some(client)
    }

    /// Returns the command of the server. Its calls take at most one second instead of 45, so the run of ten minutes is
    /// one of 13 seconds.
    fn server(&self) -> ServerCommand {
        let root = self.stage.workspace().to_string_lossy().into_owned();
        let args = ["mcp", "--permission-mode", "bypass", "--max-wait", "1s", "--root", &root];
        let known = self.stage.command(Path::new(PROGRAM));
        let mut env: Vec<(String, String)> = known
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.to_owned())))
            .collect();
        env.push((MARK.to_owned(), self.mark.clone()));
        env.push(("AGENTLINE_PASS_ENV".to_owned(), "*".to_owned()));
        env.push(("AGENTLINE_QUIET_PERIOD_MS".to_owned(), "0".to_owned()));
        ServerCommand { program: PROGRAM.into(), args: args.map(str::to_owned).into(), env }
    }

    /// Starts the client with its own program, without agentline around it.
    fn start(&self) -> Child {
        let prompt = format!("{OUTER} Let other agents do it.");
        let mut command: Command = self.stage.command(&self.stage.program);
        command.args((self.settings.args)(&self.stage.home(), &prompt)).env(MARK, &self.mark);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Returns what the tools returned to the client, in the last request of its own conversation.
    fn results(&self) -> Vec<String> {
        let log = self.stage.model.log();
        let own = log.into_iter().filter(|request| request.is_turn && is_outer(request));
        own.map(|request| request.tool_results).max_by_key(Vec::len).unwrap_or_default()
    }

    /// Returns the process of the server and that of the client, which started it.
    fn server_and_parent(&self) -> (u32, u32) {
        let living = self.living();
        let mut servers = running_with("\0mcp\0--permission-mode\0");
        servers.retain(|pid| living.contains(pid));
        // The supervisors of the agents are children of the server with the same command line.
        let found =
            servers.iter().map(|pid| (*pid, parent(*pid))).find(|(_, parent)| !servers.contains(parent));
        found
            .filter(|(_, parent)| living.contains(parent))
            .unwrap_or_else(|| panic!("{}: {servers:?}", self.id))
    }

    /// Returns the processes of the client and of everything that it started.
    fn living(&self) -> Vec<u32> {
        agentline_tests::survivors(&self.mark)
    }
}

fn is_outer(request: &ServedRequest) -> bool {
    request.user_texts.iter().any(|text| text.contains(OUTER))
}

fn call(tool: &str, args: Value) -> Answer {
    Answer::using(Action::mcp("agents", tool, args))
}

/// Returns the argument with which a result asks for a further wait.
fn since(result: &str) -> Option<u64> {
    let (_, rest) = result.split_once("since_s ")?;
    rest.split(' ').next()?.parse().ok()
}

/// The model of a client that starts three agents: a fast one, one that works for long, and one that is refused.
fn three_agents(first: &'static str) -> impl Fn(&ServedRequest, &Path) -> Answer {
    move |request, workspace| {
        let results = &request.tool_results;
        if !is_outer(request) {
            let made = workspace.join("made.txt");
            return match results.len() {
                0 if request.is_turn => Answer::using(Action::write(made.to_string_lossy(), "made\n")),
                _ => Answer::text(ANSWER),
            };
        }
        let has = |text: &str| results.iter().any(|result| result.contains(text));
        let Some(last) = results.last().filter(|_| request.is_turn) else {
            let prompt = format!("tool write_file made.txt made\nsay {ANSWER}");
            return call("agent_run", json!({"agent": first, "prompt": prompt}));
        };
        if has("is not in the directories") {
            return Answer::text(FAREWELL);
        }
        if let Some(since) = since(last) {
            let run = if has("run-2") { "run-2" } else { "run-1" };
            return call("agent_wait", json!({"run": run, "since_s": since}));
        }
        if has("run-2") {
            return call("agent_run", json!({"agent": "fake", "prompt": "say never", "cwd": "/"}));
        }
        call("agent_run", json!({"agent": "fake", "prompt": "say begun\nsleep 13300\nsay , ended"}))
    }
}

fn starts_agents(id: &'static str, settings: ClientSettings) {
    let Some(client) = Client::new(id, settings, three_agents(id)) else { return skipped(id) };
    let started = Instant::now();
    let output = output_of(client.start(), "the end of the client");
    let shown = format!(
        "{id} after {:?}: {}\n{}\n{}\n{:#?}",
        started.elapsed(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        client.results()
    );
    assert!(output.status.success(), "{shown}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(FAREWELL), "{shown}");
    let results = client.results();
    let fast = results.iter().any(|result| result.contains(ANSWER) && result.contains("made.txt"));
    assert!(fast, "the answer and the file of the fast agent: {shown}");
    let made = fs::read_to_string(client.stage.workspace().join("made.txt")).unwrap_or_default();
    assert_eq!(made.trim(), "made", "{shown}");
    let waits = results.iter().filter(|result| result.contains("run-2") && since(result).is_some()).count();
    assert!(waits >= 2, "{waits} calls ended before the long run: {shown}");
    assert!(results.iter().any(|result| result.contains("begun, ended")), "the long run: {shown}");
    assert!(results.last().unwrap().contains("`cwd`"), "the refused run: {shown}");
    assert!(!results.iter().any(|result| result.contains("run-3")), "{shown}");
    wait_until("the end of all processes", || client.living().is_empty());
}

/// A client that is killed while two agents work for it.
fn is_killed(id: &'static str, settings: ClientSettings) {
    let tag = format!("6{}", unique_tag());
    let script = format!("say up\nrun sleep {tag}");
    let respond = move |request: &ServedRequest, _: &Path| match request.tool_results.len() {
        0 if request.is_turn => call("agent_start", json!({"agent": "fake", "prompt": &script})),
        1 if request.is_turn => call("agent_run", json!({"agent": "fake", "prompt": &script})),
        calls @ 2.. if request.is_turn => call("agent_wait", json!({"run": "run-2", "since_s": calls})),
        _ => Answer::text(FAREWELL),
    };
    let Some(client) = Client::new(id, settings, respond) else { return skipped(id) };
    let mut child = client.start();
    let sleeping = format!("sleep\0{tag}");
    wait_until("the commands of both agents", || running_with(&sleeping).len() == 2);
    // Only the process that speaks MCP is killed, so that nothing but the end of its input ends the server.
    let (server, killed) = client.server_and_parent();
    let killed_at = Instant::now();
    assert!(Command::new("kill").args(["-9", &killed.to_string()]).status().unwrap().success());
    wait_until("the end of the agents", || running_with(&sleeping).is_empty());
    wait_until("the end of the server", || !client.living().contains(&server));
    let took = killed_at.elapsed();
    // The launchers of some clients outlive the client for a moment.
    exit_of(&mut child, "the end of the client");
    wait_until("the end of all processes", || client.living().is_empty());
    assert!(took < Duration::from_secs(45), "{id}: the agents ended {took:?} after their client");
}

fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// The clients run side by side, because each mostly waits for its own start.
fn for_each_client(case: fn(&'static str, ClientSettings)) {
    std::thread::scope(|scope| {
        for (id, settings) in CLIENTS {
            scope.spawn(move || case(id, *settings));
        }
    });
}

#[test]
fn each_client_starts_a_fast_a_long_and_a_refused_agent() {
    for_each_client(starts_agents);
}

#[test]
fn agents_end_with_each_killed_client() {
    for_each_client(is_killed);
}
