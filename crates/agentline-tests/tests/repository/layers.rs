//! The house keeps its order: who may use what, who may name whom, and how a file looks. Each rule is a function over
//! one file, and each is shown to bite on a sample before it is let loose on the repository.

use std::path::{Path, PathBuf};

/// What the core may be built from: crates without I/O.
const CORE_DEPENDENCIES: &[&str] =
    &["brush-parser", "jiff", "memchr", "serde", "serde_json", "strsim", "toml"];
/// What the core must not touch: it is told what happens and when.
const OUTSIDE_WORLD: &[&str] = &[
    "tokio",
    "std::fs",
    "std::process",
    "std::net",
    "std::env",
    "std::thread",
    "std::io",
    "Instant",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "TimeZone::system",
    "libc",
    "futures",
];
/// Words that belong to one agent and stand in its folder alone.
const AGENT_WORDS: &[&str] = &[
    "write_file",
    "run_shell_command",
    "read_many_files",
    "google_web_search",
    "search_file_content",
    "list_directory",
    "tool_not_registered",
    "policy_violation",
    "invalid_tool_params",
    "FatalTurnLimited",
    "functionResponse",
    "model_added_lines",
    "session_context",
    "skip-trust",
    "maxSessionTurns",
    "NO_RELAUNCH",
    "/.gemini",
    "GEMINI_",
    "GOOGLE_",
    "@google/",
    "Loop detected",
    "API Error",
];
/// Files that may speak of one agent: the demo plays with one, and help texts show examples.
const ABOUT_ONE_AGENT: &[&str] = &[
    "agentline-cli/src/commands/demo/stage.rs",
    "agentline-cli/src/commands/replay.rs",
    "agentline-cli/src/args.rs",
];
/// Files that decide over every agent, so they must not even mention one.
const IMPARTIAL: &[&str] = &[
    "agentline-core/src/verdict.rs",
    "agentline-core/src/run.rs",
    "agentline-core/src/connection.rs",
    "agentline-core/src/connection/emit.rs",
    "agentline-core/src/connection/ending.rs",
    "agentline-core/src/dialogue.rs",
    "agentline-core/src/change_tracker.rs",
    "agentline-core/src/usage.rs",
    "agentline-core/src/usage_tracker.rs",
    "agentline-core/src/rpc.rs",
    "agentline-core/src/acp.rs",
    "agentline-core/src/acp/answer.rs",
    "agentline-core/src/acp/blocks.rs",
    "agentline-core/src/acp/handshake.rs",
    "agentline-core/src/acp/host.rs",
    "agentline-core/src/acp/profile.rs",
    "agentline-core/src/acp/opening.rs",
    "agentline-core/src/acp/question.rs",
    "agentline-core/src/acp/session.rs",
    "agentline-core/src/acp/tools.rs",
    "agentline-core/src/acp/update.rs",
];
/// Where code may be unsafe: the few files that talk to an operating system, and tests that must.
const UNSAFE: &[&str] = &[
    "agentline/src/workspace/files/unix.rs",
    "agentline/src/process/linux.rs",
    "agentline/src/process/macos.rs",
    "agentline/src/process/namespace.rs",
    "agentline/src/process/unix.rs",
    "agentline/src/process/windows.rs",
    "agentline-mock/src/os.rs",
    "agentline-mock/tests/mock/fake_agent.rs",
    "agentline-tests/benches/agentline/promptfoo/tree.rs",
    "agentline-tests/benches/agentline/transport.rs",
    "agentline-tests/src/signals.rs",
];
/// Modules that only tests see, declared so in the file above them.
const TESTS_ONLY: &[&str] = &["agentline-core/src/memory_fs.rs"];
/// Longest file, in lines.
const LONGEST: usize = 600;

