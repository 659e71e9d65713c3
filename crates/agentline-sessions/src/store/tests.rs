//! Tests of the store on small home directories with sessions of Claude Code and Gemini CLI.

use crate::{store::INDEX, *};
use agentline_core::{EntryPart, agents::built_in};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const ID: &str = "11111111-aaaa-4000-8000-000000000001";
const OTHER: &str = "11111111-bbbb-4000-8000-000000000002";

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap()
    }

    fn store(&self) -> SessionStore {
        SessionStore::new(built_in(), BTreeMap::new(), self.path())
    }

    fn claude(&self, id: &str, lines: &[String]) -> PathBuf {
        let file = self.path().join(".claude/projects/-ws").join(format!("{id}.jsonl"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, lines.concat()).unwrap();
        file
    }

    fn project(&self) -> PathBuf {
        let project = self.path().join("ws");
        fs::create_dir_all(&project).unwrap();
        project
    }
}

fn user(home: &Home, id: &str, at: u32, text: &str) -> String {
    let project = home.project();
    // The second prompt of a session follows the first answer.
    let parent = (at == 3).then(|| format!("a2-{id}"));
    let record = serde_json::json!({
        "type": "user", "uuid": format!("u{at}-{id}"), "parentUuid": parent, "sessionId": id, "cwd": project,
        "timestamp": format!("2026-11-15T04:{at:02}:00.000Z"), "version": "2.1.197", "gitBranch": "hiddenbranch",
        "message": {"role": "user", "content": text},
    });
    format!("{record}\n")
}

fn answer(id: &str, at: u32, message: &str, text: &str) -> String {
    let record = serde_json::json!({
        "type": "assistant", "uuid": format!("a{at}-{id}"), "parentUuid": format!("u{}-{id}", at - 1),
        "sessionId": id, "timestamp": format!("2026-11-15T04:{at:02}:00.000Z"), "requestId": format!("req_{message}"),
        "message": {
            "id": message, "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 100, "cache_read_input_tokens": 20, "output_tokens": 7},
        },
    });
    format!("{record}\n")
}

fn simple(home: &Home, id: &str, at: u32, text: &str) -> PathBuf {
    home.claude(id, &[user(home, id, at, text), answer(id, at + 1, &format!("msg_{id}"), "Done.")])
}

/// Sets the modification time of a file to an hour ago.
fn settle(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600)).unwrap();
}

fn message(error: &SessionError) -> String {
    assert!(!matches!(error, SessionError::Io { .. }), "{error}");
    error.to_string()
}

#[test]
fn sessions_are_listed_newest_first_with_their_usage() {
    let home = Home::new();
    simple(&home, ID, 1, "First  prompt\nof all");
    simple(&home, OTHER, 5, "x".repeat(300).as_str());
    let all = home.store().list(&SessionFilter::new()).unwrap();
    assert_eq!(all.iter().map(|s| s.info.id.as_str()).collect::<Vec<_>>(), [OTHER, ID]);
    let first = &all[1];
    assert_eq!(first.title.as_deref(), Some("First prompt of all"));
    assert_eq!(first.info.project.as_deref(), home.project().to_str());
    assert_eq!((first.prompts, first.answers, first.damage), (1, 1, 0));
    assert_eq!((first.used.tokens.input, first.used.tokens.cached), (Some(120), Some(20)));
    assert!(first.used.cost_usd.is_some_and(|usd| usd > 0.0) && first.by_model.len() == 1);
    let title = all[0].title.as_deref().unwrap();
    assert!(title.ends_with('…') && title.chars().count() == 101, "{title}");
    let json = serde_json::to_string(first).unwrap();
    assert_eq!(json.matches("\"title\"").count(), 1, "{json}");
    assert_eq!(json.matches("\"cost_usd\"").count(), 2, "one for the session and one for its model: {json}");
}

