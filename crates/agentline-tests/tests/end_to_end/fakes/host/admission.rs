//! Tests runs that a model's service refuses: which are retried, when, and how many run at once.

use crate::fakes::host::{stage, start, start_with};
use serde_json::{Value, json};
use std::{
    fs,
    time::{Duration, Instant},
};

#[test]
fn rate_limits_reduce_concurrency_temporarily() {
    let stage = stage();
    let mut program = start_with(&stage, &json!({"max_concurrent": 8, "pool": {"max_processes": 2}}));
    assert_eq!(program.call("pool/status", json!({}))["runs"]["allowed"], 8);
    let file = stage.path().join("refusals");
    let started_at = Instant::now();
    let prompt = format!("refused 2 {} Too many requests\nsay at last", file.display());
    let id = program.send("run", json!({"prompt": prompt, "run": "r"}));
    let waits: Vec<u64> = (2..=3)
        .map(|attempt| {
            let retry = program.question("run/retry")["params"].clone();
            assert_eq!((&retry["run"], &retry["attempt"]), (&json!("r"), &json!(attempt)), "{retry}");
            assert!(retry["reason"].as_str().unwrap().contains("Too many"), "{retry}");
            retry["wait_ms"].as_u64().unwrap()
        })
        .collect();
    assert!(waits[0] >= 1000 && waits[1] >= 2000, "each wait is twice the previous one: {waits:?}");
    assert_eq!(program.call("pool/status", json!({}))["runs"]["allowed"], 2, "halved twice");
    let outcome = program.answer(id)["result"].clone();
    assert_eq!((&outcome["text"], &outcome["attempts"]), (&json!("at last"), &json!(3)), "{outcome}");
    assert!(started_at.elapsed() >= Duration::from_millis(waits.iter().sum()), "{waits:?}");
    assert_eq!(fs::read(&file).unwrap().len(), 3, "three requests");
    // Each success raises the limit a little, up to the original value.
    let mut allowed = Vec::new();
    for _ in 0..40 {
        program.run("say well");
        allowed.push(program.call("pool/status", json!({}))["runs"]["allowed"].as_u64().unwrap());
    }
    assert!(allowed.is_sorted() && allowed[0] < 8 && allowed[39] == 8, "{allowed:?}");
}

#[test]
fn non_retryable_failures_are_not_retried() {
    let stage = stage();
    let mut program = start_with(&stage, &json!({"max_retries": 5}));
    let file = |name: &str| stage.path().join(name);
    let refused = |name: &str, message: &str| format!("refused 99 {} {message}", file(name).display());
    let asked = |name: &str| fs::read(file(name)).map_or(0, |bytes| bytes.len());
    let deadline =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 3000;
    let cases: Vec<(&str, Value, &str)> = vec![
        (
            "daily",
            json!({"prompt": refused("daily", "You have exhausted your daily quota on this model.")}),
            "rate_limited",
        ),
        // Runs do not wait for a very long retry delay.
        ("long", json!({"prompt": refused("long", "Quota exceeded. Please retry in 3600s")}), "rate_limited"),
        (
            "short",
            json!({"prompt": refused("short", "Too many requests"), "max_retry_wait_s": 0}),
            "rate_limited",
        ),
        (
            "deadline",
            json!({"prompt": refused("deadline", "Please retry in 3500s"), "max_retry_wait_s": 9999,
            "deadline": deadline}),
            "rate_limited",
        ),
        ("never", json!({"prompt": refused("never", "Too many requests"), "max_retries": 0}), "rate_limited"),
        ("auth", json!({"prompt": "error -32000 Authentication required"}), "not_authenticated"),
        ("wrong", json!({"prompt": "error 400 Request contains an invalid argument."}), "failed"),
    ];
    for (name, params, verdict) in cases {
        let started_at = Instant::now();
        let outcome = program.call("run", params);
        assert_eq!(outcome["verdict"], verdict, "{name}: {outcome}");
        assert_eq!(outcome.get("attempts"), None, "{name}: {outcome}");
        assert!(asked(name) <= 1, "{name}: {} requests", asked(name));
        assert!(started_at.elapsed() < Duration::from_secs(60), "{name}");
        if name == "daily" {
            assert_eq!(outcome["error"]["retryable"], false, "{outcome}");
        }
    }
    assert!(!program.buffered.iter().any(|m| m["method"] == "run/retry"), "{:?}", program.buffered);
}

