//! Checks that the tool tables are consistent in both directions and that the documentation matches them.

use agentline_core::{Agent, ToolRow, agents::built_in};
use proptest::prelude::*;
use serde_json::{Map, Value, value::to_raw_value};
use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path, sync::Arc};

fn rows() -> impl Iterator<Item = (Arc<dyn Agent>, &'static ToolRow)> {
    built_in()
        .into_iter()
        .flat_map(|agent| agent.tools().rows().iter().map(move |row| (Arc::clone(&agent), row)))
}

#[test]
fn tool_names_round_trip() {
    for (agent, row) in rows() {
        let table = agent.tools();
        let name = format!("{} {}", agent.info().id, row.native);
        assert_eq!(table.rows().iter().filter(|other| other.native == row.native).count(), 1, "{name}");
        assert_eq!(table.canonical(row.native), row.name, "{name}");
        assert!(table.natives(row.name).any(|native| native == row.native), "{name}");
        let native = table.native(row.name).expect("a canonical name has a native one");
        assert_eq!(table.canonical(&native), row.name, "{name}");
        assert_eq!(agent.native_tool(row.name), Some(&*native), "{name}");
        assert_eq!(
            table.native(row.native).as_deref(),
            Some(row.native),
            "{name}: a native name stays unchanged"
        );
    }
}

#[test]
fn server_tools_and_unknown_tools_pass_through() {
    for agent in built_in() {
        let table = agent.tools();
        let native = table.native("mcp__files__read_all").expect("every agent has servers");
        assert_eq!(table.canonical(&native), "mcp__files__read_all", "{}", agent.info().id);
        assert_eq!(table.server_tool(&native), Some(("files", "read_all")), "{}", agent.info().id);
        assert_eq!(table.canonical("brandnew"), "brandnew");
        assert_eq!(table.native("NoSuchTool"), None);
        let input = to_raw_value(&serde_json::json!({"filePath": 1})).unwrap();
        assert_eq!(table.canonical_input("brandnew", &input).get(), input.get());
        assert_eq!(table.native_input("brandnew", &input).get(), input.get());
    }
}

/// Returns the canonical argument names that can be passed to this tool.
fn names(row: &ToolRow) -> Vec<&'static str> {
    let theirs: BTreeSet<&str> = row.renames.iter().chain(row.older).map(|(theirs, _)| *theirs).collect();
    let taken = |name: &&str| {
        theirs.contains(name) || row.drops.contains(name) || row.adds.iter().any(|(ours, _)| ours == name)
    };
    let usual = ["file_path", "content", "pattern", "path", "glob", "command", "todos", "prompt", "other"];
    let ours = row.renames.iter().map(|(_, ours)| *ours).chain(row.items.map(|items| items.of));
    ours.chain(usual).filter(|name| !taken(name)).collect()
}

fn as_value(raw: &serde_json::value::RawValue) -> Value {
    serde_json::from_str(raw.get()).expect("raw JSON is JSON")
}

proptest! {
    #[test]
    fn arguments_round_trip(picks in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        offset in 1_u64..5000, limit in 1_u64..5000) {
        for (agent, row) in rows() {
            let names = names(row);
            let mut input = Map::new();
            for (pick, value) in &picks {
                let name = *pick.get(&names);
                let value = match row.items {
                    Some(items) if items.of == name => {
                        let mut item = Map::new();
                        item.insert(items.renames[0].1.into(), (*value).into());
                        item.insert("more".into(), "x".into());
                        Value::from(vec![item.into(), Value::Null])
                    }
                    _ => (*value).into(),
                };
                input.insert(name.to_owned(), value);
            }
            if row.lines {
                input.insert("offset".into(), offset.into());
                input.insert("limit".into(), limit.into());
            }
            let arguments = to_raw_value(&input).unwrap();
            let native = agent.tools().native_input(row.native, &arguments);
            let mut expected = input;
            for (name, value) in row.adds {
                expected.insert((*name).to_owned(), serde_json::from_str(value).unwrap());
            }
            let back = as_value(&agent.tools().canonical_input(row.native, &native));
            prop_assert_eq!(&back, &Value::Object(expected), "{} {} {}", agent.info().id, row.native, native.get());
            // Canonical arguments stay unchanged.
            let again = agent.tools().canonical_input(row.native, &to_raw_value(&back).unwrap());
            prop_assert_eq!(as_value(&again), back);
        }
    }
}

/// Returns a table of the tools of each agent by canonical name.
fn name_table() -> String {
    let mut names: Vec<&str> = Vec::new();
    // Claude Code comes first, because the canonical names are its own.
    let mut agents = built_in();
    agents.sort_by_key(|agent| agent.info().id != "claude");
    for row in agents.iter().flat_map(|agent| agent.tools().rows()) {
        if !names.contains(&row.name) {
            names.push(row.name);
        }
    }
    let mut text = String::from("| canonical |");
    built_in().iter().for_each(|agent| _ = write!(text, " {} |", agent.info().title));
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(agents.len()));
    for name in names {
        _ = write!(text, "\n| `{name}` |");
        for agent in built_in() {
            let own = agent
                .tools()
                .rows()
                .iter()
                .filter(|row| row.name == name)
                .map(|row| format!("`{}`", row.native));
            _ = write!(text, " {} |", own.collect::<Vec<_>>().join(", "));
        }
    }
    text + "\n"
}

/// Returns a table of the arguments that have other names in an agent's tool.
fn argument_table() -> String {
    let mut text = String::from("| agent | tool | native argument | canonical |\n|---|---|---|---|\n");
    let mut line = |agent: &str, tool: &str, theirs: &str, ours: &str| {
        _ = writeln!(text, "| {agent} | `{tool}` | {theirs} | {ours} |");
    };
    for (agent, row) in rows() {
        let title = agent.info().title;
        for (theirs, ours) in row.renames.iter().chain(row.older) {
            line(title, row.native, &format!("`{theirs}`"), &format!("`{ours}`"));
        }
        if let Some(items) = row.items {
            for (theirs, ours) in items.renames {
                let of = items.of;
                line(
                    title,
                    row.native,
                    &format!("`{theirs}` in each list item"),
                    &format!("`{of}[].{ours}`"),
                );
            }
        }
        if row.lines {
            line(title, row.native, "`start_line`, `end_line`", "`offset`, `limit`");
        }
        for name in row.drops {
            line(title, row.native, &format!("`{name}`"), "omitted");
        }
        for (name, value) in row.adds {
            line(title, row.native, "", &format!("`{name}`: `{value}`"));
        }
    }
    text
}

/// To update the page, run `UPDATE_DOCS=1 cargo test -p agentline-core --test core tool_tables`.
#[test]
fn page_contains_the_tables() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tool-names.md");
    let written = fs::read_to_string(&page).unwrap().replace("\r\n", "\n");
    let current = between(&written, "names", &name_table());
    let current = between(&current, "arguments", &argument_table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &current).unwrap();
    } else {
        assert!(written == current, "docs/tool-names.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

/// Replaces the text between the markers of a section.
fn between(page: &str, section: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- {section} -->\n"), format!("<!-- end of {section} -->"));
    let (before, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no mark `{start}`"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no mark `{end}`"));
    format!("{before}{start}{text}{end}{after}")
}
