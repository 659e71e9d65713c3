//! OpenCode's database: its tables, and the conversion of their rows to the form of its exports.

use super::{session_message::StoredAnswer, session_reader::OpenCodeReader};
use crate::{
    RawJson, ReadError, Readable, SessionDatabase, SessionInfo, SessionReader, SessionRow, TableRow,
    TableSource, Tokens,
};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

const SESSION_TABLE: &str = "session";
const MESSAGE_TABLE: &str = "message";
const PART_TABLE: &str = "part";

/// The columns read from a session's row.
const SESSION_COLUMNS: &[&str] = &[
    "id",
    "parent_id",
    "directory",
    "title",
    "version",
    "model",
    "revert",
    "cost",
    "time_created",
    "time_updated",
    "tokens_input",
    "tokens_output",
    "tokens_reasoning",
    "tokens_cache_read",
    "tokens_cache_write",
];

type ById<T> = BTreeMap<String, T>;

/// The tables of OpenCode's database.
pub(super) struct OpenCodeDatabase;

impl SessionDatabase for OpenCodeDatabase {
    fn tables(&self) -> &'static [&'static str] {
        &[SESSION_TABLE, MESSAGE_TABLE, PART_TABLE]
    }

    fn sessions(&self, tables: &dyn TableSource) -> Readable<Vec<SessionRow>> {
        sessions(tables)
    }

    fn records(&self, tables: &dyn TableSource, id: &str) -> Readable<Vec<RawJson>> {
        records(tables, id)
    }

    fn answers(&self, tables: &dyn TableSource, id: &str) -> Readable<Vec<RawJson>> {
        answers(tables, id)
    }

    fn matching(
        &self,
        tables: &dyn TableSource,
        test: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Readable<BTreeSet<String>> {
        matching(tables, test)
    }

    fn reader(&self) -> Box<dyn SessionReader> {
        Box::new(OpenCodeReader::new())
    }
}

/// Returns every session with its metadata, without its content.
fn sessions(tables: &dyn TableSource) -> Readable<Vec<SessionRow>> {
    let mut all: ById<SessionRow> = ById::new();
    let mut damage = tables.all(SESSION_TABLE, SESSION_COLUMNS, &mut |row| {
        let id = row.text(0).into_owned();
        let read = SessionRow {
            info: info(&head(row)),
            tokens: tokens(row),
            changed: row.count(9).unwrap_or(0),
            ..SessionRow::default()
        };
        all.insert(id, read);
    });
    let columns = ["session_id", "time_updated", "octet_length(data)"];
    for table in [MESSAGE_TABLE, PART_TABLE] {
        // Consecutive rows mostly have the same id, so the id is copied only for the first.
        let mut sums: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        damage.extend(tables.all(table, &columns, &mut |row| {
            let id = row.text(0);
            let sum = match sums.get_mut(&*id) {
                Some(sum) => sum,
                None => sums.entry(id.into_owned()).or_default(),
            };
            let (rows, size, changed) = (&mut sum.0, &mut sum.1, &mut sum.2);
            *rows += 1;
            *size += row.count(2).unwrap_or(0);
            *changed = (*changed).max(row.count(1).unwrap_or(0));
        }));
        for (id, (rows, size, changed)) in sums {
            let session = all.entry(id).or_insert_with_key(|id| orphan(id));
            session.size += size;
            session.changed = session.changed.max(changed);
            *(if table == PART_TABLE { &mut session.parts } else { &mut session.messages }) += rows;
        }
    }
    Readable::new(all.into_values().collect(), damage)
}

/// Returns a session whose own row is missing.
fn orphan(id: &str) -> SessionRow {
    SessionRow { info: info(&json!({"id": id})), ..SessionRow::default() }
}

/// Returns the records of one session: the session, then each message with its parts.
fn records(tables: &dyn TableSource, id: &str) -> Readable<Vec<RawJson>> {
    let mut records = Vec::new();
    let mut damage = tables.all_with(SESSION_TABLE, SESSION_COLUMNS, ("id", id), &mut |row| {
        if row.text(0) == id && records.is_empty() {
            records.push(RawJson::new(json!({"session": head(row)}).to_string()));
        }
    });
    let mut broken = 0_u64;
    let mut messages: ById<String> = ById::new();
    let columns = ["session_id", "id", "data"];
    damage.extend(tables.all_with(MESSAGE_TABLE, &columns, ("session_id", id), &mut |row| {
        let ids = [("id", row.text(1)), ("sessionID", row.text(0))];
        match completed(&row.text(2), &ids) {
            _ if row.text(0) != id => {}
            Some(message) => _ = messages.insert(row.text(1).into_owned(), message),
            None => broken += 1,
        }
    }));
    let mut parts: ById<ById<String>> = ById::new();
    let columns = ["session_id", "id", "message_id", "data"];
    damage.extend(tables.all_with(PART_TABLE, &columns, ("session_id", id), &mut |row| {
        let ids = [("id", row.text(1)), ("sessionID", row.text(0)), ("messageID", row.text(2))];
        match completed(&row.text(3), &ids) {
            _ if row.text(0) != id => {}
            Some(part) => {
                parts.entry(row.text(2).into_owned()).or_default().insert(row.text(1).into_owned(), part);
            }
            None => broken += 1,
        }
    }));
    // Parts whose message is missing still have content.
    for message in
        parts.keys().filter(|message| !messages.contains_key(*message)).cloned().collect::<Vec<_>>()
    {
        damage
            .push(ReadError::new(None, format!("the message `{message}` is missing, but its parts are not")));
        let info = json!({"id": message, "sessionID": id, "role": "assistant"}).to_string();
        messages.insert(message, info);
    }
    for (id, info) in messages {
        let parts = parts.remove(&id).unwrap_or_default();
        let size = info.len() + parts.values().map(|part| part.len() + 1).sum::<usize>() + 40;
        let mut record = String::with_capacity(size);
        record.extend(["{\"message\":{\"info\":", &info, ",\"parts\":["]);
        for (i, part) in parts.into_values().enumerate() {
            record.push_str(if i > 0 { "," } else { "" });
            record.push_str(&part);
        }
        record.push_str("]}}");
        records.push(RawJson::new(record));
    }
    if broken > 0 {
        damage.push(ReadError::new(None, format!("{broken} rows are not valid JSON")));
    }
    Readable::new(records, damage)
}

