//! Checks the rules of the repository: what each layer may use, what each file may name, and how a file is formatted.
//! Each rule is a function over one file and is tested with a bad and a good sample.

use crate::source::{Source, TESTS_ONLY, before_tests, repository};
use std::path::Path;

/// The crates that the core may depend on: those without I/O.
const CORE_DEPENDENCIES: &[&str] =
    &["aho-corasick", "brush-parser", "jiff", "memchr", "serde", "serde_json", "strsim", "toml"];
/// What the core must not use: it gets all events and times as input.
const OUTSIDE_WORLD: &[&str] = &[
    "tokio",
    "std::fs",
    "std::process",
    "std::net",
    "std::env",
    "std::thread",
    "std::io",
    "Instant",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "TimeZone::system",
    "libc",
    "futures",
];
/// The crates of this workspace that each crate may depend on, from the lowest to the highest. Tests may use all.
const CRATES: &[(&str, &[&str])] = &[
    ("agentline-core", &[]),
    ("agentline-fs", &["agentline-core"]),
    ("agentline-sessions", &["agentline-core", "agentline-fs"]),
    ("agentline", &["agentline-core", "agentline-fs", "agentline-sessions"]),
    ("agentline-mock", &[]),
    ("agentline-fakes", &[]),
    ("agentline-queue", &[]),
    ("agentline-conformance", &["agentline", "agentline-mock"]),
    ("agentline-batch", &["agentline", "agentline-core", "agentline-fs", "agentline-queue"]),
    ("agentline-acp", &["agentline", "agentline-core"]),
    ("agentline-mcp", &["agentline", "agentline-core", "agentline-fs"]),
    (
        "agentline-serve",
        &[
            "agentline",
            "agentline-acp",
            "agentline-batch",
            "agentline-core",
            "agentline-fs",
            "agentline-sessions",
        ],
    ),
    (
        "agentline-cli",
        &[
            "agentline",
            "agentline-acp",
            "agentline-batch",
            "agentline-conformance",
            "agentline-core",
            "agentline-fs",
            "agentline-mcp",
            "agentline-mock",
            "agentline-queue",
            "agentline-serve",
            "agentline-sessions",
        ],
    ),
    (
        "agentline-tests",
        &[
            "agentline",
            "agentline-acp",
            "agentline-cli",
            "agentline-conformance",
            "agentline-core",
            "agentline-fakes",
            "agentline-mock",
            "agentline-queue",
            "agentline-serve",
        ],
    ),
];
/// What saved sessions and file helpers must not use: they start no process and need no runtime.
const RUNNER: &[&str] = &["tokio", "std::process", "std::net", "futures"];
/// The one file of them that waits in a runtime, behind a feature.
const WAITS: &[&str] = &["agentline-sessions/src/watch.rs"];
/// Files of the core that name an agent although they handle every one: settings and prices of known agents, formats that
/// have the name of one, and examples. All others must not.
const NAMES_AGENTS: &[&str] = &[
    "agentline-core/src/agent_id.rs",
    "agentline-core/src/claude.rs",
    "agentline-core/src/config.rs",
    "agentline-core/src/config/check.rs",
    "agentline-core/src/config/keys.rs",
    "agentline-core/src/config/layer.rs",
    "agentline-core/src/config/read.rs",
    "agentline-core/src/environment.rs",
    "agentline-core/src/lib.rs",
    "agentline-core/src/message.rs",
    "agentline-core/src/message/block.rs",
    "agentline-core/src/message/counts.rs",
    "agentline-core/src/naming.rs",
    "agentline-core/src/price.rs",
    "agentline-core/src/request.rs",
    "agentline-core/src/saved.rs",
    "agentline-core/src/tool_table.rs",
    "agentline-core/src/transcript.rs",
    "agentline-core/src/view.rs",
];
/// Files that may contain unsafe code: those that call the operating system, and tests that need it.
const UNSAFE: &[&str] = &[
    "agentline/src/workspace/files/unix.rs",
    "agentline/src/process/linux.rs",
    "agentline/src/process/macos.rs",
    "agentline/src/process/mounts.rs",
    "agentline/src/process/namespace.rs",
    "agentline/src/process/unix.rs",
    "agentline/src/process/windows.rs",
    "agentline-fakes/src/os.rs",
    "agentline-fakes/tests/fake_agents/fake_agent.rs",
    "agentline-tests/benches/agentline/promptfoo/tree.rs",
    "agentline-tests/benches/agentline/transport.rs",
    "agentline-tests/src/os.rs",
];
/// The maximum length of a file in lines.
const LONGEST: usize = 600;

