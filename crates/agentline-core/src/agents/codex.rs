//! Codex, driven through its own program on the surfaces `app-server` and `exec`, or through its ACP adapter
//! `codex-acp`, which includes Codex. Codex runs tools in its own sandbox and asks for permission to leave it.

mod acp;
mod app_server;
mod exec;
mod failures;
mod items;
mod launch;
mod options;
mod policy;
mod program;
mod schema;
mod session_file;
mod sessions;
mod sign_in;
mod store;
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

/// OpenAI's Codex.
#[derive(Clone, Copy, Debug)]
pub struct Codex;

static INFO: AgentInfo<'static> = AgentInfo {
    aliases: &["codex-cli", "codex_acp"],
    title: "Codex",
    program: "codex",
    path_variable: "CODEX_CLI_PATH",
    package: "@openai/codex",
    pinned: "0.166.0",
    min_node: 18,
    sign_in_hint: "set OPENAI_API_KEY, or run `codex login`",
    variables: &["CODEX_*", "OPENAI_*"],
    surfaces: &[Surface::AppServer, Surface::StreamJson, Surface::Acp],
    instructions: &["AGENTS.md", "AGENTS.override.md"],
    project_files: &[".codex", ".agents"],
    home_page: "https://github.com/openai/codex",
    adapter: Some(AdapterInfo {
        program: "codex-acp",
        path_variable: "CODEX_ACP_PATH",
        package: "@agentclientprotocol/codex-acp",
        pinned: "2.6.0",
        min_node: 20,
        home_page: "https://github.com/agentclientprotocol/codex-acp",
    }),
    ..AgentInfo::new("codex")
};

impl AgentDescription for Codex {
    fn info(&self) -> AgentInfo<'_> {
        INFO
    }

    fn options(&self) -> &'static [AgentOption] {
        options::OPTIONS
    }

    fn abilities(&self, surface: Surface, _version: Option<Version>) -> SurfaceFeatures {
        // On `exec` and over ACP, the usage is read from the session file during the run.
        match surface {
            Surface::AppServer | Surface::Acp => SurfaceFeatures::live(),
            Surface::StreamJson => SurfaceFeatures { thinking: true, ..SurfaceFeatures::headless() },
            _ => SurfaceFeatures::default(),
        }
    }

    fn takes_schema(&self, surface: Surface, schema: &Value) -> bool {
        surface == Surface::AppServer && schema::is_enforced(schema)
    }

    fn needs_prices(&self) -> bool {
        true
    }

    fn features(&self) -> Features {
        Features::full(&[])
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }
}

impl Agent for Codex {
    fn choose(&self, request: &RunRequest) -> Result<Surface, Problem> {
        Ok(launch::choose(request))
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        launch::check(request, surface)
    }

    fn native_decision(
        &self,
        request: &RunRequest,
        surface: Surface,
        prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        policy::native_decision(request, surface, prospect)
    }

    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>> {
        launch::launch(plan, context, fs)
    }

    fn refuses_workspace(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Option<Failure> {
        // On its own surfaces, each run tells Codex which directories to trust.
        if plan.surface != Surface::Acp || plan.request.trust == Trust::Full {
            return None;
        }
        let settings = workspace::loaded_settings(plan, context, fs)?;
        Some(adapter::refuses_settings(INFO.title, &settings))
    }

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::prompt_text(plan, plan.surface == Surface::Acp, cwd, fs)
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        match config.surface {
            Surface::AppServer => Box::new(app_server::AppServer::new(config)),
            Surface::StreamJson => Box::new(exec::CodexExec::default()),
            _ => Box::new(Acp::new(config, Box::new(acp::CodexProfile::default()))),
        }
    }

    fn sessions(&self) -> &dyn SessionSource {
        self
    }

    fn setup(&self) -> &dyn SetupProbe {
        self
    }
}
