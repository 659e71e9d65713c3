//! Text, reasoning, structured answers and token counts.

use super::service::PROMPTLY;
use crate::expected::Expected;
use crate::scenario::{Need, Play, Scenario, Tier, scenario};
use crate::script::ScenarioScript;
use agentline::{FailureKind, RunOptions, Schema, ToolStatus, Verdict};
use agentline_mock::answer::{Action, Answer};
use agentline_mock::scripted::ModelTokens;
use serde_json::json;

/// The size of a huge answer in bytes: several times what fits into a pipe.
const HUGE: usize = 300_000;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "text",
            "A short answer arrives whole, with the tokens of the model's log and the model that answered.",
            |_| ScenarioScript::Answers(vec![Answer::text("The answer is four.")]),
            |_| Expected::done("The answer is four.").turns(1),
        )
        .tier(Tier::Basic)
        .cold(),
        scenario(
            "unicode",
            "Text outside ASCII, markup and control characters arrive unchanged.",
            |_| ScenarioScript::Answers(vec![Answer::text(UNICODE)]),
            |_| Expected::done(UNICODE).turns(1),
        ),
        scenario(
            "thinking",
            "Reasoning is reported as events of its own and is not part of the answer.",
            |_| ScenarioScript::Answers(vec![Answer::thought("Two and two.").and_text("Four.")]),
            |_| Expected::done("Four.").thinking("Two and two.").turns(1),
        )
        .needs(Need::Thinking),
        scenario(
            "usage",
            "The tokens of several requests add up to those of the model's own log.",
            |scene| {
                let tokens =
                    |input, cached, output, reasoning| ModelTokens { input, cached, output, reasoning };
                ScenarioScript::Answers(vec![
                    Answer::using(Action::write(scene.path("1.txt"), "1\n")).usage(tokens(1000, 0, 100, 40)),
                    Answer::using(Action::write(scene.path("2.txt"), "2\n")).usage(tokens(1200, 900, 70, 10)),
                    Answer::text("Two files.").usage(tokens(1500, 1100, 33, 7)),
                ])
            },
            |_| {
                Expected::done("Two files.")
                    .tool("Write", ToolStatus::Ok)
                    .tool("Write", ToolStatus::Ok)
                    .file("1.txt", agentline::outcome::FileChangeKind::Created, Some("1\n"))
                    .file("2.txt", agentline::outcome::FileChangeKind::Created, Some("2\n"))
                    .turns(3)
            },
        )
        .tier(Tier::Basic),
        scenario(
            "model",
            "The requested model answers, and the outcome names it.",
            |_| ScenarioScript::Answers(vec![Answer::text("Another model.")]),
            |_| Expected::done("Another model.").turns(1),
        )
        .request(|scene, request| request.model(scene.bench.scripted.other_model)),
        scenario(
            "system_prompt",
            "The caller's system prompt reaches the model.",
            |_| ScenarioScript::Answers(vec![Answer::text("Understood.")]),
            |_| Expected::done("Understood.").reaches_model("Answer like a lighthouse keeper.").turns(1),
        )
        .request(|_, request| request.system_prompt("Answer like a lighthouse keeper.")),
        scenario(
            "huge",
            "An answer of 300,000 bytes arrives whole.",
            |_| ScenarioScript::Answers(vec![Answer::text(huge())]),
            |_| Expected::done(huge()).turns(1),
        ),
        scenario(
            "late_reader",
            "A caller that reads late gets every event.",
            |_| ScenarioScript::Answers(vec![Answer::text(huge())]),
            |_| Expected::done(huge()).turns(1),
        )
        .play(Play::ReadLate),
        scenario(
            "empty",
            "An answer without text is not a success.",
            |_| ScenarioScript::always(Answer::empty()),
            |_| Expected::failed(Verdict::Empty, FailureKind::Empty).within(PROMPTLY),
        ),
        scenario(
            "cut_off",
            "An answer that was cut off at the token limit is not a success.",
            |_| ScenarioScript::always(Answer::text("The beginning of").cut()),
            |_| Expected::failed(Verdict::Failed, FailureKind::ApiError).within(PROMPTLY),
        ),
        scenario(
            "cut_off_empty",
            "An answer that was cut off before its first text is empty.",
            |_| ScenarioScript::always(Answer::empty().cut()),
            |_| Expected::failed(Verdict::Empty, FailureKind::Empty).within(PROMPTLY),
        ),
        scenario(
            "schema",
            "A structured answer that matches the schema is in the outcome.",
            |_| ScenarioScript::Answers(vec![Answer::value(json!({"sum": 42}))]),
            |_| Expected::done("").any_text().output(json!({"sum": 42})),
        )
        .needs(Need::Schema)
        .options(|_| sum_schema())
        .tier(Tier::Deep),
        scenario(
            "schema_repair",
            "An answer that does not match the schema is repaired within the run.",
            |_| {
                ScenarioScript::Answers(vec![
                    Answer::value(json!({"sum": "much"})),
                    Answer::value(json!({"sum": 42})),
                ])
            },
            |_| Expected::done("").any_text().output(json!({"sum": 42})).turns(2),
        )
        .needs(Need::Schema)
        .options(|_| sum_schema()),
    ]
}

const UNICODE: &str = "Grüße, 世界 🎉 — <b>&amp;</b> \"quoted\" \\n\n\tlast line";

fn huge() -> String {
    let mut text: String = (1..).map(|line| format!("line {line:09}\n")).take(HUGE / 15).collect();
    text.push_str("the end");
    text
}

fn sum_schema() -> RunOptions {
    let document = json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
    match Schema::from_value(document) {
        Ok(schema) => RunOptions::new().schema(schema),
        // Without it, the scenario fails because the outcome has no value.
        Err(_) => RunOptions::new(),
    }
}
