//! Conversations and stored sessions.

use crate::bench::Scene;
use crate::expected::Expected;
use crate::scenario::{Need, Play, ResumeBy, Scenario, Tier, scenario};
use crate::script::ScenarioScript;
use agentline_mock::answer::Answer;

fn two_turns(name: &'static str, about: &'static str, expect: fn(&Scene) -> Expected) -> Scenario {
    let script = |_: &Scene| {
        ScenarioScript::Answers(vec![Answer::text("The word is kumquat."), Answer::text("It was kumquat.")])
    };
    scenario(name, about, script, expect)
}

/// The second run sends the first answer to the model again.
fn remembers(_: &Scene) -> Expected {
    Expected::done("It was kumquat.").reaches_model("The word is kumquat.").turns(1)
}

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        two_turns("resume", "A later run resumes a session by its id, and the model sees it.", remembers)
            .needs(Need::Resume)
            .play(Play::Resume(ResumeBy::Id))
            .cold()
            .tier(Tier::Basic),
        two_turns("resume_latest", "A later run resumes the latest session of the workspace.", remembers)
            .needs(Need::Resume)
            .play(Play::Resume(ResumeBy::Latest))
            .cold(),
        two_turns("conversation", "A second prompt of a conversation sees the first.", remembers)
            .needs(Need::MultiTurn)
            .play(Play::Conversation)
            .cold(),
    ]
}
