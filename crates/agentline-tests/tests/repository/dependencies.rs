//! Checks that every dependency has a license that `deny.toml` allows and comes from the crates registry or from this
//! repository.

use serde_json::Value;
use std::process::Command;

fn root() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
}

fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{}/deny.toml", root())).expect("deny.toml");
    let list =
        text.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).expect("a list of licences");
    // A comment has a line of its own.
    let lines = list.lines().map(str::trim).filter(|line| line.starts_with('"'));
    lines.map(|line| line.trim_end_matches(',').trim_matches('"').to_owned()).collect()
}

/// Returns whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be satisfied with the allowed
/// licenses.
fn can_be_met(expression: &str, allowed: &[String]) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    let ok = |licence: &str| allowed.iter().any(|a| a == licence.trim());
    plain.split(" AND ").all(|all| all.split(" OR ").any(ok))
}

#[test]
fn licences_and_sources_are_allowed() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(format!("{}/Cargo.toml", root()))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let allowed = allowed();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "the whole graph is checked");
    let mut wrong = Vec::new();
    for package in packages {
        let name = format!("{} {}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
        let licence = package["license"].as_str().unwrap_or("none");
        if !can_be_met(licence, &allowed) {
            wrong.push(format!("{name}: licence {licence}"));
        }
        let source = package["source"].as_str();
        if source.is_some_and(|s| !s.starts_with("registry+")) {
            wrong.push(format!("{name}: source {source:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn licence_check_rejects_disallowed_licences() {
    let allowed = allowed();
    assert!(can_be_met("MIT OR GPL-3.0", &allowed));
    assert!(can_be_met("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed));
    assert!(!can_be_met("GPL-3.0-only", &allowed));
    assert!(!can_be_met("MIT AND MPL-2.0", &allowed));
}
