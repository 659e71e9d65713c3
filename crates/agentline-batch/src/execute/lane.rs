//! The places where runs happen. Each lane has one workspace path, which a warm agent keeps, and one run at a time.

use super::BatchError;
use super::covers::{Covers, is_in_history};
use super::disk_space::{check_fits, free_space};
use super::isolation::unfit;
use super::lane_files::{clear, copy_hidden, make_real};
use crate::store::Experiment;
use crate::suite::{TestCase, WorkspaceSource};
use crate::template;
use crate::worktree;
use agentline::isolate::{IsolationMethod, OverlayPlace, OverlayRoot, WorkspaceCopy, fits_overlay};
use agentline::supervisor::KillDeadline;
use agentline_fs::readable::make_tree_readable;
use agentline_fs::remove::remove_tree;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name of the stored path of the lanes, so that the next batch removes what a killed one left behind.
const META: &str = "lanes";

/// The file in the directory of the lanes that names the experiment to which they belong.
const OWNER: &str = "experiment";

/// Removes the lanes of a killed batch. The path comes from the database, which may be the work of somebody else, so
/// only a directory that names this experiment is removed.
fn remove_lanes(root: &Path, experiment: &Path) {
    let owner = agentline_fs::regular_file::read_regular(&root.join(OWNER), 64 << 10);
    let is_ours = owner.is_ok_and(|owner| owner == experiment.as_os_str().as_encoded_bytes());
    if is_ours {
        remove_tree(root);
    }
}

/// The lanes of a batch.
#[derive(Debug)]
pub(crate) struct Lanes {
    root: PathBuf,
    /// The home directory, to which agents write.
    home: PathBuf,
    /// The method that the caller demands.
    method: Option<IsolationMethod>,
    overlays: Option<OverlayRoot>,
    state: Mutex<LaneState>,
    /// Held while a revision is checked out, because several runs may need the same one.
    checkout: Mutex<()>,
    /// When commands are killed that this program cannot end itself because it is stopped.
    kill_deadline: Option<KillDeadline>,
}

#[derive(Debug, Default)]
struct LaneState {
    /// The free lanes, with the places of overlays of those that have one.
    free: Vec<(usize, Option<OverlayPlace>)>,
    count: usize,
    /// Whether a template can be that of an overlay.
    fitting: HashMap<PathBuf, bool>,
    /// Whether the repository in a template has hidden files in its history.
    leaking: HashMap<(PathBuf, Vec<PathBuf>), bool>,
    /// The repositories that have worktrees here.
    repositories: BTreeSet<PathBuf>,
}

/// A workspace that is ready for a run.
#[derive(Debug)]
pub(crate) struct FilledWorkspace {
    /// The directory in which the agent works.
    pub(crate) path: PathBuf,
    /// What to compare with the template afterwards, if there is one.
    pub(crate) copy: Option<WorkspaceCopy>,
    /// The template, with links resolved.
    pub(crate) template: Option<PathBuf>,
    /// How it is isolated.
    pub(crate) method: Option<IsolationMethod>,
}

/// A lane that a run uses. Dropping it frees the lane.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    number: usize,
    place: Mutex<Option<OverlayPlace>>,
}

impl Lanes {
    /// Creates the directory of the lanes, outside the experiment's directory: an agent must not find results.
    ///
    /// Agents in overlays do not see what is covered.
    pub(crate) fn create(
        experiment: &Experiment,
        home: &Path,
        method: Option<IsolationMethod>,
        covers: &Covers,
    ) -> Result<Self, BatchError> {
        let dir = Self::remove_left(experiment)?;
        let wrong = |error| BatchError::Io("a temporary directory cannot be created".into(), error);
        let root = tempfile::Builder::new().prefix("agentline-batch-").tempdir().map_err(wrong)?.keep();
        let root = std::fs::canonicalize(&root).map_err(wrong)?;
        std::fs::write(root.join(OWNER), dir.as_os_str().as_encoded_bytes()).map_err(wrong)?;
        experiment.set_meta(META, &root.to_string_lossy())?;
        let overlays = || OverlayRoot::new(&root, &covers.covered, &covers.templates);
        let overlays = match method {
            None => overlays().ok(),
            Some(IsolationMethod::Overlay) => Some(
                overlays()
                    .map_err(|error| BatchError::Io(format!("overlays cannot be used: {error}"), error))?,
            ),
            Some(_) => None,
        };
        let home = home.to_owned();
        Ok(Self {
            root,
            home,
            method,
            overlays,
            state: Mutex::default(),
            checkout: Mutex::default(),
            kill_deadline: None,
        })
    }

