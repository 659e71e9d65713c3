//! Tests `agentline batch` and `agentline report` with a fake agent: suites, classes, resume, limits and reports.

use crate::cli::user::{Done, User};
use agentline_tests::{exit_of, wait_until};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Creates a user with the agent `fake`, whose prompts are scripts.
pub(super) fn user() -> User {
    let user = User::new();
    let program = env!("CARGO_BIN_EXE_fake-acp");
    user.write("../home/.config/agentline/config.toml", &format!("[agents.fake]\ncommand = ['{program}']\n"));
    user
}

/// Writes a suite for the fake agent.
pub(super) fn suite(user: &User, text: &str) {
    let head =
        "name: small\ndefaults: {agent: fake, permission_mode: bypass, quiet_period_ms: 0, timeout: 60}\n";
    user.write("suite.yaml", &format!("{head}{text}"));
}

pub(super) fn batch(user: &User, flags: &[&str]) -> Done {
    let mut args = vec!["batch", "suite.yaml", "--dir", "exp", "-j", "2"];
    args.extend(flags);
    user.agentline(&args)
}

/// Runs the batch and returns its lines by case, variant and attempt.
pub(super) fn lines(done: &Done) -> BTreeMap<(String, String, u64), Value> {
    done.out
        .lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| value[key].as_str().unwrap().to_owned();
            ((text("case"), text("variant"), value["attempt"].as_u64().unwrap()), value)
        })
        .collect()
}

