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
    pub(super) roots: Vec<i32>,
    /// The mark of the process, looked for where there is no supervisor to adopt orphans.
    pub(super) mark: Option<String>,
    /// What is kept between two looks.
    pub(super) lists: Arc<Mutex<os::Lists>>,
}

/// The processes of an agent at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Census(BTreeSet<i32>);

impl Sweeper {
    /// Who is there now.
    pub(crate) fn census(&self) -> Census {
        Census(self.present())
    }

    /// Kills everybody who was not there at the census, and says how many that were. Blocks.
    pub(crate) fn sweep(&self, before: &Census) -> u32 {
        let until = Instant::now() + PATIENCE;
        let mut killed = BTreeSet::new();
        loop {
            let strays: Vec<i32> = self.present().difference(&before.0).copied().collect();
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
        let roots: BTreeSet<i32> = self.roots.iter().copied().collect();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = os::descendants_of(&roots, &mut lists);
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
        found.retain(|pid| !roots.contains(pid));
        found
    }
}
