//! Reads the sessions of a real OpenCode while it writes them and afterwards: from its database, and from its export.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline::{
    Agent as _, ToolStatus,
    sessions::{
        SessionChange, SessionStore, SessionWatch,
        sqlite::{Database, SessionDatabase},
    },
};
use agentline_core::{
    Entry, EntryPart, RawJson, Role, SavedSession, SessionFormat,
    agents::{built_in, opencode::OpenCode},
};
use agentline_mock::{openai, scripted::ModelStep};
use agentline_tests::AcpStage;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

/// Longer than any of its runs takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);

fn command(stage: &AcpStage, args: &[&str]) -> Command {
    let mut command = Command::new(&stage.agent.program);
    command
        .args(args)
        .env_clear()
        .envs(stage.variables())
        .current_dir(stage.workspace())
        .stdin(Stdio::null());
    command
}

fn schema() -> &'static dyn SessionDatabase {
    OpenCode.sessions().database().unwrap()
}

fn database(stage: &AcpStage) -> PathBuf {
    stage.home().join(".local/share/opencode/opencode.db")
}

/// Returns the files of the database with their content and modification times.
fn files(stage: &AcpStage) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let folder = database(stage).parent().unwrap().to_owned();
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let own = all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("opencode.db"));
    own.map(|path| {
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        (path.file_name().unwrap().to_string_lossy().into_owned(), (fs::read(&path).unwrap(), changed))
    })
    .collect()
}

/// Returns all text, in lines.
fn text_lines(session: &SavedSession) -> Vec<String> {
    let part = |role: Role, part: &EntryPart| match part {
        EntryPart::Text { text } => format!("{role:?}: {text}"),
        EntryPart::Thinking { text, .. } => format!("thinking: {text}"),
        EntryPart::Tool(tool) => {
            let result = tool.result.as_ref().map(|result| (result.status, result.content.as_str()));
            let diff = tool
                .diff
                .as_ref()
                .map_or("", |diff| Path::new(&diff.path).file_name().unwrap().to_str().unwrap());
            format!("{} {result:?} {diff}", tool.call.name)
        }
        other => format!("{other:?}"),
    };
    let visible = session.entries.iter().filter(|entry| !entry.context);
    visible.flat_map(|entry| entry.parts.iter().map(move |p| part(entry.role, p))).collect()
}

#[test]
fn opencode_database_is_read_while_opencode_writes() {
    let steps = [
        ModelStep::thought("First the file.")
            .and_text("I write.")
            .and_call("write", json!({"filePath": "a.txt", "content": "one\n"})),
        ModelStep::call("edit", json!({"filePath": "a.txt", "oldString": "one", "newString": "two"})),
        ModelStep::call("bash", json!({"command": "echo out; exit 3", "description": "d"})).delay(1500),
        ModelStep::text("All done.").delay(1500),
    ];
    let Some(stage) = AcpStage::opencode(openai::model(steps).unwrap()) else { return };
    let out = stage.home().join("out.jsonl");
    let mut child = command(&stage, &["run", "--format", "json", "go"])
        .stdout(File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Its tables are created in the first seconds. From then on, committed data can be read at any time.
    let began = Instant::now();
    let mut seen: Vec<usize> = Vec::new();
    let store = SessionStore::new(built_in(), stage.variables().clone(), stage.home());
    let mut watch: Option<SessionWatch> = None;
    let mut followed_entries: Vec<Entry> = Vec::new();
    let status = loop {
        let ended = child.try_wait().unwrap();
        if watch.is_none() {
            let found = store.find("latest", &stage.workspace()).ok();
            watch = found.map(|found| store.watch(&found).unwrap());
        }
        for change in watch.iter_mut().flat_map(SessionWatch::poll) {
            match change {
                SessionChange::Added { at, entry } => {
                    assert_eq!(at, followed_entries.len());
                    followed_entries.push(*entry);
                }
                SessionChange::Grown { at, entry } => followed_entries[at] = *entry,
                SessionChange::Cut { at } => followed_entries.truncate(at),
                _ => {}
            }
        }
        if let Ok(open) = Database::open(&database(&stage), schema())
            && let Some(row) = open.sessions().unwrap().value.first()
            && let Some(session) = open.load(&row.info.id).unwrap()
        {
            seen.push(text_lines(&session).len());
        }
        if let Some(status) = ended {
            break status;
        }
        if began.elapsed() > LIMIT {
            child.kill().ok();
            panic!("{}", fs::read_to_string(&out).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{}", fs::read_to_string(&out).unwrap_or_default());
    assert!(seen.iter().any(|n| (1..6).contains(n)), "entries were read before the end: {seen:?}");
    assert!(seen.is_sorted(), "entries that were read stay: {seen:?}");

    let before = files(&stage);
    let open = Database::open(&database(&stage), schema()).unwrap();
    let listed = open.sessions().unwrap();
    assert_eq!((listed.damage, listed.value.len()), (vec![], 1));
    let row = &listed.value[0];
    let session = open.load(&row.info.id).unwrap().unwrap();
    assert_eq!(session.damage, []);
    let lines = text_lines(&session);
    assert_eq!(lines[..3], ["User: go", "thinking: First the file.", "Assistant: I write."]);
    assert!(lines[3].starts_with("Write Some((Ok, ") && lines[3].ends_with("a.txt"), "{lines:?}");
    assert!(lines[4].starts_with("Edit Some((Ok, ") && lines[4].ends_with("a.txt"), "{lines:?}");
    assert!(lines[5].starts_with("Bash Some((Error, \"out"), "{lines:?}");
    assert_eq!(lines[6..], ["Assistant: All done."]);
    let edit = session.entries.iter().flat_map(|e| e.tools()).find(|tool| tool.call.name == "Edit").unwrap();
    assert_eq!(edit.call.input.as_ref().unwrap().get().matches("old_string").count(), 1);
    assert!(edit.diff.as_ref().unwrap().unified.as_ref().unwrap().contains("+two"));
    assert_eq!(edit.result.as_ref().unwrap().status, ToolStatus::Ok);
    let token_counts = session
        .entries
        .iter()
        .filter_map(|entry| entry.usage)
        .fold(agentline::Tokens::default(), |a, b| a.plus(b));
    assert_eq!(token_counts.total, row.tokens.unwrap().total, "the steps add up to the session's count");
    assert_eq!(session.entries.iter().filter_map(|entry| entry.requests).sum::<u64>(), 4);
    assert_eq!(session.info.agent_version.as_deref(), Some("1.18.33"));
    let workspace = fs::canonicalize(stage.workspace()).unwrap();
    assert_eq!(session.info.project.as_deref().map(Path::new), Some(workspace.as_path()));
    let mut followed = SavedSession::default();
    followed.entries = followed_entries;
    assert_eq!(text_lines(&followed), lines, "the followed session equals the stored one");
    let end = watch.unwrap().finish();
    assert_eq!((text_lines(&end), end.info), (lines.clone(), session.info.clone()));
    drop(open);
    assert!(files(&stage) == before, "reading changed something");

    let exported = command(&stage, &["export", &row.info.id]).output().unwrap();
    let text = String::from_utf8(exported.stdout).unwrap();
    assert_eq!(OpenCode.sessions().format(text.as_bytes()), Some(SessionFormat::Whole), "{text:.200}");
    let mut fold = OpenCode.sessions().reader(SessionFormat::Whole).unwrap();
    fold.take(RawJson::new(text));
    let exported = fold.finish();
    assert_eq!((text_lines(&exported), &exported.damage), (lines, &vec![]));
    assert_eq!(exported.info, session.info);
}
