//! Directories that only their owner may enter, locked for as long as a process uses them.
//!
//! A directory is created under a name that no cleanup considers, locked, and then renamed to its final name. A
//! directory with a final name is therefore locked unless its owner is dead: locks end with their process however it
//! dies, even where process ids are ambiguous (containers that share a temporary directory).
//!
//! Owners hold *shared* locks, because the supervisor of an agent may hold one beside its host. An exclusive lock
//! proves that no owner is alive.

pub(crate) use agentline_fs::private_file::{create_dir_all, create_file, create_new, set_mode, write_new};

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The name prefix of the private directories of agent processes.
pub(crate) const PRIVATE: &str = "agentline-run-";
/// The name prefix of temporary workspaces.
pub(crate) const WORKSPACE: &str = "agentline-workspace-";
/// The name prefix of directories for attachments sent by another program.
pub(crate) const ATTACHMENTS: &str = "agentline-attachments-";
/// The name prefix of directories with the copies of a compared workspace.
pub(crate) const COMPARISON: &str = "agentline-compare-";
/// The name prefix of directories with the workspace of an isolated run.
pub(crate) const ISOLATED: &str = "agentline-isolated-";
/// The name prefix of directories that are not locked yet.
const UNLOCKED: &str = "agentline-new-";

/// The length of the random part of a name.
const ID_LENGTH: usize = 12;

/// A directory that is still unlocked at this age belongs to a process that died while creating it.
const ABANDONED: Duration = Duration::from_secs(600);

/// A private directory. It is removed on drop, or by another process after its owner is dead.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    path: PathBuf,
    /// `None` if the file system does not support locks. Only the owner removes the directory then.
    _lock: Option<File>,
}

impl PrivateDir {
    /// Creates a locked directory with mode 0700 and a new name, and removes directories whose owners are dead.
    pub(crate) fn create(parent: &Path, prefix: &str) -> io::Result<Self> {
        Self::create_at(new_path(parent, prefix))
    }

    /// Creates a locked directory like [`create`](Self::create), at a path of [`new_path`].
    pub(crate) fn create_at(path: PathBuf) -> io::Result<Self> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let new = tempfile::Builder::new().prefix(UNLOCKED).rand_bytes(ID_LENGTH).tempdir_in(parent)?;
        set_mode(new.path(), 0o700)?;
        let lock = open_lock(new.path()).ok().filter(|lock| lock.try_lock_shared().is_ok());
        fs::rename(new.path(), &path)?;
        // The directory was renamed, so nothing remains under the first name.
        let _moved = new.keep();
        let dir = Self { path, _lock: lock };
        remove_orphans(dir.path.parent().unwrap_or(Path::new("/")), &fs::symlink_metadata(&dir.path)?);
        Ok(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // A directory that cannot be removed now is removed by a later run.
        let _ = remove_tree(&self.path);
    }
}

/// Returns a new path for a private directory, which does not exist yet.
pub(crate) fn new_path(parent: &Path, prefix: &str) -> PathBuf {
    let id = uuid::Uuid::new_v4().simple().to_string();
    parent.join(format!("{prefix}{}", &id[..ID_LENGTH]))
}

/// Takes a shared lock on the private directory of another process, for a process that must outlive it. Returns `None`
/// if the directory is gone or cannot be locked.
#[cfg(unix)]
pub(crate) fn hold(path: &Path) -> Option<File> {
    open_lock(path).ok().filter(|lock| lock.try_lock_shared().is_ok())
}

/// Removes the private directory of a dead process. Ignores any other path, and does not follow links.
#[cfg(unix)]
pub(crate) fn remove_of_dead(path: &Path) {
    use std::path::Component;
    let is_ours = path.file_name().and_then(|name| name.to_str()).and_then(kind_of) == Some(true);
    let is_plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    if is_ours && is_plain && fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        // A directory that cannot be removed now is removed by a later run.
        let _ = remove_tree(path);
    }
}

/// Removes directories whose owners are dead. Only directories of the same user as `own` are considered.
fn remove_orphans(parent: &Path, own: &Metadata) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(is_locked_kind) = name.to_str().and_then(kind_of) else { continue };
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let is_old = || metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED));
        if !metadata.is_dir() || !same_owner(&metadata, own) || !(is_locked_kind || is_old()) {
            continue;
        }
        if let Ok(lock) = open_lock(&path)
            && lock.try_lock().is_ok()
        {
            // Links in the directory are removed, not followed.
            let _ = remove_tree(&path);
        }
    }
}

