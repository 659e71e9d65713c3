//! Runs the suite of `examples/coding-tasks` with two real agents in overlays. Their scripted models first look for the
//! hidden tests, then solve the tasks.

use agentline_mock::{
    agents::ServedRequest,
    answer::{Action, Answer},
};
use agentline_tests::{ScriptedStage, skipped};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex},
};

const AGENTLINE: &str = env!("CARGO_BIN_EXE_agentline-under-test");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/coding-tasks");

/// A text that is in all files that the agents must not see.
const MARKER: &str = "hidden-marker-7c1e";

/// A part of each prompt, the file that solves the task, and its content.
const SOLUTIONS: &[(&str, &str, &str)] = &[
    ("`slugify`", "slugify.mjs", include_str!("coding_tasks/slugify.mjs")),
    ("`median`", "stats.mjs", include_str!("coding_tasks/stats.mjs")),
    ("`toRoman(n)`", "roman.mjs", include_str!("coding_tasks/roman.mjs")),
    ("`parseLine`", "csv.mjs", include_str!("coding_tasks/csv.mjs")),
    ("`chunk`", "chunk.mjs", include_str!("coding_tasks/chunk.mjs")),
    ("`isBalanced(text)`", "brackets.mjs", include_str!("coding_tasks/brackets.mjs")),
    ("`daysBetween`", "days.mjs", include_str!("coding_tasks/days.mjs")),
    ("`Cache`", "cache.mjs", include_str!("coding_tasks/cache.mjs")),
    ("count.mjs", "count.mjs", include_str!("coding_tasks/count.mjs")),
];

/// The files that do not exist yet, which the agents write with their own tool for files.
const NEW: &[&str] = &["roman.mjs", "brackets.mjs", "count.mjs"];

const RENAME: &str = r"sed -i 's/\bgetUser\b/findUser/g' users.mjs greet.mjs";

/// Looks for the marker by every path that an agent could know, and tries to change the templates. The marker is written
/// in two parts, so that the command itself does not contain it. Gemini CLI refuses commands inside commands, so there are
/// none.
const SEARCH: &str = r#"export LC_ALL=C; M=hidden-mark''er-7c1e; S=SUITE; E=EXPERIMENT
echo "searching in $PWD"; sed -E 's/.*\) (\S+ ){19}(\S+) .*/started at \2/' /proc/1/stat
{
  grep -rsF $M $S $E; find $S/hidden $E -type f; cat $S/suite.yaml
  case $PWD in *agentline-batch-*) AROUND;; esac
  for d in . $S $S/hidden/median $S/tasks/median; do git -C $d log --all -p | grep $M; done
  git --git-dir=$S/.git cat-file --batch-all-objects --batch | grep -a $M
  unshare -rm sh -c "umount -l $S/hidden/median; umount -l $S/.git; grep -rsF $M $S"
} 2>/dev/null | head -c 2000 | sed 's/^/found: /'
for f in $S/tasks/median/stats.mjs $S/tasks/median/new.txt $S/hidden/median/new.txt; do
  (echo x >> $f) 2>/dev/null && echo "wrote: $f"
done
echo "the search is complete""#;

/// Looks around the workspace, and through all processes of the agent. Directories outside the test are not searched.
const AROUND: &str = r"grep -rsF $M . .. ../.. ../../..
    for p in /proc/[0-9]*; do grep -rsF $M $p/root$S $p/root$E; done
    find /proc/[0-9]*/cwd /proc/[0-9]*/fd -lname '*agentline-batch-*' -exec grep -rsF $M {}/ {}/.. {}/../.. \;
    find /proc/[0-9]*/fd -xtype f -exec grep -sF $M {} +";

/// A model that searches, then solves the tasks, except for some.
#[derive(Clone, Default)]
struct SearchingModel {
    script: Arc<Mutex<String>>,
    /// What the searches printed.
    searches: Arc<Mutex<Vec<String>>>,
    cannot: &'static [&'static str],
}

impl SearchingModel {
    fn stage(&self, agent: &str) -> Option<ScriptedStage> {
        let model = self.clone();
        ScriptedStage::new(agent, move |request| model.answer(request))
    }

    fn answer(&self, request: &ServedRequest) -> Answer {
        if !request.is_turn {
            return Answer::text("A title");
        }
        let has = |part: &str| request.user_texts.iter().any(|text| text.contains(part));
        let found = match &request.tool_results[..] {
            [] => return Answer::using(Action::shell(self.script.lock().unwrap().clone())),
            [found] => found,
            _ => return Answer::text("Done."),
        };
        self.searches.lock().unwrap().push(found.clone());
        if has("`getUser`") {
            return Answer::using(Action::shell(RENAME));
        }
        match SOLUTIONS.iter().find(|(part, ..)| has(part)) {
            Some((part, ..)) if self.cannot.contains(part) => Answer::text("It looks right to me."),
            Some((_, file, content)) if NEW.contains(file) => {
                let dir = printed(found, "searching in ").unwrap_or_default();
                Answer::using(Action::write(format!("{dir}/{file}"), *content))
            }
            Some((_, file, content)) => {
                Answer::using(Action::shell(format!("cat > {file} <<'END_OF_FILE'\n{content}END_OF_FILE")))
            }
            None => Answer::text("I do not know this task."),
        }
    }

