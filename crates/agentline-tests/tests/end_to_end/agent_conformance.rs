//! Plays the scenarios of the conformance kit on the real agents at their newest pinned versions.
//!
//! In CI, every scenario is played on the default surface of each agent, and the basic ones on the other surfaces.
//! `agentline conformance --matrix` plays all of them everywhere, also on older versions.

use agentline::{Agentline, HostEnv, Surface, agents, install};
use agentline_conformance::{CellStatus, Matrix, TestedSurface, Tier, run, scenarios, updated_page};
use agentline_tests::{RealSlot, are_disabled, skipped};

const FAKE: &str = env!("CARGO_BIN_EXE_fake-acp");

/// Returns how many runs of one agent overlap. Other suites use the machine at the same time.
fn at_once(id: &str) -> usize {
    // Each process of OpenCode needs six seconds of processor time before its first answer.
    if id == "opencode" { 1 } else { 3 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini() {
    conforms("gemini").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex() {
    conforms("codex").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude() {
    conforms("claude").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode() {
    conforms("opencode").await;
}

/// The fake agent never calls the model, so that no scenario can pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_does_not_ask_the_model_fails() {
    let agent = agents::find("gemini").expect("it is built in");
    let env = [("PATH", std::env::var("PATH").unwrap_or_default()), ("GEMINI_CLI_PATH", FAKE.to_owned())];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let host_env = HostEnv::new(env, "/nowhere", "/");
    let target = TestedSurface::installed(&*agent, Surface::Acp, &host_env).expect("the fake agent");
    let played = ["text", "write", "401"].map(|name| scenarios::find(name).expect("a scenario"));
    let mut progress = Vec::new();
    let matrix = run(&[target], &played, &host_env, 1, &mut |step| progress.push(format!("{step:?}"))).await;
    assert_eq!(matrix.failures().count(), 3, "{}", matrix.to_text());
    assert_eq!(progress.len(), 7, "{progress:#?}");
    let text = matrix.to_text();
    assert!(text.contains("3 failed") && text.contains("FAILED: text on gemini acp"), "{text}");
    let page = updated_page("", &matrix, &[]);
    assert!(page.contains("| `write` | **FAIL**: "), "{page}");
}

async fn conforms(id: &str) {
    if are_disabled() {
        return skipped(id);
    }
    let _slot = RealSlot::take();
    let agent = agents::find(id).expect("it is built in");
    let agentline = Agentline::from_env().expect("the tests have a home");
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let default = TestedSurface::default_surface(&*agent);
    let mut matrix = Matrix::default();
    for surface in agent.info().surfaces.iter().copied() {
        let is_default = Some(surface) == default;
        let tier = match (is_default, is_ci) {
            (true, true) => Tier::Full,
            (true, false) => Tier::Deep,
            (false, true) => Tier::Basic,
            (false, false) => continue,
        };
        let target = pinned(&agentline, &*agent, surface);
        let chosen = scenarios::up_to(tier);
        let played = run(&[target], &chosen, agentline.host_env(), at_once(id), &mut |_| ()).await;
        matrix.cells.extend(played.cells);
    }
    assert!(matrix.is_ok(), "\n{}", matrix.to_text());
    // Nothing was left out: the basic scenarios apply to every agent.
    let basic = scenarios::up_to(Tier::Basic);
    let is_played = |status: &CellStatus| !matches!(status, CellStatus::NotApplicable { .. });
    for scenario in basic {
        let mut cells = matrix.cells.iter().filter(|cell| cell.scenario == scenario.name);
        assert!(cells.all(|cell| is_played(&cell.status)), "{}\n{}", scenario.name, matrix.to_text());
    }
}

fn pinned(agentline: &Agentline, agent: &dyn agentline::Agent, surface: Surface) -> TestedSurface {
    let info = agent.info().for_surface(surface);
    let program = install::ensure(info, info.pinned, agentline.host_env(), &mut |_| ());
    let program = program.unwrap_or_else(|error| panic!("{}: {error}\n{}", info.id, error.hint()));
    TestedSurface::new(agent, surface, &program).expect("the newest version has every surface")
}
