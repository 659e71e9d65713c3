//! Checks the features of the library: what builds without them, how many crates they need, and what the documentation
//! says about both.

use std::{collections::BTreeSet, fs, process::Command};

/// The library without features needs fewer crates than this.
const MOST_CRATES: usize = 90;

fn root() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
}

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(args).current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Counts the distinct crates that a package needs, with itself.
fn crates(package: &str, features: &[&str]) -> usize {
    let tree = ["tree", "--offline", "--locked", "-e", "normal", "--prefix", "none", "-p", package];
    let tree = cargo(&[&tree, features].concat());
    tree.lines().map(|line| line.trim_end_matches(" (*)")).collect::<BTreeSet<_>>().len()
}

/// Returns the features that a manifest declares, except `default`.
fn features(manifest: &str) -> Vec<&str> {
    let table =
        manifest.split("\n[features]\n").nth(1).expect("features").split("\n[").next().expect("a table");
    let names = table.lines().filter_map(|line| Some(line.split_once(" = ")?.0));
    names.filter(|name| *name != "default" && !name.starts_with(['#', ' '])).collect()
}

#[test]
fn library_without_features_builds() {
    // The script of CI has run the linter on it before, so that the same command only repeats what it found.
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let command = if is_ci { "clippy" } else { "check" };
    let mut check = vec![command, "--offline", "--locked", "-q", "-p", "agentline", "--no-default-features"];
    if is_ci {
        check.extend(["--lib", "--", "-D", "warnings"]);
    }
    let output = Command::new(env!("CARGO")).args(check).current_dir(root()).output().expect("cargo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("warning: "), "{errors}");
}

#[cfg(target_os = "linux")]
#[test]
fn documented_crate_counts_are_correct() {
    let page = fs::read_to_string(format!("{}/docs/library.md", root())).expect("the page");
    let none = crates("agentline", &["--no-default-features"]);
    assert!(none < MOST_CRATES, "{none} crates without features");
    let mut rows = vec![format!("| none | {none} |")];
    let manifest =
        fs::read_to_string(format!("{}/crates/agentline/Cargo.toml", root())).expect("the manifest");
    let features = features(&manifest);
    assert!(features.len() > 3, "{features:?}");
    for feature in features {
        let count = crates("agentline", &["--no-default-features", "--features", feature]);
        rows.push(format!("| `{feature}` | {count} |"));
    }
    rows.push(format!("| all (default) | {} |", crates("agentline", &[])));
    rows.push(format!("has {}.", crates("agentline-core", &[])));
    for row in rows {
        assert!(page.contains(&row), "docs/library.md does not contain: {row}");
    }
}

#[test]
fn examples_start_with_init() {
    let crate_docs = "crates/agentline/src/lib.rs";
    let mut files = vec!["README.md".to_owned(), "docs/library.md".to_owned(), crate_docs.to_owned()];
    let examples = fs::read_dir(format!("{}/crates/agentline/examples", root())).expect("the examples");
    let names = examples.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    files.extend(
        names.filter(|name| name.ends_with(".rs")).map(|name| format!("crates/agentline/examples/{name}")),
    );
    assert!(files.len() > 8);
    for file in files {
        let text = fs::read_to_string(format!("{}/{file}", root())).expect("a file");
        let lines = text.lines().map(|line| line.trim_start_matches("//!").trim());
        let mut code = lines
            .skip_while(|line| !line.contains("fn main()"))
            .skip(1)
            .filter(|line| !line.starts_with("//"));
        assert!(code.next().is_some_and(|line| line.starts_with("agentline::init();")), "{file}");
    }
}
