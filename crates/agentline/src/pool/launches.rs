//! Remembers what would be started for runs that differ in their words alone: to work that out is most of what a run on a
//! warm agent would cost.

use super::key::{self, Key, PRIVATE};
use crate::{
    agentline::Inner,
    error::Error,
    look::DiskLook,
    look_once::{LookOnce, Seen},
    ready::{Asked, NO_SESSION},
    run::Launched,
};
use agentline_core::{Agent, Launch, Plan, Problems, Program, Veil, Words};
use std::{
    collections::{BTreeMap, VecDeque},
    mem::take,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// How many are remembered.
const MOST: usize = 16;

/// What was worked out lately.
#[derive(Debug, Default)]
pub(super) struct Launches {
    known: Mutex<VecDeque<Arc<Known>>>,
}

/// Everything that the start of a process follows from, and what it is.
struct Known {
    agent: &'static dyn Agent,
    plan: Plan,
    program: Program,
    cwd: PathBuf,
    home: PathBuf,
    env: BTreeMap<String, String>,
    /// The user's files.
    seen: Seen,
    fit: Arc<Fit>,
}

/// What a process would be that fits for a run.
pub(super) struct Fit {
    /// Its start, with a placeholder for the private folder, and without what the model is told.
    pub(super) launch: Launch,
    pub(super) key: Key,
    /// Which sessions would do, apart from the process that they are on.
    pub(super) session: Key,
    /// The run can be on it beside others.
    pub(super) shares: bool,
    pub(super) veil: Veil,
    pub(super) launched: Launched,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rest holds secrets.
        f.debug_struct("Known").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

impl Launches {
    /// The process that would fit for the run, and what its model is told. Blocks.
    pub(super) fn find(&self, inner: &Inner, asked: &mut Asked) -> Result<(Arc<Fit>, Words), Error> {
        let words = asked.agent.words(&asked.plan, &asked.cwd, &DiskLook);
        let request = &mut asked.plan.request;
        let own = (
            take(&mut request.prompt),
            request.prompt_file.take(),
            request.name.take(),
            request.deadline.take(),
        );
        let fit = self.without_words(inner, asked);
        let request = &mut asked.plan.request;
        (request.prompt, request.prompt_file, request.name, request.deadline) = own;
        match (words, fit) {
            (Ok(words), Ok(fit)) => Ok((fit, words)),
            (words, fit) => {
                let others = fit.err().unwrap_or_default();
                Err(Error::Usage(Problems::from(words.err().into_iter().chain(others).collect::<Vec<_>>())))
            }
        }
    }

    fn without_words(&self, inner: &Inner, asked: &Asked) -> Result<Arc<Fit>, Vec<agentline_core::Problem>> {
        let known = self.lock().iter().find(|known| known.is_of(inner, asked)).cloned();
        if let Some(known) = known {
            if known.seen.is_still_so() {
                return Ok(Arc::clone(&known.fit));
            }
            self.lock().retain(|other| !Arc::ptr_eq(other, &known));
        }
        let look = LookOnce::default();
        let launch = inner.launch_by(asked, Path::new(PRIVATE), NO_SESSION, &look)?;
        let veil = Veil::new(&launch.secrets);
        let fit = Arc::new(Fit {
            key: key::of_process(asked, &launch),
            session: key::of_session(asked, &launch),
            shares: asked.agent.shares(&asked.plan),
            launched: Launched::of(&launch, &veil),
            veil,
            launch,
        });
        // Nobody comes back to a folder that is made for one run only.
        if let Some(seen) = look.seen().filter(|_| asked.temporary.is_none()) {
            let known = Known {
                agent: asked.agent,
                plan: asked.plan.clone(),
                program: asked.program.clone(),
                cwd: asked.cwd.clone(),
                home: inner.here.home.clone(),
                env: inner.here.env.clone(),
                seen,
                fit: Arc::clone(&fit),
            };
            let mut all = self.lock();
            all.truncate(MOST - 1);
            all.push_front(Arc::new(known));
        }
        Ok(fit)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_of(&self, inner: &Inner, asked: &Asked) -> bool {
        // Agents of ours have no place of their own; those of configurations may share a name.
        self.agent.card().id == asked.agent.card().id
            && std::ptr::addr_eq(self.agent, asked.agent)
            && self.cwd == asked.cwd
            && self.program == asked.program
            && self.plan.surface == asked.plan.surface
            && self.plan.request == asked.plan.request
            && self.home == inner.here.home
            && self.env == inner.here.env
    }
}
