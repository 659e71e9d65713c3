//! Tests the Python package as its users get it: installed by pip, type-checked, and tested by pytest with a fake agent
//! and with the real agents and scripted models. The tests themselves are in `integrations/python/tests`.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use crate::{
    agents::acp_agents::harness::{CLAUDE, CODEX, OPENCODE, TestedAgent, stage},
    clients::tool_values,
};
use agentline_mock::{
    gemini::{GeminiModel, GeminiStep, SETTINGS, Script},
    scripted::ModelStep,
};
use agentline_tests::{Python, needs_real_gemini, real_gemini, skipped};
use serde_json::json;
use std::process::Command;

/// Prints the output of pytest or the type checker if they fail.
fn passes(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{out}\n{err}");
    out.into_owned()
}

/// Runs the tests with this mark.
fn pytest(python: &Python, mark: &str) -> Command {
    let mut command = python.command();
    command
        .args(["-m", "pytest", "-q", "--tb=short", "--color=no", "-p", "no:cacheprovider", "-m", mark])
        .env("AGENTLINE_BIN", env!("CARGO_BIN_EXE_agentline-under-test"))
        .env("AGENTLINE_TEST_FAKE_ACP", env!("CARGO_BIN_EXE_fake-acp"))
        .env("AGENTLINE_TEST_FAKE_GEMINI", env!("CARGO_BIN_EXE_fake-gemini"));
    command
}

/// Returns the number of tests that passed. Skipped tests do not count.
fn passed(out: &str) -> usize {
    let last = out.lines().last().unwrap_or_default();
    assert!(!last.contains("skipped"), "{out}");
    last.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{out}"))
}

#[test]
fn the_package_is_typed() {
    let Some(python) = Python::find() else { return skipped("the types of the Python package") };
    let cache = tempfile::tempdir().unwrap();
    let mut mypy = python.command();
    mypy.args(["-m", "mypy", "--strict", "--no-color-output", "--python-version", "3.11", "--cache-dir"])
        .arg(cache.path())
        .args(["agentline", "tests/typed_use.py", "examples"])
        .env("MYPYPATH", "examples")
        .env_remove("PYTHONPATH");
    passes(&mut mypy);
    // The installed package is marked as typed.
    passes(python.command().current_dir(cache.path()).args([
        "-c",
        "import agentline, pathlib; assert (pathlib.Path(agentline.__file__).parent / 'py.typed').exists(); \
         assert 'site' in agentline.__file__",
    ]));
}

#[test]
fn on_a_fake_agent() {
    let Some(python) = Python::find() else { return skipped("the Python package on a fake agent") };
    let out = passes(&mut pytest(&python, "not gemini_cli and not other_agent and not wink"));
    assert!(passed(&out) > 100, "{out}");
}

#[test]
fn with_the_real_wink_and_pydantic() {
    let Some(python) = Python::with_wink() else {
        return skipped("the Python package with WINK (needs Python 3.13)");
    };
    let out = passes(&mut pytest(&python, "wink"));
    assert!(passed(&out) >= 8, "{out}");
}

#[test]
fn on_the_real_agent() {
    needs_real_gemini!();
    let Some(python) = Python::find() else { return skipped("the Python package on the real agent") };
    let model = GeminiModel::matching(scripts()).unwrap();
    let out = passes(
        pytest(&python, "gemini_cli")
            .env("AGENTLINE_TEST_GEMINI", real_gemini().unwrap().path)
            .env("AGENTLINE_TEST_MODEL", model.url())
            .env("AGENTLINE_TEST_SETTINGS", SETTINGS),
    );
    assert!(passed(&out) > 10, "{out}");
    // The function of a Python program and its result reached the model.
    let asked = model.requests_to_main();
    assert!(asked.iter().any(|request| request.offered_tools().contains(&"mcp_shop_lookup".to_owned())));
    tool_values::assert_received(&model);
}

