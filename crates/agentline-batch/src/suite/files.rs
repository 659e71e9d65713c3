//! Loads a suite and the files that it names.

use super::mistakes::Mistakes;
use super::read::{RawCase, SOURCE_KEYS, SUITE_KEYS, variables};
use super::{Suite, expand, promptfoo};
use crate::document::{DocumentNode, NodeValue, SyntaxError, TableEntry};
use agentline::{Problem, Problems};
use agentline_fs::regular_file::read_regular;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The largest file of a suite.
const LARGEST_FILE: u64 = 256 << 20;

/// Where a suite comes from.
#[derive(Clone, Debug)]
pub enum SuiteInput {
    /// A file, or a directory of prompt files.
    Path(PathBuf),
    /// Text, such as standard input.
    Text {
        /// The name for messages.
        name: String,
        /// The text: YAML, JSON or JSONL.
        text: String,
        /// The directory that relative paths start from.
        base: PathBuf,
    },
}

/// Loads a suite. `defaults` are settings below those of the suite.
///
/// # Errors
/// Returns every mistake of the suite, each with its file and line.
pub fn load(input: &SuiteInput, defaults: &Map<String, Value>) -> Result<Suite, Problems> {
    load_with(input, defaults, |_| Ok(()))
}

/// Loads a suite. If it has mistakes, `validate` adds those that it finds in the rest of the suite, so that all are
/// reported at once. A suite without mistakes is not validated.
///
/// # Errors
/// Returns every mistake of the suite, each with its file and line.
pub fn load_with(
    input: &SuiteInput,
    defaults: &Map<String, Value>,
    validate: impl FnOnce(&Suite) -> Result<(), Problems>,
) -> Result<Suite, Problems> {
    let mut mistakes = Mistakes::default();
    let mut files = Vec::new();
    let (root, name, base) = match input {
        SuiteInput::Text { name, text, base } => {
            mistakes.file.clone_from(name);
            let root = if is_jsonl(text) { jsonl(text) } else { DocumentNode::yaml(text) };
            (root, "stdin".to_owned(), base.clone())
        }
        SuiteInput::Path(path) => {
            mistakes.file = path.display().to_string();
            let name =
                path.file_stem().map_or_else(|| "suite".into(), |name| name.to_string_lossy().into_owned());
            if path.is_dir() {
                (Ok(directory(path)), name, path.clone())
            } else {
                let text = read_text(path).map_err(|message| {
                    Problem::new("SUITE", message).hint("correct the path of the suite")
                })?;
                files.push(path.clone());
                let base = path.parent().map_or_else(PathBuf::new, Path::to_owned);
                (parse(path, &text), name, base)
            }
        }
    };
    let root = match root {
        Ok(root) => root,
        Err(SyntaxError { line, message }) => {
            mistakes.add(line, "SUITE", message, "correct the syntax");
            return Err(Problems(mistakes.problems));
        }
    };
    let mut unused = Vec::new();
    let root = if promptfoo::is_config(&root) {
        promptfoo::convert(&root, &base, &mut mistakes, &mut unused)
    } else {
        root
    };
    mistakes.table(&root, "", SUITE_KEYS);
    let cases = Loader { base: &base, mistakes: &mut mistakes, files: &mut files }.cases(&root);
    let mut suite = expand::suite(&root, cases, &name, &base, defaults, &mut mistakes);
    (suite.unused, suite.files) = (unused, files);
    let mut problems = mistakes.problems;
    if !problems.is_empty()
        && let Err(found) = validate(&suite)
    {
        // A value that is invalid for every agent is known already.
        let is_new = |problem: &Problem| problems.iter().all(|known| !known.key.ends_with(&problem.key));
        let new: Vec<Problem> = found.0.into_iter().filter(is_new).collect();
        problems.extend(new);
    }
    Problems(problems).into_result().map(|()| suite)
}

fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read_regular(path, LARGEST_FILE)
        .map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("`{}` is not UTF-8", path.display()))?;
    Ok(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned))
}

/// Parses a file by its extension.
fn parse(path: &Path, text: &str) -> Result<DocumentNode, SyntaxError> {
    match extension(path).as_str() {
        "toml" => DocumentNode::toml(text),
        "jsonl" | "ndjson" => jsonl(text),
        "csv" => Ok(cases_only(csv_cases(text)?)),
        _ => DocumentNode::yaml(text),
    }
}

