//! Permission modes, rules and limits.

use crate::bench::Scene;
use crate::expected::Expected;
use crate::scenario::{Scenario, Tier, scenario};
use crate::script::ScenarioScript;
use agentline::outcome::FileChangeKind::Created;
use agentline::{FailureKind, PermissionMode, ToolStatus, Verdict};
use agentline_mock::answer::{Action, Answer};
use agentline_mock::scripted::ModelTokens;

fn write_inside(scene: &Scene) -> ScenarioScript {
    let write = Action::write(scene.path("no.txt"), "no\n");
    ScenarioScript::Answers(vec![Answer::using(write), Answer::text("I may not.")])
}

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "denied",
            "In the mode `default`, a write without a user to ask is denied, and the model continues.",
            write_inside,
            |_| {
                Expected::denied("I may not.", &["Write"])
                    .tool("Write", ToolStatus::Denied)
                    .disk("no.txt", None)
                    .turns(2)
            },
        )
        .request(|_, request| request.permission_mode(PermissionMode::Default))
        .tier(Tier::Basic),
        scenario("plan", "In the mode `plan`, a write is denied.", write_inside, |_| {
            Expected::denied("I may not.", &["Write"])
                .tool("Write", ToolStatus::Denied)
                .disk("no.txt", None)
                .turns(2)
        })
        .request(|_, request| request.permission_mode(PermissionMode::Plan))
        .may_be_refused(),
        scenario(
            "accept_edits",
            "In the mode `accept-edits`, a write in the workspace is allowed.",
            |scene| {
                let write = Action::write(scene.path("yes.txt"), "yes\n");
                ScenarioScript::Answers(vec![Answer::using(write), Answer::text("Written.")])
            },
            |_| {
                Expected::done("Written.")
                    .tool("Write", ToolStatus::Ok)
                    .file("yes.txt", Created, Some("yes\n"))
                    .turns(2)
            },
        )
        .request(|_, request| request.permission_mode(PermissionMode::AcceptEdits)),
        scenario(
            "outside",
            "In the mode `accept-edits`, a write outside the workspace is denied.",
            |scene| {
                let write = Action::write(scene.outside("out.txt"), "out\n");
                ScenarioScript::Answers(vec![Answer::using(write), Answer::text("Not there.")])
            },
            |scene| {
                Expected::denied("Not there.", &["Write"])
                    .tool("Write", ToolStatus::Denied)
                    .disk(&scene.outside("out.txt"), None)
                    .turns(2)
            },
        )
        .request(|_, request| request.permission_mode(PermissionMode::AcceptEdits))
        .may_be_refused(),
        scenario(
            "deny_rule",
            "A rule that denies a command holds although everything else is allowed.",
            |scene| {
                scene.create("kept.txt", "kept\n");
                let command = Action::shell(format!("rm '{}'", scene.path("kept.txt")));
                ScenarioScript::Answers(vec![Answer::using(command), Answer::text("It stays.")])
            },
            |_| {
                Expected::denied("It stays.", &["Bash"])
                    .tool("Bash", ToolStatus::Denied)
                    .disk("kept.txt", Some("kept\n"))
                    .turns(2)
            },
        )
        .request(|_, request| request.deny("Bash(rm *)"))
        .may_be_refused(),
        scenario(
            "max_turns",
            "A limit on turns stops the run before the next request.",
            endless,
            |_| Expected::failed(Verdict::LimitReached, FailureKind::MaxTurns).max_turns(2).any_files(),
        )
        .request(|_, mut request| {
            request.limits.max_turns = Some(2);
            request
        })
        .may_be_refused(),
        scenario(
            "max_tool_calls",
            "A limit on tool calls stops the run when the first call over it is announced, before the next request.",
            endless,
            |_| Expected::failed(Verdict::LimitReached, FailureKind::MaxToolCalls).max_turns(3).any_files(),
        )
        .request(|_, mut request| {
            request.limits.max_tool_calls = Some(2);
            request
        })
        .may_be_refused(),
        scenario(
            "max_tokens",
            "A limit on tokens stops the run after the answer that exceeds it, before the next request.",
            endless,
            |_| Expected::failed(Verdict::LimitReached, FailureKind::MaxTokens).max_turns(3).any_files(),
        )
        .request(|_, mut request| {
            request.limits.max_tokens = Some(2500);
            request
        })
        .may_be_refused(),
    ]
}

/// Returns six answers that write one file each, with 1,100 tokens each, and an end.
fn endless(scene: &Scene) -> ScenarioScript {
    let tokens = ModelTokens { input: 1000, cached: 0, output: 100, reasoning: 0 };
    let write = |number: usize| {
        let path = scene.path(&format!("{number}.txt"));
        // A model takes its time. An agent that reports its tokens in a file is read meanwhile.
        Answer::using(Action::write(path, "x\n")).usage(tokens).delay(400)
    };
    ScenarioScript::Answers((1..=6).map(write).chain([Answer::text("No limit.")]).collect())
}
