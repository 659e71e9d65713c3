//! Delivers a prompt to Gemini CLI without changes.
//!
//! A prompt is written to stdin unless the CLI would interpret it: a leading `/` is a command, and if one
//! `@word` names a file, the whole text is rewritten. Such a prompt becomes a custom command of the CLI, in a
//! file of the overlay home, and stdin only calls it. Inside a command, `@{`, `!{` and `{{args}}` are
//! special. These few characters are read from separate files, whose content the CLI does not interpret. (The
//! whole prompt cannot be read from a file, because the CLI truncates it at 2,000 lines and changes its line
//! ends.)

use crate::{FileSystem, NewFile, Plan, Problem, Rule, SystemMode};
use std::{borrow::Cow, path::Path};

/// Special texts inside a command, and the files that contain them.
const TRIGGERS: &[(&str, &str)] = &[("@{", "at.txt"), ("!{", "bang.txt"), ("{{args}}", "args.txt")];

/// The maximum number of lines that the CLI shows of a file, and of characters that it shows of a line.
const LONGEST_READ: usize = 2000;

/// The form in which a prompt is delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delivery {
    /// The text for stdin.
    pub(super) stdin: String,
    /// The name of the command that contains the prompt, and the text of its file.
    pub(super) command: Option<(String, String)>,
    /// Files that the command reads. Their directory must be an include directory.
    pub(super) pieces: Vec<NewFile>,
}

/// Returns the complete prompt text.
pub(super) fn text(plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<String, Problem> {
    let request = &plan.request;
    let mut parts: Vec<Cow<'_, str>> = Vec::new();
    if let (Some(system), SystemMode::Append) = (&request.system_prompt, request.system_mode) {
        parts.push(system.into());
    }
    if !request.prompt.trim().is_empty() {
        parts.push(request.prompt.as_str().into());
    }
    if let Some(file) = &request.prompt_file {
        parts.push(of_file(plan, &cwd.join(file), cwd, fs)?.into());
    }
    Ok(parts.join("\n\n"))
}

/// Delivers a text. `name` must be unpredictable, so that no command of the workspace can replace it.
pub(super) fn deliver(text: &str, plan: &Plan, name: &str, pieces: &Path) -> Delivery {
    let is_read_into = text.trim_start().starts_with('/') || text.contains('@');
    if plan.request.file_references || !is_read_into {
        return Delivery { stdin: text.to_owned(), ..Delivery::default() };
    }
    let mut delivery = Delivery { stdin: format!("/{name}"), ..Delivery::default() };
    let mut prompt = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some((trigger, file)) = TRIGGERS.iter().find(|(trigger, _)| rest.starts_with(trigger)) {
            let path = pieces.join(file);
            prompt.push_str(&format!("@{{{}}}", path.display()));
            if delivery.pieces.iter().all(|p| p.path != path) {
                delivery.pieces.push(NewFile::new(path, *trigger));
            }
            rest = &rest[trigger.len()..];
        } else {
            prompt.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    delivery.command = Some((name.to_owned(), format!("prompt = {}\n", toml_string(&prompt))));
    delivery
}

/// Returns the text for a prompt file: an instruction to read it, or its content if the agent cannot read it.
fn of_file(plan: &Plan, file: &Path, cwd: &Path, fs: &dyn FileSystem) -> Result<String, Problem> {
    let wrong = |message: &str| {
        Problem::new("prompt_file", format!("`{}` {message}", file.display()))
            .hint("pass an existing text file")
    };
    let bytes = fs.read(file).ok_or_else(|| wrong("cannot be read"))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text"))?;
    if text.trim().is_empty() {
        return Err(wrong("is empty"));
    }
    if text.contains('\0') {
        return Err(wrong("contains a NUL byte"));
    }
    if can_read(plan, file, &text, cwd, fs) {
        return Ok(format!("Process the prompt in {}", file.display()));
    }
    Ok(text)
}

/// Returns whether the CLI's own read tool would show the whole file. If in doubt, returns `false`.
fn can_read(plan: &Plan, file: &Path, text: &str, cwd: &Path, fs: &dyn FileSystem) -> bool {
    let real = fs.canonical(file).unwrap_or_else(|| file.to_path_buf());
    let included = plan.request.include_directories.iter().map(|d| cwd.join(d));
    let Some(root) = std::iter::once(cwd.to_path_buf()).chain(included).find(|root| real.starts_with(root))
    else {
        return false;
    };
    let short =
        text.lines().count() <= LONGEST_READ && text.lines().all(|l| l.chars().count() <= LONGEST_READ);
    let mut refused = plan.request.deny.iter().map(Rule::tool);
    let permitted = refused.all(|tool| !matches!(tool, "Read" | "read_file" | "*"));
    short && permitted && !may_be_ignored(&real, &root, fs)
}

/// Returns whether a line of an ignore file could match this path. If in doubt, returns `true`.
fn may_be_ignored(file: &Path, root: &Path, fs: &dyn FileSystem) -> bool {
    let Ok(inner) = file.strip_prefix(root) else { return true };
    let names: Vec<Cow<'_, str>> = inner.iter().map(|n| n.to_string_lossy()).collect();
    if names.iter().any(|n| n == ".git" || n == "node_modules") {
        return true;
    }
    let folders = file.ancestors().skip(1).filter(|f| f.starts_with(root));
    folders.flat_map(|folder| [".gitignore", ".geminiignore"].map(|name| folder.join(name))).any(|ignore| {
        fs.text(&ignore).unwrap_or_default().lines().any(|line| {
            let line = line.trim().trim_end_matches('/');
            let last = line.rsplit('/').next().unwrap_or_default();
            !line.is_empty() && !line.starts_with(['#', '!']) && names.iter().any(|n| covers(last, n))
        })
    })
}

/// Matches a glob against one name. Brackets match anything.
fn covers(glob: &str, name: &str) -> bool {
    if glob.contains('[') {
        return true;
    }
    let mut chars = glob.chars();
    match chars.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = chars.as_str();
            (0..=name.len()).filter(|i| name.is_char_boundary(*i)).any(|i| covers(rest, &name[i..]))
        }
        Some(c) => {
            let mut name = name.chars();
            name.next().is_some_and(|n| c == '?' || n == c) && covers(chars.as_str(), name.as_str())
        }
    }
}