/// One file of the repository, by its path below `crates/` or below the root.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// A module of an integration in JavaScript.
    fn is_script(&self) -> bool {
        self.path.starts_with("integrations/") && self.path.ends_with(".mjs")
    }

    /// Code that ships: no tests, no examples, no benchmarks.
    fn ships(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.is_rust()
            && self.path.contains("/src/")
            && !self.path.starts_with("agentline-tests/")
            && !self.path.starts_with("fuzz/")
            && !self.path.contains("/tests/")
            && !name.ends_with("tests.rs")
            && !TESTS_ONLY.contains(&&*self.path)
            && !self.text.contains("\n#![cfg(test)]")
    }

    /// Its lines of code with their numbers: comments are left out, and so is everything from its tests on.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let shipped = self.text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let comment = |line: &str| line.trim_start().starts_with("//");
        shipped.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(move |(_, line)| !comment(line))
    }

    fn find<'a>(&'a self, words: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        self.code().filter_map(|(no, line)| {
            let word = words.iter().find(|word| has_word(line, word))?;
            Some(format!("{}:{no}: `{word}`", self.path))
        })
    }
}

/// Whether a line holds a word, not as part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().filter(|_| word.starts_with(part));
        let after =
            line[at + word.len()..].chars().next().filter(|_| word.ends_with(|c: char| c.is_alphanumeric()));
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

fn core_has_no_outside_world(file: &Source) -> Vec<String> {
    if !file.path.starts_with("agentline-core/src/") || !file.ships() {
        return Vec::new();
    }
    file.find(OUTSIDE_WORLD).collect()
}

fn core_depends_on_little(file: &Source) -> Vec<String> {
    if file.path != "agentline-core/Cargo.toml" {
        return Vec::new();
    }
    dependencies(&file.text)
        .filter(|name| !CORE_DEPENDENCIES.contains(name))
        .map(|name| format!("{}: `{name}` is not among {CORE_DEPENDENCIES:?}", file.path))
        .collect()
}

/// Names in the `dependencies` tables, also those of one target, but not in those of tests.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            inside = line.trim_end().ends_with("dependencies]") && !line.contains("dev-");
            return None;
        }
        let name = line.split(['=', '.', ' ']).next()?;
        (inside && !name.is_empty() && !name.starts_with('#')).then_some(name)
    })
}

fn facts_of_an_agent_stand_in_its_folder(file: &Source) -> Vec<String> {
    let at_home =
        file.path.starts_with("agentline-core/src/agents/") || file.path.starts_with("agentline-mock/");
    if at_home || ABOUT_ONE_AGENT.contains(&&*file.path) || !file.ships() {
        return Vec::new();
    }
    file.find(AGENT_WORDS).collect()
}

fn one_place_lists_the_agents(file: &Source) -> Vec<String> {
    let the_place = file.path == "agentline-core/src/agents.rs";
    if the_place || file.path.starts_with("agentline-core/src/agents/") || !file.ships() {
        return Vec::new();
    }
    file.find(&["agents::gemini", "mod gemini"])
        .filter(|found| !found.starts_with("agentline-mock/"))
        .collect()
}

fn judges_name_nobody(file: &Source) -> Vec<String> {
    if !IMPARTIAL.contains(&&*file.path) {
        return Vec::new();
    }
    let shipped = file.text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default().to_lowercase();
    ["gemini", "claude", "codex", "opencode", "google"]
        .into_iter()
        .filter(|name| shipped.contains(name))
        .map(|name| format!("{}: names `{name}`", file.path))
        .collect()
}

fn only_the_command_line_parses_a_command_line(file: &Source) -> Vec<String> {
    if file.path.starts_with("agentline-cli/") {
        return Vec::new();
    }
    if file.path.ends_with("/Cargo.toml") {
        return dependencies(&file.text)
            .filter(|name| name.starts_with("clap"))
            .map(|name| format!("{}: `{name}`", file.path))
            .collect();
    }
    if file.ships() { file.find(&["clap"]).collect() } else { Vec::new() }
}

fn nobody_prints_by_macro(file: &Source) -> Vec<String> {
    if !file.ships() {
        return Vec::new();
    }
    file.find(&["print!", "println!", "eprint!", "eprintln!", "dbg!"]).collect()
}

fn unsafe_code_stands_in_few_files(file: &Source) -> Vec<String> {
    if !file.is_rust() || UNSAFE.contains(&&*file.path) {
        return Vec::new();
    }
    // Put together here so that this file passes its own rule.
    file.find(&[
        concat!("un", "safe {"),
        concat!("un", "safe fn"),
        concat!("un", "safe impl"),
        concat!("un", "safe extern"),
    ])
    .collect()
}