#[test]
fn filters_exclude_other_sessions() {
    let home = Home::new();
    simple(&home, ID, 1, "one");
    simple(&home, OTHER, 30, "two");
    let list = |filter: SessionFilter| {
        let all = home.store().list(&filter).unwrap();
        all.into_iter().map(|s| s.info.id).collect::<Vec<_>>()
    };
    let at = |minute: u64| 1_794_715_200_000 + minute * 60_000;
    assert_eq!(list(SessionFilter::new().since(at(10))), [OTHER]);
    assert_eq!(list(SessionFilter::new().until(at(10))), [ID]);
    assert_eq!(list(SessionFilter::new().project(home.project())).len(), 2);
    assert!(list(SessionFilter::new().project(home.path())).is_empty());
    assert_eq!(list(SessionFilter::new().agent("claude")).len(), 2);
    assert!(list(SessionFilter::new().agent("gemini").agent("codex")).is_empty());
    let wrong = home.store().list(&SessionFilter::new().agent("cluade")).unwrap_err();
    assert!(message(&wrong).contains("did you mean `claude`"), "{wrong}");
}

#[test]
fn session_is_found_by_id_prefix_latest_and_file() {
    let home = Home::new();
    let file = simple(&home, ID, 1, "one");
    simple(&home, OTHER, 5, "two");
    let find = |selector: &str| home.store().find(selector, &home.project()).map(|found| found.info.id);
    assert_eq!(find(ID).unwrap(), ID);
    assert_eq!(find("11111111-b").unwrap(), OTHER);
    assert_eq!(find("latest").unwrap(), OTHER);
    assert_eq!(find(file.to_str().unwrap()).unwrap(), ID);
    for (selector, expected) in [
        ("1111", ["2 sessions", "more characters"]),
        ("111", ["no session `111` found", "at least four characters"]),
        ("9999", ["no session `9999` found", "sessions list"]),
    ] {
        let error = find(selector).unwrap_err();
        assert!(expected.iter().all(|word| message(&error).contains(word)), "{error}");
    }
    let error = home.store().find("latest", Path::new("/nowhere")).unwrap_err();
    assert!(message(&error).contains("no session found for `/nowhere`"), "{error}");
    let stranger = home.path().join("notes.json");
    fs::write(&stranger, "{\"a\":1}").unwrap();
    assert!(message(&find(stranger.to_str().unwrap()).unwrap_err()).contains("is not a session of"));
    assert!(matches!(find("./missing.jsonl").unwrap_err(), SessionError::Io { .. }));
    assert!(message(&find(home.path().to_str().unwrap()).unwrap_err()).contains("is not a file"));
    let copy = home.path().join("copied-elsewhere");
    fs::copy(&file, &copy).unwrap();
    let found = home.store().find("copied-elsewhere", &home.path()).unwrap();
    assert_eq!(
        home.store().load(&found).unwrap().info.id,
        ID,
        "an existing file is found without an extension"
    );
}

#[test]
fn damage_is_reported_and_the_rest_is_read() {
    let home = Home::new();
    let file = simple(&home, ID, 1, "one");
    let mut bytes = fs::read(&file).unwrap();
    bytes.extend(b"{\"half\n");
    bytes.extend(
        user(&home, ID, 3, "caf\u{e9} x").replace('\u{e9}', "\u{1}").replace('\u{1}', "Q").into_bytes(),
    );
    let q = bytes.iter().rposition(|byte| *byte == b'Q').unwrap();
    bytes[q] = 0xff;
    fs::write(&file, bytes).unwrap();
    let store = home.store();
    let session = store.load(&store.find(ID, &home.path()).unwrap()).unwrap();
    assert_eq!(session.entries.len(), 3);
    assert_eq!(session.entries[2].text(), "caf\u{fffd} x");
    let lines: Vec<Option<u64>> = session.damage.iter().map(|damage| damage.line).collect();
    assert_eq!(lines, [Some(3), Some(4)], "{:?}", session.damage);
}

