//! Follows the session file, or the rows of a database, that an agent writes during a run.

use crate::{
    fs::{disk_fs::DiskFs, regular_file::open_regular},
    resolve::spec::ProcessSpec,
    run::{
        abandoned_session::AbandonedSession,
        session_cleanup::{CleanDir, changed, hold_session_file, remove_empty_duplicates},
    },
};
use agentline_core::{Agent, LineSplitter, Millis, SessionFilePattern, SplitItem};
#[cfg(feature = "sessions")]
use agentline_sessions::sqlite::AnswerFollower;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

/// How many reads pass between two listings of the directory: an agent may open a second file for a session.
const READS_PER_LISTING: u32 = 10;
/// How many reads list the directory each time while the session has no file yet.
const READS_WITHOUT_FILE: u32 = 50;
/// The maximum number of workspaces whose session directories are cached for each agent home.
const MAX_DIRS: usize = 64;
/// The initial size of the read buffer in bytes.
const READ: usize = 16 << 10;
/// The maximum length of a line in bytes; longer lines are ignored.
const LINE_CAP: usize = 256 << 20;

/// The home directory that an agent sees.
pub(crate) struct AgentHome {
    path: PathBuf,
    /// The environment of the agent.
    #[cfg(feature = "sessions")]
    env: BTreeMap<String, String>,
    /// The session directory of each workspace, as last found.
    dirs: Mutex<BTreeMap<PathBuf, SessionDir>>,
}

/// The session directory of a workspace.
#[derive(Debug)]
struct SessionDir {
    path: PathBuf,
    clean: Option<CleanDir>,
}

impl fmt::Debug for AgentHome {
    /// The environment may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHome").field("path", &self.path).finish_non_exhaustive()
    }
}

impl AgentHome {
    pub(crate) fn new(process: &ProcessSpec) -> Arc<Self> {
        Arc::new(Self {
            path: process.agent_home.clone(),
            #[cfg(feature = "sessions")]
            env: process.env.clone(),
            dirs: Mutex::default(),
        })
    }

