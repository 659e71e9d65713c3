//! Tests the workflow provider with misbehaving agents: every row of its errors, and the cases that its specification
//! names. `provider_real.rs` tests it with the real agent.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline::{
    Agentline, Verdict,
    detect::HostEnv,
    provider::{CallContext, ErrorKind, Provider, ProviderError, ProviderResult},
};
use agentline_tests::{survivors, wait_until};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const INSTALL: &str = "Gemini CLI not found. Install from: https://github.com/google-gemini/gemini-cli\nInstall with: npm i -g @google/gemini-cli (Node.js 20 or newer)";

/// A separate home, workspace and agent. They are removed with the test.
struct ProviderSetup {
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
    program: PathBuf,
}

impl ProviderSetup {
    /// Creates an agent with this fault.
    fn fault(name: &str, args: Value) -> Self {
        let mut setup = Self::with_program(Path::new(env!("CARGO_BIN_EXE_fake-gemini")));
        setup.env.insert("FAKE_AGENT_FAULT".into(), name.into());
        setup.env.insert("FAKE_AGENT_ARGS".into(), args.to_string());
        setup
    }

    /// Creates an agent that runs this shell script after it has read its prompt.
    fn script(body: &str) -> Self {
        let mut setup = Self::with_program(Path::new(""));
        setup.program = setup.dir.path().join("gemini");
        fs::write(&setup.program, format!("#!/bin/sh\ncat > /dev/null\n{body}\n")).unwrap();
        fs::set_permissions(&setup.program, fs::Permissions::from_mode(0o755)).unwrap();
        setup
    }

    /// Creates an agent that writes these events. A line that is not JSON is a shell command.
    fn events(lines: &[&str]) -> Self {
        let commands = lines.iter().map(|line| match line.starts_with('{') {
            true => format!("cat <<'END'\n{line}\nEND"),
            false => (*line).to_owned(),
        });
        Self::script(&commands.collect::<Vec<_>>().join("\n"))
    }

    fn with_program(program: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("agentline-provider-").tempdir().unwrap();
        fs::create_dir_all(dir.path().join("home/.gemini")).unwrap();
        fs::create_dir(dir.path().join("ws")).unwrap();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let env = BTreeMap::from([
            ("PATH".to_owned(), std::env::var("PATH").unwrap()),
            ("HOME".to_owned(), text(&dir.path().join("home"))),
            // Every process of the agent has this in its environment, so that survivors are found.
            ("PROVIDER_TEST_MARK".to_owned(), text(dir.path())),
        ]);
        Self { dir, env, program: program.to_owned() }
    }

    fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    fn provider(&self, config: Value) -> Provider {
        let host_env = HostEnv::new(self.env.clone(), self.dir.path().join("home"), self.workspace());
        let agentline = Agentline::new(host_env).program("gemini", &self.program);
        Provider::new(agentline, config.as_object().cloned().unwrap()).unwrap()
    }

    fn generate(&self, config: Value) -> Result<ProviderResult, ProviderError> {
        self.provider(config).generate("What is 2+2?", &CallContext::default(), None)
    }

    fn ok(&self) -> ProviderResult {
        self.generate(json!({})).unwrap_or_else(|error| panic!("{error}\n{:?}", error.outcome))
    }

    fn error(&self) -> ProviderError {
        self.generate(json!({})).map(|result| panic!("{result:?}")).unwrap_err()
    }

    /// Asserts that no process of the agent remains.
    fn assert_nothing_left(&self) {
        #[cfg(target_os = "linux")]
        {
            let mark = format!("PROVIDER_TEST_MARK={}", self.dir.path().display());
            wait_until("the end of the agent's processes", || survivors(&mark).is_empty());
        }
    }
}

/// Returns the names of the files in a result.
fn files(result: &ProviderResult) -> Vec<&str> {
    assert!(result.files.values().all(Option::is_none), "{:?}", result.files);
    result.files.keys().map(String::as_str).collect()
}

fn warned<'a>(result: &'a ProviderResult, code: &str) -> Vec<&'a str> {
    result.warnings.iter().filter(|w| w.code == code).map(|w| w.message.as_str()).collect()
}

const INIT: &str = r#"{"type":"init","session_id":"s","model":"auto"}"#;
const DONE: &str =
    r#"{"type":"result","status":"success","stats":{"total_tokens":3,"input_tokens":2,"output_tokens":1}}"#;