#[test]
fn summaries_are_cached_until_the_file_changes() {
    let home = Home::new();
    let cache = home.path().join("cache");
    let store = home.store().index(&cache);
    let file = simple(&home, ID, 1, "one");
    let titles = || {
        store.list(&SessionFilter::new()).unwrap().into_iter().map(|s| s.title.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(titles(), ["one"]);
    assert!(!cache.exists(), "a file that was just written is not indexed");
    // The status change time cannot be set back, so the test waits until the file is old enough.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!(titles(), ["one"]);
    let index = fs::read_to_string(cache.join(INDEX)).unwrap();
    assert_eq!(index.lines().count(), 2, "{index}");
    fs::write(cache.join(INDEX), index.replace("\"one\"", "\"remembered\"")).unwrap();
    assert_eq!(titles(), ["remembered"], "the file is not read again");
    assert_eq!(
        store.clone().no_index().list(&SessionFilter::new()).unwrap()[0].title.as_deref(),
        Some("one")
    );
    simple(&home, ID, 1, "two");
    settle(&file);
    assert_eq!(titles(), ["two"], "the size is the same and the time was set back");
    fs::remove_file(&file).unwrap();
    assert!(titles().is_empty());
}

#[test]
fn search_finds_text_only_where_it_was_written() {
    let home = Home::new();
    let text = "first line\nsay \"Grüße\" to C:\\new\nlast line";
    home.claude(ID, &[user(&home, ID, 1, text), answer(ID, 2, "m", "the needle is here")]);
    simple(&home, OTHER, 5, "nothing");
    let search = |query: Query| home.store().search(&query).unwrap();
    assert!(
        search(Query::new(["hiddenbranch"])).is_empty(),
        "internal records of the agent are not searched"
    );
    assert!(search(Query::new(["cwd"])).is_empty());
    let found = search(Query::new(["\"grüße\""]).context(1));
    let hit = &found[0].hits[0];
    assert_eq!((found.len(), found[0].hits.len(), found[0].info.id.as_str()), (1, 1, ID));
    assert_eq!((hit.line, hit.entry, hit.role), (2, 0, agentline_core::Role::User));
    assert_eq!(
        (hit.before.as_slice(), hit.after.as_slice()),
        (["first line".to_owned()].as_slice(), ["last line".to_owned()].as_slice())
    );
    assert_eq!(&hit.text[hit.spans[0].clone()], "\"Grüße\"");
    assert_eq!(search(Query::new(["C:\\new"])).len(), 1);
    assert_eq!(search(Query::new(["first line say"])).len(), 1);
    assert!(search(Query::new(["needle", "last"])).is_empty(), "not in one message");
    assert_eq!(search(Query::new([r"ne+dle\s+is"]).regex(true))[0].hits[0].text, "the needle is here");
    let filter = SessionFilter::new().agent("gemini");
    assert!(search(Query::new(["needle"]).filter(filter)).is_empty());
    assert!(search(Query::new(["needle"]).filter(SessionFilter::new().project("/other"))).is_empty());
    assert_eq!(search(Query::new(["needle"]).filter(SessionFilter::new().project(home.project()))).len(), 1);
}

#[test]
fn copies_are_counted_once() {
    let home = Home::new();
    let lines = [user(&home, ID, 1, "one"), answer(ID, 2, "msg_same", "Done.")];
    home.claude(ID, &lines);
    // A fork repeats the same messages under another id and continues.
    let mut fork: Vec<String> = lines.iter().map(|line| line.replace(ID, OTHER)).collect();
    fork.push(user(&home, OTHER, 3, "more"));
    fork.push(answer(OTHER, 4, "msg_new", "More."));
    home.claude(OTHER, &fork);
    let rows = home.store().usage(&SessionFilter::new(), UsageBy::Model).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].name.as_str(), rows[0].answers, rows[0].sessions), ("claude-sonnet-4-5", 2, 2));
    assert_eq!(rows[0].used.tokens.input, Some(240));
    let by_day = home.store().usage(&SessionFilter::new(), UsageBy::Day).unwrap();
    assert_eq!(by_day[0].name, "2026-11-15");
    assert_eq!(UsageRow::sum(&by_day).used, rows[0].used);
    let east = home.store().east_of_utc(-5 * 3600).usage(&SessionFilter::new(), UsageBy::Day).unwrap();
    assert_eq!(east[0].name, "2026-11-14");
    let project = home.store().usage(&SessionFilter::new(), UsageBy::Project).unwrap();
    assert_eq!(project[0].name, home.project().to_str().unwrap());
    let after = SessionFilter::new().since(1_794_715_200_000 + 3 * 60_000);
    assert_eq!(home.store().usage(&after, UsageBy::Agent).unwrap()[0].answers, 1);
}

