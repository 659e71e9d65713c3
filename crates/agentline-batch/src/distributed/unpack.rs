//! The files of experiments on a worker: downloaded once, verified, and kept apart from what agents see.

use super::DistributedError;
use super::package::{FILES, OF_THIS_MACHINE};
use super::spec::{CasePack, JobPayload, NamedTree, PortableCase, PortableRequest};
use super::worker::WorkerPolicy;
use crate::check::Check;
use crate::class::ClassTable;
use crate::execute::requests::{RequestTable, resolve, settings_key};
use crate::suite::{BatchLimits, RunIndex, Suite, TestCase, Variant, WorkspaceSource};
use agentline::{Agentline, Problem, RunRequest};
use agentline_core::Rule;
use agentline_queue::{Artifacts, TreeError, TreeLimits, TreeRef, download_tree};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of cases that a worker keeps in memory.
const MOST_CASES: usize = 256;

/// A run as a worker executes it.
#[derive(Clone, Debug)]
pub(super) struct UnpackedRun {
    pub(super) suite: Arc<Suite>,
    pub(super) requests: Arc<RequestTable>,
    pub(super) run: RunIndex,
    pub(super) is_repeatable: bool,
}

/// What a job is called, and what becomes of it if it cannot be executed.
#[derive(Clone, Debug)]
pub(super) struct JobNames {
    pub(super) case: String,
    pub(super) variant: String,
    pub(super) is_repeatable: bool,
    pub(super) classes: ClassTable,
}

/// The case of a job in memory.
#[derive(Clone, Debug)]
struct LoadedCase {
    suite: Arc<Suite>,
    requests: Arc<RequestTable>,
    repeatable: Vec<bool>,
}

/// The files of a worker.
#[derive(Debug)]
pub(super) struct WorkerFiles {
    root: PathBuf,
    artifacts: Arc<dyn Artifacts>,
    packs: Mutex<HashMap<String, Arc<CasePack>>>,
    cases: Mutex<HashMap<(String, usize), LoadedCase>>,
    /// One lock for each path or artifact, so that several runs do not download it at the same time.
    downloads: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
}

impl WorkerFiles {
    /// Uses a directory for the files.
    pub(super) fn new(root: &Path, artifacts: Arc<dyn Artifacts>) -> std::io::Result<Self> {
        let files = Self {
            root: root.to_owned(),
            artifacts,
            packs: Mutex::default(),
            cases: Mutex::default(),
            downloads: Mutex::default(),
        };
        for dir in [files.templates(), files.hidden(), files.named()] {
            agentline_fs::private_file::create_dir_all(&dir)?;
        }
        Ok(files)
    }

    /// The templates of workspaces.
    pub(super) fn templates(&self) -> PathBuf {
        self.root.join("templates")
    }

    /// The files that only checks may see.
    pub(super) fn hidden(&self) -> PathBuf {
        self.root.join("hidden")
    }

    /// The files that requests name.
    fn named(&self) -> PathBuf {
        self.root.join("files")
    }

    /// Prepares the run of a job: downloads what it needs, and checks it against the policy of the worker.
    pub(super) async fn run(
        &self,
        experiment: &str,
        job: &JobPayload,
        agentline: &Agentline,
        policy: &WorkerPolicy,
    ) -> Result<UnpackedRun, DistributedError> {
        let place = (job.pack.clone(), job.case);
        let known = self.cases.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        let case = match known {
            Some(case) => case,
            None => {
                let case = self.load(experiment, job, agentline, policy).await?;
                let mut cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
                if cases.len() >= MOST_CASES {
                    cases.clear();
                }
                cases.insert(place, case.clone());
                case
            }
        };
        if job.variant >= case.suite.variants.len() || job.variant >= case.suite.cases[0].prompts.len() {
            return Err(DistributedError::Files(
                "the job names a variant that its case does not have".into(),
            ));
        }
        Ok(UnpackedRun {
            run: RunIndex { attempt: job.attempt, case: 0, variant: job.variant },
            is_repeatable: case.repeatable.get(job.variant).copied().unwrap_or(true),
            suite: case.suite,
            requests: case.requests,
        })
    }

