//! Files and directories that only their owner may read.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// Creates a directory and its missing parents, all with mode 0700.
///
/// # Errors
/// Fails if a directory cannot be created.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Opens a file for writing and truncates it. A new file gets mode 0600; an existing file keeps its mode.
///
/// # Errors
/// Fails if the file cannot be opened for writing.
pub fn create_file(path: &Path) -> io::Result<File> {
    private_options().create(true).truncate(true).open(path)
}

/// Creates a file with mode 0600 that must not exist.
///
/// # Errors
/// Fails if the file exists or cannot be created.
pub fn create_new(path: &Path) -> io::Result<File> {
    private_options().create_new(true).open(path)
}

/// Writes a new file with mode 0600.
///
/// # Errors
/// Fails if the file exists or cannot be written.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    create_new(path)?.write_all(content)
}

fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Sets the permission bits; no-op on systems without them.
///
/// # Errors
/// Fails if the mode cannot be changed.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    #[cfg(not(unix))]
    let _ = (path, mode);
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn file_modes_do_not_depend_on_the_umask() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        create_dir_all(&at("a/b")).unwrap();
        write_new(&at("a/new"), b"x").unwrap();
        drop(create_file(&at("a/created")).unwrap());
        fs::write(at("a/existing"), "").unwrap();
        set_mode(&at("a/existing"), 0o644).unwrap();
        drop(create_file(&at("a/existing")).unwrap());
        assert_eq!([mode(&at("a")), mode(&at("a/b"))], [0o700; 2]);
        assert_eq!(
            [mode(&at("a/new")), mode(&at("a/created")), mode(&at("a/existing"))],
            [0o600, 0o600, 0o644]
        );
        assert!(write_new(&at("a/new"), b"y").is_err());
    }
}
