//! Artifacts in a directory that all machines share.

use super::{check_size, checked};
use crate::{ArtifactFuture, ArtifactVisitor, Artifacts, MAX_ARTIFACT, QueueError, artifact_name};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the names of files begin that are being written.
const UNFINISHED: &str = ".artifact-";

/// The age at which a file that is being written counts as left by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// How often an artifact is written again if another process removes the empty directory for it.
const TRIES: u32 = 5;

/// The parts of the mode of the shared directory that its directories and files get. Whoever may use it may use them, so
/// submitters and workers can be different users.
const MODE_OF_DIRECTORIES: u32 = 0o2777;
const MODE_OF_FILES: u32 = 0o666;

/// Artifacts in a directory that all machines share. An artifact is the file `EXPERIMENT/NA/NAME`, where `NA` are the first
/// characters of its name.
#[derive(Clone, Debug)]
pub struct DirectoryArtifacts {
    root: PathBuf,
}

impl DirectoryArtifacts {
    /// Uses a directory, and creates it if necessary.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn new(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        Ok(Self { root: root.to_owned() })
    }

    fn place(&self, experiment: &str, name: &str) -> Result<ArtifactPlace, QueueError> {
        crate::check_part(experiment)?;
        crate::check_name(name)?;
        let experiment = self.root.join(experiment);
        let group = experiment.join(name.get(..2).unwrap_or("00"));
        let file = group.join(name);
        Ok(ArtifactPlace { root: self.root.clone(), experiment, group, file })
    }
}

/// Where an artifact is.
#[derive(Debug)]
struct ArtifactPlace {
    root: PathBuf,
    experiment: PathBuf,
    group: PathBuf,
    file: PathBuf,
}

impl ArtifactPlace {
    /// Reads the file, and no more than the largest artifact has; `None` if it is not there.
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match fs::File::open(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut content = Vec::new();
        // What is cut off is detected by the digest.
        file.take(MAX_ARTIFACT as u64 + 1).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    /// Writes the file. After a power failure, it is complete or not there.
    fn write(&self, content: &[u8]) -> io::Result<()> {
        let shared = fs::metadata(&self.root)?;
        create_dir(&self.experiment, &shared)?;
        create_dir(&self.group, &shared)?;
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.experiment)?;
        file.write_all(content)?;
        share(file.path(), &shared, MODE_OF_FILES);
        file.as_file().sync_all()?;
        file.persist(&self.file).map_err(|error| error.error)?;
        Ok(())
    }

    /// Writes the file unless it is there. One with another content was damaged, and is replaced.
    fn store(&self, content: &[u8]) -> io::Result<()> {
        if self.read().is_ok_and(|stored| stored.as_deref() == Some(content)) {
            return Ok(());
        }
        let mut written = self.write(content);
        for _ in 1..TRIES {
            if !written.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                break;
            }
            written = self.write(content);
        }
        written
    }

    /// Removes the file, and the directories that are empty then.
    fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if fs::remove_dir(&self.group).is_ok() {
            remove_abandoned(&self.experiment);
            // It has other artifacts, or another process is writing one.
            let _ = fs::remove_dir(&self.experiment);
        }
        Ok(())
    }
}

/// Creates a directory with the mode and the group of the shared one. It has its name only when it has them.
fn create_dir(path: &Path, shared: &Metadata) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(path);
    let dir = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(parent)?;
    share(dir.path(), shared, MODE_OF_DIRECTORIES);
    match fs::rename(dir.path(), path) {
        Ok(()) => drop(dir.keep()),
        // Another process has created it.
        Err(_) if path.is_dir() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Gives a file or directory the mode and the group of the shared directory, as far as this user may do that.
#[cfg(unix)]
fn share(path: &Path, shared: &Metadata, mask: u32) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    if fs::metadata(path).is_ok_and(|file| file.gid() != shared.gid()) {
        let _ = chown(path, None, Some(shared.gid()));
    }
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(shared.mode() & mask));
}

/// On this system, files inherit the permissions of their directory.
#[cfg(not(unix))]
fn share(_: &Path, _: &Metadata, _: u32) {}

/// Removes what processes left in the directory of an experiment that were killed while they wrote an artifact.
fn remove_abandoned(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
        let age = entry.metadata().and_then(|file| file.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_unfinished && age.is_some_and(|age| age > ABANDONED) {
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir(entry.path()));
        }
    }
}

/// Returns the paths of the directories in a directory; none if it is not there.
fn directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = entries(path)?;
    Ok(entries.into_iter().filter(|path| path.is_dir()).collect())
}

/// Returns the paths in a directory; none if it is not there.
fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Returns the error of a request. Some errors stay until somebody changes the directory.
fn failed(path: &Path, error: &io::Error) -> QueueError {
    let message = format!("`{}`: {error}", path.display());
    match error.kind() {
        ErrorKind::PermissionDenied
        | ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory => QueueError::Storage(message),
        _ => QueueError::Unavailable(message),
    }
}

/// Uses the directory on a thread that may block: a network file system may not answer.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, QueueError> {
    let result = tokio::task::spawn_blocking(work).await;
    let result = result.map_err(|error| QueueError::Unavailable(error.to_string()))?;
    result.map_err(|error| failed(&path, &error))
}

