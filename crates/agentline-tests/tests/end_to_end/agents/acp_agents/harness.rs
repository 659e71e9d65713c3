//! Helpers for these tests: the three real agents with their tool names, and a model that answers each prompt with its
//! own script.

use agentline::{Agentline, Outcome, PermissionMode, RunRequest, Session, Surface, Trust, detect::HostEnv};
use agentline_mock::{
    anthropic, openai, responses,
    scripted::{ModelRequest, ModelStep, ScriptedModel},
};
use agentline_tests::{AcpStage, RunRecord};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs, io,
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

/// A word of a prompt and the answers to it. The last answer is repeated.
pub(crate) type AgentScripts = Vec<(&'static str, Vec<ModelStep>)>;

/// One of the agents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestedAgent {
    /// The agent's name in agentline.
    pub(crate) name: &'static str,
    /// The version that is tested.
    pub(crate) version: &'static str,
    /// The surface that is tested.
    pub(crate) surface: Surface,
    model: fn(AgentScripts) -> io::Result<ScriptedModel>,
    stage: fn(ScriptedModel) -> Option<AcpStage>,
    write: fn(&str, &str) -> ModelStep,
    shell: fn(&str) -> ModelStep,
    hosted: fn(&str, &str, Value) -> ModelStep,
    /// The environment variable that names the agent's program.
    pub(crate) variable: &'static str,
    /// The agent's names for the tools that write a file and run a command.
    pub(crate) native: [&'static str; 2],
}

pub(crate) const OPENCODE: TestedAgent = TestedAgent {
    name: "opencode",
    version: "1.18.33",
    surface: Surface::Serve,
    model: |scripts| openai::model_by(answering(scripts)),
    stage: AcpStage::opencode,
    write: |path, content| ModelStep::call("write", json!({"filePath": path, "content": content})),
    shell: |command| ModelStep::call("bash", json!({"command": command, "description": "d"})),
    hosted: |server, tool, args| ModelStep::call(format!("{server}_{tool}"), args),
    variable: "OPENCODE_PATH",
    native: ["write", "bash"],
};

pub(crate) const CLAUDE: TestedAgent = TestedAgent {
    name: "claude",
    version: "0.99.0",
    surface: Surface::Acp,
    model: |scripts| anthropic::model_by(answering(scripts)),
    stage: AcpStage::claude,
    write: |path, content| ModelStep::call("Write", json!({"file_path": path, "content": content})),
    shell: |command| ModelStep::call("Bash", json!({"command": command, "description": "d"})),
    hosted: |server, tool, args| ModelStep::call(format!("mcp__{server}__{tool}"), args),
    variable: "CLAUDE_AGENT_ACP_PATH",
    native: ["Write", "Bash"],
};

pub(crate) const CODEX: TestedAgent = TestedAgent {
    name: "codex",
    version: "2.6.0",
    surface: Surface::Acp,
    model: |scripts| responses::model_by(answering(scripts)),
    stage: AcpStage::codex,
    write: |path, content| ModelStep::plain_call("apply_patch", responses::add_file(path, content)),
    shell: |command| ModelStep::call("exec_command", json!({"cmd": command})),
    hosted: |server, tool, args| ModelStep::call_in(format!("mcp__{server}"), tool, args),
    variable: "CODEX_ACP_PATH",
    native: ["apply_patch", "exec_command"],
};

/// Codex on its own surfaces.
pub(crate) const CODEX_NATIVE: TestedAgent = TestedAgent {
    version: "0.166.0",
    surface: Surface::AppServer,
    stage: AcpStage::codex_native,
    variable: "CODEX_CLI_PATH",
    ..CODEX
};

/// Answers by the last word of the scripts in the user's text. Each word has its own counter.
fn answering(scripts: AgentScripts) -> impl Fn(&ModelRequest) -> ModelStep + Send + Sync + 'static {
    let counts = Mutex::new(BTreeMap::<&str, usize>::new());
    move |request| {
        let texts = request.user_texts();
        let script = texts.iter().rev().find_map(|text| scripts.iter().find(|(word, _)| text.contains(word)));
        let Some((word, steps)) = script else {
            return ModelStep::error(500, format!("no script for {texts:?}"));
        };
        let mut counts = counts.lock().expect("the lock is not poisoned");
        let count = counts.entry(word).or_default();
        *count += 1;
        steps[(*count - 1).min(steps.len() - 1)].clone()
    }
}