    /// Returns the names of a job, without preparing its run.
    pub(super) async fn names(
        &self,
        experiment: &str,
        job: &JobPayload,
    ) -> Result<JobNames, DistributedError> {
        let pack = self.pack(experiment, &job.pack).await?;
        let names = pack.cases.get(job.case).zip(pack.variants.get(job.variant));
        let (case, variant) = names.ok_or_else(no_case)?;
        Ok(JobNames {
            case: case.id.clone(),
            variant: variant.clone(),
            is_repeatable: case.repeatable.get(job.variant).copied().unwrap_or(true),
            classes: ClassTable(pack.classes.clone()),
        })
    }

    async fn load(
        &self,
        experiment: &str,
        job: &JobPayload,
        agentline: &Agentline,
        policy: &WorkerPolicy,
    ) -> Result<LoadedCase, DistributedError> {
        let pack = self.pack(experiment, &job.pack).await?;
        let portable = pack.cases.get(job.case).ok_or_else(no_case)?;
        let case = self.case(experiment, portable).await?;
        let mut requests = RequestTable::default();
        for (key, portable) in &pack.requests {
            let is_needed = case.settings.iter().any(|settings| settings_key(settings) == *key)
                || judges(&case).any(|settings| settings_key(settings) == *key);
            if is_needed {
                requests.insert(key.clone(), self.request(experiment, portable, agentline, policy).await?);
            }
        }
        let variants = pack.variants.iter().map(|id| Variant {
            id: id.clone(),
            settings: Map::new(),
            prompt: None,
            repeatable: None,
        });
        let suite = Suite {
            name: experiment.to_owned(),
            description: None,
            case_ids: vec![case.id.clone()],
            cases: vec![case],
            unselected: Vec::new(),
            below: Map::new(),
            variants: variants.collect(),
            repeat: 1,
            limits: BatchLimits::default(),
            classes: ClassTable(pack.classes.clone()),
            shares_workspace: false,
            files: Vec::new(),
            unused: Vec::new(),
        };
        Ok(LoadedCase {
            suite: Arc::new(suite),
            requests: Arc::new(requests),
            repeatable: portable.repeatable.clone(),
        })
    }

    async fn pack(&self, experiment: &str, name: &str) -> Result<Arc<CasePack>, DistributedError> {
        let lock = self.download_lock(Path::new(name));
        let _alone = lock.lock().await;
        let known = self.packs.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some(pack) = known {
            return Ok(pack);
        }
        let bytes = self.artifacts.get(experiment, name).await?;
        let bytes = bytes.ok_or_else(|| DistributedError::MissingArtifact(name.to_owned()))?;
        let pack: CasePack = serde_json::from_slice(&bytes).map_err(|error| {
            DistributedError::Files(format!("the artifact `{name}` has no cases: {error}"))
        })?;
        let pack = Arc::new(pack);
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        if packs.len() >= 8 {
            packs.clear();
        }
        packs.insert(name.to_owned(), Arc::clone(&pack));
        Ok(pack)
    }

    async fn case(&self, experiment: &str, case: &PortableCase) -> Result<TestCase, DistributedError> {
        let workspace = match &case.workspace {
            None => None,
            Some(tree) => {
                let target = self.templates().join(checked(&tree.name)?);
                self.download(experiment, tree, &target).await?;
                Some(WorkspaceSource::Directory(target))
            }
        };
        let mut hidden = Vec::with_capacity(case.hidden.len());
        for named in &case.hidden {
            hidden.push(self.download_named(experiment, named, &self.hidden()).await?);
        }
        let checks = case.checks.iter().map(Check::read).collect::<Result<_, _>>();
        Ok(TestCase {
            id: case.id.clone(),
            tags: Vec::new(),
            prompts: case.prompts.clone(),
            settings: case.settings.iter().cloned().map(Arc::new).collect(),
            workspace,
            hidden,
            setup: case.setup.clone(),
            teardown: case.teardown.clone(),
            checks: checks
                .map_err(|problem| DistributedError::Files(format!("a check {}", problem.message)))?,
            source: case.source.clone(),
            repeatable: case.repeatable.iter().copied().map(Some).collect(),
            worker_labels: Vec::new(),
        })
    }

