//! Transplants every recording to every other agent, and reads the result back.

use agentline_core::{
    Entry, EntryPart, FileSystem, LossKind, Media, NewSession, NewSessionStorage, RawJson, Role, SavedResult,
    SavedSession, SavedTool, SessionFormat, ToolKind, ToolStatus, ToolUse, TransplantContext, agents,
    transplant_losses,
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const AGENTS: [&str; 4] = ["gemini", "claude", "codex", "opencode"];

struct NoFiles;

impl FileSystem for NoFiles {
    fn read(&self, _path: &Path) -> Option<Vec<u8>> {
        None
    }
    fn list(&self, _path: &Path) -> Option<Vec<String>> {
        None
    }
    fn exists(&self, _path: &Path) -> bool {
        false
    }
}

fn transplant(session: &SavedSession, to: &str) -> NewSession {
    let (env, project) = (BTreeMap::new(), (Path::new("/srv/app"), "5ea1"));
    let times = (*b"0123456789abcdef", 2_000_000_000_000);
    let context = TransplantContext::new(project, times, (&env, Path::new("/h")), &NoFiles);
    let agent = agents::find(to).expect("the agent is listed");
    agent.sessions().writer().expect("it can be written")(session, &context).expect("a short path")
}

fn format_of(new: &NewSession) -> SessionFormat {
    match new.storage {
        NewSessionStorage::Lines { .. } => SessionFormat::Lines,
        _ => SessionFormat::Whole,
    }
}

/// Reads a new session as the agent's own reader does.
fn read_back(new: &NewSession, agent: &str) -> SavedSession {
    let mut reader =
        agents::find(agent).expect("an agent").sessions().reader(format_of(new)).expect("a reader");
    new.records.iter().for_each(|record| reader.take(record.clone()));
    reader.finish()
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "jsonl" || kind == "json") {
            files.push(path);
        }
    }
}

/// Returns every recorded session of an agent that can be read: its path and content.
fn sources(agent: &str) -> Vec<(String, SavedSession)> {
    let captures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(agent);
    let mut files = Vec::new();
    for folder in ["saved", "sessions"].map(|name| captures.join(name)).iter().filter(|dir| dir.is_dir()) {
        files_below(folder, &mut files);
    }
    files.sort();
    let agent = agents::find(agent).expect("the agent is listed");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a text");
        let format = agent.sessions().format(text.as_bytes())?;
        let mut reader = agent.sessions().reader(format)?;
        let whole = RawJson::new(text);
        if format == SessionFormat::Lines {
            whole.as_str().lines().for_each(|line| reader.take(whole.part_of(line).expect("a line")));
        } else {
            reader.take(whole);
        }
        Some((path.display().to_string(), reader.finish()))
    };
    let sessions: Vec<_> = files.into_iter().filter_map(read).collect();
    assert!(!sessions.is_empty());
    sessions
}

/// Returns the texts and calls of a conversation in their order.
fn outline(session: &SavedSession) -> Vec<String> {
    let entries = session.loaded_entries().filter(|entry| {
        !entry.context && !entry.sidechain && !entry.results_only && entry.role != Role::System
    });
    let mut lines = Vec::new();
    for entry in entries {
        for part in &entry.parts {
            match part {
                EntryPart::Text { text } if !text.trim().is_empty() => {
                    lines.push(format!("{:?} {text}", entry.role));
                }
                EntryPart::Tool(tool) if tool.has_call() => {
                    let result = tool.result.as_ref().map(|result| result.content.as_str());
                    lines.push(format!(
                        "call {}",
                        result.unwrap_or("(the session ended before this call returned)")
                    ));
                }
                _ => {}
            }
        }
    }
    lines
}

/// Checks what holds for every transplanted session, and returns the kinds of content that it lost.
fn check(source: &SavedSession, to: &str, name: &str) -> BTreeSet<LossKind> {
    let new = transplant(source, to);
    let result = read_back(&new, to);
    assert_eq!(result.damage, [], "{name} to {to}");
    assert_eq!(result.info.id, new.id, "{name} to {to}");
    assert_eq!(result.info.project.as_deref(), Some("/srv/app"), "{name} to {to}");
    assert_eq!(outline(&result), outline(source), "{name} to {to}");
    if matches!(new.storage, NewSessionStorage::Lines { .. }) && !new.records.is_empty() {
        let head = new.records.iter().map(RawJson::as_str).collect::<Vec<_>>().join("\n");
        let agent = agents::find(to).expect("the agent is listed");
        assert_eq!(agent.sessions().format(head.as_bytes()), Some(format_of(&new)), "{name} to {to}");
    }
    // Tokens are counted once, in the source session.
    assert!(result.entries.iter().all(|entry| entry.usage.is_none()), "{name} to {to}");
    let losses = transplant_losses(source, &result);
    let kinds: BTreeSet<LossKind> = losses.iter().map(|loss| loss.kind).collect();
    for kept in [LossKind::Text, LossKind::Calls, LossKind::Results] {
        assert!(!kinds.contains(&kept), "{name} to {to}: {losses:?}");
    }
    kinds
}

