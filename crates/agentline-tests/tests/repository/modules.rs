//! Checks the order of modules in each crate, and that no two visible types share a name.

use crate::source::before_tests;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The top-level modules of each crate, in layers. A module imports from lower layers only.
const LAYERS: &[(&str, &[&[&str]])] = &[
    (
        "agentline-core",
        &[
            &[
                "agent_id",
                "cache",
                "change",
                "extract",
                "failure",
                "filesystem",
                "id",
                "isolation",
                "line",
                "naming",
                "notice",
                "problem",
                "raw_json",
                "saved_diff",
                "signal",
                "terminal_text",
                "tool",
                "usage",
                "wire",
            ],
            &[
                "agent_option",
                "agent_settings",
                "hint",
                "memory_fs",
                "permission",
                "price",
                "rpc",
                "secret",
                "time",
                "written_keys",
            ],
            &["mcp_server", "usage_tracker", "verdict"],
            &["environment", "request"],
            &["input", "plan"],
            &["outcome", "policy"],
            &["event"],
            &["dialogue", "event_line", "message", "output", "tool_table"],
            &["hosted_tools"],
            &["acp", "change_tracker", "launch", "saved", "transcript"],
            &["session_database", "transplant"],
            &["claude", "redact", "session_source", "session_usage", "setup_probe", "view"],
            &["agent_description"],
            &["agent"],
            &["agents", "detect", "explain", "run"],
            &["config", "connection", "promptfoo", "validate"],
            &["tape"],
        ],
    ),
    (
        "agentline-fs",
        &[
            &[
                "digest",
                "file_lock",
                "private_file",
                "regular_file",
                "readable",
                "remove",
                "stamp",
                "user_dirs",
            ],
            &["disk_fs"],
            &["fingerprint"],
            &["caching_fs"],
        ],
    ),
    (
        "agentline-sessions",
        &[
            &["error", "facts", "filter", "location", "render", "stamp", "temporary_store"],
            &["candidate", "index", "lines", "sqlite", "store"],
            &["database", "project"],
            &["load", "scan"],
            &["gather"],
            &["list"],
            &["find", "search", "transplant", "usage", "watch"],
        ],
    ),
    (
        "agentline",
        &[
            &["answer_error", "blocking_work", "error", "fs", "text", "trace"],
            &["detect", "process"],
            &["workspace"],
            &["agentline", "install", "tools"],
            &["doctor", "resolve", "schema", "sessions", "settings"],
            &["run"],
            &["blocking", "cache", "compat"],
            &["pool"],
            &["api"],
            &["admission", "compare", "isolated"],
            &["host"],
        ],
    ),
    (
        "agentline-batch",
        &[
            &["check", "class", "document", "stats"],
            &["result", "suite"],
            &["template"],
            &["key"],
            &["store"],
            &["sequence", "worktree"],
            &["execute", "report"],
            &["distributed"],
        ],
    ),
    (
        "agentline-conformance",
        &[
            &["expected", "observed", "processes", "script", "target"],
            &["bench", "exceptions"],
            &["compare", "scenario"],
            &["play", "scenarios"],
            &["matrix"],
            &["kit", "page"],
        ],
    ),
    (
        "agentline-queue",
        &[
            &["clock", "error", "lease", "options"],
            &["names"],
            &["artifacts"],
            &["queue", "tree"],
            &["untrusted"],
            &["nats", "postgres", "s3", "sqlite"],
            &["with_artifacts"],
            &["connect"],
        ],
    ),
    (
        "agentline-acp",
        &[
            &["budget", "frame", "record", "redaction", "result", "transport", "update"],
            &["failure", "history"],
            &["content", "params", "peer"],
            &["read", "sessions", "workspace"],
            &["conversation", "running_agent"],
            &["native", "proxy"],
            &["held_agent"],
            &["server"],
        ],
    ),
    (
        "agentline-mcp",
        &[
            &["budget", "options", "progress", "question", "run_cost", "schema"],
            &["outputs", "scope"],
            &["tools"],
            &["arguments", "request"],
            &["run_table"],
            &["client", "report"],
            &["sessions", "state", "wait"],
            &["handler"],
            &["http", "stream"],
            &["nested"],
            &["server"],
        ],
    ),
    (
        "agentline-serve",
        &[
            &[
                "clock",
                "host_client",
                "http_error",
                "messages",
                "options",
                "page",
                "random",
                "rate",
                "running_cost",
                "token_use",
            ],
            &["audit", "ending", "roots", "running", "sign_in", "store", "tokens"],
            &["acp_audit", "acp_rules", "ongoing_run", "openapi", "start"],
            &["acp_servers", "conversation", "event_stream"],
            &["engine"],
            &["app"],
            &["acp_socket", "extract", "guard", "listener"],
            &["routes"],
            &["server"],
            &["internals"],
        ],
    ),
    (
        "agentline-cli",
        &[
            &["exit", "keyboard", "output", "prompt", "time"],
            &["error"],
            &["setup", "ui"],
            &["completers", "permission_prompt", "render"],
            &["live_run"],
            &["commands"],
            &["args"],
        ],
    ),
];

