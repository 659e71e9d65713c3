//! Replays recordings of Codex's own surfaces: `app-server`, whose replies have the ids of our requests, and `exec`.

use crate::play::{Player, RUN, spec};
use agentline_core::{
    Connection, ConnectionOutput, DialogueConfig, Event, ExitReason, FailureKind, HostRequest, HostResponse,
    InputKind, Outcome, PermissionDecision, PermissionRequest, RunId, SessionTarget, Signal, Surface,
    Timeouts, ToolStatus, TurnSpec, Verdict, agents,
};
use std::path::Path;

fn lines(path: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/codex").join(path);
    std::fs::read_to_string(path).expect("the recording exists").lines().map(str::to_owned).collect()
}

fn player(surface: Surface) -> Player {
    let codex = agents::find("codex").expect("it is built in");
    let dialogue = codex.dialogue(&DialogueConfig::new(surface, None));
    Player::with(Connection::new(dialogue, Timeouts::default()))
}

fn codex_spec() -> TurnSpec {
    let mut spec = spec();
    spec.info.agent = "codex".into();
    spec
}

impl Player {
    fn frames(&self) -> Vec<serde_json::Value> {
        let frames = self.out.iter().filter_map(|output| match output {
            ConnectionOutput::Frame(frame) => Some(serde_json::from_str(frame).expect("a frame is JSON")),
            _ => None,
        });
        frames.collect()
    }

    fn sent(&self, method: &str) -> Vec<serde_json::Value> {
        self.frames().into_iter().filter(|frame| frame["method"] == method).collect()
    }

    fn codex_events(&self) -> Vec<Event> {
        let events = self.out.iter().filter_map(|output| match output {
            ConnectionOutput::Event(_, record) => Some(record.event.clone()),
            _ => None,
        });
        events.collect()
    }

    fn outcome_of_run(&self) -> Outcome {
        let done = self.out.iter().find_map(|output| match output {
            ConnectionOutput::Done(RUN, outcome) => Some((**outcome).clone()),
            _ => None,
        });
        done.expect("the run has an outcome")
    }

    /// Feeds lines, and answers each permission request by this function.
    fn feed(&mut self, lines: &[String], decide: impl Fn(&PermissionRequest) -> PermissionDecision) {
        for line in lines {
            let from = self.out.len();
            self.stdout(line);
            let asked: Vec<_> = self.out[from..]
                .iter()
                .filter_map(|output| match output {
                    ConnectionOutput::Ask(_, id, HostRequest::Permission(ask)) => Some((*id, ask.clone())),
                    _ => None,
                })
                .collect();
            for (ask, request) in asked {
                let answer = HostResponse::PermissionDecided(decide(&request));
                self.take(InputKind::Answer { ask, answer });
            }
        }
    }
}

