//! Tests reading OpenCode's database in every possible state, without ever changing it.

use super::{AnswerFollower, Database};
use crate::error::SessionError;
use agentline_core::{EntryPart, ToolStatus, agents};
use rusqlite::Connection;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};
use tempfile::TempDir;

const SCHEMA: &str = "
    CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, directory text NOT NULL,
        title text NOT NULL, version text NOT NULL, cost real DEFAULT 0 NOT NULL, tokens_input integer DEFAULT 0 NOT NULL,
        tokens_output integer DEFAULT 0 NOT NULL, tokens_reasoning integer DEFAULT 0 NOT NULL,
        tokens_cache_read integer DEFAULT 0 NOT NULL, tokens_cache_write integer DEFAULT 0 NOT NULL, revert text,
        model text, time_created integer NOT NULL, time_updated integer NOT NULL);
    CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
        time_updated integer NOT NULL, data text NOT NULL);
    CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
        time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
    CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
    CREATE INDEX part_session_idx ON part (session_id);";

fn open(path: &Path) -> Result<Database, SessionError> {
    let agent = agents::find("opencode").unwrap();
    Database::open(path, agent.sessions().database().unwrap())
}

/// A database in its own directory.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("opencode.db")
    }

    /// Opens a writer like the agent's, with a log that it does not clear by itself.
    fn writer(&self) -> Connection {
        let writer = Connection::open(self.path()).unwrap();
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        writer.execute_batch("PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=OFF;").unwrap();
        writer
    }

    /// Returns every file with its content and modification time.
    fn files(&self) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
        files(self.folder.path())
    }
}

fn files(folder: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let all = fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        (path.file_name().unwrap().to_string_lossy().into_owned(), (fs::read(&path).unwrap(), changed))
    });
    all.collect()
}

/// Adds a session with this number of messages, each with two parts.
fn fill(writer: &Connection, session: &str, messages: usize, text: &str) {
    let model = r#"{"id":"a-model","providerID":"p"}"#;
    let sql = "INSERT INTO session (id, project_id, directory, title, version, cost, tokens_input, tokens_cache_read, model,
        time_created, time_updated) VALUES (?1, 'global', '/ws', 'Title ' || ?1, '1.18.33', 0.5, 10, 5, ?2, 1000, 2000)";
    writer.execute(sql, [session, model]).unwrap();
    insert_messages(writer, session, 0..messages, text);
}

