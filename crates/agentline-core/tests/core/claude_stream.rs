//! Claude Code on `stream-json`: real conversations, recorded with a scripted model, and invented ones.

use crate::play::{Player, RUN, spec};
use agentline_core::{
    AgentId, Connection, ConnectionOutput, DialogueConfig, Event, ExitReason, FailureKind, HostRequest,
    HostRequestId, HostResponse, InputKind, McpServer, PermissionDecision, PermissionRequest, RequestedMode,
    RequestedModel, RunId, SessionTarget, SideChannel, Signal, Stream, Surface, Timeouts, Tokens, ToolStatus,
    TurnSpec, Verdict, agents,
};
use serde_json::{Value, json};
use std::path::Path;

const SESSION: &str = "6f1c9a52-0d7e-4c1b-9a55-0a1b2c3d4e5f";

/// A connection to Claude Code, and the position up to which its frames have been read.
struct Claude {
    player: Player,
    seen: usize,
    answered: usize,
}

impl Claude {
    /// Creates a process that has not answered yet.
    fn bare(change: impl FnOnce(&mut DialogueConfig)) -> Self {
        let mut config = DialogueConfig::new(Surface::StreamJson, None);
        config.session_id = Some(SESSION.into());
        change(&mut config);
        let dialogue = agents::find("claude").expect("the agent is listed").dialogue(&config);
        let player = Player::with(Connection::new(dialogue, Timeouts::default()));
        Self { player, seen: 0, answered: 0 }
    }

    /// Creates an initialized process.
    fn ready() -> Self {
        let mut claude = Self::bare(|_| ());
        claude.reply("initialize", &json!({"models": [{"value": "opus", "displayName": "Opus"}]}));
        claude
    }

    /// Creates a process that works on the prompt of the default specification.
    fn working(spec: TurnSpec) -> Self {
        let mut claude = Self::ready();
        claude.player.prompt(spec);
        claude.reply("set_permission_mode", &json!({}));
        assert_eq!(claude.frame()["type"], "user");
        claude.send(&init());
        claude
    }

    fn frames(&mut self) -> Vec<Value> {
        let frames = self.player.out[self.seen..].iter().filter_map(|output| match output {
            ConnectionOutput::Frame(frame) => {
                assert!(frame.ends_with('\n') && frame.matches('\n').count() == 1, "{frame}");
                Some(serde_json::from_str(frame).expect("a frame is JSON"))
            }
            _ => None,
        });
        let frames = frames.collect();
        self.seen = self.player.out.len();
        frames
    }

    fn frame(&mut self) -> Value {
        let mut frames = self.frames();
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames.remove(0)
    }

    /// Expects this control request, answers it, and returns it.
    fn reply(&mut self, subtype: &str, body: &Value) -> Value {
        let frame = self.frame();
        assert_eq!(frame["request"]["subtype"], subtype, "{frame}");
        let response = json!({"subtype": "success", "request_id": frame["request_id"], "response": body});
        self.send(&json!({"type": "control_response", "response": response}));
        frame["request"].clone()
    }

    /// Expects this control request, and answers it with an error.
    fn refuse(&mut self, subtype: &str, error: &str) {
        let frame = self.frame();
        assert_eq!(frame["request"]["subtype"], subtype, "{frame}");
        let response = json!({"subtype": "error", "request_id": frame["request_id"], "error": error});
        self.send(&json!({"type": "control_response", "response": response}));
    }

    fn send(&mut self, message: &Value) {
        self.player.stdout(&message.to_string());
    }

    /// Returns the permission requests so far.
    fn asked(&self) -> Vec<(HostRequestId, PermissionRequest)> {
        let asked = self.player.out.iter().filter_map(|output| match output {
            ConnectionOutput::Ask(_, id, HostRequest::Permission(ask)) => Some((*id, (**ask).clone())),
            _ => None,
        });
        asked.collect()
    }

    fn decide(&mut self, ask: HostRequestId, ruling: PermissionDecision) {
        self.player.take(InputKind::Answer { ask, answer: HostResponse::PermissionDecided(ruling) });
    }

    /// Replays a recording. Commands with `rm` are denied, everything else is allowed.
    fn replay(name: &str, spec: TurnSpec) -> Self {
        Self::replay_on(
            Self::bare(|config| config.resumes = matches!(spec.session, SessionTarget::Load(_))),
            name,
            spec,
        )
    }