    /// Creates a home for an agent without variables.
    #[cfg(all(test, unix))]
    fn at(path: &Path) -> Self {
        let path = path.to_owned();
        Self {
            path,
            #[cfg(feature = "sessions")]
            env: BTreeMap::new(),
            dirs: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, SessionDir>> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session directory of a workspace, as last found.
    fn sessions_of(&self, cwd: &Path) -> Option<PathBuf> {
        self.lock().get(cwd).map(|folder| folder.path.clone())
    }

    /// Removes the files that killed runs left among the sessions of a workspace. Blocks.
    pub(crate) fn clean_sessions(&self, agent: &dyn Agent, cwd: &Path) {
        let Some(path) = self.sessions_of(cwd).or_else(|| self.find_sessions_of(agent, cwd)) else { return };
        let known = self.lock().get(cwd).and_then(|folder| folder.clean);
        if known.is_some_and(|clean| clean.is_unchanged(&path)) {
            return;
        }
        let before = changed(&path);
        let was_clean = remove_empty_duplicates(agent, &path);
        if let Some(folder) = self.lock().get_mut(cwd) {
            folder.clean = before.filter(|_| was_clean).map(CleanDir::new);
        }
    }

    /// Records that a run has created this session file.
    fn add_session(&self, cwd: &Path, file: &File) {
        if let Some(SessionDir { path, clean: Some(clean) }) = self.lock().get_mut(cwd) {
            clean.add_own(path, file);
        }
    }

    /// Finds the session directory of a workspace.
    fn find_sessions_of(&self, agent: &dyn Agent, cwd: &Path) -> Option<PathBuf> {
        let found = agent.sessions().folder(&self.path, cwd, &DiskFs);
        let mut all = self.lock();
        all.remove(cwd);
        if let Some(path) = found.clone() {
            if all.len() >= MAX_DIRS {
                all.clear();
            }
            all.insert(cwd.to_owned(), SessionDir { path, clean: None });
        }
        found
    }
}

/// Reads the new lines of one session.
pub(crate) struct Follower {
    agent: Arc<dyn Agent>,
    home: Arc<AgentHome>,
    cwd: PathBuf,
    session: Option<String>,
    /// When a new session was first reported; `None` for a stored session.
    started_at: Option<SystemTime>,
    /// The stored session that the run resumes, as the caller names it.
    stored: Option<String>,
    pattern: Option<SessionFilePattern>,
    /// The files that existed before the run, with their sizes. Only later content belongs to the run.
    before: BTreeMap<PathBuf, u64>,
    files: BTreeMap<PathBuf, Followed>,
    /// The rows of the session, if the agent stores it in a database.
    #[cfg(feature = "sessions")]
    rows: Option<AnswerFollower>,
    /// Locks that prevent other runs from cleaning up this session while it is in use.
    locks: Vec<File>,
    reads: u32,
}

struct Followed {
    file: File,
    splitter: LineSplitter,
}

impl Follower {
    pub(crate) fn new(agent: &Arc<dyn Agent>, home: &Arc<AgentHome>, cwd: &Path) -> Self {
        Self {
            agent: Arc::clone(agent),
            home: Arc::clone(home),
            cwd: cwd.to_owned(),
            session: None,
            started_at: None,
            stored: None,
            pattern: None,
            before: BTreeMap::new(),
            files: BTreeMap::new(),
            #[cfg(feature = "sessions")]
            rows: AnswerFollower::new(agent, &home.env, &home.path),
            locks: Vec::new(),
            reads: 0,
        }
    }

    /// Records the content of a stored session before a run resumes it.
    pub(crate) fn remember(&mut self, session: &str) {
        self.stored = Some(session.to_owned());
        #[cfg(feature = "sessions")]
        if let Some(rows) = &mut self.rows {
            rows.read_new(session);
        }
        self.find_pattern(session);
        for path in self.listing() {
            let size = std::fs::metadata(&path).map_or(0, |m| m.len());
            self.locks.extend(hold_session_file(&path));
            self.before.insert(path, size);
        }
    }

    pub(crate) fn start(&mut self, session: &str) {
        if self.session.is_some() {
            return;
        }
        if self.stored.as_deref().is_some_and(|stored| stored != session) {
            // Only the agent knew which session is the latest. It has no prompt yet, so the file has no records of the run.
            self.pattern = None;
            self.remember(session);
        }
        self.session = Some(session.to_owned());
        self.started_at = self.stored.is_none().then(SystemTime::now);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the lines that were written since the last read.
    pub(crate) fn read_new(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.read_files(&mut lines);
        lines
    }

    /// Returns all remaining lines, including an unterminated last line.
    pub(crate) fn drain(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.reads = 0;
        self.read_files(&mut lines);
        for followed in self.files.values_mut() {
            followed.splitter.finish(|piece| keep(piece, &mut lines));
        }
        lines
    }

    /// Returns the files that the run left behind and that would harm the user's data.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let before: Vec<PathBuf> = self.before.keys().cloned().collect();
        self.pattern
            .as_ref()
            .map(|pattern| self.agent.sessions().leftovers(pattern, &before, &DiskFs))
            .unwrap_or_default()
    }

    /// Describes a session of this workspace, for removal if it turns out to be unused.
    pub(crate) fn abandoned(&self, session: &str) -> AbandonedSession {
        let (home, cwd) = (self.home.path.clone(), self.cwd.clone());
        AbandonedSession { agent: Arc::clone(&self.agent), home, cwd, session: session.to_owned() }
    }

    fn find_pattern(&mut self, session: &str) {
        if self.pattern.is_none() {
            let folder = self.home.find_sessions_of(&*self.agent, &self.cwd);
            let sessions = self.agent.sessions();
            self.pattern = match folder {
                Some(folder) => Some(sessions.file_pattern(folder, session, &DiskFs)),
                None => sessions.locate(&self.home.path, &self.cwd, session, &DiskFs),
            };
        }
    }

    /// Returns the only file that the session can have, if its name is known.
    fn only_file(&self) -> Option<PathBuf> {
        let pattern = self.pattern.as_ref()?;
        let name = |at: SystemTime| {
            let at = at.duration_since(UNIX_EPOCH).ok()?.as_millis();
            self.agent.sessions().file_name_at(pattern, Millis::try_from(at).ok()?)
        };
        // The name depends on the creation time. It is certain only if every time since the start gives the same name.
        let name = name(self.started_at?).filter(|first| name(SystemTime::now()).as_ref() == Some(first))?;
        Some(pattern.folder.join(name))
    }

    fn listing(&self) -> Vec<PathBuf> {
        let Some(pattern) = &self.pattern else { return Vec::new() };
        // Filter by name first: the directory may contain hundreds of other sessions.
        let is_of_it = |name: &OsString| name.as_encoded_bytes().ends_with(pattern.suffix.as_bytes());
        let entries = std::fs::read_dir(&pattern.folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name()).filter(is_of_it);
        let mut files: Vec<PathBuf> = names.map(|name| pattern.folder.join(name)).collect();
        files.sort();
        files
    }

    /// Opens the files of the session that are not open yet.
    fn open_new(&mut self) {
        if let Some(only) = self.only_file() {
            if self.files.contains_key(&only) {
                return;
            }
            if let Some(followed) = open(&only, 0) {
                self.home.add_session(&self.cwd, &followed.file);
                self.files.insert(only, followed);
                return;
            }
        }
        for path in self.listing() {
            if !self.files.contains_key(&path)
                && let Some(followed) = open(&path, self.before.get(&path).copied().unwrap_or(0))
            {
                self.files.insert(path, followed);
            }
        }
    }

    fn read_files(&mut self, lines: &mut Vec<String>) {
        let Some(session) = self.session.clone() else { return };
        #[cfg(feature = "sessions")]
        if let Some(rows) = &mut self.rows {
            return lines.extend(rows.read_new(&session).iter().map(|row| row.as_str().to_owned()));
        }
        let is_new = self.files.is_empty() && self.reads < READS_WITHOUT_FILE;
        if self.reads.is_multiple_of(READS_PER_LISTING) || is_new {
            if self.files.is_empty() && self.stored.is_none() {
                // The agent may create the file in another directory than last time.
                self.pattern = None;
            }
            let known = if self.pattern.is_none() { self.home.sessions_of(&self.cwd) } else { None };
            let is_remembered = known.is_some();
            if let Some(folder) = known {
                self.pattern = Some(self.agent.sessions().file_pattern(folder, &session, &DiskFs));
            }
            self.open_new();
            if self.files.is_empty() && (is_remembered || self.pattern.is_none()) {
                // The file does not exist yet, or its directory has changed.
                self.pattern = None;
                self.find_pattern(&session);
                self.open_new();
            }
        }
        self.reads = self.reads.wrapping_add(1);
        let mut bytes = Vec::new();
        for followed in self.files.values_mut() {
            bytes.clear();
            read_on(&mut followed.file, &mut bytes);
            followed.splitter.push(&bytes, |piece| keep(piece, lines));
        }
    }
}

fn open(path: &Path, from: u64) -> Option<Followed> {
    let mut file = open_regular(path, u64::MAX).ok()?;
    if from > 0 {
        file.seek(SeekFrom::Start(from)).ok()?;
    }
    Some(Followed { file, splitter: LineSplitter::new(LINE_CAP) })
}

/// Reads to the current end of the file. After an error, the next call continues.
fn read_on(file: &mut File, bytes: &mut Vec<u8>) {
    let mut read = 0;
    loop {
        bytes.resize((2 * read).max(READ), 0);
        match file.read(&mut bytes[read..]) {
            Ok(more) => {
                read += more;
                // A regular file fills the buffer unless the end is reached.
                if more == 0 || read < bytes.len() {
                    break;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    bytes.truncate(read);
}

fn keep(piece: SplitItem<'_>, lines: &mut Vec<String>) {
    if let SplitItem::Line(text) = piece
        && !text.trim().is_empty()
    {
        lines.push(text.into_owned());
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use agentline_core::agents;
    use std::fs;

    #[test]
    fn own_sessions_do_not_trigger_a_directory_listing() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join(".gemini/tmp/ws");
        let at =
            |minute: &str, id: &str| project.join(format!("chats/session-2026-01-01T00-{minute}-{id}.jsonl"));
        let header = r#"{"sessionId":"aaaa1111-1","kind":"main"}"#;
        fs::create_dir_all(project.join("chats")).unwrap();
        fs::write(project.join(".project_root"), "/ws").unwrap();
        fs::write(at("00", "aaaa1111"), format!("{header}\n{{\"id\":\"1\",\"type\":\"user\"}}\n")).unwrap();
        let (agent, home) = (agents::find("gemini").unwrap(), AgentHome::at(dir.path()));
        let duplicate = at("09", "aaaa1111");
        let leave_duplicate = || fs::write(&duplicate, format!("{header}\n")).unwrap();
        let clean = || home.clean_sessions(&*agent, Path::new("/ws"));
        // File-system timestamps have a resolution of a few milliseconds.
        let settle = || std::thread::sleep(std::time::Duration::from_millis(50));

        leave_duplicate();
        clean();
        assert!(!duplicate.exists(), "in the first listing");
        clean();
        settle();
        let own = File::create(at("10", "bbbb2222")).unwrap();
        home.add_session(Path::new("/ws"), &own);
        settle();
        let changed_at = changed(&project.join("chats")).unwrap();
        leave_duplicate();
        assert_ne!(changed(&project.join("chats")), Some(changed_at));
        clean();
        assert!(!duplicate.exists(), "after a session of our own");

        clean();
        let changed_at = changed(&project.join("chats")).unwrap();
        leave_duplicate();
        File::open(project.join("chats")).unwrap().set_modified(changed_at).unwrap();
        clean();
        assert!(duplicate.exists(), "the directory has the same time, so it is not listed");
        settle();
        home.add_session(Path::new("/ws"), &own);
        leave_duplicate();
        File::create(at("11", "cccc3333")).unwrap();
        home.add_session(Path::new("/ws"), &own);
        clean();
        assert!(!duplicate.exists(), "the last added file is not our own");
    }

    #[test]
    fn session_that_only_the_agent_knows_is_followed_from_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let chats = dir.path().join(".pi/agent/sessions/--ws--");
        fs::create_dir_all(&chats).unwrap();
        let file = chats.join("2026_7.jsonl");
        fs::write(&file, "{\"earlier\":1}\n").unwrap();
        let agent = agents::AgentRegistry::default().find("pi").unwrap();
        let home = Arc::new(AgentHome::at(dir.path()));
        let mut follower = Follower::new(&agent, &home, Path::new("/ws"));
        follower.remember("latest");
        follower.start("7");
        fs::write(&file, "{\"earlier\":1}\n{\"later\":2}\n").unwrap();
        assert_eq!(follower.read_new(), ["{\"later\":2}"]);
    }
}
