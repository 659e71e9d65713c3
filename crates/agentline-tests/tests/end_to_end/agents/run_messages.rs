//! Compares one run of the real Gemini CLI as reported by each surface and by its session. A table in the documentation
//! lists what each cannot report, and is checked here.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline::{
    Event, Message, Outcome, PermissionMode, RunRequest, Surface,
    messages::{Completer, MessageSource, RunMessages},
};
use agentline_core::{Block, Content, Original, Role, Transcript};
use agentline_mock::gemini::{GeminiStep, GeminiTokens, Script};
use agentline_tests::{TestStage, needs_real_gemini, shown, tapes::replay};
use serde_json::json;
use std::{fs, path::Path};

const SURFACES: [Surface; 3] = [Surface::Json, Surface::StreamJson, Surface::Acp];

fn script() -> Script {
    let tokens = |cached| GeminiTokens { cached, ..GeminiTokens::default() };
    let write = json!({"file_path": "hello.txt", "content": "hello\nworld\n"});
    let shell = json!({"command": "cat hello.txt; exit 3", "description": "Shows the file"});
    Script::new([
        GeminiStep::thought("**Plan**\nwrite it")
            .and_text("I write.")
            .and_call("write_file", write)
            .usage(tokens(0)),
        GeminiStep::call("run_shell_command", shell).usage(tokens(40)),
        GeminiStep::text("All done.").usage(tokens(40)),
    ])
}

/// A run as reported live and as saved.
pub(crate) struct RunWithMessages {
    live: Vec<Message<'static>>,
    pub(crate) completed: RunMessages,
    pub(crate) outcome: Outcome,
}

/// Runs to the end, and reads the messages of the run and of its session.
pub(crate) fn run_and_read(stage: &TestStage, request: RunRequest) -> RunWithMessages {
    let agentline = stage.agentline();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut completer = Completer::new(&agentline, &request.prompt);
        let mut run = agentline.run(request).await.unwrap();
        completer.started(&run);
        let (mut transcript, mut live) = (completer.transcript(), completer.transcript());
        let mut last = None;
        while let Some(record) = run.next().await {
            transcript.take(&record);
            live.take(&record);
            if let Event::Outcome { outcome } = record.event {
                last = Some(*outcome);
            }
        }
        let outcome = last.unwrap();
        RunWithMessages {
            live: live.into_messages(),
            completed: completer.complete(transcript, &outcome),
            outcome,
        }
    })
}

fn blocks<'a>(messages: &'a [Message<'static>]) -> impl Iterator<Item = &'a Block<'static>> {
    messages.iter().flat_map(Message::blocks)
}