fn core_uses_no_io(file: &Source) -> Vec<String> {
    if !file.path.starts_with("agentline-core/src/") || !file.ships() {
        return Vec::new();
    }
    file.find(OUTSIDE_WORLD).chain(file.find_imports(OUTSIDE_WORLD)).collect()
}

/// On Windows, the standard library's function returns paths that few programs understand.
fn paths_are_resolved_by_one_function(file: &Source) -> Vec<String> {
    let is_elsewhere =
        file.path.starts_with("agentline/src/") || file.path.starts_with("agentline-sessions/src/");
    if !is_elsewhere || !file.ships() {
        return Vec::new();
    }
    let is_found = |line: &str| line.contains(".canonicalize()") || line.contains("fs::canonicalize(");
    let found = file.code().filter(|(_, line)| is_found(line) && !line.contains("disk_fs::canonicalize("));
    found.map(|(no, _)| format!("{}:{no}: use `disk_fs::canonicalize`", file.path)).collect()
}

fn core_has_few_dependencies(file: &Source) -> Vec<String> {
    if file.path != "agentline-core/Cargo.toml" {
        return Vec::new();
    }
    dependencies(&file.text)
        .filter(|name| !CORE_DEPENDENCIES.contains(name))
        .map(|name| format!("{}: `{name}` is not among {CORE_DEPENDENCIES:?}", file.path))
        .collect()
}

fn crates_depend_on_lower_crates_only(file: &Source) -> Vec<String> {
    let Some(name) = file.path.strip_suffix("/Cargo.toml").filter(|name| name.starts_with("agentline"))
    else {
        return Vec::new();
    };
    let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{}: the crate is not in the table", file.path)];
    };
    dependencies(&file.text)
        .filter(|used| used.starts_with("agentline") && !allowed.contains(used))
        .map(|used| format!("{}: `{used}` is not among {allowed:?}", file.path))
        .collect()
}

fn saved_sessions_need_no_runner(file: &Source) -> Vec<String> {
    if WAITS.contains(&&*file.path) { Vec::new() } else { use_of_the_runner(file) }
}

fn use_of_the_runner(file: &Source) -> Vec<String> {
    let is_below =
        ["agentline-sessions/src/", "agentline-fs/src/"].iter().any(|at| file.path.starts_with(at));
    if !is_below || !file.ships() {
        return Vec::new();
    }
    file.find(RUNNER).chain(file.find_imports(RUNNER)).collect()
}

/// Returns the names in the `dependencies` tables, including those of one target, but not those of tests.
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

fn shared_code_names_no_agent(file: &Source) -> Vec<String> {
    if NAMES_AGENTS.contains(&&*file.path) { Vec::new() } else { agent_names(file) }
}

fn agent_names(file: &Source) -> Vec<String> {
    let is_agent_code = file.path.starts_with("agentline-core/src/agents");
    if !file.path.starts_with("agentline-core/src/") || is_agent_code || !file.ships() {
        return Vec::new();
    }
    let shipped = before_tests(&file.text).to_lowercase();
    ["gemini", "claude", "codex", "opencode", "google"]
        .into_iter()
        .filter(|name| shipped.contains(name))
        .map(|name| format!("{}: names `{name}`", file.path))
        .collect()
}

