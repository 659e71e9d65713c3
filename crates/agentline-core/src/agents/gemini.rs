//! Gemini CLI: its names, its abilities, and the way to its rooms.

mod failures;
mod json;
mod refusal;
mod session_file;
mod sign_in;
mod stream;
mod tools;
mod user;

use crate::{
    Abilities, Agent, Card, Dialogue, Ground, Launch, Look, Plan, Problem, RunRequest, SessionSpot, SignIn,
    Surface, Version,
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
);

impl Agent for Gemini {
    fn card(&self) -> &'static Card {
        &CARD
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
            Surface::Json => headless,
            Surface::StreamJson => Abilities { streams_text: true, ..headless },
            Surface::Acp => Abilities::default(),
        }
    }

    fn choose(&self, _request: &RunRequest) -> Result<Surface, Problem> {
        Ok(Surface::StreamJson)
    }

    fn check(&self, _request: &RunRequest, _surface: Surface) -> Vec<Problem> {
        Vec::new()
    }

    fn launch(&self, _plan: &Plan, _ground: &Ground, _look: &dyn Look) -> Result<Launch, Vec<Problem>> {
        Err(Vec::new())
    }

    fn dialogue(&self, surface: Surface, _version: Option<Version>) -> Box<dyn Dialogue> {
        match surface {
            Surface::Json => Box::new(json::GeminiJson::new()),
            _ => Box::new(stream::GeminiStream::new()),
        }
    }

    fn session_spot(
        &self,
        _home: &Path,
        _cwd: &Path,
        _session: &str,
        _look: &dyn Look,
    ) -> Option<SessionSpot> {
        None
    }

    fn leftovers(&self, _spot: &SessionSpot, _existed_before: &[PathBuf], _look: &dyn Look) -> Vec<PathBuf> {
        Vec::new()
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
