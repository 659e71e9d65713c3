//! Tests `agentline pool` and `run --warm` on the command line, with a fake agent.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline_tests::{FakeStage, copy_program, exit_of, output_of, wait_until};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

/// The user id of the unprivileged user if the tests run as root.
const NOBODY: u32 = 65534;

/// A user with a daemon, which always ends with the test.
struct User {
    stage: FakeStage,
}

struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.agentline(&["pool", "stop"]).output();
    }
}

impl User {
    fn new() -> Self {
        Self { stage: FakeStage::new(env!("CARGO_BIN_EXE_fake-acp")) }
    }

    fn with_daemon(args: &[&str]) -> Self {
        let user = Self::new();
        let started = user.done(&[&["pool", "start"], args].concat());
        assert_eq!(started.code, Some(0), "{}", started.err);
        user
    }

    fn agentline(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
        command.args(args).env_clear().envs(self.stage.variables()).current_dir(self.stage.workspace());
        // Agents report their own pids here, which are compared with each other and with those of the pool.
        command.env("AGENTLINE_ISOLATION", "none");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn done(&self, args: &[&str]) -> Done {
        let Output { status, stdout, stderr } = self.agentline(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Done { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// Returns the arguments of every run in these tests. Its agent has the mark of the test.
    fn run_args<'a>(flags: &[&'a str], script: &'a str) -> Vec<&'a str> {
        let common = ["run", "--pass-env", "MARK_OF_THE_TEST", "--quiet-period", "0"];
        common.iter().chain(flags).copied().chain([script]).collect()
    }

    fn run(&self, flags: &[&str], script: &str) -> Done {
        self.done(&Self::run_args(flags, script))
    }

    fn warm(&self, script: &str) -> Done {
        self.run(&["--warm", "--surface", "acp", "--permission-mode", "bypass"], script)
    }

    fn spawn(&self, flags: &[&str], script: &str) -> Child {
        self.agentline(&Self::run_args(flags, script)).spawn().unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.done(&["pool", "status", "-o", "json"]).out).unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.stage.path().join("home/.cache/agentline/run/pool.sock")
    }

    fn nothing_lives(&self) {
        wait_until("the end of all processes", || self.stage.living().is_empty());
    }
}

fn signal(pid: &str, name: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}

fn pid_of(done: &Done) -> u64 {
    let state: Value =
        serde_json::from_str(done.out.trim()).unwrap_or_else(|_| panic!("{} {}", done.out, done.err));
    state["pid"].as_u64().unwrap()
}

#[test]
fn daemon_is_started_used_queried_and_stopped() {
    let user = User::new();
    let none = user.done(&["pool", "status"]);
    assert_eq!(none.code, Some(1));
    assert!(none.err.contains("no pool is running") && none.err.contains("pool start"), "{}", none.err);
    assert_eq!(user.done(&["pool", "status", "-o", "json"]).out, "null\n");

    let started = user.done(&["pool", "start"]);
    assert_eq!((started.code, started.out.as_str()), (Some(0), ""), "{}", started.err);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&user.socket()), mode(user.socket().parent().unwrap())), (0o600, 0o700));
    let again = user.done(&["pool", "start"]);
    assert_eq!(again.code, Some(0));
    assert!(again.err.contains("already running"), "{}", again.err);
    let in_front = user.done(&["pool", "start", "--foreground"]);
    assert_ne!(in_front.code, Some(0));
    assert!(in_front.err.contains("already running"), "{}", in_front.err);

    let (first, second) = (user.warm("state"), user.warm("state"));
    assert_eq!(pid_of(&first), pid_of(&second));
    let status = user.status();
    let agents = status["pool"]["processes"].as_array().unwrap();
    assert_eq!((&status["pool"]["runs"], agents.len()), (&json!(2), 1), "{status:#}");
    assert_eq!(
        (&agents[0]["pid"], &agents[0]["sessions"]),
        (&json!(pid_of(&first)), &json!(2)),
        "{status:#}"
    );
    let shown = user.done(&["pool", "status"]).out;
    assert!(shown.contains("2 sessions") && shown.contains("idle") && shown.contains("pool.sock"), "{shown}");

    let stopped = user.done(&["pool", "stop"]);
    assert!(stopped.code == Some(0) && stopped.err.contains("stopped the pool"), "{}", stopped.err);
    // The process may exit a moment after its last output.
    user.nothing_lives();
    assert!(!user.socket().exists());
    let stopped = user.done(&["pool", "stop"]);
    assert!(stopped.code == Some(0) && stopped.err.contains("no pool is running"), "{}", stopped.err);
    assert_ne!(
        pid_of(&user.warm("state")),
        pid_of(&user.warm("state")),
        "without a pool, each has its own agent"
    );
}