    /// Removes the lanes that a killed process left behind, and returns the path of the experiment with which they are
    /// marked.
    pub(crate) fn remove_left(experiment: &Experiment) -> Result<PathBuf, BatchError> {
        let dir = std::fs::canonicalize(experiment.dir()).unwrap_or_else(|_| experiment.dir().to_owned());
        if let Some(left) = experiment.meta(META)? {
            remove_lanes(Path::new(&left), &dir);
        }
        Ok(dir)
    }

    /// Makes the commands in these lanes subject to a deadline.
    pub(crate) fn with_kill_deadline(self, deadline: KillDeadline) -> Self {
        Self { kill_deadline: Some(deadline), ..self }
    }

    /// Returns a free lane.
    pub(crate) fn take(&self) -> Lane<'_> {
        let mut state = self.state();
        // The last used lane first: its agent is warm.
        let (number, place) = state.free.pop().unwrap_or((state.count, None));
        state.count = state.count.max(number + 1);
        Lane { lanes: self, number, place: Mutex::new(place) }
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a template can be that of an overlay. Looks at each template once.
    fn fits(&self, template: &Path) -> io::Result<bool> {
        if let Some(fits) = self.state().fitting.get(template) {
            return Ok(*fits);
        }
        let fits = fits_overlay(template, &[&self.root, &self.home])?;
        self.state().fitting.insert(template.to_owned(), fits);
        Ok(fits)
    }

    /// Returns whether the repository in a template gives hidden files away. Asks Git once.
    fn leaks(&self, template: &Path, hidden: &[PathBuf]) -> bool {
        let key = (template.to_owned(), hidden.to_vec());
        if let Some(leaks) = self.state().leaking.get(&key) {
            return *leaks;
        }
        let leaks = is_in_history(template, hidden).unwrap_or(true);
        self.state().leaking.insert(key, leaks);
        leaks
    }

    /// Removes everything.
    pub(crate) fn remove(&self, experiment: &Experiment) {
        self.state().free.clear();
        remove_tree(&self.root);
        for repository in &self.state().repositories {
            let _ = worktree::prune(repository);
        }
        let _ = experiment.set_meta(META, "");
    }

    fn templates(&self) -> PathBuf {
        self.root.join("templates")
    }
}

