//! Makes a suite portable: its files become artifacts, and its requests lose what belongs to this machine.

use super::budget::micros;
use super::spec::{CasePack, JobPayload, NamedTree, PortableCase, PortableRequest, Requirements};
use super::worker::beyond_mode;
use super::{DistributedError, secrets};
use crate::check::Condition;
use crate::execute::requests::{RequestTable, settings_key};
use crate::suite::{RunIndex, Suite, TestCase, WorkspaceSource};
use crate::template;
use agentline::{Problem, RunRequest};
use agentline_fs::digest::hex;
use agentline_queue::{Artifacts, Job, MAX_ARTIFACT, TreeLimits, TreeRef, upload_tree};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest number of cases in an artifact.
const CASES_PER_PACK: usize = 200;

/// The fields of a request that belong to one run or to this machine, and are set by the worker.
pub(super) const OF_THIS_MACHINE: &[&str] =
    &["prompt", "name", "working_dir", "record", "api_key", "deadline"];

/// The fields of a request that name files.
pub(super) const FILES: &[&str] =
    &["attachments", "output_schema", "mcp_settings_path", "prompt_file", "include_directories"];

/// A suite whose artifacts are stored.
pub(super) struct SuitePackage {
    /// The artifact with each case, and the position of the case in it.
    places: HashMap<usize, (Arc<str>, usize)>,
    /// The route of each case and variant.
    routes: HashMap<(usize, usize), Arc<str>>,
    requirements: BTreeMap<Arc<str>, Requirements>,
}

impl SuitePackage {
    /// Returns what a worker needs for each route.
    pub(super) fn requirements(&self) -> BTreeMap<String, Requirements> {
        self.requirements.iter().map(|(route, needed)| (route.to_string(), needed.clone())).collect()
    }

    /// Returns a run as a job. `reserve` is what it may cost.
    pub(super) fn job(&self, run: RunIndex, key: String, reserve: Option<f64>) -> Job {
        let (pack, place) = &self.places[&run.case];
        let payload = JobPayload {
            pack: pack.to_string(),
            case: *place,
            variant: run.variant,
            attempt: run.attempt,
            reserve_micros: reserve.map(micros),
        };
        let payload = serde_json::to_vec(&payload).unwrap_or_default();
        Job { id: key, route: self.routes[&(run.case, run.variant)].to_string(), payload }
    }
}

/// Stores the files that runs of a suite need.
pub(super) async fn package(
    artifacts: &dyn Artifacts,
    experiment: &str,
    suite: &Suite,
    requests: &RequestTable,
    runs: impl Iterator<Item = RunIndex> + Clone,
    cwd: &Path,
) -> Result<SuitePackage, DistributedError> {
    let mut packer = Packer {
        artifacts,
        experiment,
        cwd,
        trees: HashMap::new(),
        portable: HashMap::new(),
        checkouts: tempfile::tempdir().map_err(|error| failed("a temporary directory", &error))?,
    };
    let needed: BTreeSet<usize> = runs.clone().map(|run| run.case).collect();
    let needed: Vec<usize> = needed.into_iter().collect();
    let mut places = HashMap::new();
    let mut groups: Vec<&[usize]> = needed.chunks(CASES_PER_PACK).collect();
    while let Some(group) = groups.pop() {
        let pack = packer.pack(suite, requests, group).await?;
        let bytes = serde_json::to_vec(&pack).unwrap_or_default();
        match split(group, bytes.len(), suite)? {
            Some(halves) => groups.extend(halves),
            None => {
                let name: Arc<str> = packer.put(&bytes).await?.into();
                places.extend(group.iter().enumerate().map(|(place, case)| (*case, (name.clone(), place))));
            }
        }
    }
    let mut routes = HashMap::new();
    // The key of each route is shared by its runs.
    let mut known: BTreeMap<Arc<str>, Requirements> = BTreeMap::new();
    for run in runs.map(|run| (run.case, run.variant)) {
        if routes.contains_key(&run) {
            continue;
        }
        let requirements = requirements(&suite.cases[run.0], run.1, requests);
        let route: Arc<str> = route_name(&requirements).into();
        let route = match known.get_key_value(&route) {
            Some((known, _)) => Arc::clone(known),
            None => {
                known.insert(Arc::clone(&route), requirements);
                route
            }
        };
        routes.insert(run, route);
    }
    Ok(SuitePackage { places, routes, requirements: known })
}

/// Returns the halves of a group of cases that is too large for an artifact.
fn split<'a>(
    group: &'a [usize],
    size: usize,
    suite: &Suite,
) -> Result<Option<[&'a [usize]; 2]>, DistributedError> {
    if size <= MAX_ARTIFACT {
        return Ok(None);
    }
    if let [case] = group {
        let case = &suite.cases[*case];
        let message = format!(
            "the case `{}` has {size} bytes with the prompts, checks and settings of its variants; at most {MAX_ARTIFACT} \
             are possible",
            case.id
        );
        let problem = Problem::new("cases", message).source(case.source.clone());
        return Err(DistributedError::Invalid(
            problem.hint("put long texts into files of its workspace").into(),
        ));
    }
    let (first, second) = group.split_at(group.len() / 2);
    Ok(Some([first, second]))
}

fn failed(what: &str, error: &std::io::Error) -> DistributedError {
    DistributedError::Files(format!("{what}: {error}"))
}

/// Returns the settings of the run of a variant, and of the judges of a case.
fn settings_of(case: &TestCase, variant: usize) -> impl Iterator<Item = &Map<String, Value>> {
    let judges = case.checks.iter().filter_map(|check| match &check.condition {
        Condition::Judge(judge) => Some(&judge.settings),
        _ => None,
    });
    std::iter::once(&*case.settings[variant]).chain(judges)
}