#[test]
fn a_followed_session_is_redacted_like_a_loaded_one() {
    let home = Home::new();
    home.claude(ID, &[user(&home, ID, 1, "my key is plum-tree-4711"), answer(ID, 2, "m", "Hello")]);
    let store = home.store().redact(agentline_core::Redactor::new(["plum-tree-4711"]));
    let mut watch = store.watch(&store.find(ID, &home.path()).unwrap()).unwrap();
    assert!(!format!("{:?}", watch.poll()).contains("plum-tree"));
    let shown = [watch.session(), watch.finish()].map(|session| format!("{:?}", session.entries));
    assert!(shown.iter().all(|shown| shown.contains("[redacted]") && !shown.contains("plum-tree")));
}

#[test]
fn growing_session_is_followed_to_the_same_result() {
    let home = Home::new();
    let whole = [
        user(&home, ID, 1, "one"),
        answer(ID, 2, "m", "Hello"),
        user(&home, ID, 3, "ünd"),
        answer(ID, 4, "n", "Bye"),
    ]
    .concat();
    let file = home.claude(ID, &[whole[..whole.find('\n').unwrap() + 5].to_owned()]);
    let store = home.store();
    let mut watch = store.watch(&store.find(ID, &home.path()).unwrap()).unwrap();
    let mut texts: Vec<String> = Vec::new();
    let mut note = |changes: Vec<SessionChange>| {
        for change in changes {
            match change {
                SessionChange::Added { at, entry } => {
                    assert_eq!(at, texts.len());
                    texts.push(entry.text());
                }
                SessionChange::Grown { at, entry } => texts[at] = entry.text(),
                SessionChange::Cut { at } => texts.truncate(at),
                SessionChange::Info(info) => assert_eq!(info.id, ID),
            }
        }
    };
    let start = fs::read(&file).unwrap().len();
    note(watch.poll());
    for end in (start..whole.len()).step_by(97).chain([whole.len()]) {
        fs::write(&file, &whole.as_bytes()[..end]).unwrap();
        note(watch.poll());
    }
    assert!(watch.poll().is_empty());
    assert_eq!(texts, ["one", "Hello", "ünd", "Bye"]);
    let followed = watch.finish();
    let read = store.load(&store.find(ID, &home.path()).unwrap()).unwrap();
    assert_eq!(format!("{followed:?}"), format!("{read:?}"));
}

#[test]
fn files_of_one_session_are_merged() {
    let home = Home::new();
    let chats = home.path().join(".gemini/tmp/ws/chats");
    fs::create_dir_all(&chats).unwrap();
    fs::write(home.path().join(".gemini/tmp/ws/.project_root"), home.project().to_str().unwrap()).unwrap();
    let header = |start: &str| {
        format!(
            "{{\"sessionId\":\"{ID}\",\"projectHash\":\"h\",\"startTime\":\"{start}\",\"lastUpdated\":\"{start}\",\"kind\":\"main\"}}\n"
        )
    };
    let record = |id: &str, kind: &str, text: &str, at: &str| {
        format!(
            "{{\"id\":\"{id}\",\"timestamp\":\"{at}\",\"type\":\"{kind}\",\"content\":[{{\"text\":\"{text}\"}}]}}\n"
        )
    };
    let context = "{\"$set\":{\"messages\":[]}}\n";
    let day = |minute: u32| format!("2026-11-15T05:{minute:02}:00.000Z");
    let first = [header(&day(0)), record("1", "user", "one", &day(0)), record("2", "gemini", "two", &day(1))]
        .concat();
    let second = [
        header(&day(5)),
        context.to_owned(),
        record("2", "gemini", "two", &day(1)),
        record("3", "user", "three", &day(6)),
    ]
    .concat();
    let empty = [header(&day(9)), context.to_owned()].concat();
    for (name, text) in [("05-00", &first), ("05-05", &second), ("05-09", &empty)] {
        fs::write(chats.join(format!("session-2026-11-15T{name}-11111111.jsonl")), text).unwrap();
    }
    let store = home.store();
    let all = store.list(&SessionFilter::new().project(home.project())).unwrap();
    assert_eq!((all.len(), all[0].prompts, all[0].locations.len()), (1, 2, 3));
    let session = store.load(&store.find(ID, &home.path()).unwrap()).unwrap();
    let texts: Vec<String> = session.entries.iter().map(agentline_core::Entry::text).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    assert!(
        session
            .entries
            .iter()
            .all(|entry| entry.parts.iter().all(|part| matches!(part, EntryPart::Text { .. })))
    );
    let mut watch = store.watch(&store.find(ID, &home.path()).unwrap()).unwrap();
    assert!(!watch.poll().is_empty());
    assert_eq!(format!("{:?}", watch.finish().entries), format!("{:?}", session.entries));
}

