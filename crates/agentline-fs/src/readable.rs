//! Makes files readable that an agent may have protected.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Gives the owner of a file the permission to read it, and of a directory also to list and change it. Links stay as they
/// are, and so does everything on systems without such permissions.
///
/// # Errors
/// Fails if there is no file, or if it belongs to another user.
pub fn make_readable(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let found = fs::symlink_metadata(path)?;
        let wanted = if found.is_dir() { 0o700 } else { 0o400 };
        let mode = found.permissions().mode() & 0o7777;
        if (found.is_dir() || found.is_file()) && mode & wanted != wanted {
            fs::set_permissions(path, fs::Permissions::from_mode(mode | wanted))?;
        }
    }
    #[cfg(not(unix))]
    fs::symlink_metadata(path)?;
    Ok(())
}

/// Makes the files and directories below `root` readable that `listed`, a directory with the same names, has. Both may be
/// the same directory.
pub fn make_tree_readable(root: &Path, listed: &Path) {
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        // Files of other users stay as they are.
        let _ = make_readable(&root.join(&dir));
        for entry in fs::read_dir(listed.join(&dir)).into_iter().flatten().flatten() {
            let path = dir.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_file() => _ = make_readable(&root.join(&path)),
                _ => {}
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn protected_files_become_readable() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let set = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        fs::create_dir_all(at("w/dir")).unwrap();
        for name in ["w/dir/inner.txt", "w/out.txt", "w/run.sh", "outside.txt"] {
            fs::write(at(name), "x").unwrap();
        }
        symlink(at("outside.txt"), at("w/link")).unwrap();
        for (name, mode) in [
            ("w/dir/inner.txt", 0),
            ("w/dir", 0),
            ("w/out.txt", 0),
            ("w/run.sh", 0o755),
            ("w", 0),
            ("outside.txt", 0o200),
        ] {
            set(name, mode);
        }
        make_tree_readable(&at("w"), &at("w"));
        assert_eq!(
            ["w", "w/dir", "w/dir/inner.txt", "w/out.txt", "w/run.sh", "outside.txt"].map(mode),
            [0o700, 0o700, 0o400, 0o400, 0o755, 0o200]
        );
    }
}