/// What may differ between two runs: names, times, and counts of a process.
const DIFFERENT: &[&str] = &[
    "run_id",
    "session_id",
    "at_ms",
    "duration_ms",
    "first_event_ms",
    "agent_exit_code",
    "line",
    "id",
    "tool_use_id",
    "toolCallId",
];

/// Returns what must be equal in two runs.
fn alike(text: &str) -> Vec<Value> {
    fn plain(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| !DIFFERENT.contains(&key.as_str()));
                map.values_mut().for_each(plain);
            }
            Value::Array(list) => list.iter_mut().for_each(plain),
            _ => {}
        }
    }
    let mut lines: Vec<Value> =
        serde_json::Deserializer::from_str(text).into_iter().map(Result::unwrap).collect();
    lines.iter_mut().for_each(plain);
    lines
}

#[test]
fn pooled_run_prints_the_same_as_a_run_without_a_pool() {
    let user = User::with_daemon(&[]);
    let scripts = [
        ("bypass", "think Hm.\ntool write_file made.txt made\\n\nsay It is done.\nusage 100 20"),
        ("bypass", "error 429 You have exhausted your daily quota on this model."),
        ("bypass", "stop end_turn"),
        ("default", "ask write_file asked.txt asked\nsay Asked."),
        ("prompt", "ask write_file asked.txt asked\nsay Asked."),
        ("plan", "plan\nsay Planned."),
        ("bypass", "say Half of the\ndie 9"),
    ];
    for (mode, script) in scripts {
        for output in ["json", "events", "text"] {
            let run = |flags: &[&str]| {
                let _ = fs::remove_file(user.stage.workspace().join("made.txt"));
                user.run(&[flags, &["--permission-mode", mode, "-o", output]].concat(), script)
            };
            let (cold, warm) = (run(&["--surface", "acp"]), run(&["--warm"]));
            assert_eq!(cold.code, warm.code, "{mode} {script}: {} {}", cold.err, warm.err);
            if output == "text" {
                assert_eq!((cold.out, cold.err), (warm.out, warm.err), "{mode} {script}");
            } else {
                assert_eq!(alike(&cold.out), alike(&warm.out), "{mode} {script}");
            }
        }
    }
    let runs = user.status()["pool"]["runs"].as_u64().unwrap();
    assert_eq!(runs, 3 * scripts.len() as u64);
    // An invalid flag is refused with the same message.
    let refused = |flags: &[&str]| user.run(&[flags, &["--timeout", "-1"]].concat(), "hello");
    let (cold, warm) = (refused(&[]), refused(&["--warm"]));
    assert_eq!((cold.code, cold.err), (warm.code, warm.err));
    let refused = |flags: &[&str]| user.run(&[flags, &["-C", "nowhere"]].concat(), "hello");
    let (cold, warm) = (refused(&[]), refused(&["--warm"]));
    assert_eq!((cold.code, cold.err), (warm.code, warm.err));
}