    /// Returns the request of a run on this worker: with the worker's own sign-in, programs and rules.
    async fn request(
        &self,
        experiment: &str,
        portable: &PortableRequest,
        agentline: &Agentline,
        policy: &WorkerPolicy,
    ) -> Result<(Agentline, RunRequest), DistributedError> {
        let mut value = portable.request.clone();
        let mut files: Map<String, Value> = Map::new();
        for (field, named) in &portable.files {
            if !FILES.contains(&field.as_str()) {
                let message = format!("a request names a file for `{field}`");
                return Err(DistributedError::Files(message));
            }
            let path = self.download_named(experiment, named, &self.named()).await?;
            let path = Value::from(path.to_string_lossy());
            match field.as_str() {
                "attachments" | "include_directories" => {
                    if let Value::Array(list) =
                        files.entry(field.clone()).or_insert_with(|| Value::Array(Vec::new()))
                    {
                        list.push(path);
                    }
                }
                _ => drop(files.insert(field.clone(), path)),
            }
        }
        if let Value::Object(fields) = &mut value {
            // Whoever wrote the request may not be a submitter that removed them.
            fields.retain(|name, _| !OF_THIS_MACHINE.contains(&&**name) && !FILES.contains(&&**name));
            fields.extend(files);
        }
        let request: RunRequest = serde_json::from_value(value)
            .map_err(|error| DistributedError::Files(format!("a request cannot be read: {error}")))?;
        let own = Map::from_iter([("agent".to_owned(), Value::from(request.agent.to_string()))]);
        let (configured, own) = resolve(agentline, &own).map_err(|problems| {
            DistributedError::OfWorker(format!("the worker's configuration: {problems}"))
        })?;
        policy.check(agentline, &request, &own)?;
        let agentline = configured;
        let request = with_own_settings(request, own);
        let mut checked = request.clone();
        "ready".clone_into(&mut checked.prompt);
        agentline.validate(&checked)?;
        Ok((agentline, request))
    }

    async fn download_named(
        &self,
        experiment: &str,
        named: &NamedTree,
        dir: &Path,
    ) -> Result<PathBuf, DistributedError> {
        let dir = dir.join(checked(&named.tree.name)?);
        agentline_fs::private_file::create_dir_all(&dir)
            .map_err(|error| DistributedError::OfWorker(format!("`{}`: {error}", dir.display())))?;
        let target = dir.join(checked(&named.name)?);
        self.download(experiment, &named.tree, &target).await?;
        Ok(target)
    }

    async fn download(
        &self,
        experiment: &str,
        tree: &TreeRef,
        target: &Path,
    ) -> Result<(), DistributedError> {
        let lock = self.download_lock(target);
        let _alone = lock.lock().await;
        if target.exists() {
            return Ok(());
        }
        match download_tree(&*self.artifacts, experiment, tree, target, TreeLimits::default()).await {
            Err(TreeError::Missing(name)) => Err(DistributedError::MissingArtifact(name)),
            downloaded => Ok(downloaded?),
        }
    }

    /// Returns the lock of a path or an artifact. Unused locks are forgotten.
    fn download_lock(&self, name: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.downloads.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(name.to_owned()).or_default())
    }
}

fn no_case() -> DistributedError {
    DistributedError::Files("the job names a case or a variant that is not in its artifact".into())
}

/// Returns the settings of the judges of a case.
fn judges(case: &TestCase) -> impl Iterator<Item = &Map<String, Value>> {
    case.checks.iter().filter_map(|check| match &check.condition {
        crate::check::Condition::Judge(judge) => Some(&judge.settings),
        _ => None,
    })
}

/// Adds what the worker's own configuration says to a request. It can only forbid more.
fn with_own_settings(mut request: RunRequest, own: RunRequest) -> RunRequest {
    fn add(rules: &mut Vec<Rule>, own: Vec<Rule>) {
        rules.extend(own);
    }
    add(&mut request.deny, own.deny);
    add(&mut request.ask, own.ask);
    request.api_key = own.api_key;
    for (name, value) in own.env {
        request.env.entry(name).or_insert(value);
    }
    request.pass_env.extend(own.pass_env);
    request
}

