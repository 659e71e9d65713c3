//! Tests concurrent sessions on one process: no session affects another one, and a run extracted from a shared tape
//! replays identically.

use super::{
    harness::AcpHarness,
    recorded::{self, Recorded},
};
use crate::play::{Player, spec};
use agentline_core::{
    ConnectionOutput, HostRequestId, HostResponse, Input, InputKind, PermissionDecision, RunId,
    SessionTarget, SideChannel, Stream, Tape, Verdict,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the outputs of some runs. Only the line number among all lines may differ.
fn outputs_of(out: &[ConnectionOutput], runs: &BTreeSet<RunId>) -> Vec<String> {
    let of = |o: &ConnectionOutput| match o {
        ConnectionOutput::Event(run, _)
        | ConnectionOutput::Ask(run, ..)
        | ConnectionOutput::Done(run, _)
        | ConnectionOutput::Follow(run, ..) => Some(*run),
        ConnectionOutput::Withdraw(ask) => Some(RunId(ask.0 >> 8)),
        ConnectionOutput::Frame(frame) => frame_owner(frame),
        _ => None,
    };
    out.iter()
        .filter(|o| of(o).is_some_and(|run| runs.contains(&run)))
        .map(|o| match o {
            ConnectionOutput::Event(run, record) => {
                format!("{run:?} {} {} {:?}", record.seq, record.at_ms, record.event)
            }
            other => format!("{other:?}"),
        })
        .collect()
}

/// Returns the run that sent a request frame. Replies and notifications belong to no run here.
fn frame_owner(frame: &str) -> Option<RunId> {
    let frame: Value = serde_json::from_str(frame).expect("a frame is JSON");
    let id = frame["method"].is_string().then(|| frame["id"].as_u64())??;
    (id >= 4096).then(|| RunId(u32::try_from(id >> 12).expect("a small number")))
}

/// Returns the run that an input names explicitly.
fn run_of(input: &Input<'_>) -> Option<RunId> {
    match &input.kind {
        InputKind::Prompt { run, .. } | InputKind::Cancel { run, .. } | InputKind::Notice { run, .. } => {
            Some(*run)
        }
        InputKind::Answer { ask, .. } => Some(RunId(ask.0 >> 8)),
        InputKind::Line { stream: Stream::Side(run, _), .. } => Some(*run),
        _ => None,
    }
}

/// Extracts some runs from a shared tape: an input is dropped only if all its effects belong to other runs.
fn cut(recording: Option<&Recorded>, tape: &Tape, runs: &BTreeSet<RunId>) -> (Vec<String>, Vec<String>) {
    let harness = || recording.map_or_else(AcpHarness::bare, Recorded::harness);
    let mut shared = harness().player;
    let mut alone = harness().player;
    (shared.disk, alone.disk) = (None, None);
    let skip = usize::from(matches!(tape.inputs.first(), Some(Input { kind: InputKind::Started, .. })));
    for input in tape.inputs.iter().skip(skip) {
        let from = shared.out.len();
        hand(&mut shared, input);
        let caused: Vec<Option<RunId>> = shared.out[from..]
            .iter()
            .map(|o| match o {
                ConnectionOutput::Event(run, _)
                | ConnectionOutput::Ask(run, ..)
                | ConnectionOutput::Done(run, _)
                | ConnectionOutput::Follow(run, ..) => Some(*run),
                ConnectionOutput::Withdraw(HostRequestId(ask)) => Some(RunId(ask >> 8)),
                ConnectionOutput::Frame(frame) => frame_owner(frame),
                _ => None,
            })
            .collect();
        let others = |run: &RunId| !runs.contains(run);
        let goes = match run_of(input) {
            Some(run) => others(&run),
            None => caused.iter().any(Option::is_some) && caused.iter().flatten().all(others),
        };
        if !goes {
            hand(&mut alone, input);
        }
    }
    (outputs_of(&shared.out, runs), outputs_of(&alone.out, runs))
}

fn hand(player: &mut Player, input: &Input<'_>) {
    player.now = input.at;
    player.take(input.kind.clone());
}

fn tape_of(lines: &[String]) -> Tape {
    let header = r#"{"schema":"agentline.tape/1","agent":"gemini","surface":"acp"}"#;
    Tape::read(&format!("{header}\n{}", lines.join("\n"))).expect("a valid tape")
}

#[test]
fn conversations_extracted_from_a_recording_replay_identically() {
    let mut cuts = 0;
    for recording in recorded::all() {
        let replay = recording.play();
        let tape = tape_of(&replay.harness.player.tape.clone().expect("a tape was recorded"));
        // Runs of one session belong together, because later ones use the session that the first one opened.
        let mut sessions: Vec<(String, BTreeSet<RunId>)> = Vec::new();
        for run in (1..=replay.runs).map(RunId) {
            let expected = tape.inputs.iter().find_map(|input| match &input.kind {
                InputKind::Prompt { run: of, spec } if *of == run => Some(spec.session.clone()),
                _ => None,
            });
            let own = || {
                replay
                    .harness
                    .player
                    .outcome_of(run)
                    .session_id
                    .clone()
                    .unwrap_or_else(|| format!("none {}", run.0))
            };
            let id = match expected {
                Some(SessionTarget::Open(id) | SessionTarget::Load(id)) => id,
                _ => own(),
            };
            match sessions.iter_mut().find(|s| s.0 == id) {
                Some(session) => drop(session.1.insert(run)),
                None => sessions.push((id, BTreeSet::from([run]))),
            }
        }
        for (session, runs) in sessions {
            let (shared, alone) = cut(Some(&recording), &tape, &runs);
            assert_eq!(shared, alone, "{} {session}", recording.name);
            assert!(!shared.is_empty());
            cuts += 1;
        }
    }
    assert!(cuts > 50, "{cuts}");
}

/// Returns the lines of one of two concurrent runs, one per step. `number` is that of the run and its session.
fn steps(number: u32, ids: (u64, u64)) -> Vec<Value> {
    let session = format!("s{number}");
    let update = |update: Value| json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}});
    let text = |text: &str| {
        update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
    };
    let call = json!({"toolCallId": "write_file__write_file_1_0", "title": "Writing to a", "kind": "edit",
        "content": [{"type": "diff", "path": "/ws/a", "oldText": "", "newText": "x"}]});
    let options = json!([{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]);
    vec![
        json!({"jsonrpc": "2.0", "id": ids.0, "result": {"sessionId": session}}),
        update(json!({"sessionUpdate": "available_commands_update", "availableCommands": []})),
        text("Hel"),
        json!({"jsonrpc": "2.0", "id": number, "method": "session/request_permission",
            "params": {"sessionId": session, "toolCall": call, "options": options}}),
        update(
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "write_file__write_file_1_0", "status": "completed"}),
        ),
        update(json!({"sessionUpdate": "brand_new"})),
        text("lo"),
        json!({"jsonrpc": "2.0", "id": ids.1, "result": {"stopReason": "end_turn",
            "_meta": {"quota": {"token_count": {"input_tokens": 10 * number, "output_tokens": number}}}}}),
    ]
}

