//! The files of the repository, as the rules read them.

use crate::modules::paths;
use std::path::{Path, PathBuf};

/// Modules that only tests see, declared so in their parent file.
pub(crate) const TESTS_ONLY: &[&str] = &["agentline-core/src/memory_fs.rs"];

/// One file of the repository, by its path below `crates/` or below the root.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns whether this is a JavaScript module of an integration.
    pub(crate) fn is_script(&self) -> bool {
        self.path.starts_with("integrations/") && self.path.ends_with(".mjs")
    }

    /// Returns whether this is code that ships: no tests, examples or benchmarks.
    pub(crate) fn ships(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.is_rust()
            && self.path.contains("/src/")
            && !self.path.starts_with("agentline-tests/")
            && !self.path.starts_with("fuzz/")
            && !self.path.contains("/tests/")
            && !name.ends_with("tests.rs")
            && !TESTS_ONLY.contains(&&*self.path)
            && !self.text.contains("\n#![cfg(test)]")
    }

    /// Returns its lines of code with their numbers, without comments and without everything from its tests on.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let shipped = before_tests(&self.text);
        let comment = |line: &str| line.trim_start().starts_with("//");
        shipped.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(move |(_, line)| !comment(line))
    }

    /// Returns the imports that contain one of these terms, also those in groups such as `use std::{fs, net};`.
    pub(crate) fn find_imports<'a>(&'a self, terms: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        paths(before_tests(&self.text)).into_iter().filter_map(|path| {
            let path = path.join("::");
            let term = terms.iter().find(|term| has_word(&path, term))?;
            Some(format!("{}: `{path}` is in `{term}`", self.path))
        })
    }

    pub(crate) fn find<'a>(&'a self, terms: &'a [&str]) -> impl Iterator<Item = String> + 'a {
        self.code().filter_map(|(no, line)| {
            let term = terms.iter().find(|term| has_word(line, term))?;
            Some(format!("{}:{no}: `{term}`", self.path))
        })
    }
}

/// Returns the part of a file before its inline module of tests. A declaration such as `mod tests;` ends nothing.
pub(crate) fn before_tests(text: &str) -> &str {
    let is_test = |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    let is_inline_module = |line: &str| line.starts_with("mod ") && line.contains('{');
    let begins_tests = |at: usize| {
        let mut lines = text[at..].lines();
        lines.next().is_some_and(is_test)
            && lines.find(|line| !line.starts_with("#[")).is_some_and(is_inline_module)
    };
    let tests = text.match_indices("\n#[cfg(").find(|(at, _)| begins_tests(at + 1));
    tests.map_or(text, |(at, _)| &text[..at])
}

/// Returns whether a line contains a whole word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().filter(|_| word.starts_with(part));
        let after =
            line[at + word.len()..].chars().next().filter(|_| word.ends_with(|c: char| c.is_alphanumeric()));
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Returns every text file, with paths relative to `crates/` if they are below it.
pub(crate) fn repository() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).expect("the repository exists") {
            let entry = entry.expect("a file");
            let name = entry.file_name();
            let path = folder.join(&name);
            let hidden = name.to_string_lossy().starts_with('.') && name != ".ci";
            if hidden || ["target", "node_modules", "corpus", "artifacts"].iter().any(|skip| name == *skip) {
                continue;
            }
            if entry.file_type().expect("a kind").is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
                let path = path.to_string_lossy().replace('\\', "/");
                files.push(Source::new(path.strip_prefix("crates/").unwrap_or(&path), &text));
            }
        }
    }
    files
}

#[test]
fn only_an_inline_module_of_tests_ends_the_shipped_part_of_a_file() {
    for (rest, is_cut) in [
        ("#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n", true),
        ("#[cfg(all(test, unix))]\nmod tests {\n}\n", true),
        ("#[cfg(test)]\n#[path = \"x.rs\"]\nmod more_tests { }\n", true),
        ("#[cfg(test)]\nmod tests;\n\nuse std::fs;\n", false),
        ("#[cfg(all(test, unix))]\nmod tests;\n\nuse std::fs;\n", false),
        ("#[cfg(test)]\nfn helper() {}\n\nuse std::fs;\n", false),
        ("#[cfg(unix)]\nmod unix {\n}\n", false),
    ] {
        let text = format!("//! A.\nfn a() {{}}\n{rest}");
        let expected = if is_cut { "//! A.\nfn a() {}" } else { &text };
        assert_eq!(before_tests(&text), expected, "{rest}");
    }
    // The tests may follow a declaration of other tests.
    let both = "mod a;\n#[cfg(test)]\nmod more;\nfn f() {}\n#[cfg(test)]\nmod tests {\n}\n";
    assert_eq!(before_tests(both), "mod a;\n#[cfg(test)]\nmod more;\nfn f() {}");
}
