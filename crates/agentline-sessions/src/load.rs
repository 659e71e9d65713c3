//! Reads a complete saved session, as far as it is readable.

use crate::{
    database::Databases,
    error::SessionError,
    lines::{LineSessionLoader, NOT_UTF8},
    location::{FoundSession, SessionLocation, SessionPart},
    store::SessionStore,
};
use agentline_core::{
    Agent, Entry, MAX_CONTENT_IN_MEMORY, RawJson, ReadError, SavedSession, SessionFormat, SessionInfo,
    SessionReader, error_chain,
};
use agentline_fs::regular_file::open_regular;
use std::{collections::HashMap, io::Read, path::Path};

/// The number of bytes at the beginning of a file from which its agent and form are detected.
pub(crate) const HEAD: usize = 64 * 1024;
/// The maximum size of a file that is one JSON value, because it is held in memory.
const LARGEST: u64 = 2 << 30;

impl SessionStore {
    /// Reads a session into memory. The files of one session are merged; unreadable parts are listed in `damage`.
    ///
    /// # Errors
    /// Fails if none of its files can be opened.
    pub fn load(&self, found: &FoundSession) -> Result<SavedSession, SessionError> {
        let mut session = self.open(found)?;
        session.load();
        Ok(session)
    }

    /// Reads a session like [`load`](Self::load), but leaves the content of a large session in a temporary file.
    ///
    /// [`Entry::loaded`] returns an entry with its content.
    ///
    /// # Errors
    /// Fails if none of its files can be opened.
    pub fn open(&self, found: &FoundSession) -> Result<SavedSession, SessionError> {
        let mut session = read_all(&*found.agent, &found.parts, &Databases::default())?;
        found.complete(&mut session.info);
        if let Some(redactor) = &self.redactor {
            redactor.session(&mut session);
        }
        Ok(session)
    }
}

/// Reads all parts of a session. A part that cannot be opened is damage, or an error if no part can be opened.
pub(crate) fn read_all(
    agent: &dyn Agent,
    parts: &[SessionPart],
    databases: &Databases,
) -> Result<SavedSession, SessionError> {
    if parts.len() > 1 && agent.sessions().files_continue() {
        return read_on(agent, parts);
    }
    let (mut sessions, mut failed) = (Vec::new(), None);
    for part in parts {
        match read(agent, &part.location, part.form, databases) {
            Ok(session) => sessions.push(session),
            Err(error) => failed = Some(error),
        }
    }
    match (sessions.is_empty(), failed) {
        (true, Some(error)) => Err(error),
        (_, failed) => {
            let mut session = fold_together(sessions);
            session.damage.extend(failed.map(|error| ReadError::new(None, error_chain(&error))));
            Ok(session)
        }
    }
}

/// Reads files that continue each other as one. Line numbers count through all files.
fn read_on(agent: &dyn Agent, parts: &[SessionPart]) -> Result<SavedSession, SessionError> {
    let mut paths: Vec<&Path> = parts.iter().map(|part| part.location.path()).collect();
    // File names begin with the time at which the file was created.
    paths.sort_by_key(|path| path.file_name());
    let Some(mut reader) = LineSessionLoader::new(agent) else { return Ok(no_session(agent)) };
    let mut failed = Vec::new();
    for path in &paths {
        let read = open_regular(path, u64::MAX).and_then(|file| reader.file(file));
        failed.extend(read.map_err(SessionError::io("read", path)).err());
    }
    if failed.len() == paths.len()
        && let Some(error) = failed.pop()
    {
        return Err(error);
    }
    let mut session = reader.finish();
    session.damage.extend(failed.into_iter().map(|error| ReadError::new(None, error_chain(&error))));
    Ok(session)
}

/// Reads one file, or one session of a database.
pub(crate) fn read(
    agent: &dyn Agent,
    location: &SessionLocation,
    form: Option<SessionFormat>,
    databases: &Databases,
) -> Result<SavedSession, SessionError> {
    match location {
        SessionLocation::Row { database, session } => databases.load(agent, database, session),
        SessionLocation::File(path) => read_file(agent, path, form).map_err(SessionError::io("read", path)),
    }
}

fn read_file(agent: &dyn Agent, path: &Path, form: Option<SessionFormat>) -> std::io::Result<SavedSession> {
    let form = match form {
        Some(form) => Some(form),
        None => agent.sessions().format(&head_of(path)?),
    };
    let file = open_regular(path, u64::MAX)?;
    // The records of a small file share its bytes in memory.
    if form == Some(SessionFormat::Lines)
        && file.metadata()?.len() > MAX_CONTENT_IN_MEMORY as u64
        && let Some(mut reader) = LineSessionLoader::new(agent)
    {
        reader.file(file)?;
        return Ok(reader.finish());
    }
    Ok(fold_bytes(agent, form, bytes_of(path)?))
}