/// Formats a single-line basic TOML string, with all special characters escaped.
fn toml_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{0}'..='\u{1f}' | '\u{7f}' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunRequest, Surface, memory_fs::MemoryFs};
    use proptest::prelude::*;

    fn plan(request: RunRequest) -> Plan {
        Plan::new(request, Surface::StreamJson)
    }

    fn delivered(text: &str) -> Delivery {
        deliver(text, &plan(RunRequest::new("x")), "cmd", Path::new("/p"))
    }

    /// Returns the prompt that the CLI builds from a delivery.
    fn received(delivery: &Delivery) -> String {
        let Some((_, file)) = &delivery.command else { return delivery.stdin.clone() };
        let table: toml::Table = file.parse().unwrap();
        let prompt = table["prompt"].as_str().unwrap().to_owned();
        let pieces = |p: &NewFile| (format!("@{{{}}}", p.path.display()), p.content.clone());
        let mut out = String::new();
        let mut rest = prompt.as_str();
        while let Some(at) = rest.find("@{") {
            out.push_str(&rest[..at]);
            let (mark, content) =
                delivery.pieces.iter().map(pieces).find(|(mark, _)| rest[at..].starts_with(mark)).unwrap();
            out.push_str(&String::from_utf8(content).unwrap());
            rest = &rest[at + mark.len()..];
        }
        out.push_str(rest);
        assert!(!prompt.contains("!{") && !prompt.contains("{{args}}"), "{prompt}");
        out
    }

    #[test]
    fn plain_prompts_are_sent_to_stdin_unchanged() {
        for text in ["hello\n", "-x", "a {{args}} !{ls}", "  lead", "!ls", "? /x"] {
            assert_eq!(delivered(text), Delivery { stdin: text.into(), ..Delivery::default() });
        }
    }

    #[test]
    fn prompts_with_cli_syntax_become_a_command() {
        for text in ["/init", " /init", "see @a.txt", "bob@example.com", "\"\"\" @ \\ \r\n\u{7f}\u{1b}é"] {
            let delivery = delivered(text);
            assert_eq!(delivery.stdin, "/cmd");
            assert!(delivery.pieces.is_empty());
            assert_eq!(received(&delivery), text);
        }
        let tricky = delivered("a {{args}} b !{touch x} @{a.txt} @{ c");
        assert_eq!(received(&tricky), "a {{args}} b !{touch x} @{a.txt} @{ c");
        assert_eq!(tricky.pieces.len(), 3);
    }

    #[test]
    fn file_references_are_left_to_the_cli_if_requested() {
        let plan = plan(RunRequest::new("x").file_references(true));
        assert_eq!(deliver("see @a.txt", &plan, "cmd", Path::new("/p")).stdin, "see @a.txt");
    }

    proptest! {
        #[test]
        fn every_prompt_is_delivered_unchanged(text in "(/|@|@\\{|!\\{|\\{\\{args\\}\\}|\\}|\"|\\\\|\r|\n|\\PC|[\u{0}-\u{ff}]){0,40}") {
            prop_assert_eq!(received(&delivered(&text)), text);
        }
    }

    #[test]
    fn system_prompt_and_prompt_file_surround_the_prompt() {
        let fs = MemoryFs::default().plain("/ws/p.md", "do it").plain("/else/p.md", "do that");
        let prompt_of = |request: RunRequest| text(&plan(request), Path::new("/ws"), &fs);
        assert_eq!(prompt_of(RunRequest::new("hi").system_prompt("be brief")).unwrap(), "be brief\n\nhi");
        let replaced = RunRequest::new("hi").system_prompt("s").system_mode(SystemMode::Replace);
        assert_eq!(prompt_of(replaced).unwrap(), "hi");
        assert_eq!(
            prompt_of(RunRequest::new("").prompt_file("p.md")).unwrap(),
            "Process the prompt in /ws/p.md"
        );
        assert_eq!(
            prompt_of(RunRequest::new("a").prompt_file("/ws/p.md")).unwrap(),
            "a\n\nProcess the prompt in /ws/p.md"
        );
        assert_eq!(prompt_of(RunRequest::new("").prompt_file("/else/p.md")).unwrap(), "do that");
        let included = RunRequest::new("").prompt_file("/else/p.md").include_dir("/else");
        assert_eq!(prompt_of(included).unwrap(), "Process the prompt in /else/p.md");
        let refused = RunRequest::new("").prompt_file("p.md").deny("Read(secret/**)");
        assert_eq!(prompt_of(refused).unwrap(), "do it");
        for missing in ["none.md", "/ws"] {
            assert_eq!(prompt_of(RunRequest::new("").prompt_file(missing)).unwrap_err().key, "prompt_file");
        }
    }

    #[test]
    fn ignored_or_long_prompt_files_are_sent_inline() {
        let long = "line\n".repeat(2001);
        let fs = MemoryFs::default()
            .plain("/ws/.gitignore", "# c\n*.tmp\n/build/\n!keep\n")
            .plain("/ws/sub/.geminiignore", "secret?\n")
            .plain("/ws/a.tmp", "t")
            .plain("/ws/build/p", "b")
            .plain("/ws/sub/secret1", "s")
            .plain("/ws/sub/open", "o")
            .plain("/ws/long", &long);
        let prompt_of =
            |file: &str| text(&plan(RunRequest::new("").prompt_file(file)), Path::new("/ws"), &fs).unwrap();
        assert_eq!(
            (prompt_of("a.tmp").as_str(), prompt_of("build/p").as_str(), prompt_of("sub/secret1").as_str()),
            ("t", "b", "s")
        );
        assert_eq!(prompt_of("sub/open"), "Process the prompt in /ws/sub/open");
        assert_eq!(prompt_of("long"), long);
    }
}
