//! Whether a copy of the files of a run fits on the disk, and whether it would have fit without what the agent added.

use std::io;
use std::path::{Path, PathBuf};

/// The size of all files below a directory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TreeSize {
    /// The sum of their lengths, which a copy can take.
    length: u64,
    /// What they take on the disk, which is less for a sparse file.
    allocated: u64,
}

impl TreeSize {
    fn of(root: &Path) -> io::Result<Self> {
        let mut size = Self::default();
        let mut waiting: Vec<PathBuf> = vec![root.to_owned()];
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(&dir)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    waiting.push(entry.path());
                } else if metadata.is_file() {
                    size.length = size.length.saturating_add(metadata.len());
                    size.allocated = size.allocated.saturating_add(allocated(&metadata));
                }
            }
        }
        Ok(size)
    }
}

#[cfg(unix)]
fn allocated(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata).saturating_mul(512)
}

#[cfg(not(unix))]
fn allocated(metadata: &std::fs::Metadata) -> u64 {
    metadata.len()
}

/// Checks that a copy of the files of a run fits into `free` bytes. `template` has the files with which the run began;
/// `None` if they are not known.
///
/// # Errors
/// Fails with `FileTooLarge` if the copy would fit without what the agent added, and with `StorageFull` otherwise.
pub(super) fn check_fits(files: &Path, template: Option<&Path>, free: Option<u64>) -> io::Result<()> {
    let Some(free) = free else { return Ok(()) };
    let size = TreeSize::of(files)?;
    if size.length <= free {
        return Ok(());
    }
    let is_of_the_agent = match template.map(TreeSize::of).transpose()? {
        Some(before) => before.length <= free.saturating_add(size.allocated.saturating_sub(before.allocated)),
        None => false,
    };
    let kind = if is_of_the_agent { io::ErrorKind::FileTooLarge } else { io::ErrorKind::StorageFull };
    let message = format!("they have {} bytes, and the disk has {free} bytes free", size.length);
    Err(io::Error::new(kind, message))
}

/// Returns the free space for files in a directory in bytes, if the system tells.
#[cfg(unix)]
pub(super) fn free_space(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Returns the free space for files in a directory in bytes, if the system tells.
#[cfg(not(unix))]
pub(super) fn free_space(_dir: &Path) -> Option<u64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn copy_that_does_not_fit_is_the_fault_of_whoever_made_it_too_large() {
        let dir = tempfile::tempdir().expect("a directory");
        let [template, sparse, large] = ["template", "sparse", "large"].map(|name| dir.path().join(name));
        for root in [&template, &sparse, &large] {
            std::fs::create_dir_all(root.join("dir")).expect("a directory");
            std::fs::write(root.join("dir/in.txt"), vec![1; 100_000]).expect("a file");
        }
        let file = std::fs::File::create(sparse.join("dir/big")).expect("a file");
        file.set_len(1 << 30).expect("a sparse file");
        std::fs::write(large.join("big"), vec![1; 1_000_000]).expect("a file");
        let kind = |files: &Path, template: Option<&Path>, free: u64| {
            check_fits(files, template, Some(free)).map_err(|error| error.kind())
        };
        let known = Some(template.as_path());
        for (files, template, free, expected) in [
            (&template, known, 100_000, Ok(())),
            (&template, known, 99_999, Err(io::ErrorKind::StorageFull)),
            (&sparse, known, 2 << 30, Ok(())),
            (&sparse, known, 1 << 20, Err(io::ErrorKind::FileTooLarge)),
            // The files of the template would not fit either.
            (&sparse, known, 50_000, Err(io::ErrorKind::StorageFull)),
            // What the agent wrote is on the disk, so it took the space.
            (&large, known, 50_000, Err(io::ErrorKind::FileTooLarge)),
            (&large, None, 50_000, Err(io::ErrorKind::StorageFull)),
        ] {
            assert_eq!(kind(files, template, free), expected, "{} {free}", files.display());
        }
        assert!(check_fits(&sparse, known, None).is_ok(), "the free space is not known");
        assert!(free_space(dir.path()).is_some_and(|free| free > 0));
    }
}
