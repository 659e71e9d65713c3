//! Remembers for a moment where the programs of agents are: a run on a warm agent, or one
//! that the cache knows, shall not search the disk for one.

use crate::{
    agentline::Inner,
    detect::{Detection, Here},
    snapshot::stamp::Stamp,
};
use agentline_core::{Agent, Program};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a find is believed while its program is as it was. One that came to a better place is noticed after that.
const BELIEVED: Duration = Duration::from_secs(60);
/// How many callers are remembered: each environment and folder is one.
const MOST: usize = 16;

/// What was found lately.
#[derive(Debug, Default)]
pub(crate) struct Finds {
    known: Mutex<VecDeque<Find>>,
}

#[derive(Debug)]
struct Find {
    when: Instant,
    agent: &'static str,
    here: Here,
    configured: Option<PathBuf>,
    /// What the files of the program were like: an update changes them.
    files: Vec<Option<Stamp>>,
    detection: Arc<Detection>,
}

/// The program, and the script where it is one that another program runs. npm gives all files the same time, and the
/// program of an agent may be a line that never changes; a stamp also tells which file it is.
fn files_of(program: &Program) -> Vec<Option<Stamp>> {
    let paths = std::iter::once(program.path.as_path()).chain(program.args.iter().map(Path::new));
    paths.map(Stamp::of_path).collect()
}

impl Finds {
    /// Where the agent's program is for this caller. Blocks when it has to search.
    pub(crate) fn detect(&self, inner: &Inner, agent: &'static dyn Agent) -> Arc<Detection> {
        let id = agent.card().id;
        let configured = inner.programs.get(id);
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|find| find.when.elapsed() < BELIEVED);
            let same = |find: &&Find| {
                find.agent == id && find.configured.as_ref() == configured && find.here == inner.here
            };
            if let Some(at) = known.iter().position(|find| same(&find)) {
                let is_same =
                    known[at].detection.program.as_ref().map(files_of).as_ref() == Some(&known[at].files);
                if is_same {
                    return Arc::clone(&known[at].detection);
                }
                known.remove(at);
            }
        }
        let detection = Arc::new(inner.detect(agent));
        if let Some(program) = &detection.program {
            let find = Find {
                when: Instant::now(),
                agent: id,
                here: inner.here.clone(),
                configured: configured.cloned(),
                files: files_of(program),
                detection: Arc::clone(&detection),
            };
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.truncate(MOST - 1);
            known.push_front(find);
        }
        detection
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::agentline::Agentline;
    use agentline_core::agents;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn a_find_is_believed_until_its_program_changes() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("agent");
        let write = |text: &str| {
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("#!/bin/sh\n");
        let here = |cwd: &str| Here::new([].into(), dir.path(), dir.path().join(cwd));
        let agentline = |cwd: &str| Agentline::new(here(cwd)).program("gemini", &program);
        let agent = agents::find("gemini").unwrap();
        let finds = Finds::default();
        let find = |cwd: &str| finds.detect(agentline(cwd).inner(), agent);
        let first = find("one");
        assert!(first.program.is_some());
        assert!(Arc::ptr_eq(&first, &find("one")), "not searched for again");
        assert!(!Arc::ptr_eq(&first, &find("two")), "another caller may find another program");
        write("#!/bin/sh\n# newer\n");
        let second = find("one");
        assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &find("one")));
        fs::remove_file(&program).unwrap();
        assert!(find("one").program.is_none());
    }
}
