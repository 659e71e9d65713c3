//! The files of experiments on a worker: downloaded once, verified, and kept apart from what agents see.

use super::DistributedError;
use super::spec::{CasePack, JobPayload, NamedTree, PortableCase, PortableRequest};
use super::worker::WorkerPolicy;
use crate::check::Check;
use crate::class::ClassTable;
use crate::execute::requests::{RequestTable, resolve, settings_key};
use crate::suite::{BatchLimits, RunIndex, Suite, TestCase, Variant, WorkspaceSource};
use agentline::{Agentline, Problem, RunRequest};
use agentline_core::Rule;
use agentline_queue::{Artifacts, QueueError, TreeLimits, TreeRef, download_tree};
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
}

impl WorkerFiles {
    /// Uses a directory for the files.
    pub(super) fn new(root: &Path, artifacts: Arc<dyn Artifacts>) -> std::io::Result<Self> {
        let files =
            Self { root: root.to_owned(), artifacts, packs: Mutex::default(), cases: Mutex::default() };
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

    async fn load(
        &self,
        experiment: &str,
        job: &JobPayload,
        agentline: &Agentline,
        policy: &WorkerPolicy,
    ) -> Result<LoadedCase, DistributedError> {
        let pack = self.pack(experiment, &job.pack).await?;
        let missing = || DistributedError::Files("the job names a case that is not in its artifact".into());
        let portable = pack.cases.get(job.case).ok_or_else(missing)?;
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
        let known = self.packs.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some(pack) = known {
            return Ok(pack);
        }
        let bytes = self.artifacts.get(experiment, name).await?;
        let bytes = bytes.ok_or_else(|| DistributedError::Queue(QueueError::Damaged(name.to_owned())))?;
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
            settings: case.settings.clone(),
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
            fields.extend(files);
        }
        let request: RunRequest = serde_json::from_value(value)
            .map_err(|error| DistributedError::Files(format!("a request cannot be read: {error}")))?;
        policy.check(agentline, &request)?;
        let own = Map::from_iter([("agent".to_owned(), Value::from(request.agent.to_string()))]);
        let (agentline, own) = resolve(agentline, &own)?;
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
            .map_err(|error| DistributedError::Files(format!("`{}`: {error}", dir.display())))?;
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
        if target.exists() {
            return Ok(());
        }
        Ok(download_tree(&*self.artifacts, experiment, tree, target, TreeLimits::default()).await?)
    }
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
