//! Finds and kills every process of a run, wherever it hid.
//!
//! Two traces lead to a process: its descent from the agent, and the marker variable that it inherited. A process
//! is stopped before it is killed, so that it cannot start another one meanwhile, and the search is repeated until
//! nothing is found.

use std::collections::{BTreeSet, HashMap};

use super::MARKER;
use super::os;
use super::unix;

/// One process as the system lists it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    pub(super) pid: i32,
    pub(super) parent: i32,
    /// Its session; 0 where the system does not tell it.
    pub(super) session: i32,
    /// It is dead and waits to be reaped by its parent.
    pub(super) zombie: bool,
}

/// The search for what is left of one run.
#[derive(Debug)]
pub(super) struct Hunt {
    mark: String,
    /// All that descend from this process are ours.
    ancestor: i32,
    /// The process that the hunter started, as long as it was not reaped: it dies even where nothing can be listed.
    root: Option<i32>,
    /// A process that is left alone: the init, which ends by itself.
    spared: Option<i32>,
    killed: BTreeSet<i32>,
    /// Processes of another user, which the system does not let us kill.
    refused: BTreeSet<i32>,
}

impl Hunt {
    /// A hunt for what descends from `ancestor` or carries `mark`.
    pub(super) fn new(mark: &str, ancestor: i32, root: i32) -> Self {
        Self {
            mark: mark.into(),
            ancestor,
            root: Some(root),
            spared: None,
            killed: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Leaves a process alone, though not what descends from it.
    pub(super) fn sparing(mut self, pid: i32) -> Self {
        self.spared = Some(pid);
        self
    }

    /// Whether this process is left alone.
    pub(super) fn spares(&self, pid: i32) -> bool {
        self.spared == Some(pid)
    }

    /// The spared process is gone.
    pub(super) fn spares_nobody(&mut self) {
        self.spared = None;
    }

    /// A hunt for what carries `mark`, when nothing is known of its descent.
    pub(super) fn by_mark(mark: &str) -> Self {
        Self { root: None, ..Self::new(mark, 0, 0) }
    }

    /// What the processes carry.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// The root was reaped, so its number may soon belong to somebody else.
    pub(super) fn root_reaped(&mut self) {
        if self.root.take() == Some(self.ancestor) {
            self.ancestor = 0;
        }
    }

    /// Kills the descendants that are alive now and says how many there were.
    pub(super) fn kill_descendants(&mut self) -> usize {
        let listed = os::processes();
        let mut targets = descendants(&listed, &BTreeSet::from([self.ancestor]));
        targets.extend(self.root);
        self.kill(targets, &listed)
    }

    /// Kills what carries the mark, with its descendants, and says how many there were.
    pub(super) fn kill_marked(&mut self) -> usize {
        let own = unix::own_pid();
        let mut targets = os::pids();
        targets.retain(|pid| *pid != own && os::environment_of(*pid, |env| carries(env, &self.mark)));
        if targets.is_empty() {
            return 0;
        }
        let listed = os::processes();
        let mut targets: BTreeSet<i32> = targets.into_iter().collect();
        targets.extend(descendants(&listed, &targets));
        // A zombie has no environment, so what was found here was alive.
        self.kill(targets, &listed)
    }

    /// Kills what came to this process as an orphan, with its descendants, and says how many there were.
    ///
    /// An orphan of a run is a child in another session: every supervisor opens a session of its own, and what descends
    /// from it is never in ours. `kept` are children that are no orphans.
    pub(super) fn kill_adopted(&mut self, kept: &BTreeSet<i32>) -> usize {
        let (own, session) = (unix::own_pid(), unix::own_session());
        let listed = os::processes();
        let is_orphan = |process: &&Listed| {
            process.parent == own && process.session != session && !kept.contains(&process.pid)
        };
        let mut targets: BTreeSet<i32> = listed.iter().filter(is_orphan).map(|process| process.pid).collect();
        targets.iter().for_each(|pid| unix::reap_if_dead(*pid));
        targets.extend(descendants(&listed, &targets));
        if targets.is_empty() { 0 } else { self.kill(targets, &listed) }
    }

    /// How many different processes were killed.
    pub(super) fn killed(&self) -> u32 {
        u32::try_from(self.killed.len()).unwrap_or(u32::MAX)
    }

    /// How many processes the system did not let us kill.
    pub(super) fn refused(&self) -> u32 {
        u32::try_from(self.refused.len()).unwrap_or(u32::MAX)
    }

    fn kill(&mut self, mut targets: BTreeSet<i32>, listed: &[Listed]) -> usize {
        let above = ancestors(listed, unix::own_pid());
        targets
            .retain(|pid| !above.contains(pid) && !self.refused.contains(pid) && self.spared != Some(*pid));
        for process in listed.iter().filter(|process| process.zombie) {
            targets.remove(&process.pid);
        }
        for pid in &targets {
            unix::stop(*pid);
        }
        for pid in &targets {
            if unix::kill(*pid).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
                self.refused.insert(*pid);
            } else {
                self.killed.insert(*pid);
            }
        }
        targets.len()
    }
}

/// Whether the environment (variables that end in NUL) carries the mark. Runs inside runs join their marks by `/`.
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

/// The process itself and all above it, none of which is ever killed.
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
    fn descent_reaches_every_depth_and_nobody_else() {
        let rows = listed(&[(1, 0), (10, 1), (11, 10), (12, 11), (13, 1), (9, 12)]);
        assert_eq!(descendants(&rows, &BTreeSet::from([10])), BTreeSet::from([9, 11, 12]));
        assert_eq!(descendants(&rows, &BTreeSet::from([0])), BTreeSet::new());
        assert_eq!(ancestors(&rows, 12), BTreeSet::from([0, 1, 10, 11, 12]));
    }

    #[test]
    fn a_mark_is_found_whole_and_in_a_chain() {
        assert!(carries(b"A=1\0AGENTLINE_RUN=abc\0", "abc"));
        assert!(carries(b"AGENTLINE_RUN=outer/abc", "abc"));
        assert!(carries(b"AGENTLINE_RUN=outer/abc", "outer"));
        assert!(!carries(b"AGENTLINE_RUN=abcd\0X=AGENTLINE_RUN=abc\0AGENTLINE_RUNS=abc", "abc"));
        assert!(!carries(b"", "abc"));
    }
}
