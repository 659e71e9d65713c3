//! Sessions in the formats of Gemini CLI: the current one with lines, and the old one with whole files in directories
//! named by a digest.

use super::{Lines, Plan, Turn, count, moment, turns, words::WordSource};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, io, path::PathBuf};

const CONTEXT: &str = "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n</session_context>";

/// Writes a session and returns its file. One of six has the old format.
pub(super) fn write(
    plan: &Plan<'_>,
    words: &mut WordSource,
    used: &mut [u64; 3],
    registry: &mut BTreeMap<String, String>,
) -> io::Result<PathBuf> {
    let name = format!("session-{}-{}", moment(plan.start)[..16].replace(':', "-"), &plan.id[..8]);
    let tmp = plan.home.join(".gemini/tmp");
    if plan.number % 20 == 14 {
        let folder = tmp.join(digest(&plan.project)).join("chats");
        let path = folder.join(format!("{name}.json"));
        whole(plan, words, used, &path)?;
        return Ok(path);
    }
    let slug = plan.project.rsplit('/').next().unwrap_or_default().to_owned();
    let folder = tmp.join(&slug);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(".project_root"), &plan.project)?;
    registry.insert(plan.project.clone(), slug);
    let path = folder.join("chats").join(format!("{name}.jsonl"));
    let mut lines = Lines::create(&path)?;
    lines.line(&json!({
        "sessionId": plan.id, "projectHash": digest(&plan.project), "startTime": moment(plan.start),
        "lastUpdated": moment(plan.start), "kind": "main",
    }))?;
    let context = json!({
        "id": "d04923d38bb0f6017037e74183378ef4", "timestamp": moment(plan.start), "type": "user",
        "content": [{"text": CONTEXT}],
    });
    lines.line(&json!({"$set": {"messages": [context], "lastUpdated": moment(plan.start)}}))?;
    let mut at = plan.start;
    turns(plan, &mut words.fork(), |_, turn| {
        count(used, &turn);
        at += 5000;
        let (prompt, answer) = (words.uuid(), words.uuid());
        let mut written = lines.line(&json!({
            "id": prompt, "timestamp": moment(at), "type": "user", "content": [{"text": turn.prompt}],
        }))?;
        let set = json!({"$set": {"lastUpdated": moment(at + 1000)}});
        let mut reply = message(&answer, at + 1000, &turn);
        written += lines.line(&reply)? + lines.line(&set)?;
        let call = call(words, at + 1500, &turn);
        reply["toolCalls"] = json!([call]);
        written += lines.line(&reply)?;
        let back = json!({"id": words.uuid(), "timestamp": moment(at + 1600), "type": "user", "content": call["result"]});
        written += lines.line(&back)? + lines.line(&set)?;
        Ok(written)
    })?;
    lines.finish()?;
    Ok(path)
}

fn message(id: &str, at: u64, turn: &Turn) -> Value {
    let (input, all) = (turn.input + turn.cached, turn.input + turn.cached + turn.answer);
    json!({
        "id": id, "timestamp": moment(at), "type": "gemini", "content": turn.text,
        "thoughts": [{"subject": "Planning", "description": turn.thought, "timestamp": moment(at)}],
        "tokens": {"input": input, "output": turn.answer, "cached": turn.cached, "thoughts": 0, "tool": 0, "total": all},
        "model": "gemini-2.5-pro",
    })
}

fn call(words: &mut WordSource, at: u64, turn: &Turn) -> Value {
    let id = format!("run_shell_command_{}", words.hex());
    let response = json!({"id": id, "name": "run_shell_command", "response": {"output": turn.output}});
    json!({
        "id": id, "name": "run_shell_command", "args": {"command": turn.command},
        "result": [{"functionResponse": response}], "status": "success", "timestamp": moment(at),
        "resultDisplay": turn.output, "displayName": "Shell", "description": turn.command,
    })
}

/// Writes the old format: one indented value.
fn whole(
    plan: &Plan<'_>,
    words: &mut WordSource,
    used: &mut [u64; 3],
    path: &std::path::Path,
) -> io::Result<()> {
    let mut messages = Vec::new();
    let mut at = plan.start;
    turns(plan, &mut words.fork(), |_, turn| {
        count(used, &turn);
        at += 5000;
        messages.push(
            json!({"id": words.uuid(), "timestamp": moment(at), "type": "user", "content": turn.prompt}),
        );
        let mut reply = message(&words.uuid(), at + 1000, &turn);
        reply["toolCalls"] = json!([call(words, at + 1500, &turn)]);
        let size = reply.to_string().len() as u64;
        messages.push(reply);
        Ok(size + size / 10)
    })?;
    let session = json!({
        "sessionId": plan.id, "projectHash": digest(&plan.project), "startTime": moment(plan.start),
        "lastUpdated": moment(at + 1500), "messages": messages,
    });
    fs::create_dir_all(path.parent().expect("a file in a folder"))?;
    fs::write(path, serde_json::to_string_pretty(&session)?)
}

/// Returns the digest of a path in hex, the directory name of old versions.
fn digest(path: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(path.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