fn every_file_says_what_it_tells(file: &Source) -> Vec<String> {
    let beginning = if file.is_script() { "// " } else { "//! " };
    let text = match file.text.split_once('\n') {
        Some((first, rest)) if first.starts_with("#!") && file.is_script() => rest,
        _ => &file.text,
    };
    if !(file.is_rust() || file.is_script()) || text.starts_with(beginning) {
        return Vec::new();
    }
    vec![format!("{}: does not begin with `{beginning}`", file.path)]
}

fn no_file_is_too_long(file: &Source) -> Vec<String> {
    let lines = file.text.lines().count();
    if !(file.is_rust() || file.is_script()) || lines <= LONGEST {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines, over {LONGEST}", file.path)]
}

/// Packages in other languages bring nothing along.
fn integrations_depend_on_nothing(file: &Source) -> Vec<String> {
    let is_manifest = file.path.starts_with("integrations/") && file.path.ends_with("package.json");
    if !is_manifest || !file.text.contains("\"dependencies\"") {
        return Vec::new();
    }
    vec![format!("{}: has dependencies", file.path)]
}

fn no_path_of_a_machine(file: &Source) -> Vec<String> {
    // Put together here so that this file passes its own rule.
    let paths = [["/wo", "rk/"], ["/ro", "ot/"], ["/tmp/ag", "ents/"]].map(|parts| parts.concat());
    // `/demo/work/` is a path below another one and no machine's.
    let begins =
        |line: &str, at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c));
    let line = |line: &str| {
        paths.iter().any(|path| line.match_indices(path.as_str()).any(|(at, _)| begins(line, at)))
    };
    file.text
        .lines()
        .enumerate()
        .filter(|(_, text)| line(text))
        .map(|(i, _)| format!("{}:{}: a path of a machine", file.path, i + 1))
        .collect()
}

fn packages_come_from_the_public_registry(file: &Source) -> Vec<String> {
    if !file.path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    let public = r#"source = "registry+https://github.com/rust-lang/crates.io-index""#;
    file.text
        .lines()
        .filter(|line| line.starts_with("source = ") && *line != public)
        .map(|line| format!("{}: {line}", file.path))
        .collect()
}

type Rule = fn(&Source) -> Vec<String>;
/// A path and a text.
type Sample = (&'static str, &'static str);