/// Checks a name that comes from the queue and becomes part of a path.
fn checked(name: &str) -> Result<&str, DistributedError> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(std::path::Component::Normal(part)), None) if part == name && !name.contains('\0') => Ok(name),
        _ => Err(DistributedError::Invalid(
            Problem::new("job", format!("`{name}` is not the name of a file")).into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_queue::{ArtifactFuture, ArtifactVisitor, DirectoryArtifacts, upload_tree};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Artifacts in a directory that count how often one is read.
    #[derive(Debug)]
    struct SlowArtifacts(DirectoryArtifacts, AtomicUsize);

    impl Artifacts for SlowArtifacts {
        fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String> {
            self.0.put(experiment, content)
        }

        fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>> {
            Box::pin(async move {
                self.1.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
                self.0.get(experiment, name).await
            })
        }

        fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool> {
            self.0.has(experiment, name)
        }

        fn for_each_name<'a>(
            &'a self,
            experiment: &'a str,
            visit: ArtifactVisitor<'a>,
        ) -> ArtifactFuture<'a, ()> {
            self.0.for_each_name(experiment, visit)
        }

        fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()> {
            self.0.remove(experiment, name)
        }
    }

    /// Returns the files of a worker whose artifacts are in the directory, and a stored tree.
    async fn stage(dir: &Path) -> (WorkerFiles, Arc<SlowArtifacts>, TreeRef) {
        let store = DirectoryArtifacts::new(&dir.join("store")).expect("a store");
        let artifacts = Arc::new(SlowArtifacts(store, AtomicUsize::new(0)));
        std::fs::create_dir(dir.join("template")).expect("a directory");
        std::fs::write(dir.join("template/file"), "text").expect("a file");
        let tree = upload_tree(&*artifacts, "e", &dir.join("template"), TreeLimits::default()).await;
        let files = WorkerFiles::new(&dir.join("worker"), artifacts.clone()).expect("files");
        (files, artifacts, tree.expect("a tree"))
    }

    #[tokio::test]
    async fn template_is_downloaded_once_for_all_runs() {
        let dir = tempfile::tempdir().expect("a directory");
        let (files, artifacts, tree) = stage(dir.path()).await;
        let target = files.templates().join(&tree.name);
        let download = || files.download("e", &tree, &target);
        let (a, b, c) = tokio::join!(download(), download(), download());
        for downloaded in [a, b, c] {
            downloaded.expect("a template");
        }
        assert_eq!(artifacts.1.load(Ordering::Relaxed), tree.pieces.len());
        assert_eq!(std::fs::read(target.join("file")).expect("a file"), b"text");
    }

    #[tokio::test]
    async fn missing_artifact_is_an_error_of_the_worker_and_an_unreadable_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let (files, artifacts, tree) = stage(dir.path()).await;
        let name = &tree.pieces[0];
        let no_pack = files.pack("e", name).await.expect_err("no cases");
        assert!(!no_pack.is_of_worker(), "{no_pack}");
        artifacts.remove("e", name).await.expect("a removed artifact");
        let target = files.templates().join(&tree.name);
        let no_piece = files.download("e", &tree, &target).await.expect_err("a missing piece");
        let no_pack = files.pack("e", name).await.expect_err("a missing artifact");
        for error in [no_piece, no_pack] {
            assert!(error.is_of_worker());
            assert!(error.to_string().contains("is not in the store that this worker uses"), "{error}");
        }
        let full = TreeError::Io { path: target, source: std::io::ErrorKind::StorageFull.into() };
        assert!(DistributedError::from(full).is_of_worker());
    }

    #[tokio::test]
    async fn hostile_request_sets_no_path_of_the_worker() {
        let dir = tempfile::tempdir().expect("a directory");
        let (files, _, tree) = stage(dir.path()).await;
        let host_env = agentline::HostEnv::new([].into(), dir.path(), dir.path());
        let agentline = Agentline::new(host_env);
        let hostile = serde_json::json!({
            "agent": "gemini", "record": "/tmp/tape", "working_dir": "/", "api_key": "k", "deadline": 1.0,
            "attachments": ["/etc/passwd"], "prompt_file": "/etc/passwd", "mcp_settings_path": "/etc/passwd",
            "include_directories": ["/"], "output_schema": "/etc/passwd", "prompt": "x", "name": "x",
        });
        let portable = PortableRequest { request: hostile, files: Vec::new() };
        let request = files.request("e", &portable, &agentline, &WorkerPolicy::default()).await;
        let (_, request) = request.expect("a request");
        let mut expected = RunRequest::new("");
        expected.agent = "gemini".into();
        let own = Map::from_iter([("agent".to_owned(), Value::from("gemini"))]);
        let (_, own) = resolve(&agentline, &own).expect("a configuration");
        assert_eq!(request, with_own_settings(expected, own));

        let named = NamedTree { name: "tape".into(), tree };
        let portable = PortableRequest {
            request: serde_json::json!({"agent": "gemini"}),
            files: vec![("record".into(), named)],
        };
        let refused = files.request("e", &portable, &agentline, &WorkerPolicy::default()).await;
        assert!(matches!(refused, Err(DistributedError::Files(_))), "{refused:?}");
    }
}