/// To update the page, run `UPDATE_DOCS=1 cargo test -p agentline-core --test saved transplant`.
#[test]
fn recordings_keep_their_conversation_and_lose_what_the_page_says() {
    let mut lost: BTreeMap<(LossKind, &str), BTreeSet<&str>> = BTreeMap::new();
    for from in AGENTS {
        let with_conversation = sources(from).into_iter().filter(|(_, session)| !outline(session).is_empty());
        for (name, session) in with_conversation {
            for to in AGENTS.into_iter().filter(|to| *to != from) {
                for kind in check(&session, to, &name) {
                    lost.entry((kind, to)).or_default().insert(from);
                }
            }
        }
    }
    let title = |agent: &&str| agents::find(agent).expect("the agent is listed").info().title.to_owned();
    let mut table =
        format!("| lost | {} | because |\n", AGENTS.iter().map(title).collect::<Vec<_>>().join(" | "));
    table.push_str("|---|---|---|---|---|---|\n");
    for kind in LossKind::ALL {
        let cells = AGENTS.map(|to| {
            let from = lost.get(&(*kind, to)).into_iter().flatten();
            from.map(|from| format!("`{from}`")).collect::<Vec<_>>().join(", ")
        });
        if cells.iter().any(|cell| !cell.is_empty()) {
            table.push_str(&format!("| {} | {} | {} |\n", kind.title(), cells.join(" | "), kind.reason()));
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sessions.md");
    let written = fs::read_to_string(&page).expect("the page").replace("\r\n", "\n");
    let (start, end) = ("<!-- losses -->\n", "<!-- end of losses -->");
    let (before, rest) = written.split_once(start).expect("the mark of the table");
    let (_, after) = rest.split_once(end).expect("the mark of its end");
    let current = format!("{before}{start}\n{table}\n{end}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, current).expect("the page can be written");
    } else {
        assert!(written == current, "docs/sessions.md is out of date; run this test with UPDATE_DOCS=1");
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9 .,]{1,20}", "\\PC{1,12}", Just("a\n\n  b\tc \u{1F980}".to_owned())]
        .prop_filter("not blank", |text| !text.trim().is_empty())
}

fn tool() -> impl Strategy<Value = EntryPart> {
    let statuses = [ToolStatus::Ok, ToolStatus::Error, ToolStatus::Denied, ToolStatus::Cancelled];
    let names =
        ["Bash", "Read", "Write", "Edit", "Grep", "WebFetch", "TodoWrite", "mcp__docs__search", "own_tool"];
    let names = prop::sample::select(names.to_vec());
    (names, "[a-z0-9 !é]{0,12}", text(), text(), prop::option::of(prop::sample::select(statuses.to_vec())))
        .prop_map(|(name, id, argument, output, status)| {
            let input = match name {
                "Bash" => serde_json::json!({"command": argument}),
                "Write" => serde_json::json!({"file_path": "a.txt", "content": argument}),
                "Edit" => {
                    serde_json::json!({"file_path": "a.txt", "old_string": argument, "new_string": output})
                }
                "Read" => serde_json::json!({"file_path": argument}),
                _ => serde_json::json!({"query": argument}),
            };
            let mut call = ToolUse::new(id, name, "native", ToolKind::Other);
            call.input = serde_json::value::to_raw_value(&input).ok();
            let mut tool = SavedTool::new(call);
            tool.result = status.map(|status| SavedResult::new(status, output));
            EntryPart::Tool(Box::new(tool))
        })
}

fn entry() -> impl Strategy<Value = Entry> {
    let media = Just(EntryPart::Media(Media::new("image/png", Some("AAAA".into()), None)));
    let prompt = prop::collection::vec(prop_oneof![text().prop_map(EntryPart::text), media], 1..3)
        .prop_map(|parts| (Role::User, parts));
    let said =
        prop_oneof![text().prop_map(EntryPart::text), text().prop_map(EntryPart::thinking), tool(), tool(),];
    let answer = prop::collection::vec(said, 1..5).prop_map(|parts| (Role::Assistant, parts));
    (prop_oneof![prompt, answer], prop::option::of(0..3_000_000_000_000_u64)).prop_map(
        |((role, parts), at)| {
            let mut entry = Entry::new("e", role);
            (entry.parts, entry.timestamp) = (parts, at);
            entry
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn texts_calls_and_results_of_any_session_are_kept_in_order(
        entries in prop::collection::vec(entry(), 0..8),
        to in prop::sample::select(AGENTS.to_vec()),
    ) {
        let mut session = SavedSession::default();
        session.entries = entries;
        let new = transplant(&session, to);
        let result = read_back(&new, to);
        prop_assert_eq!(&result.damage, &[]);
        prop_assert_eq!(outline(&result), outline(&session));
        let ids: Vec<&str> =
            result.entries.iter().flat_map(|entry| entry.tools().map(|tool| tool.call.id.as_str())).collect();
        prop_assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{:?}", ids);
    }
}
