//! Sessions in the format of OpenCode: rows of one database.

use super::{Plan, count, turns, words::WordSource};
use rusqlite::{Connection, params};
use serde_json::json;
use std::{fs, io, path::Path};

const TABLES: &str = "
    PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;
    CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
        directory text NOT NULL, title text NOT NULL, version text NOT NULL, cost real DEFAULT 0 NOT NULL,
        tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
        tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
        tokens_cache_write integer DEFAULT 0 NOT NULL, revert text, model text,
        time_created integer NOT NULL, time_updated integer NOT NULL);
    CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
        time_updated integer NOT NULL, data text NOT NULL);
    CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
        time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
    CREATE INDEX message_session ON message (session_id);
    CREATE INDEX part_session ON part (session_id);
    CREATE INDEX part_message ON part (message_id);
    BEGIN;";

pub(super) struct Writer(Connection);

impl Writer {
    pub(super) fn create(home: &Path) -> io::Result<Self> {
        let folder = home.join(".local/share/opencode");
        fs::create_dir_all(&folder)?;
        let connection = Connection::open(folder.join("opencode.db")).map_err(io::Error::other)?;
        connection.execute_batch(TABLES).map_err(io::Error::other)?;
        Ok(Self(connection))
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.0.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE);").map_err(io::Error::other)
    }

    pub(super) fn write(
        &mut self,
        plan: &Plan<'_>,
        words: &mut WordSource,
        used: &mut [u64; 3],
    ) -> io::Result<()> {
        let mut at = i64::try_from(plan.start).map_err(io::Error::other)?;
        let mut serial = 0;
        turns(plan, &mut words.fork(), |_, turn| {
            count(used, &turn);
            at += 5000;
            let mut id = |kind: &str| {
                serial += 1;
                format!("{kind}_{:06}{:06}{}", plan.number, serial, &words.hex()[..8])
            };
            let (prompt_id, reply_id) = (id("msg"), id("msg"));
            let user = json!({"role": "user", "time": {"created": at}, "agent": "build"});
            let all = turn.input + turn.cached + turn.answer;
            let assistant = json!({
                "parentID": prompt_id, "role": "assistant", "mode": "build", "path": {"cwd": plan.project, "root": "/"},
                "cost": 0.001, "modelID": "claude-sonnet-4-5", "providerID": "anthropic", "finish": "stop",
                "tokens": {"total": all, "input": turn.input, "output": turn.answer, "reasoning": 0,
                    "cache": {"read": turn.cached, "write": 0}},
                "time": {"created": at + 1000, "completed": at + 2000},
            });
            let tool = json!({
                "type": "tool", "tool": "bash", "callID": id("call"),
                "state": {"status": "completed", "input": {"command": turn.command}, "output": turn.output,
                    "title": turn.command, "metadata": {"exit": 0}, "time": {"start": at + 1400, "end": at + 1500}},
            });
            let parts = [
                (&prompt_id, json!({"type": "text", "text": turn.prompt})),
                (&reply_id, json!({"type": "step-start"})),
                (
                    &reply_id,
                    json!({"type": "reasoning", "text": turn.thought, "time": {"start": at + 1000, "end": at + 1100}}),
                ),
                (
                    &reply_id,
                    json!({"type": "text", "text": turn.text, "time": {"start": at + 1200, "end": at + 1300}}),
                ),
                (&reply_id, tool),
            ];
            let mut written = 0;
            for (message, data) in [(&prompt_id, user), (&reply_id, assistant)] {
                let data = data.to_string();
                written += data.len() as u64;
                let row = params![message, plan.id, at, at, data];
                self.insert("INSERT INTO message VALUES (?1,?2,?3,?4,?5)", row)?;
            }
            for (message, data) in parts {
                let data = data.to_string();
                written += data.len() as u64;
                let row = params![id("prt"), message, plan.id, at, at, data];
                self.insert("INSERT INTO part VALUES (?1,?2,?3,?4,?5,?6)", row)?;
            }
            Ok(written)
        })?;
        let title = format!("Session {}", plan.number);
        let row = params![plan.id, plan.project, title, at, at + 2000];
        let sql = "INSERT INTO session (id,project_id,slug,directory,title,version,time_created,time_updated)
            VALUES (?1,'global','slug',?2,?3,'1.18.33',?4,?5)";
        self.insert(sql, row)
    }

    fn insert(&self, sql: &str, row: &[&dyn rusqlite::ToSql]) -> io::Result<()> {
        let mut statement = self.0.prepare(sql).map_err(io::Error::other)?;
        statement.execute(row).map(drop).map_err(io::Error::other)
    }
}
