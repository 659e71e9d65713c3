//! Gemini CLI: its names, its abilities and its implementation of `Agent`.

mod acp;
mod call;
mod environment;
mod failures;
mod guard;
mod json;
mod launch;
mod live;
mod overlay;
mod parts;
mod policy;
mod prompt;
mod proof;
mod refusal;
mod saved;
mod session_file;
mod settings;
mod sign_in;
mod stance;
mod store;
mod stream;
mod tools;
mod user;
mod versions;

use crate::{
    Abilities, Agent, Card, Dialogue, Ground, Launch, Look, Millis, Plan, Problem, ProjectRef, Prospect,
    Repertoire, RunRequest, SavedForm, SessionFile, SessionFold, SessionRoot, SessionSpot, SignIn, Stance,
    Surface, Talk, ToolTable, Version, Words,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Google's Gemini CLI.
#[derive(Clone, Copy, Debug)]
pub struct Gemini;

static CARD: Card = Card::new(
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
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn preset(&self, name: &str) -> Option<&'static str> {
        (name == "gemini_acp").then_some(PRESET)
    }

    fn abilities(&self, surface: Surface, _version: Option<Version>) -> Abilities {
        let headless = Abilities {
            works: true,
            resumes: true,
            mcp: true,
            live_usage: true,
            tool_events: true,
            ..Abilities::default()
        };
        match surface {
            Surface::Json => Abilities { thinking: true, ..headless },
            Surface::StreamJson => Abilities { streams_text: true, ..headless },
            Surface::Acp => Abilities {
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

    fn launch(&self, plan: &Plan, ground: &Ground, look: &dyn Look) -> Result<Launch, Vec<Problem>> {
        launch::launch(plan, ground, look)
    }

    fn words(&self, plan: &Plan, cwd: &Path, look: &dyn Look) -> Result<Words, Problem> {
        launch::words(plan, cwd, look)
    }

    fn repertoire(&self) -> Repertoire {
        Repertoire::full(&[
            ("auto", "Auto"),
            ("gemini-2.5-pro", "Gemini 2.5 Pro"),
            ("gemini-2.5-flash", "Gemini 2.5 Flash"),
        ])
    }

    fn dialogue(&self, talk: &Talk) -> Box<dyn Dialogue> {
        match talk.surface {
            Surface::Json => Box::new(json::GeminiJson::new()),
            Surface::Acp => Box::new(acp::dialogue(talk)),
            Surface::StreamJson => Box::new(stream::GeminiStream::new()),
        }
    }

    fn shares(&self, plan: &Plan) -> bool {
        plan.surface == Surface::Acp && live::starts_nothing(&plan.request)
    }

    fn stance(&self, request: &RunRequest, surface: Surface, prospect: &Prospect<'_>) -> Stance {
        stance::stance(request, surface, prospect)
    }

    fn added_arguments(&self) -> &'static [&'static str] {
        tools::ADDED_ARGUMENTS
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }

    fn session_folder(&self, agent_home: &Path, cwd: &Path, look: &dyn Look) -> Option<PathBuf> {
        store::chats(agent_home, cwd, look)
    }

    fn session_spot(&self, folder: PathBuf, session: &str) -> SessionSpot {
        store::spot(folder, session)
    }

    fn session_file_made(&self, spot: &SessionSpot, at: Millis) -> Option<String> {
        Some(store::file_made(spot, at))
    }

    fn leftovers(&self, spot: &SessionSpot, existed_before: &[PathBuf], look: &dyn Look) -> Vec<PathBuf> {
        store::twins(spot, existed_before, look)
    }

    fn litter(&self, spot: &SessionSpot, look: &dyn Look) -> Vec<PathBuf> {
        store::unsaid(spot, look)
    }

    fn empty_duplicates(&self, folder: &Path, look: &dyn Look) -> Vec<(PathBuf, PathBuf)> {
        store::empty_duplicates(folder, look)
    }

    fn stored_secrets(&self, env: &BTreeMap<String, String>, home: &Path, look: &dyn Look) -> Vec<String> {
        environment::stored_secrets(env, home, look)
    }

    fn session_roots(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        _look: &dyn Look,
    ) -> Vec<SessionRoot> {
        vec![store::root(&user::cli_home(env, home))]
    }

    fn session_file(&self, path: &Path) -> Option<SessionFile> {
        store::named(path)
    }

    fn session_project(&self, root: &Path, path: &Path, look: &dyn Look) -> Option<ProjectRef> {
        store::project(root, path, look)
    }

    fn session_form(&self, head: &[u8]) -> Option<SavedForm> {
        saved::form(head)
    }

    fn session_fold(&self, form: SavedForm) -> Option<Box<dyn SessionFold>> {
        matches!(form, SavedForm::Lines | SavedForm::Whole)
            .then(|| Box::new(saved::GeminiFold::default()) as Box<dyn SessionFold>)
    }

    fn sign_in(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Vec<SignIn> {
        sign_in::sign_in(&user::User::new(cwd, env, home, look))
    }

    fn settings_problems(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Vec<Problem> {
        user::User::new(cwd, env, home, look).problems()
    }

    fn trusts(
        &self,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Option<bool> {
        user::User::new(cwd, env, home, look).trusts()
    }
}
