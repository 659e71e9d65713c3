//! Tests permission modes and the rules of `--allow` and `--deny` with the real Gemini CLI: what is permitted and
//! denied, and that neither can be evaded.

use agentline::{Event, Outcome, PermissionMode, Record, RunRequest, Surface, ToolStatus, Verdict};
use agentline_core::Denial;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, tapes::replay_on};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs};

/// A tool, the arguments of a call, and its expected result.
type Call = (&'static str, Value, ToolStatus);

/// Lets the model make all calls in one turn, and compares each result.
fn check(calls: &[Call], ask: impl Fn(&TestStage) -> RunRequest) -> (TestStage, Outcome) {
    let steps = calls.iter().map(|(tool, args, _)| (*tool, args.clone()));
    let stage = TestStage::new(Script::new([GeminiStep::calls(steps), GeminiStep::text("done")]));
    stage.file("src/here.txt", "old");
    stage.file("secret/key.txt", "old");
    let (records, outcome) = stage.play(ask(&stage));
    assert_calls(calls, &records, &outcome);
    (stage, outcome)
}

#[track_caller]
fn assert_calls(calls: &[Call], records: &[Record], outcome: &Outcome) {
    // An id ends with the number of the call within its turn.
    let number = |id: &str| id.rsplit('_').next().and_then(|number| number.parse::<usize>().ok());
    let became: BTreeMap<usize, ToolStatus> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolResult(result) => Some((number(&result.tool_use_id)?, result.status)),
            _ => None,
        })
        .collect();
    let is_wrong = |(at, (.., status)): &(usize, &Call)| became.get(at) != Some(status);
    let wrong: Vec<_> = calls.iter().enumerate().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "expected {wrong:#?}\nbut {became:?}\n{}", outcome.stderr_tail);
    let denials = calls.iter().filter(|(.., status)| *status == ToolStatus::Denied).count();
    assert_eq!(outcome.verdict, if denials > 0 { Verdict::DoneWithDenials } else { Verdict::Done });
}

fn command(text: &str, status: ToolStatus) -> Call {
    ("run_shell_command", json!({"command": text, "description": "d"}), status)
}

fn write(path: impl Into<String>, status: ToolStatus) -> Call {
    ("write_file", json!({"file_path": path.into(), "content": "x"}), status)
}

use ToolStatus::{Denied, Ok as Done};

#[test]
fn allowed_command_and_directory_permit_no_other() {
    needs_real_gemini!();
    let mut cases = vec![
        command("echo", Done),
        command("echo a  'b; c'", Done),
        command("echo a && echo b", Done),
        command("echox", Denied),
        command("X=1 echo a", Denied),
        // A nested argument of the same name does not count.
        (
            "run_shell_command",
            json!({"command": "touch evil0", "description": "d", "more": {"command": "echo a"}}),
            Denied,
        ),
    ];
    for (i, form) in [
        "echo a && touch evil",
        "echo a; touch evil",
        "echo a\ntouch evil",
        "echo a & touch evil",
        "echo a | tee evil",
        "echo a > evil",
        "echo $(touch evil)",
        "echo `touch evil`",
        "echo \"$(touch evil)\"",
        "echo <(touch evil)",
        "echo a || touch evil",
        "(echo a; touch evil)",
        "if echo a; then touch evil; fi",
        "echo() { touch evil; }; echo a",
        "bash -c 'echo a; touch evil'",
    ]
    .iter()
    .enumerate()
    {
        cases.push(command(&form.replace("evil", &format!("evil{}", i + 1)), Denied));
    }
    let root = tempfile::tempdir().unwrap();
    let real = root.path().canonicalize().unwrap();
    let inside = |path: &str| real.join(path).to_string_lossy().into_owned();
    cases.extend([
        write("src/a.txt", Done),
        write("./src/b.txt", Done),
        write("src/deep/er/c..d.txt", Done),
        write(inside("src/absolute.txt"), Done),
        write("src/../esc1.txt", Denied),
        write("src/x/../../esc2.txt", Denied),
        write("./src/../esc3.txt", Denied),
        write("other/src/e.txt", Denied),
        write("srcx/f.txt", Denied),
        write("esc4.txt", Denied),
        write("/ws/esc5.txt", Denied),
        write(inside("esc6.txt"), Denied),
    ]);
    let _ = check(&cases, |stage| {
        let request = stage.request("go").working_dir(&real).permission_mode(PermissionMode::Default);
        request.allow("Bash(echo *)").allow("Write(src/**)")
    });
    let created: Vec<String> =
        fs::read_dir(&real).unwrap().flatten().map(|e| e.file_name().into_string().unwrap()).collect();
    assert_eq!(created, ["src"]);
    assert!(real.join("src/deep/er/c..d.txt").is_file() && real.join("src/absolute.txt").is_file());
}

#[test]
fn more_specific_rule_wins_across_lists() {
    needs_real_gemini!();
    let calls = [
        command("echo a", Done),
        command("echo a && echo b", Done),
        command("echo a; touch evil1", Denied),
        command("touch evil2", Denied),
        command("echo secret", Denied),
        write("src/a.txt", Done),
        write("b.txt", Denied),
        write("src/gen/c.txt", Denied),
    ];
    let (stage, _) = check(&calls, |stage| {
        let request = stage.request("go").permission_mode(PermissionMode::AcceptEdits);
        let request = request.deny("Bash").allow("Bash(echo *)").deny("Bash(echo secret)");
        request.deny("Write").allow("Write(src/**)").deny("Write(src/gen/**)")
    });
    let written = ["src/a.txt", "b.txt", "src/gen/c.txt", "evil1", "evil2"];
    let written = written.map(|path| stage.workspace().join(path).exists());
    assert_eq!(written, [true, false, false, false, false]);
}

