//! Faults in the bytes of the output: noise, invalid encodings, lines that are too long, too many or too slow.

use std::io;
use std::thread;
use std::time::Duration;

use super::agent::{FakeAgent, FakeFormat};

/// Plays the same run as `ok`, with `noise` written between all events.
fn with_noise(agent: &mut FakeAgent, noise: &[u8]) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.raw(noise)?;
    agent.init()?;
    agent.raw(noise)?;
    agent.send_text("I will write it.")?;
    agent.raw(noise)?;
    agent.write_file("write_file_1")?;
    agent.raw(noise)?;
    agent.send_text("All done. 4")?;
    agent.raw(noise)?;
    let code = agent.succeed()?;
    agent.raw(noise)?;
    Ok(code)
}

/// Plays the same run as `ok`, with each line changed.
fn with_lines(agent: &mut FakeAgent, change: impl Fn(&str) -> Vec<u8>) -> io::Result<u8> {
    agent.begin()?;
    for text in ["All ", "done. ", "4"] {
        let line = agent.delta(text);
        agent.raw(change(line.trim_end()))?;
    }
    agent.succeed()
}

pub(super) fn ok(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("I will write it.")?;
    agent.write_file("write_file__write_file_1794716906960_0")?;
    agent.send_text("All done. ")?;
    agent.send_text("4")?;
    agent.succeed()
}

pub(super) fn garbage_between(agent: &mut FakeAgent) -> io::Result<u8> {
    with_noise(
        agent,
        b"Empty GEMINI.md created. Now analyzing the project to populate it.\n}{ ]not json[ \"\n",
    )
}

pub(super) fn blank_lines(agent: &mut FakeAgent) -> io::Result<u8> {
    with_noise(agent, b"\n\n   \n\t\n")
}

pub(super) fn nul_bytes(agent: &mut FakeAgent) -> io::Result<u8> {
    with_noise(agent, b"\0\0\0\n\0")
}