/// Returns what a worker needs for the run of a variant.
fn requirements(case: &TestCase, variant: usize, requests: &RequestTable) -> Requirements {
    let (mut agents, mut modes) = (BTreeSet::new(), BTreeSet::new());
    let mut variables: BTreeSet<String> = BTreeSet::new();
    let mut is_beyond_modes = false;
    for settings in settings_of(case, variant) {
        let Some((_, request)) = requests.get(settings) else { continue };
        agents.insert(request.agent.to_string());
        modes.insert(request.permission_mode.name().to_owned());
        is_beyond_modes |= beyond_mode(request).is_some();
        // What the submitter's own settings pass may be of no use to the run.
        let is_in_suite = settings.contains_key("pass_env");
        variables.extend(request.pass_env.iter().filter(|name| is_in_suite && *name != "*").cloned());
        variables.extend(secrets::referenced_variables(request));
    }
    Requirements {
        agents: agents.into_iter().collect(),
        modes: modes.into_iter().collect(),
        labels: case.worker_labels.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect(),
        variables: variables.into_iter().collect(),
        is_beyond_modes,
    }
}

fn route_name(requirements: &Requirements) -> String {
    let text = serde_json::to_string(requirements).unwrap_or_default();
    format!("r{}", &hex(&Sha256::digest(text))[..12])
}

struct Packer<'a> {
    artifacts: &'a dyn Artifacts,
    experiment: &'a str,
    /// The directory from which relative paths in requests start.
    cwd: &'a Path,
    /// The trees that are stored, by their path.
    trees: HashMap<PathBuf, TreeRef>,
    /// The requests that are portable already, by the name of their settings.
    portable: HashMap<String, PortableRequest>,
    /// Where revisions of repositories are checked out.
    checkouts: tempfile::TempDir,
}

impl Packer<'_> {
    async fn put(&self, bytes: &[u8]) -> Result<String, DistributedError> {
        Ok(self.artifacts.put(self.experiment, bytes).await?)
    }

    async fn pack(
        &mut self,
        suite: &Suite,
        requests: &RequestTable,
        cases: &[usize],
    ) -> Result<CasePack, DistributedError> {
        let mut pack = CasePack {
            variants: suite.variants.iter().map(|variant| variant.id.clone()).collect(),
            classes: suite.classes.0.clone(),
            ..CasePack::default()
        };
        for case in cases.iter().map(|case| &suite.cases[*case]) {
            for settings in (0..suite.variants.len()).flat_map(|variant| settings_of(case, variant)) {
                let key = settings_key(settings);
                if let Some((_, request)) =
                    requests.get(settings).filter(|_| !pack.requests.contains_key(&key))
                {
                    let portable = self.request(&key, request).await?;
                    pack.requests.insert(key, portable);
                }
            }
            let case = self.case(case).await?;
            pack.cases.push(case);
        }
        Ok(pack)
    }

    async fn case(&mut self, case: &TestCase) -> Result<PortableCase, DistributedError> {
        let workspace = match &case.workspace {
            None => None,
            Some(source) => {
                let at = format!("the workspace of the case `{}`", case.id);
                let dir = self.template(source).map_err(|error| failed(&at, &error))?;
                Some(self.tree(&dir).await?)
            }
        };
        let mut hidden = Vec::with_capacity(case.hidden.len());
        for path in &case.hidden {
            hidden.push(self.named(path).await?);
        }
        Ok(PortableCase {
            id: case.id.clone(),
            prompts: case.prompts.clone(),
            settings: case.settings.iter().map(|settings| Map::clone(settings)).collect(),
            workspace,
            hidden,
            setup: case.setup.clone(),
            teardown: case.teardown.clone(),
            checks: case.checks.iter().map(|check| check.written.clone()).collect(),
            source: case.source.clone(),
            repeatable: (0..case.prompts.len()).map(|variant| case.is_repeatable(variant)).collect(),
        })
    }

    fn template(&self, source: &WorkspaceSource) -> std::io::Result<PathBuf> {
        tokio::task::block_in_place(|| template::directory(source, self.checkouts.path()))
    }

    async fn tree(&mut self, path: &Path) -> Result<TreeRef, DistributedError> {
        if let Some(tree) = self.trees.get(path) {
            return Ok(tree.clone());
        }
        let tree = upload_tree(self.artifacts, self.experiment, path, TreeLimits::default()).await?;
        self.trees.insert(path.to_owned(), tree.clone());
        Ok(tree)
    }

    async fn named(&mut self, path: &Path) -> Result<NamedTree, DistributedError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(NamedTree { name, tree: self.tree(path).await? })
    }

    /// Returns a request without secrets and without paths of this machine.
    async fn request(
        &mut self,
        key: &str,
        request: &RunRequest,
    ) -> Result<PortableRequest, DistributedError> {
        if let Some(portable) = self.portable.get(key) {
            return Ok(portable.clone());
        }
        secrets::check(request)?;
        let mut value = serde_json::to_value(request).unwrap_or_default();
        let mut files = Vec::new();
        if let Value::Object(fields) = &mut value {
            fields.retain(|name, _| !OF_THIS_MACHINE.contains(&name.as_str()));
            for field in FILES {
                let named = fields.remove(*field);
                let paths = match named {
                    Some(Value::String(path)) => vec![path],
                    Some(Value::Array(paths)) => {
                        paths.iter().filter_map(Value::as_str).map(str::to_owned).collect()
                    }
                    _ => Vec::new(),
                };
                for path in paths {
                    files.push(((*field).to_owned(), self.named(&self.cwd.join(path)).await?));
                }
            }
        }
        let portable = PortableRequest { request: value, files };
        self.portable.insert(key.to_owned(), portable.clone());
        Ok(portable)
    }
}
