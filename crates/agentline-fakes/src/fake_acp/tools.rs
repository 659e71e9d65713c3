//! Tools of the agent: reported to the client, permitted on request, and actually executed.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::{Value, json};

use super::faults::FaultFlag;
use super::peer::lock;
use super::shapes;
use super::shell;
use super::turn::FakeTurn;
use super::words::unescape;

/// One use of a tool.
struct Use {
    id: Value,
    name: String,
    title: String,
    kind: &'static str,
    content: Value,
    locations: Value,
    input: Value,
    work: Work,
}

/// The action of a tool.
enum Work {
    Write(PathBuf, String),
    Read(PathBuf),
    Delete(PathBuf),
    Shell(String),
    Call { server: String, tool: String, args: Value },
    Nothing,
}

/// The end of a tool: its status, and the replacement of its content.
struct Done {
    status: &'static str,
    content: Option<Value>,
    output: Option<Value>,
}

/// Plays `NAME ARGS`.
pub(super) fn tool(turn: &FakeTurn<'_>, args: &str, needs_permission: bool) {
    let usage = parse_use(turn, args);
    if let Some(done) = play(turn, &usage, needs_permission) {
        finish(turn, &usage, &done);
    }
}

/// Plays `SERVER TOOL JSON`, and sends the result as text.
pub(super) fn call(turn: &FakeTurn<'_>, args: &str, needs_permission: bool) {
    let mut args = args.splitn(3, char::is_whitespace);
    let mut next = || args.next().unwrap_or_default().to_owned();
    let (server, tool, args) = (next(), next(), next());
    let args: Value = serde_json::from_str(&args).unwrap_or_else(|_| json!({}));
    let usage = Use {
        id: new_id(turn, &format!("mcp_{server}_{tool}")),
        name: format!("mcp_{server}_{tool}"),
        title: format!("{tool} ({server} MCP Server)"),
        kind: "other",
        content: json!([]),
        locations: json!([]),
        input: args.clone(),
        work: Work::Call { server, tool: tool.clone(), args },
    };
    let Some(done) = play(turn, &usage, needs_permission) else { return };
    finish(turn, &usage, &done);
    let output =
        done.content.as_ref().and_then(|content| content[0]["content"]["text"].as_str()).unwrap_or_default();
    let failed = if done.status == "failed" { " failed" } else { "" };
    turn.send_text(&format!("{tool}{failed}: {output}"));
}

