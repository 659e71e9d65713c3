//! Tests conversations: files and commands under canonical names, a failing command, a denial, a cancel during a turn
//! and a rejected key. The agent continues after each.

use crate::acp_agents::{
    harness::{CLAUDE, CODEX, OPENCODE, Played, Player, Scripts, send_prompt, stage, tokens, until},
    permissions,
};
use agentline::{Event, PermissionMode as Mode, Record, RunOptions, Session, ToolStatus, Verdict};
use agentline_core::{ChangeSource, FileChangeKind};
use agentline_mock::scripted::ModelStep;
use agentline_tests::RunRecord;
use std::time::{Duration, Instant};

/// The differences between the agents.
struct Expected {
    /// The tokens of a run with three model requests.
    three: [Option<u64>; 5],
    /// The tokens of a run with one model request.
    one: [Option<u64>; 5],
    warnings: &'static [&'static str],
    /// Checks the cost that the agent reports.
    costs: fn(Option<f64>) -> bool,
    /// A denial: the mode, the attempted calls and the end of the run.
    refused: (Mode, &'static [&'static str], Verdict),
}

const fn reported(tokens: [u64; 5]) -> [Option<u64>; 5] {
    [Some(tokens[0]), Some(tokens[1]), Some(tokens[2]), Some(tokens[3]), Some(tokens[4])]
}

#[tokio::test]
async fn claude() {
    let own = Expected {
        // Reasoning is not reported separately.
        three: reported([300, 90, 60, 0, 390]),
        one: reported([100, 30, 20, 0, 130]),
        warnings: &[],
        costs: |cost| cost.is_some_and(|cost| cost > 0.0),
        // The model is notified and continues.
        refused: (Mode::Default, &["Write mode -", "Bash mode -"], Verdict::DoneWithDenials),
    };
    converse(CLAUDE, own).await;
}

#[tokio::test]
async fn codex() {
    let own = Expected {
        three: reported([300, 75, 60, 15, 390]),
        one: reported([100, 25, 20, 5, 130]),
        warnings: &[],
        // No cost is reported; the model has a list price.
        costs: |cost| cost.is_some_and(|cost| cost > 0.0),
        // The turn ends as cancelled.
        refused: (Mode::Default, &["Write mode -"], Verdict::Failed),
    };
    converse(CODEX, own).await;
}

/// OpenCode starts slowly, so permission decisions are tested in the same session.
#[tokio::test]
async fn opencode() {
    let own = Expected {
        // Only the last request is reported, which is not the usage of the run.
        three: [None; 5],
        one: reported([100, 25, 20, 5, 130]),
        warnings: &["usage_unknown"],
        costs: |cost| cost == Some(0.0),
        // The session has a permission handler, which this mode does not ask. The turn ends without text.
        refused: (Mode::Deny, &["Write mode -"], Verdict::Empty),
    };
    let scripts = scripts(OPENCODE).into_iter().chain(permissions::scripts(OPENCODE)).collect();
    let stage = stage!(OPENCODE, scripts);
    let handler = permissions::Handler::default();
    let options = RunOptions::new().permission_handler(handler.answers());
    let session = stage.agentline().session_with(stage.request(Mode::Default), options).await.unwrap();
    check_conversation(&stage, &session, &own).await;
    permissions::check(&stage, &session, &handler).await;
    close(&stage, session).await;
}

fn scripts(player: Player) -> Scripts {
    vec![
        (
            "first task",
            vec![
                player.write("a.txt"),
                player.shell("echo made > b.txt; echo ran"),
                ModelStep::text("It is done."),
            ],
        ),
        ("failing task", vec![player.shell("echo out; exit 3"), ModelStep::text("It failed.")]),
        (
            "forbidden task",
            vec![player.write("no.txt"), player.shell("touch no"), ModelStep::text("I may not.")],
        ),
        ("endless thought", vec![ModelStep::hang()]),
        ("endless command", vec![player.shell("touch begun; sleep 600")]),
        ("bad key", vec![ModelStep::error(401, "Incorrect API key provided: no-key")]),
        ("say fine", vec![ModelStep::text("fine")]),
    ]
}

async fn converse(player: Player, own: Expected) {
    let stage = stage!(player, scripts(player));
    let session = stage.agentline().session(stage.request(Mode::Default)).await.unwrap();
    check_conversation(&stage, &session, &own).await;
    close(&stage, session).await;
}

async fn close(stage: &Played, session: Session) {
    session.close().await;
    #[cfg(target_os = "linux")]
    assert_eq!(stage.living(), [0_u32; 0]);
}