    fn replay_on(mut claude: Self, name: &str, spec: TurnSpec) -> Self {
        claude.player.prompt(spec);
        for line in recorded(name).lines() {
            claude.player.stdout(line);
            claude.answer_all();
        }
        claude.player.check();
        claude
    }

    fn answer_all(&mut self) {
        for (id, ask) in self.asked().split_off(self.answered) {
            self.answered += 1;
            let ruling = match ask.command {
                Some(command) if command.contains("rm ") => {
                    PermissionDecision::deny("rule", "rule").rule("Bash(rm *)")
                }
                _ => PermissionDecision::allow("mode"),
            };
            self.decide(id, ruling);
        }
    }

    fn story(&self) -> Vec<&'static str> {
        let mut story: Vec<&str> = self.player.events().map(Event::type_word).collect();
        story.dedup();
        story
    }

    fn results(&self) -> Vec<(&str, ToolStatus)> {
        let results = self.player.events().filter_map(|event| match event {
            Event::ToolResult(result) => Some((&*result.tool_use_id, result.status)),
            _ => None,
        });
        results.collect()
    }
}

fn recorded(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/claude/stream");
    std::fs::read_to_string(path.join(format!("{name}.ndjson"))).expect("the recording exists")
}

/// Returns a specification like those of the shell.
fn claude_spec() -> TurnSpec {
    let mut spec = spec();
    spec.info.agent = AgentId::from("claude");
    spec.info.surface = Some(Surface::StreamJson);
    spec.mode = Some(RequestedMode::new("default", true));
    spec.session = SessionTarget::Named(SESSION.into());
    spec
}

fn in_session(session: SessionTarget) -> TurnSpec {
    let mut spec = claude_spec();
    spec.session = session;
    spec
}

fn init() -> Value {
    json!({"type": "system", "subtype": "init", "session_id": SESSION, "model": "m", "claude_code_version": "2.1.325"})
}

fn event(event: &Value) -> Value {
    json!({"type": "stream_event", "event": event, "parent_tool_use_id": null})
}

fn call(id: &str, name: &str, input: &Value) -> Value {
    let content = json!([{"type": "tool_use", "id": id, "name": name, "input": input}]);
    json!({"type": "assistant", "message": {"id": "m1", "model": "m", "content": content}, "parent_tool_use_id": null})
}

fn can_use(request: &str, id: &str, name: &str, input: &Value) -> Value {
    let body = json!({"subtype": "can_use_tool", "tool_name": name, "tool_use_id": id, "input": input});
    json!({"type": "control_request", "request_id": request, "request": body})
}

fn result(more: &Value) -> Value {
    let mut line = json!({"type": "result", "subtype": "success", "is_error": false, "result": "", "session_id": SESSION});
    for (key, value) in more.as_object().expect("an object") {
        line[key] = value.clone();
    }
    line
}