pub(super) fn report(user: &User) -> Value {
    let done = user.agentline(&["report", "exp", "-o", "json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    serde_json::from_str(&done.out).unwrap()
}

/// Returns what the batch left in the temporary directory.
pub(super) fn left(user: &User) -> Vec<PathBuf> {
    let entries = fs::read_dir(user.path("../tmp")).unwrap().map(|entry| entry.unwrap().path());
    let is_left = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("agentline-batch-") || name.starts_with("agentline-probe-")
    };
    entries.filter(is_left).collect()
}

#[test]
fn every_mistake_of_a_suite_is_reported_with_its_line_and_nothing_is_started() {
    let user = user();
    suite(
        &user,
        "cases:\n  - {id: a, promt: x}\n  - {id: b, prompt: \"{{n}}\", checks: [{containz: y}]}\n\
         variants: [{id: v, modle: m}, {id: w, agent: nobody}]\nrepeat: 0\nlimits: {cost: free}\nshare_workspace: 3\n",
    );
    let done = batch(&user, &[]);
    assert_eq!(done.code, 2, "{}", done.err);
    for (key, place) in [
        ("cases[0].promt", "suite.yaml:4"),
        ("cases[0].prompt", "suite.yaml:4"),
        ("cases[1].prompt", "suite.yaml:5"),
        ("cases[1].checks[0]", "suite.yaml:5"),
        ("variants[0].modle", "suite.yaml:6"),
        ("repeat", "suite.yaml:7"),
        ("limits.cost", "suite.yaml:8"),
        ("share_workspace", "suite.yaml:9"),
        // What only the agents know is reported together with the rest.
        ("agent", "variant `w`"),
    ] {
        let is_named = |line: &str| line.contains(&format!("`{key}`")) && line.contains(place);
        assert!(done.err.lines().any(is_named), "{key} {place}: {}", done.err);
    }
    suite(&user, "cases: [{id: a, prompt: x}]\n");
    let done = batch(&user, &["--filter", "a", "--filter", "["]);
    assert!(done.code == 2 && done.err.contains("`[` is not a pattern"), "{}", done.err);
    assert!(!user.path("exp").exists());
}

#[test]
fn runs_are_classified_and_a_second_batch_runs_only_what_is_new() {
    let user = user();
    user.write("template/in.txt", "template\n");
    user.write("answers/hidden.txt", "secret\n");
    let cases = "workspace: template\nrepeat: 2\ncases:\n\
        - {id: good, prompt: \"run cat in.txt > out.txt\\nsay done\", checks: [{contains: done}, \
           {file_contains: {path: out.txt, text: template}}, {only_changed: [out.txt]}, \
           {command: \"test -f in.txt\"}]}\n\
        - {id: wrong, prompt: \"say something else\", checks: [{equals: done}]}\n\
        - {id: hidden, hidden: answers, prompt: \"run ls -a . .. > seen.txt\\nsay done\", \
           checks: [{command: \"test -f hidden.txt\"}, {not: {file_contains: {path: seen.txt, text: hidden}}}]}\n\
        - {id: nothing, prompt: \"think only\", checks: [{verdict: empty}]}\n";
    suite(&user, cases);
    let done = batch(&user, &["-o", "jsonl", "--isolate", "copy"]);
    assert_eq!(done.code, 1, "{}", done.err);
    let lines = lines(&done);
    assert_eq!(lines.len(), 8, "{}", done.out);
    for ((case, variant, _), line) in &lines {
        let class = if case == "wrong" { "failed" } else { "passed" };
        assert_eq!((line["class"].as_str(), variant.as_str()), (Some(class), "default"), "{line:#}");
        assert_eq!(line["isolation"], "copy", "{line}");
    }
    let hidden = &lines[&("hidden".into(), "default".into(), 0)];
    assert_eq!(hidden["hidden_covered"], false);
    assert_eq!(user.read("template/in.txt"), "template\n");
    assert!(left(&user).is_empty(), "{:?}", left(&user));

    let again = batch(&user, &["-o", "jsonl"]);
    assert_eq!((again.code, again.out.as_str()), (1, ""), "{}", again.err);
    // A changed check does not change the identity of a run; a new case and a new prompt are new.
    suite(
        &user,
        &format!("{}- {{id: new, prompt: \"say done\"}}\n", cases.replace("equals: done", "contains: x")),
    );
    let more = batch(&user, &["-o", "jsonl"]);
    let ids: Vec<&str> = more.out.lines().filter(|line| line.contains("\"case\":\"new\"")).collect();
    assert_eq!((ids.len(), more.out.lines().count()), (2, 2), "{}", more.out);

    let report = report(&user);
    assert_eq!(report["schema"], "agentline.report/1");
    let variant = &report["variants"]["default"];
    let counts = ["runs", "passed", "failed", "infrastructure"].map(|key| variant[key].as_u64().unwrap());
    assert_eq!(counts, [10, 8, 2, 0]);
    assert!((variant["pass_rate"].as_f64().unwrap() - 0.8).abs() < 1e-9);
    let interval: Vec<f64> = serde_json::from_value(variant["interval"].clone()).unwrap();
    assert!(interval[0] < 0.8 && 0.8 < interval[1] && interval[1] <= 1.0, "{interval:?}");
    for (format, part) in
        [("junit", "<failure message="), ("csv", "case,variant,attempt"), ("text", "80.0 %")]
    {
        let done = user.agentline(&["report", "exp", "-o", format]);
        assert!(done.out.contains(part), "{format}: {}", done.out);
    }
}

#[test]
fn shared_workspace_is_checked_and_cleaned_up_in_its_place() {
    let user = user();
    user.write("template/in.txt", "template\n");
    suite(
        &user,
        "share_workspace: true\nworkspace: template\nteardown: rm out.txt\ncases:\n\
         - {id: a, prompt: \"run echo 1 > out.txt\\nsay done\", checks: [{file_exists: out.txt}, {file_exists: in.txt}]}\n",
    );
    let done = batch(&user, &["-o", "jsonl"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(!user.path("template/out.txt").exists(), "the teardown ran elsewhere");
}

#[test]
fn infrastructure_failures_are_in_no_rate() {
    let user = user();
    suite(
        &user,
        "cases:\n- {id: good, prompt: \"say done\"}\n- {id: broken, setup: \"exit 3\", prompt: \"say done\"}\n",
    );
    let done = batch(&user, &["-o", "jsonl"]);
    assert_eq!(done.code, 12, "{}{}", done.out, done.err);
    let lines = lines(&done);
    let broken = &lines[&("broken".into(), "default".into(), 0)];
    assert_eq!(broken["class"], "infrastructure");
    assert!(broken["message"].as_str().unwrap().contains("exit 3"), "{broken}");
    let variant = report(&user)["variants"]["default"].clone();
    assert_eq!(
        (variant["pass_rate"].as_f64(), &variant["bounds"]),
        (Some(1.0), &serde_json::json!([0.5, 1.0]))
    );
    // They are run again on request, and their earlier tries stay.
    suite(
        &user,
        "cases:\n- {id: good, prompt: \"say done\"}\n- {id: broken, setup: \"exit 3\", prompt: \"say done\"}\n",
    );
    let again = batch(&user, &["--rerun", "infra", "-o", "jsonl"]);
    assert_eq!((again.code, again.out.lines().count()), (12, 1), "{}", again.err);
    let tries = fs::read_dir(user.path("exp/runs"))
        .unwrap()
        .flat_map(|dir| fs::read_dir(dir.unwrap().path()).unwrap());
    let most = tries.map(|run| fs::read_dir(run.unwrap().path()).unwrap().count()).max();
    assert_eq!(most, Some(2));
}

#[test]
fn limit_of_the_batch_ends_it_and_keeps_the_results() {
    let user = user();
    suite(
        &user,
        "limits: {failures: 2}\ncases:\n- {id: wrong, prompt: \"say no\", checks: [{equals: yes}]}\nrepeat: 20\n",
    );
    let done = user.agentline(&["batch", "suite.yaml", "--dir", "exp", "-j", "1", "-o", "jsonl"]);
    assert_eq!(done.code, 7, "{}", done.err);
    assert_eq!(done.out.lines().count(), 2);
    assert!(done.err.contains("`failures`"), "{}", done.err);
}

#[test]
fn flags_of_this_machine_win_over_a_queue_in_the_environment() {
    let user = user();
    suite(&user, "cases: [{id: a, prompt: say done}]\n");
    let mut command = user.command(&["batch", "suite.yaml", "--dir", "exp", "--jobs", "1"]);
    let done = command.env("AGENTLINE_QUEUE", "nats://127.0.0.1:1").output().unwrap();
    let log = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && log.contains("AGENTLINE_QUEUE is not used"), "{log}");
}

#[test]
fn killed_batch_is_resumed_and_every_run_is_committed_once() {
    let user = user();
    let cases: String = (0..40).map(|n| format!("- {{id: c{n}, prompt: \"say done {n}\"}}\n")).collect();
    suite(&user, &format!("cases:\n{cases}"));
    for committed in [3, 12, 25] {
        let mut child = user
            .command(&["batch", "suite.yaml", "--dir", "exp", "-j", "2", "-o", "jsonl"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let count = || {
            let done = user.agentline(&["report", "exp", "-o", "csv"]);
            done.out.lines().count().saturating_sub(1)
        };
        wait_until("results", || count() >= committed);
        if committed == 3 {
            let second = batch(&user, &[]);
            assert_eq!(second.code, 1, "{}", second.err);
            assert!(second.err.contains("another batch is running"), "{}", second.err);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let done = batch(&user, &["-o", "jsonl"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let csv = user.agentline(&["report", "exp", "-o", "csv"]).out;
    let mut ids: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), csv.lines().count()), (40, 41));
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}

#[test]
fn second_signal_ends_commands_at_once_and_commits_nothing_half_done() {
    let user = user();
    let marks = user.path("marks");
    fs::create_dir(&marks).unwrap();
    let mark = |name: &str| format!("touch '{}'", marks.join(name).display());
    let (setup, check) = (mark("setup"), mark("check"));
    let teardown = format!("echo done >> '{}'", marks.join("teardown").display());
    suite(
        &user,
        &format!(
            "teardown: \"{teardown}\"\ncases:\n\
             - {{id: a, setup: \"{setup}; sleep 1000\", prompt: \"say done\"}}\n\
             - {{id: b, prompt: \"say done\", checks: [{{command: \"{check}; sleep 1000\"}}]}}\n"
        ),
    );
    let mut child = user
        .command(&["batch", "suite.yaml", "--dir", "exp", "-j", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the commands", || marks.join("setup").exists() && marks.join("check").exists());
    for signal in ["INT", "TERM"] {
        let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
    let code = exit_of(&mut child, "the end of the batch").code();
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
    let csv = user.agentline(&["report", "exp", "-o", "csv"]).out;
    assert!(csv.lines().count() <= 1, "{csv}");
    assert_eq!(fs::read_to_string(marks.join("teardown")).unwrap().lines().count(), 2);
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}

#[test]
fn variants_are_compared_and_the_page_shows_hostile_content_as_text() {
    let user = user();
    let cases: String = (0..8)
        .map(|n| format!("- {{id: c{n}, prompt: \"say </script><img src=x onerror=alert(1)> {n}\"}}\n"))
        .collect();
    suite(
        &user,
        &format!(
            "checks: [{{contains: script}}]\ncases:\n{cases}variants:\n- {{id: good}}\n- {{id: bad, prompt: \"say no\"}}\n"
        ),
    );
    let done = batch(&user, &[]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("good is better than bad"), "{}", done.out);
    let page = user.agentline(&["report", "exp", "-o", "html"]).out;
    assert_eq!(page.matches("</script>").count(), 2, "only the two elements of the page end");
    assert!(!page.contains("<img"), "{page}");
    #[cfg(target_os = "linux")]
    check_in_a_browser(&user);
}

/// Opens the page of the experiment in a real browser, and filters, searches and opens its runs.
#[cfg(target_os = "linux")]
fn check_in_a_browser(user: &User) {
    if !agentline_tests::has_browser() {
        return;
    }
    let done = user.agentline(&["report", "exp", "-o", "html", "--to", "page.html"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let page = user.path("page.html").canonicalize().unwrap();
    let mut browser = agentline_tests::Browser::open(&page, (1280, 900));
    let count = |browser: &mut agentline_tests::Browser, expected: &str| {
        browser.until(&format!("document.getElementById('count').textContent === '{expected}'"));
    };
    count(&mut browser, "16 of 16 runs");
    // Every run is opened; its content is shown as text.
    browser.eval("document.querySelectorAll('details.run').forEach(run => { run.open = true; }); 0");
    browser.until("document.querySelectorAll('details.run pre').length === 32");
    let shows = |text: &str| format!("document.querySelector('details.run').innerText.includes({text:?})");
    assert_eq!(browser.eval(&shows("Prompt")), true, "each run shows its prompt and its answer");
    let links = browser.eval("document.querySelector('details.run a').href");
    let run_dirs = format!("file://{}/runs/", user.path("exp").canonicalize().unwrap().display());
    assert!(links.as_str().unwrap().starts_with(&run_dirs), "{links}");
    let hostile = "document.querySelectorAll('main img, main script, main iframe, [onerror]').length";
    assert_eq!(browser.eval(hostile), 0);
    assert_eq!(browser.eval("document.querySelector('main').innerText.includes('onerror=alert(1)')"), true);
    browser.eval(
        "(() => { const f = document.getElementById('class'); f.value = 'failed'; \
        f.dispatchEvent(new Event('change')); return 0; })()",
    );
    count(&mut browser, "8 of 16 runs");
    browser.click("#search");
    browser.type_text("c3");
    count(&mut browser, "1 of 16 runs");
    assert!(browser.eval("document.querySelectorAll('svg').length").as_u64() > Some(0), "plots are shown");
    for scheme in ["light", "dark"] {
        browser.prefer(scheme, "screen");
        for width in [390, 1280] {
            browser.size(width, 844);
            let over = browser.eval("document.scrollingElement.scrollWidth - innerWidth");
            assert!(over.as_i64() <= Some(0), "{over} too wide at {width}");
            let table = "(() => { const box = document.querySelector('.scroll'); return box.scrollWidth - box.clientWidth; })()";
            let hidden = browser.eval(table);
            assert!(width > 600 || hidden.as_i64() <= Some(0), "{hidden} of the table are out of sight");
        }
    }
    let own = format!("file://{}", page.display());
    assert!(browser.requests().iter().all(|url| url.starts_with(&own)), "{:?}", browser.requests());
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn a_decided_comparison_ends_the_batch_early() {
    let user = user();
    let cases: String = (0..40).map(|n| format!("- {{id: c{n}, prompt: \"say yes {n}\"}}\n")).collect();
    suite(
        &user,
        &format!(
            "checks: [{{contains: yes}}]\ncases:\n{cases}variants:\n- {{id: good}}\n- {{id: bad, prompt: \"say no\"}}\n"
        ),
    );
    let done = batch(&user, &["--until-decided"]);
    assert_eq!(done.code, 1, "{}", done.err);
    let report = report(&user);
    let counts = ["good", "bad"].map(|id| report["variants"][id]["runs"].as_u64().unwrap());
    assert!(counts.iter().all(|runs| (7..20).contains(runs)), "{counts:?}");
    assert!(done.out.contains("good is better than bad"), "{}", done.out);
    // A decided comparison runs nothing more.
    let again = batch(&user, &["--until-decided", "-o", "jsonl"]);
    assert_eq!(again.out, "", "{}", again.err);
    suite(&user, "cases: [{id: a, prompt: \"say yes\"}]\n");
    let refused = batch(&user, &["--until-decided"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("needs exactly two variants"), "{}", refused.err);
}

#[test]
fn changed_checks_are_applied_to_stored_results() {
    let user = user();
    user.write("template/old.txt", "old\n");
    user.write("template/kept.txt", "kept\n");
    let case = "workspace: template\ncases:\n- {id: a, prompt: \"run printf '\\\\000\\\\001' > new.bin; rm old.txt\\nsay done\", checks: CHECKS}\n";
    let with = |checks: &str| suite(&user, &case.replace("CHECKS", checks));
    with("[{equals: other}]");
    assert_eq!(batch(&user, &[]).code, 1);
    with(
        "[{equals: done}, {file_exists: new.bin}, {not: {file_exists: old.txt}}, {only_changed: [new.bin, old.txt]}, \
         {command: \"test -f kept.txt -a ! -e old.txt -a $(wc -c < new.bin) = 2\"}]",
    );
    let grade = || user.agentline(&["batch", "grade", "suite.yaml", "--dir", "exp"]);
    let outdated = "1 of them are by other checks";
    assert!(batch(&user, &[]).err.contains(outdated));
    let graded = grade();
    assert_eq!(graded.code, 0, "{}{}", graded.out, graded.err);
    assert!(!batch(&user, &[]).err.contains(outdated));
    let variant = report(&user)["variants"]["default"].clone();
    assert_eq!((&variant["passed"], &variant["runs"]), (&1.into(), &1.into()), "{variant}");
    // No agent ran: there is still one try.
    let tries = |dir: PathBuf| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let runs = tries(user.path("exp/runs")).flat_map(tries);
    assert_eq!(runs.flat_map(tries).count(), 1);
    // A judge that was never asked is an infrastructure failure, not a wrong answer.
    with("[{judge: {rubric: is it done?, agent: fake}}]");
    assert_eq!(grade().code, 12);
}

#[test]
fn a_judge_decides_and_two_experiments_are_compared() {
    let user = user();
    // The fake judge carries out the lines of its prompt, the rubric among them.
    let judged = |decision: &str| {
        let answer = format!("say {{\"passed\": {decision}, \"reason\": \"the rubric says so\"}}");
        let cases: String = (0..8)
            .map(|n| format!("- {{id: c{n}, prompt: \"hello {n}\", checks: [{{judge: {{agent: fake, rubric: '{answer}'}}}}]}}\n"))
            .collect();
        suite(&user, &format!("cases:\n{cases}"));
    };
    for (dir, decision, code) in [("exp", "true", 0), ("other", "false", 1)] {
        judged(decision);
        let done = user.agentline(&["batch", "suite.yaml", "--dir", dir, "-j", "2"]);
        assert_eq!(done.code, code, "{}{}", done.out, done.err);
    }
    let done = user.agentline(&["report", "exp", "other", "-o", "json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let compared: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(compared["changes"].as_array().unwrap().len(), 8, "{compared:#}");
    let text = user.agentline(&["report", "exp", "other"]).out;
    assert!(text.contains("c0") && text.contains("better"), "{text}");
    let page = user.agentline(&["report", "other", "-o", "html"]).out;
    assert!(page.contains("the rubric says so"), "{page}");
}

#[test]
fn a_promptfoo_configuration_is_a_suite() {
    let user = user();
    user.write(
        "promptfooconfig.yaml",
        "description: two prompts\nprompts: ['say hello {{name}}', 'say bye {{name}}']\nproviders: [openai:x]\n\
         defaultTest: {assert: [{type: icontains, value: '{{name}}'}]}\n\
         tests:\n- {vars: {name: Ada}, assert: [{type: contains, value: hello}, {type: not-contains, value: '!'}]}\n\
         - {vars: {name: Bob}}\n",
    );
    let run = |file: &str| user.agentline(&["batch", file, "-a", "fake", "--dir", "exp", "-o", "jsonl"]);
    let done = run("promptfooconfig.yaml");
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let classes: Vec<&str> = done
        .out
        .lines()
        .map(|line| if line.contains("\"class\":\"passed\"") { "passed" } else { "failed" })
        .collect();
    assert_eq!(classes.iter().filter(|class| **class == "passed").count(), 3, "{}", done.out);
    assert_eq!(classes.len(), 4, "{}", done.out);
    assert!(done.err.contains("providers"), "what is not used is named: {}", done.err);
    user.write("odd.yaml", "prompts: [hi]\ntests: [{assert: [{type: perplexity, threshold: 1}]}]\n");
    let refused = run("odd.yaml");
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("perplexity"), "{}", refused.err);
}

#[test]
fn suite_that_is_not_a_table_is_named() {
    let user = user();
    user.write("words.txt", "just words\n");
    let done = user.agentline(&["batch", "words.txt"]);
    assert!(done.code == 2 && done.err.starts_with("error: `SUITE`: is "), "{}", done.err);
    suite(&user, "cases: [{id: a, prompt: say hi}]\n");
    let none = batch(&user, &["--filter", "nope"]);
    assert!(none.code == 2 && none.err.starts_with("error: `--filter`: no case matches"), "{}", none.err);
    let many = batch(&user, &["--repeat", "100000", "--dry-run"]);
    assert!(many.code == 0 && many.out.contains("= 100000 runs"), "{}{}", many.out, many.err);
}

#[test]
fn dry_run_estimates_the_price_from_earlier_results() {
    let user = user();
    suite(
        &user,
        "cases: [{id: a, prompt: \"used 10 100 0.25\\nsay hi\"}, {id: b, prompt: \"used 10 100 0.5\\nsay hi\"}]\n",
    );
    let price = |flags: &[&str]| {
        let done = batch(&user, &[&["--dry-run"], flags].concat());
        assert_eq!(done.code, 0, "{}", done.err);
        done.out.lines().rev().take(2).collect::<Vec<_>>().join(" | ")
    };
    assert!(price(&[]).starts_with("price: unknown"), "{}", price(&[]));
    assert!(!user.path("exp").exists(), "a dry run writes nothing");
    let done = batch(&user, &["--filter", "a", "-o", "jsonl"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(lines(&done).into_values().next().unwrap()["outcome"]["cost_usd"], 0.25);
    // The other case is estimated by the results of its variant.
    let expected = "price: $0.25 to $0.25 (from 1 earlier results) | 1 of them have a result already";
    assert_eq!(price(&[]), expected);
    assert_eq!(batch(&user, &[]).code, 0);
    let all = price(&["--repeat", "3"]);
    assert!(all.starts_with("price: $1.50 to $1.50 (from 2 earlier results)"), "{all}");
    assert!(
        price(&["--rerun", "all"]).starts_with("price: $0.75 to $0.75"),
        "{}",
        price(&["--rerun", "all"])
    );
}
