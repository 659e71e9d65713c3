//! Records a run while it is forwarded to the caller, and stores it in the cache at the end.

use super::{
    entry::{self, CacheEntryMeta},
    key::CacheKey,
    restore::{found, state},
    seconds,
    store::CacheStore,
};
use crate::{
    agentline::{Agentline, Inner},
    run::{
        Run,
        channel::{ForwardedRun, RunItem, RunReceiver, RunSender, forward},
    },
    workspace::snapshot::prints::FilePrints,
};
use agentline_core::{CacheStatus, Event, Notice, Outcome, Record, Signal, ToolKind, Verdict};
use std::{path::PathBuf, sync::Arc};

/// The maximum size of the events, and of the files, of a stored run in bytes.
const MAX_RECORDED_BYTES: usize = 64 << 20;

/// Records one run, or several attempts at it.
#[derive(Clone)]
pub(crate) struct Recorder {
    agentline: Agentline,
    run: Arc<RecordedRun>,
}

struct RecordedRun {
    store: CacheStore,
    /// The key of the run, or the reason why it is not stored.
    cache_key: Result<CacheKey, String>,
    impure: bool,
    /// Warnings to add to the outcome.
    notices: Vec<Notice>,
    began_at: u64,
}

impl Recorder {
    pub(super) fn new(
        agentline: Agentline,
        store: CacheStore,
        cache_key: Result<CacheKey, String>,
        impure: bool,
        notices: Vec<Notice>,
        began_at: u64,
    ) -> Self {
        Self { agentline, run: Arc::new(RecordedRun { store, cache_key, impure, notices, began_at }) }
    }

    /// Returns a recorder for the same run that stores nothing, for this reason.
    pub(crate) fn unstored(self, reason: &str) -> Self {
        let RecordedRun { store, impure, notices, began_at, .. } = &*self.run;
        let (store, notices) = (store.clone(), notices.clone());
        Self::new(self.agentline, store, Err(reason.to_owned()), *impure, notices, *began_at)
    }

    /// Returns the same run, which is stored when it finishes. Must be called inside a runtime.
    pub(crate) fn keep(&self, run: Run) -> Run {
        let recorder = self.clone();
        let mark = CacheStatus::not_stored(self.run.key(), "it could not start");
        run.intercept(mark, move |from, to| {
            tokio::spawn(recorder.listen(from, to));
        })
    }

    async fn listen(self, from: RunReceiver, to: RunSender) {
        let cache_key = self.run.cache_key.as_ref().ok();
        let mut recording = Recording { from, cache_key, recorded: RecordedEvents::default() };
        let outcome = forward(&mut recording, &to).await;
        let recorded = recording.recorded;
        // A run whose task failed has no outcome; dropping `to` reports that to the caller.
        let Some(outcome) = outcome else { return };
        let run = Arc::clone(&self.run);
        let outcome = self.agentline.blocking(move |inner| run.keep(inner, recorded, *outcome)).await;
        to.finish(outcome);
    }
}

/// A run whose events are recorded on their way to the caller.
struct Recording<'a> {
    from: RunReceiver,
    /// The key of the run, unless it is not stored.
    cache_key: Option<&'a CacheKey>,
    recorded: RecordedEvents,
}

impl ForwardedRun for Recording<'_> {
    async fn next(&mut self) -> RunItem {
        self.from.next().await
    }

    async fn cancel(&mut self, signal: Signal) {
        self.from.stopper().stop(signal);
    }

    fn pass(&mut self, batch: Vec<Record>) -> Vec<Record> {
        if let Some(cache_key) = self.cache_key {
            batch.iter().for_each(|record| self.recorded.take(record, cache_key));
        }
        batch
    }
}

impl RecordedRun {
    fn key(&self) -> Option<String> {
        self.cache_key.as_ref().ok().map(|cache_key| cache_key.key.clone())
    }

    /// Stores a finished run if possible, and records the result in its outcome. Blocks.
    fn keep(&self, inner: &Inner, recorded: RecordedEvents, mut outcome: Outcome) -> Outcome {
        let stored = match &self.cache_key {
            Ok(cache_key) => self.try_store(inner, cache_key, recorded, &outcome),
            Err(reason) => Err(reason.clone()),
        };
        outcome.cache = Some(match stored {
            Ok(mark) => mark,
            Err(reason) => CacheStatus::not_stored(self.key(), reason),
        });
        outcome.warnings.extend(self.notices.iter().cloned());
        outcome
    }

