//! Tests the promptfoo provider in the real promptfoo, with the real Gemini CLI and a scripted model: whole evaluations
//! and their JSON.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
use agentline_tests::{
    Evaluated, InstalledPromptfoo, MODEL, PROVIDER, TestStage, TypeScript, exit_of, needs_real_gemini,
    survivors, wait_until,
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

fn promptfoo() -> InstalledPromptfoo {
    InstalledPromptfoo::find(env!("CARGO_BIN_EXE_agentline-under-test")).unwrap()
}

/// The fake agent, which runs its prompt as a script.
const FAKE: &str = env!("CARGO_BIN_EXE_fake-acp");

/// Returns an environment for the fake agent, which asks no model.
fn fake_stage() -> TestStage {
    stage([("", Script::always(GeminiStep::text("not asked")))])
}

fn stage<'a>(scripts: impl IntoIterator<Item = (&'a str, Script)>) -> TestStage {
    TestStage::with_model(GeminiModel::matching(scripts).unwrap())
}

/// Returns a configuration with our provider, the prompt `{{say}}` and these test cases.
fn config(provider: Value, tests: Value) -> Value {
    let mut own = json!({"model": MODEL, "extensions": []});
    own.as_object_mut().unwrap().extend(provider.as_object().unwrap().clone());
    json!({
        "providers": [{"id": format!("file://{PROVIDER}/index.mjs"), "config": own}],
        "prompts": ["{{say}}"],
        "tests": tests,
    })
}

/// Returns a test case with this prompt and its own options.
fn case(prompt: &str, options: Value) -> Value {
    json!({"description": prompt, "vars": {"say": prompt}, "options": options})
}

fn nothing_left(stage: &TestStage) {
    let mark = format!("HOME={}", stage.home().display());
    wait_until("the end of all processes", || survivors(&mark).is_empty());
}

