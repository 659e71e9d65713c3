//! Resolves paths, and the paths in rules, relative to the workspace.

use crate::policy::glob::Glob;
use serde::Serialize;

/// The longest path that is compared with patterns, in bytes.
const MAX_PATH: usize = 16 << 10;

/// The real location of a path that an agent named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResolvedPath {
    /// The absolute path without `..`. Links are followed as far as the path exists.
    pub path: String,
    /// The path relative to the workspace, if it is inside. Empty for the workspace itself.
    pub from_workspace: Option<String>,
    /// Whether the path is in the workspace or in another directory that tools may use.
    pub inside: bool,
    /// Whether the location depends on the process that follows the path, as with `/proc/self/cwd`.
    pub unclear: bool,
    /// Whether the file has more than one name.
    pub hard_linked: bool,
    /// The other names of the file in the workspace, relative to it.
    pub other_names: Vec<String>,
    /// Whether the file has names that were not found.
    pub has_unknown_names: bool,
}

impl ResolvedPath {
    /// Creates a location in the workspace from its absolute path and its path relative to the workspace.
    #[must_use]
    pub fn in_workspace(path: impl Into<String>, from_workspace: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            from_workspace: Some(from_workspace.into()),
            inside: true,
            ..Self::default()
        }
    }

    /// Creates a location in another directory that tools may use.
    #[must_use]
    pub fn included(path: impl Into<String>) -> Self {
        Self { path: path.into(), inside: true, ..Self::default() }
    }

    /// Creates a location outside these directories, or one that is not known.
    #[must_use]
    pub fn outside(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Creates a location that differs between the agent and this process.
    #[must_use]
    pub fn unclear(path: impl Into<String>) -> Self {
        Self { path: path.into(), unclear: true, ..Self::default() }
    }

    /// Returns the canonical path by which rules and commands name a program.
    pub(super) fn program(self) -> String {
        self.from_workspace.map_or(self.path, |path| format!("./{path}"))
    }

    /// Adds the other names of a hard-linked file: those in the workspace, and whether there are more.
    #[must_use]
    pub fn linked(mut self, other_names: Vec<String>, has_unknown_names: bool) -> Self {
        self.hard_linked = true;
        (self.other_names, self.has_unknown_names) = (other_names, has_unknown_names);
        self
    }
}

/// The workspace and the included directories, as written.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkspaceRoots {
    /// Every path of the workspace; the caller's comes first.
    pub(super) workspace: Vec<String>,
    pub(super) included: Vec<String>,
}

impl WorkspaceRoots {
    /// Resolves a path without following links.
    pub(super) fn resolve(&self, path: &str) -> ResolvedPath {
        let root = self.workspace.first().map_or("", String::as_str);
        let path = absolute(root, path);
        for root in &self.workspace {
            if let Some(rest) = below(&path, root) {
                return ResolvedPath::in_workspace(path.clone(), rest);
            }
        }
        if self.included.iter().any(|root| below(&path, root).is_some()) {
            return ResolvedPath::included(path);
        }
        ResolvedPath::outside(path)
    }
}

/// The path pattern of a rule.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    glob: Glob,
    /// Whether it starts at the root instead of the workspace.
    pub(super) absolute: bool,
    /// Whether it starts with `**`, which matches any location in a `deny` rule.
    anywhere: bool,
    /// The number of literal characters.
    pub(super) length: usize,
}

impl PathPattern {
    /// Parses the path of a rule. Returns `None` if its `..` cannot be resolved.
    pub(super) fn read(text: &str, roots: &WorkspaceRoots) -> Option<Self> {
        let text = slashes(text);
        let mut text = text.as_str();
        while let Some(rest) = text.strip_prefix("./") {
            text = rest;
        }
        let root = roots.workspace.first().map_or("", String::as_str);
        let climbs = text.split('/').any(|part| part == "..");
        let whole = if climbs {
            let before = text.rsplit_once("..").map_or("", |(before, _)| before);
            if before.contains(['*', '?']) {
                return None;
            }
            let folder = if text.ends_with('/') { "/" } else { "" };
            format!("{}{folder}", absolute(root, text))
        } else {
            text.to_owned()
        };
        let inside = roots.workspace.iter().find_map(|root| below(&whole, root));
        let (text, absolute) = match inside {
            Some(rest) => (rest, false),
            None => (whole.as_str(), is_absolute(&whole)),
        };
        Some(Self {
            glob: Glob::path(text),
            absolute,
            anywhere: !absolute && text.starts_with("**"),
            length: text.chars().filter(|c| !matches!(c, '*' | '?')).count(),
        })
    }