    fn try_store(
        &self,
        inner: &Inner,
        cache_key: &CacheKey,
        recorded: RecordedEvents,
        outcome: &Outcome,
    ) -> Result<CacheStatus, String> {
        if !matches!(outcome.verdict, Verdict::Done | Verdict::DoneWithDenials) {
            return Err(format!("its verdict is `{}`", outcome.verdict.name()));
        }
        if let Some(reason) = recorded.impure.filter(|_| !self.impure) {
            return Err(reason);
        }
        if recorded.events.len() > MAX_RECORDED_BYTES {
            return Err("its record is too large".into());
        }
        let changed = Changes::since(inner, cache_key, outcome)?;
        if recorded.unsure && !(changed.files.is_empty() && outcome.files.is_empty()) {
            return Err("other processes may have changed the workspace".into());
        }
        let mut events = recorded.events;
        let stored_at = seconds();
        push_line(&mut events, &Record::last(recorded.last, outcome.clone()));
        let meta = CacheEntryMeta {
            key: cache_key.key.clone(),
            stored_at,
            began_at_ms: self.began_at,
            agent: outcome.agent.clone(),
            agent_version: outcome.agent_version.clone(),
            agentline: env!("CARGO_PKG_VERSION").to_owned(),
            events: events.len(),
            files: changed.files,
            workspace: cache_key.any_path.then(|| cache_key.cwd.to_string_lossy().into_owned()),
            after: changed.after,
        };
        let bytes = entry::encode(&meta, &events, &changed.contents);
        let holds = |secret: &String| memchr::memmem::find(&bytes, secret.as_bytes()).is_some();
        if cache_key.secrets.iter().any(holds) {
            return Err("it contains a secret".into());
        }
        let put = self.store.put(&cache_key.key, &bytes, &inner.memory.room);
        put.map_err(|error| format!("cannot write to the cache: {error}"))?;
        Ok(CacheStatus::stored(&cache_key.key, stored_at))
    }
}

/// The recorded part of a run.
#[derive(Default)]
struct RecordedEvents {
    /// The event lines.
    events: Vec<u8>,
    last: (u32, u64),
    /// Why the run is not reproducible, if it used something outside agentline's control.
    impure: Option<String>,
    /// Whether other runs used the workspace, or the workspace could not be compared.
    unsure: bool,
}

impl RecordedEvents {
    fn take(&mut self, record: &Record, cache_key: &CacheKey) {
        self.last = (record.seq, record.at_ms);
        match &record.event {
            Event::ToolUse(tool) if cache_key.harmless.contains(&tool.name) => {}
            Event::ToolUse(tool) => match tool.kind {
                ToolKind::Web => self.impure = Some(format!("it used the web with `{}`", tool.name)),
                ToolKind::Mcp => self.impure = Some(format!("it used an MCP server with `{}`", tool.name)),
                _ => {}
            },
            Event::Permission(permission) if matches!(permission.by.as_str(), "callback" | "terminal") => {
                self.impure = Some("it asked for permission".into());
            }
            Event::Warning { code, .. } => {
                self.unsure |= matches!(code.as_str(), "shared_workspace" | "workspace_not_compared");
            }
            _ => {}
        }
        if self.events.len() <= MAX_RECORDED_BYTES {
            push_line(&mut self.events, record);
        }
    }
}

fn push_line(events: &mut Vec<u8>, record: &Record) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *events, record);
    events.push(b'\n');
}

/// The changes of a run in its workspace.
struct Changes {
    files: Vec<entry::ChangedFile>,
    contents: Vec<Vec<u8>>,
    after: String,
}

impl Changes {
    /// Compares the workspace with its earlier state and with the files of the outcome.
    fn since(inner: &Inner, cache_key: &CacheKey, outcome: &Outcome) -> Result<Self, String> {
        let mut changes = Self { files: Vec::new(), contents: Vec::new(), after: String::new() };
        if cache_key.is_temporary {
            // The workspace was removed with the run.
            return Ok(changes);
        }
        let after = FilePrints::take(&cache_key.cwd, &cache_key.own, &inner.memory.files)?;
        for row in outcome.files.iter().filter(|row| row.verified) {
            if !cache_key.before.has(&row.path) && !after.has(&row.path) {
                return Err(format!("it changed `{}`, which is outside the workspace or ignored", row.path));
            }
        }
        let mut size = 0;
        for (path, print) in cache_key.before.changes(&after) {
            let name = std::str::from_utf8(path).map_err(|_| "it changed a file whose name is not UTF-8")?;
            if !outcome.files.iter().any(|row| row.path == name) {
                return Err(format!("another process changed `{name}`"));
            }
            let on_disk: PathBuf = cache_key.cwd.join(name);
            let (mut file, content) =
                found(&on_disk).map_err(|error| format!("cannot read `{name}`: {error}"))?;
            if print.is_some_and(|print| !print.is_of(&content)) {
                return Err(format!("another process changed `{name}`"));
            }
            size += content.len();
            if size > MAX_RECORDED_BYTES {
                return Err("its files are too large".into());
            }
            name.clone_into(&mut file.path);
            changes.files.push(file);
            changes.contents.push(content);
        }
        changes.after = state(&after);
        Ok(changes)
    }
}
