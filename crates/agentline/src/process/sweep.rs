//! Kills the processes that one run left behind on an agent that keeps running.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::kill::{carries, descendants};
use super::{os, unix};

/// How long a sweep keeps trying to kill processes that do not die.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two searches for remaining processes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(2);

/// Finds the processes of an agent. It can be used from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Sweeper {
    /// The agent, its init and its supervisor; the latter two adopt daemons. Without a supervisor, the agent alone.
    roots: BTreeSet<i32>,
    /// The mark of the process, searched for where no supervisor adopts orphans.
    mark: Option<String>,
    births: Option<Arc<os::BirthDetector>>,
    /// The lists of children that are kept open between two searches.
    lists: Arc<Mutex<os::ChildLists>>,
}

/// The processes of an agent at one point in time.
#[derive(Debug, Clone)]
pub(crate) enum ProcessSnapshot {
    /// The set of all processes that existed then.
    Of(BTreeSet<i32>),
    /// All processes born before this time. Reading the clock is cheaper than listing processes.
    At(os::BirthMark),
}

impl Sweeper {
    pub(super) fn new(roots: impl IntoIterator<Item = u32>, mark: Option<String>) -> Self {
        let roots = roots.into_iter().map(u32::cast_signed).collect();
        Self { roots, mark, births: os::BirthDetector::open().map(Arc::new), lists: Arc::default() }
    }

    /// Takes a snapshot of the current processes.
    pub(crate) fn processes(&self) -> ProcessSnapshot {
        let now = self.births.as_ref().and_then(|births| births.now());
        now.map_or_else(|| ProcessSnapshot::Of(self.present()), ProcessSnapshot::At)
    }

    /// Returns whether no process can have been added since the snapshot, because none was born on the whole system. This
    /// check is cheaper than a search.
    pub(crate) fn is_clean(&self, before: &ProcessSnapshot) -> bool {
        match (before, &self.births) {
            (ProcessSnapshot::At(moment), Some(births)) => births.none_since(moment),
            _ => false,
        }
    }

    /// Returns the processes that exist now and did not exist at the time of the snapshot.
    fn new_processes(&self, before: &ProcessSnapshot) -> Vec<i32> {
        let present = self.present().into_iter();
        match (before, &self.births) {
            (ProcessSnapshot::Of(known), _) => present.filter(|pid| !known.contains(pid)).collect(),
            (ProcessSnapshot::At(moment), Some(births)) => {
                present.filter(|pid| births.is_since(*pid, moment)).collect()
            }
            (ProcessSnapshot::At(_), None) => Vec::new(),
        }
    }

    /// Kills all processes that did not exist at the time of the snapshot and returns their number. Blocks.
    pub(crate) fn sweep(&self, before: &ProcessSnapshot) -> u32 {
        if self.is_clean(before) {
            return 0;
        }
        let until = Instant::now() + KILL_TIMEOUT;
        let mut killed = BTreeSet::new();
        loop {
            let new_processes = self.new_processes(before);
            // All strays are stopped first, so that none of them can start another process meanwhile.
            new_processes.iter().for_each(|pid| unix::stop(*pid));
            for pid in &new_processes {
                // A process that is gone or owned by another user cannot be killed; killing it is tried again when the
                // agent ends.
                let _ = unix::kill(*pid);
                killed.insert(*pid);
            }
            if new_processes.is_empty() || Instant::now() >= until {
                return u32::try_from(killed.len()).unwrap_or(u32::MAX);
            }
            std::thread::sleep(SEARCH_INTERVAL);
        }
    }

    fn present(&self) -> BTreeSet<i32> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = os::descendants_of(&self.roots, &mut lists);
        drop(lists);
        if let Some(mark) = &self.mark {
            let own = unix::own_pid();
            let marked: BTreeSet<i32> = os::pids()
                .into_iter()
                .filter(|pid| *pid != own && os::environment_matches(*pid, |env| carries(env, mark)))
                .collect();
            found.extend(descendants(&os::processes(), &marked));
            found.extend(marked);
        }
        found.retain(|pid| !self.roots.contains(pid));
        found
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn processes_started_after_the_snapshot_are_distinguished_immediately() {
        let child = || std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let number = |child: &std::process::Child| child.id().cast_signed();
        let sweeper = Sweeper::new([std::process::id()], None);
        assert!(sweeper.births.is_some(), "births are not detected");
        let slow = Sweeper { births: None, ..sweeper.clone() };
        let (mut mine, mut new_processes) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            mine.push(child());
            // Births within one clock tick are distinguished as well.
            let before = [sweeper.processes(), slow.processes()];
            new_processes.push(child());
            for (sweeper, before) in [&sweeper, &slow].into_iter().zip(&before) {
                assert!(!sweeper.is_clean(before));
                // Other tests have children too.
                let found = sweeper.new_processes(before);
                assert!(found.contains(&number(new_processes.last().unwrap())), "{before:?}: {found:?}");
                assert!(!mine.iter().any(|child| found.contains(&number(child))), "{before:?}: {found:?}");
            }
        }
        std::thread::sleep(Duration::from_millis(30));
        let before = sweeper.processes();
        let found = sweeper.new_processes(&before);
        assert!(!mine.iter().chain(&new_processes).any(|child| found.contains(&number(child))), "{found:?}");
        for mut child in mine.into_iter().chain(new_processes) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let all = ProcessSnapshot::Of(BTreeSet::new());
        assert!(!sweeper.is_clean(&all), "without a time of birth, nothing counts as clean");
    }
}
