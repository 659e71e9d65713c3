//! Compares projects by path, even if a path is a link or only its digest is known.

use crate::candidate::SessionCandidate;
use agentline_core::{FileSystem as _, ProjectRef};
use agentline_fs::{
    digest::{digest, hex},
    disk_fs::DiskFs,
};
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

/// The project that a caller asks for.
#[derive(Debug)]
pub(crate) struct ProjectFilter {
    /// The requested path, and the same path with links resolved.
    spellings: Vec<PathBuf>,
    digests: Vec<String>,
}

impl ProjectFilter {
    pub(crate) fn new(path: &Path) -> Self {
        let mut spellings = vec![tidy(path)];
        // A project that no longer exists has only its requested path.
        if let Some(real) = real(path).filter(|real| *real != spellings[0]) {
            spellings.push(real);
        }
        let digests = spellings.iter().map(|path| path_digest(path)).collect();
        Self { spellings, digests }
    }

    /// Returns whether `project` is this project. `real` caches resolved links.
    pub(crate) fn is(&self, project: &ProjectRef, real: &mut RealPaths) -> bool {
        match project {
            ProjectRef::Path(path) => {
                let path = tidy(path);
                self.spellings.contains(&path) || real.of(&path).is_some_and(|p| self.spellings.contains(p))
            }
            ProjectRef::Sha256(digest) => self.digests.contains(digest),
            _ => false,
        }
    }
}

/// A cache of resolved paths.
#[derive(Debug, Default)]
pub(crate) struct RealPaths(HashMap<PathBuf, Option<PathBuf>>);

impl RealPaths {
    fn of(&mut self, path: &Path) -> Option<&PathBuf> {
        if !self.0.contains_key(path) {
            self.0.insert(path.to_owned(), real(path));
        }
        self.0.get(path).and_then(Option::as_ref)
    }
}

/// Project paths by digest. Old versions of agents name session directories after the digest.
#[derive(Debug, Default)]
pub(crate) struct Digests(HashMap<String, PathBuf>);

impl Digests {
    /// Returns the digests of all candidates' project paths, or none if no candidate needs them.
    pub(crate) fn of(candidates: &[SessionCandidate]) -> Self {
        let mut digests = Self::default();
        let projects = || candidates.iter().filter_map(|candidate| candidate.project.as_ref());
        if projects().any(|project| matches!(project, ProjectRef::Sha256(_))) {
            let mut seen = HashSet::new();
            for project in projects() {
                if let ProjectRef::Path(path) = project
                    && seen.insert(path)
                {
                    digests.add(path);
                }
            }
        }
        digests
    }

    pub(crate) fn add(&mut self, path: &Path) {
        self.0.entry(path_digest(path)).or_insert_with(|| path.to_owned());
    }

    pub(crate) fn path(&self, digest: &str) -> Option<&Path> {
        self.0.get(digest).map(PathBuf::as_path)
    }
}

fn real(path: &Path) -> Option<PathBuf> {
    DiskFs.canonical(path)
}

/// Removes `.` components and trailing slashes, and lowercases the path on Windows.
fn tidy(path: &Path) -> PathBuf {
    let plain: PathBuf = path.components().collect();
    if cfg!(windows) { PathBuf::from(plain.to_string_lossy().to_lowercase()) } else { plain }
}

/// Returns the digest of a path as agents write it in names.
fn path_digest(path: &Path) -> String {
    hex(&digest(path.to_string_lossy().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_is_recognized_by_path_link_and_digest() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        let project = base.join("project");
        std::fs::create_dir(&project).unwrap();
        let mut known = RealPaths::default();
        let mut same =
            |requested: &Path, stored: ProjectRef| ProjectFilter::new(requested).is(&stored, &mut known);
        assert!(same(&project, ProjectRef::Path(project.clone())));
        assert!(same(&project.join("."), ProjectRef::Path(project.join(""))));
        assert!(!same(&project, ProjectRef::Path(base.clone())));
        assert!(same(&project, ProjectRef::Sha256(path_digest(&project))));
        assert!(!same(&base, ProjectRef::Sha256(path_digest(&project))));
        let missing = base.join("gone");
        assert!(same(&missing, ProjectRef::Path(missing.clone())), "a project that no longer exists");
        assert!(same(&missing, ProjectRef::Sha256(path_digest(&missing))));
        #[cfg(unix)]
        {
            let link = base.join("link");
            std::os::unix::fs::symlink(&project, &link).unwrap();
            assert!(same(&link, ProjectRef::Path(project.clone())));
            assert!(
                same(&project, ProjectRef::Path(link.clone())),
                "a session stored under the path of the link"
            );
            assert!(same(&link, ProjectRef::Sha256(path_digest(&project))));
            assert!(same(&link, ProjectRef::Sha256(path_digest(&link))));
        }
    }

    #[test]
    fn digest_matches_old_versions() {
        assert_eq!(
            path_digest(Path::new("/")),
            "8a5edab282632443219e051e4ade2d1d5bbc671c781051bf1437897cbdfea0f1"
        );
    }
}
