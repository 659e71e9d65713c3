//! Follows the file that an agent writes about its session while a run goes on.

use crate::{litter::Litter, look::DiskLook};
use agentline_core::{Agent, LineSplitter, Piece, SessionSpot};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// The folder is listed again after this many looks: an agent may open a second file for the same session.
const LOOKS_PER_LISTING: u32 = 10;
/// Lines longer than this are of no use to us.
const LINE_CAP: usize = 256 << 20;

/// Where the lines of one session come from.
pub(crate) struct Follower {
    agent: &'static dyn Agent,
    agent_home: PathBuf,
    cwd: PathBuf,
    session: Option<String>,
    spot: Option<SessionSpot>,
    /// What was there before the run, with its size: only what is new belongs to the run.
    before: BTreeMap<PathBuf, u64>,
    files: BTreeMap<PathBuf, Followed>,
    looks: u32,
}

struct Followed {
    file: File,
    splitter: LineSplitter,
}

impl Follower {
    pub(crate) fn new(agent: &'static dyn Agent, agent_home: &Path, cwd: &Path) -> Self {
        Self {
            agent,
            agent_home: agent_home.to_owned(),
            cwd: cwd.to_owned(),
            session: None,
            spot: None,
            before: BTreeMap::new(),
            files: BTreeMap::new(),
            looks: 0,
        }
    }

    /// Remembers what a stored session holds before a run goes on with it.
    pub(crate) fn remember(&mut self, session: &str) {
        self.find_spot(session);
        for path in self.listing() {
            let size = std::fs::metadata(&path).map_or(0, |m| m.len());
            self.before.insert(path, size);
        }
    }

    pub(crate) fn start(&mut self, session: &str) {
        if self.session.is_none() {
            self.session = Some(session.to_owned());
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.session.is_some()
    }

    /// The lines that are new since the last look.
    pub(crate) fn look_now(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.look(&mut lines);
        lines
    }

    /// Everything that is there now, a last line without its end included.
    pub(crate) fn drain(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.looks = 0;
        self.look(&mut lines);
        for followed in self.files.values_mut() {
            followed.splitter.finish(|piece| keep(piece, &mut lines));
        }
        lines
    }

    /// Files that the run left behind and that would harm the user's data.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let before: Vec<PathBuf> = self.before.keys().cloned().collect();
        self.spot.as_ref().map(|spot| self.agent.leftovers(spot, &before, &DiskLook)).unwrap_or_default()
    }

    /// A session of the same workspace, for when it turns out that nobody used it.
    pub(crate) fn litter(&self, session: &str) -> Litter {
        let (home, cwd) = (self.agent_home.clone(), self.cwd.clone());
        Litter { agent: self.agent, home, cwd, session: session.to_owned() }
    }

    fn find_spot(&mut self, session: &str) {
        if self.spot.is_none() {
            self.spot = self.agent.session_spot(&self.agent_home, &self.cwd, session, &DiskLook);
        }
    }

    fn listing(&self) -> Vec<PathBuf> {
        let Some(spot) = &self.spot else { return Vec::new() };
        // Hundreds of other sessions may be in the same folder.
        let is_of_it = |name: &OsString| name.as_encoded_bytes().ends_with(spot.suffix.as_bytes());
        let entries = std::fs::read_dir(&spot.folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name()).filter(is_of_it);
        let mut files: Vec<PathBuf> = names.map(|name| spot.folder.join(name)).collect();
        files.sort();
        files
    }

    fn look(&mut self, lines: &mut Vec<String>) {
        let Some(session) = self.session.clone() else { return };
        self.find_spot(&session);
        if self.looks.is_multiple_of(LOOKS_PER_LISTING) || self.files.is_empty() {
            for path in self.listing() {
                if !self.files.contains_key(&path)
                    && let Some(followed) = open(&path, self.before.get(&path).copied().unwrap_or(0))
                {
                    self.files.insert(path, followed);
                }
            }
        }
        self.looks = self.looks.wrapping_add(1);
        let mut bytes = Vec::new();
        for followed in self.files.values_mut() {
            bytes.clear();
            // What cannot be read now is read at the next look.
            if followed.file.read_to_end(&mut bytes).is_ok() {
                followed.splitter.push(&bytes, |piece| keep(piece, lines));
            }
        }
    }
}

fn open(path: &Path, from: u64) -> Option<Followed> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    Some(Followed { file, splitter: LineSplitter::new(LINE_CAP) })
}

fn keep(piece: Piece<'_>, lines: &mut Vec<String>) {
    if let Piece::Line(text) = piece
        && !text.trim().is_empty()
    {
        lines.push(text.into_owned());
    }
}