/// Returns whether directories with this name are locked while in use; `None` if the name is not one of agentline's.
fn kind_of(name: &str) -> Option<bool> {
    let is_id = |rest: &str| rest.len() == ID_LENGTH && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let rest = |prefix: &str| name.strip_prefix(prefix).filter(|rest| is_id(rest));
    if rest(UNLOCKED).is_some() {
        return Some(false);
    }
    [PRIVATE, WORKSPACE, ATTACHMENTS, COMPARISON, ISOLATED]
        .into_iter()
        .any(|prefix| rest(prefix).is_some())
        .then_some(true)
}

/// Removes a directory tree, including read-only directories. Links are removed, not followed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(path);
            fs::remove_dir_all(path)
        }
        result => result,
    }
}

fn make_writable(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        // A failure here makes the removal fail, which is reported.
        let _ = set_mode(path, 0o700);
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            make_writable(&entry.path());
        }
    }
}

/// Opens the directory itself for locking, so that removing a file in it cannot end the lock.
#[cfg(unix)]
fn open_lock(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Opens a lock file in the directory, which cannot be removed while it is open. Not tested.
#[cfg(not(unix))]
fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path.join(".lock"))
}

#[cfg(unix)]
fn same_owner(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    one.uid() == other.uid()
}

#[cfg(not(unix))]
fn same_owner(_one: &Metadata, _other: &Metadata) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(parent: &Path) -> Vec<String> {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_abandoned_private_directories_are_removed_without_following_links() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        fs::create_dir_all(at("users")).unwrap();
        fs::write(at("users/kept"), "").unwrap();
        fs::create_dir_all(at("agentline-run-000000000001/inner")).unwrap();
        symlink(at("users"), at("agentline-run-000000000001/link")).unwrap();
        symlink(at("users"), at("agentline-run-000000000002")).unwrap();
        fs::create_dir_all(at("agentline-run-mine/inner")).unwrap();
        for name in [
            "agentline-run-000000000001/../users",
            "agentline-run-000000000001",
            "agentline-run-000000000002",
            "agentline-run-000000000003",
            "agentline-run-mine",
            "users",
        ] {
            remove_of_dead(&at(name));
        }
        assert_eq!(names(parent.path()), ["agentline-run-000000000002", "agentline-run-mine", "users"]);
        assert!(at("users/kept").exists());
    }

    #[test]
    fn abandoned_directory_is_removed_and_its_link_targets_kept() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        fs::create_dir(at("users")).unwrap();
        fs::write(at("users/settings.json"), "{}").unwrap();
        for name in ["agentline-run-AbCdEf012345", "agentline-workspace-AbCdEf012345"] {
            fs::create_dir_all(at(name).join("given")).unwrap();
            fs::write(at(name).join("given/rules"), "").unwrap();
            symlink(at("users"), at(name).join("link")).unwrap();
            set_mode(&at(name).join("given"), 0o500).unwrap();
        }
        // These are too new, belong to another program or version, or are not directories.
        for name in ["agentline-new-AbCdEf012345", "agentline-run-7-AbCdEf", "agentline-run-mine", "other"] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink(at("users"), at("agentline-run-AbCdEf000000")).unwrap();
        let first = PrivateDir::create(parent.path(), PRIVATE).unwrap();
        let second = PrivateDir::create(parent.path(), WORKSPACE).unwrap();
        assert!(first.path().exists() && second.path().exists(), "a live owner's directory stays");
        assert!(at("users/settings.json").exists());
        drop((first, second));
        assert_eq!(
            names(parent.path()),
            [
                "agentline-new-AbCdEf012345",
                "agentline-run-7-AbCdEf",
                "agentline-run-AbCdEf000000",
                "agentline-run-mine",
                "other",
                "users"
            ]
        );
    }

    #[test]
    fn directory_is_kept_while_it_is_in_use() {
        let parent = tempfile::tempdir().unwrap();
        let owned = PrivateDir::create(parent.path(), PRIVATE).unwrap();
        let path = owned.path().to_owned();
        let supervisor_lock = hold(&path).unwrap();
        // Simulate an owner that dies without cleaning up.
        let PrivateDir { _lock: lock, .. } = &*std::mem::ManuallyDrop::new(owned);
        lock.as_ref().unwrap().unlock().unwrap();
        drop(PrivateDir::create(parent.path(), PRIVATE).unwrap());
        assert!(path.exists(), "the supervisor still uses it");
        drop(supervisor_lock);
        // A process that another test starts shares the lock until it executes its program.
        let started_at = std::time::Instant::now();
        while path.exists() {
            assert!(started_at.elapsed().as_secs() < 60, "it is not removed");
            drop(PrivateDir::create(parent.path(), PRIVATE).unwrap());
        }
    }
}