fn insert_messages(writer: &Connection, session: &str, messages: std::ops::Range<usize>, text: &str) {
    writer.execute_batch("BEGIN").unwrap();
    for i in messages {
        let at = (1000 + i).to_string();
        let role = if i % 2 == 0 { "user" } else { "assistant" };
        let info = format!(r#"{{"role":"{role}","modelID":"a-model","time":{{"created":{at}}}}}"#);
        let message = format!("msg_{session}_{i:05}");
        writer
            .execute("INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)", [&message, session, &at, &info])
            .unwrap();
        let texts = [
            format!(r#"{{"type":"text","text":"{text} {i}"}}"#),
            format!(
                r#"{{"type":"tool","tool":"bash","callID":"c{i}","state":{{"status":"completed","input":{{"command":"ls"}},"output":"{}","metadata":{{"exit":0}}}}}}"#,
                "x".repeat(i % 7 * 1500)
            ),
        ];
        for (n, data) in texts.iter().enumerate() {
            let part = format!("prt_{session}_{i:05}_{n}");
            let row: [&str; 5] = [&part, &message, session, &at, data];
            writer.execute("INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?4, ?5)", row).unwrap();
        }
    }
    writer.execute_batch("COMMIT").unwrap();
}

/// Reads everything in every way, and returns the number of messages of each session.
fn read_all(path: &Path) -> BTreeMap<String, usize> {
    let database = open(path).unwrap();
    let listed = database.sessions().unwrap();
    assert_eq!(listed.damage, []);
    let hits = database.holding(|bytes| bytes.windows(6).any(|w| w == b"needle")).unwrap().value;
    let mut all = BTreeMap::new();
    for row in listed.value {
        let session = database.load(&row.info.id).unwrap().expect("listed sessions can be read");
        assert_eq!((&session.damage, &session.info), (&vec![], &row.info));
        assert_eq!((session.entries.len() as u64, row.parts), (row.messages, row.messages * 2));
        let is_found = session.entries.iter().any(|entry| entry.text().contains("needle"));
        assert_eq!(is_found, hits.contains(&row.info.id), "{}", row.info.id);
        all.insert(row.info.id, session.entries.len());
    }
    all
}

fn expect(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(id, n)| ((*id).to_owned(), *n)).collect()
}

#[test]
fn closed_database_is_read_and_not_changed() {
    let stage = Stage::new();
    let writer = stage.writer();
    writer.execute_batch(SCHEMA).unwrap();
    fill(&writer, "ses_a", 20, "plain");
    fill(&writer, "ses_b", 3, "a needle");
    drop(writer);
    let before = stage.files();
    assert_eq!(before.len(), 1, "the log was checkpointed when the last writer closed");
    assert_eq!(read_all(&stage.path()), expect(&[("ses_a", 20), ("ses_b", 3)]));
    assert!(stage.files() == before);

    let database = open(&stage.path()).unwrap();
    let session = database.load("ses_b").unwrap().unwrap();
    let info = &session.info;
    assert_eq!((info.agent.as_str(), info.title.as_deref()), ("opencode", Some("Title ses_b")));
    assert_eq!((info.project.as_deref(), info.cost_usd), (Some("/ws"), Some(0.5)));
    assert_eq!((info.model.as_deref(), info.started), (Some("a-model"), Some(1000)));
    let tool = session.entries[1].tools().next().unwrap();
    assert_eq!((tool.call.name.as_str(), tool.result.as_ref().unwrap().status), ("Bash", ToolStatus::Ok));
    assert!(matches!(session.entries[1].parts[0], EntryPart::Text { .. }), "parts keep their order");
    let row = database.sessions().unwrap().value.into_iter().find(|row| row.info.id == "ses_a").unwrap();
    assert_eq!((row.tokens.unwrap().input, row.tokens.unwrap().cached), (Some(15), Some(5)));
    assert!(row.size > 20 * 1500 && row.changed == 2000);
    assert!(database.load("ses_nobody").unwrap().is_none());
}

#[test]
fn written_data_is_seen_while_the_writer_is_active() {
    let stage = Stage::new();
    let writer = stage.writer();
    writer.execute_batch(SCHEMA).unwrap();
    fill(&writer, "ses_a", 5, "one");
    let before = stage.files();
    assert!(before["opencode.db-wal"].0.len() > 1000, "nothing was checkpointed yet");
    assert_eq!(read_all(&stage.path()), expect(&[("ses_a", 5)]));
    let after = stage.files();
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for name in ["opencode.db", "opencode.db-wal"] {
        assert!(before[name] == after[name], "{name}");
    }
    // A reader that stays open sees every change, including those after which the log is cleared.
    let database = open(&stage.path()).unwrap();
    let count = || database.load("ses_a").unwrap().unwrap().entries.len();
    let stamp = database.stamp();
    insert_messages(&writer, "ses_a", 5..8, "two");
    assert_eq!(count(), 8);
    assert_ne!(database.stamp(), stamp);
    writer.execute_batch("BEGIN; DELETE FROM message;").unwrap();
    assert_eq!(count(), 8, "uncommitted data is not reported");
    writer.execute_batch("ROLLBACK").unwrap();
    writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert_eq!(count(), 8);
    insert_messages(&writer, "ses_a", 8..9, "three");
    assert_eq!(count(), 9);
    drop(writer);
    assert_eq!(count(), 9);
    let writer = stage.writer();
    insert_messages(&writer, "ses_a", 9..30, "four");
    assert_eq!(count(), 30);
}

#[test]
fn wal_without_its_index_is_replayed_in_a_copy() {
    let stage = Stage::new();
    let writer = stage.writer();
    writer.execute_batch(SCHEMA).unwrap();
    fill(&writer, "ses_a", 9, "a needle");
    // The state after a crash or a restored backup.
    let left = Stage::new();
    for name in ["opencode.db", "opencode.db-wal"] {
        fs::copy(stage.folder.path().join(name), left.folder.path().join(name)).unwrap();
    }
    let before = left.files();
    assert_eq!(read_all(&left.path()), expect(&[("ses_a", 9)]));
    assert!(left.files() == before);
    // With a stale index, and with an invalid one.
    for index in [fs::read(stage.folder.path().join("opencode.db-shm")).unwrap(), vec![7; 32768], Vec::new()]
    {
        fs::write(left.folder.path().join("opencode.db-shm"), index).unwrap();
        let before = left.files();
        assert_eq!(read_all(&left.path()), expect(&[("ses_a", 9)]));
        assert!(left.files() == before);
    }
}

#[test]
fn interrupted_transaction_is_rolled_back_in_a_copy() {
    let stage = Stage::new();
    let writer = Connection::open(stage.path()).unwrap();
    writer.execute_batch(SCHEMA).unwrap();
    fill(&writer, "ses_a", 200, "plain");
    // A small cache makes the change reach the file before it is committed.
    writer
        .execute_batch("PRAGMA cache_size=5; BEGIN; UPDATE part SET data = data || ' '; DELETE FROM message;")
        .unwrap();
    let left = Stage::new();
    for name in ["opencode.db", "opencode.db-journal"] {
        fs::copy(stage.folder.path().join(name), left.folder.path().join(name)).unwrap();
    }
    let before = left.files();
    assert_eq!(read_all(&left.path()), expect(&[("ses_a", 200)]));
    assert!(left.files() == before);
}

#[test]
fn truncated_database_yields_its_remaining_data_and_is_reported() {
    let stage = Stage::new();
    let writer = stage.writer();
    writer.execute_batch(SCHEMA).unwrap();
    fill(&writer, "ses_a", 60, "plain");
    fill(&writer, "ses_b", 60, "a needle");
    drop(writer);
    let whole = fs::read(stage.path()).unwrap();
    let pages = whole.len() / 4096;
    assert!(pages > 40, "{pages}");
    let mut most = 0;
    let mut yielded = Vec::new();
    for page in 1..pages {
        fs::write(stage.path(), &whole[..page * 4096]).unwrap();
        let database = open(&stage.path()).unwrap();
        let listed = database.sessions().unwrap();
        assert!(!listed.damage.is_empty(), "{page} of {pages}");
        let mut parts = 0;
        for id in ["ses_a", "ses_b"] {
            let session = database.load(id).unwrap();
            assert!(session.as_ref().is_none_or(|session| !session.damage.is_empty()));
            parts += session.map_or(0, |session| session.entries.iter().map(|e| e.parts.len()).sum());
        }
        most = most.max(parts);
        yielded.push(parts);
    }
    assert!(most >= 200, "of 240 parts, with one page lost: {yielded:?}");
    // The tables grow together, so half of the file contains about half of the messages.
    assert!(yielded[pages / 2] >= 60, "{yielded:?}");
}

#[test]
fn corrupt_pages_lose_only_their_own_data() {
    let stage = Stage::new();
    let writer = stage.writer();
    writer.execute_batch(SCHEMA).unwrap();
    fill(&writer, "ses_a", 200, "plain");
    drop(writer);
    let whole = fs::read(stage.path()).unwrap();
    let pages = whole.len() / 4096;
    let mut few = 0;
    let tried: Vec<usize> = (1..pages).step_by(11).collect();
    for page in &tried {
        for junk in [0_u8, 0xff, 13] {
            let mut broken = whole.clone();
            broken[page * 4096..(page + 1) * 4096].fill(junk);
            fs::write(stage.path(), &broken).unwrap();
            let Ok(database) = open(&stage.path()) else { continue };
            database.sessions().unwrap();
            database.holding(|_| false).unwrap();
            let parts =
                database.load("ses_a").unwrap().map_or(0, |s| s.entries.iter().map(|e| e.parts.len()).sum());
            few += usize::from(parts < 300);
        }
    }
    // More than the page is lost only if it is near the root of a table.
    assert!(few <= tried.len() / 2, "{few} of {}", tried.len() * 3);

    fs::write(stage.path(), b"this is no database").unwrap();
    let error = agentline_core::error_chain(&open(&stage.path()).unwrap_err());
    assert!(error.contains("not a database"), "{error}");
    assert!(open(&stage.folder.path().join("missing.db")).is_err());
    fs::write(stage.path(), b"").unwrap();
    let empty = open(&stage.path()).unwrap().sessions().unwrap();
    assert!(empty.value.is_empty() && empty.damage.len() == 3);
}

#[test]
fn tables_of_other_versions_are_read_by_their_columns() {
    let stage = Stage::new();
    let writer = stage.writer();
    writer
        .execute_batch(
            "CREATE TABLE session (id text PRIMARY KEY, title text, brand_new text);
            CREATE TABLE message (id text PRIMARY KEY, session_id text, data text);
            CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, data text);
            INSERT INTO session VALUES ('ses_a', 'Old', 'x');
            INSERT INTO message VALUES ('msg_1', 'ses_a', '{\"role\":\"user\"}'), ('msg_2', 'ses_a', 'no JSON');
            INSERT INTO part VALUES ('prt_1', 'msg_1', 'ses_a', '{\"type\":\"text\",\"text\":\"hi\"}'),
                ('prt_2', 'msg_1', 'ses_a', x'7b22747970652200ff'), ('prt_3', 'msg_9', 'ses_a', '{}'), ('prt_4', NULL, 7, 3.5);",
        )
        .unwrap();
    drop(writer);
    let database = open(&stage.path()).unwrap();
    let rows = database.sessions().unwrap().value;
    let row = rows.iter().find(|row| row.info.id == "ses_a").unwrap();
    assert_eq!((row.info.title.as_deref(), row.tokens, row.messages), (Some("Old"), None, 2));
    let session = database.load("ses_a").unwrap().unwrap();
    assert_eq!(session.entries.iter().map(agentline_core::Entry::text).collect::<Vec<_>>(), ["hi"]);
    let messages: Vec<&str> = session.damage.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(
        messages,
        ["the message `msg_9` is missing, but its parts are not", "2 rows are not valid JSON"]
    );
}

