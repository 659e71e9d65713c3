//! Finds and kills every process of a run.
//!
//! A process is found by its descent from the agent or by the marker variable that it inherited. Each process is
//! stopped before it is killed, so that it cannot start another one meanwhile. The search is repeated until nothing is
//! found.

use std::collections::{BTreeSet, HashMap};

use super::MARKER;
use super::os;
use super::unix;

/// A process as listed by the system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    pub(super) pid: i32,
    pub(super) parent: i32,
    /// Its session id, or 0 where the system does not report it.
    pub(super) session: i32,
    /// Whether it is dead and waits to be reaped by its parent.
    pub(super) zombie: bool,
}

/// A search for the remaining processes of one run.
#[derive(Debug)]
pub(super) struct ProcessSearch {
    mark: String,
    /// All descendants of this process belong to the run.
    ancestor: i32,
    /// The agent, until it is reaped. It is killed even where processes cannot be listed.
    root: Option<i32>,
    /// A process that is not killed: the init, which exits by itself.
    excluded: Option<i32>,
    killed: BTreeSet<i32>,
    /// Processes of other users, which the system does not allow this process to kill.
    refused: BTreeSet<i32>,
}

impl ProcessSearch {
    /// Creates a search for the descendants of `ancestor` and the processes that carry `mark`.
    pub(super) fn new(mark: &str, ancestor: i32, root: i32) -> Self {
        Self {
            mark: mark.into(),
            ancestor,
            root: Some(root),
            excluded: None,
            killed: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Excludes a process from the search, but not its descendants.
    pub(super) fn excluding(mut self, pid: i32) -> Self {
        self.excluded = Some(pid);
        self
    }

    /// Returns whether this process is excluded.
    pub(super) fn is_excluded(&self, pid: i32) -> bool {
        self.excluded == Some(pid)
    }

    /// Ends the exclusion, because the excluded process is gone.
    pub(super) fn clear_exclusion(&mut self) {
        self.excluded = None;
    }

    /// Creates a search for processes that carry `mark`, without an ancestor.
    pub(super) fn by_mark(mark: &str) -> Self {
        Self { root: None, ..Self::new(mark, 0, 0) }
    }

    /// Returns the mark.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Records that the root was reaped, so its pid may soon be reused.
    pub(super) fn root_reaped(&mut self) {
        if self.root.take() == Some(self.ancestor) {
            self.ancestor = 0;
        }
    }

    /// Kills the living descendants and returns their number.
    pub(super) fn kill_descendants(&mut self) -> usize {
        let listed = os::processes();
        let mut targets = descendants(&listed, &BTreeSet::from([self.ancestor]));
        targets.extend(self.root);
        self.kill(targets, &listed)
    }

    /// Kills the processes that carry the mark, with their descendants, and returns their number.
    pub(super) fn kill_marked(&mut self) -> usize {
        let own = unix::own_pid();
        let mut targets = os::pids();
        targets.retain(|pid| *pid != own && os::environment_matches(*pid, |env| carries(env, &self.mark)));
        if targets.is_empty() {
            return 0;
        }
        let listed = os::processes();
        let mut targets: BTreeSet<i32> = targets.into_iter().collect();
        targets.extend(descendants(&listed, &targets));
        // A zombie has no environment, so every process found here was alive.
        self.kill(targets, &listed)
    }

    /// Kills the orphans adopted by this process, with their descendants, and returns their number.
    ///
    /// An orphan of a run is a child in another session: every supervisor opens its own session, and none of its
    /// descendants is in the session of this process. `excluded` lists children that are not orphans.
    pub(super) fn kill_adopted(&mut self, excluded: &BTreeSet<i32>) -> usize {
        let (own, session) = (unix::own_pid(), unix::own_session());
        let listed = os::processes();
        let is_orphan = |process: &&Listed| {
            process.parent == own && process.session != session && !excluded.contains(&process.pid)
        };
        let mut targets: BTreeSet<i32> = listed.iter().filter(is_orphan).map(|process| process.pid).collect();
        targets.iter().for_each(|pid| unix::reap_if_dead(*pid));
        targets.extend(descendants(&listed, &targets));
        if targets.is_empty() { 0 } else { self.kill(targets, &listed) }
    }

    /// Returns the number of distinct processes that were killed.
    pub(super) fn killed(&self) -> u32 {
        u32::try_from(self.killed.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of processes that the system did not allow this process to kill.
    pub(super) fn refused(&self) -> u32 {
        u32::try_from(self.refused.len()).unwrap_or(u32::MAX)
    }

    fn kill(&mut self, mut targets: BTreeSet<i32>, listed: &[Listed]) -> usize {
        let above = ancestors(listed, unix::own_pid());
        targets
            .retain(|pid| !above.contains(pid) && !self.refused.contains(pid) && self.excluded != Some(*pid));
        for process in listed.iter().filter(|process| process.zombie) {
            targets.remove(&process.pid);
        }
        for pid in &targets {
            unix::stop(*pid);
        }
        let mut already_exited = 0;
        for pid in &targets {
            match unix::kill(*pid) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    self.refused.insert(*pid);
                }
                // The root, if another process has reaped it.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => already_exited += 1,
                _ => {
                    self.killed.insert(*pid);
                }
            }
        }
        targets.len() - already_exited
    }
}

/// Returns whether the environment (NUL-terminated variables) carries the mark. Nested runs join their marks with `/`.
pub(super) fn carries(environment: &[u8], mark: &str) -> bool {
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| variable.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"="))
        .any(|marks| marks.split(|byte| *byte == b'/').any(|one| one == mark.as_bytes()))
}

pub(super) fn descendants(listed: &[Listed], roots: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in listed {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<i32> = roots.iter().copied().filter(|pid| *pid > 1).collect();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// Returns the process itself and all of its ancestors, which are never killed.
fn ancestors(listed: &[Listed], own: i32) -> BTreeSet<i32> {
    let parents: HashMap<i32, i32> = listed.iter().map(|process| (process.pid, process.parent)).collect();
    let mut above = BTreeSet::from([0, 1]);
    let mut next = Some(own);
    while let Some(pid) = next {
        next = above.insert(pid).then(|| parents.get(&pid).copied()).flatten();
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(rows: &[(i32, i32)]) -> Vec<Listed> {
        let row =
            |(pid, parent): &(i32, i32)| Listed { pid: *pid, parent: *parent, session: 0, zombie: false };
        rows.iter().map(row).collect()
    }

    #[test]
    fn descendants_of_every_depth_are_found() {
        let rows = listed(&[(1, 0), (10, 1), (11, 10), (12, 11), (13, 1), (9, 12)]);
        assert_eq!(descendants(&rows, &BTreeSet::from([10])), BTreeSet::from([9, 11, 12]));
        assert_eq!(descendants(&rows, &BTreeSet::from([0])), BTreeSet::new());
        assert_eq!(ancestors(&rows, 12), BTreeSet::from([0, 1, 10, 11, 12]));
    }

    #[test]
    fn run_mark_is_found_alone_and_in_a_chain() {
        assert!(carries(b"A=1\0AGENTLINE_RUN=abc\0", "abc"));
        assert!(carries(b"AGENTLINE_RUN=outer/abc", "abc"));
        assert!(carries(b"AGENTLINE_RUN=outer/abc", "outer"));
        assert!(!carries(b"AGENTLINE_RUN=abcd\0X=AGENTLINE_RUN=abc\0AGENTLINE_RUNS=abc", "abc"));
        assert!(!carries(b"", "abc"));
    }
}
