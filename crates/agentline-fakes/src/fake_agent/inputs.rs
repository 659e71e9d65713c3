//! Faults in the standard streams: an unread prompt, streams closed early, a flood on standard error.

use std::fs;
use std::io::{self, Read};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::agent::{FILE, FakeAgent};
use crate::os;

pub(super) fn closes_stdin(agent: &mut FakeAgent) -> io::Result<u8> {
    os::close_standard(0)?;
    agent.init()?;
    agent.send_text("All done. 4")?;
    // Gives the writer of a large prompt time to encounter the closed pipe.
    thread::sleep(Duration::from_millis(200));
    agent.succeed()
}

pub(super) fn never_reads_stdin(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.init()?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn hang_without_reading(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.init()?;
    agent.hang();
    Ok(0)
}

pub(super) fn reads_some_stdin(agent: &mut FakeAgent) -> io::Result<u8> {
    let mut some = vec![0; agent.size("bytes", 10)];
    let count = io::stdin().read(&mut some)?;
    agent.prompt = String::from_utf8_lossy(&some[..count]).into_owned();
    agent.init()?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn reads_stdin_slowly(agent: &mut FakeAgent) -> io::Result<u8> {
    let pause = Duration::from_millis(agent.number("interval_ms", 20));
    let mut piece = [0; 4096];
    let mut stdin = io::stdin().lock();
    while stdin.read(&mut piece)? > 0 {
        thread::sleep(pause);
    }
    drop(stdin);
    agent.init()?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn closes_stdout(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("I go on in silence. ")?;
    os::close_standard(1)?;
    thread::sleep(Duration::from_millis(agent.number("after_ms", 1_000)));
    fs::write(FILE.0, FILE.1)?;
    Ok(0)
}

pub(super) fn closes_all_and_hangs(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for stream in 0..3 {
        os::close_standard(stream)?;
    }
    agent.hang();
    Ok(0)
}

pub(super) fn big_stderr(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let line = "Error executing tool read_file: File not found. And then some more words to fill it.\n";
    let count = agent.size("bytes", 5_000_000) / line.len() + 1;
    agent.stderr(line.repeat(count))?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn stderr_one_line(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let bytes = vec![b'e'; agent.size("bytes", 5_000_000)];
    agent.stderr(bytes)?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn stderr_garbage(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.stderr(b"\xff\xfe\0\x1b[31m\xc3\x28\r\r\n\n\x07half a line")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn events_on_stderr(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    let mut lines = agent.line("init", &[("session_id", json!("s")), ("model", json!("auto"))]);
    lines.push_str(&agent.delta("All done. 4"));
    lines.push_str(&agent.line("result", &[("status", json!("success")), ("stats", agent.stats())]));
    agent.stderr(lines)?;
    Ok(0)
}

pub(super) fn usual_noise(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.stderr(concat!(
        "Warning: 256-color support not detected. Using a terminal with at least 256-color support is recommended ",
        "for a better visual experience.\nYOLO mode is enabled. All tool calls will be automatically approved.\n",
        "YOLO mode is enabled. All tool calls will be automatically approved.\n",
        "Ripgrep is not available. Falling back to GrepTool.\n",
        "[STARTUP] Phase 'cleanup_ops' was started but never ended. Skipping metrics.\n",
    ))?;
    super::lines::ok(agent)
}
