//! Matches paths against the rules of one ignore file, as git does.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::path::{Path, PathBuf};

/// The rules of one ignore file. They apply to paths below one directory.
#[derive(Debug, Default)]
pub(super) struct Gitignore {
    root: PathBuf,
    globs: GlobSet,
    /// One row for each glob.
    rules: Vec<IgnoreRule>,
}

/// The properties of a rule besides its glob.
#[derive(Debug, Clone, Copy)]
struct IgnoreRule {
    /// Whether the rule ignores what it matches. A rule that starts with `!` includes it again.
    ignores: bool,
    /// Whether the rule matches directories only.
    only_dirs: bool,
}

impl Gitignore {
    /// Reads the lines of an ignore file in the directory `root`. Invalid rules are skipped.
    pub(super) fn new<'a>(root: &Path, lines: impl Iterator<Item = &'a str>) -> Self {
        let (mut globs, mut rules) = (GlobSetBuilder::new(), Vec::new());
        for (pattern, rule) in lines.filter_map(parse) {
            let mut glob = GlobBuilder::new(&pattern);
            if let Ok(glob) = glob.literal_separator(true).backslash_escape(true).build() {
                globs.add(glob);
                rules.push(rule);
            }
        }
        let built = globs.build().map(|globs| Self { root: root.to_owned(), globs, rules });
        built.unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns whether the last matching rule ignores the path, or `None` if no rule matches.
    pub(super) fn ignores(&self, path: &Path, is_dir: bool) -> Option<bool> {
        if self.is_empty() {
            return None;
        }
        let inside = path.strip_prefix(&self.root).unwrap_or(path);
        let matches = self.globs.matches(inside);
        let mut rules = matches.iter().rev().map(|index| self.rules[*index]);
        rules.find(|rule| is_dir || !rule.only_dirs).map(|rule| rule.ignores)
    }
}

/// Parses a line into a glob and its rule, or returns `None` for a comment or an empty line.
fn parse(line: &str) -> Option<(String, IgnoreRule)> {
    if line.starts_with('#') {
        return None;
    }
    // A space at the end counts only if it is escaped.
    let line = if line.ends_with("\\ ") { line } else { line.trim_end() };
    if line.is_empty() {
        return None;
    }
    let (line, ignores, is_anchored) = if line.starts_with("\\!") || line.starts_with("\\#") {
        (&line[1..], true, false)
    } else {
        let included = line.strip_prefix('!');
        let line = included.unwrap_or(line);
        let anchored = line.strip_prefix('/');
        (anchored.unwrap_or(line), included.is_none(), anchored.is_some())
    };
    let dir = line.strip_suffix('/').map(|dir| dir.strip_suffix('\\').unwrap_or(dir));
    let line = dir.unwrap_or(line);
    // A rule without a slash matches at any depth.
    let anywhere = !is_anchored && !line.contains('/') && line != "**";
    let mut glob = if anywhere { format!("**/{line}") } else { line.to_owned() };
    if glob.ends_with("/**") {
        // The content of the directory, but not the directory itself.
        glob.push_str("/*");
    }
    Some((glob, IgnoreRule { ignores, only_dirs: dir.is_some() }))
}

/// Returns the value of `core.excludesFile` in a git configuration file.
pub(super) fn excludes_file(settings: &str) -> Option<&str> {
    settings.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let value = value.trim();
        let value = value.strip_prefix('"').unwrap_or(value).trim_start();
        let value = value.strip_suffix('"').unwrap_or(value).trim_end();
        let is_path = !value.is_empty() && !value.contains(char::is_whitespace);
        (key.trim().eq_ignore_ascii_case("excludesfile") && is_path).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the decision of the crate `ignore`, which ripgrep uses, about a path.
    fn expected(lines: &[String], path: &Path, is_dir: bool) -> Option<bool> {
        let mut builder = ignore::gitignore::GitignoreBuilder::new("/ws");
        for line in lines {
            let _ = builder.add_line(None, line);
        }
        match builder.build().unwrap().matched(path, is_dir) {
            ignore::Match::None => None,
            ignore::Match::Ignore(_) => Some(true),
            ignore::Match::Whitelist(_) => Some(false),
        }
    }

    proptest! {
        #[test]
        fn rules_match_as_in_the_crate_ignore(
            lines in prop::collection::vec(r"[!#\\]{0,2}/?(a|b|\*|\*\*|\?|\[ab\]|\\\*|/| ){0,6}/?( |\\ )?", 1..4),
            path in "[ab*!#]{1,3}(/[ab *]{1,2}){0,2}",
            is_dir: bool,
        ) {
            let path = Path::new("/ws").join(path);
            let rules = Gitignore::new(Path::new("/ws"), lines.iter().map(String::as_str));
            prop_assert_eq!(rules.ignores(&path, is_dir), expected(&lines, &path, is_dir));
        }
    }

    #[test]
    fn excludes_file_is_read_from_git_settings() {
        for (settings, expected) in [
            ("[core]\n\texcludesFile = /etc/ignore\n", Some("/etc/ignore")),
            ("[core]\nEXCLUDESFILE=\"~/ignore\"", Some("~/ignore")),
            ("[core]\nexcludeFile = /etc/ignore", None),
            ("[core]\nexcludesFile = \" \"~/a b \" \"", None),
            ("[user]\nname = a", None),
        ] {
            assert_eq!(excludes_file(settings), expected, "{settings:?}");
        }
    }
}