async fn check_conversation(stage: &Played, session: &Session, own: &Expected) {
    check_tools(stage, session, own).await;

    let told = send_prompt(session, stage.request(Mode::Auto), "failing task").await;
    assert_eq!(told.ends(), [ToolStatus::Error], "{}", told.shown());
    assert!(told.results()[0].contains("out"), "{}", told.shown());
    assert_eq!((told.outcome.verdict, told.outcome.text.as_str()), (Verdict::Done, "It failed."));

    let (mode, denied, verdict) = own.refused;
    let told = send_prompt(session, stage.request(mode), "forbidden task").await;
    assert_eq!(told.denied(), denied, "{}", told.shown());
    assert_eq!(told.outcome.verdict, verdict, "{}", told.shown());
    assert!(told.outcome.files.is_empty() && stage.read("no.txt").is_none(), "{}", told.shown());
    if let Some(error) = &told.outcome.error {
        assert!(error.message.ends_with("a tool was denied"), "{}", told.shown());
        assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("--allow")), "{}", told.shown());
    }
    check_next_prompt(stage, session, own).await;

    let asked = stage.stage.model.turns().len();
    check_cancel(stage, session, "endless thought", |_| stage.stage.model.turns().len() > asked).await;
    check_next_prompt(stage, session, own).await;
    // Codex reports a command only after it has run for a while.
    let runs = |tools: usize| tools > 0 && stage.read("begun").is_some();
    let told = check_cancel(stage, session, "endless command", runs).await;
    assert_eq!(told.ends(), [ToolStatus::Cancelled], "{}", told.shown());
    check_next_prompt(stage, session, own).await;

    let told = send_prompt(session, stage.request(Mode::Default), "bad key").await;
    assert_eq!(told.outcome.verdict, Verdict::NotAuthenticated, "{}", told.shown());
    assert!(told.outcome.error.as_ref().unwrap().hint.is_some(), "{}", told.shown());
    check_next_prompt(stage, session, own).await;
    // All prompts used one conversation.
    let said = stage.stage.model.turns().last().unwrap().user_texts().concat();
    assert!(said.contains("first task") && said.contains("say fine"), "{said}");
}

/// Writes one file with a tool and another with a command.
async fn check_tools(stage: &Played, session: &Session, own: &Expected) {
    let told = send_prompt(session, stage.request(Mode::Auto), "first task").await;
    let outcome = &told.outcome;
    assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "It is done."), "{}", told.shown());
    let files: Vec<_> =
        outcome.files.iter().map(|f| (f.path.as_str(), f.change, f.source, f.verified)).collect();
    let expected = [
        ("a.txt", FileChangeKind::Created, ChangeSource::Tool, true),
        ("b.txt", FileChangeKind::Created, ChangeSource::Shell, true),
    ];
    assert_eq!(files, expected, "{}", told.shown());
    let tools = told.tools();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["Write", "Bash"]);
    assert_eq!(tools.iter().map(|tool| &*tool.native_name).collect::<Vec<_>>(), stage.player.native);
    let inputs: Vec<&str> = tools.iter().filter_map(|tool| Some(tool.input.as_ref()?.get())).collect();
    assert!(inputs[0].contains("\"file_path\"") && inputs[0].contains("a.txt"), "{}", told.shown());
    assert!(inputs[1].contains("\"command\"") && inputs[1].contains("echo ran"), "{}", told.shown());
    assert_eq!(told.ends(), [ToolStatus::Ok; 2], "{}", told.shown());
    assert_eq!(told.results()[1].trim(), "ran", "{}", told.shown());
    assert_eq!((outcome.turns, outcome.tool_calls), (3, 2), "{}", told.shown());
    assert_eq!(tokens(outcome), own.three, "{}", told.shown());
    assert_eq!(told.warnings(), own.warnings, "{}", told.shown());
    assert!((own.costs)(outcome.cost_usd), "{}", told.shown());
    assert_eq!(outcome.stop_reason.as_deref(), Some("end_turn"), "{}", told.shown());
    assert_eq!(outcome.session_id.as_deref(), Some(session.id()));
    assert_eq!(outcome.agent_version.as_deref(), Some(stage.player.version), "{}", told.shown());
}

/// Starts an endless turn and cancels it during its work, which the number of its calls may show.
async fn check_cancel(
    stage: &Played,
    session: &Session,
    prompt: &str,
    is_under_way: impl Fn(usize) -> bool,
) -> RunRecord {
    #[cfg(target_os = "linux")]
    let before = stage.living();
    let mut request = stage.request(Mode::Auto);
    request.prompt = prompt.into();
    let mut run = session.prompt_with(request).await.unwrap();
    let (mut tools, end) = (0, Instant::now() + Duration::from_secs(60));
    while !is_under_way(tools) {
        assert!(Instant::now() < end, "{prompt} did not start");
        let told = tokio::time::timeout(Duration::from_millis(50), run.next()).await;
        let is_tool = |record: &Record| matches!(record.event, Event::ToolUse(_));
        tools += usize::from(told.ok().flatten().as_ref().is_some_and(is_tool));
    }
    let begun = Instant::now();
    run.cancel();
    let told = RunRecord::of(run).await;
    assert_eq!(told.outcome.verdict, Verdict::Cancelled, "{}", told.shown());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?} {}", begun.elapsed(), told.shown());
    #[cfg(target_os = "linux")]
    until("the end of the command", || stage.living() == before).await;
    told
}

/// Checks that the next prompt is answered normally and counts only its own usage.
async fn check_next_prompt(stage: &Played, session: &Session, own: &Expected) {
    let told = send_prompt(session, stage.request(Mode::Default), "say fine").await;
    let found = (told.outcome.verdict, told.outcome.text.as_str());
    assert_eq!(found, (Verdict::Done, "fine"), "{}", told.shown());
    // An adapter that learns late what a cancelled turn used counts that for the next turn. Only its update after the
    // answer shows it.
    let twice = own.one.map(|tokens| tokens.map(|tokens| 2 * tokens));
    let is_late = told.warnings().contains(&"late_update") && tokens(&told.outcome) == twice;
    assert_eq!(tokens(&told.outcome), if is_late { twice } else { own.one }, "{}", told.shown());
    assert_eq!((told.outcome.tool_calls, told.outcome.turns), (0, 1), "{}", told.shown());
}
