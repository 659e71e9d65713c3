//! `docs/cli.md` says what `--help` says.

use crate::user::User;
use std::{fs, path::Path};

const COMMANDS: &[&str] = &["run", "replay", "doctor", "agents", "demo", "config", "completions"];

/// `UPDATE_DOCS=1 cargo test -p agentline-tests --test cli docs` writes the page anew.
#[test]
fn the_page_holds_the_help_of_every_command() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let written = fs::read_to_string(&page).unwrap().replace("\r\n", "\n");
    let user = User::new();
    let mut current = between(&written, "agents table", &user.agentline(&["agents"]).out);
    for command in COMMANDS {
        current = between(&current, command, &user.agentline(&[command, "-h"]).out);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &current).unwrap();
    } else {
        assert!(written == current, "docs/cli.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

/// The page with this text between the two marks of a section.
fn between(page: &str, section: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- {section} -->\n"), format!("<!-- end of {section} -->"));
    let (before, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no mark `{start}`"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no mark `{end}`"));
    format!("{before}{start}```text\n{}\n```\n{end}{after}", text.trim_end())
}