/// Every rule, with a sample that breaks it and one that does not.
const RULES: &[(&str, Rule, Sample, Sample)] = &[
    (
        "the core has no files, processes, clock or runtime",
        core_has_no_outside_world,
        ("agentline-core/src/a.rs", "//! A.\nuse std::fs;\n"),
        (
            "agentline-core/src/a.rs",
            "//! A.\n// std::fs\nuse std::fmt;\nstruct Instants;\n#[cfg(test)]\nmod tests { use std::fs; }\n",
        ),
    ),
    (
        "the core depends on little",
        core_depends_on_little,
        ("agentline-core/Cargo.toml", "[dependencies]\ntokio.workspace = true\n"),
        (
            "agentline-core/Cargo.toml",
            "[dependencies]\nserde.workspace = true\n[dev-dependencies]\nproptest = '1'\n",
        ),
    ),
    (
        "a fact of an agent stands in its folder",
        facts_of_an_agent_stand_in_its_folder,
        ("agentline/src/run.rs", "//! A.\nlet tool = \"write_file\";\n"),
        ("agentline/src/run.rs", "//! A.\n/// Such as `write_file`.\nfn overwrite_files() {}\n"),
    ),
    (
        "one place lists the agents",
        one_place_lists_the_agents,
        ("agentline/src/run.rs", "//! A.\nuse agentline_core::agents::gemini;\n"),
        ("agentline/src/run.rs", "//! A.\nlet agent = agents::find(name)?;\n"),
    ),
    (
        "judges name nobody",
        judges_name_nobody,
        ("agentline-core/src/verdict.rs", "//! A.\n// As Gemini does.\n"),
        (
            "agentline-core/src/verdict.rs",
            "//! A.\n#[cfg(test)]\nmod tests { const A: &str = \"gemini\"; }\n",
        ),
    ),
    (
        "only the command line parses a command line",
        only_the_command_line_parses_a_command_line,
        ("agentline/Cargo.toml", "[dependencies]\nclap_complete = '4'\n"),
        ("agentline-cli/Cargo.toml", "[dependencies]\nclap = '4'\n"),
    ),
    (
        "nobody prints by macro",
        nobody_prints_by_macro,
        ("agentline/src/a.rs", "//! A.\neprintln!(\"x\");\n"),
        ("agentline/src/a.rs", "//! A.\n/// println!(\"x\")\nwriteln!(out, \"x\");\n"),
    ),
    (
        "unsafe code stands in few files",
        unsafe_code_stands_in_few_files,
        ("agentline/src/a.rs", "//! A.\nunsafe { f() }\n"),
        ("agentline/src/process/linux.rs", "//! A.\nunsafe { f() }\n"),
    ),
    (
        "every file says what it tells",
        every_file_says_what_it_tells,
        ("agentline/src/a.rs", "use a;\n"),
        ("agentline/src/a.rs", "//! Tells a.\n"),
    ),
    (
        "no file is too long to be read",
        no_file_is_too_long,
        ("agentline/src/a.rs", include_str!("layers.rs")),
        ("agentline/src/a.rs", "//! Short.\n"),
    ),
    (
        "integrations depend on nothing",
        integrations_depend_on_nothing,
        ("integrations/a/package.json", "{\"dependencies\": {\"b\": \"1\"}}"),
        ("integrations/a/package.json", "{\"name\": \"a\"}"),
    ),
    (
        "scripts say what they tell",
        every_file_says_what_it_tells,
        ("integrations/a/b.mjs", "#!/usr/bin/env node\nimport a;\n"),
        ("integrations/a/b.mjs", "#!/usr/bin/env node\n// Tells a.\n"),
    ),
    (
        "no path of a machine",
        no_path_of_a_machine,
        ("docs/a.md", concat!("cd /wo", "rk/here\n")),
        ("docs/a.md", concat!("cd /demo/wo", "rk/here\n")),
    ),
    (
        "packages come from the public registry",
        packages_come_from_the_public_registry,
        ("Cargo.lock", "source = \"registry+https://mirror.test/index\"\n"),
        ("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n"),
    ),
];

#[test]
fn every_rule_bites() {
    for (name, rule, (bad_path, bad), (good_path, good)) in RULES {
        // One sample is long rather than wrong.
        let bad = if *name == "no file is too long to be read" { bad.repeat(3) } else { (*bad).to_owned() };
        assert!(!rule(&Source::new(bad_path, &bad)).is_empty(), "`{name}` lets {bad_path} pass");
        let found = rule(&Source::new(good_path, good));
        assert!(found.is_empty(), "`{name}` finds {found:?}");
    }
}

#[test]
fn the_repository_keeps_every_rule() {
    let files = repository();
    assert!(files.len() > 100, "only {} files were found", files.len());
    for must in IMPARTIAL.iter().chain(UNSAFE) {
        assert!(files.iter().any(|f| f.path == *must), "{must} is named by a rule but is not there");
    }
    let broken: Vec<String> = RULES
        .iter()
        .flat_map(|(name, rule, ..)| files.iter().flat_map(rule).map(move |found| format!("{name}: {found}")))
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Every text file, named from `crates/` on where it is there.
fn repository() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).expect("the repository is there") {
            let entry = entry.expect("a file");
            let name = entry.file_name();
            let path = folder.join(&name);
            let hidden = name.to_string_lossy().starts_with('.') && name != ".ci";
            if hidden || ["target", "node_modules", "corpus", "artifacts"].iter().any(|skip| name == *skip) {
                continue;
            }
            if entry.file_type().expect("a kind").is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
                let path = path.to_string_lossy().replace('\\', "/");
                files.push(Source::new(path.strip_prefix("crates/").unwrap_or(&path), &text));
            }
        }
    }
    files
}
