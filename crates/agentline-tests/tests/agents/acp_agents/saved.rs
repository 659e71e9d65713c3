//! Checks that the usage in an outcome equals the usage in the session that the agent saved.

use crate::acp_agents::harness::{CLAUDE, CODEX, OPENCODE, Player, stage};
use agentline::{
    PermissionMode as Mode, PriceTable,
    sessions::{SessionFilter, UsageBy, UsageRow},
};
use agentline_core::session_usage;
use agentline_mock::scripted::ModelStep;
use agentline_tests::RunRecord;

#[tokio::test]
async fn claude() {
    same_numbers(CLAUDE, true).await;
}

#[tokio::test]
async fn codex() {
    same_numbers(CODEX, true).await;
}

#[tokio::test]
async fn opencode() {
    // The agent reports only the last request; the session has all of them.
    same_numbers(OPENCODE, false).await;
}

async fn same_numbers(player: Player, run_tells: bool) {
    let steps = vec![
        player.write("a.txt"),
        player.shell("echo ran"),
        ModelStep::thought("Now I know.").and_text("It is done."),
    ];
    let stage = stage!(player, vec![("first task", steps)]);
    let agentline = stage.agentline();
    let mut request = stage.request(Mode::Bypass);
    request.prompt = "first task".into();
    let told = RunRecord::of(agentline.run(request).await.unwrap()).await;
    let outcome = &told.outcome;

    let store = agentline.sessions();
    let all = store.list(&SessionFilter::new().project(stage.stage.workspace())).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    let listed = &all[0];
    assert_eq!(Some(&listed.info.id), outcome.session_id.as_ref());
    let loaded = store.load(&store.find(&listed.info.id, &stage.stage.workspace()).unwrap()).unwrap();
    let shown = session_usage(&loaded, &PriceTable::built_in());
    assert_eq!(shown.total, listed.used, "show and list");
    let rows = store.usage(&SessionFilter::new(), UsageBy::Agent).unwrap();
    assert_eq!(UsageRow::sum(&rows).used, listed.used, "usage and list");
    let used = &listed.used;
    let t = &used.tokens;
    assert_eq!((used.requests, t.total), (3, Some(390)), "{used:?}");
    if run_tells {
        let run = outcome.usage.tokens;
        assert_eq!((run.input, run.output, run.cached, run.total), (t.input, t.output, t.cached, t.total));
        // The agent's own total for a run includes helper requests, which no session file has.
        let costs = (outcome.cost_usd.unwrap(), used.cost_usd.unwrap());
        assert!(costs.0 > costs.1 - 1e-9 && costs.1 > 0.0, "{costs:?}");
    }
}
