//! Checks that the documentation of the settings matches the table of keys.

use agentline_core::config::{DEFAULTS, key_table};
use std::{fs, path::Path};

/// To update the page, run `UPDATE_DOCS=1 cargo test -p agentline-core --test core configuration_docs`.
#[test]
fn page_contains_the_key_table_and_defaults() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let written = fs::read_to_string(&page).unwrap().replace("\r\n", "\n");
    let current = between(&written, "keys", &key_table());
    let current = between(&current, "defaults", &format!("```toml\n{DEFAULTS}```\n"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &current).unwrap();
    } else {
        assert!(written == current, "docs/configuration.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

/// Replaces the text between the markers of a section.
fn between(page: &str, section: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- {section} -->\n"), format!("<!-- end of {section} -->"));
    let (before, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no mark `{start}`"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no mark `{end}`"));
    format!("{before}{start}{text}{end}{after}")
}