#[test]
fn denied_directory_and_command_are_denied_in_every_spelling() {
    needs_real_gemini!();
    let calls = [
        write("ok.txt", Done),
        write("secrets/ok.txt", Done),
        write("lib/secret/ok.txt", Done),
        write("secret/a", Denied),
        write("./secret/b", Denied),
        write("././/secret/c", Denied),
        write("secret//d", Denied),
        write("src/../secret/e", Denied),
        write("@secret/f", Denied),
        write("@/secret/f2", Denied),
        write("sec\u{0}ret/g", Denied),
        // The CLI rejects such a name before it requests a decision.
        write("secret/\"quoted\"", ToolStatus::Error),
        write("secret/é", Denied),
        command("ls src", Done),
        command("rm", Denied),
        command("rm -rf src", Denied),
        command("/bin/rm src/here.txt", Denied),
        command("ls && rm src/here.txt", Denied),
        command("ls; rm src/here.txt", Denied),
        command("bash -c 'rm src/here.txt'", Denied),
        command("echo $(rm src/here.txt)", Denied),
        command("echo rmdir", Done),
    ];
    let (stage, outcome) =
        check(&calls, |stage| stage.request("go").deny("Write(secret/**)").deny("Bash(rm *)").allow("Bash"));
    // Each denial names its rule.
    let denied = |tool, rule| {
        let is_it = |d: &&Denial| (&*d.tool, &*d.reason, d.rule.as_deref()) == (tool, "rule", Some(rule));
        outcome.denied.iter().filter(is_it).count()
    };
    let found = [denied("Write", "Write(secret/**)"), denied("Bash", "Bash(rm *)")];
    assert_eq!(found, [9, 7], "{:?}", outcome.denied);
    let remaining: Vec<_> =
        fs::read_dir(stage.workspace().join("secret")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(remaining, ["key.txt"]);
    assert!(stage.read("src/here.txt").is_some());
}

#[test]
fn command_blocked_by_the_agent_is_not_a_success() {
    let calls = [
        command("echo $(ls)", Denied),
        command("echo `ls`", Denied),
        command("echo '$(ls)'", Done),
        command("echo 'Blocked: command substitution detected'", Done),
    ];
    for surface in [Surface::StreamJson, Surface::Json] {
        let taped = replay_on("blocked_commands", surface).run;
        assert_calls(&calls, &taped.records, &taped.outcome);
    }
}

/// Checks rules about whole tools over ACP, where they are the keys of an engine, and headless. The user's own policy
/// forbids `web_fetch`. `gemini_keys` shows the tools of each mode without rules.
#[test]
fn rules_and_user_policies_decide_which_tools_are_available() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::text("ok")));
    let policies = stage.home().join(".gemini/policies");
    fs::create_dir_all(&policies).unwrap();
    let rule = "[[rule]]\ntoolName = \"web_fetch\"\ndecision = \"deny\"\npriority = 500\n";
    fs::write(policies.join("mine.toml"), rule).unwrap();
    let keys = json!({"allowed_tools": ["write_file", "ShellTool(echo)"], "disable_tools": ["glob"]});
    let by_keys = crate::agents::gemini_keys::request(&stage, &keys).allow("WebFetch").allow("WebSearch");
    let in_bypass = stage.request("go").deny("run_shell_command").deny("Glob").allow("WebFetch");
    for (request, surface, has_shell) in
        [(by_keys, Surface::Acp, true), (in_bypass, Surface::StreamJson, false)]
    {
        let outcome = stage.outcome(request);
        assert_eq!(outcome.surface, Some(surface));
        assert_eq!(outcome.verdict, Verdict::Done, "{surface}: {}", outcome.stderr_tail);
        assert!(
            !outcome.stderr_tail.contains("Policy file"),
            "the policy acknowledgement is not reported: {}",
            outcome.stderr_tail
        );
        let offered = stage.model.requests_to_main().pop().expect("a request").offered_tools();
        let has = |name: &str| offered.iter().any(|tool| tool == name);
        assert!(!has("glob") && !has("web_fetch") && has("write_file"), "{surface}: {offered:?}");
        assert!(has("google_web_search") && has("run_shell_command") == has_shell, "{surface}: {offered:?}");
    }
}

#[test]
fn unenforceable_rule_starts_nothing() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::text("ok")));
    let request = stage.request("go").allow("WebFetch(domain:x.org)").deny("Wirte(a)");
    let error = agentline::blocking::run(&stage.agentline(), request, |_, _| {}).unwrap_err().to_string();
    assert!(
        error.contains("`allow`: `WebFetch(domain:x.org)`") && error.contains("`deny`: `Wirte(a)`"),
        "{error}"
    );
    assert!(stage.model.requests().is_empty());
}

#[test]
fn unenforceable_pattern_rule_starts_nothing() {
    needs_real_gemini!();
    let stage = TestStage::new(Script::always(GeminiStep::text("ok")));
    for surface in [Surface::Json, Surface::StreamJson] {
        let request = stage.request("go").surface(surface).deny("Bash(rm *)").allow("Write(src/**)");
        let error = agentline::blocking::run(&stage.agentline(), request, |_, _| {}).unwrap_err().to_string();
        for word in ["`Bash(rm *)`", "`Write(src/**)`", surface.name(), "`acp`"] {
            assert!(error.contains(word), "{word}: {error}");
        }
    }
    assert!(stage.model.requests().is_empty());
}