#[test]
fn run_that_changed_files_is_not_retried_and_waiting_run_can_be_cancelled() {
    let stage = stage();
    let mut program = start_with(&stage, &json!({}));
    let file = stage.path().join("refusals");
    let refused = format!("refused 99 {} Please retry in 30s", file.display());
    let outcome = program.call("run", json!({"prompt": format!("tool write_file x.txt hi\n{refused}")}));
    assert_eq!((&outcome["verdict"], outcome.get("attempts")), (&json!("rate_limited"), None), "{outcome}");
    assert_eq!(fs::read(&file).unwrap().len(), 1);
    let id = program.send("run", json!({"prompt": refused, "run": "waits"}));
    program.question("run/retry");
    let started_at = Instant::now();
    program.call("cancel", json!({"run": "waits"}));
    let outcome = program.answer(id)["result"].clone();
    assert_eq!(outcome["verdict"], "cancelled", "{outcome}");
    assert!(outcome["error"]["message"].as_str().unwrap().contains("Please retry in 30s"), "{outcome}");
    assert!(started_at.elapsed() < Duration::from_secs(20), "{:?}", started_at.elapsed());
    assert_eq!(fs::read(&file).unwrap().len(), 2);
}

#[test]
fn concurrency_is_limited_and_runs_start_in_order() {
    let stage = stage();
    let log = stage.path().join("log");
    for most in [1, 3] {
        let mut program = start_with(&stage, &json!({"max_concurrent": most}));
        let script = |n: usize| {
            let line = |word: &str| format!("echo {word} {n} >> {}", log.display());
            format!("run {}; sleep 0.2; {}\nsay {n}", line("in"), line("out"))
        };
        let ids: Vec<u64> = (0..9).map(|n| program.send("run", json!({"prompt": script(n)}))).collect();
        for (n, id) in ids.into_iter().enumerate() {
            assert_eq!(program.answer(id)["result"]["text"], n.to_string());
        }
        let written = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        let (mut now, mut peak, mut order) = (0_i32, 0, Vec::new());
        for line in written.lines() {
            let (word, n) = line.split_once(' ').unwrap();
            now += if word == "in" { 1 } else { -1 };
            peak = peak.max(now);
            if word == "in" {
                order.push(n.parse::<usize>().unwrap());
            }
        }
        assert!(peak <= most && now == 0, "{peak} at once: {written}");
        if most == 1 {
            assert!(order.is_sorted(), "{order:?}");
        }
        let standing = program.call("pool/status", json!({}))["runs"].clone();
        assert_eq!(standing, json!({"active": 0, "waiting": 0, "allowed": most}));
    }
}

#[test]
fn runs_refused_together_all_succeed_at_different_times() {
    let mut program = start();
    let file = program.stage.path().join("refusals");
    let prompt = format!("refused 6 {} Please retry in 1s\nsay through", file.display());
    let params = json!({"prompt": prompt, "permission_mode": "plan", "max_retries": 8});
    let ids: Vec<u64> = (0..6).map(|_| program.send("run", params.clone())).collect();
    for id in ids {
        let outcome = program.answer(id)["result"].clone();
        assert_eq!(outcome["text"], "through", "{outcome}");
    }
    let waits: Vec<u64> = program
        .buffered
        .iter()
        .filter(|m| m["method"] == "run/retry")
        .map(|m| m["params"]["wait_ms"].as_u64().unwrap())
        .collect();
    assert_eq!(waits.len(), 6, "{waits:?}");
    assert!(waits.iter().all(|wait| (1000..10_000).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait != waits[0]), "jitter: {waits:?}");
}