#[test]
fn promptfoo_provider_covers_the_required_features() {
    needs_real_gemini!();
    let note = || GeminiStep::call("write_file", json!({"file_path": "note.txt", "content": "remember\n"}));
    let shown = || GeminiStep::call("run_shell_command", json!({"command": "echo for $EVALUATION_TARGET"}));
    let stage = stage([
        ("two and two", Script::new([GeminiStep::text("4")])),
        ("write a note", Script::new([note(), shown(), GeminiStep::text("Written.")])),
        ("write unasked", Script::new([note(), GeminiStep::text("I could not.")])),
        ("ask me", Script::new([note(), GeminiStep::text("Asked.")])),
        ("a number", Script::new([GeminiStep::text("It is {\"n\": 4}.")])),
        ("remember blue", Script::new([GeminiStep::text("I will.")])),
        ("which colour", Script::new([GeminiStep::text("Blue.")])),
        (
            "in pieces",
            Script::new([GeminiStep::text("one, ").and_text("two, ").and_text("three").chunk_delay(50)]),
        ),
        (
            "add them",
            Script::new([
                GeminiStep::call("mcp_agentline_add", json!({"a": 2, "b": 3})),
                GeminiStep::text("5"),
            ]),
        ),
        (
            "shout it",
            Script::new([
                GeminiStep::call("mcp_tiny_shout", json!({"word": "hey"})),
                GeminiStep::text("I did."),
            ]),
        ),
        ("never end", Script::always(GeminiStep::call("list_directory", json!({"dir_path": "."})))),
    ]);
    fs::create_dir(stage.outside().join("notes")).unwrap();
    fs::write(stage.outside().join("hooks.mjs"), HOOKS).unwrap();
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/../agentline/tests/library/tools/server.mjs");
    let servers = json!({"mcpServers": {"tiny": {"command": "node", "args": [server], "trust": true}}});
    fs::write(stage.outside().join("mcp.json"), servers.to_string()).unwrap();
    let trusted = json!({"working_dir": "notes", "yolo": true});
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let mut written = case("write a note", trusted.clone());
    written["assert"] = json!([
        {"type": "trajectory:tool-used", "value": "write_file"},
        {"type": "trajectory:tool-used", "value": "Write"},
        {"type": "trajectory:tool-args-match", "value": {"name": "write_file", "args": {"file_path": "note.txt"}}},
        {"type": "trajectory:step-count", "value": {"type": "tool", "max": 2}},
        {"type": "cost", "threshold": 1},
    ]);
    let mut config = config(
        json!({}),
        json!([
            case("two and two", json!({})),
            written,
            case("write unasked", json!({"working_dir": "ws"})),
            case("ask me", json!({"working_dir": "ws", "hooks": "file://hooks.mjs"})),
            case("a number", json!({"output_schema": schema})),
            case("remember blue", json!({"working_dir": "ws"})),
            case("which colour", json!({"working_dir": "ws", "resume": "latest"})),
            case("in pieces", json!({"hooks": "hooks.mjs"})),
            case("add them", json!({"hooks": "hooks.mjs"})),
            case("shout it", json!({"mcp_settings_path": "mcp.json"})),
            case("never end", json!({"working_dir": "ws", "max_turns": 2})),
        ]),
    );
    config["tracing"] = json!({"enabled": true});
    let mut command = promptfoo().command(&stage, &config, &["-j", "1"]);
    let done = InstalledPromptfoo::finish(&stage, command.env("EVALUATION_TARGET", "nightly"));

    let first = done.of("two and two");
    assert_eq!(first["provider"]["id"], "google:gemini-cli");
    let response = &first["response"];
    assert_eq!(response["output"], "4", "{first:#}");
    let usage = &response["tokenUsage"];
    assert_eq!(
        [&usage["total"], &usage["prompt"], &usage["completion"], &usage["cached"], &usage["numRequests"]],
        [125, 100, 20, 30, 1]
    );
    assert_eq!(usage["completionDetails"]["reasoning"], 5);
    assert!(response["cost"].as_f64().is_some_and(|cost| cost > 0.0) && response["sessionId"].is_string());
    let raw: Value = serde_json::from_str(response["raw"].as_str().unwrap()).unwrap();
    assert_eq!((&raw["verdict"], &raw["surface"]), (&json!("done"), &json!("acp")));
    assert!(!Path::new(raw["cwd"].as_str().unwrap()).exists(), "{raw}");

    let written = done.of("write a note");
    assert_eq!(written["success"], true, "{written:#}\n{}", done.output);
    let metadata = &written["response"]["metadata"];
    assert_eq!(metadata["files"][0]["path"], "note.txt");
    assert_eq!(
        (&metadata["toolCalls"][0]["name"], metadata["numTurns"].as_u64()),
        (&json!("write_file"), Some(3))
    );
    assert_eq!(metadata["terminalReason"], "completed", "{metadata:#}");
    // The agent and its tools see the environment of the evaluation.
    let shown = &metadata["toolCalls"][1];
    assert!(shown["output"].to_string().contains("for nightly"), "{shown:#}");
    assert_eq!(fs::read_to_string(stage.outside().join("notes/note.txt")).unwrap(), "remember\n");

    // Without permission, an agent only reads; the denial is reported.
    let refused = &done.of("write unasked")["response"]["metadata"];
    assert_eq!(refused["verdict"], "done_with_denials", "{refused:#}");
    assert_eq!(refused["permissionDenials"][0]["tool"], "Write", "{refused:#}");
    // One function of the user permits it, another counts, a third receives the streamed text.
    let asked = &done.of("ask me")["response"]["metadata"];
    assert_eq!(
        (&asked["verdict"], &asked["files"][0]["path"]),
        (&json!("done"), &json!("note.txt")),
        "{asked:#}"
    );
    assert_eq!(done.of("a number")["response"]["output"], json!({"n": 4}));
    let texts = fs::read_to_string(stage.outside().join("pieces.txt")).unwrap();
    assert!(texts.contains("[one, ][two, ][three]"), "{texts}");
    let added = &done.of("add them")["response"];
    assert!(added["metadata"]["toolCalls"][0]["output"].to_string().contains("sum is 5"), "{added:#}");
    // A tool of an MCP server that the configuration names needs no permission.
    let shouted = &done.of("shout it")["response"];
    assert_eq!(shouted["metadata"]["verdict"], "done", "{shouted:#}");
    assert!(shouted["metadata"]["toolCalls"][0]["output"].to_string().contains("HEY"), "{shouted:#}");
    let requests = stage.model.requests_to_main();
    let resumed = requests.iter().find(|r| r.prompt().contains("which colour")).unwrap();
    assert!(resumed.user_texts().iter().any(|text| text.contains("remember blue")));
    let limited = &done.of("never end")["response"];
    assert_eq!(limited["metadata"]["verdict"], "limit_reached", "{limited:#}");
    assert!(limited["error"].as_str().unwrap().starts_with("Gemini CLI error: "), "{limited:#}");
    nothing_left(&stage);
}