/// Crates without an order of modules: they do not ship, or are one flat list of independent modules.
const WITHOUT_LAYERS: &[&str] = &["agentline-fakes", "agentline-mock", "agentline-tests"];

/// Files that implement the types of another file for another operating system, or for builds without a feature.
const ALTERNATIVES: &[&str] = &[
    "agentline/src/no_schema.rs",
    "agentline/src/no_tools.rs",
    "agentline/src/process/macos.rs",
    "agentline/src/process/windows.rs",
    "agentline/src/workspace/files/portable.rs",
    "agentline-mcp/src/no_nested.rs",
];

#[test]
fn modules_import_from_lower_layers_only() {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (name, layers) in LAYERS {
        let source = CrateSource::read(name);
        let layer_of = |module: &str| layers.iter().position(|layer| layer.contains(&module));
        let unlisted = source.modules.iter().filter(|module| layer_of(module).is_none());
        wrong.extend(unlisted.map(|module| format!("{name}: `{module}` is in no layer")));
        let missing = layers.iter().copied().flatten().filter(|module| !source.modules.contains(**module));
        wrong.extend(missing.map(|module| format!("{name}: `{module}` is in a layer but does not exist")));
        for (module, imported, file) in source.imports() {
            let (Some(from), Some(to)) = (layer_of(&module), layer_of(&imported)) else { continue };
            checked += 1;
            if to >= from {
                wrong.push(format!("{}: `{module}` imports `{imported}`", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 1_000, "only {checked} imports were found");
}

#[test]
fn every_crate_has_an_order_of_modules_or_an_exemption() {
    let all = fs::read_dir(crates()).expect("the folder of all crates").flatten();
    let all = all.filter(|entry| entry.path().join("Cargo.toml").is_file());
    let all: BTreeSet<String> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let listed: Vec<String> = LAYERS
        .iter()
        .map(|(name, _)| *name)
        .chain(WITHOUT_LAYERS.iter().copied())
        .map(String::from)
        .collect();
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(unique.len(), listed.len(), "a crate is listed twice: {listed:?}");
    assert_eq!(unique, all, "list every crate in `LAYERS` or in `WITHOUT_LAYERS`");
}

#[test]
fn an_import_of_a_higher_layer_is_found() {
    let text = "use crate::{a::One, b::{self, Two as Other}};\nfn f() { crate::c::g() }\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}";
    let found: Vec<String> = paths(before_tests(text)).into_iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["crate::a::One", "crate::b::self", "crate::b::Two", "crate::c::g"]);
}

#[test]
fn no_two_visible_types_share_a_name() {
    let mut declared: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    let is_alternative = |file: &PathBuf| ALTERNATIVES.iter().any(|other| *file == crates().join(other));
    for file in rust_files(&crates()).into_iter().filter(|file| !is_alternative(file)) {
        let text = fs::read_to_string(&file).expect("a source file");
        for name in visible_types(&text) {
            declared.entry(name).or_default().insert(file.clone());
        }
    }
    assert!(declared.len() > 500, "the types were not found");
    for other in ALTERNATIVES {
        let text =
            fs::read_to_string(crates().join(other)).unwrap_or_else(|error| panic!("{other}: {error}"));
        let shares = visible_types(&text).any(|name| declared.contains_key(&name));
        assert!(shares, "{other} shares no type, so it needs no exception");
    }
    let shared: Vec<_> = declared.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(shared.is_empty(), "{shared:#?}");
}

/// Returns the names of types that are declared with any kind of `pub`.
fn visible_types(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let rest = line.strip_prefix("pub")?;
        let rest = match rest.strip_prefix('(') {
            Some(inside) => inside.split_once(')')?.1,
            None => rest,
        };
        let (keyword, rest) = rest.trim_start().split_once(' ')?;
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        ["struct", "enum", "trait", "type", "union"].contains(&keyword).then_some(name)
    })
}

/// The source of one crate.
struct CrateSource {
    folder: PathBuf,
    files: Vec<PathBuf>,
    modules: BTreeSet<String>,
    /// The module of each name that the root of the crate re-exports.
    exported: BTreeMap<String, String>,
}

impl CrateSource {
    fn read(name: &str) -> Self {
        let folder = crates().join(name).join("src");
        let files = rust_files(&folder);
        let root = fs::read_to_string(folder.join("lib.rs")).expect("a library");
        let declared = root.lines().filter_map(|line| {
            let (before, module) = line.strip_suffix(';')?.rsplit_once("mod ")?;
            (before.is_empty() || before.starts_with("pub")).then(|| module.to_owned())
        });
        let modules: BTreeSet<String> = declared.collect();
        let mut exported = BTreeMap::new();
        for path in paths(&root.replace("pub use crate::", "pub use ").replace("pub use ", "use crate::")) {
            if let [_, module, .., last] = path.as_slice()
                && modules.contains(module)
            {
                exported.insert(last.clone(), module.clone());
            }
        }
        Self { folder, files, modules, exported }
    }

    /// Returns every import of another top-level module: the importing module, the imported one, and the file.
    fn imports(&self) -> Vec<(String, String, PathBuf)> {
        let mut found = Vec::new();
        for file in &self.files {
            let relative = file.strip_prefix(&self.folder).expect("a file of this crate");
            let parts: Vec<String> =
                relative.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
            let own = &parts[0];
            if !self.modules.contains(own) || parts.iter().any(|part| part.ends_with("tests")) {
                continue;
            }
            let depth = parts.len() - usize::from(parts.last().is_some_and(|last| last == "mod"));
            let text = fs::read_to_string(file).expect("a source file");
            for path in paths(before_tests(&text)) {
                let up = path.iter().take_while(|part| *part == "super").count();
                let first = match path.first().map(String::as_str) {
                    Some("crate") => path.get(1),
                    Some("super") if up >= depth => path.get(up),
                    _ => None,
                };
                let Some(first) = first else { continue };
                let module = self.modules.get(first).or_else(|| self.exported.get(first));
                found.extend(
                    module
                        .filter(|module| *module != own)
                        .map(|module| (own.clone(), module.clone(), relative.to_owned())),
                );
            }
        }
        found
    }
}

pub(crate) fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates").to_owned()
}