const FAILED: &str = r#"{"type":"result","status":"error","stats":{"total_tokens":3}}"#;
const ANSWER: &str = r#"{"type":"message","role":"assistant","content":"All done. 4","delta":true}"#;

fn uses(tool: &str, id: &str, path: &str) -> String {
    format!(
        r#"{{"type":"tool_use","tool_name":"{tool}","tool_id":"{id}","parameters":{{"file_path":"{path}","content":"x","old_string":"a","new_string":"b"}}}}"#
    )
}

fn worked(id: &str) -> String {
    format!(r#"{{"type":"tool_result","tool_id":"{id}","status":"success"}}"#)
}

#[test]
fn configured_agent_answers() {
    let setup = ProviderSetup::with_program(Path::new(""));
    let command = [env!("CARGO_BIN_EXE_fake-acp")];
    let provider = setup.provider(json!({"agent": "mine", "agents": {"mine": {"command": command}}}));
    assert_eq!(provider.metadata().name, "mine");
    provider.validate().unwrap();
    let prompt = "ask write_file hello.txt hi\\n\nsay Done.";
    let result = provider.generate(prompt, &CallContext::default(), None).unwrap();
    assert_eq!(
        serde_json::to_value(&result).unwrap(),
        json!({"response": "Done.", "files": {"hello.txt": null}})
    );
    assert_eq!((result.outcome.agent.as_str(), result.outcome.verdict), ("mine", Verdict::Done));
}

// The rows of the errors, by their numbers.

#[test]
fn row_63_cli_not_found_names_the_install_url() {
    let mut setup = ProviderSetup::with_program(Path::new("/nonexistent/gemini"));
    setup.env.insert("PATH".into(), "/nonexistent".into());
    let provider = setup.provider(json!({}));
    for error in [
        provider.validate().unwrap_err(),
        provider.generate("hi", &CallContext::default(), None).unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert!(error.message.starts_with(INSTALL), "{}", error.message);
        assert!(error.message.contains("/nonexistent/gemini"), "{}", error.message);
    }
    ProviderSetup::script("").provider(json!({})).validate().expect("the program is available");
}

#[test]
fn row_64_exit_codes_are_distinguished_and_stderr_is_kept() {
    for (code, kind, start, stderr) in [
        (42, ErrorKind::Failed, "Gemini CLI failed (exit 42): ", "No input provided via stdin"),
        (44, ErrorKind::Failed, "Gemini CLI failed (exit 44): ", "FatalSandboxError"),
        (52, ErrorKind::Failed, "Gemini CLI failed (exit 52): ", "Error in settings.json"),
        (53, ErrorKind::LimitReached, "Gemini CLI reached a limit: ", "Reached max session turns"),
        (54, ErrorKind::Failed, "Gemini CLI failed (exit 54): ", "No space left on device"),
        (55, ErrorKind::Untrusted, "Gemini CLI does not trust the workspace: ", "not running in a trusted"),
        (130, ErrorKind::Cancelled, "Gemini CLI was cancelled: ", "Operation cancelled."),
        (173, ErrorKind::RateLimited, "Gemini CLI was rate limited: ", "HTTP status 429"),
    ] {
        let error = ProviderSetup::fault("exit_code", json!({"code": code})).error();
        assert_eq!(error.kind, kind, "{code}: {error}");
        assert!(error.message.starts_with(start) && error.message.contains(stderr), "{code}: {error}");
        assert_eq!(error.outcome.expect("a run").agent_exit_code, Some(code));
    }
}

#[test]
fn row_65_invalid_json_line_does_not_end_the_run() {
    let result = ProviderSetup::events(&[INIT, "echo 'not json'", ANSWER, DONE]).ok();
    assert_eq!(result.response, "All done. 4");
}

#[test]
fn row_66_missing_sign_in_explains_how_to_sign_in() {
    let error = ProviderSetup::fault("exit_code", json!({"code": 41})).error();
    assert_eq!(error.kind, ErrorKind::Authentication);
    assert_eq!(
        error.message,
        "Gemini CLI authentication error. Set GEMINI_API_KEY, or run `gemini` once in a terminal and sign in\nWhen using Gemini API, you must specify the GEMINI_API_KEY environment variable."
    );
}

#[test]
fn row_67_words_such_as_login_and_author_are_not_auth_errors() {
    let error = ProviderSetup::script("echo 'the author used a login shell' >&2; exit 1").error();
    assert_eq!(error.kind, ErrorKind::Failed);
    assert_eq!(error.message, "Gemini CLI failed (exit 1): the author used a login shell");
}

#[test]
fn row_68_a_timeout_is_an_error_and_ends_everything() {
    let setup =
        ProviderSetup::fault("stubborn_with_children", json!({"pid_file": "/dev/null", "stubborn": true}));
    let started_at = Instant::now();
    let error = setup.generate(json!({"timeout": 2})).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(error.message.starts_with("Gemini CLI timed out: "), "{error}");
    assert!(started_at.elapsed() < Duration::from_secs(60), "{:?}", started_at.elapsed());
    setup.assert_nothing_left();
}

#[test]
fn row_69_an_empty_answer_is_an_empty_response_and_a_blocked_one_an_error() {
    let result = ProviderSetup::fault("empty_answer", json!({})).ok();
    assert_eq!(serde_json::to_string(&result).unwrap(), r#"{"response":"","files":{}}"#);
    assert_eq!(result.outcome.verdict, Verdict::Empty);
    // The real agent ends like this if its model returns nothing.
    assert_eq!(ProviderSetup::fault("error_exit_0", json!({})).ok().response, "");
    let blocked =
        r#"{"type":"error","severity":"error","message":"The response was blocked due to safety."}"#;
    let error = ProviderSetup::events(&[INIT, blocked, FAILED, "exit 1"]).error();
    assert_eq!(error.kind, ErrorKind::Blocked);
    assert!(error.message.starts_with("Gemini CLI gave no answer: "), "{error}");
}

#[test]
fn row_70_exit_code_127_is_not_found_with_the_right_package() {
    let error = ProviderSetup::fault("exit_code", json!({"code": 127})).error();
    assert_eq!(error.kind, ErrorKind::NotFound);
    let reason = "Node.js, which Gemini CLI requires, was not found (exit code 127)";
    assert!(error.message.starts_with(&format!("{INSTALL}\n{reason}")), "{}", error.message);
    assert!(error.message.contains("env: 'node': No such file or directory"), "{}", error.message);
}

#[test]
fn row_71_other_exits_are_reported_with_code_and_stderr() {
    assert_eq!(
        ProviderSetup::script("echo boom >&2; exit 3").error().message,
        "Gemini CLI failed (exit 3): boom"
    );
    let silent = ProviderSetup::script("exit 0").error();
    assert!(
        silent.message.starts_with("Gemini CLI failed (exit 0): the agent exited without a result"),
        "{silent}"
    );
    let killed = ProviderSetup::fault("killed_sigkill", json!({})).error();
    assert!(killed.message.starts_with("Gemini CLI failed: "), "{killed}");
    assert_eq!(killed.outcome.expect("a run").text, "I was about to ");
}

// The cases, by their names in the specification.

#[test]
fn mixed_message_and_tool_use() {
    let setup = ProviderSetup::fault("ok", json!({}));
    let result = setup.ok();
    assert_eq!(
        serde_json::to_string(&result).unwrap(),
        r#"{"response":"I will write it.All done. 4","files":{"hello.txt":null}}"#
    );
    assert!(result.denied().is_empty());
    assert_eq!(fs::read_to_string(setup.workspace().join("hello.txt")).unwrap(), "hi there\n");
}

#[test]
fn multiple_write_file() {
    let setup = ProviderSetup::events(&[
        INIT,
        &uses("write_file", "1", "a.txt"),
        &uses("write_file", "2", "sub/b.txt"),
        "mkdir sub; echo a > a.txt; echo b > sub/b.txt",
        &worked("2"),
        &worked("1"),
        &uses("write_file", "3", "a.txt"),
        &worked("3"),
        ANSWER,
        DONE,
    ]);
    assert_eq!(files(&setup.ok()), ["a.txt", "sub/b.txt"]);
}

#[test]
fn multiple_replace() {
    let setup = ProviderSetup::events(&[
        INIT,
        &uses("replace", "1", "a.txt"),
        "echo new > a.txt",
        &worked("1"),
        &uses("replace", "2", "b.txt"),
        "echo new > b.txt",
        &worked("2"),
        // A write with unchanged content still counts as a write.
        &uses("replace", "3", "same.txt"),
        &worked("3"),
        ANSWER,
        DONE,
    ]);
    for name in ["a.txt", "b.txt", "same.txt", "other.txt"] {
        fs::write(setup.workspace().join(name), "old\n").unwrap();
    }
    assert_eq!(files(&setup.ok()), ["a.txt", "b.txt", "same.txt"]);
}

#[test]
fn failed_tool_calls_not_tracked() {
    let failed =
        r#"{"type":"tool_result","tool_id":"1","status":"error","error":{"type":"unknown","message":"no"}}"#;
    let setup = ProviderSetup::events(&[INIT, &uses("write_file", "1", "a.txt"), failed, ANSWER, DONE]);
    assert_eq!(files(&setup.ok()), [""; 0]);
    // The call failed, but the file exists: its source is unknown, and a warning says so.
    let result = ProviderSetup::fault("failed_but_wrote", json!({})).ok();
    assert_eq!(files(&result), [""; 0]);
    assert_eq!(
        warned(&result, "files_unknown"),
        ["these files changed during the run, but no tool reported them: hello.txt"]
    );
}

#[test]
fn unwritten_or_deleted_files_are_not_listed() {
    let result = ProviderSetup::fault("success_lie", json!({})).ok();
    assert_eq!(files(&result), [""; 0]);
    assert_eq!(
        warned(&result, "files_missing"),
        ["a tool reported that it wrote these files, but they do not exist: hello.txt"]
    );
    let setup = ProviderSetup::events(&[
        INIT,
        r#"{"type":"tool_use","tool_name":"run_shell_command","tool_id":"1","parameters":{"command":"rm old.txt; echo x > new.txt"}}"#,
        "rm old.txt; echo x > new.txt",
        &worked("1"),
        ANSWER,
        DONE,
    ]);
    fs::write(setup.workspace().join("old.txt"), "old\n").unwrap();
    assert_eq!(files(&setup.ok()), ["new.txt"]);
}

#[test]
fn malformed_lines() {
    let result = ProviderSetup::fault("garbage_between", json!({})).ok();
    assert_eq!(result.response, "I will write it.All done. 4");
    assert_eq!(files(&result), ["hello.txt"]);
    let warnings = warned(&result, "malformed_lines");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("Malformed JSON lines: "), "{warnings:?}");
    assert!(warnings[0].contains("Empty GEMINI.md created. Now analyzing the project"), "{warnings:?}");
    assert!(!warnings[0].contains("analyzing the project to populate it"), "a sample is short: {warnings:?}");
}

#[test]
fn timeout() {
    let setup = ProviderSetup::fault("hang_mid_text", json!({}));
    let started_at = Instant::now();
    let error = setup.generate(json!({"timeout": 4.5})).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(error.message.contains("the timeout of 4.5 s"), "{error}");
    assert!(error.to_string().ends_with("\n  hint: raise `timeout`"), "{error}");
    assert!(!error.outcome.expect("a run").text.is_empty(), "the text is kept");
    assert!(started_at.elapsed() < Duration::from_secs(60));
    setup.assert_nothing_left();
    let context = CallContext::default().response_timeout(Duration::from_millis(700));
    let error = setup.provider(json!({})).generate("hi", &context, None).unwrap_err();
    assert!(error.message.contains("the timeout of 0.7 s"), "{error}");
}

#[test]
fn auth_errors() {
    for setup in [
        ProviderSetup::fault("exit_code", json!({"code": 41})),
        ProviderSetup::fault("exit_code_with_result", json!({"code": 145})),
        ProviderSetup::script("echo 'Please set an Auth method in your settings.json' >&2; exit 1"),
    ] {
        let error = setup.error();
        assert_eq!(error.kind, ErrorKind::Authentication, "{error}");
        assert!(
            error.message.starts_with("Gemini CLI authentication error. Set GEMINI_API_KEY, or "),
            "{error}"
        );
        assert!(!error.to_string().contains("auth login"), "there is no such command: {error}");
    }
}

#[test]
fn cancelled_reported_as_success() {
    // The event says success; only the session file shows that the call was cancelled.
    let record = r#"{"id":"m1","type":"gemini","content":"","toolCalls":[{"id":"1","name":"write_file","args":{"file_path":"a.txt"},"status":"cancelled"}]}"#;
    let find_session = r#"id=0f0f0f0f-1111-4111-8111-111111111111
chats="$GEMINI_CLI_HOME/.gemini/tmp/ws/chats"; mkdir -p "$chats"; pwd -P > "$chats/../.project_root"
start=$(printf %s "$id" | cut -c1-8)"#;
    let setup = ProviderSetup::events(&[
        find_session,
        r#"printf '{"type":"init","session_id":"%s","model":"auto"}\n' "$id""#,
        &uses("write_file", "1", "a.txt"),
        &worked("1"),
        &format!("cat > \"$chats/session-2026-01-01T00-00-$start.jsonl\" <<'END'\n{record}\nEND"),
        ANSWER,
        DONE,
    ]);
    fs::write(setup.workspace().join("a.txt"), "as it was\n").unwrap();
    let result = setup.ok();
    assert_eq!(result.response, "All done. 4");
    assert_eq!(files(&result), [""; 0]);
}

#[test]
fn error_event() {
    let event = |severity: &str, message: &str| {
        format!(r#"{{"type":"error","severity":"{severity}","message":"{message}"}}"#)
    };
    // A warning is reported and ends nothing.
    let result = ProviderSetup::events(&[INIT, &event("warning", "something odd"), ANSWER, DONE]).ok();
    assert_eq!(result.response, "All done. 4");
    assert_eq!(warned(&result, "agent"), ["something odd"]);
    // An error that stopped the agent is a failure, although its result says success.
    let error = ProviderSetup::fault("loop_warning", json!({})).error();
    assert!(error.message.contains("Loop detected"), "{error}");
    let error = ProviderSetup::events(&[INIT, &event("error", "it broke"), FAILED, "exit 1"]).error();
    assert_eq!(error.message, "Gemini CLI failed (exit 1): it broke");
}

#[test]
fn unknown_event() {
    assert_eq!(ProviderSetup::fault("unknown_events", json!({})).ok().response, "with All done. 4");
}

#[test]
fn utf8_split_across_reads() {
    assert_eq!(ProviderSetup::fault("split_character", json!({})).ok().response, "🦀 é 漢");
}

#[test]
fn crlf() {
    assert_eq!(ProviderSetup::fault("crlf", json!({})).ok().response, "All done. 4");
}

// Features beyond the specification.

#[test]
fn denied_tools_are_reported_with_the_answer() {
    let refused = r#"{"type":"tool_result","tool_id":"1","status":"error","error":{"type":"tool_not_registered","message":"Tool \"write_file\" not found."}}"#;
    let result =
        ProviderSetup::events(&[INIT, &uses("write_file", "1", "a.txt"), refused, ANSWER, DONE]).ok();
    assert_eq!(serde_json::to_string(&result).unwrap(), r#"{"response":"All done. 4","files":{}}"#);
    assert_eq!(result.denied()[0].tool, "Write");
    assert_eq!(result.outcome.verdict, Verdict::DoneWithDenials);
}

#[test]
fn configuration_warnings_are_in_every_result() {
    let result = ProviderSetup::events(&[INIT, ANSWER, DONE]).generate(json!({"temperature": 0.2})).unwrap();
    assert_eq!(warned(&result, "unknown_key").len(), 1);
}

#[test]
fn configured_limits_are_enforced() {
    let error = ProviderSetup::fault("many_tools", json!({"count": 50}))
        .generate(json!({"max_tool_calls": 3}))
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::LimitReached);
    assert!(error.message.starts_with("Gemini CLI reached a limit: "), "{error}");
}

#[test]
fn environment_is_passed_completely_unless_a_list_restricts_it() {
    let mut setup = ProviderSetup::events(&[
        INIT,
        r#"printf '{"type":"message","role":"assistant","content":"%s","delta":true}\n' "$ODD_VARIABLE""#,
        ANSWER,
        DONE,
    ]);
    setup.env.insert("ODD_VARIABLE".into(), "seen ".into());
    assert_eq!(setup.ok().response, "seen All done. 4");
    assert_eq!(setup.generate(json!({"pass_env": []})).unwrap().response, "All done. 4");
}

#[test]
fn agent_works_in_the_project_root_unless_a_working_dir_overrides_it() {
    let setup = ProviderSetup::events(&[INIT, "echo x > there.txt", ANSWER, DONE]);
    let [project, wins] = ["project", "wins"].map(|name| setup.workspace().join(name));
    fs::create_dir(&project).unwrap();
    fs::create_dir(&wins).unwrap();
    let context = CallContext::default().project_root(&project);
    setup.provider(json!({})).generate("hi", &context, None).unwrap();
    assert!(project.join("there.txt").exists());
    fs::remove_file(project.join("there.txt")).unwrap();
    setup.provider(json!({"working_dir": wins})).generate("hi", &context, None).unwrap();
    assert!(wins.join("there.txt").exists() && !project.join("there.txt").exists());
}

#[test]
fn system_prompt_precedes_the_prompt_with_a_blank_line() {
    let setup = ProviderSetup::events(&[INIT, ANSWER, DONE]);
    let script = fs::read_to_string(&setup.program).unwrap();
    let prompt = setup.dir.path().join("prompt");
    fs::write(&setup.program, script.replace("/dev/null", &prompt.to_string_lossy())).unwrap();
    let provider = setup.provider(json!({}));
    let result = provider.generate("What is 2+2?", &CallContext::default(), Some("Be brief.")).unwrap();
    assert_eq!(result.response, "All done. 4");
    assert_eq!(fs::read_to_string(prompt).unwrap().trim_end(), "Be brief.\n\nWhat is 2+2?");
}

#[test]
fn invalid_call_starts_nothing() {
    let setup = ProviderSetup::script("touch started");
    let provider = setup.provider(json!({}));
    let refused = |prompt: &str, context: &CallContext| provider.generate(prompt, context, None).unwrap_err();
    let error = refused(" ", &CallContext::default());
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Configuration, "`prompt`: is empty"));
    let error = refused("hi", &CallContext::default().project_root("/nonexistent/project"));
    assert!(error.message.contains("`/nonexistent/project` is not a directory"), "{error}");
    let error = refused("hi", &CallContext::default().prompt_file("missing.md"));
    assert!(error.message.contains("missing.md` cannot be read"), "{error}");
    assert!(!setup.workspace().join("started").exists());
}