fn extension(path: &Path) -> String {
    path.extension().map_or_else(String::new, |extension| extension.to_string_lossy().to_lowercase())
}

/// Returns whether a text is JSONL: its first two lines are complete JSON objects.
fn is_jsonl(text: &str) -> bool {
    let is_object = |line: &str| serde_json::from_str::<Map<String, Value>>(line).is_ok();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    match (lines.next(), lines.next()) {
        (Some(first), Some(second)) => is_object(first) && is_object(second),
        (Some(only), None) => {
            // One line is a whole suite if it has cases, else a case.
            is_object(only) && DocumentNode::yaml(only).is_ok_and(|node| node.get("cases").is_none())
        }
        _ => false,
    }
}

fn cases_only(cases: Vec<DocumentNode>) -> DocumentNode {
    let node = DocumentNode { line: 1, content: NodeValue::List(cases) };
    DocumentNode {
        line: 1,
        content: NodeValue::Table(vec![TableEntry { key: "cases".into(), line: 1, node }]),
    }
}

fn jsonl(text: &str) -> Result<DocumentNode, SyntaxError> {
    jsonl_cases(text).map(cases_only)
}

fn jsonl_cases(text: &str) -> Result<Vec<DocumentNode>, SyntaxError> {
    let mut cases = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let value: Value = serde_json::from_str(line)
            .map_err(|error| SyntaxError { line: index + 1, message: format!("is not JSON: {error}") })?;
        cases.push(DocumentNode::at_line(index + 1, value));
    }
    Ok(cases)
}

/// Reads cases from CSV: the columns `id`, `prompt` and `tags` are those of a case, all others are variables.
fn csv_cases(text: &str) -> Result<Vec<DocumentNode>, SyntaxError> {
    let wrong = |error: csv::Error| SyntaxError {
        line: error.position().map_or(1, |position| usize::try_from(position.line()).unwrap_or(1)),
        message: error.to_string(),
    };
    if let Some(line) = unclosed_quote(text) {
        let message = "a quotation mark opens a value and none closes it".to_owned();
        return Err(SyntaxError { line, message });
    }
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(text.as_bytes());
    let columns = reader.headers().map_err(wrong)?.clone();
    let mut cases = Vec::new();
    for row in reader.records() {
        let row = row.map_err(wrong)?;
        let line = row.position().map_or(1, |position| usize::try_from(position.line()).unwrap_or(1));
        let (mut case, mut vars) = (Map::new(), Map::new());
        for (column, value) in columns.iter().zip(row.iter()) {
            match column {
                "id" | "prompt" if value.is_empty() => {}
                "id" | "prompt" => {
                    case.insert(column.into(), value.into());
                }
                "tags" => {
                    case.insert(column.into(), value.split_whitespace().collect());
                }
                column => {
                    vars.insert(column.into(), value.into());
                }
            }
        }
        case.insert("vars".into(), vars.into());
        cases.push(DocumentNode::at_line(line, case.into()));
    }
    Ok(cases)
}

/// Returns the line of a quoted value in CSV that does not end. The reader would take all further rows for its content.
fn unclosed_quote(text: &str) -> Option<usize> {
    let (mut line, mut opened, mut starts_value) = (1, None, true);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        line += usize::from(character == '\n');
        match (character, opened) {
            ('"', Some(_)) if characters.next_if_eq(&'"').is_none() => opened = None,
            ('"', None) if starts_value => opened = Some(line),
            _ => {}
        }
        starts_value = opened.is_none() && matches!(character, ',' | '\n' | '\r');
    }
    opened
}

/// Returns a suite whose cases are the prompt files of a directory.
fn directory(path: &Path) -> DocumentNode {
    let files = DocumentNode::scalar(1, "*");
    let glob = TableEntry { key: "glob".into(), line: 1, node: files };
    let source = DocumentNode { line: 1, content: NodeValue::Table(vec![glob]) };
    let _ = path;
    cases_only(vec![source])
}

struct Loader<'a> {
    base: &'a Path,
    mistakes: &'a mut Mistakes,
    /// The files with cases so far.
    files: &'a mut Vec<PathBuf>,
}

