//! Faults in the sequence of events: out of order, duplicated, missing, or false.

use std::fs;
use std::io;

use serde_json::{Value, json};

use super::agent::{FILE, FakeAgent};

pub(super) fn no_init(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn result_before_init(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    let code = agent.succeed()?;
    agent.init()?;
    agent.send_text("All done. 4")?;
    Ok(code)
}

pub(super) fn two_inits(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.event(
        "init",
        &[("session_id", json!("00000000-0000-4000-8000-000000000000")), ("model", json!("other"))],
    )?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn result_twice(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    agent.succeed()?;
    agent.succeed()
}

pub(super) fn success_then_error(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    agent.succeed()?;
    agent.fail("unknown", "something went wrong after all", 1)
}

pub(super) fn writes_after_result(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    let code = agent.succeed()?;
    agent.send_text("One more thing.")?;
    agent.write_file("late_1")?;
    agent.raw("Goodbye.\n")?;
    Ok(code)
}

pub(super) fn result_only(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.succeed()
}

pub(super) fn empty_answer(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.succeed()
}

pub(super) fn retried_text(agent: &mut FakeAgent) -> io::Result<u8> {
    // As the real one does when a stream breaks and is retried: there is no sign that the first text is invalid.
    agent.begin()?;
    for _ in 0..3 {
        agent.send_text("The answer ")?;
    }
    agent.send_text("The answer is 4.")?;
    agent.succeed()
}

pub(super) fn echo_differs(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.init()?;
    agent.event("message", &[("role", json!("user")), ("content", json!("quite another prompt"))])?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn other_model(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.model = "gemini-0.1-tiny".to_owned();
    agent.begin()?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn result_without_use(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_done("never_used_1")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn result_before_use(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_done("t1")?;
    agent.tool_use("read_file", "t1", json!({"file_path": FILE.0}))?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn tool_unanswered(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("write_file", "t1", json!({"file_path": FILE.0, "content": FILE.1}))?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn same_tool_id(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("read_file", "t1", json!({"file_path": "a.txt"}))?;
    agent.tool_use("write_file", "t1", json!({"file_path": FILE.0, "content": FILE.1}))?;
    fs::write(FILE.0, FILE.1)?;
    agent.tool_done("t1")?;
    agent.tool_failed("t1", "file_not_found", "File not found: a.txt")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn tool_result_twice(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.write_file("t1")?;
    agent.tool_failed("t1", "unknown", "the same call once more, and now it failed")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn unknown_tool(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("teleport", "t1", json!({"to": "the moon"}))?;
    agent.tool_failed("t1", "tool_not_registered", "Tool \"teleport\" not found.")?;
    agent.tool_use("", "t2", Value::Null)?;
    agent.tool_done("t2")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn odd_tool_params(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let odd = [
        json!({"file_path": 7}),
        json!({"file_path": ""}),
        json!({"path": "a"}),
        json!([1]),
        json!("a.txt"),
        json!({"file_path": "../../outside.txt", "content": null}),
    ];
    for (number, params) in odd.into_iter().enumerate() {
        let id = format!("t{number}");
        agent.tool_use("write_file", &id, params)?;
        agent.tool_failed(&id, "invalid_tool_params", "params must have required property 'content'")?;
    }
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn success_lie(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("write_file", "t1", json!({"file_path": FILE.0, "content": FILE.1}))?;
    agent.tool_done("t1")?;
    agent.send_text("I wrote hello.txt.")?;
    agent.succeed()
}

pub(super) fn content_lie(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("write_file", "t1", json!({"file_path": FILE.0, "content": FILE.1}))?;
    fs::write(FILE.0, "something else\n")?;
    agent.tool_done("t1")?;
    agent.send_text("I wrote hello.txt.")?;
    agent.succeed()
}

pub(super) fn silent_write(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    fs::write(FILE.0, FILE.1)?;
    agent.send_text("I only looked around.")?;
    agent.succeed()
}

pub(super) fn failed_but_wrote(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("write_file", "t1", json!({"file_path": FILE.0, "content": FILE.1}))?;
    fs::write(FILE.0, FILE.1)?;
    agent.tool_failed("t1", "unknown", "could not write")?;
    agent.send_text("It did not work.")?;
    agent.succeed()
}

pub(super) fn writes_file_after_result(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    let code = agent.succeed()?;
    fs::write("late.txt", "written after the result\n")?;
    Ok(code)
}

pub(super) fn error_events(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for severity in ["warning", "error", "fatal", "info", ""] {
        let message = format!("an event of severity `{severity}`");
        agent.event("error", &[("severity", json!(severity)), ("message", json!(message))])?;
    }
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn loop_warning(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for number in 0..5 {
        let id = format!("t{number}");
        agent.tool_use("read_file", &id, json!({"file_path": FILE.0}))?;
        agent.tool_failed(&id, "file_not_found", "File not found.")?;
    }
    let message = json!("Loop detected, stopping execution");
    agent.event("error", &[("severity", json!("warning")), ("message", message)])?;
    agent.succeed()
}

pub(super) fn many_tools(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for number in 0..agent.size("count", 2_000) {
        let id = format!("t{number}");
        agent.tool_use("read_file", &id, json!({"file_path": format!("{number}.txt")}))?;
        agent.tool_done(&id)?;
    }
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn interleaved_tools(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for id in ["a", "b", "c"] {
        agent.tool_use("read_file", id, json!({"file_path": format!("{id}.txt")}))?;
    }
    agent.send_text("text while tools run ")?;
    for id in ["c", "a", "b"] {
        agent.tool_done(id)?;
    }
    agent.send_text("All done. 4")?;
    agent.succeed()
}