impl Artifacts for DirectoryArtifacts {
    fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String> {
        Box::pin(async move {
            check_size(content)?;
            let name = artifact_name(content);
            let place = self.place(experiment, &name)?;
            let content = content.to_vec();
            blocking(place.file.clone(), move || place.store(&content)).await?;
            Ok(name)
        })
    }

    fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let place = self.place(experiment, name)?;
            let content = blocking(place.file.clone(), move || place.read()).await?;
            content.map(|content| checked(name, content)).transpose()
        })
    }

    fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool> {
        Box::pin(async move {
            match self.get(experiment, name).await {
                Ok(content) => Ok(content.is_some()),
                // It is stored again.
                Err(QueueError::Damaged(_)) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn for_each_name<'a>(
        &'a self,
        experiment: &'a str,
        visit: ArtifactVisitor<'a>,
    ) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            crate::check_part(experiment)?;
            let dir = self.root.join(experiment);
            for group in blocking(dir.clone(), move || directories(&dir)).await? {
                let files = blocking(group.clone(), move || entries(&group)).await?;
                let names = files.iter().filter_map(|file| file.file_name()?.to_str());
                // Another program may have stored anything here.
                names.filter(|name| name.len() == 64).for_each(&mut *visit);
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            let place = self.place(experiment, name)?;
            blocking(place.file.clone(), move || place.remove()).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(dir: &Path) -> DirectoryArtifacts {
        DirectoryArtifacts::new(&dir.join("shared")).expect("a directory")
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn artifacts_have_the_mode_of_the_shared_directory() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let dir = tempfile::tempdir().expect("a directory");
        let artifacts = store(dir.path());
        for (mode, of_directories, of_files) in
            [(0o2770, 0o2770, 0o660), (0o700, 0o700, 0o600), (0o1777, 0o777, 0o666)]
        {
            fs::set_permissions(&artifacts.root, fs::Permissions::from_mode(mode)).expect("a mode");
            let experiment = format!("e{mode:o}");
            let name = artifacts.put(&experiment, b"content").await.expect("an artifact");
            let place = artifacts.place(&experiment, &name).expect("a place");
            let mode = |path: &Path| fs::metadata(path).expect("a file").mode() & 0o7777;
            assert_eq!(mode(&place.experiment), of_directories);
            assert_eq!(mode(&place.group), of_directories);
            assert_eq!(mode(&place.file), of_files);
        }
    }

    #[tokio::test]
    async fn damaged_artifact_is_stored_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let artifacts = store(dir.path());
        let name = artifacts.put("e", b"content").await.expect("an artifact");
        let place = artifacts.place("e", &name).expect("a place");
        for damaged in [&b""[..], b"contest"] {
            fs::write(&place.file, damaged).expect("a file");
            let read = artifacts.get("e", &name).await;
            assert!(matches!(read, Err(QueueError::Damaged(_))), "{read:?}");
            assert!(!artifacts.has("e", &name).await.expect("an answer"));
            artifacts.put("e", b"content").await.expect("an artifact");
            assert_eq!(artifacts.get("e", &name).await.expect("an answer").expect("it"), b"content");
        }
    }

    #[tokio::test]
    async fn removed_artifacts_leave_no_directories_and_no_old_unfinished_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let artifacts = store(dir.path());
        let (first, second) = (artifacts.put("e", b"1").await, artifacts.put("e", b"2").await);
        let names = [first.expect("an artifact"), second.expect("an artifact")];
        let unfinished = artifacts.root.join("e").join(format!("{UNFINISHED}x"));
        let file = fs::File::create(&unfinished).expect("a file");
        artifacts.remove("e", &names[0]).await.expect("removed");
        assert!(unfinished.exists(), "another process may be writing it");
        let old = std::time::SystemTime::now() - 2 * ABANDONED;
        file.set_modified(old).expect("a time");
        assert_eq!(artifacts.names("e").await.expect("names"), [names[1].clone()]);
        artifacts.remove("e", &names[1]).await.expect("removed");
        assert!(!artifacts.root.join("e").exists());
        artifacts.remove("e", &names[1]).await.expect("removing it again has no effect");
        assert_eq!(artifacts.names("e").await.expect("no names"), [""; 0]);
        artifacts.put("e", b"1").await.expect("an artifact");
    }

    #[tokio::test]
    async fn directory_that_cannot_be_used_is_no_temporary_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let artifacts = store(dir.path());
        let name = artifacts.put("e", b"content").await.expect("an artifact");
        fs::remove_dir_all(&artifacts.root).expect("removed");
        fs::write(&artifacts.root, "no directory").expect("a file");
        let (read, written) = (artifacts.get("e", &name).await, artifacts.put("e", b"content").await);
        for error in [read.expect_err("no directory"), written.expect_err("no directory")] {
            assert!(matches!(error, QueueError::Storage(_)), "{error:?}");
            assert!(!error.is_temporary());
        }
        let listed = artifacts.names("e").await;
        assert!(matches!(listed, Err(QueueError::Storage(_))), "{listed:?}");
    }
}
