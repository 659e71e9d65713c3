//! Faults of an agent that does not exit, or does not exit on a signal.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::agent::FakeAgent;
use crate::os;

pub(super) fn hang_at_start(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.hang();
    Ok(0)
}

pub(super) fn hang_after_init(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.hang();
    Ok(0)
}

pub(super) fn hang_mid_text(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("The answer is ")?;
    agent.hang();
    Ok(0)
}

pub(super) fn hang_mid_line(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.raw(r#"{"type":"message","timestamp":"2026-11-15T04:28:24.844Z","role":"assis"#)?;
    agent.hang();
    Ok(0)
}

pub(super) fn hang_with_tool(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.tool_use("run_shell_command", "t1", json!({"command": "sleep 300"}))?;
    agent.hang();
    Ok(0)
}

pub(super) fn hang_after_result(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    agent.succeed()?;
    agent.hang();
    Ok(0)
}

pub(super) fn hang_after_failure(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.fail("unknown", "[API Error: something]", 1)?;
    agent.hang();
    Ok(0)
}

pub(super) fn ignores_signals(agent: &mut FakeAgent) -> io::Result<u8> {
    os::ignore_signals()?;
    agent.begin()?;
    agent.send_text("I will not stop. ")?;
    agent.hang();
    Ok(0)
}

pub(super) fn talks_without_end(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let pause = Duration::from_millis(agent.number("interval_ms", 100));
    let until = Instant::now() + Duration::from_secs(agent.number("seconds", 600));
    while Instant::now() < until {
        agent.send_text("and so on ")?;
        thread::sleep(pause);
    }
    Ok(0)
}

pub(super) fn retries_forever(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let pause = Duration::from_millis(agent.number("interval_ms", 200));
    let until = Instant::now() + Duration::from_secs(agent.number("seconds", 600));
    let mut attempt = 1;
    while Instant::now() < until {
        agent.stderr(format!("Attempt {attempt} failed with status 429. Retrying with backoff...\n"))?;
        attempt += 1;
        thread::sleep(pause);
    }
    Ok(173)
}

/// Waits for an interrupt or termination signal.
fn wait_for_signal(agent: &mut FakeAgent) -> io::Result<()> {
    os::notice_signals()?;
    agent.begin()?;
    agent.send_text("Working. ")?;
    let until = Instant::now() + Duration::from_secs(agent.number("seconds", 600));
    while !os::signalled() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub(super) fn exit_0_on_signal(agent: &mut FakeAgent) -> io::Result<u8> {
    // As the real one does: no result, and the exit code of a success.
    wait_for_signal(agent)?;
    Ok(0)
}

pub(super) fn result_on_signal(agent: &mut FakeAgent) -> io::Result<u8> {
    wait_for_signal(agent)?;
    agent.send_text("Stopped early.")?;
    agent.succeed()
}

pub(super) fn slow_to_die(agent: &mut FakeAgent) -> io::Result<u8> {
    wait_for_signal(agent)?;
    thread::sleep(Duration::from_millis(agent.number("after_ms", 1_500)));
    agent.send_text("Good night.")?;
    Ok(0)
}

pub(super) fn flood_after_signal(agent: &mut FakeAgent) -> io::Result<u8> {
    wait_for_signal(agent)?;
    let line = agent.delta("I will not be silenced. ").repeat(1_000);
    let until = Instant::now() + Duration::from_secs(agent.number("flood_seconds", 30));
    while Instant::now() < until {
        agent.raw(&line)?;
    }
    Ok(0)
}

pub(super) fn writes_file_after_signal(agent: &mut FakeAgent) -> io::Result<u8> {
    wait_for_signal(agent)?;
    std::fs::write("late.txt", "written after the signal\n")?;
    Ok(0)
}
