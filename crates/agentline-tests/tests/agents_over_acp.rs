//! The real agents of other vendors, driven by our library: their tools by our names, their questions by our rules, and
//! nothing of the workspace's own settings unless it is trusted.

use agentline::{
    Agentline, Change, ChangeSource, Config, Event, Layer, Outcome, PermissionMode, Record, RunRequest,
    ToolStatus, Trust, Verdict, agents, blocking, detect::Here, install,
};
use agentline_mock::{anthropic, openai, responses, scripted::Step};
use agentline_tests::{AcpStage, example_agent, skipped};
use serde_json::json;
use std::{fs, time::Duration};

/// OpenCode takes 20 s to its first answer on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);

fn agentline(stage: &AcpStage, agent: &str) -> Agentline {
    let here = Here::new(stage.variables().clone(), stage.home(), stage.workspace());
    Agentline::new(here).program(agent, &stage.agent.program)
}

fn play(stage: &AcpStage, request: RunRequest) -> (Vec<Record>, Outcome) {
    let agentline = agentline(stage, &request.agent);
    let request = request.working_dir(stage.workspace()).startup_timeout(PATIENCE).timeout(PATIENCE * 2);
    let mut records = Vec::new();
    let outcome = blocking::run(&agentline, request, |record, _| records.push(record.clone()));
    (records, outcome.expect("the request is good"))
}

/// The stage of an agent whose model writes a file, runs a command that fails, and answers.
fn stage(agent: &str) -> Option<AcpStage> {
    let answer = || Step::text("All done.");
    let command = "echo out; exit 3";
    match agent {
        "claude" => {
            let write = |ws: &str| json!({"file_path": format!("{ws}/a.txt"), "content": "a\n"});
            let ws = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
            let told = ws.clone();
            let model = anthropic::model_by(move |request| match request.turn() {
                0 => Step::call("Write", write(told.get().expect("it is told before the run"))),
                1 => Step::call("Bash", json!({"command": command, "description": "d"})),
                _ => Step::text("All done."),
            });
            let stage = AcpStage::claude(model.expect("a free port"))?;
            ws.set(stage.workspace().to_string_lossy().into_owned()).expect("it is told once");
            Some(stage)
        }
        "opencode" => {
            let ws = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
            let told = ws.clone();
            let model = openai::model_by(move |request| match request.turn() {
                0 => {
                    let path = format!("{}/a.txt", told.get().expect("it is told before the run"));
                    Step::call("write", json!({"filePath": path, "content": "a\n"}))
                }
                1 => Step::call("bash", json!({"command": command, "description": "d"})),
                _ => Step::text("All done."),
            });
            let stage = AcpStage::opencode(model.expect("a free port"))?;
            ws.set(stage.workspace().to_string_lossy().into_owned()).expect("it is told once");
            Some(stage)
        }
        _ => {
            let write = Step::call("exec_command", json!({"cmd": "echo a > a.txt"}));
            let fail = Step::call("exec_command", json!({"cmd": command}));
            AcpStage::codex(responses::model([write, fail, answer()]).expect("a free port"))
        }
    }
}

/// The results of a run's tools: canonical name and status.
fn results(records: &[Record]) -> Vec<(String, ToolStatus)> {
    let name = |id: &str| {
        records.iter().find_map(|record| match &record.event {
            Event::ToolUse(tool) if tool.id == id => Some(tool.name.clone()),
            _ => None,
        })
    };
    let told = records.iter().filter_map(|record| match &record.event {
        Event::ToolResult { tool_use_id, status, .. } => Some((name(tool_use_id)?, *status)),
        _ => None,
    });
    told.collect()
}

fn shown(outcome: &Outcome) -> String {
    serde_json::to_string_pretty(outcome).expect("JSON")
}

/// Everything is permitted, and what the tools did is told by our names.
fn works(agent: &str, files: ChangeSource) {
    let Some(stage) = stage(agent) else { return skipped(agent) };
    let request = RunRequest::new("do it").agent(agent).permission_mode(PermissionMode::Bypass);
    let (records, outcome) = play(&stage, request);
    let shown = shown(&outcome);
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "All done."), "{shown}");
    let file = outcome.files.iter().find(|file| file.path == "a.txt").unwrap_or_else(|| panic!("{shown}"));
    assert_eq!((file.change, file.source, file.verified), (Change::Created, files, true), "{shown}");
    let first = if files == ChangeSource::Tool { "Write" } else { "Bash" };
    let expected = [(first.to_owned(), ToolStatus::Ok), ("Bash".to_owned(), ToolStatus::Error)];
    assert_eq!(results(&records), expected, "a command that fails has failed: {records:#?}");
}

#[test]
fn claude_works() {
    works("claude", ChangeSource::Tool);
}

#[test]
fn codex_works() {
    works("codex", ChangeSource::Shell);
}

#[test]
fn opencode_works() {
    works("opencode", ChangeSource::Tool);
}

/// What nobody permits is not done, and is told.
#[test]
fn claude_is_refused_what_nobody_permits() {
    let Some(stage) = stage("claude") else { return skipped("claude") };
    let (_, outcome) = play(&stage, RunRequest::new("do it").agent("claude"));
    let denied: Vec<&str> = outcome.denied.iter().map(|denial| denial.tool.as_str()).collect();
    assert_eq!(
        (outcome.verdict, denied),
        (Verdict::DoneWithDenials, vec!["Write", "Bash"]),
        "{}",
        shown(&outcome)
    );
    assert!(outcome.files.is_empty() && !stage.workspace().join("a.txt").exists());
}

