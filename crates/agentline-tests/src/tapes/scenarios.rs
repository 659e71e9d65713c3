//! The scenarios that are recorded: what the model answers, and what differs in the environment and the request.

use crate::TestStage;
use agentline::{PermissionMode, PriceTable, RunRequest, Surface, Trust};
use agentline_core::Price;
use agentline_mock::gemini::{GeminiStep, GeminiTokens, Script, demo_script};
use serde_json::json;
use std::time::Duration;

/// A run of the real Gemini CLI against a scripted model, which is recorded on one or more surfaces.
#[derive(Debug)]
pub struct TapeScenario {
    /// The name of the scenario.
    pub name: &'static str,
    /// The surfaces on which it is recorded. Each gives a tape.
    pub surfaces: &'static [Surface],
    script: fn() -> Script,
    prepare: fn(TestStage) -> TestStage,
    change: fn(&TestStage, RunRequest) -> RunRequest,
    prices: fn() -> PriceTable,
}

const STREAM: &[Surface] = &[Surface::StreamJson];
const JSON: &[Surface] = &[Surface::Json];
const BOTH: &[Surface] = &[Surface::StreamJson, Surface::Json];
const ALL: &[Surface] = &[Surface::StreamJson, Surface::Json, Surface::Acp];

/// A script for Node.js that simulates a full disk for one file.
const FULL_DISK: &str = r#"
const fs = require('node:fs');
for (const api of [fs.promises, fs]) {
  for (const name of ['writeFile', 'writeFileSync', 'open']) {
    const original = api[name];
    api[name] = function (path, ...rest) {
      if (!String(path).endsWith('full.txt') || (name === 'open' && !/[wa+]/.test(String(rest[0])))) {
        return original.call(this, path, ...rest);
      }
      const error = Object.assign(new Error(`ENOSPC: no space left on device, open '${path}'`), { code: 'ENOSPC' });
      if (api === fs.promises) return Promise.reject(error);
      throw error;
    };
  }
}
require('node:module').syncBuiltinESMExports();
"#;

impl TapeScenario {
    fn new(name: &'static str, surfaces: &'static [Surface], script: fn() -> Script) -> Self {
        Self {
            name,
            surfaces,
            script,
            prepare: |stage| stage,
            change: |_, request| request,
            prices: PriceTable::built_in,
        }
    }

    fn prepare(mut self, prepare: fn(TestStage) -> TestStage) -> Self {
        self.prepare = prepare;
        self
    }

    fn request_with(mut self, change: fn(&TestStage, RunRequest) -> RunRequest) -> Self {
        self.change = change;
        self
    }