/// Runs the tests of the adapter with another real agent, which calls a function and hands in a typed answer.
fn adapter_test(tested: TestedAgent) {
    let Some(python) = Python::find() else { return skipped("the adapters of the Python package") };
    let review = json!({"data": {"summary": "Order 7 was sent.", "score": 9}});
    let steps = vec![
        tested.hosted("agentline", "lookup", json!({"order": 7})),
        tested.hosted("agentline", "structured_output", review),
        ModelStep::text("I have handed it in."),
    ];
    let talk = vec![tested.write("a.txt"), ModelStep::text("It is written.")];
    let stage = stage!(tested, vec![("Look up the order", steps), ("Write a file", talk)]);
    let mut variables = stage.stage.variables().clone();
    variables.insert(tested.variable.into(), stage.stage.agent.program.to_string_lossy().into_owned());
    let setup = json!({"agent": tested.name, "env": variables, "workspace": stage.stage.workspace()});
    let mut command = pytest(&python, "other_agent");
    assert_eq!(passed(&passes(command.env("AGENTLINE_TEST_AGENT", setup.to_string()))), 1);
    // The result of the Python function reached the model.
    let requests = stage.stage.model.requests();
    let results: Vec<String> = requests.iter().flat_map(|request| request.tool_results()).collect();
    assert!(results.iter().any(|result| result.contains("sent on Monday")), "{results:?}");
    assert_eq!(stage.read("a.txt").as_deref(), Some("new\n"));
}

#[test]
fn adapter_of_claude_on_the_real_agent() {
    adapter_test(CLAUDE);
}

#[test]
fn adapter_of_codex_on_the_real_agent() {
    adapter_test(CODEX);
}

#[test]
fn adapter_of_opencode_on_the_real_agent() {
    adapter_test(OPENCODE);
}

/// Returns the model's answers by words of the prompt.
fn scripts() -> Vec<(&'static str, Script)> {
    let write = |file: &str, content: &str| json!({"file_path": file, "content": content});
    let hand_in = |value| GeminiStep::call("mcp_agentline_structured_output", json!({ "data": value }));
    let review = |issues| hand_in(json!({"summary": "Small and clear.", "issues": issues, "score": 9}));
    let mend = json!({
        "file_path": "b.txt", "instruction": "Mend it.", "old_string": "two", "new_string": "two, mended",
    });
    vec![
        ("plan.md", Script::always(GeminiStep::text("I have read the plan."))),
        ("greet me", Script::always(GeminiStep::text("Hello ").and_text("from the model."))),
        ("say goodbye", Script::always(GeminiStep::text("Goodbye."))),
        (
            "use my tool",
            Script::new([
                GeminiStep::call("mcp_shop_lookup", json!({"order": 7})),
                GeminiStep::call("mcp_shop_lookup", json!({"order": 8})),
                GeminiStep::text("One was sent, the other is not there."),
            ]),
        ),
        ("use every value", Script::new([tool_values::call_all(), GeminiStep::text("I have them.")])),
        (
            "use a tool of",
            Script::new([
                GeminiStep::call("list_directory", json!({"dir_path": "."})),
                GeminiStep::call("mcp_agentline_lookup", json!({"order": 7})),
                GeminiStep::text("It was sent."),
            ]),
        ),
        (
            "write two files",
            Script::new([
                GeminiStep::text("I begin.")
                    .and_call("write_file", write("a.txt", "one\n"))
                    .and_call("write_file", write("b.txt", "two\n")),
                GeminiStep::call("replace", mend),
                GeminiStep::text("Both are written."),
            ]),
        ),
        (
            "ask before you write",
            Script::new([
                GeminiStep::call("write_file", write("asked.txt", "x")),
                GeminiStep::text("I may not."),
            ]),
        ),
        ("the second part is missing", Script::always(GeminiStep::text("And here is the second."))),
        ("do both parts", Script::always(GeminiStep::text("Here is the first part."))),
        (
            "review the changes",
            Script::new([
                review(json!("none")),
                review(json!(["no test"])),
                GeminiStep::text("I have handed it in."),
            ]),
        ),
        ("hang", Script::always(GeminiStep::hang())),
        ("refuse my key", Script::always(GeminiStep::invalid_key())),
    ]
}
