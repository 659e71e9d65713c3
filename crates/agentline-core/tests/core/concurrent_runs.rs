//! Several runs on one process, with an invented agent whose lines name their run: no run affects another one.

use crate::play::{Player, spec};
use agentline_core::{
    Concurrency, Connection, ConnectionOutput, CountScope, Dialogue, Event, ExitReason, FailureKind,
    HostRequest, HostRequestId, HostResponse, InputKind, InputLine, PermissionDecision, PermissionRequest,
    RunId, SessionTarget, ShutdownStep, Signal, Sink, Started, Stream, Timeouts, TokenCount, Tokens,
    ToolKind, ToolResult, ToolStatus, ToolUse, TurnEnd, TurnSpec, UsageSource, Verdict,
};
use std::collections::BTreeMap;

const ONE: RunId = RunId(1);
const TWO: RunId = RunId(2);

/// A dialogue that understands `RUN verb rest…` and sends every order and answer as a frame.
struct Invented {
    room: Concurrency,
    /// Whether the agent supports cancellation.
    cancellable: bool,
    requests: BTreeMap<HostRequestId, RunId>,
}

impl Dialogue for Invented {
    fn room(&self) -> Concurrency {
        self.room
    }

    fn prompt(&mut self, run: RunId, spec: &TurnSpec, sink: &mut Sink) {
        sink.frame(format!("{} prompt {}", run.0, spec.prompt));
    }

    fn line(&mut self, line: InputLine<'_>, sink: &mut Sink) {
        if line.stream != Stream::Stdout {
            return;
        }
        let mut parts = line.text.splitn(3, ' ');
        let run = RunId(parts.next().and_then(|n| n.parse().ok()).unwrap_or(0));
        let (verb, rest) = (parts.next().unwrap_or(""), parts.next().unwrap_or("").to_owned());
        match verb {
            "ready" => sink.ready(),
            "started" => {
                let mut started = Started::default();
                started.session_id = Some(rest);
                sink.event(run, started);
            }
            "text" => sink.event(run, Event::Text { text: rest }),
            "tool" => {
                let tool = ToolUse::new(rest, "Bash", "shell", ToolKind::Shell);
                sink.event(run, tool);
            }
            "result" => sink.event(run, ToolResult::new(rest, ToolStatus::Ok, None)),
            "used" => {
                let tokens = Tokens { total: rest.parse().ok(), ..Tokens::default() };
                sink.count(run, TokenCount::new(UsageSource::Stream, CountScope::Session, tokens));
            }
            "ask" => {
                let mut asked = PermissionRequest::default();
                (asked.tool, asked.tool_use_id) = ("Bash".into(), rest);
                let ask = HostRequest::Permission(Box::new(asked));
                let id = sink.ask(run, ask);
                self.requests.insert(id, run);
            }
            "never-mind" => {
                for (id, _) in self.requests.iter().filter(|(_, r)| **r == run) {
                    sink.withdraw(run, *id);
                }
            }
            "end" => sink.end(run, TurnEnd::ok()),
            _ => {}
        }
    }

    fn answer(&mut self, ask: HostRequestId, answer: &HostResponse, sink: &mut Sink) {
        let run = self.requests.get(&ask).map_or(0, |r| r.0);
        sink.frame(format!(
            "{run} answer {}",
            if matches!(answer, HostResponse::PermissionDecided(ruling) if ruling.allow) {
                "yes"
            } else {
                "no"
            }
        ));
    }

    fn cancel(&mut self, run: RunId, sink: &mut Sink) -> bool {
        if self.cancellable {
            sink.frame(format!("{} cancel", run.0));
        }
        self.cancellable
    }
}

fn start(room: Concurrency, cancellable: bool) -> Player {
    let dialogue = Invented { room, cancellable, requests: BTreeMap::new() };
    let mut player = Player::with(Connection::new(Box::new(dialogue), Timeouts::default()));
    player.stdout("0 ready");
    player
}

/// Starts two concurrent runs.
fn start_two(cancellable: bool) -> Player {
    let mut player = start(Concurrency::Sessions, cancellable);
    for run in [ONE, TWO] {
        assert!(player.conn.vacant());
        player.prompt_as(run, spec());
        player.stdout(&format!("{} started session-{}", run.0, run.0));
    }
    player
}

fn frames(player: &Player) -> Vec<&str> {
    player
        .out
        .iter()
        .filter_map(|o| if let ConnectionOutput::Frame(f) = o { Some(&**f) } else { None })
        .collect()
}