impl Lane<'_> {
    /// Returns the deadline of the commands in this lane.
    pub(crate) fn kill_deadline(&self) -> Option<KillDeadline> {
        self.lanes.kill_deadline.clone()
    }

    /// Returns the path of a workspace that is a copy.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir().join("workspace")
    }

    fn place(&self) -> MutexGuard<'_, Option<OverlayPlace>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dir(&self) -> PathBuf {
        self.lanes.root.join(format!("lane-{}", self.number))
    }

    /// Prepares a workspace with the files of a case: an overlay where that is possible, a copy otherwise. A run that
    /// `starts_inside` has its own agent, which starts in the workspace.
    pub(crate) fn fill(
        &self,
        source: Option<&WorkspaceSource>,
        has_hidden: bool,
        starts_inside: bool,
    ) -> io::Result<FilledWorkspace> {
        let template = source
            .map(|source| {
                let _alone = self.lanes.checkout.lock().unwrap_or_else(PoisonError::into_inner);
                template::directory(source, &self.lanes.templates())
            })
            .transpose()?;
        if let Some(overlays) = &self.lanes.overlays
            && (template.is_some() || has_hidden)
        {
            let empty = self.lanes.root.join("empty");
            let template = match &template {
                Some(template) => template,
                None => {
                    std::fs::create_dir_all(&empty)?;
                    &empty
                }
            };
            if self.lanes.fits(template)? {
                return self.mount(overlays, template, starts_inside);
            }
            if self.lanes.method.is_some() {
                return Err(io::Error::other(unfit(template)));
            }
        }
        let path = self.workspace();
        clear(&self.lanes.root, &path)?;
        let (Some(source), Some(template)) = (source, template) else {
            return Ok(FilledWorkspace { path, copy: None, template: None, method: None });
        };
        if self.lanes.method == Some(IsolationMethod::Worktree) {
            let repository = worktree::add(source, &path)?;
            self.lanes.state().repositories.insert(repository);
            let copy = Some(WorkspaceCopy::existing(&template, &path).with_ignored()?);
            return Ok(FilledWorkspace { path, copy, template: Some(template), method: self.lanes.method });
        }
        let copy = WorkspaceCopy::make(&template, &path, &self.lanes.root, &|| false)?.with_ignored()?;
        let method = Some(IsolationMethod::Copy);
        Ok(FilledWorkspace { path, copy: Some(copy), template: Some(template), method })
    }

    fn mount(
        &self,
        overlays: &OverlayRoot,
        template: &Path,
        starts_inside: bool,
    ) -> io::Result<FilledWorkspace> {
        let mut place = self.place();
        let place = match &mut *place {
            Some(place) => place,
            none => none.insert(overlays.place(&format!("overlay-{}", self.number))?),
        };
        place.mount(template, starts_inside)?;
        let path = place.workspace().to_owned();
        let copy = Some(place.copy()?);
        let template = Some(template.to_owned());
        Ok(FilledWorkspace { path, copy, template, method: Some(IsolationMethod::Overlay) })
    }

    /// Returns whether the hidden files of a case are out of reach of the agent that works in a workspace. In an overlay,
    /// it looks for them as the agent does; `None` if no agent lives there.
    pub(crate) fn is_covered(&self, case: &TestCase, workspace: &FilledWorkspace) -> Option<bool> {
        if workspace.method != Some(IsolationMethod::Overlay) {
            return Some(false);
        }
        let are_covered = self.place().as_ref()?.are_covered()?;
        let leaks = |template: &PathBuf| self.lanes.leaks(template, &case.hidden);
        Some(are_covered && !workspace.template.as_ref().is_some_and(leaks))
    }

    /// Prepares the workspace of a run for `teardown`: its overlay is mounted again.
    pub(crate) fn for_teardown(&self, workspace: &Path) -> io::Result<()> {
        match &mut *self.place() {
            Some(place) if place.workspace() == workspace => place.mount_again(),
            _ => Ok(()),
        }
    }

    /// Makes the files that the agent left readable for this program, and the workspace a directory, so that an agent
    /// cannot prevent its checks.
    pub(crate) fn settle(&self, workspace: &Path) -> io::Result<()> {
        match &*self.place() {
            Some(place) if place.workspace() == workspace => place.make_readable(),
            _ if workspace == self.workspace() => {
                make_real(&self.lanes.root, workspace)?;
                make_tree_readable(workspace, workspace);
            }
            // A shared workspace.
            _ => std::fs::create_dir_all(workspace)?,
        }
        Ok(())
    }

    /// Returns the files as the run left them. An overlay is unmounted, and these files are in another one.
    fn after_run(&self, workspace: &Path) -> io::Result<PathBuf> {
        match &mut *self.place() {
            Some(place) if place.workspace() == workspace => place.view(),
            _ => Ok(workspace.to_owned()),
        }
    }

    /// Returns a directory for checks with the files of the run. If there are hidden files, it can hold them.
    pub(crate) fn for_checks(&self, workspace: &FilledWorkspace, hidden: &[PathBuf]) -> io::Result<PathBuf> {
        let files = self.after_run(&workspace.path)?;
        if hidden.is_empty() || files != workspace.path {
            return Ok(files);
        }
        let checked = self.dir().join("checked");
        clear(&self.lanes.root, &checked)?;
        self.check_fits(workspace, &files, &checked)?;
        WorkspaceCopy::make(&files, &checked, &self.lanes.root, &|| false)?;
        Ok(checked)
    }

    /// Copies the hidden files of a case into the directory for its checks. In an overlay, the commands of the checks
    /// can then write nowhere else, because an agent's code that they execute could keep the files for a later run.
    pub(crate) fn add_hidden(&self, checked: &Path, hidden: &[PathBuf]) -> io::Result<()> {
        if hidden.is_empty() {
            return Ok(());
        }
        if let Some(place) = &*self.place() {
            place.seal_view()?;
        }
        hidden.iter().try_for_each(|source| copy_hidden(source, checked))
    }

    /// Removes what the checks saw, so that the next run in this lane cannot find it.
    pub(crate) fn forget_checks(&self) {
        remove_tree(&self.dir().join("checked"));
        if let Some(place) = &*self.place() {
            place.close_view();
        }
    }

    /// Unmounts the workspace of a run, so that its lane is known to be free.
    pub(crate) fn end_run(&self) {
        if let Some(place) = &mut *self.place() {
            place.close_view();
            let _ = place.unmount();
        }
    }

    /// Keeps the workspace of a run.
    pub(crate) fn keep(&self, workspace: &FilledWorkspace, target: &Path) -> io::Result<()> {
        let files = self.after_run(&workspace.path)?;
        self.check_fits(workspace, &files, target.parent().unwrap_or(target))?;
        let kept = WorkspaceCopy::make(&files, target, &self.lanes.root, &|| false);
        if kept.is_err() {
            remove_tree(target);
        }
        kept.map(|_| ())
    }

    /// Checks that a copy of the files of a run fits on the disk of a directory, so that a file of the agent does not
    /// take the space of other runs.
    fn check_fits(&self, workspace: &FilledWorkspace, files: &Path, dir: &Path) -> io::Result<()> {
        let empty = self.dir().join("empty");
        let template = match (&workspace.template, &workspace.copy) {
            (Some(template), _) => Some(template),
            (None, Some(_)) => {
                std::fs::create_dir_all(&empty)?;
                Some(&empty)
            }
            // The files that were in a shared workspace before the run are not known.
            (None, None) => None,
        };
        check_fits(files, template.map(PathBuf::as_path), free_space(dir))
    }

    /// Returns an empty directory for a judge.
    pub(crate) fn for_judge(&self) -> io::Result<PathBuf> {
        let dir = self.dir().join("judge");
        clear(&self.lanes.root, &dir)?;
        Ok(dir)
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let place = self.place().take();
        // An agent that still uses its last workspace is not used again: the next lane has another path, which is part of
        // what identifies a warm agent.
        if place.as_ref().is_some_and(OverlayPlace::is_busy) {
            return;
        }
        self.lanes.state().free.push((self.number, place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lanes_of_this_experiment_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let experiment = dir.path().join("experiment");
        for (name, owner, is_kept) in [
            ("ours", Some(experiment.clone()), false),
            ("other", Some("/x".into()), true),
            ("home", None, true),
        ] {
            let root = dir.path().join(name);
            std::fs::create_dir(&root).expect("a directory");
            if let Some(owner) = owner {
                std::fs::write(root.join(OWNER), owner.as_os_str().as_encoded_bytes()).expect("a file");
            }
            remove_lanes(&root, &experiment);
            assert_eq!(root.exists(), is_kept, "{name}");
        }
    }
}
