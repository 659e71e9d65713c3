//! Recordings of OpenCode 1.18.33, played to a whole connection.

use super::*;
use crate::{
    Connection, ConnectionOutput, DiskReport, FailureKind, HostRequest, Input, InputKind, Millis, Outcome,
    PermissionDecision, PermissionRequest, Record, SessionTarget, Signal, Timeouts, ToolStatus, Verdict,
};
use serde_json::Value;

const RECORDED: &str = include_str!("../../../../tests/captures/opencode/serve.jsonl");

/// A connection with one run that plays a recording.
struct Stage {
    connection: Connection,
    at: Millis,
    session: String,
    /// Whether permission requests are granted.
    allows: fn(&PermissionRequest) -> bool,
    frames: Vec<Value>,
    events: Vec<Record>,
    asked: Vec<PermissionRequest>,
    prompt: Option<Value>,
    done: Option<Box<Outcome>>,
}

impl Stage {
    fn new(session: &str) -> Self {
        Self {
            connection: Connection::new(Box::new(Serve::default()), Timeouts::default()),
            at: 0,
            session: session.to_owned(),
            allows: |_| true,
            frames: Vec::new(),
            events: Vec::new(),
            asked: Vec::new(),
            prompt: None,
            done: None,
        }
    }

    fn feed(&mut self, kind: InputKind<'_>) {
        let mut outputs = Vec::new();
        self.connection.take(&Input { at: self.at, kind }, &mut outputs);
        for output in outputs {
            match output {
                ConnectionOutput::Frame(frame) => {
                    let frame: Value = serde_json::from_str(&frame).unwrap();
                    self.frames.push(frame.clone());
                    self.respond(&frame);
                }
                ConnectionOutput::Event(_, record) => self.events.push(record),
                ConnectionOutput::Ask(_, ask, HostRequest::Permission(request)) => {
                    let decision = if (self.allows)(&request) {
                        PermissionDecision::allow("mode")
                    } else {
                        PermissionDecision::deny("mode", "mode")
                    };
                    self.asked.push(*request);
                    self.feed(InputKind::Answer { ask, answer: HostResponse::PermissionDecided(decision) });
                }
                ConnectionOutput::Ask(_, ask, HostRequest::CollectChanges { .. }) => {
                    let answer = HostResponse::ChangesCollected(DiskReport::default());
                    self.feed(InputKind::Answer { ask, answer });
                }
                ConnectionOutput::Done(_, outcome) => self.done = Some(outcome),
                _ => {}
            }
        }
    }

    /// Answers the requests that open a session, as OpenCode does.
    fn respond(&mut self, frame: &Value) {
        let path = frame["path"].as_str().unwrap();
        let id = frame["id"].clone();
        let body = match path.split('?').next().unwrap() {
            "/session" if frame["method"] == "POST" => json!({"id": self.session, "version": "1.18.33"}),
            "/session" => json!([{"id": self.session}]),
            "/config/providers" => {
                json!({"providers": [{"id": "scripted", "models": {"scripted-model": {"name": "Scripted", "limit": {"context": 8000}, "variants": {"high": {}, "low": {}}}}}]})
            }
            "/mcp" => json!({"tools": {"status": "connected"}}),
            path if path.ends_with("/message") && frame["method"] == "POST" => {
                self.prompt = Some(id);
                return;
            }
            path if path == format!("/session/{}", self.session) && frame["method"] == "GET" => {
                json!({"id": self.session})
            }
            path if path.starts_with("/session/")
                && frame["method"] == "GET"
                && !path.ends_with("/message") =>
            {
                return self.line(&json!({"id": id, "status": 404, "body": {"name": "NotFoundError"}}));
            }
            _ => return,
        };
        self.line(&json!({"id": id, "status": 200, "body": body}));
    }

    fn line(&mut self, message: &Value) {
        let text = message.to_string().into();
        self.feed(InputKind::Line { stream: Stream::Stdout, text });
    }

    fn start(&mut self, spec: TurnSpec) {
        self.feed(InputKind::Started);
        self.line(&json!({"stream": "open"}));
        self.feed(InputKind::Prompt { run: RunId(1), spec: Box::new(spec) });
    }

    /// Plays lines of a recording until its end, or until `stop` returns whether to end.
    fn play(&mut self, lines: &[Value]) {
        for line in lines {
            if let Some(reply) = line.get("reply") {
                let id = self.prompt.take().expect("the prompt was sent");
                self.line(&json!({"id": id, "status": reply["status"], "body": reply["body"]}));
            } else {
                self.line(line);
            }
        }
    }