    fn prices(mut self, prices: fn() -> PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// Returns the name of the tape for a surface.
    #[must_use]
    pub fn tape_name(&self, surface: Surface) -> String {
        format!("{}.{surface}", self.name)
    }

    /// Creates the environment of the run.
    #[must_use]
    pub fn stage(&self) -> TestStage {
        (self.prepare)(TestStage::new((self.script)()))
    }

    /// Returns the prices of the run.
    #[must_use]
    pub fn price_table(&self) -> PriceTable {
        (self.prices)()
    }

    /// Returns the request of the run. Every timeout is far below that of the test runner.
    #[must_use]
    pub fn request(&self, stage: &TestStage) -> RunRequest {
        let request = stage.request("Say hello");
        let request = request.timeout(Duration::from_secs(60)).idle_timeout(Duration::from_secs(45));
        (self.change)(stage, request)
    }
}

/// Returns all scenarios.
#[must_use]
pub fn scenarios() -> Vec<TapeScenario> {
    [denials(), refused_requests(), service_errors(), answers(), usage(), limits(), changes()]
        .into_iter()
        .flatten()
        .collect()
}

fn settings(stage: TestStage, json: &str) -> TestStage {
    stage.settings(json);
    stage
}

fn write(path: &str, content: &str) -> GeminiStep {
    GeminiStep::call("write_file", json!({"file_path": path, "content": content}))
}

fn shell(command: &str) -> GeminiStep {
    GeminiStep::call("run_shell_command", json!({"command": command}))
}

fn api_error(status: u16, name: &str, message: &str) -> Script {
    Script::always(GeminiStep::api_error(status, name, message, json!(null)))
}

fn denials() -> Vec<TapeScenario> {
    let unavailable = || {
        let calls = GeminiStep::calls([
            ("write_file", json!({"file_path": "a.txt", "content": "a"})),
            ("run_shell_command", json!({"command": "touch b.txt"})),
            ("no_such_tool", json!({})),
        ]);
        Script::new([calls, GeminiStep::text("I could not.")])
    };
    vec![
        TapeScenario::new("unavailable_tools", JSON, unavailable)
            .request_with(|_, request| request.permission_mode(PermissionMode::Default)),
        TapeScenario::new("path_outside", JSON, || {
            Script::new([write("/nowhere/out.txt", "out"), GeminiStep::text("Not there.")])
        }),
        TapeScenario::new("plan_mode", STREAM, || {
            let calls = GeminiStep::calls([
                ("write_file", json!({"file_path": "a.txt", "content": "a"})),
                ("run_shell_command", json!({"command": "touch b.txt"})),
            ]);
            Script::new([calls, GeminiStep::text("The plan.")])
        })
        .request_with(|_, request| request.permission_mode(PermissionMode::Plan)),
        TapeScenario::new("blocked_commands", BOTH, || {
            let command = |text: &str| ("run_shell_command", json!({"command": text, "description": "d"}));
            let calls =
                ["echo $(ls)", "echo `ls`", "echo '$(ls)'", "echo 'Blocked: command substitution detected'"];
            Script::new([GeminiStep::calls(calls.map(command)), GeminiStep::text("done")])
        }),
    ]
}

/// Scenarios in which no request reaches the model.
fn refused_requests() -> Vec<TapeScenario> {
    let hello = || Script::new([GeminiStep::text("Hello.")]);
    vec![
        TapeScenario::new("untrusted", JSON, hello).request_with(|_, request| request.trust(Trust::No)),
        TapeScenario::new("not_signed_in", JSON, hello).prepare(|stage| stage.env("GEMINI_API_KEY", None)),
        TapeScenario::new("context_overflow", BOTH, hello).request_with(|_, mut request| {
            request.prompt = "many words about nothing ".repeat(6_000_000 / 25);
            request
        }),
        TapeScenario::new("vertex_ai_without_a_project", STREAM, hello)
            .request_with(|_, request| request.agent_option("use_vertex_ai", true)),
        TapeScenario::new("vertex_ai_without_credentials", ALL, hello)
            .prepare(|stage| {
                stage
                    .env("GOOGLE_CLOUD_PROJECT", Some("a-project"))
                    .env("GOOGLE_CLOUD_LOCATION", Some("us-central1"))
                    .env("METADATA_SERVER_DETECTION", Some("none"))
            })
            .request_with(|_, mut request| {
                request.pass_env.push("METADATA_SERVER_DETECTION".into());
                request.agent_option("use_vertex_ai", true)
            }),
        TapeScenario::new("full_disk", BOTH, || {
            Script::new([write("full.txt", "much"), GeminiStep::text("Never said.")])
        })
        .prepare(|stage| {
            let script = stage.outside().join("full-disk.cjs");
            std::fs::write(&script, FULL_DISK).expect("a file");
            let options = format!("--require={}", script.display());
            stage.env("NODE_OPTIONS", Some(&options))
        })
        .request_with(|_, mut request| {
            request.pass_env.push("NODE_OPTIONS".into());
            request
        }),
        TapeScenario::new("invalid_settings", STREAM, hello)
            .prepare(|stage| settings(stage, "{ \"security\": ")),
    ]
}

fn service_errors() -> Vec<TapeScenario> {
    vec![
        TapeScenario::new("invalid_key", STREAM, || Script::always(GeminiStep::invalid_key())),
        TapeScenario::new("unauthenticated", JSON, || {
            api_error(401, "UNAUTHENTICATED", "Request had invalid credentials.")
        }),
        TapeScenario::new("permission_denied", STREAM, || {
            api_error(403, "PERMISSION_DENIED", "The caller does not have permission")
        }),
        TapeScenario::new("unknown_model", STREAM, || Script::always(GeminiStep::unknown_model()))
            .request_with(|_, request| request.model("gemini-0-nope")),
        TapeScenario::new("daily_quota", STREAM, || Script::always(GeminiStep::daily_quota())),
        TapeScenario::new("rate_limited_for_minutes", JSON, || {
            Script::always(GeminiStep::rate_limited(Some(400)))
        }),
        TapeScenario::new("rate_limited", STREAM, || Script::always(GeminiStep::rate_limited(None))),
        TapeScenario::new("rate_limited_for_a_second", JSON, || {
            Script::always(GeminiStep::rate_limited(Some(1)))
        }),
        TapeScenario::new("overloaded", STREAM, || api_error(503, "UNAVAILABLE", "The model is overloaded.")),
        TapeScenario::new("internal_error", STREAM, || {
            api_error(500, "INTERNAL", "An internal error has occurred.")
        }),
        TapeScenario::new("bad_gateway", JSON, || {
            Script::always(GeminiStep::http(502, "<html><body><h1>502 Bad Gateway</h1></body></html>"))
        }),
        TapeScenario::new("invalid_stream", STREAM, || {
            Script::always(GeminiStep::raw_sse("data: {not json\n\n"))
        }),
        TapeScenario::new("invalid_argument", JSON, || {
            api_error(400, "INVALID_ARGUMENT", "No such argument.")
        }),
        TapeScenario::new("dropped_connection", JSON, || Script::always(GeminiStep::drop_connection())),
        TapeScenario::new("dropped_midway", STREAM, || {
            Script::always(GeminiStep::text("The answer ").and_text("is 4.").drop_midway())
        }),
    ]
}

fn answers() -> Vec<TapeScenario> {
    vec![
        TapeScenario::new("empty", STREAM, || Script::always(GeminiStep::empty())),
        TapeScenario::new("blocked", JSON, || Script::always(GeminiStep::blocked())),
        TapeScenario::new("unsafe", STREAM, || Script::always(GeminiStep::empty().finish("SAFETY"))),
        TapeScenario::new("only_thoughts", JSON, || Script::always(GeminiStep::thought("Hm."))),
        TapeScenario::new("empty_at_the_token_limit", STREAM, || {
            Script::always(GeminiStep::empty().finish("MAX_TOKENS"))
        }),
        TapeScenario::new("demo", &[Surface::Json, Surface::Acp], demo_script),
        TapeScenario::new("text_repeated", STREAM, || {
            let cut = GeminiStep::text("The answer ").finish(None);
            Script::new([cut, GeminiStep::text("The answer is 4.")])
        }),
        TapeScenario::new("interrupted", BOTH, || {
            Script::always(GeminiStep::text("The answer").finish(None))
        }),
        TapeScenario::new("truncated", STREAM, || {
            Script::always(GeminiStep::text("The beginning").finish("MAX_TOKENS"))
        }),
        TapeScenario::new("loop", ALL, || {
            Script::always(GeminiStep::call("list_directory", json!({"dir_path": "."})))
        }),
    ]
}

fn tokens(prompt: u64, candidates: u64, cached: u64, thoughts: u64) -> GeminiTokens {
    GeminiTokens { prompt, candidates, cached, thoughts, total: None }
}

/// Returns a step that announces a file and writes it.
fn write_number(n: usize) -> GeminiStep {
    let args = json!({"file_path": format!("{n}.txt"), "content": format!("{n}\n")});
    GeminiStep::text(format!("File {n}.")).and_call("write_file", args)
}

/// Returns two turns with 3,000 prompt tokens in total (1,200 of them cached), 300 answer tokens and 70 thought tokens.
fn two_turns() -> Script {
    let first = write_number(1).usage(tokens(1000, 100, 200, 50));
    // The delay of the model ensures that the record of the first turn is read before the second.
    Script::new([first, GeminiStep::text("Done.").usage(tokens(2000, 200, 1000, 20)).delay(300)])
}

/// Returns three turns: three parallel calls, one call, and an answer.
#[must_use]
pub fn parallel_calls() -> Script {
    let read = ("read_file", json!({"file_path": "a.txt"}));
    let write = |path: &str| ("write_file", json!({"file_path": path, "content": "x\n"}));
    Script::new([
        GeminiStep::calls([write("a.txt"), write("b.txt"), ("list_directory", json!({"dir_path": "."}))])
            .usage(tokens(1000, 100, 200, 50)),
        GeminiStep::calls([read]).usage(tokens(2000, 50, 1000, 30)).delay(300),
        GeminiStep::text("Done.").usage(tokens(3000, 200, 2000, 20)).delay(300),
    ])
}

fn usage() -> Vec<TapeScenario> {
    vec![
        TapeScenario::new("two_turns", &[Surface::Json, Surface::Acp], two_turns),
        TapeScenario::new("parallel_calls", ALL, parallel_calls),
        TapeScenario::new("two_turns_with_own_prices", STREAM, two_turns).prices(|| {
            let mut price = Price::default();
            (price.input, price.output) = (10.0, 100.0);
            PriceTable::built_in().with([(crate::MODEL.to_owned(), price)].into())
        }),
        TapeScenario::new("two_turns_without_a_price", STREAM, two_turns)
            .request_with(|_, request| request.model("gemini-0-unpriced")),
        TapeScenario::new("failed_after_a_turn", BOTH, || {
            let refused = GeminiStep::api_error(403, "PERMISSION_DENIED", "No more.", json!(null));
            Script::new([write_number(1).usage(tokens(1000, 100, 200, 50)), refused])
        }),
    ]
}

/// Returns an agent that writes one file per second until a limit stops it.
fn endless() -> Script {
    Script::new((1..20).map(|n| write_number(n).delay(800).usage(tokens(1000, 100, 0, 50))))
}

fn limits() -> Vec<TapeScenario> {
    vec![
        TapeScenario::new("max_turns", &[Surface::Json, Surface::Acp], endless).request_with(
            |_, mut request| {
                request.limits.max_turns = Some(2);
                request
            },
        ),
        TapeScenario::new("max_tool_calls", BOTH, endless).request_with(|_, mut request| {
            request.limits.max_tool_calls = Some(2);
            request
        }),
        TapeScenario::new("max_tokens", STREAM, endless).request_with(|_, mut request| {
            request.limits.max_tokens = Some(2400);
            request
        }),
        TapeScenario::new("max_output_tokens", STREAM, endless).request_with(|_, mut request| {
            request.limits.max_output_tokens = Some(400);
            request
        }),
        TapeScenario::new("max_cost", JSON, endless).request_with(|_, mut request| {
            request.limits.max_cost = Some(0.0015);
            request
        }),
        TapeScenario::new("agent_turns", BOTH, || {
            Script::new((0..5).map(|n| write(&format!("{n}.txt"), "x")))
        })
        .prepare(|stage| {
            settings(
                stage,
                r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"model":{"maxSessionTurns":2}}"#,
            )
        }),
        TapeScenario::new("idle", JSON, || Script::always(GeminiStep::hang()))
            .request_with(|_, request| request.idle_timeout(Duration::from_secs(3))),
        TapeScenario::new("idle_midway", STREAM, || {
            Script::always(GeminiStep::text("Half an ").and_text("answer").hang_midway())
        })
        .request_with(|_, request| request.idle_timeout(Duration::from_secs(3))),
        TapeScenario::new("tool_timeout", STREAM, || {
            Script::new([
                write("kept.txt", "kept\n"),
                GeminiStep::text("Then a long command.")
                    .and_call("run_shell_command", json!({"command": "touch begun && sleep 300"})),
                GeminiStep::text("Never said."),
            ])
        })
        .request_with(|_, request| {
            request.idle_timeout(Duration::from_secs(30)).tool_timeout(Duration::from_secs(4))
        }),
    ]
}

