//! Tests the formats of `--output`: the exact content of standard output.

use crate::cli::{DEMO_TAPE, user::User};
use serde_json::{Value, json};

fn replayed(form: &str) -> crate::cli::user::Done {
    let done = User::new().agentline(&["replay", DEMO_TAPE, "-o", form]);
    assert_eq!(done.code, 0, "{}", done.err);
    done
}

/// The text of the demo, one line per turn.
pub(crate) const TEXT: &str = "\
I will write a small program that prints the primes below 50.
The range starts at 1, which is not a prime. I will correct that.
Is there a list of wishes for the output?
There is none, so I keep it simple and leave a note.
Done. `primes.py` prints the primes below 50, and `SUMMARY.txt` says so. I asked for `WISHES.txt` too, but there is no such file.
";

#[test]
fn text_output_is_the_answer_text_only() {
    let done = replayed("text");
    assert_eq!((done.out.as_str(), done.err.as_str()), (TEXT, ""));
}

#[test]
fn json_output_is_the_outcome() {
    let outcome = replayed("json").json();
    assert_eq!(outcome["schema"], "agentline.outcome/1");
    assert_eq!((&outcome["agent"], &outcome["agent_version"]), (&json!("gemini"), &json!("0.61.0")));
    assert_eq!((&outcome["verdict"], &outcome["error"]), (&json!("done"), &Value::Null));
    assert_eq!(outcome["text"], TEXT.lines().last().unwrap());
    assert_eq!((&outcome["turns"], &outcome["tool_calls"]), (&json!(5), &json!(4)));
    let files: Vec<_> = outcome["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (&f["path"], &f["change"], &f["source"]))
        .collect();
    assert_eq!(
        files,
        [
            (&json!("SUMMARY.txt"), &json!("created"), &json!("shell")),
            (&json!("primes.py"), &json!("created"), &json!("tool"))
        ]
    );
    assert_eq!(outcome["usage"]["input_tokens"], 42590);
    assert_eq!(outcome["usage"]["thought_tokens"], 100);
    assert!(outcome["cost_usd"].as_f64().is_some_and(|usd| (0.02..0.021).contains(&usd)), "{outcome}");
    assert_eq!(outcome.get("messages"), None);
}

#[test]
fn events_output_is_numbered_lines_ending_with_the_outcome() {
    let done = replayed("events");
    let lines = done.lines();
    assert_eq!(lines[0]["type"], "started");
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(line["seq"], i + 1);
        assert!(line["at_ms"].is_u64() && line["from"].is_string(), "{line}");
    }
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "outcome");
    assert_eq!(last["outcome"], replayed("json").json());
    let text: String =
        lines.iter().filter(|l| l["type"] == "text").filter_map(|l| l["text"].as_str()).collect();
    assert_eq!(text, TEXT.replace('\n', ""));
    let tools: Vec<&str> =
        lines.iter().filter(|l| l["type"] == "tool_use").filter_map(|l| l["name"].as_str()).collect();
    assert_eq!(tools, ["Write", "Edit", "Read", "Bash"]);
}

#[test]
fn claude_output_matches_claude_code() {
    let lines = replayed("claude").lines();
    let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let mut expected = vec!["system"];
    expected.extend(["assistant", "assistant", "user"].repeat(4));
    expected.extend(["assistant", "result"]);
    assert_eq!(types, expected);
    assert_eq!(lines[0]["subtype"], "init");
    assert_eq!(lines[2]["message"]["content"][0]["name"], "Write");
    assert_eq!(lines[9]["message"]["content"][0]["is_error"], true);
    let result = lines.last().unwrap();
    assert_eq!((&result["subtype"], &result["is_error"]), (&json!("success"), &json!(false)));
    assert_eq!(result["result"], TEXT.lines().last().unwrap());
    assert_eq!(result["usage"]["input_tokens"], 42590 - 33500);
    assert_eq!(result["usage"]["output_tokens"], 475);
}

#[test]
fn provider_output_is_the_answer_and_files() {
    let done = replayed("provider");
    let response = serde_json::to_string(&TEXT.replace('\n', "")).unwrap();
    let expected =
        format!("{{\"response\":{response},\"files\":{{\"SUMMARY.txt\":null,\"primes.py\":null}}}}\n");
    assert_eq!(done.out, expected);
}

