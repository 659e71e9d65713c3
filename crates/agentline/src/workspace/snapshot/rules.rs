//! The ignore rules of a workspace, interpreted as git does.
//!
//! Rules are part of the workspace and therefore untrusted: only regular files of at most 1 MB are read, and only their
//! first 10,000 rules count. Invalid rules are skipped.

use std::env::{home_dir, var_os};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::regular_file::{open_regular, read_regular};
use crate::workspace::snapshot::gitignore::{Gitignore, excludes_file};

/// The maximum size of a file of rules.
const LONGEST_FILE: u64 = 1 << 20;
/// The maximum number of rules of one file. Compiling more takes too long.
const MAX_RULES: usize = 10_000;

/// The rules that apply in one directory: its own, and those of the directories above it.
#[derive(Debug, Clone)]
pub(super) struct IgnoreRules {
    innermost: Option<Arc<Level>>,
    /// The user's own excludes.
    global: Arc<Gitignore>,
}

/// The rules of one directory.
#[derive(Debug)]
struct Level {
    outer: Option<Arc<Self>>,
    ignore: Gitignore,
    exclude: Gitignore,
    /// Whether the directory is the root of a repository, so that rules above it do not apply.
    is_repository: bool,
}

/// The names in a directory that matter for rules.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RuleFiles {
    gitignore: bool,
    git: bool,
    jj: bool,
}

impl RuleFiles {
    /// Records a name in the directory.
    pub(super) fn note(&mut self, name: &std::ffi::OsStr) {
        match name.as_encoded_bytes() {
            b".gitignore" => self.gitignore = true,
            b".git" => self.git = true,
            b".jj" => self.jj = true,
            _ => {}
        }
    }

    /// Looks for the names in a directory.
    pub(super) fn of(dir: &Path) -> Self {
        let has = |name| dir.join(name).symlink_metadata().is_ok();
        Self { gitignore: has(".gitignore"), git: has(".git"), jj: has(".jj") }
    }
}

impl IgnoreRules {
    /// Returns the rules that apply to the workspace `root` wherever it is.
    pub(super) fn outermost(root: &Path) -> Self {
        Self { innermost: None, global: Arc::new(global_excludes(root)) }
    }

    /// Returns the rules that apply to the workspace `root` from above. Those of `root` itself are added by
    /// [`enter`](Self::enter).
    pub(super) fn above(root: &Path) -> Self {
        let outermost = Self::outermost(root);
        let Some(repository) = root.ancestors().find(|dir| dir.join(".git").exists()) else {
            return outermost;
        };
        let Ok(inside) = root.strip_prefix(repository) else { return outermost };
        let mut rules = outermost.clone();
        let mut dir = repository.to_path_buf();
        for part in inside.components() {
            rules = rules.enter(&dir, RuleFiles::of(&dir));
            dir.push(part);
            if rules.is_ignored(&dir, true) {
                // A workspace that its own repository ignores is a scratch directory: the rules that ignore it would
                // ignore everything in it.
                return outermost;
            }
        }
        rules
    }

    /// Returns the rules that apply inside a directory.
    pub(super) fn enter(&self, dir: &Path, files: RuleFiles) -> Self {
        self.enter_as(dir, dir, files)
    }

    /// Returns the rules that apply inside a directory if it had the rules, `files`, of another one.
    pub(super) fn enter_as(&self, dir: &Path, original: &Path, files: RuleFiles) -> Self {
        let is_repository = files.jj || files.git && original.join(".git").exists();
        let ignore = if files.gitignore {
            read_rules(dir, &original.join(".gitignore"))
        } else {
            Gitignore::default()
        };
        let git = if files.git && is_repository { git_directory(original) } else { None };
        let exclude = git.map_or_else(Gitignore::default, |git| read_rules(dir, &git.join("info/exclude")));
        if ignore.is_empty() && exclude.is_empty() && !is_repository {
            return self.clone();
        }
        let level = Level { outer: self.innermost.clone(), ignore, exclude, is_repository };
        Self { innermost: Some(Arc::new(level)), global: Arc::clone(&self.global) }
    }