#[test]
fn directory_names_may_contain_anything() {
    let stage = Stage::new();
    let folder = stage.folder.path().join("a b?c#d%41 é&mode=rwc");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("opencode.db");
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch(SCHEMA).unwrap();
    fill(&writer, "ses_a", 2, "x");
    drop(writer);
    assert_eq!(read_all(&path), expect(&[("ses_a", 2)]));
    assert_eq!(files(&folder).len(), 1);
}

/// Adds an answer to a session, or replaces it.
fn answer(writer: &Connection, session: &str, id: &str, output: u64) {
    let data = format!(r#"{{"role":"assistant","modelID":"m","tokens":{{"input":0,"output":{output}}}}}"#);
    let sql = "INSERT OR REPLACE INTO message VALUES (?1, ?2, 1, 1, ?3)";
    writer.execute(sql, [id, session, &data]).unwrap();
}

#[test]
fn answers_are_followed_once_they_have_tokens() {
    let stage = Stage::new();
    let agent = agents::find("opencode").unwrap();
    let env = BTreeMap::from([("OPENCODE_DB".to_owned(), stage.path().to_string_lossy().into_owned())]);
    let mut follower = AnswerFollower::new(&agent, &env, stage.folder.path()).unwrap();
    let mut read = || -> Vec<String> {
        let id = |row: &str| row.split(r#""id":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
        follower.read_new("ses_1").iter().map(|row| id(row.as_str())).collect()
    };
    assert_eq!(read(), [""; 0], "there is no database yet");
    let writer = stage.writer();
    writer.execute_batch(SCHEMA).unwrap();
    fill(&writer, "ses_1", 2, "text");
    fill(&writer, "ses_2", 2, "text");
    answer(&writer, "ses_1", "msg_a", 0);
    answer(&writer, "ses_2", "msg_of_another_session", 9);
    assert_eq!(read(), [""; 0], "an answer without tokens has not ended");
    answer(&writer, "ses_1", "msg_a", 5);
    assert_eq!(read(), ["msg_a"]);
    assert_eq!(read(), [""; 0]);
}
