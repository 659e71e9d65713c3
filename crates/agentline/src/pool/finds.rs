//! Remembers for a moment where the programs of agents are: a run on a warm agent shall not search the disk for one.

use crate::{
    agentline::Inner,
    detect::{Detection, Here},
};
use agentline_core::Agent;
use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a find is believed. An agent that was updated is noticed after that.
const BELIEVED: Duration = Duration::from_secs(3);
/// How many callers are remembered: each environment and folder is one.
const MOST: usize = 16;

/// What was found lately.
#[derive(Debug, Default)]
pub(super) struct Finds {
    known: Mutex<VecDeque<Find>>,
}

#[derive(Debug)]
struct Find {
    when: Instant,
    agent: &'static str,
    here: Here,
    configured: Option<PathBuf>,
    detection: Arc<Detection>,
}

impl Finds {
    /// Where the agent's program is for this caller. Blocks when it has to search.
    pub(super) fn detect(&self, inner: &Inner, agent: &'static dyn Agent) -> Arc<Detection> {
        let id = agent.card().id;
        let configured = inner.programs.get(id);
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|find| find.when.elapsed() < BELIEVED);
            let same = |find: &&Find| {
                find.agent == id && find.configured.as_ref() == configured && find.here == inner.here
            };
            if let Some(find) = known.iter().find(same) {
                return Arc::clone(&find.detection);
            }
        }
        let detection = Arc::new(inner.detect(agent));
        if detection.program.is_some() {
            let find = Find {
                when: Instant::now(),
                agent: id,
                here: inner.here.clone(),
                configured: configured.cloned(),
                detection: Arc::clone(&detection),
            };
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.truncate(MOST - 1);
            known.push_front(find);
        }
        detection
    }
}
