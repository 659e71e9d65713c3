//! Plays the script of a prompt and answers it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use std::{env, iter};

use serde_json::{Value, json};

use super::agent::FakeAcpAgent;
use super::control::Control;
use super::faults::FaultFlag;
use super::peer::lock;
use super::session::FakeSession;
use super::turn::FakeTurn;
use super::words::{self, unescape};
use super::{shapes, tools};

/// A file in the directory of the session, with the script for prompts that are not scripts themselves. Pictures show
/// such prompts.
const SCRIPT_FILE: &str = ".fake-acp-script";

/// The end of a turn.
pub(super) enum FakeTurnEnd {
    Stop(String),
    Result(Value),
    Error(Value),
}

/// Plays a turn to its end, on the thread of the caller.
pub(super) fn play(
    agent: &FakeAcpAgent,
    session: &FakeSession,
    control: &Arc<Control>,
    id: &Value,
    params: &Value,
) {
    let blocks = &params["prompt"];
    let texts = blocks.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    let prompt = texts.collect::<Vec<_>>().join("\n");
    lock(&session.state).prompts.push(prompt.clone());
    session.remember(&shapes::chunk(&agent.peer.faults, "user_message_chunk", &prompt));
    let mut turn =
        FakeTurn { agent, session, control, id, blocks, later: Vec::new(), usage: None, meta: None };
    let end = turn.script(&agent.peer.faults.script(&prompt));
    session.store();
    session.end_turn(control);
    turn.answer(end);
    turn.after();
}

