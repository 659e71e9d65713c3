//! Checks the documentation: `docs/cli.md` has the help of every command, links resolve, and commands are valid.

use crate::cli::{DEMO_TAPE, user::User};
use agentline_conformance::Tier;
use agentline_mock::gemini::Script;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the words of every visible command, such as `sessions list`, in the order of the help.
fn commands() -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), agentline_cli::command())];
    while let Some((path, command)) = open.pop() {
        if !path.is_empty() {
            found.push(path.clone());
        }
        let visible: Vec<_> = command.get_subcommands().filter(|inner| !inner.is_hide_set()).collect();
        for inner in visible.into_iter().rev() {
            open.push((format!("{path} {}", inner.get_name()).trim().to_owned(), inner.clone()));
        }
    }
    assert!(found.len() > 20 && found.iter().any(|path| path == "sessions list"), "{found:?}");
    found
}

/// To update the page, run `UPDATE_DOCS=1 cargo test -p agentline-tests --test end_to_end cli::docs`.
#[test]
fn page_contains_the_help_of_every_command() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let written = fs::read_to_string(&page).unwrap().replace("\r\n", "\n");
    let user = User::new();
    // What is installed differs between machines.
    let agents = user.agentline(&["agents"]).out;
    let agents: String = agents.split_inclusive('\n').filter(|line| !line.starts_with("  auto: ")).collect();
    let mut current = between(&written, "agents table", &agents);
    for command in commands() {
        let args: Vec<&str> = command.split(' ').chain(["-h"]).collect();
        current = between(&current, &command, &user.agentline(&args).out);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &current).unwrap();
    } else {
        assert!(written == current, "docs/cli.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

/// Replaces the text between the two markers of a section.
fn between(page: &str, section: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- {section} -->\n"), format!("<!-- end of {section} -->"));
    let (before, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no mark `{start}`"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no mark `{end}`"));
    format!("{before}{start}```text\n{}\n```\n{end}{after}", text.trim_end())
}

/// Returns the pages that people read, by their path from the root of the repository.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let files = |folder: &Path| fs::read_dir(folder).unwrap().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let packages = files(&root.join("integrations")).into_iter().flat_map(|package| files(&package));
    let all = [files(&root), files(&root.join("docs")), packages.collect()].concat();
    let found: Vec<_> = all
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    assert!(found.len() >= 8, "{:?}", found.iter().map(|(path, _)| path).collect::<Vec<_>>());
    found
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let allowed = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    allowed.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_resolves() {
    let mut links = 0;
    for (page, text) in pages() {
        // Code blocks have brackets of their own.
        let prose = text.split("```").step_by(2).collect::<String>();
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|t| !t.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(path.exists(), "{}: the target of `{target}` does not exist", page.display());
            if !heading.is_empty() {
                let linked = fs::read_to_string(&path).unwrap();
                let mut headings = linked.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|h| anchor(h) == heading), "{}: no heading `{target}`", page.display());
            }
            links += 1;
        }
    }
    assert!(links > 15, "{links}");
}