    fn outcome(&self) -> &Outcome {
        self.done.as_deref().expect("the run has ended")
    }

    fn paths(&self) -> Vec<String> {
        let path = |frame: &Value| {
            let path = frame["path"].as_str().unwrap().split('?').next().unwrap().to_owned();
            format!("{} {path}", frame["method"].as_str().unwrap())
        };
        self.frames.iter().map(path).collect()
    }
}

fn spec() -> TurnSpec {
    let mut spec = TurnSpec { prompt: "do it".into(), collect_changes: true, ..TurnSpec::default() };
    spec.info.cwd = "/srv/my ws".into();
    spec
}

/// Returns the session and the lines of a case.
fn case(name: &str) -> (String, Vec<Value>) {
    let mut lines = RECORDED.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let first = lines.by_ref().find(|line| line["case"] == name).expect("a recorded case");
    let rest = lines.take_while(|line| line.get("case").is_none()).collect();
    (first["session"].as_str().unwrap().to_owned(), rest)
}

fn played(name: &str, allows: fn(&PermissionRequest) -> bool) -> Stage {
    let (session, lines) = case(name);
    let mut stage = Stage::new(&session);
    stage.allows = allows;
    stage.start(spec());
    stage.play(&lines);
    stage
}

fn kinds(stage: &Stage) -> Vec<&'static str> {
    let shown = stage.events.iter().map(|record| record.event.type_word());
    shown.filter(|word| !matches!(*word, "usage" | "warning")).collect()
}

#[test]
fn cost_of_zero_is_unknown_unless_no_tokens_were_used() {
    let (session, mut lines) = case("think");
    let mut cost = |tokens: Option<Value>| {
        let parts = lines.iter_mut().filter_map(|line| line.pointer_mut("/event/payload/properties/part"));
        for part in parts.filter(|part| part["type"] == "step-finish") {
            part["cost"] = json!(0);
            part["tokens"] = tokens.clone().unwrap_or_else(|| part["tokens"].clone());
        }
        let mut stage = Stage::new(&session);
        stage.start(spec());
        stage.play(&lines);
        let outcome = stage.outcome();
        assert_eq!(outcome.verdict, Verdict::Done, "{outcome:?}");
        (outcome.cost_usd, outcome.cost_source)
    };
    assert_eq!(cost(None), (None, None), "OpenCode reports 0 for a model without a price");
    let none = json!({"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}});
    assert_eq!(cost(Some(none)), (Some(0.0), Some(crate::CostSource::Prices)));
}

#[test]
fn text_and_thoughts_are_reported_once_with_exact_usage() {
    let stage = played("think", |_| true);
    let outcome = stage.outcome();
    assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Done, "The answer"), "{outcome:?}");
    assert_eq!(kinds(&stage), ["started", "thinking", "text", "text"]);
    let tokens = outcome.usage.tokens;
    assert_eq!(
        (tokens.input, tokens.output, tokens.thoughts, tokens.cached),
        (Some(100), Some(25), Some(5), Some(20))
    );
    assert_eq!((tokens.total, outcome.usage.requests), (Some(130), Some(1)));
    assert_eq!(outcome.cost_usd, Some(0.00014));
    assert_eq!(outcome.usage.context.map(|context| (context.used, context.size)), Some((130, Some(8000))));
    assert_eq!(outcome.model.as_deref(), Some("scripted/scripted-model"));
    let message = format!("POST /session/{}/message", stage.session);
    assert_eq!(stage.paths(), ["POST /session", "GET /config/providers", &message]);
    assert_eq!(stage.frames[0]["body"], json!({"title": "do it"}), "a session with a title costs no request");
    assert!(stage.frames[2]["path"].as_str().unwrap().ends_with("?directory=%2Fsrv%2Fmy%20ws"));
    assert_eq!(outcome.stop_reason.as_deref(), Some("end_turn"));
}

#[test]
fn a_written_file_is_asked_about_announced_and_closed_once() {
    let stage = played("write", |_| true);
    assert_eq!(stage.outcome().verdict, Verdict::Done);
    assert_eq!(
        kinds(&stage),
        ["started", "tool_use", "permission", "tool_result", "text", "text", "file_change"]
    );
    let ask = &stage.asked[0];
    assert_eq!((&*ask.tool, &*ask.native_tool, &*ask.paths[0]), ("Write", "write", "/srv/ws/a.txt"));
    assert!(
        stage
            .events
            .iter()
            .any(|record| matches!(&record.event, Event::ToolResult(result) if result.diffs.len() == 1))
    );
    let replies: Vec<&Value> =
        stage.frames.iter().filter(|frame| frame["path"].as_str().unwrap().contains("/reply")).collect();
    assert_eq!(replies[0]["body"], json!({"reply": "once"}));
    assert_eq!(stage.outcome().usage.tokens.total, Some(260), "two requests to the model");
}