/// Functions of a user, which run in promptfoo's own process.
const HOOKS: &str = r#"
import { appendFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
const pieces = fileURLToPath(new URL('pieces.txt', import.meta.url));
export const event = ({ type, text }) => type === 'text' && appendFileSync(pieces, `[${text}]`);
export const permission = ({ tool, paths }) => tool === 'Write' && paths.every((path) => path.endsWith('note.txt'));
export const tools = [{
  name: 'add', description: 'Adds', input_schema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } } },
  run: ({ a, b }) => `the sum is ${a + b}`,
}];
"#;

/// The real agent is not needed: `failures_are_reported_with_contract_terms` runs concurrent prompts on it.
#[test]
fn concurrent_prompts_share_one_host_and_lose_no_answers() {
    needs_real_gemini!();
    let stage = fake_stage();
    let cases: Vec<Value> = (1..=16).map(|n| case(&format!("say answer {n}"), json!({}))).collect();
    let started = stage.outside().join("hosts.txt");
    let binary = counting(&stage, &started);
    let options = json!({"working_dir": "ws", "permission_mode": "plan", "agentline_bin": binary});
    let mut config = config(options, cases.into());
    // Two providers share one host.
    let twin = config["providers"][0].clone();
    config["providers"].as_array_mut().unwrap().push(twin);
    config["providers"][1]["label"] = "twin".into();
    let done = promptfoo().with_agent(FAKE).eval(&stage, &config, &["-j", "4"]);
    assert_eq!(done.results.len(), 32, "{}", done.output);
    for result in &done.results {
        let answer = result["vars"]["say"].as_str().unwrap().strip_prefix("say ").unwrap();
        assert_eq!(result["response"]["output"], answer, "{result:#}");
    }
    assert_eq!(fs::read_to_string(started).unwrap(), "host\n");
    nothing_left(&stage);
}

/// Writes a program that logs each start of agentline's host and then becomes the host.
fn counting(stage: &TestStage, file: &Path) -> String {
    let script = stage.outside().join("counting");
    let agentline = env!("CARGO_BIN_EXE_agentline-under-test");
    program(&script, &format!("echo \"$1\" >> '{}'\nexec '{agentline}' \"$@\"\n", file.display()));
    script.to_string_lossy().into_owned()
}