/// Returns the answers with tokens of a session and of its sub-agents, whose sessions name it as their parent.
fn answers(tables: &dyn TableSource, id: &str) -> Readable<Vec<RawJson>> {
    let (mut records, mut damage) = (Vec::new(), Vec::new());
    let mut sessions = vec![id.to_owned()];
    let mut next = 0;
    while let Some(session) = sessions.get(next).cloned() {
        next += 1;
        let columns = ["session_id", "id", "data"];
        damage.extend(tables.all_with(
            MESSAGE_TABLE,
            &columns,
            ("session_id", session.as_str()),
            &mut |row| {
                let ids = [("id", row.text(1)), ("sessionID", row.text(0))];
                let record = completed(&row.text(2), &ids).filter(|_| row.text(0) == session);
                records.extend(record.filter(|record| StoredAnswer::of(record).is_some()).map(RawJson::new));
            },
        ));
        let columns = ["parent_id", "id"];
        damage.extend(tables.all_with(
            SESSION_TABLE,
            &columns,
            ("parent_id", session.as_str()),
            &mut |row| {
                let child = row.text(1).into_owned();
                if row.text(0) == session && !sessions.contains(&child) {
                    sessions.push(child);
                }
            },
        ));
    }
    Readable::new(records, damage)
}

/// Returns the sessions with a row that passes a test.
fn matching(tables: &dyn TableSource, test: &mut dyn FnMut(&[u8]) -> bool) -> Readable<BTreeSet<String>> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut damage = Vec::new();
    for (table, key, column) in [
        (SESSION_TABLE, "id", "title"),
        (MESSAGE_TABLE, "session_id", "data"),
        (PART_TABLE, "session_id", "data"),
    ] {
        let read = tables.all(table, &[key, column], &mut |row| {
            if !found.contains(&*row.text(0)) && test(row.bytes(1)) {
                found.insert(row.text(0).into_owned());
            }
        });
        damage.extend(read);
    }
    Readable::new(found, damage)
}

/// Returns the session's row in the form of an export.
fn head(row: &dyn TableRow) -> Value {
    let text = |at: usize| Some(row.text(at).into_owned()).filter(|text| !text.is_empty());
    let json = |at: usize| serde_json::from_str::<Value>(&row.text(at)).unwrap_or_default();
    let all = [
        ("id", json!(text(0))),
        ("parentID", json!(text(1))),
        ("directory", json!(text(2))),
        ("title", json!(text(3))),
        ("version", json!(text(4))),
        ("model", json(5)),
        ("revert", json(6)),
        ("cost", json!(row.real(7))),
        ("time", json!({"created": row.count(8), "updated": row.count(9)})),
    ];
    let present = all.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(present.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// Returns the metadata that the agent's reader derives from a session's row.
fn info(head: &Value) -> SessionInfo {
    let mut fold = OpenCodeReader::new();
    fold.take(RawJson::new(json!({"session": head}).to_string()));
    Box::new(fold).finish().info
}

/// Returns the token sums of a session, which older versions do not store.
fn tokens(row: &dyn TableRow) -> Option<Tokens> {
    let [input, output, thoughts, read, write] = [10, 11, 12, 13, 14].map(|at| row.count(at));
    let input = input?.saturating_add(read.unwrap_or(0)).saturating_add(write.unwrap_or(0));
    let total = [output, thoughts].into_iter().flatten().fold(input, u64::saturating_add);
    Some(Tokens {
        input: Some(input),
        output,
        thoughts,
        cached: read,
        cache_write: write,
        total: Some(total),
        ..Tokens::default()
    })
}

/// Adds the ids stored in other columns to a JSON object. Returns `None` if `data` is not an object.
fn completed(data: &str, ids: &[(&str, Cow<'_, str>)]) -> Option<String> {
    let body = data.trim().strip_prefix('{')?.strip_suffix('}')?;
    serde_json::from_str::<IgnoredAny>(data).ok()?;
    let mut all = String::with_capacity(data.len() + 120);
    all.push('{');
    all.push_str(body);
    let mut first = body.trim().is_empty();
    for (name, id) in ids {
        let sign = if std::mem::take(&mut first) { "" } else { "," };
        all.extend([sign, "\"", name, "\":", &Value::from(&**id).to_string()]);
    }
    all.push('}');
    Some(all)
}