#[test]
fn recorded_work_gives_text_tools_denials_usage_and_cost() {
    let claude = Claude::replay("full", claude_spec());
    let outcome = claude.player.outcome();
    assert_eq!((outcome.verdict, &*outcome.text), (Verdict::DoneWithDenials, "All done: hello there."));
    assert_eq!(outcome.model.as_deref(), Some("claude-opus-5-5"));
    assert_eq!(
        (outcome.session_id.as_deref(), outcome.agent_version.as_deref()),
        (Some(SESSION), Some("2.1.325"))
    );
    assert_eq!(claude.story().first(), Some(&"started"));
    assert!(claude.story().contains(&"thinking"));
    let mut results = claude.results();
    results.sort_by_key(|(id, _)| *id);
    let expected = [
        ("toolu_1_2", ToolStatus::Ok),
        ("toolu_2_0", ToolStatus::Denied),
        ("toolu_2_1", ToolStatus::Ok),
        ("toolu_3_0", ToolStatus::Error),
        ("toolu_3_1", ToolStatus::Error),
        ("toolu_3_2", ToolStatus::Error),
    ];
    assert_eq!(results, expected);
    let denied = &outcome.denied[0];
    assert_eq!(
        (&*denied.tool, &*denied.reason, denied.rule.as_deref()),
        ("Bash", "rule", Some("Bash(rm *)"))
    );
    // Four requests with 100 + 20 + 10 tokens and 30 of output each.
    let expected = Tokens {
        input: Some(520),
        output: Some(120),
        cached: Some(80),
        cache_write: Some(40),
        total: Some(640),
        ..Tokens::default()
    };
    assert_eq!(Tokens { cache_write_long: None, thoughts: None, ..outcome.usage.tokens }, expected);
    assert_eq!((outcome.usage.requests, outcome.turns, outcome.tool_calls), (Some(4), 4, 6));
    assert_eq!(outcome.usage.by_model["claude-opus-5-5"].total, Some(640));
    assert!(outcome.cost_usd.is_some_and(|cost| cost > 0.004), "{:?}", outcome.cost_usd);
    assert_eq!(
        outcome.usage.context.map(|context| (context.used, context.size)),
        Some((160, Some(1_000_000)))
    );
    let diffs: Vec<_> = claude
        .player
        .events()
        .filter_map(|event| match event {
            Event::ToolResult(result) => {
                result.diffs.first().map(|diff| (diff.old.clone(), diff.new.clone()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(diffs, [(None, "hello\nworld\n".into()), (Some("world".into()), "there".into())]);
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
}

#[test]
fn errors_of_the_models_service_have_their_verdicts() {
    for (name, verdict, kind) in [
        ("error_401", Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
        ("error_429", Verdict::RateLimited, FailureKind::RateLimited),
        ("error_529", Verdict::RateLimited, FailureKind::RateLimited),
        ("error_500", Verdict::Failed, FailureKind::ApiError),
        ("error_400", Verdict::Failed, FailureKind::ContextOverflow),
        ("error_404", Verdict::Failed, FailureKind::UnknownModel),
        ("error_drop", Verdict::Failed, FailureKind::Network),
        ("error_cut", Verdict::Failed, FailureKind::ApiError),
        ("error_cut_empty", Verdict::Empty, FailureKind::Empty),
        ("error_refusal", Verdict::Empty, FailureKind::Blocked),
    ] {
        let claude = Claude::replay(name, claude_spec());
        let outcome = claude.player.outcome();
        let error = outcome.error.as_ref().expect("an error");
        assert_eq!((outcome.verdict, error.kind), (verdict, kind), "{name}: {error:?}");
        assert!(!error.message.is_empty() && !error.message.starts_with("API Error"), "{name}: {error:?}");
        assert!(!outcome.text.contains("API Error"), "{name}: the error is not an answer");
    }
    let claude = Claude::replay("error_429", claude_spec());
    assert_eq!(claude.player.warnings(), ["rate_limited", "rate_limited"], "its own retries are reported");
    let claude = Claude::replay("error_drop", claude_spec());
    assert_eq!(claude.player.warnings(), ["retry", "retry"]);
}

#[test]
fn structured_output_is_the_value_of_the_run() {
    let claude = Claude::replay("schema", claude_spec());
    let outcome = claude.player.outcome();
    assert_eq!(outcome.verdict, Verdict::Done);
    assert_eq!(outcome.output.as_ref().map(|value| value.get()), Some(r#"{"name":"Ada","age":36}"#));
}

#[test]
fn calls_of_a_sub_agent_name_its_call_and_its_tokens_count() {
    let claude = Claude::replay("agent", claude_spec());
    let outcome = claude.player.outcome();
    assert_eq!((outcome.verdict, &*outcome.text), (Verdict::Done, "The agent found hi."));
    assert_eq!(outcome.usage.tokens.total, Some(640), "four requests, two of them by the sub-agent");
    let parents: Vec<_> = claude
        .player
        .events()
        .filter_map(|event| match event {
            Event::ToolUse(tool) => Some((&*tool.name, tool.parent_tool_use_id.as_deref())),
            _ => None,
        })
        .collect();
    assert_eq!(parents, [("Task", None), ("Read", Some("toolu_1_0"))]);
}

#[test]
fn each_prompt_of_a_session_has_its_own_usage_and_cost() {
    let lines = recorded("two_prompts");
    let end = lines.find("\"type\":\"result\"").expect("a result");
    let end = end + lines[end..].find('\n').expect("a line");
    let mut claude = Claude::bare(|_| ());
    claude.player.prompt(claude_spec());
    lines[..end].lines().for_each(|line| claude.player.stdout(line));
    let first = claude.player.outcome().clone();
    let second = RunId(2);
    claude.player.prompt_as(second, in_session(SessionTarget::Open(SESSION.into())));
    lines[end..].lines().filter(|line| !line.is_empty()).for_each(|line| claude.player.stdout(line));
    let outcome = claude.player.outcome_of(second);
    assert_eq!((&*first.text, &*outcome.text), ("first", "second"));
    assert_eq!((first.usage.tokens.total, outcome.usage.tokens.total), (Some(160), Some(320)));
    let cost = |outcome: &agentline_core::Outcome| outcome.cost_usd.expect("a cost");
    assert!((cost(outcome) / cost(&first) - 2.0).abs() < 0.01, "{} {}", cost(&first), cost(outcome));

    let resumed = Claude::replay("resumed", in_session(SessionTarget::Load(SESSION.into())));
    let outcome = resumed.player.outcome();
    assert_eq!((&*outcome.text, outcome.usage.tokens.total), ("third", Some(160)));
    assert!((cost(outcome) / cost(&first) - 1.0).abs() < 0.01, "the cost of earlier prompts does not count");
}

#[test]
fn limit_in_the_agents_own_settings_is_reported_as_a_limit() {
    let mut spec = claude_spec();
    spec.limits.max_turns = Some(2);
    let claude = Claude::replay("max_turns", spec);
    let outcome = claude.player.outcome();
    assert_eq!((outcome.verdict, outcome.turns), (Verdict::LimitReached, 2));
    assert_eq!(outcome.error.as_ref().map(|error| error.kind), Some(FailureKind::MaxTurns));
}

#[test]
fn unknown_session_is_reported_before_the_handshake() {
    let spec = in_session(SessionTarget::Load(SESSION.into()));
    let mut claude = Claude::replay("resume_unknown", spec);
    claude.player.exit(ExitReason::Code(1));
    let outcome = claude.player.outcome();
    assert_eq!(outcome.error.as_ref().map(|error| error.kind), Some(FailureKind::SessionNotFound));
}

#[test]
fn session_is_configured_before_the_prompt() {
    let mut claude = Claude::bare(|config| {
        config.handshake = Some(r#"{"appendSystemPrompt":"be brief"}"#.into());
        config.model = Some("opus".into());
    });
    let mut spec = claude_spec();
    spec.mode = Some(RequestedMode::new("plan", true));
    spec.model = Some(RequestedModel::new("opus", false));
    let server =
        McpServer::Url { url: "http://127.0.0.1:1".into(), headers: [("a".into(), "b".into())].into() };
    spec.servers = [("host".to_owned(), server)].into();
    spec.hosted = vec!["add".into()];
    claude.player.prompt(spec);
    let request = claude.reply("initialize", &json!({}));
    assert_eq!(request["appendSystemPrompt"], "be brief");
    assert_eq!(claude.reply("set_permission_mode", &json!({}))["mode"], "plan");
    // The process was started with the model, and setting it again would cost a request to the model.
    let servers = claude.reply("mcp_set_servers", &json!({"errors": {}}))["servers"].clone();
    assert_eq!(servers["host"], json!({"type": "http", "url": "http://127.0.0.1:1", "headers": {"a": "b"}}));
    assert_eq!(claude.frames(), Vec::<Value>::new(), "the tools are not listed yet");
    claude.player.line(Stream::Side(RUN, SideChannel::ToolHost), r#"{"listed":["add"]}"#);
    assert_eq!(claude.frame()["message"]["content"][0]["text"], "Do it");

    let mut claude = Claude::ready();
    claude.player.prompt(claude_spec());
    claude.refuse("set_permission_mode", "no");
    assert_eq!(claude.player.outcome().error.as_ref().map(|error| error.kind), Some(FailureKind::Policy));

    let mut claude = Claude::ready();
    let mut spec = claude_spec();
    (spec.mode, spec.model) = (None, Some(RequestedModel::new("nope", false)));
    claude.player.prompt(spec);
    claude.refuse("set_model", "not found");
    assert_eq!(
        claude.player.outcome().error.as_ref().map(|error| error.kind),
        Some(FailureKind::UnknownModel)
    );
}

#[test]
fn process_without_a_prompt_reports_its_session_and_serves_it_once() {
    let mut claude = Claude::ready();
    let mut spec = claude_spec();
    spec.only_open = true;
    claude.player.prompt(spec);
    claude.reply("set_permission_mode", &json!({}));
    let outcome = claude.player.outcome();
    assert_eq!((outcome.error.as_ref(), outcome.session_id.as_deref()), (None, Some(SESSION)));
    let Some(Event::Started(started)) = claude.player.events().next() else { panic!() };
    assert_eq!(started.models[0].id, "opus");
    // The session of a prepared process can be used by any run, with its id or as a new one.
    let second = RunId(2);
    claude.player.prompt_as(second, in_session(SessionTarget::New));
    assert_eq!(claude.frame()["type"], "user");
    claude.send(&result(&json!({"result": "hi"})));
    assert_eq!(claude.player.outcome_of(second).verdict, Verdict::Done);
    let mut spec = in_session(SessionTarget::Open(SESSION.into()));
    spec.servers =
        [("late".to_owned(), McpServer::Url { url: "http://127.0.0.1:1".into(), headers: [].into() })].into();
    let fourth = RunId(4);
    claude.player.prompt_as(fourth, spec);
    assert_eq!(claude.frame()["type"], "user", "an open session keeps its servers");
    claude.send(&result(&json!({"result": "hi"})));
    assert_eq!(claude.player.outcome_of(fourth).warnings[0].code, "mcp_server");
    let third = RunId(3);
    claude.player.prompt_as(third, in_session(SessionTarget::New));
    let error = claude.player.outcome_of(third).error.clone().expect("an error");
    assert_eq!(error.kind, FailureKind::SessionNotFound);
}

#[test]
fn permission_requests_carry_what_the_call_would_do() {
    let mut claude = Claude::working(claude_spec());
    let edit = json!({"file_path": "/ws/a", "old_string": "x", "new_string": "y"});
    claude.send(&call("t1", "Edit", &edit));
    claude.send(&can_use("q1", "t1", "Edit", &edit));
    claude.send(&can_use("q2", "t2", "Bash", &json!({"command": "make"})));
    claude.send(&can_use("q3", "t3", "mcp__web__get", &json!({"path": "/x"})));
    let asked = claude.asked();
    let ask = &asked[0].1;
    assert_eq!((&*ask.tool, &*ask.tool_use_id, &ask.paths[..]), ("Edit", "t1", &["/ws/a".to_owned()][..]));
    assert_eq!((ask.diffs[0].old.as_deref(), &*ask.diffs[0].new), (Some("x"), "y"));
    assert_eq!(asked[1].1.command.as_deref(), Some("make"));
    assert_eq!((asked[2].1.server.as_deref(), asked[2].1.paths.len()), (Some("web"), 0));
    claude.decide(asked[0].0, PermissionDecision::allow("mode"));
    let response = claude.frame()["response"].clone();
    assert_eq!(response["response"], json!({"behavior": "allow", "updatedInput": edit}));
    claude.decide(asked[1].0, PermissionDecision::deny("rule", "rule").rule("Bash(make)"));
    let response = claude.frame()["response"].clone();
    assert_eq!((&response["request_id"], &response["response"]["behavior"]), (&json!("q2"), &json!("deny")));
    assert!(response["response"]["message"].as_str().is_some_and(|text| text.contains("Bash(make)")));
    claude.send(&json!({"type": "control_cancel_request", "request_id": "q3"}));
    assert!(matches!(claude.player.out.last(), Some(ConnectionOutput::Withdraw(id)) if *id == asked[2].0));
    claude
        .send(&json!({"type": "control_request", "request_id": "q4", "request": {"subtype": "mcp_message"}}));
    assert_eq!(claude.frame()["response"]["subtype"], "error", "every request is answered");
}

#[test]
fn cancellation_interrupts_the_turn_and_leaves_the_process_usable() {
    let mut claude = Claude::working(claude_spec());
    claude.send(&call("t1", "Bash", &json!({"command": "make"})));
    claude.send(&can_use("q1", "t1", "Bash", &json!({"command": "make"})));
    claude.player.take(InputKind::Cancel { run: RUN, signal: Signal::Interrupt });
    let frames = claude.frames();
    assert_eq!(frames[0]["request"]["subtype"], "interrupt");
    assert_eq!(frames[1]["response"]["response"]["behavior"], "deny");
    claude.send(&can_use("q2", "t2", "Bash", &json!({})));
    assert_eq!(claude.frame()["response"]["response"]["behavior"], "deny");
    claude.send(&result(
        &json!({"subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_tools"}),
    ));
    let outcome = claude.player.outcome();
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(claude.results(), [("t1", ToolStatus::Cancelled)]);
    assert!(claude.player.conn.vacant());
    claude.player.check();
}

#[test]
fn exceeded_limit_stops_the_run_before_the_next_request() {
    let mut spec = claude_spec();
    spec.limits.max_tokens = Some(100);
    let mut claude = Claude::working(spec);
    let usage = json!({"input_tokens": 90, "output_tokens": 1});
    claude.send(&event(
        &json!({"type": "message_start", "message": {"id": "m1", "model": "m", "usage": usage}}),
    ));
    claude.send(&call("t1", "Read", &json!({"file_path": "a"})));
    assert_eq!(claude.frames(), Vec::<Value>::new());
    claude.send(&event(&json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 20}})));
    assert_eq!(claude.frame()["request"]["subtype"], "interrupt");
    // Claude Code waits for this answer before its next request.
    let hook = json!({"subtype": "hook_callback", "callback_id": "limits", "input": {}});
    claude.send(&json!({"type": "control_request", "request_id": "h1", "request": hook}));
    assert_eq!(claude.frame()["response"]["response"]["continue"], false);
    claude.send(&result(&json!({"subtype": "error_during_execution", "is_error": true})));
    let outcome = claude.player.outcome();
    assert_eq!(outcome.error.as_ref().map(|error| error.kind), Some(FailureKind::MaxTokens));
    assert_eq!(outcome.usage.tokens.total, Some(110));
}

#[test]
fn text_that_the_model_sends_twice_is_shown_once_in_the_outcome() {
    let mut claude = Claude::working(claude_spec());
    for _ in 0..2 {
        claude.send(&event(&json!({"type": "message_start", "message": {"id": "m1", "model": "m"}})));
        let delta = json!({"type": "text_delta", "text": "half"});
        claude.send(&event(&json!({"type": "content_block_delta", "delta": delta})));
    }
    claude.send(&result(&json!({"result": "half"})));
    assert_eq!(claude.player.outcome().text, "half");
    assert_eq!(claude.player.warnings(), ["text_repeated"]);
}

#[test]
fn answer_of_a_command_of_claude_code_itself_is_in_the_result_only() {
    let mut claude = Claude::working(claude_spec());
    claude.send(&result(&json!({"result": "## Context Usage"})));
    assert_eq!(claude.player.outcome().text, "## Context Usage");
}

#[test]
fn refusal_without_a_question_names_its_reason() {
    let mut claude = Claude::working(claude_spec());
    claude.send(&call("t1", "Write", &json!({"file_path": "a", "content": "x"})));
    claude.send(&json!({"type": "system", "subtype": "permission_denied", "tool_use_id": "t1", "decision_reason_type": "rule"}));
    let block = json!({"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": "no"});
    claude.send(&json!({"type": "user", "message": {"role": "user", "content": [block]}}));
    claude.send(&result(&json!({"result": "could not"})));
    let outcome = claude.player.outcome();
    assert_eq!((outcome.verdict, &*outcome.denied[0].reason), (Verdict::DoneWithDenials, "rule"));
}

#[test]
fn damaged_and_unknown_lines_are_reported_and_do_not_end_the_run() {
    let mut claude = Claude::working(claude_spec());
    for line in [
        "null",
        "{}",
        "not json",
        r#"{"type":"assistant"}"#,
        r#"{"type":"user","message":{"content":"text"}}"#,
        r#"{"type":"stream_event"}"#,
        r#"{"type":"control_response"}"#,
        r#"{"type":"later","x":1}"#,
        r#"{"type":"system","subtype":"hook_started","hook_name":"Stop"}"#,
        r#"{"type":"keep_alive"}"#,
    ] {
        claude.player.stdout(line);
    }
    claude.send(&result(&json!({"result": "hi"})));
    assert_eq!((claude.player.outcome().verdict, &*claude.player.outcome().text), (Verdict::Done, "hi"));
    let passed = claude.player.events().filter(|event| matches!(event, Event::Agent { .. })).count();
    assert!(passed >= 2, "{:?}", claude.story());
    claude.player.check();
}

#[test]
fn every_recording_survives_the_end_of_the_process_after_any_line() {
    for name in ["full", "error_429", "schema"] {
        let lines: Vec<String> = recorded(name).lines().map(str::to_owned).collect();
        for at in 0..lines.len() {
            let mut claude = Claude::bare(|_| ());
            claude.player.prompt(claude_spec());
            for line in &lines[..at] {
                claude.player.stdout(line);
                claude.answer_all();
            }
            claude.player.exit(ExitReason::Code(1));
            assert!(claude.player.is_over(), "{name} {at}");
            assert!(!matches!(claude.player.outcome().verdict, Verdict::Done), "{name} {at}");
            claude.player.check();
        }
    }
}