#[test]
fn call_works_with_and_without_a_runtime() {
    let setup = ProviderSetup::events(&[INIT, ANSWER, DONE]);
    let provider = setup.provider(json!({}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let context = CallContext::from_map(&Map::new()).unwrap();
        assert_eq!(provider.generate("hi", &context, None).unwrap().response, "All done. 4");
        assert_eq!(provider.generate_async("hi", &context, None).await.unwrap().response, "All done. 4");
    });
}

#[test]
fn dropping_a_call_ends_the_agent() {
    let setup = ProviderSetup::fault("hang_with_children", json!({"pid_file": "/dev/null"}));
    let provider = setup.provider(json!({}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let context = CallContext::default();
        let call = provider.generate_async("hi", &context, None);
        assert!(tokio::time::timeout(Duration::from_secs(3), call).await.is_err(), "it hangs");
        // The run cleans up on its own; the runtime must only stay alive for it.
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    setup.assert_nothing_left();
}

/// The class of `docs/provider-guide.md`, in the Python that the tests use.
#[test]
fn the_provider_of_the_guide_works() {
    let Some(python) = agentline_tests::Python::find() else { return agentline_tests::skipped("the guide") };
    let guide =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/provider-guide.md")).unwrap();
    let code = guide.split_once("```python\n").unwrap().1.split_once("```").unwrap().0;
    let setup = ProviderSetup::events(&[
        INIT,
        &uses("write_file", "1", "a.txt"),
        "echo x > a.txt",
        &worked("1"),
        ANSWER,
        DONE,
    ]);
    let calls = format!(
        "{code}
import sys
provider = AgentProvider(program=sys.argv[1])
provider.validate()
print(json.dumps(provider.generate('What is 2+2?', sys.argv[2])))
for flags in (['--timeout', 'soon'], ['--max-tool-calls', '0']):
    try:
        print(AgentProvider(flags=flags, program=sys.argv[1]).generate('hi', sys.argv[2]))
    except ProviderError as error:
        print(error.kind)
"
    );
    let file = setup.dir.path().join("guide.py");
    fs::write(&file, calls).unwrap();
    let mut command = python.command();
    command.arg(file).arg(env!("CARGO_BIN_EXE_agentline-under-test")).arg(setup.workspace());
    command
        .env_clear()
        .envs(&setup.env)
        .env("GEMINI_CLI_PATH", &setup.program)
        .env("GEMINI_API_KEY", "no-key");
    let done = command.output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    let expected =
        "{\"response\": \"All done. 4\", \"files\": {\"a.txt\": null}}\nconfiguration\nlimit_reached\n";
    assert_eq!(printed, expected, "{}", String::from_utf8_lossy(&done.stderr));
}