/// Returns all Rust files below a directory.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns every path that a text imports, or names from the root of its crate or from a parent module.
pub(crate) fn paths(text: &str) -> Vec<Vec<String>> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    let mut rest = code.as_str();
    let mut other = String::new();
    while let Some(at) = rest.find("use ") {
        let line = rest[..at].rsplit('\n').next().unwrap_or_default().trim();
        let is_import = line.is_empty() || line.starts_with("pub");
        let end = if is_import { rest[at..].find(';').map(|end| at + end) } else { None };
        let end = end.unwrap_or(at + 4);
        other.push_str(&rest[..at]);
        if is_import {
            flatten(&rest[at + 4..end], &[], &mut found);
        }
        rest = &rest[end..];
    }
    other.push_str(rest);
    for (at, _) in other.match_indices("crate::").chain(other.match_indices("super::")) {
        let part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        if other[..at].chars().next_back().is_some_and(part) {
            continue;
        }
        let path: String = other[at..].chars().take_while(|c| part(*c)).collect();
        found.push(path.split("::").map(ToOwned::to_owned).collect());
    }
    found
}

/// Adds every path of a tree of imports.
fn flatten(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let mut path = before.to_vec();
    if let Some((head, inside)) = tree.split_once('{') {
        let head = head.split("::").map(str::trim).filter(|part| !part.is_empty());
        path.extend(head.map(ToOwned::to_owned));
        let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
        let (mut depth, mut start) = (0_usize, 0);
        for (at, c) in inside.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    flatten(&inside[start..at], &path, found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        if !inside[start..].trim().is_empty() {
            flatten(&inside[start..], &path, found);
        }
        return;
    }
    let name = tree.split(" as ").next().unwrap_or_default();
    path.extend(name.split("::").map(|part| part.trim().to_owned()));
    found.push(path);
}
