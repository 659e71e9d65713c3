//! Checks that a secret stays redacted however it is spelled or split.

use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{MODEL, TestStage, Watchdog, exit_of, needs_real_gemini, real_gemini};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The caller's key. It has the format of a real key, but is not one.
const KEY: &str = "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY";
/// A secret without a recognizable format.
const PASSWORD: &str = "Plum/Tree-Correct+Horse";
/// A key that is not registered as a secret.
const UNKNOWN: &str = "sk-ant-api03-R4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0m-Zz9AA";

/// Returns every output format of `agentline run`.
fn formats() -> Vec<String> {
    let cli = agentline_cli::command();
    let run = cli.find_subcommand("run").expect("a command");
    let output = run.get_arguments().find(|argument| argument.get_long() == Some("output")).expect("a flag");
    output.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        out.extend((0..=chunk.len()).map(|i| char::from(LETTERS[(bits >> (18 - 6 * i) & 63) as usize])));
        out.push_str(&"=".repeat(3 - chunk.len()));
    }
    out
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02X}");
        out
    })
}

/// Returns every encoding of a secret, with the length of the parts that must not be shown.
fn encodings(secret: &str) -> Vec<(String, usize)> {
    let pairs = ["", "x", "user:"].map(|before| base64(format!("{before}{secret}").as_bytes()));
    let mut all: Vec<(String, usize)> = pairs
        .iter()
        .map(|encoded| (encoded.clone(), 16))
        .chain(pairs.iter().map(|encoded| (encoded.replace('+', "-").replace('/', "_"), 16)))
        .collect();
    all.extend([secret.to_owned(), secret.to_uppercase(), secret.to_lowercase()].map(|text| (text, 8)));
    all.extend([hex(secret), hex(secret).to_uppercase()].map(|text| (text, 16)));
    all.extend([percent(secret), percent(secret).to_lowercase()].map(|text| (text, 24)));
    all
}

/// Returns the parts of the secrets that are visible in an output.
fn leaks(shown: &str) -> Vec<String> {
    let mut leaks = Vec::new();
    let known = [KEY, PASSWORD].into_iter().flat_map(encodings);
    for (encoded, length) in known.chain([(UNKNOWN.to_owned(), 13)]) {
        // In base64, the characters next to the secret remain.
        let core = encoded.trim_end_matches('=');
        let windows = core.as_bytes().windows(length).skip(if length == 16 { 8 } else { 0 });
        leaks.extend(
            windows.map(String::from_utf8_lossy).filter(|part| shown.contains(&**part)).map(Into::into),
        );
    }
    leaks
}

#[track_caller]
fn assert_hidden(source: &str, shown: &str) {
    let leaks = leaks(shown);
    assert!(leaks.is_empty(), "{source} shows {leaks:?}:\n{shown}");
}

/// A user with a home, a workspace and an agent that prints these lines for every prompt.
struct User {
    dir: tempfile::TempDir,
}

impl User {
    fn new(lines: &[serde_json::Value]) -> Self {
        let dir = tempfile::Builder::new().prefix("agentline-secrets-").tempdir().expect("a folder");
        for part in ["home", "ws", "tmp"] {
            fs::create_dir(dir.path().join(part)).expect("a folder");
        }
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(dir.path().join("lines"), lines).expect("lines");
        let agent = dir.path().join("agent");
        let lines_file = dir.path().join("lines").display().to_string();
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' --version '*) echo 0.61.0; exit 0;; esac\ncat > /dev/null\ncat '{lines_file}'\n"
        );
        fs::write(&agent, script).expect("an agent");
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("a program");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let text = |name: &str| self.path(name).to_string_lossy().into_owned();
        let env = [
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", text("home")),
            ("TMPDIR", text("tmp")),
            ("GEMINI_API_KEY", KEY.to_owned()),
            ("DB_PASSWORD", PASSWORD.to_owned()),
            ("GEMINI_CLI_PATH", text("agent")),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).into();
        command(&env, &self.path("ws"), args)
    }

    /// Returns everything that a command prints.
    fn shown(&self, args: &[&str]) -> String {
        shown(self.command(args))
    }
}

fn command(env: &BTreeMap<String, String>, cwd: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command.args(args).env_clear().envs(env).current_dir(cwd).stdin(Stdio::null());
    command
}

