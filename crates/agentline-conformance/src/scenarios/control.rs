//! Cancellation, silence and crashes.

use crate::bench::Scene;
use crate::expected::Expected;
use crate::scenario::{Play, Scenario, Tier, scenario};
use crate::script::ScenarioScript;
use agentline::{FailureKind, Verdict};
use agentline_mock::answer::{Action, Answer};
use std::time::Duration;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "cancel_thinking",
            "A run that is cancelled while the model thinks is `cancelled`.",
            |_| ScenarioScript::always(Answer::hang()),
            |_| Expected::failed(Verdict::Cancelled, FailureKind::Cancelled),
        )
        .play(Play::CancelWhen(|scene| scene.turns() > 0))
        .tier(Tier::Basic),
        scenario(
            "cancel_tool",
            "A run that is cancelled while a command runs is `cancelled`, and the command ends with it.",
            |scene| ScenarioScript::always(Answer::using(Action::shell(long_command(scene)))),
            |scene| {
                Expected::failed(Verdict::Cancelled, FailureKind::Cancelled)
                    .any_files()
                    .no_process(format!("sleep {}", scene.unique()))
            },
        )
        .play(Play::CancelWhen(|scene| scene.has("begun"))),
        scenario(
            "hang",
            "A service that never answers is `timed_out` after the idle timeout.",
            |_| ScenarioScript::always(Answer::hang()),
            |_| Expected::failed(Verdict::TimedOut, FailureKind::TimeoutIdle).within(20),
        )
        .request(|_, request| request.idle_timeout(Duration::from_secs(5))),
        scenario(
            "killed",
            "An agent that is killed is `failed`, with the kind `crashed`.",
            |_| ScenarioScript::always(Answer::hang()),
            |_| Expected::failed(Verdict::Failed, FailureKind::Crashed).within(20),
        )
        .play(Play::Kill)
        .cold(),
    ]
}

fn long_command(scene: &Scene) -> String {
    format!("touch '{}'; sleep {}", scene.path("begun"), scene.unique())
}
