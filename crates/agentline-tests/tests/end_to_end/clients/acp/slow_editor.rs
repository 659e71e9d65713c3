//! Tests `agentline acp` with an editor that does not read for a while.

use super::{
    command_line::{FAKE, LineClient, home},
    nothing_left,
};
use agentline_tests::{FakeStage, exit_of, wait_until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The answer of the agent: much more than all buffers can hold.
const PIECES: usize = 400;
const PIECE: usize = 256 << 10;
/// How much memory the frames that wait for the editor may take, with the answer so far, in kilobytes.
const MOST_WAITING: u64 = 100_000;
/// How long the agent must have written nothing. It is longer than the idle timeout of the prompt.
const STANDSTILL: Duration = Duration::from_secs(3);

/// Returns the number in a line of a file of the system.
fn number(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line with this name");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns the private memory of a process in kilobytes.
fn memory(pid: u32) -> u64 {
    number(&format!("/proc/{pid}/status"), "RssAnon:")
}

/// Waits until a process has written a part of the answer, and then nothing for a while.
fn wait_for_standstill(pid: u32) {
    let (mut last, mut since) = (0, Instant::now());
    wait_until("an agent that is held back", || {
        let written = number(&format!("/proc/{pid}/io"), "wchar:");
        if written != last || written < PIECE as u64 {
            (last, since) = (written, Instant::now());
        }
        since.elapsed() > STANDSTILL
    });
}

fn script() -> String {
    format!("repeat {PIECES} say {{n}}:{}\nrun touch written\nsay over", "x".repeat(PIECE))
}

#[test]
fn editor_that_does_not_read_holds_the_agent_back_and_gets_everything_later() {
    let stage = FakeStage::new(FAKE);
    let (home, written) = (home(&stage), stage.workspace().join("written"));
    let mut client =
        LineClient::start(&stage, &["--idle-timeout", "1s", "--permission-mode", "bypass", "--", FAKE]);
    let program = client.child.id();
    let (agent, before) = (client.agent(&home), memory(program));
    client.prompt(3, &script());
    wait_for_standstill(agent);
    let grown = memory(program).saturating_sub(before);
    assert!(grown < MOST_WAITING, "grew by {grown} kB");
    assert!(!written.exists(), "the agent is held back");
    let mut texts = Vec::new();
    let answer = loop {
        let frame: Value = serde_json::from_str(&client.receive()).unwrap();
        if frame["id"] == 3 {
            break frame;
        }
        let update = &frame["params"]["update"];
        if update["sessionUpdate"] == "agent_message_chunk" {
            texts.push(update["content"]["text"].as_str().unwrap().to_owned());
        }
    };
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(answer["result"]["_meta"]["agentline"]["files"][0]["path"], json!("written"), "{answer}");
    let padding = "x".repeat(PIECE);
    let expected = (1..=PIECES).map(|n| format!("{n}:{padding}")).chain(["over".to_owned()]);
    // The texts are too long for a message.
    assert!(texts.into_iter().eq(expected), "pieces are missing or changed");
    assert_eq!(agent, client.agent(&home), "it is the same process");
    let (code, stderr) = client.disconnect();
    assert_eq!(code, Some(0), "{stderr}");
    nothing_left(&home);
}

#[test]
fn everything_ends_with_an_editor_that_never_reads() {
    let stage = FakeStage::new(FAKE);
    let home = home(&stage);
    let mut client = LineClient::start(&stage, &["--permission-mode", "bypass", "--", FAKE]);
    client.prompt(3, &script());
    wait_for_standstill(client.agent(&home));
    client.close_stdin();
    assert!(exit_of(&mut client.child, "the end of the program").success());
    nothing_left(&home);
}