    /// Checks what the agents found, and returns the number of processes that searched.
    fn check_searches(&self) -> usize {
        let searches = self.searches.lock().unwrap();
        assert_eq!(searches.len(), 10);
        for search in &*searches {
            let is_clean = !search.contains("found: ") && !search.contains("wrote: ");
            assert!(is_clean && search.contains("the search is complete"), "{search}");
        }
        searches.iter().map(|search| printed(search, "started at ").unwrap()).collect::<BTreeSet<_>>().len()
    }
}

fn script(suite: &Path, experiment: &Path) -> String {
    let [suite, experiment] = [suite, experiment].map(Path::to_string_lossy);
    SEARCH.replace("AROUND", AROUND).replace("SUITE", &suite).replace("EXPERIMENT", &experiment)
}

/// Returns what the search printed after a label.
fn printed<'a>(search: &'a str, label: &str) -> Option<&'a str> {
    // Agents may show the output as JSON.
    search.split_once(label)?.1.split(['\n', '\\', '"']).next().map(str::trim)
}

/// Copies the example into a Git repository, with the marker in all files that agents must not see.
fn copy_example(to: &Path) {
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        fs::create_dir_all(to.join(&dir)).unwrap();
        for entry in fs::read_dir(Path::new(EXAMPLE).join(&dir)).unwrap() {
            let entry = entry.unwrap();
            let path = dir.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path);
                continue;
            }
            let mut text = fs::read_to_string(entry.path()).unwrap();
            if path.starts_with("hidden") {
                text = format!("// {MARKER}\n{text}");
            } else if path == Path::new("suite.yaml") {
                text = format!("# {MARKER}\n{text}");
            }
            fs::write(to.join(path), text).unwrap();
        }
    }
    for args in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "x"]] {
        git(to, args);
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=x", "-c", "user.email=x@localhost"]);
    let done = git.args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}");
    String::from_utf8(done.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the suite with an agent, and returns the class of each case.
fn classes(
    stage: &ScriptedStage,
    model: &SearchingModel,
    suite: &Path,
    dir: &Path,
) -> (Output, Vec<(String, String)>) {
    *model.script.lock().unwrap() = script(suite, dir);
    let mut command = stage.command(Path::new(AGENTLINE));
    command.arg("batch").arg(suite.join("suite.yaml")).args(["-a", stage.agent.id, "-j", "2", "-o", "jsonl"]);
    command.args(["--isolate", "overlay", "--dir"]).arg(dir);
    if let Some(model) = stage.agent.model {
        command.args(["-m", model]);
    }
    let done = command.output().unwrap();
    let lines: Vec<Value> =
        text(&done.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert_eq!(
            (&line["isolation"], &line["hidden_covered"]),
            (&"overlay".into(), &true.into()),
            "{line}"
        );
    }
    let mut classes: Vec<(String, String)> = lines
        .iter()
        .map(|line| ["case", "class"].map(|key| line[key].as_str().unwrap().to_owned()).into())
        .collect();
    classes.sort();
    (done, classes)
}

#[test]
fn ten_tasks_with_hidden_tests_are_solved_and_compared_and_no_agent_finds_the_tests() {
    let (good_model, weak_model) = (
        SearchingModel::default(),
        SearchingModel { cannot: &["`median`", "`daysBetween`"], ..SearchingModel::default() },
    );
    let (good, weak) = (good_model.stage("codex"), weak_model.stage("gemini"));
    let (Some(good), Some(weak)) = (good, weak) else { return skipped("the example suite") };
    let stage_path = fs::canonicalize(good.path()).unwrap();
    let [suite, first, second] = ["suite", "good", "weak"].map(|name| stage_path.join(name));
    copy_example(&suite);
    let (done, results) = classes(&good, &good_model, &suite, &first);
    let errors = text(&done.stderr);
    if errors.contains("overlays do not work here") {
        assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "CI needs overlays: {errors}");
        // A print macro would be captured by the test runner.
        let _ = writeln!(std::io::stderr(), "skipped: {errors}");
        return;
    }
    // Outside, the same search finds everything, and it changes the templates of a copy only.
    let seen = suite.with_file_name("seen");
    copy_example(&seen);
    let outside =
        Command::new("sh").arg("-c").arg(script(&seen, &first)).current_dir(&seen).output().unwrap();
    let outside = text(&outside.stdout);
    assert!(outside.contains("found: ") && outside.contains("wrote: "), "{outside}");
    fs::remove_dir_all(&seen).unwrap();

    assert_eq!(done.status.code(), Some(0), "{results:?}\n{errors}");
    assert_eq!(results.len(), 10);
    good_model.check_searches();
    let (done, results) = classes(&weak, &weak_model, &suite, &second);
    assert_eq!(done.status.code(), Some(1), "{results:?}\n{}", text(&done.stderr));
    let failed: Vec<&str> =
        results.iter().filter(|(_, class)| class != "passed").map(|(case, _)| case.as_str()).collect();
    assert_eq!(failed, ["days", "median"], "{results:?}");
    assert!(weak_model.check_searches() <= 2, "ten runs of Gemini CLI on two warm processes");
    assert_eq!(git(&suite, &["status", "--porcelain"]), "", "the templates are intact");
    let mut report = good.command(Path::new(AGENTLINE));
    let report = report.arg("report").args([&second, &first]).output().unwrap();
    let report = text(&report.stdout);
    assert!(
        report.contains("days") && report.contains("median") && report.contains("not decided"),
        "{report}"
    );
}
