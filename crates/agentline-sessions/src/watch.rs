//! Follows a session while its agent writes it. The result is the same as reading the session at the end.

mod followed;

use crate::{
    candidate::SessionCandidate,
    database::Databases,
    error::SessionError,
    load::{beginning, fold_together, head_of, read_all},
    location::{FoundSession, SessionLocation},
    store::SessionStore,
};
use agentline_core::{Entry, EntryPart, SavedSession, SessionInfo, SessionRedactor, Tokens};
use followed::FollowedFile;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

/// The interval at which the files are polled.
#[cfg(feature = "tokio")]
const PAUSE: Duration = Duration::from_millis(150);
/// The interval at which new files of the session are searched for.
const MORE_FILES: Duration = Duration::from_secs(1);

/// A change in a followed session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionChange {
    /// An entry was added.
    Added {
        /// The position of the entry in the session, from 0.
        at: usize,
        /// The complete entry.
        entry: Box<Entry>,
    },
    /// An entry changed: it has more text, another tool call, or the result of one.
    Grown {
        /// The position of the entry in the session, from 0.
        at: usize,
        /// The complete entry in its current state.
        entry: Box<Entry>,
    },
    /// The entries from this position on were removed. Their replacements follow as [`SessionChange::Added`].
    Cut {
        /// The position of the first removed entry.
        at: usize,
    },
    /// The session's title, model or other metadata changed.
    Info(Box<SessionInfo>),
}

/// A session that is being followed.
pub struct SessionWatch {
    store: SessionStore,
    found: FoundSession,
    files: Vec<FollowedFile>,
    /// When new files were last searched for.
    searched_at: Instant,
    info: SessionInfo,
    /// The ids and fingerprints of the entries as last reported.
    reported: Vec<(String, u64)>,
    redactor: Option<SessionRedactor>,
}

impl std::fmt::Debug for SessionWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionWatch").field("found", &self.found).finish_non_exhaustive()
    }
}

impl SessionStore {
    /// Follows a session. The first changes report everything that already exists.
    ///
    /// # Errors
    /// Fails if one of its files cannot be opened.
    pub fn watch(&self, found: &FoundSession) -> Result<SessionWatch, SessionError> {
        let files = found.parts.iter().map(|part| FollowedFile::open(&found.agent, part));
        let files = files.collect::<Result<Vec<_>, SessionError>>()?;
        Ok(SessionWatch {
            store: self.clone(),
            found: found.clone(),
            files,
            searched_at: Instant::now(),
            info: SessionInfo::default(),
            reported: Vec::new(),
            redactor: self.redactor.clone().map(SessionRedactor::new),
        })
    }
}

fn redact(redactor: &mut SessionRedactor, change: &mut SessionChange) {
    match change {
        SessionChange::Added { at, entry } | SessionChange::Grown { at, entry } => redactor.entry(*at, entry),
        SessionChange::Info(info) => redactor.info(info),
        SessionChange::Cut { .. } => {}
    }
}

impl SessionWatch {
    /// Returns the changes since the last call, without waiting.
    pub fn poll(&mut self) -> Vec<SessionChange> {
        if self.searched_at.elapsed() >= MORE_FILES {
            self.find_more();
        }
        // Every file is polled, even after one has changed.
        let news = self.files.iter_mut().filter_map(|file| file.poll().then_some(())).count();
        if news == 0 {
            return Vec::new();
        }
        let mut changes = Vec::new();
        if let [only] = self.files.as_slice() {
            // A single file is used in place, so that a long session is not copied for every new line.
            let session = only.session();
            report_changes(
                session,
                session.info.clone(),
                &self.found,
                (&mut self.info, &mut self.reported),
                &mut changes,
            );
        } else {
            let session = self.read();
            let info = session.info.clone();
            report_changes(&session, info, &self.found, (&mut self.info, &mut self.reported), &mut changes);
        }
        if let Some(redactor) = &mut self.redactor {
            changes.iter_mut().for_each(|change| redact(redactor, change));
        }
        changes
    }

    /// Adds files in which the agent continued the session since it was found.
    fn find_more(&mut self) {
        self.searched_at = Instant::now();
        // A file that was requested by path has no other parts, and a database contains the complete session.
        if !self.found.is_whole
            || self.found.locations().any(|location| matches!(location, SessionLocation::Row { .. }))
        {
            return;
        }
        let (files, _) = self.store.scan_files(std::slice::from_ref(&self.found.agent));
        for file in files {
            let known = self.found.locations().any(|location| *location == file.location);
            if known || !file.may_be(&self.found.info.id) || !self.is_of_this_session(&file) {
                continue;
            }
            let part = file.part();
            // A file that cannot be opened now is tried again later.
            if let Ok(followed) = FollowedFile::open(&self.found.agent, &part) {
                self.files.push(followed);
                self.found.parts.push(part);
            }
        }
    }