/// Splits a command into words as a shell would, up to a pipe, a second command, or an explanation after two spaces.
fn shell_args(line: &str) -> Vec<String> {
    let (mut args, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('|' | '>' | '&' | ';' | '#' | '`', None) => break,
            (' ', None) => {
                args.extend(word.take());
                if chars.peek() == Some(&' ') {
                    break;
                }
            }
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    args.extend(word);
    args
}

#[test]
fn every_command_in_the_docs_is_valid() {
    let user = User::new();
    let known = commands();
    let mut typed = 0;
    for (page, text) in pages() {
        let mut is_block = false;
        for line in text.lines() {
            if line.starts_with("```") {
                is_block = !is_block;
            }
            let shown = line.match_indices("agentline ").filter(|(at, _)| {
                let before = line[..*at].trim_end_matches("cargo run --release -- ");
                before.ends_with('`') || (is_block && (before.trim().is_empty() || before.ends_with("&& ")))
            });
            for (at, name) in shown {
                let args = shell_args(&line[at + name.len()..]);
                let Some(first) = args.first() else { continue };
                // Sentences name the program too; a command starts with one of our subcommands or with a flag.
                if !known.contains(first) && !first.starts_with('-') {
                    continue;
                }
                // What follows `--` belongs to another program.
                let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
                // A sentence may name a flag without its value.
                let is_known = |rest: &[&'static str]| {
                    let own = args[..end].iter().map(String::as_str);
                    let all = own.chain(rest.iter().copied()).chain(args[end..].iter().map(String::as_str));
                    user.agentline(&all.collect::<Vec<_>>()).code == 0
                };
                let can_be_typed = is_known(&["--help"]) || is_known(&["value", "--help"]);
                assert!(can_be_typed, "{}: {line}\n{args:?}", page.display());
                typed += 1;
            }
        }
    }
    assert!(typed > 20, "{typed}");
}

/// Returns the Rust code below a directory.
fn sources(folder: &Path, all: &mut String) {
    for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn tests_named_in_tables_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut code = String::new();
    sources(&root.join("crates"), &mut code);
    // In the security page, a long snake-case name is a test; a shorter one is a module.
    for (page, underscores, at_least) in [("security.md", 3, 20), ("provider-comparison.md", 1, 15)] {
        let text = fs::read_to_string(root.join("docs").join(page)).unwrap();
        let cells =
            text.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.rsplit('|').nth(1));
        let mut tests = 0;
        for name in cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
            let name = name.rsplit("::").next().unwrap_or_default().trim_start_matches('*');
            let is_snake = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if is_snake && name.matches('_').count() >= underscores {
                assert!(
                    code.contains(&format!("{name}(")),
                    "docs/{page} names `{name}`, which is not a test"
                );
                tests += 1;
            }
        }
        assert!(tests >= at_least, "docs/{page}: {tests}");
    }
}

/// To update the page, run this test with `UPDATE_DOCS=1`.
#[test]
fn page_lists_every_scenario() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let written = fs::read_to_string(&page).unwrap().replace("\r\n", "\n");
    let mut table = String::from("| scenario | what it shows | played on |\n|---|---|---|\n");
    for scenario in agentline_conformance::scenarios::all() {
        let place = match scenario.tier {
            Tier::Basic => "every surface",
            Tier::Deep => "doctor",
            _ => "",
        };
        table.push_str(&format!("| `{}` | {} | {place} |\n", scenario.name, scenario.about));
    }
    let (start, end) = ("<!-- scenarios -->\n", "<!-- end of scenarios -->");
    let (before, rest) = written.split_once(start).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let current = format!("{before}{start}{table}{end}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &current).unwrap();
    } else {
        assert!(written == current, "docs/compatibility.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

/// A row is shown by scenarios of the conformance kit, or by tests.
#[test]
fn every_row_of_the_comparison_names_what_shows_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut code = String::new();
    sources(&root.join("crates"), &mut code);
    let page = fs::read_to_string(root.join("docs/compatibility.md")).unwrap();
    let (_, section) = page.split_once("\n## Agents compared\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 20, "{}", rows.len());
    for row in rows {
        let cell = row.rsplit('|').nth(1).unwrap();
        let mut names = cell.split('`').skip(1).step_by(2).peekable();
        assert!(names.peek().is_some(), "{row}");
        for name in names {
            let is_test = code.contains(&format!("fn {name}("));
            assert!(agentline_conformance::scenarios::find(name).is_some() || is_test, "`{name}`: {row}");
        }
    }
}

/// Returns the JSON of the first block after a heading of `docs/cli.md`.
fn sample(heading: &str) -> Value {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("\n### {heading}\n")).unwrap();
    let (_, block) = rest.split_once("```json\n").unwrap();
    serde_json::from_str(block.split_once("```").unwrap().0).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn sample_outcome_has_the_fields_of_a_real_one() {
    let replayed = User::new().agentline(&["replay", DEMO_TAPE, "-o", "json"]).out;
    let (real, sample): (Value, Value) = (serde_json::from_str(&replayed).unwrap(), sample("The outcome"));
    for part in ["", "/usage", "/files/0"] {
        let [real, sample] = [&real, &sample].map(|outcome| keys(outcome.pointer(part).unwrap()));
        assert_eq!(real, sample, "docs/cli.md: the sample of the outcome, at `{part}`");
    }
}

#[test]
fn sample_script_of_the_demo_is_valid() {
    let script: Script = serde_json::from_value(sample("demo")).unwrap();
    assert_eq!(script.steps.len(), 3);
}