#[test]
fn promptfoo_output_is_an_answer_or_an_error() {
    let view = replayed("promptfoo").json();
    assert_eq!(view["output"], TEXT.lines().last().unwrap());
    assert_eq!(
        view["tokenUsage"],
        json!({"prompt": 42590, "completion": 375, "cached": 33500, "total": 43065})
    );
    assert_eq!(view["metadata"]["verdict"], "done");
    assert!(view["cost"].is_f64() && view["sessionId"].is_string() && view["raw"].is_string());

    let user = User::with_fault("exit_code_after_text", r#"{"code":3}"#);
    let failed = user.agentline(&["run", "-o", "promptfoo", "hi"]);
    assert_eq!(failed.code, 1);
    let view = failed.json();
    assert!(view["error"].as_str().unwrap().starts_with("Gemini CLI error: Exit code 3: "), "{view}");
    assert_eq!(view.get("output"), None);
    assert!(view["raw"].is_string() && view["tokenUsage"].is_object());
}

#[test]
fn messages_are_included_on_request() {
    let user = User::new();
    let outcome = user.agentline(&["replay", DEMO_TAPE, "-o", "json", "--messages"]).json();
    let messages = outcome["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(
        roles,
        ["assistant", "user", "assistant", "user", "assistant", "user", "assistant", "user", "assistant"]
    );
    assert_eq!(messages[0]["content"][1]["type"], "tool_use");
    assert_eq!(messages[0]["_original"]["from"], "stdout");
    let last = user.agentline(&["replay", DEMO_TAPE, "-o", "events", "--messages"]).lines().pop().unwrap();
    assert_eq!(last["outcome"], outcome);
}

#[test]
fn every_output_format_reports_failures() {
    for form in ["json", "events", "claude", "provider", "promptfoo"] {
        let done = User::with_fault("exit_41", "{}").agentline(&["run", "-o", form, "hi"]);
        assert_eq!(done.code, 4, "{form}");
        let last = done.lines().pop().unwrap_or_else(|| panic!("{form} printed nothing"));
        let verdict = match form {
            "json" => &last["error"]["kind"],
            "events" => &last["outcome"]["error"]["kind"],
            "claude" => &last["verdict"],
            "provider" => &json!("not_authenticated"),
            _ => &last["metadata"]["verdict"],
        };
        assert_eq!(verdict, "not_authenticated", "{form}: {last}");
    }
}

#[test]
fn colours_are_used_only_if_enabled() {
    let user = User::with_fault("exit_41", "{}");
    assert!(!user.agentline(&["run", "hi"]).err.contains('\u{1b}'));
    assert!(user.agentline(&["--color", "always", "run", "hi"]).err.contains('\u{1b}'));
    assert!(!user.env("NO_COLOR", "1").agentline(&["run", "hi"]).err.contains('\u{1b}'));
}

#[test]
fn run_that_cannot_be_prepared_still_has_an_outcome() {
    let user = User::new();
    let nowhere = user.path("no/such/folder");
    let done = user.env("TMPDIR", nowhere.to_string_lossy()).agentline(&["run", "hi", "-o", "json"]);
    let outcome = done.json();
    assert_eq!(
        (done.code, &outcome["verdict"], &outcome["error"]["kind"]),
        (1, &"failed".into(), &"spawn".into())
    );
    assert!(outcome["error"]["hint"].as_str().unwrap().contains("TMPDIR"), "{outcome}");
}

#[test]
fn files_of_agentline_are_not_reported_as_changes() {
    // The agent writes into its home as the real one does; its home is in our private directory.
    let user =
        User::with_script("echo x > \"${GEMINI_CLI_HOME:-$HOME}/of-the-agent\"; echo x > made; exit 1");
    std::fs::create_dir(user.path("tmp")).unwrap();
    let tmp = user.path("tmp");
    let outcome = user.env("TMPDIR", tmp.to_string_lossy()).agentline(&["run", "hi", "-o", "json"]).json();
    let paths: Vec<&str> =
        outcome["files"].as_array().unwrap().iter().filter_map(|f| f["path"].as_str()).collect();
    assert_eq!(paths, ["made"]);

    // This also holds if the workspace is the home: the agent's sessions are not reported, other files in its directory
    // are.
    let agent = "mkdir -p .gemini/tmp/ws/chats; echo x > .gemini/tmp/ws/chats/session-1.json; echo x > .gemini/GEMINI.md";
    let user = User::with_script(&format!("{agent}; exit 1"));
    let home = user.path("");
    let outcome = user.env("HOME", home.to_string_lossy()).agentline(&["run", "hi", "-o", "json"]).json();
    let paths: Vec<&str> =
        outcome["files"].as_array().unwrap().iter().filter_map(|f| f["path"].as_str()).collect();
    assert_eq!(paths, [".gemini/GEMINI.md"]);
}

#[test]
fn messages_without_a_session_come_from_the_stream_and_are_marked() {
    let outcome = User::new().agentline(&["run", "-o", "json", "--messages", "hi"]).json();
    assert_eq!(outcome["messages"][0]["role"], "assistant", "{outcome}");
    let warnings = outcome["warnings"].as_array().unwrap();
    let warning = warnings.iter().find(|warning| warning["code"] == "messages_incomplete");
    assert!(warning.is_some_and(|w| w["message"].as_str().unwrap().contains("no session")), "{warnings:?}");
    let without = User::new().agentline(&["run", "-o", "json", "hi"]).json();
    assert!(!without["warnings"].to_string().contains("messages_incomplete"), "{without}");
}

/// The provider for promptfoo, called as promptfoo does, with an agent that is started for each call.
#[test]
#[cfg(unix)]
fn promptfoo_provider_answers_in_promptfoo_format() {
    let provider = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/promptfoo/index.mjs");
    let user = User::new().env("AGENTLINE_BIN", env!("CARGO_BIN_EXE_agentline-under-test"));
    user.write(
        "call.mjs",
        &format!(
            "import Provider from '{provider}';
             const config = {{ model: 'gemini-2.5-pro', timeout_ms: 60000, approval_mode: 'auto_edit', useVertexAI: false,
                               surface: 'stream-json', inherit_process_env: true }};
             const provider = new Provider({{ id: 'mine', config }});
             console.log(JSON.stringify([provider.id(), await provider.callApi('hi')]));"
        ),
    );
    let answers = user.node(&["call.mjs"]).json();
    assert_eq!(answers[0], "mine");
    assert!(answers[1]["output"].is_string() && answers[1]["tokenUsage"]["total"].is_u64(), "{answers}");
}