    fn is_of_this_session(&self, file: &SessionCandidate) -> bool {
        let Ok(head) = head_of(file.location.path()) else { return false };
        let form = file.form.or_else(|| file.agent.sessions().format(&head));
        let id = form.map(|form| beginning(&*file.agent, form, &head).id).unwrap_or_default();
        id == self.found.info.id
    }

    /// Waits for the next changes.
    #[cfg(feature = "tokio")]
    pub async fn next(&mut self) -> Vec<SessionChange> {
        loop {
            let changes = self.poll();
            if !changes.is_empty() {
                return changes;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the session as reported so far.
    #[must_use]
    pub fn session(&self) -> SavedSession {
        self.redacted(self.read())
    }

    fn redacted(&self, mut session: SavedSession) -> SavedSession {
        if let Some(redactor) = &self.store.redactor {
            redactor.session(&mut session);
        }
        session
    }

    fn read(&self) -> SavedSession {
        let parts = || self.files.iter().map(|file| file.session().clone()).collect();
        let mut session = self.read_on().unwrap_or_else(|| fold_together(parts()));
        self.found.complete(&mut session.info);
        session
    }

    /// Reads files that continue each other together, because they cannot be parsed separately.
    fn read_on(&self) -> Option<SavedSession> {
        let go_on = self.files.len() > 1 && self.found.agent.sessions().files_continue();
        let mut session =
            go_on.then(|| read_all(&*self.found.agent, &self.found.parts, &Databases::default()).ok())??;
        session.load();
        Some(session)
    }

    /// Returns the session in its current state, including an incomplete last line.
    #[must_use]
    pub fn finish(mut self) -> SavedSession {
        self.find_more();
        let parts = self.files.iter_mut().map(FollowedFile::finish).collect();
        let mut session = self.read_on().unwrap_or_else(|| fold_together(parts));
        self.found.complete(&mut session.info);
        self.redacted(session)
    }
}

/// Reports how a session differs from its last reported state.
fn report_changes(
    session: &SavedSession,
    mut info: SessionInfo,
    found: &FoundSession,
    (reported_info, reported): (&mut SessionInfo, &mut Vec<(String, u64)>),
    changes: &mut Vec<SessionChange>,
) {
    found.complete(&mut info);
    if info != *reported_info {
        changes.push(SessionChange::Info(Box::new(info.clone())));
        *reported_info = info;
    }
    let now: Vec<(String, u64)> =
        session.entries.iter().map(|entry| (entry.id.clone(), fingerprint(entry))).collect();
    // Entries keep their positions: a different id means that the session was rewound to this position.
    let same = reported.iter().zip(&now).take_while(|(old, new)| old.0 == new.0).count();
    if same < reported.len() {
        changes.push(SessionChange::Cut { at: same });
    }
    for (at, (_, print)) in now.iter().enumerate() {
        let entry = || Box::new(session.entries[at].clone());
        if at >= same {
            changes.push(SessionChange::Added { at, entry: entry() });
        } else if reported[at].1 != *print {
            changes.push(SessionChange::Grown { at, entry: entry() });
        }
    }
    *reported = now;
}

/// Returns a number that changes when an entry does.
fn fingerprint(entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    let tokens = |t: &Tokens| [t.input, t.output, t.cached, t.thoughts, t.tool, t.total];
    (entry.timestamp, &entry.model, &entry.stop_reason, entry.usage.as_ref().map(tokens)).hash(&mut hasher);
    (entry.context, entry.sidechain, entry.requests).hash(&mut hasher);
    for part in &entry.parts {
        match part {
            EntryPart::Text { text } => (0, text).hash(&mut hasher),
            EntryPart::Thinking { text, signature } => (1, text, signature).hash(&mut hasher),
            EntryPart::Tool(tool) => {
                (2, &tool.call.id, tool.call.input.as_ref().map(|raw| raw.get())).hash(&mut hasher);
                if let Some(result) = &tool.result {
                    (format!("{:?}", result.status), &result.content, result.media.len()).hash(&mut hasher);
                }
                tool.diff.as_ref().map(|diff| (&diff.path, &diff.new, &diff.unified)).hash(&mut hasher);
            }
            EntryPart::Media(media) => (3, &media.mime_type, &media.uri).hash(&mut hasher),
            _ => {}
        }
    }
    hasher.finish()
}
