//! Resolves the links of a path, even if its last components do not exist.

use std::{
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// How many links are resolved before the path counts as a loop; the same limit as on Linux.
const MAX_LINKS: usize = 40;

/// Returns the path with all links, `.` and `..` resolved. Components that do not exist are kept as they are.
pub(super) fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::new();
    // A stack: the next component is the last element.
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
        if links > MAX_LINKS {
            return Err(io::Error::other("too many symbolic links"));
        }
        // If the link has disappeared in the meantime, treat it as a plain name.
        let Ok(target) = fs::read_link(&real) else { continue };
        real.pop();
        names.extend(reversed(&target, &mut real));
    }
    Ok(real)
}

/// Returns whether a path resolves differently in another process, such as one through `/proc/self` or a file
/// descriptor.
pub(super) fn depends_on_process(path: &Path) -> bool {
    let below = |folder: &str| path.starts_with(folder);
    below("/proc") || below("/dev/fd") || ["/dev/stdin", "/dev/stdout", "/dev/stderr"].into_iter().any(below)
}

/// Returns the components of a path in reverse order. Appends its root or prefix to `start`.
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