#[test]
fn callers_environment_directory_and_agents_apply() {
    let user = User::with_daemon(&[]);
    let folder = user.stage.path().join("elsewhere");
    fs::create_dir(&folder).unwrap();
    let mut elsewhere = user.agentline(&User::run_args(&["--warm"], "cwd\nenv COLOUR"));
    let output = elsewhere
        .args(["--pass-env", "COLOUR"])
        .env("COLOUR", "green")
        .current_dir(&folder)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("elsewhere") && text.contains("green"), "{text}");

    let config = user.stage.path().join("home/.config/agentline");
    fs::create_dir_all(&config).unwrap();
    let program = env!("CARGO_BIN_EXE_fake-acp");
    let table = format!("[agents.mine]\ncommand = [\"{program}\"]\nenv = {{ COLOUR = \"violet\" }}\n");
    fs::write(config.join("config.toml"), table).unwrap();
    let mine = |script: &str| user.run(&["--warm", "-a", "mine"], script);
    let done = mine("env COLOUR");
    assert!(done.out.contains("violet"), "{} {}", done.out, done.err);
    assert_eq!(pid_of(&mine("state")), pid_of(&mine("state")));
    let agents: Vec<Value> = user.status()["pool"]["processes"].as_array().unwrap().clone();
    assert!(agents.iter().any(|agent| agent["agent"] == "mine"), "{agents:?}");
}

#[test]
fn killing_a_client_ends_its_run() {
    let user = User::with_daemon(&[]);
    let first = user.warm("state");
    let before = user.stage.living().len();
    let mut client = user.spawn(&["--warm", "--permission-mode", "bypass"], "run sleep 300");
    wait_until("the command", || user.stage.living().len() >= before + 2);
    client.kill().unwrap();
    exit_of(&mut client, "the end of a killed client");
    wait_until("the end of the command", || user.stage.living().len() == before);
    wait_until("the end of the run", || user.status()["pool"]["processes"][0]["active"] == 0);
    assert_eq!(pid_of(&first), pid_of(&user.warm("state")), "the agent is still alive");
}

#[test]
fn interrupt_stops_the_run_but_not_the_daemon() {
    let user = User::with_daemon(&[]);
    let first = user.warm("state");
    let before = user.stage.living().len();
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let client = user.spawn(&["--warm", "--permission-mode", "bypass", "-o", "json"], "run sleep 300");
        wait_until("the command", || user.stage.living().len() >= before + 2);
        signal(&client.id().to_string(), name);
        let output = output_of(client, "the end of the client");
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (output.status.code(), &outcome["verdict"]),
            (Some(code), &json!("cancelled")),
            "{outcome:#}"
        );
        assert_eq!(user.stage.living().len(), before);
    }
    assert_eq!(pid_of(&first), pid_of(&user.warm("state")));
}

#[test]
fn daemon_exit_leaves_nothing_and_is_reported_to_callers() {
    for (name, verdict) in [("-TERM", "cancelled"), ("-INT", "cancelled"), ("-KILL", "failed")] {
        let user = User::with_daemon(&[]);
        assert_eq!(user.warm("say hello").out, "hello\n");
        let before = user.stage.living().len();
        let client = user.spawn(&["--warm", "--permission-mode", "bypass", "-o", "json"], "run sleep 300");
        wait_until("the command", || user.stage.living().len() >= before + 2);
        signal(&user.status()["pid"].to_string(), name);
        let output = output_of(client, "the end of the client");
        let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
        let origin = (&outcome["agent"], &outcome["surface"], outcome["run_id"].as_str().map(str::is_empty));
        assert_eq!(origin, (&json!("gemini"), &json!("acp"), Some(false)), "{name} {outcome:#}");
        assert!(outcome["session_id"].is_string(), "{name} {outcome:#}");
        assert_eq!(outcome["verdict"], verdict, "{name}: {outcome:#}");
        assert!(!output.status.success());
        user.nothing_lives();
        // A run works as without a pool, and another daemon can start.
        assert_eq!(user.warm("say again").out, "again\n");
        assert_eq!(user.done(&["pool", "start"]).code, Some(0));
        assert_eq!(user.warm("say again").out, "again\n");
        assert_eq!(user.status()["pool"]["runs"], 1);
    }
}

#[test]
fn pool_stop_notifies_callers_with_active_runs() {
    let user = User::with_daemon(&[]);
    let client = user.spawn(&["--warm", "-o", "json"], "hang");
    wait_until("the run", || user.status()["pool"]["processes"][0]["active"] == 1);
    assert_eq!(user.done(&["pool", "stop"]).code, Some(0));
    // Only the client may still be about to exit.
    assert!(user.stage.living().iter().all(|pid| *pid == client.id()));
    let outcome: Value = serde_json::from_slice(&output_of(client, "the end of the client").stdout).unwrap();
    assert_eq!(outcome["verdict"], "cancelled", "{outcome:#}");
}