fn only_the_cli_parses_arguments(file: &Source) -> Vec<String> {
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

fn no_print_macros(file: &Source) -> Vec<String> {
    if !file.ships() {
        return Vec::new();
    }
    file.find(&["print!", "println!", "eprint!", "eprintln!", "dbg!"]).collect()
}

fn unsafe_code_is_limited_to_few_files(file: &Source) -> Vec<String> {
    if UNSAFE.contains(&&*file.path) { Vec::new() } else { unsafe_code(file) }
}

fn unsafe_code(file: &Source) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    // Assembled here so that this file passes its own rule.
    file.find(&[
        concat!("un", "safe {"),
        concat!("un", "safe fn"),
        concat!("un", "safe impl"),
        concat!("un", "safe extern"),
    ])
    .collect()
}

fn every_file_has_a_header(file: &Source) -> Vec<String> {
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

/// Packages in other languages have no dependencies.
fn integrations_have_no_dependencies(file: &Source) -> Vec<String> {
    let is_manifest = file.path.starts_with("integrations/") && file.path.ends_with("package.json");
    if !is_manifest || !file.text.contains("\"dependencies\"") {
        return Vec::new();
    }
    vec![format!("{}: has dependencies", file.path)]
}

fn no_machine_paths(file: &Source) -> Vec<String> {
    // Assembled here so that this file passes its own rule.
    let paths = [["/wo", "rk/"], ["/ro", "ot/"], ["/tmp/ag", "ents/"]].map(|parts| parts.concat());
    // `/demo/work/` is a path below another one and not a path of a machine.
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
        core_uses_no_io,
        ("agentline-core/src/a.rs", "//! A.\nuse std::fs;\n"),
        (
            "agentline-core/src/a.rs",
            "//! A.\n// std::fs\nuse std::fmt;\nstruct Instants;\n#[cfg(test)]\nmod tests { use std::fs; }\n",
        ),
    ),
    (
        "the core has none in a group of imports either",
        core_uses_no_io,
        (
            "agentline-core/src/a.rs",
            "//! A.\n#[cfg(test)]\nmod tests;\nuse std::{\n    fmt,\n    io::{self, Read},\n};\n",
        ),
        ("agentline-core/src/a.rs", "//! A.\nuse std::{\n    fmt,\n    path::{self, Path},\n};\n"),
    ),
    (
        "the core has few dependencies",
        core_has_few_dependencies,
        ("agentline-core/Cargo.toml", "[dependencies]\ntokio.workspace = true\n"),
        (
            "agentline-core/Cargo.toml",
            "[dependencies]\nserde.workspace = true\n[dev-dependencies]\nproptest = '1'\n",
        ),
    ),
    (
        "crates depend on lower crates only",
        crates_depend_on_lower_crates_only,
        ("agentline-sessions/Cargo.toml", "[dependencies]\nagentline.workspace = true\n"),
        (
            "agentline-sessions/Cargo.toml",
            "[dependencies]\nagentline-core.workspace = true\n[dev-dependencies]\nagentline-mock = '1'\n",
        ),
    ),
    (
        "what ships does not contain the fake agents",
        crates_depend_on_lower_crates_only,
        ("agentline-cli/Cargo.toml", "[dependencies]\nagentline-fakes.workspace = true\n"),
        ("agentline-cli/Cargo.toml", "[dependencies]\nagentline-mock.workspace = true\n"),
    ),
    (
        "saved sessions need no runner",
        saved_sessions_need_no_runner,
        ("agentline-sessions/src/a.rs", "//! A.\nuse tokio::time;\n"),
        ("agentline-sessions/src/watch.rs", "//! A.\nuse tokio::time;\n"),
    ),
    (
        "saved sessions need no runner in a group of imports either",
        saved_sessions_need_no_runner,
        ("agentline-sessions/src/a.rs", "//! A.\nuse std::{fs, process::Command};\n"),
        ("agentline-sessions/src/a.rs", "//! A.\nuse std::{fs, path::Path};\n"),
    ),
    (
        "shared code names no agent",
        shared_code_names_no_agent,
        ("agentline-core/src/verdict.rs", "//! A.\n// As Gemini does.\n"),
        (
            "agentline-core/src/verdict.rs",
            "//! A.\n#[cfg(test)]\nmod tests { const A: &str = \"gemini\"; }\n",
        ),
    ),
    (
        "only the command-line tool parses arguments",
        only_the_cli_parses_arguments,
        ("agentline/Cargo.toml", "[dependencies]\nclap_complete = '4'\n"),
        ("agentline-cli/Cargo.toml", "[dependencies]\nclap = '4'\n"),
    ),
    (
        "no print macros",
        no_print_macros,
        ("agentline/src/a.rs", "//! A.\neprintln!(\"x\");\n"),
        ("agentline/src/a.rs", "//! A.\n/// println!(\"x\")\nwriteln!(out, \"x\");\n"),
    ),
    (
        "unsafe code is limited to few files",
        unsafe_code_is_limited_to_few_files,
        ("agentline/src/a.rs", "//! A.\nunsafe { f() }\n"),
        ("agentline/src/process/linux.rs", "//! A.\nunsafe { f() }\n"),
    ),
    (
        "every file has a header",
        every_file_has_a_header,
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
        "integrations have no dependencies",
        integrations_have_no_dependencies,
        ("integrations/a/package.json", "{\"dependencies\": {\"b\": \"1\"}}"),
        ("integrations/a/package.json", "{\"name\": \"a\"}"),
    ),
    (
        "scripts have a header",
        every_file_has_a_header,
        ("integrations/a/b.mjs", "#!/usr/bin/env node\nimport a;\n"),
        ("integrations/a/b.mjs", "#!/usr/bin/env node\n// Tells a.\n"),
    ),
    (
        "no machine paths",
        no_machine_paths,
        ("docs/a.md", concat!("cd /wo", "rk/here\n")),
        ("docs/a.md", concat!("cd /demo/wo", "rk/here\n")),
    ),
    (
        "paths are resolved by one function",
        paths_are_resolved_by_one_function,
        ("agentline/src/a.rs", "//! A.\nlet real = path.canonicalize()?;\n"),
        ("agentline/src/a.rs", "//! A.\nlet real = canonicalize(path)?;\n"),
    ),
    (
        "packages come from the public registry",
        packages_come_from_the_public_registry,
        ("Cargo.lock", "source = \"registry+https://mirror.test/index\"\n"),
        ("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n"),
    ),
];