/// Returns the messages in order, without thinking and arguments, which not every surface reports.
pub(crate) fn actions(messages: &[Message<'static>]) -> Vec<String> {
    let result = blocks(messages).filter_map(|block| match block {
        Block::Text { text } => Some(format!("says {text}")),
        Block::ToolUse { name, .. } => Some(format!("calls {name}")),
        Block::ToolResult { is_error: true, .. } => Some("got an error".into()),
        Block::ToolResult { .. } => Some("got it".into()),
        _ => None,
    });
    result.collect()
}

/// Returns the actions without results, whose status not every surface reports.
fn calls_and_text(messages: &[Message<'static>]) -> Vec<String> {
    actions(messages).into_iter().filter(|action| !action.starts_with("got")).collect()
}

/// Returns whether the arguments of a tool contain this.
fn has_call(messages: &[Message<'static>], tool: &str, part: &str) -> bool {
    blocks(messages).any(|block| match block {
        Block::ToolUse { name, input, .. } => name == tool && input.get().contains(part),
        _ => false,
    })
}

fn result_of(messages: &[Message<'static>], tool: &str) -> Option<String> {
    let id = blocks(messages).find_map(|block| match block {
        Block::ToolUse { id, name, .. } if name == tool => Some(id.clone()),
        _ => None,
    })?;
    blocks(messages).find_map(|block| match block {
        Block::ToolResult { tool_use_id, content: Content::Text(text), .. } if *tool_use_id == id => {
            Some(text.to_string())
        }
        _ => None,
    })
}

type Fact = (&'static str, fn(&[Message<'static>]) -> bool);

/// What messages can contain, and how to detect it.
const FACTS: [Fact; 12] = [
    ("the text of every turn", |m| {
        ["says I write.", "says All done."].iter().all(|s| actions(m).iter().any(|d| d == s))
    }),
    ("all arguments of a call", |m| has_call(m, "Write", "world")),
    ("the shell command", |m| has_call(m, "Bash", "cat hello.txt")),
    ("what a command printed", |m| result_of(m, "Bash").is_some_and(|text| text.contains("world"))),
    ("the result that the model received", |m| {
        result_of(m, "Write").is_some_and(|text| text.contains("Successfully"))
    }),
    ("thinking", |m| {
        blocks(m).any(|b| matches!(b, Block::Thinking { thinking, .. } if thinking.contains("write it")))
    }),
    ("changes to files", |m| blocks(m).any(|b| matches!(b, Block::ToolResult { diff: Some(_), .. }))),
    ("tokens of each message", |m| {
        m.iter().filter(|m| m.role == Role::Assistant).any(|m| m.usage.is_some_and(|u| u.input == Some(100)))
    }),
    ("cached tokens of each message", |m| m.iter().any(|m| m.usage.is_some_and(|u| u.cached == Some(40)))),
    ("why the last turn ended", |m| m.last().is_some_and(|m| m.stop_reason.is_some())),
    ("times", |m| m.iter().all(|m| m.timestamp.is_some())),
    ("the agent's own record", |m| {
        m.iter().any(|m| matches!(m.original, Some(Original::Record(_) | Original::Records(_))))
    }),
];

#[test]
fn messages_are_completed_from_the_session() {
    needs_real_gemini!();
    let result = SURFACES.map(|surface| {
        let stage = TestStage::new(script());
        let result = run_and_read(&stage, stage.request("Write it").surface(surface));
        assert_eq!(
            result.completed.source,
            MessageSource::Session,
            "{surface}: {:?}",
            result.completed.warning
        );
        assert!(result.completed.warning.is_none());
        let saved = &result.completed.messages;
        assert_eq!(calls_and_text(&result.live), calls_and_text(saved), "{surface}: live and saved");
        // Only the session says that the command failed, and what it printed is all that is shown.
        assert!(actions(saved).contains(&"got an error".to_owned()), "{surface}: {saved:?}");
        let printed = result_of(saved, "Bash").unwrap_or_default();
        let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["hello", "world", "Exit Code: 3"], "{surface}");
        assert!(saved.iter().all(|message| message.original.is_some()), "{surface}: {saved:?}");
        result
    });
    for other in &result[1..] {
        assert_eq!(
            actions(&result[0].completed.messages),
            actions(&other.completed.messages),
            "{:?}",
            other.outcome.surface
        );
    }
    // The tokens of the messages equal those of the run.
    for result in &result {
        let sum = result.completed.messages.iter().filter_map(|m| m.usage?.input).sum::<u64>();
        assert_eq!(Some(sum), result.outcome.usage.tokens.input, "{}", shown(&result.outcome));
    }
    let mut table =
        String::from("| | `json` | `stream-json` | `acp` | completed, on any |\n|---|---|---|---|---|\n");
    for (name, knows) in FACTS {
        let live = result.each_ref().map(|result| knows(&result.live));
        // Only a surface can report why a turn ended.
        let completed = result.iter().all(|result| knows(&result.completed.messages));
        let word = |knows| if knows { "yes" } else { "–" };
        let [json, stream, acp] = live.map(word);
        let completed = match (completed, live[2]) {
            (false, true) => "over `acp`",
            (known, _) => word(known),
        };
        table += &format!("| {name} | {json} | {stream} | {acp} | {completed} |\n");
    }
    in_the_documentation(&table);
}

/// To update the table, run `UPDATE_DOCS=1 cargo test -p agentline-tests --test end_to_end agents::run_messages`.
fn in_the_documentation(table: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/messages.md");
    let text = fs::read_to_string(&page).unwrap().replace("\r\n", "\n");
    let (before, rest) = text.split_once("<!-- surfaces -->\n").unwrap();
    let (written, after) = rest.split_once("<!-- end of surfaces -->").unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, format!("{before}<!-- surfaces -->\n{table}<!-- end of surfaces -->{after}"))
            .unwrap();
    } else {
        assert_eq!(written, table, "docs/messages.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

/// The messages are completed from the session, which does not depend on the surface. The tapes show the other surfaces.
#[test]
fn denied_call_is_in_the_messages() {
    needs_real_gemini!();
    let write = json!({"file_path": "hello.txt", "content": "hello\n"});
    let stage = TestStage::new(Script::new([
        GeminiStep::call("write_file", write.clone()),
        GeminiStep::text("I may not."),
    ]));
    let request = stage.request("Write it").surface(Surface::Acp).permission_mode(PermissionMode::Default);
    let run = run_and_read(&stage, request);
    let on_tape = |name: &str| {
        let mut transcript = Transcript::started_at(0);
        replay(name).run.records.iter().for_each(|record| transcript.take(record));
        transcript.into_messages()
    };
    let tapes = ["unavailable_tools.json", "plan_mode.stream-json"].map(on_tape);
    for messages in [&run.completed.messages, &tapes[0], &tapes[1]] {
        let calls = actions(messages);
        assert!(calls.iter().any(|action| action.starts_with("calls Write")), "{calls:?} {messages:?}");
        assert!(calls.contains(&"got an error".to_owned()), "{calls:?}");
    }
}