#[test]
fn app_server_reports_tools_permissions_and_usage_of_each_request() {
    let mut player = player(Surface::AppServer);
    player.prompt(codex_spec());
    player.feed(&lines("app-server/tools.jsonl"), |ask| match &*ask.tool {
        "Bash" => {
            assert_eq!((ask.command.as_deref(), &*ask.tool_use_id), (Some("touch x"), "call_4_0"));
            PermissionDecision::deny("mode", "mode")
        }
        "Write" | "Edit" => {
            assert_eq!(ask.paths, ["/ws/a.txt"]);
            assert!(!ask.diffs.is_empty());
            PermissionDecision::allow("callback")
        }
        _ => {
            assert_eq!((&*ask.tool, ask.server.as_deref()), ("mcp__srv__echo", Some("srv")));
            assert_eq!(&*ask.tool_use_id, "call_5_0");
            PermissionDecision::allow("callback")
        }
    });
    let answers: Vec<String> = player
        .frames()
        .iter()
        .filter(|frame| frame.get("result").is_some())
        .map(|frame| frame["result"].get("decision").unwrap_or(&frame["result"]["action"]).to_string())
        .collect();
    assert_eq!(answers, [r#""accept""#, r#""accept""#, r#""decline""#, r#""accept""#]);
    let outcome = player.outcome_of_run();
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials);
    assert_eq!(outcome.denied.len(), 1);
    assert_eq!((&*outcome.denied[0].tool, &*outcome.denied[0].reason), ("Bash", "mode"));
    assert_eq!((outcome.text.as_str(), outcome.model.as_deref()), ("done", Some("gpt-5.5")));
    // Seven requests, each with 100 tokens of input and 30 of output, 5 of them for reasoning.
    let tokens = outcome.usage.tokens;
    assert_eq!(
        (tokens.input, tokens.output, tokens.cached, tokens.thoughts),
        (Some(700), Some(175), Some(140), Some(35))
    );
    assert_eq!((outcome.usage.requests, outcome.usage.turns.len()), (Some(7), 7));
    let uses: Vec<(String, String)> = player
        .codex_events()
        .into_iter()
        .filter_map(|event| match event {
            Event::ToolUse(tool) => {
                Some((tool.name, tool.input.map(|i| i.get().to_owned()).unwrap_or_default()))
            }
            _ => None,
        })
        .collect();
    let uses: Vec<(&str, &str)> = uses.iter().map(|(name, input)| (&**name, &**input)).collect();
    assert_eq!(
        uses,
        [
            ("Write", r#"{"content":"hi\n","file_path":"/ws/a.txt"}"#),
            ("Edit", r#"{"file_path":"/ws/a.txt","new_string":"ho\n","old_string":"hi\n"}"#),
            ("Bash", r#"{"command":"cat a.txt; exit 3"}"#),
            ("Bash", r#"{"command":"touch x"}"#),
            ("mcp__srv__echo", r#"{"text":"hi"}"#),
        ]
    );
    let results: Vec<(ToolStatus, Option<String>)> = player
        .codex_events()
        .into_iter()
        .filter_map(|event| match event {
            Event::ToolResult(result) => Some((result.status, result.content)),
            _ => None,
        })
        .collect();
    assert_eq!(results[2], (ToolStatus::Error, Some("ho\n".into())));
    assert_eq!(results[3].0, ToolStatus::Denied);
    assert_eq!(results[4], (ToolStatus::Ok, Some(r#"echo {"text": "hi"}"#.into())));
}

#[test]
fn turn_of_a_failing_service_is_interrupted_and_fails_with_its_error() {
    let mut player = player(Surface::AppServer);
    player.prompt(codex_spec());
    player.feed(&lines("app-server/retries.jsonl"), |_| unreachable!("it asks nothing"));
    assert_eq!(player.sent("turn/interrupt").len(), 1);
    let outcome = player.outcome_of_run();
    let error = outcome.error.expect("an error");
    assert_eq!((outcome.verdict, error.kind), (Verdict::Failed, FailureKind::ApiError), "{error:?}");
    assert!(error.message.contains("high demand"), "{error:?}");
}

#[test]
fn cancelled_turn_is_interrupted_once_its_id_is_known() {
    let recorded = lines("app-server/interrupt.jsonl");
    // Cancel before the reply to `turn/start`, which is the first line with the id of the turn, and after the tool.
    for cancel_after in [3, 8] {
        let mut player = player(Surface::AppServer);
        player.prompt(codex_spec());
        player.feed(&recorded[..cancel_after], |_| unreachable!("it asks nothing"));
        player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
        player.feed(&recorded[cancel_after..], |_| unreachable!("it asks nothing"));
        assert_eq!(player.sent("turn/interrupt").len(), 1, "after line {cancel_after}");
        assert_eq!(player.outcome_of_run().verdict, Verdict::Cancelled, "after line {cancel_after}");
    }
}

#[test]
fn late_reports_of_a_cancelled_turn_do_not_belong_to_the_next_run() {
    let recorded = lines("app-server/interrupt.jsonl");
    let mut player = player(Surface::AppServer);
    let mut first = codex_spec();
    first.timeouts.quiet = 0;
    player.prompt(first);
    player.feed(&recorded[..8], |_| unreachable!("it asks nothing"));
    player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
    player.feed(&recorded[8..], |_| unreachable!("it asks nothing"));
    let thread = player.outcome_of_run().session_id.expect("a session");
    let mut next = codex_spec();
    next.session = SessionTarget::Open(thread.clone());
    player.prompt_as(RunId(2), next);
    let started = recorded.iter().find(|line| line.contains("commandExecution")).expect("a command");
    let late = started.replace("item/started", "item/completed").replace("inProgress", "failed");
    let from = player.out.len();
    player.stdout(&late);
    let events = player.out[from..].iter().filter(|output| matches!(output, ConnectionOutput::Event(..)));
    assert_eq!(events.count(), 0, "{:?}", &player.out[from..]);
}

#[test]
fn threads_are_opened_with_the_parameters_of_the_launch() {
    let mut player = player(Surface::AppServer);
    player.stdout(r#"{"id":0,"result":{"userAgent":"agentline/0.166.0 (x)"}}"#);
    let mut spec = codex_spec();
    spec.meta = Some(r#"{"thread":{"config":{"a":1}},"turn":{"approvalPolicy":"untrusted"}}"#.into());
    spec.session = SessionTarget::Load("t-1".into());
    player.prompt(spec);
    let resume = &player.sent("thread/resume")[0]["params"];
    assert_eq!((&resume["threadId"], &resume["config"]["a"]), (&"t-1".into(), &1.into()));
    let id = player.sent("thread/resume")[0]["id"].clone();
    player.stdout(&format!(r#"{{"id":{id},"result":{{"thread":{{"id":"t-1"}},"model":"m"}}}}"#));
    assert_eq!(player.sent("turn/start")[0]["params"]["approvalPolicy"], "untrusted");

    // A thread that does not exist.
    let mut other = codex_spec();
    other.session = SessionTarget::Load("t-2".into());
    player.prompt_as(RunId(2), other);
    let id = player.sent("thread/resume")[1]["id"].clone();
    player.stdout(&format!(
        r#"{{"id":{id},"error":{{"code":-32600,"message":"no rollout found for thread id t-2"}}}}"#
    ));
    let failed = player.out.iter().find_map(|output| match output {
        ConnectionOutput::Done(RunId(2), outcome) => outcome.error.clone(),
        _ => None,
    });
    assert_eq!(failed.expect("an error").kind, FailureKind::SessionNotFound);
}

#[test]
fn damaged_messages_of_app_server_do_not_break_the_run() {
    let recorded = lines("app-server/tools.jsonl");
    for at in 0..recorded.len() {
        for damage in [|line: &str| line[..line.len() / 2].to_owned(), |line: &str| line.replace('"', "'")] {
            let mut player = player(Surface::AppServer);
            player.prompt(codex_spec());
            let mut damaged = recorded.clone();
            damaged[at] = damage(&recorded[at]);
            player.feed(&damaged, |_| PermissionDecision::allow("callback"));
            player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
            player.ticks_to_the_end();
            let _ = player.outcome_of_run();
        }
    }
}

/// Replays `exec` and its exit.
fn exec(name: &str, code: i32) -> (Player, Outcome) {
    let mut player = player(Surface::StreamJson);
    player.prompt(codex_spec());
    for line in lines(&format!("exec/{name}.jsonl")) {
        player.stdout(&line);
    }
    player.exit(ExitReason::Code(code));
    let outcome = player.outcome_of_run();
    (player, outcome)
}

#[test]
fn exec_reports_tools_and_the_usage_of_a_new_session() {
    let (player, outcome) = exec("full", 0);
    assert_eq!((outcome.verdict, outcome.usage.tokens.input), (Verdict::Done, Some(615)));
    let names: Vec<String> = player
        .codex_events()
        .into_iter()
        .filter_map(|event| match event {
            Event::ToolUse(tool) => Some(tool.name),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["Write", "Edit", "Bash", "Bash", "Bash"]);
    assert_eq!(exec("mcp", 0).1.verdict, Verdict::Done);
    assert_eq!(exec("web", 0).1.verdict, Verdict::Done);

    // The usage of a resumed session is that of the whole session; the session file has that of the run.
    let mut player = self::player(Surface::StreamJson);
    let mut spec = codex_spec();
    spec.session = SessionTarget::Load("t".into());
    player.prompt(spec);
    lines("exec/full.jsonl").iter().for_each(|line| player.stdout(line));
    player.exit(ExitReason::Code(0));
    let outcome = player.outcome_of_run();
    assert_eq!(outcome.usage.tokens.input, None);
}

#[test]
fn exec_reports_errors_of_the_service() {
    for (name, verdict, kind) in [
        ("error_401", Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
        ("error_500", Verdict::Failed, FailureKind::ApiError),
        ("error_400", Verdict::Failed, FailureKind::ContextOverflow),
        ("dropped", Verdict::Failed, FailureKind::Network),
    ] {
        let (_, outcome) = exec(name, 1);
        let error = outcome.error.expect(name);
        assert_eq!((outcome.verdict, error.kind), (verdict, kind), "{name}: {error:?}");
    }
}

#[test]
fn exec_reports_calls_that_it_refused() {
    let mut player = player(Surface::StreamJson);
    player.prompt(codex_spec());
    lines("exec/refused.stderr").iter().for_each(|line| player.stderr(line));
    lines("exec/refused.jsonl").iter().for_each(|line| player.stdout(line));
    player.exit(ExitReason::Code(0));
    let outcome = player.outcome_of_run();
    let denied: Vec<&str> = outcome.denied.iter().map(|denial| &*denial.tool).collect();
    assert_eq!((outcome.verdict, denied), (Verdict::DoneWithDenials, vec!["Edit", "Bash"]));
}

#[test]
fn process_that_could_not_open_its_database_is_worth_another_start() {
    for surface in [Surface::AppServer, Surface::StreamJson] {
        let mut player = player(surface);
        player.prompt(codex_spec());
        player.stderr("Error: failed to initialize sqlite state runtime under /home/me/.codex: it is in use");
        player.exit(ExitReason::Code(1));
        let error = player.outcome_of_run().error.expect("a failure");
        assert_eq!((error.kind, error.retryable), (FailureKind::ApiError, true), "{error:?}");
        assert!(error.message.starts_with("failed to initialize sqlite"), "{error:?}");
    }
}
