//! `agentline doctor --deep`: plays scenarios of the conformance kit on the installed agents.

use crate::{commands::conformance::play_on, error::CommandError, ui::Ui};
use agentline::{Agent, Agentline, Surface};
use agentline_conformance::{Matrix, TestedSurface, Tier, exceptions, scenarios};
use serde::Serialize;
use std::fmt::Write as _;

/// The result of the scenarios, and the known deviations of the agents.
#[derive(Debug, Serialize)]
pub(super) struct DeepReport {
    #[serde(flatten)]
    pub(super) matrix: Matrix,
    quirks: Vec<KnownQuirks>,
}

/// The known deviations of one surface.
#[derive(Debug, Serialize)]
struct KnownQuirks {
    target: String,
    /// Those for which agentline compensates.
    quirks: Vec<&'static str>,
    /// Those that a caller can notice.
    differences: Vec<&'static str>,
}

impl KnownQuirks {
    fn of(agent: &dyn Agent, target: &TestedSurface) -> Self {
        let quirks = agent.quirks(target.surface, target.version);
        let mut differences = Vec::new();
        for exception in exceptions::of(target) {
            if !differences.contains(&exception.reason) {
                differences.push(exception.reason);
            }
        }
        Self { target: target.to_string(), quirks, differences }
    }
}

impl DeepReport {
    /// Plays the scenarios on every installed agent, or on one.
    pub(super) fn create(
        ui: &mut Ui,
        agentline: &Agentline,
        agent: Option<&str>,
    ) -> Result<Self, CommandError> {
        let agents = match agent {
            Some(name) => vec![agentline.registry().find(name)?],
            None => agentline.registry().all().to_vec(),
        };
        let (mut targets, mut quirks) = (Vec::new(), Vec::new());
        for agent in &agents {
            let Some(target) = best_installed(agentline, &**agent) else { continue };
            quirks.push(KnownQuirks::of(&**agent, &target));
            targets.push(target);
        }
        let scenarios = scenarios::up_to(Tier::Deep);
        let matrix = play_on(ui, agentline, &targets, &scenarios, (0, targets.len() * scenarios.len()))?;
        Ok(Self { matrix, quirks })
    }

    pub(super) fn to_text(&self) -> String {
        if self.matrix.cells.is_empty() {
            return "\nno scenarios were played: no agent is installed\n".to_owned();
        }
        let mut text = format!("\n{}", self.matrix.to_text());
        for known in &self.quirks {
            let lists = [
                ("deviations", "handled by agentline", &known.quirks),
                ("differences", "visible to callers", &known.differences),
            ];
            for (what, meaning, list) in lists.iter().filter(|(_, _, list)| !list.is_empty()) {
                let _ = writeln!(text, "\n{what} of {}, {meaning}:", known.target);
                for quirk in *list {
                    let _ = writeln!(text, "- {quirk}");
                }
            }
        }
        text
    }
}

/// Returns the preferred surface of an agent whose program is installed, if a scripted model can serve the agent.
fn best_installed(agentline: &Agentline, agent: &dyn Agent) -> Option<TestedSurface> {
    if !agentline_conformance::is_supported(agent.info().id) {
        return None;
    }
    let preferred = TestedSurface::default_surface(agent).into_iter();
    let surfaces: Vec<Surface> = preferred.chain(agent.info().surfaces.iter().copied()).collect();
    surfaces.iter().find_map(|surface| TestedSurface::installed(agent, *surface, agentline.host_env()).ok())
}
