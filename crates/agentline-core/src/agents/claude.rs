//! Claude Code, driven through its own CLI, or through its ACP adapter `claude-agent-acp`, which includes Claude Code.

mod acp;
mod failures;
mod launch;
mod options;
mod policy;
mod session_file;
mod sessions;
mod sign_in;
mod store;
mod stream;
mod tools;
mod transplant;
mod workspace;

use super::adapter;
use crate::{
    AdapterInfo, Agent, AgentDescription, AgentInfo, AgentOption, Dialogue, DialogueConfig, Failure,
    Features, FileSystem, Launch, LaunchContext, NativeDecision, Plan, Problem, PromptText, RunRequest,
    SessionSource, SetupProbe, Surface, SurfaceFeatures, ToolTable, ToolUseContext, Trust, Version, acp::Acp,
};
use serde_json::Value;
use std::path::Path;

/// Anthropic's Claude Code.
#[derive(Clone, Copy, Debug)]
pub struct Claude;

static INFO: AgentInfo<'static> = AgentInfo {
    aliases: &["claude-code", "claude_acp"],
    title: "Claude Code",
    program: "claude",
    path_variable: "CLAUDE_CLI_PATH",
    program_dir: Some(".claude/local"),
    package: "@anthropic-ai/claude-code",
    pinned: "2.1.325",
    min_node: 18,
    sign_in_hint: "set ANTHROPIC_API_KEY, or run `claude` once in a terminal and sign in",
    variables: &["ANTHROPIC_*", "CLAUDE_*", "DISABLE_AUTOUPDATER", "MAX_THINKING_TOKENS", "API_TIMEOUT_MS"],
    instructions: &["CLAUDE.md", "CLAUDE.local.md"],
    project_files: &[".claude", ".mcp.json"],
    home_page: "https://github.com/anthropics/claude-code",
    surfaces: &[Surface::StreamJson, Surface::Acp],
    install_script: true,
    adapter: Some(AdapterInfo {
        program: "claude-agent-acp",
        path_variable: "CLAUDE_AGENT_ACP_PATH",
        package: "@agentclientprotocol/claude-agent-acp",
        pinned: "0.99.0",
        min_node: 20,
        home_page: "https://github.com/agentclientprotocol/claude-agent-acp",
    }),
    ..AgentInfo::new("claude")
};

/// The settings of the name `claude_acp`: Claude Code through its adapter.
const PRESET: &str = "surface = \"acp\"\n";

impl AgentDescription for Claude {
    fn info(&self) -> AgentInfo<'_> {
        INFO
    }

    fn preset(&self, name: &str) -> Option<&'static str> {
        (name == "claude_acp").then_some(PRESET)
    }

    fn options(&self) -> &'static [AgentOption] {
        options::OPTIONS
    }

    fn abilities(&self, surface: Surface, _version: Option<Version>) -> SurfaceFeatures {
        match surface {
            // Over ACP, the usage is read from the session file during the run.
            Surface::StreamJson | Surface::Acp => SurfaceFeatures::live(),
            _ => SurfaceFeatures::default(),
        }
    }

    fn is_live(&self, surface: Surface) -> bool {
        surface == Surface::StreamJson || surface.is_live()
    }

    fn sessions_per_process(&self, surface: Surface) -> Option<u32> {
        (surface == Surface::StreamJson).then_some(1)
    }

    fn takes_schema(&self, surface: Surface, schema: &Value) -> bool {
        launch::takes_schema(surface, schema)
    }

    fn passes_denial_reasons(&self, surface: Surface) -> bool {
        surface == Surface::StreamJson
    }

    fn features(&self) -> Features {
        Features::full(&[("opus", "Opus"), ("sonnet", "Sonnet"), ("haiku", "Haiku")])
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }
}

impl Agent for Claude {
    fn choose(&self, request: &RunRequest) -> Result<Surface, Problem> {
        Ok(launch::choose(request))
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = launch::check(request, surface);
        problems.extend(adapter::unenforceable(request, surface, |_, rule| policy::unenforced(rule)));
        problems
    }

    fn native_decision(
        &self,
        request: &RunRequest,
        _surface: Surface,
        prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        policy::native_decision(request, prospect)
    }

    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>> {
        launch::launch(plan, context, fs)
    }

    fn unenforced_in_session(&self, opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
        policy::unenforced_in_session(opened, prompt)
    }

    fn refuses_workspace(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Option<Failure> {
        let is_safe = plan.request.trust == Trust::Full || plan.surface != Surface::Acp;
        let settings = workspace::session_end_hooks(context, fs).filter(|_| !is_safe)?;
        Some(adapter::refuses_settings(INFO.title, &settings))
    }

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::prompt_text(plan, false, cwd, fs)
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        match config.surface {
            Surface::Acp => Box::new(Acp::new(config, Box::new(acp::ClaudeProfile::default()))),
            _ => Box::new(stream::ClaudeStream::new(config)),
        }
    }

    fn sessions(&self) -> &dyn SessionSource {
        self
    }

    fn setup(&self) -> &dyn SetupProbe {
        self
    }
}