fn asked(player: &Player) -> Vec<HostRequestId> {
    player
        .out
        .iter()
        .filter_map(|o| {
            if let ConnectionOutput::Ask(_, id, HostRequest::Permission(_)) = o { Some(*id) } else { None }
        })
        .collect()
}

fn outputs_of(player: &Player, run: RunId) -> Vec<String> {
    player
        .out
        .iter()
        .filter(|o| match o {
            ConnectionOutput::Event(r, _)
            | ConnectionOutput::Ask(r, ..)
            | ConnectionOutput::Done(r, _)
            | ConnectionOutput::Follow(r, ..) => *r == run,
            _ => false,
        })
        .map(|o| match o {
            // Only the line number among all lines may differ.
            ConnectionOutput::Event(_, record) => {
                format!("{} {} {:?}", record.seq, record.at_ms, record.event)
            }
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn two_concurrent_sessions() {
    let mut player = start_two(true);
    for line in
        ["1 text a", "2 text x", "1 tool t", "2 tool t", "2 result t", "1 text b", "2 text y", "2 end"]
    {
        player.stdout(line);
    }
    assert_eq!(player.outcome_of(TWO).text, "y");
    assert_eq!(player.outcome_of(TWO).tool_calls, 1);
    assert!(player.rungs().is_empty(), "the other run still needs the process");
    for line in ["2 text late", "1 result t", "1 text c", "1 end"] {
        player.stdout(line);
    }
    player.check();
    assert_eq!(player.outcome_of(ONE).text, "c");
    assert!(player.conn.vacant() && !player.conn.is_finished());
    player.take(InputKind::Retire);
    assert_eq!(player.rungs(), [ShutdownStep::CloseStdin]);
    player.exit(ExitReason::Code(0));
    assert!(player.conn.is_finished());
}

#[test]
fn run_replays_identically_alone_and_beside_another() {
    let lines =
        ["started session-1", "text a", "tool t", "ask t", "text b", "result t", "used 70", "text c", "end"];
    let play = |with_neighbour: bool| {
        let mut player = start(Concurrency::Sessions, true);
        player.prompt_as(ONE, spec());
        if with_neighbour {
            player.prompt_as(TWO, spec());
        }
        for line in lines {
            player.now += 1000;
            if with_neighbour {
                player.stdout(&format!("2 {line}"));
            }
            player.stdout(&format!("1 {line}"));
            if let Some(ask) = asked(&player).into_iter().find(|a| a.0 >> 8 == 1).filter(|_| line == "ask t")
            {
                player.take(InputKind::Answer {
                    ask,
                    answer: HostResponse::PermissionDecided(PermissionDecision::deny("test", "no")),
                });
            }
        }
        player.check();
        outputs_of(&player, ONE)
    };
    assert_eq!(play(false), play(true));
}

#[test]
fn active_run_does_not_keep_a_silent_run_alive() {
    let mut player = start_two(true);
    for _ in 0..13 {
        player.wait(10_000);
        player.stdout("2 text .");
    }
    assert_eq!(frames(&player).last(), Some(&"1 cancel"));
    player.stdout("1 end");
    player.check();
    let error = player.outcome_of(ONE).error.clone().expect("the run was stopped");
    assert_eq!(error.kind, FailureKind::TimeoutIdle);
    assert!(player.rungs().is_empty());
    player.stdout("2 end");
    assert_eq!(player.outcome_of(TWO).verdict, Verdict::Done);
}

#[test]
fn line_without_a_run_counts_as_activity_of_all_runs() {
    let mut player = start_two(true);
    for _ in 0..20 {
        player.wait(10_000);
        player.stdout("0 unknown");
    }
    assert!(!player.is_over());
    assert_eq!(frames(&player).len(), 2);
}

#[test]
fn permission_is_requested_answered_and_reported_once() {
    let mut player = start_two(true);
    player.stdout("1 tool t");
    player.stdout("1 ask t");
    let ask = asked(&player)[0];
    player.take(InputKind::Answer {
        ask,
        answer: HostResponse::PermissionDecided(PermissionDecision::allow("test")),
    });
    player.take(InputKind::Answer {
        ask,
        answer: HostResponse::PermissionDecided(PermissionDecision::deny("test", "too late")),
    });
    assert_eq!(frames(&player)[2..], ["1 answer yes"]);
    player.stdout("1 ask t");
    let ask = asked(&player)[1];
    player.take(InputKind::Answer {
        ask,
        answer: HostResponse::PermissionDecided(PermissionDecision::deny("test", "not here")),
    });
    player.stdout("1 text x");
    player.stdout("1 end");
    player.wait(500);
    player.check();
    let outcome = player.outcome_of(ONE);
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials);
    assert_eq!((&*outcome.denied[0].tool, &*outcome.denied[0].reason), ("Bash", "not here"));
}

#[test]
fn waiting_for_a_permission_answer_pauses_timeouts() {
    let mut player = start_two(true);
    player.stdout("1 text before");
    player.stdout("1 ask t");
    player.stdout("2 end");
    player.wait(3_000_000);
    assert!(!player.out.iter().any(|o| matches!(o, ConnectionOutput::Done(run, _) if *run == ONE)));
    let ask = asked(&player)[0];
    player.take(InputKind::Answer {
        ask,
        answer: HostResponse::PermissionDecided(PermissionDecision::allow("test")),
    });
    // The run still has all of its time, except for what it used before.
    for _ in 0..5 {
        player.wait(110_000);
        player.stdout("1 text .");
    }
    player.wait(49_999);
    assert_eq!(frames(&player).last(), Some(&"1 answer yes"));
    player.wait(1);
    assert_eq!(frames(&player).last(), Some(&"1 cancel"));
    player.stdout("1 end");
    assert_eq!(player.outcome_of(ONE).error.as_ref().map(|e| e.kind), Some(FailureKind::TimeoutRun));
}

#[test]
fn unanswered_permission_request_is_a_denial() {
    let mut player = start_two(true);
    player.stdout("1 ask t");
    player.wait(3_600_000);
    assert_eq!(frames(&player)[2..], ["2 cancel", "1 answer no"]);
    let ask = asked(&player)[0];
    player.take(InputKind::Answer {
        ask,
        answer: HostResponse::PermissionDecided(PermissionDecision::allow("test")),
    });
    assert_eq!(frames(&player).len(), 4, "a late answer changes nothing");
    player.stdout("1 text x");
    player.stdout("1 end");
    player.check();
    assert_eq!(player.outcome_of(ONE).verdict, Verdict::DoneWithDenials);
}

#[test]
fn cancel_withdraws_pending_requests_and_answers_later_ones() {
    let mut player = start_two(true);
    player.stdout("1 ask t");
    player.take(InputKind::Cancel { run: ONE, signal: Signal::Interrupt });
    player.stdout("1 ask u");
    assert_eq!(asked(&player).len(), 1, "no request is sent for a run that is being cancelled");
    assert_eq!(frames(&player)[2..], ["1 cancel", "1 answer no"]);
    player.take(InputKind::Answer {
        ask: asked(&player)[0],
        answer: HostResponse::PermissionDecided(PermissionDecision::allow("test")),
    });
    player.stdout("1 never-mind");
    player.stdout("1 end");
    player.check();
    assert_eq!(player.outcome_of(ONE).verdict, Verdict::Cancelled);
    let withdrawn = player.out.iter().filter(|o| matches!(o, ConnectionOutput::Withdraw(_))).count();
    assert_eq!(withdrawn, 1);
}

#[test]
fn agent_may_withdraw_its_request() {
    let mut player = start_two(true);
    player.stdout("1 ask t");
    player.stdout("1 never-mind");
    player.stdout("1 never-mind");
    player.take(InputKind::Answer {
        ask: asked(&player)[0],
        answer: HostResponse::PermissionDecided(PermissionDecision::allow("test")),
    });
    assert_eq!(frames(&player).len(), 2);
    player.stdout("1 text x");
    player.stdout("1 end");
    player.check();
    assert_eq!(player.outcome_of(ONE).verdict, Verdict::Done);
}

#[test]
fn run_ignoring_cancel_is_abandoned_and_the_process_ends_after_the_others() {
    for cancellable in [true, false] {
        let mut player = start_two(cancellable);
        player.take(InputKind::Cancel { run: ONE, signal: Signal::Terminate });
        player.wait(1_999);
        assert!(!player.is_over());
        player.wait(1);
        assert_eq!(player.outcome_of(ONE).verdict, Verdict::Cancelled);
        assert!(!player.conn.is_open(), "no run is assigned to a process that ignores a cancel");
        assert!(player.rungs().is_empty());
        player.stdout("2 text x");
        player.stdout("2 end");
        assert_eq!(player.outcome_of(TWO).verdict, Verdict::Done);
        assert_eq!(player.rungs(), [ShutdownStep::CloseStdin]);
        player.ticks_to_the_end();
        player.check();
        assert!(player.conn.is_finished());
    }
}

#[test]
fn process_exit_ends_all_its_runs() {
    let mut player = start_two(true);
    player.stdout("1 tool t");
    player.stdout("2 ask u");
    player.exit(ExitReason::Signal(11));
    player.check();
    for run in [ONE, TWO] {
        assert_eq!(player.outcome_of(run).error.as_ref().map(|e| e.kind), Some(FailureKind::Crashed));
    }
    assert!(player.conn.is_finished());
}

#[test]
fn consecutive_turns_count_only_their_own_usage() {
    let mut player = start(Concurrency::Turns, true);
    for (n, used) in [(1, 100), (2, 250), (3, 260)] {
        let run = RunId(n);
        assert!(player.conn.vacant());
        let mut spec = spec();
        if n > 1 {
            spec.session = SessionTarget::Open("same".into());
        }
        player.prompt_as(run, spec);
        assert!(!player.conn.vacant() && player.conn.is_open());
        player.stdout(&format!("{n} started same"));
        player.stdout(&format!("{n} text t"));
        player.stdout(&format!("{n} used {used}"));
        if n == 2 {
            // A cancelled turn still counts its usage.
            player.take(InputKind::Cancel { run, signal: Signal::Interrupt });
        }
        player.stdout(&format!("{n} end"));
    }
    player.check();
    let totals: Vec<_> = (1..4).map(|n| player.outcome_of(RunId(n)).usage.tokens.total).collect();
    assert_eq!(totals, [Some(100), Some(150), Some(10)]);
}

#[test]
fn quiet_period_waits_for_open_tools_unless_cancelled() {
    let mut player = start(Concurrency::Turns, true);
    player.prompt_as(ONE, spec());
    for line in ["1 tool t", "1 text x", "1 end"] {
        player.stdout(line);
    }
    player.wait(400);
    assert!(!player.is_over());
    player.stdout("1 result t");
    player.wait(100);
    player.check();
    assert_eq!(player.outcome_of(ONE).verdict, Verdict::Done);
    player.prompt_as(TWO, spec());
    player.stdout("2 tool t");
    player.take(InputKind::Cancel { run: TWO, signal: Signal::Interrupt });
    player.stdout("2 end");
    assert_eq!(player.outcome_of(TWO).verdict, Verdict::Cancelled, "there is no wait after a cancel");
}

#[test]
fn process_that_never_becomes_ready_is_closed() {
    for with_run in [false, true] {
        let dialogue =
            Invented { room: Concurrency::Sessions, cancellable: false, requests: BTreeMap::new() };
        let mut player = Player::with(Connection::new(Box::new(dialogue), Timeouts::default()));
        if with_run {
            player.prompt_as(ONE, spec());
        }
        player.wait(60_000);
        assert_eq!(player.rungs(), [ShutdownStep::CloseStdin], "one owner of the startup timeout");
        player.ticks_to_the_end();
        player.check();
        assert!(player.conn.is_finished());
        if with_run {
            assert_eq!(
                player.outcome_of(ONE).error.as_ref().map(|e| e.kind),
                Some(FailureKind::TimeoutStartup)
            );
        }
    }
}

#[test]
fn retired_idle_process_ends_immediately() {
    let mut player = start(Concurrency::Sessions, true);
    assert_eq!(player.conn.deadline(), None);
    player.take(InputKind::Retire);
    assert_eq!(player.rungs(), [ShutdownStep::CloseStdin]);
    // An agent that ignores both is killed after half a second.
    player.wait(250);
    player.wait(250);
    assert_eq!(player.rungs(), [ShutdownStep::CloseStdin, ShutdownStep::Terminate, ShutdownStep::Kill]);
    player.ticks_to_the_end();
    player.check();
    assert!(player.conn.is_finished());
}

#[test]
fn process_of_another_run_is_not_killed_with_a_run() {
    let mut player = start(Concurrency::Sessions, true);
    player.prompt_as(ONE, spec());
    player.prompt_as(TWO, spec());
    player.take(InputKind::Cancel { run: ONE, signal: Signal::Kill });
    assert!(player.rungs().is_empty());
    player.take(InputKind::Cancel { run: TWO, signal: Signal::Interrupt });
    assert!(player.rungs().is_empty(), "the other run may still end");
    player.take(InputKind::Cancel { run: TWO, signal: Signal::Kill });
    assert_eq!(player.rungs(), [ShutdownStep::Kill]);
}

#[test]
fn retired_process_ends_with_its_last_run() {
    let mut player = start(Concurrency::Sessions, true);
    player.prompt_as(ONE, spec());
    player.stdout("1 text x");
    player.take(InputKind::Retire);
    assert!(player.rungs().is_empty());
    player.stdout("1 end");
    assert!(player.is_over());
    assert_eq!(player.rungs(), [ShutdownStep::CloseStdin]);
}