#[test]
fn a_command_streams_its_output_and_fails_by_its_exit_code() {
    let stage = played("bash", |_| true);
    assert_eq!(stage.asked[0].command.as_deref(), Some("echo one; sleep 0.3; echo two; exit 3"));
    let result = stage.events.iter().find_map(|record| match &record.event {
        Event::ToolResult(result) => Some((result.status, result.content.clone())),
        _ => None,
    });
    assert_eq!(result, Some((ToolStatus::Error, Some("one\ntwo\n".into()))));
    let pieces: Vec<&str> = stage
        .events
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolOutput { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    assert_eq!(pieces.concat(), "one\ntwo\n");
}

#[test]
fn a_denied_tool_lets_the_model_answer() {
    let stage = played("bash-denied", |_| false);
    let outcome = stage.outcome();
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{outcome:?}");
    assert_eq!((&*outcome.denied[0].tool, &*outcome.denied[0].reason), ("Bash", "mode"));
    let reply = stage.frames.iter().find(|frame| frame["path"].as_str().unwrap().contains("/reply")).unwrap();
    assert_eq!(reply["body"]["reply"], "reject");
    assert!(!reply["body"]["message"].as_str().unwrap().is_empty(), "without a message, the turn ends");
}

#[test]
fn a_rejection_waits_for_the_other_requests_of_its_session() {
    // OpenCode rejects all open requests of a session together.
    let (session, lines) = case("two");
    let mut stage = Stage::new(&session);
    stage.allows = |ask| ask.command.as_deref() != Some("echo a");
    stage.start(spec());
    let asked: Vec<usize> =
        (0..lines.len()).filter(|at| lines[*at]["event"]["payload"]["type"] == "permission.asked").collect();
    assert_eq!(asked.len(), 3);
    stage.play(&lines[..=asked[2] + 1]);
    let replies: Vec<&Value> = stage
        .frames
        .iter()
        .filter(|frame| frame["path"].as_str().unwrap().contains("/reply"))
        .map(|frame| &frame["body"]["reply"])
        .collect();
    assert_eq!(replies.iter().filter(|reply| **reply == "reject").count(), 1, "{replies:?}");
    assert_eq!(stage.asked.len(), 3);
}

#[test]
fn a_write_outside_the_workspace_names_its_path() {
    let stage = played("outside", |ask| !ask.paths.contains(&"/srv/outside.txt".to_owned()));
    assert_eq!(stage.outcome().verdict, Verdict::DoneWithDenials);
    assert_eq!(stage.asked[0].tool, "Write");
}

#[test]
fn calls_and_tokens_of_a_sub_agent_belong_to_the_run() {
    let stage = played("task", |_| true);
    let outcome = stage.outcome();
    assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Done, "Hello from the model"));
    let calls: Vec<(&str, Option<&str>)> = stage
        .events
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolUse(tool) => Some((&*tool.name, tool.parent_tool_use_id.as_deref())),
            _ => None,
        })
        .collect();
    assert_eq!(calls, [("Task", None), ("Bash", Some("call_task_0"))]);
    assert_eq!(outcome.usage.requests, Some(4), "two of the run and two of its sub-agent");
    assert_eq!(outcome.usage.tokens.total, Some(520));
}

#[test]
fn a_limit_on_turns_acts_before_the_next_request() {
    let (session, lines) = case("write");
    let mut stage = Stage::new(&session);
    let mut limited = spec();
    limited.limits.max_turns = Some(1);
    stage.start(limited);
    let abort = format!("POST /session/{session}/abort");
    let is_end = |line: &&Value| line["event"]["payload"]["properties"]["part"]["type"] == "step-finish";
    let end = lines.iter().position(|line| is_end(&line)).unwrap();
    stage.play(&lines[..end]);
    assert!(!stage.paths().contains(&abort));
    stage.play(&lines[end..=end]);
    assert!(stage.paths().contains(&abort), "the first answer is complete, and a second one would follow");
    stage.play(&lines[end + 1..]);
    let kind = stage.outcome().error.as_ref().map(|error| error.kind);
    assert_eq!((stage.outcome().verdict, kind), (Verdict::LimitReached, Some(FailureKind::MaxTurns)));
    // The last answer reaches a limit without exceeding it.
    let mut stage = Stage::new(&session);
    let mut limited = spec();
    limited.limits.max_turns = Some(2);
    stage.start(limited);
    stage.play(&lines);
    assert_eq!(stage.outcome().verdict, Verdict::Done);
}