impl TestedAgent {
    /// Creates an environment for this agent with a model that plays these scripts.
    pub(crate) fn stage_with(self, scripts: AgentScripts) -> Option<AgentStage> {
        let model = (self.model)(scripts).expect("a port");
        Some(AgentStage { tested: self, stage: (self.stage)(model)?, trust: Trust::Run })
    }

    /// Returns a step in which the model writes a file.
    pub(crate) fn write(self, path: &str) -> ModelStep {
        (self.write)(path, "new\n")
    }

    /// Returns a step in which the model runs a command.
    pub(crate) fn shell(self, command: &str) -> ModelStep {
        (self.shell)(command)
    }

    /// Returns a step in which the model runs all of these commands.
    pub(crate) fn commands(self, commands: &[&str]) -> ModelStep {
        let args = |command: &str| json!({"command": command, "description": "d"});
        let (first, others) = commands.split_first().expect("a command");
        others.iter().fold(self.shell(first), |step, command| step.and_call(self.native[1], args(command)))
    }

    /// Returns a step in which the model calls a function of the program.
    pub(crate) fn hosted(self, server: &str, tool: &str, args: Value) -> ModelStep {
        (self.hosted)(server, tool, args)
    }
}

/// An agent with its test environment.
#[derive(Debug)]
pub(crate) struct AgentStage {
    pub(crate) tested: TestedAgent,
    pub(crate) stage: AcpStage,
    /// How far requests trust the workspace.
    pub(crate) trust: Trust,
}

impl AgentStage {
    /// Returns the library with the environment of this user.
    pub(crate) fn agentline(&self) -> Agentline {
        let host_env =
            HostEnv::new(self.stage.variables().clone(), self.stage.home(), self.stage.workspace());
        Agentline::new(host_env).program(self.tested.name, &self.stage.agent.program)
    }

    /// Returns a request in a permission mode.
    pub(crate) fn request(&self, mode: PermissionMode) -> RunRequest {
        RunRequest::default()
            .agent(self.tested.name)
            .surface(self.tested.surface)
            .permission_mode(mode)
            .trust(self.trust)
            .working_dir(self.stage.workspace())
            .startup_timeout(Duration::from_secs(120))
            .timeout(Duration::from_secs(180))
    }

    /// Adds settings of Claude Code and OpenCode to the workspace that run a command, and returns the file that the
    /// command creates.
    pub(crate) fn command_in_workspace_settings(&self) -> PathBuf {
        let mark = self.stage.home().join("was-run");
        let hook = json!([{"hooks": [{"type": "command", "command": format!("touch {}", mark.display())}]}]);
        let claude = json!({"hooks": {"SessionStart": hook, "UserPromptSubmit": hook}});
        let opencode = json!({"mcp": {"evil": {"type": "local", "command": ["touch", mark]}}});
        fs::create_dir_all(self.stage.workspace().join(".claude")).expect("a folder");
        fs::write(self.stage.workspace().join(".claude/settings.json"), claude.to_string()).expect("a file");
        fs::write(self.stage.workspace().join("opencode.json"), opencode.to_string()).expect("a file");
        mark
    }

    /// Reads a file of the workspace.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.stage.workspace().join(path)).ok()
    }

    /// Returns the live processes of this test. Each has the test's home in its environment.
    #[cfg(target_os = "linux")]
    pub(crate) fn live_processes(&self) -> Vec<u32> {
        agentline_tests::survivors(&format!("HOME={}", self.stage.home().display()))
    }
}

/// Sends a prompt in a conversation and reads the run to its end.
pub(crate) async fn send_prompt(session: &Session, mut request: RunRequest, prompt: &str) -> RunRecord {
    request.prompt = prompt.into();
    RunRecord::of(session.prompt_with(request).await.expect("a valid request")).await
}

/// Waits until a condition holds. A loaded machine may be slow.
pub(crate) async fn until(condition_name: &str, mut condition: impl FnMut() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < Duration::from_secs(60), "{condition_name} did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the tokens of an outcome: input, output, cached, thoughts, total.
pub(crate) fn tokens(outcome: &Outcome) -> [Option<u64>; 5] {
    let t = outcome.usage.tokens;
    [t.input, t.output, t.cached, t.thoughts, t.total]
}

/// Creates the environment of an agent with these scripts, or skips the test with a message if real agents are
/// disabled.
macro_rules! stage {
    ($tested:expr, $scripts:expr) => {
        match $tested.stage_with($scripts) {
            Some(stage) => stage,
            None => return agentline_tests::skipped(concat!(module_path!(), " line ", line!())),
        }
    };
}
pub(crate) use stage;