fn parse_use(turn: &FakeTurn<'_>, args: &str) -> Use {
    let (name, rest) = args.split_once(char::is_whitespace).unwrap_or((args, ""));
    let (first, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let path = turn.session.path(first);
    let usage = |title: String, kind, content, locations, input, work| Use {
        id: new_id(turn, name),
        name: name.to_owned(),
        title,
        kind,
        content,
        locations,
        input,
        work,
    };
    let locations = json!([{"path": path}]);
    match name {
        "write_file" => {
            let text = unescape(more);
            let old = fs::read_to_string(&path).ok();
            let change = if old.is_some() { "modify" } else { "add" };
            let diff = json!([{
                "type": "diff", "path": path, "oldText": old.unwrap_or_default(), "newText": text,
                "_meta": {"kind": change},
            }]);
            let input = json!({"file_path": path, "content": text});
            usage(
                format!("Writing to {first}"),
                "edit",
                diff,
                locations,
                input,
                Work::Write(path.clone(), text),
            )
        }
        "read_file" => {
            let input = json!({"file_path": path});
            usage(first.to_owned(), "read", json!([]), locations, input, Work::Read(path.clone()))
        }
        "delete_file" => {
            let input = json!({"file_path": path});
            usage(
                format!("Deleting {first}"),
                "delete",
                json!([]),
                locations,
                input,
                Work::Delete(path.clone()),
            )
        }
        "run" => {
            let text = format!("[current working directory {}]", turn.session.cwd.display());
            let input = json!({"command": rest});
            usage(
                rest.to_owned(),
                "execute",
                text_content(&text),
                json!([]),
                input,
                Work::Shell(rest.to_owned()),
            )
        }
        _ => usage(name.to_owned(), "other", json!([]), json!([]), json!({"args": rest}), Work::Nothing),
    }
}

fn new_id(turn: &FakeTurn<'_>, name: &str) -> Value {
    let number = turn.agent.next_tool.fetch_add(1, Ordering::SeqCst) + 1;
    match () {
        () if turn.agent.has(FaultFlag::EmptyToolIds) => json!(""),
        () if turn.agent.has(FaultFlag::MissingToolIds) => Value::Null,
        () if turn.agent.has(FaultFlag::SameToolId) => json!("tool"),
        () => json!(format!("{name}-{number}")),
    }
}

/// Announces the tool, requests permission and executes it. Returns `None` if it was denied.
fn play(turn: &FakeTurn<'_>, usage: &Use, needs_permission: bool) -> Option<Done> {
    let silent = turn.agent.has(FaultFlag::ToolFirstInPermission);
    let needs_permission = needs_permission && !lock(&turn.session.state).always.contains(&usage.name);
    if !needs_permission {
        turn.update(&tool_update(usage, "tool_call", "in_progress"));
        return Some(work(turn, usage));
    }
    if !silent {
        turn.update(&tool_update(usage, "tool_call", "pending"));
    }
    match permission(turn, usage) {
        Ok(()) => {}
        Err(error) => {
            if !turn.agent.has(FaultFlag::RefusedToolSilent) {
                let mut failed = tool_update(usage, "tool_call_update", "failed");
                failed["content"] = text_content(&error);
                turn.update(&failed);
            }
            return None;
        }
    }
    if !silent {
        turn.update(&tool_update(usage, "tool_call_update", "in_progress"));
    }
    Some(work(turn, usage))
}

/// Requests permission as many times as the faults require. An error contains the reason for a denial.
fn permission(turn: &FakeTurn<'_>, usage: &Use) -> Result<(), String> {
    let options = shapes::options(&turn.agent.peer.faults);
    let mut params = json!({"options": options, "toolCall": tool_update(usage, "", "pending")});
    if turn.agent.has(FaultFlag::PermissionWithoutTool) {
        params["toolCall"] = Value::Null;
    }
    let ask = || {
        if turn.agent.has(FaultFlag::PermissionWithoutSession) {
            return turn.agent.peer.ask("session/request_permission", &params);
        }
        turn.ask("session/request_permission", params.clone())
    };
    if turn.agent.has(FaultFlag::AsksTwiceAtOnce) {
        let both = [ask(), ask()];
        return both.iter().try_for_each(|answer| decide(turn, usage, &options, answer));
    }
    // With a limit, because a failing test must end too.
    if let Some(times) = turn.agent.peer.faults.number(FaultFlag::AsksAgain, 10_000) {
        for _ in 1..times {
            decide(turn, usage, &options, &ask())?;
            if turn.control.cancelled() {
                return Err("cancelled".to_owned());
            }
        }
    }
    decide(turn, usage, &options, &ask())
}

fn decide(turn: &FakeTurn<'_>, usage: &Use, options: &Value, answer: &Receiver<Value>) -> Result<(), String> {
    let answer = loop {
        match answer.recv_timeout(Duration::from_millis(10)) {
            Ok(answer) => break answer,
            Err(RecvTimeoutError::Timeout)
                if turn.control.cancelled() && turn.agent.has(FaultFlag::CancelDropsPermission) =>
            {
                return Err("cancelled".to_owned());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("the client is gone".to_owned()),
        }
    };
    if let Some(error) = answer.get("error") {
        return Err(format!("The client answered with an error: {error}"));
    }
    let outcome = &answer["result"]["outcome"];
    if outcome["outcome"] != "selected" {
        return Err("The user cancelled it.".to_owned());
    }
    let chosen =
        options.as_array().into_iter().flatten().find(|option| option["optionId"] == outcome["optionId"]);
    match chosen.and_then(|option| option["kind"].as_str()) {
        Some("allow_once" | "allow_twice") => Ok(()),
        Some("allow_always") => {
            lock(&turn.session.state).always.insert(usage.name.clone());
            Ok(())
        }
        Some(_) => Err("The user rejected it.".to_owned()),
        None => Err(format!("There is no option {}.", outcome["optionId"])),
    }
}

fn work(turn: &FakeTurn<'_>, usage: &Use) -> Done {
    let ended = |result: Result<Option<Value>, String>| match result {
        Ok(content) => Done { status: "completed", content, output: None },
        Err(error) => Done { status: "failed", content: Some(text_content(&error)), output: None },
    };
    let describe = |error: std::io::Error| error.to_string();
    match &usage.work {
        Work::Nothing => ended(Ok(None)),
        Work::Write(path, text) => {
            let created = path.parent().map_or(Ok(()), fs::create_dir_all);
            ended(created.and_then(|()| fs::write(path, text)).map(|()| None).map_err(describe))
        }
        Work::Read(path) => match fs::read_to_string(path) {
            Ok(text) => ended(Ok(Some(text_content(&text)))),
            Err(_) => ended(Err(format!("File not found: {}", path.display()))),
        },
        Work::Delete(path) => ended(fs::remove_file(path).map(|()| None).map_err(describe)),
        Work::Shell(command) => match shell::run(command, &turn.session.cwd, turn.control) {
            Err(error) => ended(Err(describe(error))),
            Ok(ran) => shell_done(turn, &ran),
        },
        Work::Call { server, tool, args } => match turn.session.mcp.call(server, tool, args, turn.control) {
            Err(error) => ended(Err(error)),
            Ok(result) => {
                let texts = result["content"].as_array().into_iter().flatten();
                let text: String = texts.filter_map(|block| block["text"].as_str()).collect();
                let status = if result["isError"] == true { "failed" } else { "completed" };
                Done { status, content: Some(text_content(&text)), output: Some(result) }
            }
        },
    }
}

fn shell_done(turn: &FakeTurn<'_>, ran: &shell::CommandResult) -> Done {
    let Some(status) = ran.status else {
        let completed = turn.agent.has(FaultFlag::CancelledShellCompleted);
        let status = if completed { "completed" } else { "failed" };
        return Done { status, content: Some(text_content("Command cancelled by user.")), output: None };
    };
    let missing = turn.agent.has(FaultFlag::ShellOutputMissing);
    let content = if missing { json!([]) } else { text_content(&ran.output) };
    let output = (!missing).then(|| json!({"exitCode": status.code(), "output": ran.output}));
    let status = if status.success() || missing { "completed" } else { "failed" };
    Done { status, content: Some(content), output }
}

fn finish(turn: &FakeTurn<'_>, usage: &Use, done: &Done) {
    if turn.agent.has(FaultFlag::ToolNeverEnded) {
        return;
    }
    let mut update = tool_update(usage, "tool_call_update", done.status);
    if let Some(content) = &done.content {
        update["content"] = content.clone();
    }
    if let Some(output) = &done.output {
        update["rawOutput"] = output.clone();
    }
    turn.update(&update);
    if turn.agent.has(FaultFlag::ToolEndedTwice) {
        turn.update(&update);
        update["status"] = json!("failed");
        turn.update(&update);
    }
}

/// Returns the report of a use as an update of this kind, or, without one, as the `toolCall` of a request.
fn tool_update(usage: &Use, kind: &str, status: &str) -> Value {
    let mut update = json!({
        "toolCallId": usage.id, "title": usage.title, "kind": usage.kind, "status": status,
        "content": usage.content, "locations": usage.locations, "rawInput": usage.input,
    });
    if usage.id.is_null() {
        update.as_object_mut().map(|update| update.remove("toolCallId"));
    }
    if !kind.is_empty() {
        update["sessionUpdate"] = json!(kind);
    }
    update
}

fn text_content(text: &str) -> Value {
    json!([{"type": "content", "content": {"type": "text", "text": text}}])
}
