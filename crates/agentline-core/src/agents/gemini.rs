//! Gemini CLI: its names, its abilities and its implementation of `Agent`.

mod acp;
mod call;
mod environment;
mod failures;
mod guard;
mod json;
mod launch;
mod live;
mod native_decision;
mod options;
mod overlay;
mod parts;
mod policy;
mod policy_ack;
mod prompt;
mod refusal;
mod session_file;
mod sessions;
mod settings;
mod shell_output;
mod sign_in;
mod store;
mod stream;
mod tools;
mod transplant;
mod user;
mod versions;

use crate::{
    Agent, AgentDescription, AgentInfo, AgentOption, Dialogue, DialogueConfig, Features, FileSystem, Launch,
    LaunchContext, NativeDecision, Plan, Problem, PromptText, RunRequest, SessionSource, SetupProbe, Surface,
    SurfaceFeatures, ToolTable, ToolUseContext, Version,
};
use std::path::Path;

/// Google's Gemini CLI.
#[derive(Clone, Copy, Debug)]
pub struct Gemini;

static INFO: AgentInfo<'static> = AgentInfo {
    aliases: &["gemini-cli", "google:gemini-cli", "gemini_acp"],
    title: "Gemini CLI",
    program: "gemini",
    path_variable: "GEMINI_CLI_PATH",
    package: "@google/gemini-cli",
    pinned: "0.61.0",
    min_node: 20,
    sign_in_hint: "set GEMINI_API_KEY, or run `gemini` once in a terminal and sign in",
    variables: &["GEMINI_*", "GOOGLE_*", "CLOUDSDK_*", "GCLOUD_PROJECT", "SEATBELT_PROFILE"],
    surfaces: &[Surface::Json, Surface::StreamJson, Surface::Acp],
    max_prompt_bytes: Some(8_388_608),
    provider: "gemini-cli",
    instructions: &["GEMINI.md"],
    project_files: &[".gemini", ".agents", ".env"],
    command_dirs: &["gemini-shell-"],
    home_page: "https://github.com/google-gemini/gemini-cli",
    ..AgentInfo::new("gemini")
};

/// The defaults of the name `gemini_acp`: Gemini CLI as an ACP adapter, with the adapter's own defaults.
const PRESET: &str = include_str!("gemini/gemini_acp.toml");

impl AgentDescription for Gemini {
    fn info(&self) -> AgentInfo<'_> {
        INFO
    }

    fn preset(&self, name: &str) -> Option<&'static str> {
        (name == "gemini_acp").then_some(PRESET)
    }

    fn options(&self) -> &'static [AgentOption] {
        options::OPTIONS
    }

    fn abilities(&self, surface: Surface, version: Option<Version>) -> SurfaceFeatures {
        let has = |since| versions::has(version, since);
        let is_file_read = has(versions::session_file(surface));
        let mcp = has(versions::HOME);
        let headless = SurfaceFeatures {
            resumes: has(versions::RESUME),
            mcp,
            live_usage: is_file_read,
            ..SurfaceFeatures::headless()
        };
        match surface {
            Surface::Json => {
                SurfaceFeatures { thinking: is_file_read, tool_events: is_file_read, ..headless }
            }
            Surface::StreamJson => SurfaceFeatures { streams_text: true, ..headless },
            Surface::Acp => SurfaceFeatures {
                resumes: has(versions::ACP_RESUME),
                mcp,
                // Earlier versions do not name the server of a tool, so calls cannot be recognized.
                hosted_tools: mcp,
                schema: has(versions::ACP_HTTP),
                live_usage: is_file_read,
                ..SurfaceFeatures::live()
            },
            _ => SurfaceFeatures::default(),
        }
    }

    fn quirks(&self, surface: Surface, version: Option<Version>) -> Vec<&'static str> {
        if surface == Surface::Acp { acp::quirks(version) } else { Vec::new() }
    }

    fn needs_prices(&self) -> bool {
        true
    }

    fn resolves_latest(&self) -> bool {
        true
    }

    fn features(&self) -> Features {
        Features::full(&[
            ("auto", "Auto"),
            ("gemini-2.5-pro", "Gemini 2.5 Pro"),
            ("gemini-2.5-flash", "Gemini 2.5 Flash"),
        ])
    }

    fn added_arguments(&self) -> &'static [&'static str] {
        tools::ADDED_ARGUMENTS
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }
}

impl Agent for Gemini {
    fn choose(&self, request: &RunRequest) -> Result<Surface, Problem> {
        Ok(live::choose(request))
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        launch::check(request, surface)
    }

    fn unenforced_in_session(&self, opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
        policy::unenforced_in_session(opened, prompt)
    }

    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>> {
        launch::launch(plan, context, fs)
    }

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        launch::prompt_text(plan, cwd, fs)
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        match config.surface {
            Surface::Json => Box::new(json::GeminiJson::new(config)),
            Surface::Acp => Box::new(acp::dialogue(config)),
            _ => Box::new(stream::GeminiStream::new(config)),
        }
    }

    fn shares(&self, plan: &Plan) -> bool {
        plan.surface == Surface::Acp && live::starts_nothing(&plan.request)
    }

    fn native_decision(
        &self,
        request: &RunRequest,
        surface: Surface,
        prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        native_decision::native_decision(request, surface, prospect)
    }

    fn sessions(&self) -> &dyn SessionSource {
        self
    }

    fn setup(&self) -> &dyn SetupProbe {
        self
    }
}
