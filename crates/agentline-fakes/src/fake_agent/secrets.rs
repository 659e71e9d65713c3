//! Faults that leak a secret: the driver must not pass on the key, wherever the agent puts it.

use std::fs;
use std::io;

use serde_json::json;

use super::agent::FakeAgent;

pub(super) fn secret_in_text(agent: &mut FakeAgent) -> io::Result<u8> {
    let secret = agent.secret();
    agent.begin()?;
    agent.send_text(&format!("The key is {secret}, keep it safe."))?;
    agent.succeed()
}

pub(super) fn secret_split(agent: &mut FakeAgent) -> io::Result<u8> {
    let secret = agent.secret();
    let middle = (0..=secret.len() / 2).rev().find(|at| secret.is_char_boundary(*at)).unwrap_or(0);
    let (first, second) = secret.split_at(middle);
    agent.begin()?;
    agent.send_text(&format!("The key is {first}"))?;
    agent.send_text(&format!("{second}, keep it safe."))?;
    agent.succeed()
}

pub(super) fn secret_by_character(agent: &mut FakeAgent) -> io::Result<u8> {
    let secret = agent.secret();
    agent.begin()?;
    for character in secret.chars() {
        agent.send_text(&character.to_string())?;
    }
    agent.succeed()
}

pub(super) fn secret_in_stderr(agent: &mut FakeAgent) -> io::Result<u8> {
    let secret = agent.secret();
    agent.begin()?;
    agent.stderr(format!("request failed: x-goog-api-key: {secret}\n"))?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn secret_in_tool(agent: &mut FakeAgent) -> io::Result<u8> {
    let secret = agent.secret();
    agent.begin()?;
    agent.tool_use(
        "run_shell_command",
        "t1",
        json!({"command": format!("curl -H 'x-goog-api-key: {secret}'")}),
    )?;
    let output = format!("GEMINI_API_KEY={secret}\nHOME=/home/someone\n");
    agent.event(
        "tool_result",
        &[("tool_id", json!("t1")), ("status", json!("success")), ("output", json!(output))],
    )?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn secret_in_error(agent: &mut FakeAgent) -> io::Result<u8> {
    let secret = agent.secret();
    agent.begin()?;
    let message = format!("API key {secret} not valid");
    agent.event("error", &[("severity", json!("error")), ("message", json!(message))])?;
    agent.fail("unknown", &format!("[API Error: {message}]"), 144)
}

pub(super) fn secret_in_garbage(agent: &mut FakeAgent) -> io::Result<u8> {
    let secret = agent.secret();
    agent.begin()?;
    agent.raw(format!("DEBUG using key {secret}\n"))?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn secret_escaped(agent: &mut FakeAgent) -> io::Result<u8> {
    // Each character as a JSON escape: the bytes differ from those of the secret, the text does not.
    let escaped: String = agent.secret().encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    agent.begin()?;
    agent.raw(format!(
        "{{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"{escaped}\",\"delta\":true}}\n"
    ))?;
    agent.succeed()
}

pub(super) fn secret_in_file(agent: &mut FakeAgent) -> io::Result<u8> {
    let content = format!("GEMINI_API_KEY={}\n", agent.secret());
    agent.begin()?;
    agent.tool_use("write_file", "t1", json!({"file_path": "leak.env", "content": content}))?;
    fs::write("leak.env", &content)?;
    agent.tool_done("t1")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}