/// Writes a shell script that can be started.
fn program(file: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(file, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn failures_are_reported_with_contract_terms() {
    needs_real_gemini!();
    let stage = stage([
        ("too often", Script::always(GeminiStep::rate_limited(Some(1)))),
        ("all used up", Script::always(GeminiStep::daily_quota())),
        ("say nothing", Script::always(GeminiStep::empty())),
        ("hang", Script::always(GeminiStep::hang())),
        ("no key", Script::always(GeminiStep::invalid_key())),
        ("", Script::always(GeminiStep::text("fine"))),
    ]);
    let cases = json!([
        case("too often", json!({"retry_patience_ms": 100})),
        case("too often, retried by agentline", json!({"retry_patience_ms": 100, "max_retries": 1})),
        case("all used up", json!({})),
        case("say nothing", json!({})),
        case("hang", json!({"timeout_ms": 4000})),
        case("no key", json!({})),
        case("no agent", json!({"agent": "codex", "extensions": null})),
        case("no folder", json!({"working_dir": "./no/such/folder"})),
        case("bad mode", json!({"approval_mode": "sometimes"})),
        case("plain text", json!({"agent_bin": "./wrapper"})),
        case("misspelled", json!({"max_turn": 3})),
        case("for another provider", json!({"temperature": 0.5})),
        case("fine", json!({})),
    ]);
    program(&stage.outside().join("wrapper"), "echo 'the license has expired'\nexit 3\n");
    let done = promptfoo().eval(&stage, &config(json!({}), cases), &["-j", "4"]);
    for (description, verdict, expected) in [
        ("all used up", "rate_limited", "rate_limited: "),
        ("hang", "timed_out", "Gemini CLI error: "),
        ("no key", "not_authenticated", "not_authenticated: "),
        ("no agent", "not_installed", "Codex error: "),
        ("plain text", "failed", "Gemini CLI error: Exit code 3: the license has expired"),
    ] {
        let response = &done.of(description)["response"];
        assert_eq!(
            response["metadata"]["verdict"],
            verdict,
            "{description}: {:#}\n{}",
            done.of(description),
            done.output
        );
        assert!(response["error"].as_str().unwrap().starts_with(expected), "{description}: {response:#}");
        assert_eq!(response.get("output"), None, "{description}");
        assert!(response["raw"].is_string(), "{description}");
    }
    for (description, expected) in [
        ("no folder", "no/such/folder` is not a directory (pass an existing directory with `working_dir`)"),
        ("bad mode", "approval_mode"),
        ("misspelled", "max_turn: is not a known key (did you mean `max_turns`?)"),
    ] {
        let error = done.of(description)["response"]["error"].as_str().unwrap();
        assert!(error.starts_with("Gemini CLI error: ") && error.contains(expected), "{error}");
    }
    assert_eq!(done.of("fine")["response"]["output"], "fine");
    let other = &done.of("for another provider")["response"];
    assert_eq!(other["output"], "fine", "{other:#}");
    assert!(
        other["metadata"]["warnings"].to_string().contains("`temperature` is not a known key"),
        "{other:#}"
    );
    // An answer without text is an answer.
    let empty = done.of("say nothing");
    assert_eq!((&empty["response"]["output"], &empty["success"]), (&json!(""), &json!(true)), "{empty:#}");
    assert_eq!(empty["response"]["metadata"]["verdict"], "empty");
    // The hint names the options of the provider.
    let error = |description: &str| done.of(description)["response"]["error"].as_str().unwrap();
    assert!(error("no key").contains("(set GEMINI_API_KEY"), "{}", error("no key"));
    assert!(error("hang").contains("`timeout_ms`"), "{}", error("hang"));
    // promptfoo's scheduler slowed down and retried only what can be retried.
    let kind = |description: &str| &done.of(description)["response"]["metadata"]["rateLimitKind"];
    let gave_up = done.of("too often")["error"].as_str().unwrap();
    assert!(gave_up.contains("Rate limit exceeded for google:gemini-cli after 4 attempts"), "{gave_up}");
    assert_eq!((kind("all used up"), done_asking(&stage, "all used up")), (&json!("quota"), 1));
    // Alternatively, agentline retries, and the error has all details.
    let ours = &done.of("too often, retried by agentline")["response"];
    assert_eq!(
        (&ours["metadata"]["attempts"], kind("too often, retried by agentline")),
        (&json!(2), &json!("quota"))
    );
    assert!(ours["error"].as_str().unwrap().starts_with("rate_limited: "), "{ours:#}");
    nothing_left(&stage);
}

fn done_asking(stage: &TestStage, text: &str) -> usize {
    stage.model.requests_to_main().iter().filter(|request| request.prompt().contains(text)).count()
}

/// `process_kills` kills agentline with the real agent below it. To promptfoo, both agents are the same host.
#[test]
fn aborted_or_killed_evaluation_leaves_nothing_running() {
    needs_real_gemini!();
    let stage = fake_stage();
    let up = stage.workspace().join("up");
    let prompt = format!("run echo up > {}; sleep 600", up.display());
    let options = json!({"working_dir": "ws", "yolo": true});
    let cases = |n: usize| (0..n).map(|_| case(&prompt, json!({}))).collect::<Vec<_>>();
    let promptfoo = promptfoo().with_agent(FAKE);
    // promptfoo's own timeout for a test case aborts the call.
    let mut command = promptfoo.command(&stage, &config(options.clone(), cases(1).into()), &[]);
    let done = command.env("PROMPTFOO_EVAL_TIMEOUT_MS", "6000").output().unwrap();
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let results = Evaluated::read(&stage.outside().join("results.json"), output).results;
    assert!(results[0]["error"].as_str().unwrap().contains("timed out after 6000ms"), "{results:#?}");
    nothing_left(&stage);

    // The file exists once the command has started, which may not have happened on a loaded machine.
    let _ = fs::remove_file(&up);
    let mut child = promptfoo.begin(&stage, &config(options, cases(2).into()), &["-j", "2"]);
    wait_until("the start of a command", || up.exists());
    child.kill().unwrap();
    exit_of(&mut child, "the end of a killed promptfoo");
    nothing_left(&stage);
}

/// promptfoo does not report to a provider whether its cache is on. The provider's way to detect it must work with the
/// real promptfoo.
#[test]
fn cache_options_are_respected_in_every_form_of_configuration() {
    needs_real_gemini!();
    let stage = stage([("", Script::always(GeminiStep::text("not asked")))]);
    let log = stage.outside().join("host.jsonl");
    let options = json!({"agentline_bin": format!("{PROVIDER}/test/fake-host.mjs"), "host_env": {"FAKE_HOST_LOG": log}});
    let config = config(options, json!([case("hi", json!({}))]));
    // Also by the name of the package.
    let modules = stage.outside().join("node_modules");
    fs::create_dir(&modules).unwrap();
    std::os::unix::fs::symlink(PROVIDER, modules.join("agentline-promptfoo")).unwrap();
    let mut named = config.clone();
    named["providers"][0]["id"] = "package:agentline-promptfoo:GeminiCLIProvider".into();
    let file = |name: &str, config: &Value| {
        let file = stage.outside().join(name);
        fs::write(&file, config.to_string()).unwrap();
        file
    };
    let example = Path::new(PROVIDER).join("examples/gemini-cli/promptfooconfig.yaml");
    let command = |file: &Path, args: &[&str]| promptfoo().command_for(&stage, file, args);
    let plain = command(&file("plain.json", &config), &["--repeat", "2", "-j", "1"]);
    let named = command(&file("named.json", &named), &["--no-cache"]);
    let example = command(&example, &["-j", "1"]);
    let mut runs = Vec::new();
    for (variable, mut command, expected) in [
        ("true", plain, vec![json!(true), json!(false)]),
        ("true", named, vec![json!(false)]),
        ("false", example, vec![json!(false), json!(false)]),
    ] {
        let _ = fs::remove_file(&log);
        command.env("AGENTLINE_BIN", format!("{PROVIDER}/test/fake-host.mjs")).env("FAKE_HOST_LOG", &log);
        let done = command.env("PROMPTFOO_CACHE_ENABLED", variable).output().unwrap();
        let printed = String::from_utf8_lossy(&done.stdout);
        let log = fs::read_to_string(&log).unwrap_or_else(|error| panic!("{error}: {printed}"));
        let params: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| line["method"] == "run")
            .map(|line| line["params"].clone())
            .collect();
        let asked: Vec<Value> = params.iter().map(|params| params["cache"].clone()).collect();
        assert_eq!(asked, expected, "{variable} {command:?}: {printed}");
        runs.push(params);
    }
    let [_, _, example] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!(
        (&example[0]["model"], &example[0]["timeout_ms"]),
        (&json!("gemini-2.5-pro"), &json!(120_000))
    );
    assert!(example[0]["working_dir"].as_str().unwrap().ends_with("examples/gemini-cli/fixture"));
    assert_eq!(example[1]["output_schema"]["required"], json!(["functions"]));
}

#[test]
fn the_example_runs_offline_with_one_command() {
    needs_real_gemini!();
    let stage = stage([("", Script::always(GeminiStep::text("not this model")))]);
    let results = stage.outside().join("results.json");
    let mut command = Command::new(promptfoo().node());
    promptfoo().set_environment(&mut command, &stage);
    command.env("PROMPTFOO", promptfoo().main()).arg(format!("{PROVIDER}/examples/demo/run.mjs"));
    let done = command.arg("--no-table").arg("-o").arg(&results).output().unwrap();
    let output =
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{output}");
    let done = Evaluated::read(&results, output);
    assert_eq!(done.results.len(), 3);
    assert!(done.results.iter().all(|result| result["success"] == true), "{:#}", done.json);
    assert!(stage.model.requests().is_empty(), "the example has its own model");
    nothing_left(&stage);
}

/// Runs the provider's own tests, with a replacement for the host.
#[test]
fn package_tests_pass() {
    needs_real_gemini!();
    let tests: Vec<_> = fs::read_dir(format!("{PROVIDER}/test"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".test.mjs"))
        .collect();
    assert!(tests.len() >= 2, "{tests:?}");
    let mut command = Command::new(promptfoo().node());
    let typescript = TypeScript::find().unwrap();
    command.env("TYPESCRIPT", typescript.modules().join("typescript/bin/tsc"));
    command.env("PROMPTFOO_MODULES", promptfoo().modules());
    let done = command.arg("--test").args(tests).current_dir(PROVIDER).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
