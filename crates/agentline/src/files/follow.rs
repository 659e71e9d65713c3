//! Follows a path link by link to where it leads, also where its end is not there yet.

use std::{
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// How many links are followed before it counts as a circle; the same as on Linux.
const MOST_LINKS: usize = 40;

/// The path behind every link, without `.` and `..`. What is not there cannot be a link, so it stays as it is.
pub(super) fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::new();
    // The next name is the last one.
    let mut names: Vec<OsString> = reversed(path, &mut real);
    let mut links = 0;
    while let Some(name) = names.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        real.push(&name);
        let is_link = fs::symlink_metadata(&real).is_ok_and(|meta| meta.is_symlink());
        if !is_link {
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("its links lead in a circle"));
        }
        // It may be gone again; then it is a name like any other.
        let Ok(target) = fs::read_link(&real) else { continue };
        real.pop();
        names.extend(reversed(&target, &mut real));
    }
    Ok(real)
}

/// Whether a path leads elsewhere for another process: through `/proc/self`, a file descriptor or the like.
pub(super) fn depends_on_process(path: &Path) -> bool {
    let below = |folder: &str| path.starts_with(folder);
    below("/proc") || below("/dev/fd") || ["/dev/stdin", "/dev/stdout", "/dev/stderr"].into_iter().any(below)
}

/// The names of a path, the last one first. What stands before them becomes the place to begin at.
fn reversed(path: &Path, start: &mut PathBuf) -> Vec<OsString> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Prefix(_) | Component::RootDir => start.push(component),
            Component::CurDir => {}
            Component::ParentDir => names.push("..".into()),
            Component::Normal(name) => names.push(name.into()),
        }
    }
    names.reverse();
    names
}