#[test]
fn concurrent_runs_have_separate_events() {
    let mut harness = AcpHarness::gemini();
    for run in [1, 2] {
        harness.player.prompt_as(RunId(run), spec());
    }
    let ids = |run: u64| (run << 12 | 1, run << 12 | 17);
    let (one, two) = (steps(1, ids(1)), steps(2, ids(2)));
    for (n, (a, b)) in one.iter().zip(&two).enumerate() {
        for (run, line) in [(1, a), (2, b)] {
            harness.player.now += 10;
            harness.send(line);
            if n == 3 {
                let (ask, _) = harness.asked().pop().expect("a request is sent");
                assert_eq!(ask.0 >> 8, run);
                harness.answer(ask, HostResponse::PermissionDecided(PermissionDecision::allow("test")));
            }
        }
    }
    harness.player.check();
    for run in [1, 2] {
        let outcome = harness.player.outcome_of(RunId(run));
        assert_eq!((outcome.verdict, outcome.text.as_str()), (Verdict::Done, "lo"));
        assert_eq!((outcome.tool_calls, outcome.files.len()), (1, 1));
        assert_eq!(outcome.usage.tokens.input, Some(10 * u64::from(run)));
        assert_eq!(outcome.session_id, Some(format!("s{run}")));
    }
    // Each run by itself gives the same outputs.
    let tape = tape_of(&harness.player.tape.clone().expect("a tape was recorded"));
    for run in [1, 2] {
        let (shared, alone) = cut(None, &tape, &BTreeSet::from([RunId(run)]));
        assert_eq!(shared, alone);
        assert!(shared.len() > 10, "{shared:?}");
    }
}

#[test]
fn silent_session_is_not_kept_alive_by_another_session() {
    let mut harness = AcpHarness::gemini();
    harness.start(RunId(1), "a", spec());
    harness.frames();
    harness.start(RunId(2), "b", spec());
    for _ in 0..13 {
        harness.player.wait(10_000);
        harness.text("b", "on and on");
    }
    assert_eq!(harness.frames().last().map(|f| f["method"].clone()), Some(json!("session/cancel")));
    harness.player.wait(3000);
    assert_eq!(harness.player.outcome_of(RunId(1)).verdict, Verdict::TimedOut);
    harness.text("b", "still here");
    assert!(!harness.player.out.iter().any(|o| matches!(o, ConnectionOutput::Done(RunId(2), _))));
}

#[test]
fn runs_do_not_share_tools() {
    let mut harness = AcpHarness::gemini();
    for run in [1, 2] {
        let mut hosted = spec();
        hosted.hosted = vec!["ask".into()];
        harness.player.prompt_as(RunId(run), hosted);
        harness.frames();
        harness.end(&json!(u64::from(run) << 12 | 1), &json!({"sessionId": format!("s{run}")}));
    }
    harness.player.line(Stream::Side(RunId(2), SideChannel::ToolHost), r#"{"listed":["ask"]}"#);
    let prompts: Vec<_> = harness.frames().iter().map(|f| f["params"]["sessionId"].clone()).collect();
    assert_eq!(prompts, [json!("s2")]);
}

#[test]
fn loaded_session_is_not_loaded_again() {
    let mut harness = AcpHarness::unknown();
    let mut load = spec();
    load.session = SessionTarget::Load("old".into());
    harness.player.prompt_as(RunId(1), load.clone());
    harness.reply("session/load", &json!({}));
    let id = harness.frame()["id"].clone();
    harness.text("old", "one");
    harness.end(&id, &json!({"stopReason": "end_turn"}));
    harness.player.prompt_as(RunId(2), load);
    assert_eq!(harness.frame()["method"], "session/prompt");
}