#[test]
fn prewarmed_agent_serves_the_first_run() {
    let user = User::new();
    let config = user.stage.path().join("home/.config/agentline/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let settings = "pass_env = [\"MARK_OF_THE_TEST\"]\nquiet_period_ms = 0\npermission_mode = \"bypass\"\n";
    fs::write(config, settings).unwrap();
    let started = user.done(&["pool", "start", "--prewarm"]);
    assert_eq!(started.code, Some(0), "{}", started.err);
    assert!(started.err.contains("gemini is warm for runs in this directory"), "{}", started.err);
    let status = user.status();
    let pid = status["pool"]["processes"][0]["pid"].as_u64().unwrap();
    let first = user.done(&["run", "--warm", "state"]);
    assert_eq!(pid_of(&first), pid, "{}{}", first.out, first.err);
    // The daemon is already running, and an unknown agent is refused by name.
    let unknown = user.done(&["pool", "start", "--prewarm=unknown-agent"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("unknown-agent"), "{}", unknown.err);
    assert_eq!(user.done(&["pool", "start", "--prewarm", "--foreground"]).code, Some(2));
}

#[test]
fn idle_daemon_ends() {
    let user = User::with_daemon(&["--idle", "2"]);
    let busy = user.spawn(&["--warm"], "sleep 4000\nsay done");
    assert_eq!(
        output_of(busy, "the end of a run of four seconds").stdout,
        b"done\n",
        "a run counts as activity"
    );
    assert!(user.socket().exists());
    user.nothing_lives();
    assert!(!user.socket().exists());
    let wrong = user.done(&["pool", "start", "--idle", "soon"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("--idle"), "{}", wrong.err);
}

#[test]
fn invalid_data_on_the_socket_has_no_effect() {
    let user = User::with_daemon(&[]);
    let dialogue = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(user.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // It may close the connection before it has received everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let call = |method: &str, params: Value| {
        dialogue(format!("{}\n", json!({"id": 1, "method": method, "params": params})).as_bytes())
    };
    assert_eq!(dialogue(b""), "");
    assert!(dialogue(b"what?\n{}\n[1]\n\"status\"\n").contains("invalid JSON"));
    assert!(call("initialize", json!({})).contains("pool/stop"));
    dialogue(&[0xff, 0xfe, 0x00, b'\n', 0x80]);
    dialogue(&vec![b'x'; 4 << 20]);
    assert!(call("initialize", json!({"caller": {"env": {}}})).contains("-32602"));
    assert!(call("initialize", json!({"pool": {"max_processes": 1}})).contains("the pool is shared"));
    assert!(call("pool/configure", json!({"max_processes": 1})).contains("the pool is shared"));
    assert!(call("run", json!({"request": {"prompt": 1}})).contains("-32602"));
    dialogue(b"{\"method\":\"cancel\",\"params\":{\"run\":\"1\",\"signal\":9}}\n");
    dialogue(b"{\"id\":1,\"method\":\"initialize\",\"params\":{\"caller\":{\"env\":{},\"home\":\"/\"");
    assert_eq!(user.warm("say fine").out, "fine\n");
    assert_eq!(user.status()["pool"]["runs"], 1);
}

#[test]
fn socket_serves_the_host_protocol() {
    let user = User::with_daemon(&[]);
    let mut stream = UnixStream::connect(user.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let params = json!({"prompt": "say a\nsay b\nsay c", "report_launch": true, "merge_events": false});
    writeln!(stream, "{}", json!({"jsonrpc": "2.0", "id": "one", "method": "run", "params": params}))
        .unwrap();
    let mut messages: Vec<Value> = Vec::new();
    for line in BufReader::new(&stream).lines() {
        messages.push(serde_json::from_str(&line.unwrap()).unwrap());
        if messages.last().unwrap().get("id").is_some() {
            break;
        }
    }
    let outcome = &messages.last().unwrap()["result"];
    assert_eq!((&outcome["verdict"], &outcome["text"]), (&json!("done"), &json!("abc")), "{outcome:#}");
    assert_eq!(messages[0]["method"], "run/launched", "{messages:?}");
    assert_eq!(messages[0]["params"]["run_id"], outcome["run_id"]);
    assert!(messages[0]["params"]["command"][0].is_string(), "{messages:?}");
    let events: Vec<&Value> = messages.iter().map(|message| &message["params"]["event"]).collect();
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "no event is merged");
    // The connection is still open, and the pool is the one of all callers.
    assert_eq!(user.status()["pool"]["runs"], 1);
}

#[test]
fn incompatible_daemon_is_not_used() {
    for (hello, reason) in [
        (Some("{\"id\":1,\"result\":{\"server\":{\"version\":\"0.0.1\"}}}\n"), "version 0.0.1"),
        (Some("good morning\n"), "does not respond"),
        (None, "does not respond"),
    ] {
        let user = User::new();
        fs::create_dir_all(user.socket().parent().unwrap()).unwrap();
        let listener = UnixListener::bind(user.socket()).unwrap();
        let answering = std::thread::spawn(move || {
            let mut callers = Vec::new();
            for _ in 0..2 {
                let (mut caller, _) = listener.accept().unwrap();
                BufReader::new(&caller).read_line(&mut String::new()).unwrap();
                caller.write_all(hello.unwrap_or_default().as_bytes()).unwrap();
                callers.push(caller);
            }
        });
        let cold = user.run(&["--warm", "--surface", "acp", "-v"], "say hello");
        assert_eq!((cold.code, cold.out.as_str()), (Some(0), "hello\n"), "{}", cold.err);
        assert!(cold.err.contains(reason), "{}", cold.err);
        let status = user.done(&["pool", "status"]);
        assert!(status.code == Some(1) && status.err.contains(reason), "{}", status.err);
        answering.join().unwrap();
    }
}

#[test]
fn unsupported_requests_run_without_the_pool() {
    let user = User::with_daemon(&[]);
    let tape = user.stage.path().join("tape.jsonl");
    let recorded = user.run(&["--warm", "--surface", "acp", "--record", tape.to_str().unwrap()], "say hello");
    assert_eq!((recorded.code, recorded.out.as_str()), (Some(0), "hello\n"), "{}", recorded.err);
    assert!(fs::metadata(tape).unwrap().len() > 0);
    // Refused as without a pool: there is no such session.
    let resumed = |flags: &[&str]| user.run(&[flags, &["--resume", "latest"]].concat(), "say hello");
    let (cold, warm) = (resumed(&[]), resumed(&["--warm"]));
    assert_eq!((cold.code, cold.err), (warm.code, warm.err));
    assert_eq!(user.status()["pool"]["runs"], 0);
}

#[test]
fn other_users_are_refused() {
    let user = User::with_daemon(&[]);
    if fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap() != 0 {
        return;
    }
    // Only if that user can start the program at all.
    let program = user.stage.path().join("agentline");
    copy_program(env!("CARGO_BIN_EXE_agentline-under-test"), &program);
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(user.stage.path(), 0o755);
    let status = || {
        let mut command = Command::new(&program);
        command
            .args(["pool", "status"])
            .env_clear()
            .envs(user.stage.variables())
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY);
        let Output { status, stderr, .. } = command.output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let (code, message) = status();
    assert!(code == Some(1) && message.contains("no pool is running"), "{message}");
    // The same holds if all directories are open to everyone.
    for folder in user.socket().ancestors().take_while(|path| path.starts_with(user.stage.path())) {
        open(folder, 0o777);
    }
    let (code, message) = status();
    assert!(code == Some(1) && message.contains("belongs to another user"), "{message}");
    let mut direct = Command::new("sh");
    let dialogue = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.settimeout(10)\nprint(s.recv(100))";
    direct
        .args(["-c", "python3 -c \"$1\" \"$2\"", "sh", dialogue, user.socket().to_str().unwrap()])
        .uid(NOBODY)
        .gid(NOBODY);
    let output = direct.output().unwrap();
    if output.status.success() {
        assert_eq!(output.stdout, b"b''\n", "it closes the connection without a message");
    }
    assert_eq!(user.warm("say fine").out, "fine\n", "its own user is served");
}
