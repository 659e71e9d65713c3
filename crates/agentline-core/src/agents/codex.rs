//! Codex: spoken to through its adapter, `codex-acp`, which brings Codex with it. It works in a sandbox of its own and
//! asks when it wants out of it.

mod manners;

use super::adapter::{self, Own, found};
use crate::{
    Abilities, Agent, Card, Dialogue, Ground, Launch, Look, ModeWish, PermissionMode, Plan, Problem,
    Prospect, RunRequest, SignIn, Stance, Surface, Talk, Version, acp::Acp,
};
use std::{collections::BTreeMap, path::Path};

/// OpenAI's Codex.
#[derive(Clone, Copy, Debug)]
pub struct Codex;

static CARD: Card = Card::new(
    "codex",
    &["codex-cli", "codex_acp"],
    "Codex",
    "codex-acp",
    "CODEX_ACP_PATH",
    "@agentclientprotocol/codex-acp",
    "2.6.0",
    20,
    "set OPENAI_API_KEY, or run `codex login`",
    &["CODEX_*", "OPENAI_*"],
    &[Surface::Acp],
    None,
)
.home_page("https://github.com/agentclientprotocol/codex-acp");

impl Agent for Codex {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn abilities(&self, surface: Surface, _version: Option<Version>) -> Abilities {
        adapter::abilities(surface)
    }

    fn choose(&self, _request: &RunRequest) -> Result<Surface, Problem> {
        Ok(Surface::Acp)
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        adapter::check(request, surface, &CARD)
    }

    fn stance(&self, request: &RunRequest, _surface: Surface, prospect: &Prospect<'_>) -> Stance {
        let runs = prospect.ask.command.is_some() || prospect.looks_at_files();
        match request.permission_mode {
            PermissionMode::Bypass => Stance::Runs("asks nobody in its mode `agent-full-access`"),
            _ if writes_inside(request) && (runs || (prospect.changes_files() && prospect.inside)) => {
                Stance::Runs(
                    "works in a sandbox that writes in the workspace alone, and asks when it wants out",
                )
            }
            _ if runs => Stance::Runs("works in a sandbox that writes nothing, and asks when it wants out"),
            _ => Stance::Unknown,
        }
    }

    fn launch(&self, plan: &Plan, ground: &Ground, look: &dyn Look) -> Result<Launch, Vec<Problem>> {
        let mut own = Own::new(&CARD);
        own.key_variable = Some("OPENAI_API_KEY");
        own.mode = Some(match plan.request.permission_mode {
            PermissionMode::Bypass => ModeWish::new("agent-full-access", false),
            _ if writes_inside(&plan.request) => ModeWish::new("workspace-write", true),
            // In its own mode `agent` a model of its own decides, and nobody is asked.
            _ => ModeWish::new("read-only", true),
        });
        own.only_when_asked = true;
        adapter::launch(plan, ground, look, own)
    }

    fn dialogue(&self, talk: &Talk) -> Box<dyn Dialogue> {
        Box::new(Acp::new(talk, Box::new(manners::CodexManners)))
    }

    fn sign_in(
        &self,
        _cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Vec<SignIn> {
        let set = |name: &str| SignIn::new(name, env.get(name).is_some_and(|v| !v.is_empty()));
        let folder = adapter::home_folder(env, home, "CODEX_HOME", ".codex");
        let mut ways: Vec<SignIn> = ["CODEX_API_KEY", "OPENAI_API_KEY"].map(set).into();
        ways.push(found(folder.join("auth.json"), look, "the sign-in of `codex login`"));
        let config = folder.join("config.toml");
        if look.text(&config).is_some_and(|text| text.contains("model_provider")) {
            ways.push(found(config, look, "a provider of your own"));
        }
        adapter::first_wins(ways)
    }
}

/// Whether its sandbox lets it write in the workspace, where it then asks nobody.
fn writes_inside(request: &RunRequest) -> bool {
    // In its other sandbox it asks about edits, so that rules hold them; but commands that write fail there without a
    // question, so that nobody could permit them.
    let ruled = !request.deny.is_empty() || !request.ask.is_empty();
    matches!(request.permission_mode, PermissionMode::AcceptEdits | PermissionMode::Auto) && !ruled
}
