//! Runs the same prompts through promptfoo twice: with our provider, and with its `exec:` provider that calls Gemini
//! CLI for each. An evaluation of the same size with promptfoo's `echo` is subtracted from both, so that its own
//! startup does not count. Processor time is that of the whole process tree, including orphans.

mod tree;

use agentline_mock::gemini::{GeminiModel, GeminiStep};
use agentline_tests::{InstalledPromptfoo, MODEL, PROVIDER, TestStage, real_gemini};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt as _, time::Instant};

/// The number of prompts, unless `AGENTLINE_BENCH_PROMPTS` is set.
const PROMPTS: usize = 40;

/// The cost of an evaluation in seconds.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

pub(crate) fn run() {
    let Some(gemini) = real_gemini() else { return println!("skipped: AGENTLINE_REAL_AGENTS=off") };
    let Some(promptfoo) = InstalledPromptfoo::find(env!("CARGO_BIN_EXE_agentline-under-test")) else {
        return;
    };
    let prompts =
        std::env::var("AGENTLINE_BENCH_PROMPTS").ok().and_then(|n| n.parse().ok()).unwrap_or(PROMPTS);
    let model = GeminiModel::by_prompt(|request| {
        let prompt = request.prompt();
        GeminiStep::text(format!("answer {}", prompt.split_whitespace().last().unwrap_or_default()))
    });
    let stage = TestStage::with_model(model.expect("a free port"));
    let script = stage.outside().join("gemini.sh");
    let call = format!("exec '{}' -m {MODEL} --skip-trust -p \"$1\"", gemini.path.display());
    fs::write(&script, format!("#!/bin/sh\n{call}\n")).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a program");
    let ours = json!({"id": format!("file://{PROVIDER}/index.mjs"), "config": {"model": MODEL, "working_dir": "ws"}});
    let exec = json!(format!("exec: {}", script.display()));
    println!(
        "{prompts} prompts, seconds per prompt without promptfoo's own time: wall, processor time of the tree"
    );
    for lanes in ["1", "4"] {
        let evaluate =
            |provider: &Value, answered| evaluate(&promptfoo, &stage, provider, prompts, lanes, answered);
        let echo = evaluate(&json!("echo"), false);
        let by_us = evaluate(&ours, true);
        let by_exec = evaluate(&exec, true);
        let a_prompt = |cost: Cost| Cost {
            wall: (cost.wall - echo.wall) / prompts as f64,
            cpu: (cost.cpu - echo.cpu) / prompts as f64,
        };
        let (us, them) = (a_prompt(by_us), a_prompt(by_exec));
        println!(
            "concurrency {lanes}: promptfoo alone {:.1} s, {:.1} s of processor time",
            echo.wall, echo.cpu
        );
        println!("  exec: gemini       {:.3}  {:.3}", them.wall, them.cpu);
        println!("  google:gemini-cli  {:.3}  {:.3}", us.wall, us.cpu);
        println!("  ratio              {:.1}x  {:.1}x", them.wall / us.wall, them.cpu / us.cpu);
    }
}

/// Runs one evaluation, in which no answer may be lost.
fn evaluate(
    promptfoo: &InstalledPromptfoo,
    stage: &TestStage,
    provider: &Value,
    prompts: usize,
    lanes: &str,
    answered: bool,
) -> Cost {
    let tests: Vec<Value> = (0..prompts).map(|n| json!({"vars": {"say": format!("question {n}")}})).collect();
    let config = json!({"providers": [provider], "prompts": ["{{say}}"], "tests": tests});
    let args = ["-j", lanes, "--no-cache"];
    let before = tree::cpu();
    let start = Instant::now();
    let done = promptfoo.eval(stage, &config, &args);
    tree::reap();
    let cost = Cost { wall: start.elapsed().as_secs_f64(), cpu: tree::cpu() - before };
    assert_eq!(done.results.len(), prompts, "{}", done.output);
    for result in done.results.iter().filter(|_| answered) {
        let n =
            result["vars"]["say"].as_str().and_then(|say| say.strip_prefix("question ")).unwrap_or_default();
        let output = result["response"]["output"].as_str().unwrap_or_default();
        assert_eq!(output.trim(), format!("answer {n}"), "{result:#}");
    }
    cost
}