#[test]
fn an_effort_is_a_variant_that_the_model_must_have() {
    let with_effort = |effort: &str| {
        let mut stage = Stage::new("ses_1");
        let mut spec = spec();
        spec.model = Some(crate::RequestedModel::new("scripted/scripted-model", true));
        spec.meta = Some(json!({ "variant": effort }).to_string());
        stage.start(spec);
        stage
    };
    let stage = with_effort("high");
    assert_eq!(stage.frames.last().unwrap()["body"]["variant"], "high");
    let stage = with_effort("enormous");
    let error = stage.outcome().error.as_ref().unwrap();
    assert_eq!(error.kind, FailureKind::Input);
    assert!(error.message.ends_with("it has: high, low"), "{}", error.message);
    assert!(!stage.paths().iter().any(|path| path.ends_with("/message")), "nothing was prompted");
}

#[test]
fn a_call_of_an_unknown_tool_is_an_error() {
    let stage = played("nosuch", |_| true);
    let failed = |record: &&Record| matches!(&record.event, Event::ToolResult(result) if result.status == ToolStatus::Error);
    assert!(stage.events.iter().find(failed).is_some(), "{:?}", stage.events);
}

#[test]
fn the_structured_answer_is_the_value() {
    let stage = played("schema", |_| true);
    let outcome = stage.outcome();
    assert_eq!(outcome.verdict, Verdict::Done);
    assert_eq!(outcome.output.as_ref().map(|value| value.get()), Some(r#"{"age":36,"name":"Ada"}"#));
}

#[test]
fn errors_of_the_service_and_truncated_answers_are_failures() {
    for (name, verdict, kind) in [
        ("cut", Verdict::Failed, FailureKind::ApiError),
        ("cutempty", Verdict::Empty, FailureKind::Empty),
        ("401", Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
        ("404", Verdict::Failed, FailureKind::UnknownModel),
        ("400", Verdict::Failed, FailureKind::ContextOverflow),
    ] {
        let stage = played(name, |_| true);
        let outcome = stage.outcome();
        let failure = outcome.error.as_ref().map(|error| error.kind);
        assert_eq!((outcome.verdict, failure), (verdict, Some(kind)), "{name}: {outcome:?}");
    }
}

#[test]
fn a_request_is_retried_twice_with_a_warning_and_then_given_up() {
    let stage = played("429", |_| true);
    let outcome = stage.outcome();
    let retries = outcome.warnings.iter().filter(|notice| notice.code == "retry").count();
    assert_eq!(retries, 2, "{:?}", outcome.warnings);
    assert!(stage.paths().contains(&format!("POST /session/{}/abort", stage.session)));
    assert_eq!(
        (outcome.verdict, outcome.error.as_ref().map(|error| &*error.message)),
        (Verdict::Failed, Some("scripted failure"))
    );
}

#[test]
fn a_dropped_connection_is_a_network_failure() {
    let (session, mut lines) = case("drop");
    for line in &mut lines {
        let status = line.pointer_mut("/event/payload/properties/status/attempt");
        if let Some(attempt) = status.filter(|attempt| **attempt == 2) {
            *attempt = json!(3);
        }
    }
    let mut stage = Stage::new(&session);
    stage.start(spec());
    stage.play(&lines);
    assert_eq!(stage.outcome().error.as_ref().map(|error| error.kind), Some(FailureKind::Network));
}

#[test]
fn a_cancelled_command_ends_the_run_and_is_reported_as_cancelled() {
    let (session, lines) = case("sleep");
    let mut stage = Stage::new(&session);
    stage.start(spec());
    let at = lines.iter().position(|line| line["event"]["payload"]["type"] == "session.error").unwrap();
    stage.play(&lines[..at]);
    assert!(stage.done.is_none());
    stage.feed(InputKind::Cancel { run: RunId(1), signal: Signal::Interrupt });
    assert!(stage.paths().contains(&format!("POST /session/{session}/abort")));
    stage.play(&lines[at..]);
    assert_eq!(stage.outcome().verdict, Verdict::Cancelled);
    let cancelled = |record: &Record| matches!(&record.event, Event::ToolResult(result) if result.status == ToolStatus::Cancelled);
    assert!(stage.events.iter().any(cancelled));
}

#[test]
fn a_broken_stream_is_made_good_by_the_messages() {
    let (session, lines) = case("write");
    let mut stage = Stage::new(&session);
    stage.start(spec());
    let lost = lines
        .iter()
        .position(|line| line["event"]["payload"]["properties"]["part"]["state"]["status"] == "completed")
        .unwrap();
    stage.play(&lines[..lost]);
    stage.line(&json!({"stream": "open"}));
    let read = stage.frames.last().unwrap().clone();
    assert_eq!(
        (&read["method"], stage.paths().last().unwrap()),
        (&json!("GET"), &format!("GET /session/{session}/message"))
    );
    // The messages of the session: an old one, and those of this run as they ended.
    let part = lines[lost]["event"]["payload"]["properties"]["part"].clone();
    let message = json!({"info": {"id": part["messageID"], "role": "assistant", "sessionID": session}, "parts": [part]});
    let old = json!({"info": {"id": "msg_0000", "role": "assistant"}, "parts": [{"id": "p", "type": "text", "messageID": "msg_0000", "text": "OLD"}]});
    stage.line(&json!({"id": read["id"], "status": 200, "body": [old, message]}));
    assert!(kinds(&stage).contains(&"tool_result"), "{:?}", kinds(&stage));
    stage.play(&lines[lines.len() - 1..]);
    let outcome = stage.outcome();
    assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Done, "Hello from the model"));
}

#[test]
fn sessions_are_resumed_by_id_or_as_the_latest_one() {
    for (target, expected) in [
        (
            "latest",
            vec![
                "GET /session",
                "GET /session/ses_1",
                "GET /config/providers",
                "POST /session/ses_1/message",
            ],
        ),
        ("ses_1", vec!["GET /session/ses_1", "GET /config/providers", "POST /session/ses_1/message"]),
    ] {
        let mut stage = Stage::new("ses_1");
        stage.start(TurnSpec { session: SessionTarget::Load(target.into()), ..spec() });
        assert_eq!(stage.paths(), expected);
    }
    let mut stage = Stage::new("ses_1");
    stage.start(TurnSpec { session: SessionTarget::Load("ses_2".into()), ..spec() });
    assert_eq!(stage.outcome().error.as_ref().unwrap().kind, FailureKind::SessionNotFound);
}

#[test]
fn an_unknown_model_is_an_error_before_the_prompt() {
    for (model, is_known) in
        [("scripted/scripted-model", true), ("scripted-model", true), ("scripted/scripted-modle", false)]
    {
        let mut stage = Stage::new("ses_1");
        stage.start(TurnSpec { model: Some(crate::RequestedModel::new(model, false)), ..spec() });
        assert_eq!(stage.prompt.is_some(), is_known, "{model}");
        if is_known {
            let prompt = stage.frames.last().unwrap();
            assert_eq!(
                prompt["body"]["model"],
                json!({"providerID": "scripted", "modelID": "scripted-model"})
            );
        } else {
            let error = stage.outcome().error.clone().unwrap();
            assert_eq!(error.kind, FailureKind::UnknownModel);
            assert!(error.hint.unwrap().contains("did you mean `scripted/scripted-model`"));
        }
    }
}

#[test]
fn heartbeats_do_not_hide_a_hanging_model() {
    let mut stage = Stage::new("ses_1");
    stage.start(spec());
    for _ in 0..20 {
        stage.at += 10_000;
        stage.line(&json!({"event": {"payload": {"type": "server.heartbeat", "properties": {}}}}));
    }
    let abort = "POST /session/ses_1/abort".to_owned();
    assert!(stage.paths().contains(&abort), "the run is idle for 200 s: {:?}", stage.paths());
}

#[test]
fn damaged_messages_are_ignored() {
    let mut stage = Stage::new("ses_1");
    stage.start(spec());
    for text in [
        "",
        "{",
        "[]",
        "null",
        "{\"event\":7}",
        "{\"event\":{\"payload\":{}}}",
        "{\"id\":\"x\"}",
        "{\"id\":99,\"status\":200}",
        r#"{"event":{"payload":{"type":"message.part.updated","properties":{"sessionID":"ses_1","part":[]}}}}"#,
        r#"{"event":{"payload":{"type":"session.status","properties":{"sessionID":"ses_1"}}}}"#,
        r#"{"event":{"payload":{"type":"permission.asked","properties":{"sessionID":"ses_1"}}}}"#,
    ] {
        stage.feed(InputKind::Line { stream: Stream::Stdout, text: text.into() });
    }
    assert!(stage.done.is_none());
    stage.line(&json!({"stream": "closed", "error": "gone"}));
    assert_eq!(stage.outcome().error.as_ref().unwrap().kind, FailureKind::Crashed);
}