    /// Returns whether the rules ignore a path in the directory that they were made for.
    pub(super) fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        let mut excluded = None;
        let mut next = self.innermost.as_deref();
        while let Some(level) = next {
            if let Some(ignores) = level.ignore.ignores(path, is_dir) {
                return ignores;
            }
            excluded = excluded.or_else(|| level.exclude.ignores(path, is_dir));
            next = level.outer.as_deref().filter(|_| !level.is_repository);
        }
        excluded.or_else(|| self.global.ignores(path, is_dir)).unwrap_or(false)
    }
}

/// Returns whether a walk of the workspace would skip a path inside it.
pub(super) fn hides(root: &Path, inside: &Path) -> bool {
    let mut rules = IgnoreRules::above(root);
    let mut path = root.to_path_buf();
    let mut parts = inside.components().peekable();
    while let Some(part) = parts.next() {
        rules = rules.enter(&path, RuleFiles::of(&path));
        path.push(part);
        if part.as_os_str() == ".git" || rules.is_ignored(&path, parts.peek().is_some()) {
            return true;
        }
    }
    false
}

/// Returns the git configuration files that may name the user's excludes file.
pub(super) fn git_settings() -> Vec<PathBuf> {
    let system = path_variable("GIT_CONFIG_SYSTEM").unwrap_or_else(|| "/etc/gitconfig".into());
    let all = [
        path_variable("GIT_CONFIG_GLOBAL"),
        home_dir().map(|home| home.join(".gitconfig")),
        git_directory_of_user().map(|dir| dir.join("config")),
        Some(system),
    ];
    all.into_iter().flatten().collect()
}

/// Returns the directory of git in the user's configuration directory.
fn git_directory_of_user() -> Option<PathBuf> {
    let config = path_variable("XDG_CONFIG_HOME").or_else(|| Some(home_dir()?.join(".config")));
    config.map(|dir| dir.join("git"))
}

fn path_variable(variable: &str) -> Option<PathBuf> {
    var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns the user's own excludes file, if all git configuration files can be read without blocking.
pub(super) fn user_excludes() -> Option<PathBuf> {
    let files = git_settings();
    let is_readable = |file: &PathBuf| !file.exists() || open_regular(file, LONGEST_FILE).is_ok();
    if !files.iter().all(is_readable) {
        return None;
    }
    let text =
        |file: &PathBuf| Some(String::from_utf8_lossy(&read_regular(file, LONGEST_FILE).ok()?).into_owned());
    let named = files.iter().filter_map(text).find_map(|text| excludes_file(&text).map(str::to_owned));
    let Some(named) = named else { return git_directory_of_user().map(|dir| dir.join("ignore")) };
    match (named.strip_prefix("~/"), home_dir()) {
        (Some(below), Some(home)) => Some(home.join(below)),
        _ => Some(named.into()),
    }
}

fn global_excludes(root: &Path) -> Gitignore {
    user_excludes().map_or_else(Gitignore::default, |file| read_rules(root, &file))
}

/// Reads the rules of a file, relative to `root`.
fn read_rules(root: &Path, file: &Path) -> Gitignore {
    let Ok(bytes) = read_regular(file, LONGEST_FILE) else { return Gitignore::default() };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let is_rule = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let lines = lines.map(|line| line.strip_suffix('\r').unwrap_or(line));
    Gitignore::new(root, lines.filter(is_rule).take(MAX_RULES))
}

/// Returns the directory that all work trees of a repository share: `.git`, or the directory that a `.git` file refers
/// to.
fn git_directory(dir: &Path) -> Option<PathBuf> {
    let git = dir.join(".git");
    if !git.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return Some(git);
    }
    let first_line = |file: &Path| {
        let text = String::from_utf8(read_regular(file, LONGEST_FILE).ok()?).ok()?;
        Some(text.lines().next()?.to_owned())
    };
    let own = PathBuf::from(first_line(&git)?.strip_prefix("gitdir: ")?);
    let own = dir.join(own);
    // Joining an absolute path replaces the directory.
    Some(own.join(first_line(&own.join("commondir"))?))
}