impl Loader<'_> {
    /// Reads the cases of a suite, from the suite itself and from the files that it names.
    fn cases(&mut self, root: &DocumentNode) -> Vec<RawCase> {
        let Some(node) = root.get("cases") else {
            self.mistakes.add(root.line, "cases", "is missing", "add a list of cases");
            return Vec::new();
        };
        let mut cases = Vec::new();
        match node.list() {
            None => self.entry(node, "cases", &mut cases),
            Some(list) => {
                for (index, node) in list.iter().enumerate() {
                    self.entry(node, &format!("cases[{index}]"), &mut cases);
                }
            }
        }
        cases
    }

    /// Reads an entry of `cases`: a case, or the name of files with cases.
    fn entry(&mut self, node: &DocumentNode, key: &str, cases: &mut Vec<RawCase>) {
        if let Some(path) = node.text() {
            return self.files(path, node.line, key, cases);
        }
        if node.get("file").is_none() && node.get("glob").is_none() {
            cases.push(RawCase::read(node, key, self.mistakes));
            return;
        }
        self.mistakes.table(node, key, SOURCE_KEYS);
        let (vars, tags) = (variables(node, key, self.mistakes), self.mistakes.texts(node, key, "tags"));
        let first = cases.len();
        for name in ["file", "glob"] {
            if let Some(path) = self.mistakes.text(node, key, name) {
                self.files(&path, node.line, key, cases);
            }
        }
        for case in &mut cases[first..] {
            let own = std::mem::replace(&mut case.vars, vars.clone());
            case.vars.extend(own);
            case.tags.extend(tags.iter().cloned());
        }
    }

    /// Reads the cases in the files that a pattern matches.
    fn files(&mut self, pattern: &str, line: usize, key: &str, cases: &mut Vec<RawCase>) {
        let files = match matching(self.base, pattern) {
            Ok(files) if !files.is_empty() => files,
            Ok(_) => {
                let message = format!("no file matches `{pattern}`");
                return self.mistakes.add(line, key, message, "correct the path or pattern");
            }
            Err(message) => return self.mistakes.add(line, key, message, "correct the pattern"),
        };
        for file in files {
            let name = file.display().to_string();
            let text = match read_text(&file) {
                Ok(text) => text,
                Err(message) => {
                    self.mistakes.add(line, key, message, "make it a readable text file");
                    continue;
                }
            };
            let outer = std::mem::replace(&mut self.mistakes.file, name);
            self.file(&file, &text, cases);
            self.mistakes.file = outer;
        }
    }

    fn file(&mut self, file: &Path, text: &str, cases: &mut Vec<RawCase>) {
        let nodes = match extension(file).as_str() {
            "jsonl" | "ndjson" => jsonl_cases(text),
            "csv" => csv_cases(text),
            "yaml" | "yml" | "json" => DocumentNode::yaml(text).map(|node| match node.content {
                NodeValue::List(list) => list,
                content => vec![DocumentNode { line: node.line, content }],
            }),
            // A prompt is no secret.
            _ => {
                let id = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
                let case = Map::from_iter([
                    ("id".to_owned(), id.into()),
                    ("prompt".to_owned(), text.trim_end().into()),
                ]);
                Ok(vec![DocumentNode::at_line(1, case.into())])
            }
        };
        if matches!(extension(file).as_str(), "jsonl" | "ndjson" | "csv" | "yaml" | "yml" | "json") {
            self.files.push(file.to_owned());
        }
        match nodes {
            Ok(nodes) => {
                for node in nodes {
                    cases.push(RawCase::read(&node, "", self.mistakes));
                }
            }
            Err(SyntaxError { line, message }) => {
                self.mistakes.add(line, "cases", message, "correct the syntax");
            }
        }
    }
}

/// Returns the files that a pattern matches, in the order of their names. Hidden files do not match `*`.
fn matching(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    if !pattern.contains(['*', '?', '[', '{']) {
        let path = base.join(pattern);
        return Ok(if path.is_file() { vec![path] } else { Vec::new() });
    }
    let glob = globset::GlobBuilder::new(pattern).literal_separator(true).build();
    let matcher = glob.map_err(|error| error.to_string())?.compile_matcher();
    let fixed: PathBuf = Path::new(pattern)
        .components()
        .take_while(|part| !part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']))
        .collect();
    let mut files = Vec::new();
    let mut directories = vec![fixed];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(base.join(&directory)) else { continue };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let path = directory.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(path),
                Ok(_) if matcher.is_match(&path) => files.push(base.join(path)),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}