/// Returns standard output and standard error of a command.
fn shown(mut command: Command) -> String {
    let done = command.output().expect("the program runs");
    String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
}

fn message(text: &str) -> serde_json::Value {
    json!({"type": "message", "role": "assistant", "content": text, "delta": true})
}

fn calls(id: &str, command: &str, gives: &str) -> [serde_json::Value; 2] {
    [
        json!({"type": "tool_use", "tool_name": "run_shell_command", "tool_id": id, "parameters": {"command": command}}),
        json!({"type": "tool_result", "tool_id": id, "status": "success", "output": gives}),
    ]
}

/// Returns the lines of a run in which the model and a tool spell every secret in every way, including split
/// around a tool call.
fn hostile_run() -> Vec<serde_json::Value> {
    let mut lines = vec![json!({"type": "init", "session_id": "s-1", "model": "gemini-2.5-pro"})];
    for (i, (encoded, _)) in [KEY, PASSWORD].into_iter().flat_map(encodings).enumerate() {
        lines.push(message(&format!("One is {encoded} and\n")));
        lines.extend(calls(&format!("c{i}"), &format!("echo {encoded}"), &format!("{encoded}\n")));
    }
    for (i, secret) in [KEY, PASSWORD, UNKNOWN].into_iter().enumerate() {
        for cut in [9, 14, secret.len() - 7] {
            lines.push(message(&format!("It begins {}", &secret[..cut])));
            lines.extend(calls(&format!("s{i}-{cut}"), "true", ""));
            lines.push(message(&format!("{} was the rest.\n", &secret[cut..])));
            lines.extend([message(&secret[..cut]), message(&secret[cut..]), message(" in two pieces.\n")]);
        }
    }
    lines.extend(calls("u", &format!("export TOKEN={UNKNOWN}"), UNKNOWN));
    lines.push(message(&format!("The end stays. {KEY}")));
    lines.push(json!({"type": "result", "status": "success"}));
    lines
}

#[test]
fn no_output_format_and_no_tape_shows_a_secret() {
    let user = User::new(&hostile_run());
    let formats = formats();
    assert!(formats.len() >= 6, "{formats:?}");
    for format in formats.iter().map(String::as_str) {
        let tape = user.path(&format!("{format}.tape"));
        let tape = tape.to_string_lossy();
        let args = ["run", "go", "--surface", "stream-json", "-o", format, "--record", &tape];
        let shown = user.shown(&args);
        assert!(shown.contains("The end stays.") && shown.contains("[redacted]"), "{format}: {shown}");
        assert_hidden(format, &shown);
        assert_hidden("the tape", &fs::read_to_string(&*tape).expect("a tape"));
        let again = user.shown(&["replay", &tape, "-o", format]);
        assert!(again.contains("The end stays."), "{again}");
        assert_hidden("the replay", &again);
    }
    let messages = user.shown(&["run", "go", "--surface", "stream-json", "-o", "json", "--messages"]);
    assert!(messages.contains("\"messages\""), "{messages}");
    assert_hidden("--messages", &messages);
}

