//! Completes values that only the program itself knows: agents, modes, surfaces, models and session ids.

use crate::setup::Setup;
use agentline::{Agentline, PermissionMode, PriceTable};
use agentline_core::terminal_text::{fit, plain};
use agentline_sessions::SessionFilter;
use clap_complete::engine::CompletionCandidate;
use std::ffi::OsStr;

/// The maximum number of session ids. A shell shows no more in a useful way.
const MAX_SESSIONS: usize = 50;
/// The maximum length of the description of a candidate.
const MAX_HELP: usize = 60;

/// Completes the ids of agents, including those of the settings.
pub(crate) fn agents(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some((agentline, _)) = environment() else { return Vec::new() };
    let agents = agentline.registry().all().to_vec();
    let agents = agents.iter().map(|agent| (agent.info().id.to_owned(), Some(agent.info().title.to_owned())));
    matching(typed, agents)
}

/// Completes permission modes.
pub(crate) fn modes(typed: &OsStr) -> Vec<CompletionCandidate> {
    matching(typed, PermissionMode::NAMES.iter().map(|name| ((*name).to_owned(), None)))
}

/// Completes the models whose prices are known.
pub(crate) fn models(typed: &OsStr) -> Vec<CompletionCandidate> {
    let prices = environment().map_or_else(PriceTable::built_in, |(_, prices)| prices);
    let models: Vec<String> = prices.models.keys().cloned().collect();
    matching(typed, models.into_iter().map(|model| (model, None)))
}

/// Completes `latest` and the ids of saved sessions, the newest first.
pub(crate) fn sessions(typed: &OsStr) -> Vec<CompletionCandidate> {
    let latest = ("latest".to_owned(), Some("the latest session of this directory".to_owned()));
    let listed =
        environment().and_then(|(agentline, _)| agentline.sessions().list(&SessionFilter::new()).ok());
    let ids = listed.unwrap_or_default().into_iter().map(|summary| (summary.info.id, summary.title));
    let mut candidates = matching(typed, std::iter::once(latest).chain(ids));
    candidates.truncate(MAX_SESSIONS);
    candidates
}

/// Returns the candidates that begin with the typed text, in their order.
fn matching(
    typed: &OsStr,
    candidates: impl IntoIterator<Item = (String, Option<String>)>,
) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let candidates = candidates.into_iter().filter(|(name, _)| name.starts_with(&*typed));
    let numbered = candidates.enumerate().map(|(i, (name, help))| {
        let help = help.map(|help| fit(&plain(&help.replace('\n', " ")), MAX_HELP).into());
        CompletionCandidate::new(name).help(help).display_order(Some(i))
    });
    numbered.collect()
}

/// Returns the handle with the user's settings. Invalid settings complete nothing.
fn environment() -> Option<(Agentline, PriceTable)> {
    let setup = Setup::read(None, None).ok()?;
    let config = setup.config().ok()?;
    Some((setup.with_config(&config).0, config.prices()))
}
