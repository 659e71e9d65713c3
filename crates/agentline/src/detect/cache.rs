//! Caches the location of agent programs for a short time, so that runs on warm agents and cached runs do not search
//! the disk.

use crate::{
    detect::{Detection, HostEnv},
    fs::stamp::FileStamp,
};
use agentline_core::{Agent, AgentId, Program, Surface};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long an entry is valid while its program is unchanged. After that, a program in a preferred place is found.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The maximum number of entries. Each combination of agent, environment and directories is one entry.
const MAX_ENTRIES: usize = 16;

/// A cache of recent detections.
#[derive(Debug, Default)]
pub(crate) struct DetectCache {
    known: Mutex<VecDeque<Find>>,
}

#[derive(Debug)]
struct Find {
    when: Instant,
    agent: AgentId,
    /// The surface whose program was searched for, or `None` for the program of a run without a surface.
    surface: Option<Surface>,
    host_env: HostEnv,
    configured: Option<PathBuf>,
    /// The stamps of the program's files. An update changes them.
    files: Vec<Option<FileStamp>>,
    detection: Arc<Detection>,
}

/// Returns the stamps of the program and of the script that it runs. A stamp includes the identity of the file, because
/// npm gives all files the same time and an agent's program may be a one-line script that never changes.
fn files_of(program: &Program) -> Vec<Option<FileStamp>> {
    let paths = std::iter::once(program.path.as_path()).chain(program.args.iter().map(Path::new));
    paths.map(FileStamp::of_path).collect()
}

impl DetectCache {
    /// Returns where the agent's program is for this caller, who may have configured one. Blocks if it has to search.
    pub(crate) fn detect(
        &self,
        host_env: &HostEnv,
        configured: Option<&PathBuf>,
        agent: &dyn Agent,
        surface: Option<Surface>,
    ) -> Arc<Detection> {
        let id = agent.info().id;
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|find| find.when.elapsed() < MAX_AGE);
            let same = |find: &&Find| {
                find.agent == id
                    && find.surface == surface
                    && find.configured.as_ref() == configured
                    && find.host_env == *host_env
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
        let mut configured_here = host_env.clone();
        configured_here.configured = configured.cloned();
        let detection = Arc::new(match surface {
            None => super::detect(agent, &configured_here),
            Some(surface) => super::detect_for(agent, surface, &configured_here),
        });
        if let Some(program) = &detection.program {
            let find = Find {
                when: Instant::now(),
                agent: id.into(),
                surface,
                host_env: host_env.clone(),
                configured: configured.cloned(),
                files: files_of(program),
                detection: Arc::clone(&detection),
            };
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.truncate(MAX_ENTRIES - 1);
            known.push_front(find);
        }
        detection
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use agentline_core::agents;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn cached_detection_is_valid_until_the_program_changes() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("agent");
        let write = |text: &str| {
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("#!/bin/sh\n");
        let host_env = |cwd: &str| HostEnv::new([].into(), dir.path(), dir.path().join(cwd));
        let agent = agents::find("gemini").unwrap();
        let finds = DetectCache::default();
        let find = |cwd: &str| finds.detect(&host_env(cwd), Some(&program), &*agent, None);
        let first = find("one");
        assert!(first.program.is_some());
        assert!(Arc::ptr_eq(&first, &find("one")), "the program is not searched for again");
        assert!(!Arc::ptr_eq(&first, &find("two")), "another caller may find another program");
        write("#!/bin/sh\n# newer\n");
        let second = find("one");
        assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &find("one")));
        fs::remove_file(&program).unwrap();
        assert!(find("one").program.is_none());
    }
}