    /// Returns whether an `allow` rule covers the real location of a path.
    pub(super) fn permits(&self, at: &ResolvedPath) -> bool {
        // Another name of a hard-linked file may be outside the pattern.
        if at.unclear || at.hard_linked || at.path.len() > MAX_PATH {
            return false;
        }
        if self.absolute {
            return self.glob.fits(&slashes(&at.path), false);
        }
        at.from_workspace.as_deref().is_some_and(|path| self.glob.fits(&slashes(path), false))
    }

    /// Returns whether a `deny` rule covers a path, by its real location or as written.
    pub(super) fn refuses(&self, at: &ResolvedPath, spelled: &ResolvedPath) -> bool {
        // On case-insensitive systems, a `deny` rule ignores case.
        let fold = cfg!(any(windows, target_os = "macos"));
        let too_long = at.path.len() > MAX_PATH || spelled.path.len() > MAX_PATH;
        if at.unclear || too_long || (at.has_unknown_names && (self.absolute || self.anywhere)) {
            return true;
        }
        if !self.absolute && at.other_names.iter().any(|name| self.glob.fits(name, fold)) {
            return true;
        }
        [at, spelled].into_iter().any(|location| {
            let whole = (self.absolute || self.anywhere).then_some(location.path.as_str());
            let part = location.from_workspace.as_deref().filter(|_| !self.absolute);
            whole
                .into_iter()
                .chain(part)
                .any(|path| self.glob.fits(path, fold) || self.glob.fits(&path.replace('\\', "/"), fold))
        })
    }
}

/// Returns the path relative to a directory, if it is the directory or inside it.
pub(super) fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let folder = folder.trim_end_matches('/');
    if folder.is_empty() {
        return path.strip_prefix('/');
    }
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// Returns the absolute path without `.` and `..`, without following links.
pub(super) fn absolute(root: &str, path: &str) -> String {
    let path = slashes(path);
    let whole = if is_absolute(&path) { path } else { format!("{root}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let drive = if cfg!(windows) && is_drive(&whole) { "" } else { "/" };
    format!("{drive}{}", parts.join("/"))
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || (cfg!(windows) && is_drive(path))
}

fn is_drive(path: &str) -> bool {
    path.get(1..3).is_some_and(|d| d == ":/")
}

/// Returns the path with `/` as its separator.
pub(super) fn slashes(path: &str) -> String {
    if cfg!(windows) { path.replace('\\', "/") } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> WorkspaceRoots {
        WorkspaceRoots { workspace: vec!["/ws".into(), "/real/ws".into()], included: vec!["/inc".into()] }
    }

    #[test]
    fn paths_are_resolved_from_the_workspace() {
        for (path, from_workspace, inside) in [
            ("a", Some("a"), true),
            ("./a/../b", Some("b"), true),
            ("/ws/a", Some("a"), true),
            ("/real/ws//a/.", Some("a"), true),
            ("/ws", Some(""), true),
            ("", Some(""), true),
            ("/wsx", None, false),
            ("../x", None, false),
            ("a/../../x", None, false),
            ("/inc/x", None, true),
            ("/inc/../x", None, false),
            ("/../../ws/a", Some("a"), true),
            ("~/x", Some("~/x"), true),
        ] {
            let at = roots().resolve(path);
            assert_eq!((at.from_workspace.as_deref(), at.inside), (from_workspace, inside), "{path}");
        }
    }

    #[test]
    fn equivalent_paths_give_equivalent_rules() {
        let length = |text: &str| PathPattern::read(text, &roots()).map(|p| (p.length, p.absolute));
        assert_eq!(length("src/**"), Some((4, false)));
        assert_eq!(length("/ws/src/**"), length("src/**"));
        assert_eq!(length("././src/**"), length("src/**"));
        assert_eq!(length("a/../src/**"), length("src/**"));
        assert_eq!(length("../x/"), Some((3, true)));
        assert_eq!(length("*/../x"), None);
    }
}