#[test]
fn opencode_is_held_to_rules_and_edits_alone() {
    let Some(stage) = stage("opencode") else { return skipped("opencode") };
    let request = RunRequest::new("do it").agent("opencode").permission_mode(PermissionMode::AcceptEdits);
    let (_, outcome) = play(&stage, request.deny("Bash(echo *)"));
    let denied: Vec<_> = outcome.denied.iter().map(|d| (d.tool.as_str(), d.rule.as_deref())).collect();
    assert_eq!(denied, [("Bash", Some("Bash(echo *)"))], "{}", shown(&outcome));
    assert_eq!(outcome.files.len(), 1, "{}", shown(&outcome));
}

/// The workspace's own hook or server makes a file beside it.
fn settings_run(agent: &str, trust: Trust) -> Option<bool> {
    let stage = match agent {
        "claude" => AcpStage::claude(anthropic::model([Step::text("hi")]).expect("a stage"))?,
        _ => AcpStage::opencode(openai::model([Step::text("hi")]).expect("a stage"))?,
    };
    let mark = stage.home().join("was-run");
    let touch = format!("touch {}", mark.display());
    let hook = json!([{"hooks": [{"type": "command", "command": touch}]}]);
    let claude = json!({"hooks": {"SessionStart": hook, "UserPromptSubmit": hook}});
    let opencode = json!({"mcp": {"evil": {"type": "local", "command": ["touch", mark]}}});
    fs::create_dir_all(stage.workspace().join(".claude")).expect("a stage");
    fs::write(stage.workspace().join(".claude/settings.json"), claude.to_string()).expect("a stage");
    fs::write(stage.workspace().join("opencode.json"), opencode.to_string()).expect("a stage");
    let (_, outcome) = play(&stage, RunRequest::new("hi").agent(agent).trust(trust));
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    Some(mark.exists())
}

#[test]
fn a_workspaces_own_settings_run_nothing_unless_it_is_trusted() {
    for agent in ["claude", "opencode"] {
        let Some(ran) = settings_run(agent, Trust::Run) else { return skipped("trust") };
        assert!(!ran, "{agent}");
        assert_eq!(settings_run(agent, Trust::Full), Some(true), "{agent}: the test shows nothing otherwise");
    }
}

/// The protocol's own example agent, known by nothing but its command.
#[test]
fn an_agent_from_the_configuration_works() {
    let Some(agent) = example_agent() else { return skipped("example") };
    let dir = tempfile::tempdir().unwrap();
    let command: Vec<String> =
        std::iter::once(agent.program.to_string_lossy().into_owned()).chain(agent.args).collect();
    let table = json!({"agent": "mine", "agents": {"mine": {"command": command, "env": {"A": "b"}}}, "permission_mode": "auto"});
    let config = Config::build(&[Layer::map("configuration", table.as_object().unwrap().clone())]).unwrap();
    let env = [("PATH".to_owned(), std::env::var("PATH").unwrap_or_default())].into();
    let (agentline, mut request) = Agentline::new(Here::new(env, dir.path(), dir.path())).equip(&config);
    request.prompt = "hello".into();
    assert_eq!(request.env["A"], "b");
    let outcome = blocking::run(&agentline, request, |_, _| ()).unwrap();
    assert_eq!(
        (outcome.agent.as_str(), outcome.verdict),
        ("mine", Verdict::DoneWithDenials),
        "{}",
        shown(&outcome)
    );
    assert!(!outcome.text.is_empty() && outcome.tool_calls == 2, "{}", shown(&outcome));
    // It wants to change a file of another project.
    assert_eq!(outcome.denied[0].reason, "outside_workspace", "{}", shown(&outcome));
}

#[test]
fn a_command_that_is_not_there_is_not_installed() {
    let dir = tempfile::tempdir().unwrap();
    let table = json!({"agent": "mine", "agents": {"mine": {"command": "no-such-program-anywhere"}}});
    let config = Config::build(&[Layer::map("configuration", table.as_object().unwrap().clone())]).unwrap();
    let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into();
    let (agentline, mut request) = Agentline::new(Here::new(env, dir.path(), dir.path())).equip(&config);
    request.prompt = "hello".into();
    let outcome = blocking::run(&agentline, request, |_, _| ()).unwrap();
    assert_eq!(outcome.verdict, Verdict::NotInstalled, "{}", shown(&outcome));
    let error = outcome.error.unwrap();
    assert!(error.message.contains("no-such-program-anywhere") && error.hint.is_some(), "{error:?}");
}

/// Installed by us, each of them is the version that we test with, and starts.
#[test]
fn each_agent_is_installed_at_the_version_that_we_test_with() {
    let Some(stage) = stage("claude") else { return skipped("installation") };
    let agentline = Agentline::from_env().unwrap();
    for name in ["claude", "codex", "opencode"] {
        let agent = agents::find(name).unwrap();
        let program = install::ensure(agent, agent.card().pinned, agentline.here(), &mut |_| ()).unwrap();
        assert_eq!(program.version.map(|v| v.to_string()).as_deref(), Some(agent.card().pinned), "{name}");
        let mut command = std::process::Command::new(&program.path);
        command.args(&program.args).arg("--version").env_clear().envs(stage.variables());
        let said = command.stdin(std::process::Stdio::null()).output().unwrap();
        assert!(said.status.success(), "{name}: {said:?}");
    }
}
