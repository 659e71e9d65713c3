//! Workspaces that are overlays of a template: what a run changes goes to a directory of its own.

use crate::fs::{disk_fs::canonicalize, readable::make_tree_readable, remove::remove_tree};
use crate::process::{Enclosure, OverlayLayers, mounts};
use crate::workspace::copy::{WorkspaceCopy, is_portable};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A way to give each run its own workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IsolationMethod {
    /// An overlay of the original, in which only changes take space.
    Overlay,
    /// A copy, which shares the content of files where the file system can.
    Copy,
    /// A worktree of a Git repository, with what is committed.
    Worktree,
}

impl IsolationMethod {
    /// All methods, the preferred one first.
    pub const ALL: [Self; 3] = [Self::Overlay, Self::Copy, Self::Worktree];

    /// Returns the name, as in results and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::Copy => "copy",
            Self::Worktree => "worktree",
        }
    }
}

/// Moves this program into a mount namespace of its own, in which workspaces can be overlays. For an ordinary user, it
/// is also a user namespace, in which `sudo` and other setuid programs do not work.
///
/// Call it in `main` before any thread exists, and before a runtime is built. First, a child process mounts an overlay in
/// `storage` and uses it, because some systems allow the namespace and refuse the mount. All mounts end with this program
/// and the agents that it started.
///
/// # Errors
/// Fails with the system's reason if overlays cannot be used. The program then continues as before.
pub fn enter_namespace(storage: &Path) -> io::Result<()> {
    mounts::enter(storage)
}

/// A directory of overlay workspaces. Agents that start in one of them see neither this directory, except for their own
/// workspace, nor the covered paths, and cannot change the templates.
#[derive(Debug)]
pub struct OverlayRoot {
    root: PathBuf,
    covered: Vec<PathBuf>,
    read_only: Vec<PathBuf>,
}

impl OverlayRoot {
    /// Uses an existing directory. `covered` are paths that agents must not see, and `templates` the directories of which
    /// overlays will be mounted, unless they are below `root`.
    ///
    /// # Errors
    /// Fails if this program has not called [`enter_namespace`] successfully, or if a path cannot be resolved.
    pub fn new(root: &Path, covered: &[PathBuf], templates: &[PathBuf]) -> io::Result<Self> {
        if !mounts::is_entered() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the program is not in its own namespace",
            ));
        }
        let root = canonicalize(root)?;
        let covered = covered.iter().map(|path| canonicalize(path));
        let mut covered: Vec<PathBuf> =
            std::iter::once(Ok(root.clone())).chain(covered).collect::<io::Result<_>>()?;
        // Directories before what they contain.
        covered.sort();
        let read_only = templates.iter().map(|path| canonicalize(path)).collect::<io::Result<_>>()?;
        Ok(Self { root, covered, read_only })
    }

    /// Creates the place of workspaces with this name, which is used for one run at a time.
    ///
    /// # Errors
    /// Fails if a directory or a mount cannot be created.
    pub fn place(&self, name: &str) -> io::Result<OverlayPlace> {
        let visible = self.root.join(name);
        let workspace = visible.join("workspace");
        let storage = self.root.join("storage").join(name);
        let base = storage.join("base");
        for dir in [&workspace, &base] {
            fs::create_dir_all(dir)?;
        }
        let (covered, read_only) = (self.covered.clone(), self.read_only.clone());
        let enclosure = Enclosure { covered, read_only, visible: visible.clone(), ..Enclosure::default() };
        let place = OverlayPlace {
            visible,
            workspace,
            storage,
            enclosure,
            mounts: 0,
            layers: None,
            is_mounted: false,
            is_busy: false,
        };
        // Read-only, so that no run leaves something beside its workspace for the next one.
        mounts::bind(&place.visible, &place.visible, true)?;
        mounts::share(&place.visible)?;
        mounts::bind(&base, &place.workspace, true)?;
        place.register(false)?;
        Ok(place)
    }
}

/// A path on which one overlay after the other is mounted. Below them is an empty read-only directory, in which warm
/// agents start.
#[derive(Debug)]
pub struct OverlayPlace {
    visible: PathBuf,
    workspace: PathBuf,
    storage: PathBuf,
    /// What agents see that start here.
    enclosure: Enclosure,
    /// The number of overlays so far.
    mounts: u64,
    /// The directories of the overlay that was mounted last.
    layers: Option<OverlayLayers>,
    is_mounted: bool,
    is_busy: bool,
}

impl OverlayPlace {
    /// Returns the path of the workspaces.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Mounts an overlay of a template. Agents that start here from now on start in the directory below it, or in the
    /// overlay itself if `starts_inside` is set.
    ///
    /// # Errors
    /// Fails if the overlay cannot be mounted.
    pub fn mount(&mut self, template: &Path, starts_inside: bool) -> io::Result<()> {
        self.clear();
        let upper = self.storage.join(format!("run-{}", self.mounts)).join("upper");
        fs::create_dir_all(&upper)?;
        fs::set_permissions(&upper, fs::metadata(template)?.permissions())?;
        self.layers = Some(OverlayLayers { template: canonicalize(template)?, upper });
        self.mount_layers()?;
        if starts_inside { self.register(true) } else { Ok(()) }
    }

    fn mount_layers(&mut self) -> io::Result<()> {
        let layers = self.layers.as_ref().ok_or(io::ErrorKind::NotFound)?;
        // The kernel does not use the work directory of a volatile overlay a second time.
        let work = layers.upper.with_file_name(format!("work-{}", self.mounts));
        self.mounts += 1;
        fs::create_dir_all(&work)?;
        mounts::overlay(&[&layers.template], &layers.upper, &work, &self.workspace)?;
        mounts::set_layers(&self.workspace, Some(layers.clone()));
        self.is_mounted = true;
        Ok(())
    }

