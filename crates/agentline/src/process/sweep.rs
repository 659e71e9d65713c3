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
#[derive(Debug, Clone)]
pub(crate) enum Census {
    /// All that were there.
    Of(BTreeSet<i32>),
    /// All that had been born by then. To look at the clock is cheaper than to look for them.
    At(os::Moment),
}

impl Sweeper {
    pub(super) fn new(roots: impl IntoIterator<Item = u32>, mark: Option<String>) -> Self {
        let roots: BTreeSet<i32> = roots.into_iter().map(u32::cast_signed).collect();
        let births = roots.last().and_then(|newest| os::Births::after(*newest)).map(Arc::new);
        Self { roots, mark, births, lists: Arc::default() }
    }

    /// Who is there now.
    pub(crate) fn census(&self) -> Census {
        let now = self.births.as_ref().and_then(|births| births.now());
        now.map_or_else(|| Census::Of(self.present()), Census::At)
    }

    /// Whether nobody can be there who was not there at the census: nobody was born anywhere since. To ask for that is
    /// cheaper than to look.
    pub(crate) fn is_clean(&self, before: &Census) -> bool {
        match (before, &self.births) {
            (Census::At(moment), Some(births)) => births.none_since(moment),
            _ => false,
        }
    }

    /// Who is there now and was not there at the census.
    fn strays(&self, before: &Census) -> Vec<i32> {
        let present = self.present().into_iter();
        match (before, &self.births) {
            (Census::Of(known), _) => present.filter(|pid| !known.contains(pid)).collect(),
            (Census::At(moment), Some(births)) => {
                present.filter(|pid| births.is_since(*pid, moment)).collect()
            }
            (Census::At(_), None) => Vec::new(),
        }
    }

    /// Kills everybody who was not there at the census, and says how many that were. Blocks.
    pub(crate) fn sweep(&self, before: &Census) -> u32 {
        if self.is_clean(before) {
            return 0;
        }
        let until = Instant::now() + PATIENCE;
        let mut killed = BTreeSet::new();
        loop {
            let strays = self.strays(before);
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
        let number = |child: &std::process::Child| child.id().cast_signed();
        let sweeper = Sweeper::new([std::process::id()], None);
        assert!(sweeper.births.is_some(), "the system tells of births");
        let slow = Sweeper { births: None, ..sweeper.clone() };
        let (mut mine, mut strays) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            mine.push(child());
            // Births in one tick are told apart as well as those in several.
            let before = [sweeper.census(), slow.census()];
            strays.push(child());
            for (sweeper, before) in [&sweeper, &slow].into_iter().zip(&before) {
                assert!(!sweeper.is_clean(before));
                // Other tests have children of their own.
                let found = sweeper.strays(before);
                assert!(found.contains(&number(strays.last().unwrap())), "{before:?}: {found:?}");
                assert!(!mine.iter().any(|child| found.contains(&number(child))), "{before:?}: {found:?}");
            }
        }
        std::thread::sleep(Duration::from_millis(30));
        let before = sweeper.census();
        let found = sweeper.strays(&before);
        assert!(!mine.iter().chain(&strays).any(|child| found.contains(&number(child))), "{found:?}");
        for mut child in mine.into_iter().chain(strays) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let all = Census::Of(BTreeSet::new());
        assert!(!sweeper.is_clean(&all), "a system that tells nothing is not believed");
    }
}
