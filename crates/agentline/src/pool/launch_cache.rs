//! Caches the launches of runs that differ only in their prompt text. Computing a launch is most of the cost of a run
//! on a warm agent.

use crate::pool::key::{self, PoolKey};
use crate::{
    agentline::Inner,
    error::Error,
    fs::{caching_fs::CachingFs, disk_fs::DiskFs, fingerprint::Fingerprint},
    resolve::{NO_DIRECTORY, NO_SESSION, ResolvedRun},
    run::Launched,
};
use agentline_core::{Agent, Isolation, Launch, Plan, Problems, Program, PromptText, Redactor};
use std::{
    collections::{BTreeMap, VecDeque},
    mem::take,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// The maximum number of entries.
const MOST: usize = 16;

/// A cache of recent launches.
#[derive(Debug, Default)]
pub(super) struct LaunchCache {
    caches: Mutex<VecDeque<Arc<Known>>>,
}

/// A launch with all inputs that it depends on.
struct Known {
    agent: Arc<dyn Agent>,
    plan: Plan,
    program: Program,
    cwd: PathBuf,
    home: PathBuf,
    env: BTreeMap<String, String>,
    isolation: Isolation,
    /// The state of the user's files that the launch depends on.
    seen: Fingerprint,
    template: Arc<LaunchTemplate>,
}

/// The process that a run needs.
pub(super) struct LaunchTemplate {
    /// The launch, with a placeholder for the private directory and without the prompt text.
    pub(super) launch: Launch,
    pub(super) key: PoolKey,
    /// The key of suitable sessions, independent of their process.
    pub(super) session: PoolKey,
    /// Whether the run can share the process with other runs.
    pub(super) shares: bool,
    pub(super) redactor: Redactor,
    pub(super) launched: Launched,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The other fields contain secrets.
        f.debug_struct("Known").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

impl LaunchCache {
    /// Returns the process that the run needs, and its prompt text. Blocks.
    pub(super) fn find(
        &self,
        inner: &Inner,
        resolved: &mut ResolvedRun,
    ) -> Result<(Arc<LaunchTemplate>, PromptText), Error> {
        let prompt_text = resolved.agent.words(&resolved.plan, &resolved.cwd, &DiskFs);
        let request = &mut resolved.plan.request;
        let own = (
            take(&mut request.prompt),
            request.prompt_file.take(),
            request.name.take(),
            request.deadline.take(),
        );
        let template = self.without_words(inner, resolved);
        let request = &mut resolved.plan.request;
        (request.prompt, request.prompt_file, request.name, request.deadline) = own;
        match (prompt_text, template) {
            (Ok(prompt_text), Ok(template)) => Ok((template, prompt_text)),
            (prompt_text, template) => {
                let others = template.err().unwrap_or_default();
                Err(Error::Usage(Problems::from(
                    prompt_text.err().into_iter().chain(others).collect::<Vec<_>>(),
                )))
            }
        }
    }

    fn without_words(
        &self,
        inner: &Inner,
        resolved: &ResolvedRun,
    ) -> Result<Arc<LaunchTemplate>, Vec<agentline_core::Problem>> {
        let caches = self.lock().iter().find(|caches| caches.is_of(inner, resolved)).cloned();
        if let Some(caches) = caches {
            if caches.seen.is_still_so() {
                return Ok(Arc::clone(&caches.template));
            }
            self.lock().retain(|other| !Arc::ptr_eq(other, &caches));
        }
        let look = CachingFs::default();
        let launch = inner.launch_by(resolved, Path::new(NO_DIRECTORY), NO_SESSION, &look)?;
        let redactor = Redactor::new(&launch.secrets);
        let template = Arc::new(LaunchTemplate {
            key: key::of_process(resolved, &launch, inner.isolation),
            session: key::of_session(resolved, &launch),
            shares: resolved.agent.shares(&resolved.plan),
            launched: Launched::of(&launch, &redactor),
            redactor,
            launch,
        });
        // A temporary workspace is never used again.
        if let Some(seen) = look.seen().filter(|_| resolved.temporary.is_none()) {
            let caches = Known {
                agent: Arc::clone(&resolved.agent),
                plan: resolved.plan.clone(),
                program: resolved.program.clone(),
                cwd: resolved.cwd.clone(),
                home: inner.host_env.home.clone(),
                env: inner.host_env.env.clone(),
                isolation: inner.isolation,
                // The workspace path was already resolved for this run.
                seen: seen.without_place_of(&resolved.cwd),
                template: Arc::clone(&template),
            };
            let mut all = self.lock();
            all.truncate(MOST - 1);
            all.push_front(Arc::new(caches));
        }
        Ok(template)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Known>>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_of(&self, inner: &Inner, resolved: &ResolvedRun) -> bool {
        is_same_agent(&self.agent, &resolved.agent)
            && self.cwd == resolved.cwd
            && self.program == resolved.program
            && self.plan.surface == resolved.plan.surface
            && self.plan.request == resolved.plan.request
            && self.home == inner.host_env.home
            && self.env == inner.host_env.env
            && self.isolation == inner.isolation
    }
}

/// Returns whether two agents are one, or are defined by the same settings. Every client of a shared pool has agents of
/// its own.
fn is_same_agent(one: &Arc<dyn Agent>, other: &Arc<dyn Agent>) -> bool {
    let settings = || one.settings().filter(|_| one.info().id == other.info().id);
    Arc::ptr_eq(one, other) || settings().is_some_and(|settings| other.settings() == Some(settings))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{agentline::Agentline, detect::HostEnv};
    use agentline_core::{
        RunRequest, Surface,
        agents::{self, CustomAgent},
    };
    use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

    #[test]
    fn agents_are_the_same_if_their_settings_are() {
        let custom = |name: &str, word: &str| Arc::new(CustomAgent::new(name, [word])) as Arc<dyn Agent>;
        let gemini = || agents::find("gemini").unwrap();
        assert!(is_same_agent(&gemini(), &gemini()));
        assert!(!is_same_agent(&gemini(), &agents::find("codex").unwrap()));
        assert!(is_same_agent(&custom("one", "a"), &custom("one", "a")));
        assert!(!is_same_agent(&custom("one", "a"), &custom("two", "a")));
        assert!(!is_same_agent(&custom("one", "a"), &custom("one", "b")));
    }

    #[test]
    fn launch_is_reused_for_other_prompts_but_not_for_changed_user_files() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("agent");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = dir.path().join(".gemini/settings.json");
        fs::create_dir(dir.path().join(".gemini")).unwrap();
        fs::create_dir(dir.path().join("ws")).unwrap();
        fs::write(&settings, "{}").unwrap();
        // Timestamps are ambiguous for a short time after a write.
        let settle = || std::thread::sleep(Duration::from_millis(150));
        settle();
        let launches = LaunchCache::default();
        let find = |request: RunRequest, env: &[(&str, &str)]| {
            let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let host_env = HostEnv::new(env, dir.path(), dir.path());
            let agentline = Agentline::new(host_env).program("gemini", &program);
            let request = request.surface(Surface::Acp);
            let mut resolved = agentline.inner().ask(request.clone()).unwrap();
            let (template, prompt_text) = launches.find(agentline.inner(), &mut resolved).unwrap();
            assert_eq!(resolved.plan.request.prompt, request.prompt, "it is put back");
            assert!(template.launch.stdin.is_empty());
            (template, prompt_text.text)
        };
        let (first, said) = find(RunRequest::new("one"), &[]);
        assert_eq!(said, "one");
        let same = |request, env: &[(&str, &str)]| Arc::ptr_eq(&first, &find(request, env).0);
        let (second, said) = find(RunRequest::new("two").name("a name"), &[]);
        assert_eq!((said.as_str(), Arc::ptr_eq(&first, &second)), ("two", true));
        assert!(!same(RunRequest::new("one").model("m"), &[]));
        assert!(!same(RunRequest::new("one").deny("Bash"), &[]));
        assert!(!same(RunRequest::new("one").working_dir("ws"), &[]));
        assert!(!same(RunRequest::new("one"), &[("PATH", "/bin")]));
        assert!(same(RunRequest::new("one"), &[]), "it is still known");
        fs::write(&settings, r#"{"a": 1}"#).unwrap();
        let (changed, _) = find(RunRequest::new("one"), &[]);
        assert!(!Arc::ptr_eq(&first, &changed) && changed.key != first.key);
        // The content of a file matters, not when it was written.
        fs::write(&settings, r#"{"a": 1}"#).unwrap();
        fs::write(dir.path().join(".gemini/passing"), "").unwrap();
        fs::remove_file(dir.path().join(".gemini/passing")).unwrap();
        assert!(Arc::ptr_eq(&changed, &find(RunRequest::new("three"), &[]).0));
        settle();
        assert!(Arc::ptr_eq(&changed, &find(RunRequest::new("three"), &[]).0));
        let mut wrong = RunRequest::new("one");
        wrong.prompt_file = Some("missing.md".into());
        wrong.include_directories = vec!["missing".into()];
        let agentline =
            Agentline::new(HostEnv::new([].into(), dir.path(), dir.path())).program("gemini", &program);
        let mut resolved = agentline.inner().ask(wrong.surface(Surface::Acp)).unwrap();
        let Err(Error::Usage(problems)) = launches.find(agentline.inner(), &mut resolved) else { panic!() };
        let keys: Vec<&str> = problems.0.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["prompt_file", "include_directories"]);
    }
}