    /// Mounts the overlay of the last run again, with what changed in it.
    ///
    /// # Errors
    /// Fails if there was no run, or if the overlay cannot be mounted.
    pub fn mount_again(&mut self) -> io::Result<()> {
        self.close_view();
        if self.is_mounted { Ok(()) } else { self.mount_layers() }
    }

    /// Returns the overlay that was mounted last as a copy of its template, whose changes can be read while it is mounted.
    ///
    /// # Errors
    /// Fails if nothing was mounted.
    pub fn copy(&self) -> io::Result<WorkspaceCopy> {
        let layers = self.layers.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(WorkspaceCopy::of_layers(&self.workspace, layers))
    }

    /// Looks for the covered paths as the agents see them that live here, and returns whether they find none of them,
    /// neither in their place nor in the workspace. `None` if no agent lives here.
    #[must_use]
    pub fn are_covered(&self) -> Option<bool> {
        mounts::are_covered(&self.workspace, &self.layers.as_ref()?.template)
    }

    /// Returns whether a process still used a workspace after its run. Its agent must then be replaced, and the place with
    /// it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Unmounts the overlay, and keeps what changed in it.
    ///
    /// # Errors
    /// Fails if the system refuses it.
    pub fn unmount(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_mounted) {
            mounts::set_layers(&self.workspace, None);
            self.is_busy |= !mounts::unmount(&self.workspace)?;
            self.register(false)?;
        }
        Ok(())
    }

    /// Mounts a second overlay with the files as the last run left them, where no agent sees it. Changes in it do not
    /// reach the files of the run. It ends with the next view.
    ///
    /// # Errors
    /// Fails if there was no run, or if the overlay cannot be mounted.
    pub fn view(&mut self) -> io::Result<PathBuf> {
        self.close_view();
        // The kernel does not define what happens if one directory is the upper layer of one mount and a lower layer of
        // another.
        self.unmount()?;
        let layers = self.layers.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let view = self.storage.join("view");
        let [at, upper, work] = ["workspace", "upper", "work"].map(|name| view.join(name));
        for dir in [&at, &upper, &work] {
            fs::create_dir_all(dir)?;
        }
        fs::set_permissions(&upper, fs::metadata(&layers.upper)?.permissions())?;
        mounts::overlay(&[&layers.upper, &layers.template], &upper, &work, &at)?;
        mounts::register(&at, self.enclosure_of_view(None))?;
        Ok(at)
    }

    /// Lets commands that start in the view from now on write nowhere else, except for temporary files of their own, which
    /// end with the view. No-op without a view.
    ///
    /// # Errors
    /// Fails if a directory cannot be created.
    pub fn seal_view(&self) -> io::Result<()> {
        let at = self.view_workspace();
        if mounts::enclosure(&at).is_none() {
            return Ok(());
        }
        let scratch = self.storage.join("view").join("tmp");
        fs::create_dir_all(&scratch)?;
        mounts::register(&at, self.enclosure_of_view(Some(scratch)))
    }

    fn view_workspace(&self) -> PathBuf {
        self.storage.join("view").join("workspace")
    }

    /// Returns what commands see that start in the view.
    fn enclosure_of_view(&self, scratch: Option<PathBuf>) -> Enclosure {
        Enclosure {
            visible: self.view_workspace(),
            // Links and scripts of the run may contain the path of its workspace.
            also_at: Some(self.workspace.clone()),
            starts_inside: true,
            scratch,
            ..self.enclosure.clone()
        }
    }

    /// Makes what the run changed readable for this user.
    pub fn make_readable(&self) {
        if let Some(layers) = &self.layers {
            let root = if self.is_mounted { &self.workspace } else { &layers.upper };
            make_tree_readable(root, &layers.upper);
        }
    }

    /// Ends the view and removes its files.
    pub fn close_view(&self) {
        let at = self.view_workspace();
        mounts::forget(&at);
        mounts::detach(&at);
        remove_tree(&self.storage.join("view"));
    }

    fn clear(&mut self) {
        self.close_view();
        // A workspace that is still in use is detached.
        let _ = self.unmount();
        if let Some(layers) = self.layers.take()
            && let Some(dir) = layers.upper.parent()
        {
            remove_tree(dir);
        }
    }

    fn register(&self, starts_inside: bool) -> io::Result<()> {
        mounts::register(&self.workspace, Enclosure { starts_inside, ..self.enclosure.clone() })
    }
}

impl Drop for OverlayPlace {
    fn drop(&mut self) {
        self.clear();
        mounts::forget(&self.workspace);
        mounts::detach(&self.workspace);
        mounts::detach(&self.visible);
        remove_tree(&self.visible);
        remove_tree(&self.storage);
    }
}

/// Returns whether a directory can be the template of an overlay: all files belong to this user, who could not change
/// other users' files in a user namespace, and no link leads from the overlay back to the template. None of the
/// `writable` directories, such as the user's home, is inside: an agent cannot write to a template. Blocks.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn fits_overlay(template: &Path, writable: &[&Path]) -> io::Result<bool> {
    let template = &canonicalize(template)?;
    if writable.iter().any(|dir| canonicalize(dir).is_ok_and(|dir| dir.starts_with(template))) {
        return Ok(false);
    }
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        if !mounts::owns(&fs::metadata(template.join(&dir))?) {
            return Ok(false);
        }
        for entry in fs::read_dir(template.join(&dir))? {
            let entry = entry?;
            let (path, metadata) = (dir.join(entry.file_name()), entry.metadata()?);
            if metadata.is_dir() {
                waiting.push(path);
            } else if !mounts::owns(&metadata) || !is_portable(template, &path, &metadata)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