fn changes() -> Vec<TapeScenario> {
    vec![
        TapeScenario::new("changes", JSON, || {
            let edit = json!({
                "file_path": "edit.txt", "instruction": "Say new.", "old_string": "old", "new_string": "new",
            });
            let late = json!({"command": "sleep 0.3; echo late > late.txt", "is_background": true});
            Script::new([
                write("new.txt", "one\ntwo\n"),
                GeminiStep::call("replace", edit),
                shell("echo made > made.txt && rm gone.txt && mv before.txt after.txt"),
                GeminiStep::call("run_shell_command", late),
                // These two calls have no effect: the first file is unchanged, and the second cannot exist.
                write("same.txt", "same\n"),
                write("edit.txt/below.txt", "never"),
                GeminiStep::text("Done.").delay(2000),
            ])
        })
        .prepare(|stage| {
            for (path, content) in
                [("edit.txt", "old\n"), ("gone.txt", "x"), ("before.txt", "b\n"), ("same.txt", "same\n")]
            {
                stage.file(path, content);
            }
            stage
        }),
        TapeScenario::new("unavailable_write", STREAM, || {
            Script::new([write("a.txt", "a"), GeminiStep::text("No.")])
        })
        .prepare(|stage| {
            stage.file("a.txt", "before");
            stage
        })
        .request_with(|_, request| request.permission_mode(PermissionMode::Default)),
    ]
}