impl FakeTurn<'_> {
    fn script(&mut self, script: &str) -> FakeTurnEnd {
        if !words::is_script(script) {
            let file = fs::read_to_string(self.session.path(SCRIPT_FILE)).unwrap_or_default();
            if words::is_script(&file) {
                return self.script(&file);
            }
            self.send_text(&format!("You said: {script}"));
            return FakeTurnEnd::Stop("end_turn".to_owned());
        }
        for (word, rest) in script.lines().filter_map(words::parse) {
            if self.control.cancelled() {
                break;
            }
            if let Some(end) = self.perform(word, rest) {
                return end;
            }
        }
        FakeTurnEnd::Stop("end_turn".to_owned())
    }

    fn perform(&mut self, word: &str, rest: &str) -> Option<FakeTurnEnd> {
        let (first, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        match word {
            "say" => self.send_text(&unescape(rest)),
            "think" => self.chunk("agent_thought_chunk", &unescape(rest)),
            "chunks" => {
                for n in 1..=number(first) {
                    if self.control.cancelled() {
                        break;
                    }
                    self.send_text(&unescape(more).replace("{n}", &n.to_string()));
                }
            }
            "big" => self.send_text(&"x".repeat(usize::try_from(number(first)).unwrap_or(0))),
            "image" => self.update(&shapes::image()),
            "audio" => self.update(&shapes::audio()),
            "tool" => tools::tool(self, rest, false),
            "ask" => tools::tool(self, rest, true),
            "run" => tools::tool(self, &format!("run {rest}"), false),
            "call" => tools::call(self, rest, false),
            "ask_call" => tools::call(self, rest, true),
            "list_tools" => self.send_text(&self.session.mcp.listed().to_string()),
            "fs_read" => self.fs_read(first, more),
            "fs_write" => {
                let params = json!({"path": self.session.path(first), "content": unescape(more)});
                self.ask_and_report("write", "fs/write_text_file", params);
            }
            "terminal" => self.ask_and_report("terminal", "terminal/create", json!({"command": "true"})),
            "request" => {
                self.ask_and_report("request", first, json_of(more));
            }
            "plan" => self.update(&shapes::plan()),
            "commands" => self.update(&shapes::commands()),
            "mode" => {
                first.clone_into(&mut lock(&self.session.state).mode);
                self.update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": first}));
            }
            "config" => {
                let options = {
                    let state = lock(&self.session.state);
                    shapes::config_options(&state.mode, &state.model)
                };
                self.update(&json!({"sessionUpdate": "config_option_update", "configOptions": options}));
            }
            "info" => {
                let at = "2026-01-02T03:04:05.678Z";
                let title = "A fake session";
                self.update(
                    &json!({"sessionUpdate": "session_info_update", "title": title, "updatedAt": at}),
                );
            }
            "unknown" => self.update(&json!({"sessionUpdate": "from_the_future", "later": [1, 2, 3]})),
            "usage" => self.usage = Some(usage(rest)),
            "used" => {
                let mut numbers = rest.split_whitespace();
                let (used, size) = (number(first), numbers.nth(1).map_or(100_000, number));
                let mut update = json!({"sessionUpdate": "usage_update", "used": used, "size": size});
                if let Some(cost) = numbers.next().and_then(|cost| cost.parse::<f64>().ok()) {
                    update["cost"] = json!({"amount": cost, "currency": "USD"});
                }
                self.update(&update);
            }
            "quota" => self.meta = Some(quota(number(first), number(more), &lock(&self.session.state).model)),
            "stderr" => drop(writeln!(io::stderr(), "{}", unescape(rest))),
            "stderr_flood" => {
                let line = format!("{}\n", "flood ".repeat(20));
                let count = usize::try_from(number(first)).unwrap_or(0) / line.len();
                let _ = (0..count).try_for_each(|_| io::stderr().write_all(line.as_bytes()));
            }
            "half_line" => {
                let mut out = io::stdout().lock();
                let _ = out
                    .write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"session/upd")
                    .and_then(|()| out.flush());
            }
            "sleep" => self.control.wait(Duration::from_millis(number(first))),
            "repeat" => {
                for n in 1..=number(first) {
                    let line = more.replace("{n}", &n.to_string());
                    let (word, rest) = words::parse(&line).unwrap_or(("say", &line));
                    if self.control.cancelled() {
                        break;
                    }
                    if let Some(end) = self.perform(word, rest) {
                        return Some(end);
                    }
                }
            }
            "after" => self.later.push((Duration::from_millis(number(first)), more.to_owned())),
            "trickle" => {
                let (whole, text) = more.split_once(char::is_whitespace).unwrap_or((more, "more"));
                let (every, whole) = (number(first).max(1), number(whole));
                let times = (1..=whole / every).map(|n| Duration::from_millis(n * every));
                self.later.extend(times.zip(iter::repeat(text.to_owned())));
            }
            "raw" => {
                let line = rest.replace("{session}", &self.session.id).replace("{id}", &self.id.to_string());
                self.agent.peer.line(line.as_bytes());
            }
            "update" => self.update(&json_of(rest)),
            "result" => return Some(FakeTurnEnd::Result(json_of(rest))),
            "failure" => return Some(FakeTurnEnd::Error(json_of(rest))),
            "stop" => return Some(FakeTurnEnd::Stop(first.to_owned())),
            "refused" => {
                let (file, message) = more.split_once(char::is_whitespace).unwrap_or((more, "busy"));
                if count(&self.session.path(file)) <= number(first) {
                    return Some(FakeTurnEnd::Error(shapes::error(429, &unescape(message))));
                }
            }
            "error" => {
                let code = first.parse().unwrap_or(-32603);
                return Some(FakeTurnEnd::Error(shapes::error(code, &unescape(more))));
            }
            "die" => process::exit(first.parse().unwrap_or(1)),
            "killed" => drop(crate::os::die_by(crate::os::signal::KILL)),
            "close_stdout" => drop(crate::os::close_standard(1)),
            "hang" => self.control.wait(Duration::from_secs(24 * 3600)),
            other => self.report(other, first),
        }
        None
    }

    /// Plays the words that report what the agent knows.
    fn report(&self, word: &str, name: &str) {
        let text = match word {
            "env" => match env::var(name) {
                Ok(value) => format!("{name}={value}"),
                Err(_) => format!("{name} is not set"),
            },
            "hold" => match std::fs::File::open(self.session.cwd.join(name)) {
                Ok(file) => {
                    let _open: &'static mut std::fs::File = Box::leak(Box::new(file));
                    format!("{name} is open")
                }
                Err(error) => error.to_string(),
            },
            "cwd" => self.session.cwd.display().to_string(),
            "echo_servers" => self.session.servers.to_string(),
            "echo_client" => lock(&self.agent.client).to_string(),
            "echo_prompt" => self.described_prompt().to_string(),
            "history" => json!(lock(&self.session.state).prompts).to_string(),
            "state" => {
                let state = lock(&self.session.state);
                json!({
                    "session": self.session.id, "mode": state.mode, "model": state.model,
                    "prompts": state.prompts.len(), "pid": process::id(),
                    "megabytes": self.session.weight.len() >> 20,
                })
                .to_string()
            }
            _ => return,
        };
        self.send_text(&text);
    }

    /// Describes the blocks of the prompt, with lengths instead of their content.
    fn described_prompt(&self) -> Value {
        let described = |block: &Value| {
            let mut block = block.clone();
            for pointer in ["/data", "/resource/blob"] {
                if let Some(data) = block.pointer_mut(pointer) {
                    *data = json!(data.as_str().map_or(0, str::len));
                }
            }
            block
        };
        self.blocks.as_array().into_iter().flatten().map(described).collect()
    }

    fn fs_read(&self, path: &str, range: &str) {
        let mut params = json!({"path": self.session.path(path)});
        let numbers = range.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
        for (name, value) in ["line", "limit"].into_iter().zip(numbers) {
            params[name] = json!(value);
        }
        self.ask_and_report("read", "fs/read_text_file", params);
    }

    fn ask_and_report(&self, name: &str, method: &str, params: Value) {
        let Ok(answer) = self.ask(method, params).recv() else { return };
        let text = match (answer.get("error"), &answer["result"]["content"]) {
            (Some(error), _) => {
                format!("{name} failed: {} {}", error["code"], error["message"].as_str().unwrap_or_default())
            }
            (None, Value::String(content)) => format!("{name}: {content}"),
            (None, _) => format!("{name}: {}", answer["result"]),
        };
        self.send_text(&text);
    }

    fn answer(&self, end: FakeTurnEnd) {
        let faults = &self.agent.peer.faults;
        let mut end = end;
        if self.control.cancelled() {
            if let Some(millis) = faults.number(FaultFlag::CancelSlow, 2000) {
                thread::sleep(Duration::from_millis(millis));
            }
            end = match () {
                () if faults.has(FaultFlag::CancelAsEndTurn) => FakeTurnEnd::Stop("end_turn".to_owned()),
                () if faults.has(FaultFlag::CancelAsError) => {
                    FakeTurnEnd::Error(shapes::internal("This operation was aborted"))
                }
                () => FakeTurnEnd::Stop("cancelled".to_owned()),
            };
        }
        match end {
            FakeTurnEnd::Error(error) => self.agent.peer.refuse(self.id, &error),
            FakeTurnEnd::Result(result) => self.agent.peer.answer(self.id, &result),
            FakeTurnEnd::Stop(reason) => {
                let mut result = json!({"stopReason": reason});
                if let Some(usage) = &self.usage {
                    result["usage"] = usage.clone();
                }
                if let Some(meta) = &self.meta {
                    result["_meta"] = meta.clone();
                } else if faults.has(FaultFlag::QuotaInMeta) && reason != "cancelled" {
                    result["_meta"] = quota(100, 20, &lock(&self.session.state).model);
                }
                self.agent.peer.answer(self.id, &result);
            }
        }
        if self.control.cancelled() && faults.has(FaultFlag::CancelThenText) {
            thread::sleep(Duration::from_millis(50));
            self.send_text("Still talking after the cancel.");
        }
    }

    /// Plays the lines after the answer.
    fn after(&mut self) {
        let answered = Instant::now();
        let mut later = std::mem::take(&mut self.later);
        later.sort_by_key(|(after, _)| *after);
        for (after, text) in later {
            thread::sleep(after.saturating_sub(answered.elapsed()));
            match words::parse(&text) {
                Some((word, rest)) => drop(self.perform(word, rest)),
                None => self.send_text(&unescape(&text)),
            }
        }
    }
}

/// Parses the JSON of a script. Invalid JSON becomes an empty object.
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!({}))
}

fn usage(numbers: &str) -> Value {
    let mut numbers = numbers.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
    let mut next = || numbers.next();
    let (input, output) = (next().unwrap_or(0), next().unwrap_or(0));
    let mut usage = json!({"inputTokens": input, "outputTokens": output, "totalTokens": input + output});
    for name in ["cachedReadTokens", "thoughtTokens"] {
        if let Some(count) = next() {
            usage[name] = json!(count);
        }
    }
    usage
}

fn quota(input: u64, output: u64, model: &str) -> Value {
    let count = json!({"input_tokens": input, "output_tokens": output});
    let models = json!([{"model": model, "token_count": count}]);
    json!({"quota": {"token_count": count, "model_usage": models}})
}

/// Increments a counter in a file and returns it. Other turns may do so at the same time.
fn count(file: &Path) -> u64 {
    let counted = OpenOptions::new().append(true).create(true).open(file).and_then(|mut file| {
        file.write_all(b".")?;
        file.metadata()
    });
    counted.map_or(0, |metadata| metadata.len())
}
