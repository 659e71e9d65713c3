//! OpenCode, driven by `opencode serve` or `opencode acp`. A variable lists what it may do without asking; it asks about
//! the rest.

pub(super) mod acp;
mod database;
mod failures;
mod launch;
mod options;
mod policy;
mod quirks;
#[cfg(test)]
mod saved_tests;
mod serve;
mod session_message;
mod session_reader;
mod sessions;
mod settings;
mod sign_in;
mod tools;
mod transplant;
mod workspace;

use super::adapter;
use crate::{
    Agent, AgentDescription, AgentInfo, AgentOption, Dialogue, DialogueConfig, Failure, Features, FileSystem,
    Launch, LaunchContext, NativeDecision, Plan, Problem, PromptText, RunRequest, SessionSource, SetupProbe,
    Surface, SurfaceFeatures, SystemMode, ToolTable, ToolUseContext, Trust, Version, acp::Acp,
};
use std::path::Path;

/// OpenCode.
#[derive(Clone, Copy, Debug)]
pub struct OpenCode;

static INFO: AgentInfo<'static> = AgentInfo {
    aliases: &["opencode-ai", "opencode_acp"],
    title: "OpenCode",
    program: "opencode",
    path_variable: "OPENCODE_PATH",
    package: "opencode-ai",
    pinned: "1.18.33",
    sign_in_hint: "run `opencode auth login`, or set the API key of your provider, such as ANTHROPIC_API_KEY",
    variables: &[
        "OPENCODE_*",
        "ANTHROPIC_*",
        "OPENAI_*",
        "GEMINI_API_KEY",
        "GOOGLE_*",
        "OPENROUTER_API_KEY",
        "GROQ_API_KEY",
        "XAI_API_KEY",
        "MISTRAL_API_KEY",
        "DEEPSEEK_API_KEY",
        "AZURE_*",
    ],
    install_script: true,
    instructions: &["AGENTS.md", "CLAUDE.md"],
    project_files: &["opencode.json", "opencode.jsonc", ".opencode", ".claude", ".agents", ".env"],
    surfaces: &[Surface::Serve, Surface::Acp],
    home_page: "https://opencode.ai",
    ..AgentInfo::new("opencode")
};

impl AgentDescription for OpenCode {
    fn info(&self) -> AgentInfo<'_> {
        INFO
    }

    fn options(&self) -> &'static [AgentOption] {
        options::OPTIONS
    }

    fn preset(&self, name: &str) -> Option<&'static str> {
        (name == "opencode_acp").then_some("surface = \"acp\"\n")
    }

    fn abilities(&self, surface: Surface, _version: Option<Version>) -> SurfaceFeatures {
        match surface {
            Surface::Acp => SurfaceFeatures::of_protocol(surface),
            Surface::Serve => SurfaceFeatures::live(),
            _ => SurfaceFeatures::default(),
        }
    }

    fn quirks(&self, surface: Surface, _version: Option<Version>) -> Vec<&'static str> {
        quirks::quirks(surface)
    }

    fn passes_denial_reasons(&self, surface: Surface) -> bool {
        surface == Surface::Serve
    }

    fn features(&self) -> Features {
        Features::full(&[])
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }
}

impl Agent for OpenCode {
    fn choose(&self, request: &RunRequest) -> Result<Surface, Problem> {
        Ok(launch::choose(request))
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        launch::check(request, surface)
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
        let trusted = plan.request.trust == Trust::Full;
        let source = workspace::plugin_source(&context.cwd, &context.home, fs).filter(|_| !trusted)?;
        Some(adapter::refuses_settings(INFO.title, &source))
    }

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        let by_settings = plan.surface == Surface::Serve || plan.request.system_mode == SystemMode::Replace;
        adapter::prompt_text(plan, !by_settings, cwd, fs)
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        match config.surface {
            Surface::Serve => Box::new(serve::Serve::default()),
            _ => Box::new(Acp::new(config, Box::<acp::OpenCodeProfile>::default())),
        }
    }

    fn sessions(&self) -> &dyn SessionSource {
        self
    }

    fn setup(&self) -> &dyn SetupProbe {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_is_chosen_unless_a_request_needs_acp() {
        let chosen = |request: RunRequest| OpenCode.choose(&request).unwrap();
        assert_eq!(chosen(RunRequest::new("x")), Surface::Serve);
        let mut request = RunRequest::new("x");
        request.agent_args = Some(vec!["acp".into()]);
        assert_eq!(chosen(request.clone()), Surface::Acp);
        let problems = OpenCode.check(&request, Surface::Serve);
        assert_eq!(problems.iter().map(|problem| &*problem.key).collect::<Vec<_>>(), ["agent_args"]);
        let mut request = RunRequest::new("x");
        request.limits.max_tokens = Some(1);
        request.resume = Some("latest".into());
        assert!(OpenCode.check(&request, Surface::Serve).is_empty());
        assert!(OpenCode.check(&request, Surface::Acp).is_empty(), "its database has the tokens");
        let keys = |request: &RunRequest, surface| -> Vec<String> {
            OpenCode.check(request, surface).into_iter().map(|problem| problem.key).collect()
        };
        let effort = RunRequest::new("x").agent_option("effort", "high");
        assert_eq!(keys(&effort, Surface::Serve), ["effort"], "a variant belongs to a model");
        let effort = effort.model("scripted/scripted-model");
        assert!(keys(&effort, Surface::Serve).is_empty());
        assert_eq!(keys(&effort, Surface::Acp), ["effort"]);
    }
}