pub(super) fn invalid_utf8(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.raw(b"\xff\xfe\x80 a line that is no text \xc3\x28\n")?;
    let line = agent.delta("before?after");
    let mut bytes = line.into_bytes();
    if let Some(mark) = bytes.iter().position(|byte| *byte == b'?') {
        bytes[mark] = 0xff;
    }
    agent.raw(bytes)?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn ansi_escapes(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.raw(b"\x1b[31mred\x1b[0m\x1b[2K\x1b]0;title\x07\n")?;
    with_escape_around(agent)?;
    agent.send_text("\u{1b}[1mbold\u{1b}[0m \u{1b}[2J\u{7} All done. 4")?;
    agent.succeed()
}

fn with_escape_around(agent: &mut FakeAgent) -> io::Result<()> {
    let line = agent.delta("coloured line ");
    agent.raw(format!("\x1b[32m{}\x1b[0m\n", line.trim_end()))
}

pub(super) fn text_before_json(agent: &mut FakeAgent) -> io::Result<u8> {
    with_lines(agent, |line| format!("Loading extension 1 of 3 {line}\n").into_bytes())
}

pub(super) fn text_after_json(agent: &mut FakeAgent) -> io::Result<u8> {
    with_lines(agent, |line| format!("{line} (done in 3 ms)\n").into_bytes())
}

pub(super) fn two_on_a_line(agent: &mut FakeAgent) -> io::Result<u8> {
    with_lines(agent, |line| format!("{line}{line}\n").into_bytes())
}

pub(super) fn crlf(agent: &mut FakeAgent) -> io::Result<u8> {
    with_lines(agent, |line| format!("{line}\r\n").into_bytes())
}

pub(super) fn bom(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.raw("\u{feff}")?;
    agent.init()?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn pretty_printed(agent: &mut FakeAgent) -> io::Result<u8> {
    with_lines(agent, |line| match serde_json::from_str::<serde_json::Value>(line) {
        Ok(event) => format!("{event:#}\n").into_bytes(),
        Err(_) => line.as_bytes().to_vec(),
    })
}

pub(super) fn unicode_separators(agent: &mut FakeAgent) -> io::Result<u8> {
    // Raw in the line: some readers treat each of these as a line end.
    with_lines(agent, |line| {
        format!("{}\n", line.replacen("content\":\"", "content\":\"\u{2028}\u{2029}\u{85}", 1)).into_bytes()
    })
}

pub(super) fn half_line_at_end(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    let code = agent.succeed()?;
    agent.raw(r#"{"type":"message","timestamp":"2026-11-15T04:2"#)?;
    Ok(code)
}

pub(super) fn result_cut(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    let whole = match agent.format {
        FakeFormat::StreamJson => {
            agent.line("result", &[("status", "success".into()), ("stats", agent.stats())])
        }
        FakeFormat::Json => agent.document(),
    };
    let cut = agent.size("bytes", 60).min(whole.len());
    agent.raw(&whole.as_bytes()[..cut])?;
    Ok(0)
}

pub(super) fn no_last_newline(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    let line = agent.line("result", &[("status", "success".into()), ("stats", agent.stats())]);
    let line = if agent.format == FakeFormat::Json { agent.document() } else { line };
    agent.raw(line.trim_end())?;
    Ok(0)
}

pub(super) fn split_character(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let line = agent.delta("🦀 é 漢");
    // Every byte in its own write, with time for the reader to see it alone.
    for byte in line.as_bytes() {
        agent.raw([*byte])?;
        if !byte.is_ascii() {
            thread::sleep(Duration::from_millis(20));
        }
    }
    agent.succeed()
}

pub(super) fn slow_drip(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    let pause = Duration::from_millis(agent.number("interval_ms", 50));
    let mut all =
        agent.line("init", &[("session_id", agent.session.clone().into()), ("model", "auto".into())]);
    all.push_str(&agent.delta("4"));
    all.push_str(&agent.line("result", &[("status", "success".into()), ("stats", agent.stats())]));
    for byte in all.as_bytes() {
        agent.raw([*byte])?;
        thread::sleep(pause);
    }
    Ok(0)
}

pub(super) fn huge_line(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let text = "x".repeat(agent.size("bytes", 50_000_000));
    agent.send_text(&text)?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn huge_garbage_line(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let piece = [b'#'; 65_536];
    let mut left = agent.size("bytes", 9_000_000);
    while left > 0 {
        let count = left.min(piece.len());
        agent.raw(&piece[..count])?;
        left -= count;
    }
    agent.raw("\n")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn endless_line(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let piece = [b'a'; 65_536];
    let mut left = agent.size("bytes", 200_000_000);
    while left > 0 {
        let count = left.min(piece.len());
        agent.raw(&piece[..count])?;
        left -= count;
    }
    Ok(0)
}

/// Writes a line many times, in large writes of a prepared buffer: a test measures the reader, not this function.
fn repeat(agent: &mut FakeAgent, line: &str, count: usize) -> io::Result<()> {
    let batch = (1 << 20) / line.len() + 1;
    let buffer = line.repeat(batch.min(count));
    let mut left = count;
    while left > 0 {
        let lines = left.min(batch);
        agent.raw(&buffer.as_bytes()[..lines * line.len()])?;
        left -= lines;
    }
    Ok(())
}

pub(super) fn million_events(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let count = agent.size("count", 1_000_000);
    let line = agent.delta("x");
    repeat(agent, &line, count)?;
    agent.succeed()
}

pub(super) fn many_unreadable(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let count = agent.size("count", 100_000);
    repeat(agent, "{\"type\":\"message\", broken\n", count)?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn stdout_cut(agent: &mut FakeAgent) -> io::Result<u8> {
    // As the real one does on a pipe: the end of a long output is lost and the exit code is 0.
    agent.begin()?;
    let mut rest = agent.size("bytes", 65_536);
    let line = agent.delta("a piece of a long answer ");
    while rest > 0 {
        let count = rest.min(line.len());
        agent.raw(&line.as_bytes()[..count])?;
        rest -= count;
    }
    Ok(0)
}