#[test]
fn project_known_by_digest_has_its_name_for_every_lookup() {
    use sha2::{Digest as _, Sha256};
    let home = Home::new();
    let project = home.project();
    let digest: String =
        Sha256::digest(project.to_str().unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    let tmp = home.path().join(".gemini/tmp");
    let session = |id: &str| {
        serde_json::json!({"sessionId": id, "projectHash": digest, "startTime": "2026-11-15T04:00:00.000Z",
            "lastUpdated": "2026-11-15T04:00:00.000Z", "messages": [{"id": "m", "type": "user",
            "timestamp": "2026-11-15T04:00:00.000Z", "content": "an oldword"}]})
    };
    for (folder, name, id) in [(digest.as_str(), "11111111", ID), ("ws", "22222222", "22222222-c")] {
        fs::create_dir_all(tmp.join(folder).join("chats")).unwrap();
        let file = tmp.join(folder).join(format!("chats/session-2026-11-15T04-00-{name}.json"));
        fs::write(file, session(id).to_string()).unwrap();
    }
    let projects = serde_json::json!({"projects": {project.to_str().unwrap(): "ws"}});
    fs::write(home.path().join(".gemini/projects.json"), projects.to_string()).unwrap();
    let store = home.store();
    let recorded = store.load(&store.find(ID, &home.path()).unwrap()).unwrap().info.project;
    assert_eq!(recorded.as_deref(), project.to_str());
    let found = store.search(&Query::new(["oldword"])).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|result| result.info.project.as_deref() == project.to_str()), "{found:?}");
}

#[test]
fn a_session_in_a_file_with_another_name_is_found_by_its_id_and_by_the_name() {
    let home = Home::new();
    let file = home.claude("my-copy", &[user(&home, ID, 1, "one"), answer(ID, 2, "msg_1", "Done.")]);
    simple(&home, OTHER, 5, "two");
    let gemini = home.path().join(".gemini/tmp/ws/chats/session-2026-11-15T04-00-deadbeef.jsonl");
    fs::create_dir_all(gemini.parent().unwrap()).unwrap();
    let id = "22222222-cccc-4000-8000-000000000003";
    let header = format!(
        r#"{{"sessionId":"{id}","projectHash":"x","startTime":"2026-11-15T04:00:00.000Z","lastUpdated":"2026-11-15T04:00:00.000Z"}}"#
    );
    let prompt = r#"{"id":"m1","timestamp":"2026-11-15T04:00:00.000Z","type":"user","content":"three"}"#;
    fs::write(&gemini, format!("{header}\n{prompt}\n")).unwrap();
    let listed = home.store().list(&SessionFilter::new()).unwrap();
    assert_eq!(listed.len(), 3);
    let find = |selector: &str| home.store().find(selector, &home.project());
    for session in &listed {
        let found = find(&session.info.id).unwrap();
        assert!(!home.store().load(&found).unwrap().entries.is_empty(), "{}", session.info.id);
    }
    assert_eq!(find("11111111-a").unwrap().info.id, ID);
    let by_name = find("my-copy").unwrap();
    assert_eq!(by_name.locations().map(SessionLocation::path).collect::<Vec<_>>(), [file]);
    assert_eq!(find("22222222").unwrap().info.id, id);
    assert!(find("my-other").is_err());
}
