//! Ends what one run left behind on an agent that lives on: everything but the agent and what was there before the run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::kill::{carries, descendants};
use super::{os, unix};

/// How long a sweep tries to kill what does not die.
const PATIENCE: Duration = Duration::from_secs(2);

/// The rest between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(2);

/// A process that is being started has its number some time before it can be seen, a few microseconds as a rule.
const BIRTH: Duration = Duration::from_millis(20);

/// Knows where the processes of an agent are to be found. It may be used from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Sweeper {
    /// The agent, and its supervisor, to which daemons come as its orphans.
    roots: BTreeSet<i32>,
    /// The mark of the process, looked for where there is no supervisor to adopt orphans.
    mark: Option<String>,
    kept: Arc<Mutex<Kept>>,
}

/// What is kept between two looks.
#[derive(Debug, Default)]
struct Kept {
    lists: os::Lists,
    births: Option<os::Births>,
    seen: Option<Seen>,
}

/// What was there when the system had given this number last.
#[derive(Debug)]
struct Seen {
    newest: i32,
    since: Instant,
    /// Known once nobody can be on the way any more who has that number.
    found: Option<BTreeSet<i32>>,
}

/// The processes of an agent at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Census(BTreeSet<i32>);

impl Sweeper {
    pub(super) fn new(roots: impl IntoIterator<Item = u32>, mark: Option<String>) -> Self {
        let roots: BTreeSet<i32> = roots.into_iter().map(u32::cast_signed).collect();
        let births = roots.last().and_then(|newest| os::Births::after(*newest));
        Self { roots, mark, kept: Arc::new(Mutex::new(Kept { births, ..Kept::default() })) }
    }

    /// Who is there now.
    pub(crate) fn census(&self) -> Census {
        Census(self.present())
    }

    /// Kills everybody who was not there at the census, and says how many that were. Blocks.
    pub(crate) fn sweep(&self, before: &Census) -> u32 {
        if self.present().is_subset(&before.0) {
            return 0;
        }
        let until = Instant::now() + PATIENCE;
        let mut killed = BTreeSet::new();
        loop {
            let strays: Vec<i32> = self.present_for_sure().difference(&before.0).copied().collect();
            // Stopped first, so that none can start another one meanwhile.
            strays.iter().for_each(|pid| unix::stop(*pid));
            for pid in &strays {
                // One that is another user's or gone cannot be killed; the end of the agent gets another try.
                let _ = unix::kill(*pid);
                killed.insert(*pid);
            }
            if strays.is_empty() || Instant::now() >= until {
                return u32::try_from(killed.len()).unwrap_or(u32::MAX);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Who is there, and some who may have ended since the last look. Where nobody was born anywhere meanwhile, nobody
    /// can be new here: to ask for that is cheaper than to look.
    fn present(&self) -> BTreeSet<i32> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = kept.births.as_ref().and_then(os::Births::newest);
        let is_settled = match (&kept.seen, newest) {
            (Some(seen), Some(newest)) if seen.newest == newest => {
                if let Some(found) = &seen.found {
                    return found.clone();
                }
                seen.since.elapsed() > BIRTH
            }
            _ => {
                kept.seen = newest.map(|newest| Seen { newest, since: Instant::now(), found: None });
                false
            }
        };
        let found = self.look(&mut kept.lists);
        if let Some(seen) = kept.seen.as_mut().filter(|_| is_settled) {
            seen.found = Some(found.clone());
        }
        found
    }

    /// Also without those who have ended since the last look.
    fn present_for_sure(&self) -> BTreeSet<i32> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.seen = None;
        self.look(&mut kept.lists)
    }

    fn look(&self, lists: &mut os::Lists) -> BTreeSet<i32> {
        let mut found = os::descendants_of(&self.roots, lists);
        if let Some(mark) = &self.mark {
            let own = unix::own_pid();
            let marked: BTreeSet<i32> = os::pids()
                .into_iter()
                .filter(|pid| *pid != own && os::environment_of(*pid, |env| carries(env, mark)))
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
    fn who_was_born_between_two_looks_is_seen_however_quick_they_are() {
        let child = || std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let sweeper = Sweeper::new([std::process::id()], None);
        let number = |child: &std::process::Child| child.id().cast_signed();
        let mut children = Vec::new();
        for pause in [0, 0, 25, 0, 50, 25, 0] {
            let before = sweeper.census();
            std::thread::sleep(Duration::from_millis(pause));
            // Twice, so that what is kept is asked too.
            let again = sweeper.census();
            children.push(child());
            let newest = number(children.last().unwrap());
            assert!(!before.0.contains(&newest) && !again.0.contains(&newest));
            assert!(children.iter().all(|child| sweeper.census().0.contains(&number(child))));
        }
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
