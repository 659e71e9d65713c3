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
mod overlay;
mod parts;
mod policy;
mod policy_ack;
mod prompt;
mod refusal;
mod session_file;
mod sessions;
mod settings;
mod sign_in;
mod store;
mod stream;
mod tools;
mod user;
mod versions;

use crate::{
    Agent, AgentInfo, Dialogue, DialogueConfig, Features, FileSystem, Launch, LaunchContext, Millis,
    NativeDecision, Plan, Problem, ProjectRef, PromptText, RunRequest, SessionFile, SessionFilePattern,
    SessionFormat, SessionReader, SessionRoot, SignIn, Surface, SurfaceFeatures, ToolTable, ToolUseContext,
    Version,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Google's Gemini CLI.
#[derive(Clone, Copy, Debug)]
pub struct Gemini;

static INFO: AgentInfo = AgentInfo::new(
    "gemini",
    &["gemini-cli", "google:gemini-cli", "gemini_acp"],
    "Gemini CLI",
    "gemini",
    "GEMINI_CLI_PATH",
    "@google/gemini-cli",
    "0.61.0",
    20,
    "set GEMINI_API_KEY, or run `gemini` once in a terminal and sign in",
    &["GEMINI_*", "GOOGLE_*", "CLOUDSDK_*", "GCLOUD_PROJECT", "SEATBELT_PROFILE"],
    &[Surface::Json, Surface::StreamJson, Surface::Acp],
    Some(8_388_608),
)
.provider("gemini-cli")
.instructions(&["GEMINI.md"])
.project_files(&[".gemini", ".agents", ".env"])
.command_dirs(&["gemini-shell-"])
.home_page("https://github.com/google-gemini/gemini-cli");

/// The defaults of the name `gemini_acp`: Gemini CLI as an ACP adapter, with the adapter's own defaults.
const PRESET: &str = include_str!("gemini/gemini_acp.toml");

impl Agent for Gemini {
    fn info(&self) -> &'static AgentInfo {
        &INFO
    }

    fn preset(&self, name: &str) -> Option<&'static str> {
        (name == "gemini_acp").then_some(PRESET)
    }

    fn abilities(&self, surface: Surface, _version: Option<Version>) -> SurfaceFeatures {
        let headless = SurfaceFeatures {
            works: true,
            resumes: true,
            mcp: true,
            live_usage: true,
            tool_events: true,
            ..SurfaceFeatures::default()
        };
        match surface {
            Surface::Json => SurfaceFeatures { thinking: true, ..headless },
            Surface::StreamJson => SurfaceFeatures { streams_text: true, ..headless },
            Surface::Acp => SurfaceFeatures {
                streams_text: true,
                thinking: true,
                asks_permission: true,
                cancels_in_band: true,
                attachments: true,
                multi_turn: true,
                stop_reason: true,
                hosted_tools: true,
                schema: true,
                warm: true,
                ..headless
            },
        }
    }

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

    fn words(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        launch::words(plan, cwd, fs)
    }

    fn features(&self) -> Features {
        Features::full(&[
            ("auto", "Auto"),
            ("gemini-2.5-pro", "Gemini 2.5 Pro"),
            ("gemini-2.5-flash", "Gemini 2.5 Flash"),
        ])
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        match config.surface {
            Surface::Json => Box::new(json::GeminiJson::new()),
            Surface::Acp => Box::new(acp::dialogue(config)),
            Surface::StreamJson => Box::new(stream::GeminiStream::new()),
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

    fn added_arguments(&self) -> &'static [&'static str] {
        tools::ADDED_ARGUMENTS
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }

    fn session_folder(&self, agent_home: &Path, cwd: &Path, fs: &dyn FileSystem) -> Option<PathBuf> {
        store::chats(agent_home, cwd, fs)
    }

    fn session_file_pattern(&self, folder: PathBuf, session: &str) -> SessionFilePattern {
        store::spot(folder, session)
    }

    fn session_file_made(&self, spot: &SessionFilePattern, at: Millis) -> Option<String> {
        Some(store::file_made(spot, at))
    }

    fn leftovers(
        &self,
        spot: &SessionFilePattern,
        existed_before: &[PathBuf],
        fs: &dyn FileSystem,
    ) -> Vec<PathBuf> {
        store::twins(spot, existed_before, fs)
    }

    fn abandoned(&self, spot: &SessionFilePattern, fs: &dyn FileSystem) -> Vec<PathBuf> {
        store::empty_sessions(spot, fs)
    }

    fn empty_duplicates(&self, folder: &Path, fs: &dyn FileSystem) -> Vec<(PathBuf, PathBuf)> {
        store::empty_duplicates(folder, fs)
    }

    fn stored_secrets(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<String> {
        environment::stored_secrets(env, home, fs)
    }

    fn session_roots(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        _look: &dyn FileSystem,
    ) -> Vec<SessionRoot> {
        vec![store::root(&user::cli_home(env, home))]
    }

    fn session_file(&self, path: &Path) -> Option<SessionFile> {
        store::named(path)
    }

    fn session_project(&self, root: &Path, path: &Path, fs: &dyn FileSystem) -> Option<ProjectRef> {
        store::project(root, path, fs)
    }

    fn session_format(&self, head: &[u8]) -> Option<SessionFormat> {
        sessions::form(head)
    }

    fn session_reader(&self, form: SessionFormat) -> Option<Box<dyn SessionReader>> {
        matches!(form, SessionFormat::Lines | SessionFormat::Whole)
            .then(|| Box::new(sessions::GeminiReader::default()) as Box<dyn SessionReader>)
    }

    fn sign_in(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<SignIn> {
        sign_in::sign_in(&user::UserConfig::new(cwd, env, home, fs))
    }

    fn settings_problems(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<Problem> {
        user::UserConfig::new(cwd, env, home, fs).problems()
    }

    fn trusts(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Option<bool> {
        user::UserConfig::new(cwd, env, home, fs).trusts()
    }
}