/// Returns the content of a file, in a buffer of exactly its size.
pub(crate) fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_regular(path, LARGEST)?;
    let size = file.metadata().map_or(0, |m| m.len());
    bytes.try_reserve_exact(usize::try_from(size).unwrap_or(0).saturating_add(1))?;
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the beginning of a file, from which its agent and form are detected.
pub(crate) fn head_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    open_regular(path, u64::MAX)?.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Returns the metadata in the beginning of a file, or the default if the form needs the complete file.
pub(crate) fn beginning(agent: &dyn Agent, form: SessionFormat, head: &[u8]) -> SessionInfo {
    let whole = if head.len() < HEAD { head.len() } else { memchr::memrchr(b'\n', head).unwrap_or(0) };
    if whole < head.len() && form != SessionFormat::Lines {
        return SessionInfo::default();
    }
    fold_bytes(agent, Some(form), head[..whole].to_vec()).info
}

/// Parses the content of a file.
pub(crate) fn fold_bytes(agent: &dyn Agent, form: Option<SessionFormat>, bytes: Vec<u8>) -> SavedSession {
    let form = form.or_else(|| agent.sessions().format(&bytes[..bytes.len().min(HEAD)]));
    let Some((form, mut fold)) = form.and_then(|form| Some((form, agent.sessions().reader(form)?))) else {
        return no_session(agent);
    };
    let mut damage = Vec::new();
    let text = text_of(bytes, form, &mut damage);
    feed(fold.as_mut(), form, &RawJson::new(text));
    let mut session = fold.finish();
    session.damage.extend(damage);
    session
}

fn no_session(agent: &dyn Agent) -> SavedSession {
    let mut session = SavedSession::default();
    session.damage.push(ReadError::new(None, format!("not a session of {}", agent.info().title)));
    session
}

/// Converts the content to text. Only lines that are not valid UTF-8 are reported as damaged.
fn text_of(bytes: Vec<u8>, form: SessionFormat, damage: &mut Vec<ReadError>) -> String {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => return text,
        Err(error) => error.into_bytes(),
    };
    if form == SessionFormat::Lines {
        let lines = bytes.split(|byte| *byte == b'\n').zip(1..);
        let broken = lines.filter(|(line, _)| std::str::from_utf8(line).is_err());
        damage.extend(broken.map(|(_, number)| ReadError::new(Some(number), NOT_UTF8)));
    } else {
        damage.push(ReadError::new(None, NOT_UTF8));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Passes a text to a reader, line by line or as one value.
pub(crate) fn feed(fold: &mut dyn SessionReader, form: SessionFormat, text: &RawJson) {
    if form != SessionFormat::Lines {
        fold.take(text.clone());
        return;
    }
    let mut start = 0;
    let all = text.as_str();
    if all.starts_with('\u{feff}') {
        start = '\u{feff}'.len_utf8();
    }
    while start < all.len() {
        let end = memchr::memchr(b'\n', &all.as_bytes()[start..]).map_or(all.len(), |at| start + at);
        let line = all[start..end].strip_suffix('\r').unwrap_or(&all[start..end]);
        fold.take(text.part(start..start + line.len()));
        start = end + 1;
    }
}

/// Merges the parts of one session, each parsed separately: a later file may begin with an empty list that does not
/// apply to the earlier files.
pub(crate) fn fold_together(mut parts: Vec<SavedSession>) -> SavedSession {
    parts.sort_by_key(|part| (part.info.started, part.info.updated));
    // Parts without content are ignored, unless all parts are.
    if parts.iter().any(has_content) {
        parts.retain(|part| has_content(part) || !part.damage.is_empty());
    }
    let mut parts = parts.into_iter();
    let Some(mut whole) = parts.next() else { return SavedSession::default() };
    for part in parts {
        join(&mut whole, part);
    }
    whole
}

fn has_content(session: &SavedSession) -> bool {
    session.entries.iter().any(|entry| !entry.context)
}

fn join(whole: &mut SavedSession, part: SavedSession) {
    let known: HashMap<String, usize> =
        whole.entries.iter().enumerate().map(|(at, entry)| (entry.id.clone(), at)).collect();
    for entry in part.entries {
        match known.get(&entry.id) {
            Some(at) if is_fuller(&entry, &whole.entries[*at]) => whole.entries[*at] = entry,
            Some(_) => {}
            None => whole.entries.push(entry),
        }
    }
    whole.abandoned.extend(part.abandoned);
    whole.damage.extend(part.damage);
    let (old, new) = (&mut whole.info, part.info);
    old.started = [old.started, new.started].into_iter().flatten().min();
    old.updated = old.updated.max(new.updated);
    old.title = new.title.or_else(|| old.title.take());
    old.model = new.model.or_else(|| old.model.take());
    old.agent_version = new.agent_version.or_else(|| old.agent_version.take());
    old.project = old.project.take().or(new.project);
    old.cost_usd = old.cost_usd.or(new.cost_usd);
}

/// Returns whether a later copy of an entry contains at least as much as an earlier one.
fn is_fuller(later: &Entry, earlier: &Entry) -> bool {
    let (later, earlier) = (later.loaded(), earlier.loaded());
    let results = |entry: &Entry| entry.tools().filter(|tool| tool.result.is_some()).count();
    later.parts.len() >= earlier.parts.len() && results(&later) >= results(&earlier)
}