#[test]
fn the_host_protocol_shows_no_secret() {
    let user = User::new(&hostile_run());
    let mut host = user
        .command(&["host"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a host");
    let mut stdin = host.stdin.take().expect("stdin");
    let run = json!({"jsonrpc": "2.0", "id": 1, "method": "run",
        "params": {"prompt": "go", "surface": "stream-json", "working_dir": user.path("ws"), "messages": true}});
    writeln!(stdin, "{run}").expect("a request");
    let _watchdog =
        Watchdog::over(&host, Duration::from_secs(90), "the outcome of a run and the end of the host");
    let mut all = String::new();
    for line in BufReader::new(host.stdout.take().expect("stdout")).lines() {
        let line = line.expect("text");
        all += &line;
        all.push('\n');
        if line.contains("\"id\":1,") {
            break;
        }
    }
    drop(stdin);
    exit_of(&mut host, "the end of the host");
    assert!(all.contains("The end stays."), "{all}");
    assert_hidden("the host protocol", &all);
}

#[test]
fn ordinary_text_is_unchanged() {
    let text = "class sk-loading-indicator, risk-free, AKIA, npm_config_cache, commit \
        3f786850e387550fdab836ed7e6dc881de23001b, gemini-2.5-pro, %41, \\u0041 and 100%";
    let pieces: Vec<String> = text.chars().map(String::from).collect();
    let mut lines = vec![json!({"type": "init", "session_id": "s-1", "model": "gemini-2.5-pro"})];
    lines.extend(pieces.iter().map(|piece| message(piece)));
    lines.push(json!({"type": "result", "status": "success"}));
    let user = User::new(&lines);
    let done = user.command(&["run", "go", "--surface", "stream-json"]).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim_end(), text);
}

#[test]
fn backslash_flood_does_not_delay_a_run() {
    let mut lines = vec![json!({"type": "init", "session_id": "s-1", "model": "gemini-2.5-pro"})];
    lines.push(message(&"\\".repeat(400_000)));
    lines.extend(calls("c", &"\\".repeat(400_000), &"%\\u".repeat(100_000)));
    lines.push(message("The end."));
    lines.push(json!({"type": "result", "status": "success"}));
    let user = User::new(&lines);
    let tape = user.path("tape");
    let args = ["run", "go", "--surface", "stream-json", "-o", "json", "--timeout", "60", "--record"];
    let args: Vec<&str> = args.into_iter().chain(tape.to_str()).collect();
    let done = user.command(&args).output().expect("it runs");
    let outcome: serde_json::Value = serde_json::from_slice(&done.stdout).expect("an outcome");
    // A quadratic scanner took minutes for this.
    assert_eq!((&outcome["verdict"], &outcome["text"]), (&json!("done"), &json!("The end.")));
}

#[test]
fn config_show_redacts_keys_under_any_name() {
    let user = User::new(&[]);
    let config = format!(
        "system_prompt = \"use {UNKNOWN} and {PASSWORD}\"\n[env]\nSOMETHING = \"{KEY}\"\nOTHER = \"{}\"\n",
        hex(PASSWORD)
    );
    fs::create_dir_all(user.path("home/.config/agentline")).expect("a folder");
    fs::write(user.path("home/.config/agentline/config.toml"), &config).expect("a file");
    for form in ["text", "json"] {
        let shown = user.shown(&["config", "show", "-o", form]);
        assert!(shown.contains("system_prompt") && shown.contains("[redacted]"), "{shown}");
        assert_hidden("config show", &shown);
    }
}

/// Returns a session in the format of Gemini CLI, with a secret in every field and split around a tool call.
fn saved_session(user: &User) -> PathBuf {
    let record = |id: usize, text: &str, calls: serde_json::Value| {
        json!({"id": format!("m{id}"), "timestamp": "2026-11-15T04:28:24.844Z", "type": "gemini", "content": text,
            "thoughts": [{"subject": "Key", "description": format!("it is {KEY}"), "timestamp": "2026-11-15T04:28:24.844Z"}],
            "model": "gemini-2.5-pro", "toolCalls": calls})
    };
    let mut records = vec![
        json!({"sessionId": "11111111-2222-4333-8444-555555555555", "projectHash": "0", "kind": "main",
            "startTime": "2026-11-15T04:28:24.844Z", "lastUpdated": "2026-11-15T04:28:24.844Z"}),
        json!({"id": "p1", "timestamp": "2026-11-15T04:28:24.844Z", "type": "user",
            "content": format!("plum pudding with {PASSWORD} and {UNKNOWN}")}),
    ];
    let call = |command: &str, gives: &str| {
        json!([{"id": "c1", "name": "run_shell_command", "args": {"command": command}, "status": "success",
            "timestamp": "2026-11-15T04:28:24.844Z", "resultDisplay": gives,
            "result": [{"functionResponse": {"id": "c1", "name": "run_shell_command", "response": {"output": gives}}}]}])
    };
    for (i, (encoded, _)) in [KEY, PASSWORD].into_iter().flat_map(encodings).enumerate() {
        records.push(record(i, &format!("plum pudding {encoded}"), call(&encoded, &encoded)));
    }
    for (i, secret) in [KEY, PASSWORD, UNKNOWN].into_iter().enumerate() {
        records.push(record(100 + 2 * i, &format!("half {}", &secret[..14]), call("true", "")));
        records.push(record(101 + 2 * i, &format!("{} other half", &secret[14..]), json!([])));
    }
    let folder = user.path("home/.gemini/tmp/ws/chats");
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("session-2026-11-15T04-28-11111111.jsonl");
    fs::write(&file, records.iter().map(|record| format!("{record}\n")).collect::<String>())
        .expect("a session");
    file
}

#[test]
fn session_commands_show_no_secret() {
    let user = User::new(&[]);
    let file = saved_session(&user);
    let file = file.to_str().expect("a name");
    let forms: [&[&str]; 6] = [
        &["sessions", "show", file, "--thinking", "--full"],
        &["sessions", "show", file, "-o", "json"],
        &["sessions", "show", file, "-o", "claude"],
        &["sessions", "show", file, "-o", "md", "--thinking"],
        &["sessions", "watch", file, "--until-idle", "0.2", "--thinking"],
        &["sessions", "watch", file, "--until-idle", "0.2", "-o", "json"],
    ];
    for args in forms {
        let shown = user.shown(args);
        assert!(shown.contains("other half") && shown.contains("[redacted]"), "{args:?}: {shown}");
        assert_hidden(&args.join(" "), &shown);
    }
    for name in ["out.html", "out.md", "out.json", "out.txt"] {
        let out = user.path(name);
        let out = out.to_str().expect("a name");
        let shown = user.shown(&["sessions", "export", file, "-o", out]);
        let page = fs::read_to_string(out).unwrap_or_else(|error| panic!("{error}: {shown}"));
        assert!(page.contains("other half"), "{name}: {page}");
        assert_hidden(name, &page);
    }
    let listed = user.shown(&["sessions", "list", "-o", "json"]);
    assert!(listed.contains("plum pudding"), "{listed}");
    assert_hidden("sessions list", &listed);
    // A word next to a secret is found, but neither a secret nor its prefix.
    for form in ["text", "json"] {
        let found =
            user.shown(&["sessions", "search", "plum pudding", "--around", "3", "--hits", "99", "-o", form]);
        assert!(found.contains("plum pudding"), "{found}");
        assert_hidden("sessions search", &found);
    }
    for secret in [KEY, PASSWORD, UNKNOWN] {
        for length in [10, 16, secret.len()] {
            let found = user.command(&["sessions", "search", &secret[..length]]).output().expect("it runs");
            assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
        }
    }
}

#[test]
fn real_gemini_cli_output_shows_no_secret() {
    needs_real_gemini!();
    let cut = 21;
    let mut all = String::new();
    for (encoded, _) in encodings(KEY) {
        let _ = writeln!(all, "One is {encoded} here.");
    }
    let list = json!({"dir_path": "."});
    let script = || {
        Script::new([
            GeminiStep::text(format!("{all}It begins {}", &KEY[..cut]))
                .and_call("list_directory", list.clone()),
            GeminiStep::text(format!("{} was the rest.", &KEY[cut..]))
                .and_call("list_directory", list.clone()),
            GeminiStep::text(format!("Another begins {}", &UNKNOWN[..cut]))
                .and_call("list_directory", list.clone()),
            GeminiStep::text(format!("{} was the rest. The end stays.", &UNKNOWN[cut..])),
        ])
    };
    let program = real_gemini().expect("the real agent").path.to_string_lossy().into_owned();
    for (surface, format) in [("stream-json", "events"), ("acp", "json")] {
        let stage =
            TestStage::new(script()).env("GEMINI_API_KEY", Some(KEY)).env("GEMINI_CLI_PATH", Some(&program));
        stage.file("key.txt", "nothing");
        let run = |args: &[&str]| shown(command(stage.variables(), &stage.workspace(), args));
        let tape = stage.outside().join("run.tape");
        let tape = tape.to_str().expect("a name");
        let mut args = vec!["run", "go", "--surface", surface, "-o", format, "-m", MODEL, "--record", tape];
        args.extend(["--permission-mode", "bypass"]);
        args.extend((format == "json").then_some("--messages"));
        let output = run(&args);
        assert!(output.contains("The end stays.") && output.contains("[redacted]"), "{surface}: {output}");
        assert_hidden(surface, &output);
        assert_hidden("the tape", &fs::read_to_string(tape).expect("a tape"));
        let session = run(&["sessions", "show", "latest", "-o", "json"]);
        assert!(session.contains("The end stays."), "{session}");
        assert_hidden("sessions show", &session);
    }
}
