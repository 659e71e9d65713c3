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

/// Knows where the processes of an agent are to be found. It may be used from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Sweeper {
    /// The agent, and its supervisor, to which daemons come as its orphans.
    roots: BTreeSet<i32>,
    /// The mark of the process, looked for where there is no supervisor to adopt orphans.
    mark: Option<String>,
    births: Option<Arc<os::Births>>,
    /// What is kept between two looks.
    lists: Arc<Mutex<os::Lists>>,
}

/// The processes of an agent at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Census {
    present: BTreeSet<i32>,
    /// The number that had been given last to a process of whomever, before the look.
    newest: Option<i32>,
}

impl Sweeper {
    pub(super) fn new(roots: impl IntoIterator<Item = u32>, mark: Option<String>) -> Self {
        let roots: BTreeSet<i32> = roots.into_iter().map(u32::cast_signed).collect();
        let births = roots.last().and_then(|newest| os::Births::after(*newest)).map(Arc::new);
        Self { roots, mark, births, lists: Arc::default() }
    }

    /// Who is there now.
    pub(crate) fn census(&self) -> Census {
        let newest = self.newest();
        Census { present: self.present(), newest }
    }

    /// Whether nobody can be there who was not there at the census: nobody was born anywhere since. To ask for that is
    /// cheaper than to look.
    pub(crate) fn is_clean(&self, before: &Census) -> bool {
        before.newest.is_some() && before.newest == self.newest()
    }

    /// Kills everybody who was not there at the census, and says how many that were. Blocks.
    pub(crate) fn sweep(&self, before: &Census) -> u32 {
        if self.is_clean(before) {
            return 0;
        }
        let until = Instant::now() + PATIENCE;
        let mut killed = BTreeSet::new();
        loop {
            let strays: Vec<i32> = self.present().difference(&before.present).copied().collect();
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

    fn newest(&self) -> Option<i32> {
        self.births.as_ref()?.newest()
    }

    fn present(&self) -> BTreeSet<i32> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = os::descendants_of(&self.roots, &mut lists);
        drop(lists);
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
    fn who_was_born_since_the_census_is_told_from_the_others_however_soon() {
        let child = || std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let sweeper = Sweeper::new([std::process::id()], None);
        assert!(sweeper.births.is_some(), "the system tells of births");
        let (mut mine, mut strays) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            mine.push(child());
            let before = sweeper.census();
            strays.push(child());
            let stray = strays.last().unwrap().id().cast_signed();
            assert!(!sweeper.is_clean(&before) && !before.present.contains(&stray));
            // Other tests have children of their own.
            let here = sweeper.present();
            let is_there = |of: &std::process::Child| here.contains(&of.id().cast_signed());
            assert!(mine.iter().chain(&strays).all(is_there));
            assert!(mine.iter().all(|of| before.present.contains(&of.id().cast_signed())));
        }
        for mut child in mine.into_iter().chain(strays) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let unmoved = Census { newest: sweeper.newest(), ..sweeper.census() };
        assert!(
            sweeper.is_clean(&unmoved) || sweeper.newest() != unmoved.newest,
            "others were born meanwhile"
        );
        assert!(!sweeper.is_clean(&Census::default()), "a system that tells nothing is not believed");
    }
}