#[test]
fn every_rule_rejects_its_bad_sample() {
    for (name, rule, (bad_path, bad), (good_path, good)) in RULES {
        // One sample is too long rather than wrong.
        let bad = if *name == "no file is too long to be read" { bad.repeat(3) } else { (*bad).to_owned() };
        assert!(!rule(&Source::new(bad_path, &bad)).is_empty(), "`{name}` accepts {bad_path}");
        let found = rule(&Source::new(good_path, good));
        assert!(found.is_empty(), "`{name}` finds {found:?}");
    }
}

#[test]
fn repository_follows_every_rule() {
    let files = repository();
    assert!(files.len() > 100, "only {} files were found", files.len());
    let broken: Vec<String> = RULES
        .iter()
        .flat_map(|(name, rule, ..)| files.iter().flat_map(rule).map(move |found| format!("{name}: {found}")))
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Without its exception, each of these files would break the rule.
#[test]
fn every_exception_is_needed() {
    let files = repository();
    let exceptions: [(&[&str], Rule); 3] =
        [(NAMES_AGENTS, agent_names), (UNSAFE, unsafe_code), (WAITS, use_of_the_runner)];
    let breaks =
        |path: &str, rule: Rule| files.iter().any(|file| file.path == path && !rule(file).is_empty());
    let all = exceptions.iter().flat_map(|(paths, rule)| paths.iter().map(|path| (*path, *rule)));
    let needless: Vec<&str> = all.filter(|(path, rule)| !breaks(path, *rule)).map(|(path, _)| path).collect();
    assert!(needless.is_empty(), "these files do not exist or need no exception: {needless:#?}");
    for path in TESTS_ONLY {
        let module = path.rsplit('/').next().unwrap().trim_end_matches(".rs");
        let parent = Path::new(path).with_file_name("lib.rs");
        let parent = files.iter().find(|file| Path::new(&file.path) == parent).expect("the parent file");
        let declared = format!("#[cfg(test)]\nmod {module};");
        assert!(parent.text.contains(&declared), "{path} is not only for tests: no `{declared}`");
    }
}
