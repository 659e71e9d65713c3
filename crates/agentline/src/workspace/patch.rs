//! A patch of the files that differ between a copy of a workspace and the original, as `git apply` takes it.

mod binary;

use crate::workspace::write_back::FileState;
use agentline_core::Redactor;
use std::time::Duration;

/// The maximum time to compare two texts. After it, the patch is correct, but longer than necessary.
const COMPARISON: Duration = Duration::from_secs(1);

/// A patch of files and links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyPatch {
    /// The patch in Git's format.
    pub text: String,
    /// The files that are not in it, because they are not text and contain a secret.
    pub left_out: Vec<String>,
}

/// One side of a change: its mode as Git writes it, and its content.
struct Side<'a> {
    mode: &'static str,
    content: &'a [u8],
}

impl CopyPatch {
    /// Adds the change of one file. A text file is redacted.
    pub(crate) fn add(&mut self, path: &str, old: &FileState, new: &FileState, redactors: &[&Redactor]) {
        let added = match (side(old), side(new)) {
            // A link that became a file, or vice versa, is two changes for Git.
            (Some(old), Some(new)) if is_link(&old) != is_link(&new) => {
                let removed = sides(path, Some(&old), None, redactors);
                removed.zip(sides(path, None, Some(&new), redactors)).map(|(removed, added)| removed + &added)
            }
            (old, new) => sides(path, old.as_ref(), new.as_ref(), redactors),
        };
        match added {
            Some(text) => self.text += &text,
            None => self.left_out.push(path.to_owned()),
        }
    }
}

/// Returns the change of one file; `None` if it cannot be redacted.
fn sides(
    path: &str,
    old: Option<&Side<'_>>,
    new: Option<&Side<'_>>,
    redactors: &[&Redactor],
) -> Option<String> {
    let [from, to] = ["a", "b"].map(|side| quoted(&format!("{side}/{path}")));
    let mut patch = format!("diff --git {from} {to}\n");
    let mut same_mode = None;
    match (old, new) {
        (None, Some(new)) => patch += &format!("new file mode {}\n", new.mode),
        (Some(old), None) => patch += &format!("deleted file mode {}\n", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            patch += &format!("old mode {}\nnew mode {}\n", old.mode, new.mode);
        }
        (old, _) => same_mode = old.map(|side| side.mode),
    }
    let text =
        |side: Option<&Side<'_>>| side.map_or(Some(String::new()), |side| text(side.content, redactors));
    if let Some((old_text, new_text)) = text(old).zip(text(new)) {
        let name = |side: Option<&Side<'_>>, name: &str| match side {
            // Other programs take the name up to a space, unless a tab ends it.
            Some(_) if name.contains(' ') => format!("{name}\t"),
            Some(_) => name.to_owned(),
            None => "/dev/null".to_owned(),
        };
        return Some(patch + &text_hunks(&old_text, &new_text, &name(old, &from), &name(new, &to)));
    }
    let [old, new] = [old, new].map(|side| side.map(|side| side.content));
    let has_secret = |content: &[u8]| {
        let text = String::from_utf8_lossy(content);
        redactors.iter().any(|redactor| redactor.text(&text) != text)
    };
    if [old, new].into_iter().flatten().any(has_secret) {
        return None;
    }
    if old != new {
        patch += &binary::hunks(old, new, same_mode);
    }
    Some(patch)
}

fn text_hunks(old: &str, new: &str, from: &str, to: &str) -> String {
    let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<&str>>());
    let diff =
        similar::TextDiff::configure().timeout(COMPARISON).newline_terminated(true).diff_slices(&old, &new);
    diff.unified_diff().header(from, to).to_string()
}

fn is_link(side: &Side<'_>) -> bool {
    side.mode == "120000"
}

/// Returns the mode and the content of a file, or `None` if there is none.
fn side(state: &FileState) -> Option<Side<'_>> {
    let (mode, content) = match state {
        FileState::Missing => return None,
        FileState::File { mode, content } if mode.is_some_and(|mode| mode & 0o100 != 0) => {
            ("100755", content)
        }
        FileState::File { content, .. } => ("100644", content),
        FileState::Link { target } => ("120000", target),
    };
    Some(Side { mode, content })
}

/// Returns a content as redacted text, or `None` if it is not text.
fn text(content: &[u8], redactors: &[&Redactor]) -> Option<String> {
    let text = std::str::from_utf8(content).ok().filter(|text| !text.contains('\0'))?;
    Some(redactors.iter().fold(text.to_owned(), |text, redactor| redactor.text(&text).into_owned()))
}

/// Quotes a name as Git does if it has characters that would end it.
fn quoted(name: &str) -> String {
    if !name.contains(|c: char| c.is_control() || c == '"' || c == '\\') {
        return name.to_owned();
    }
    let mut quoted = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted += &format!("\\{byte:03o}"),
        }
    }
    quoted + "\""
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::workspace::copy::WorkspaceCopy;
    use crate::workspace::git::git;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    /// Applies the patch of a copy to a fresh copy of the original, and compares both.
    #[test]
    fn git_applies_the_patch_of_every_kind_of_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().expect("a parent")).expect("a directory");
            fs::write(at(name), text).expect("a file");
        };
        let long: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
        write("old/edited.txt", "one\ntwo\nthree");
        write("old/gone.txt", "a\nb\n");
        write("old/carriage.txt", "a\rb\r\nc\n");
        write("old/long.txt", &long);
        write("old/tool.sh", "echo\n");
        write("old/linked.txt", "a\n");
        write("old/picture.png", "text");
        let bytes: Vec<u8> =
            (0..70_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for name in ["old/edited.bin", "old/gone.bin", "old/became-text", "old/tool.bin", "old/linked.bin"] {
            fs::write(at(name), &bytes).expect("a file");
        }
        fs::create_dir(at("new")).expect("a directory");
        let copy = WorkspaceCopy::make(&at("old"), &at("new"), &at("new"), &|| false).expect("a copy");
        write("new/edited.txt", "one\n2\nthree");
        fs::remove_file(at("new/gone.txt")).expect("a file");
        write("new/carriage.txt", "a\rB\r\nc\nd");
        write("new/long.txt", &long.replace('0', "zero"));
        fs::set_permissions(at("new/tool.sh"), fs::Permissions::from_mode(0o755)).expect("a file");
        fs::remove_file(at("new/linked.txt")).expect("a file");
        symlink("edited.txt", at("new/linked.txt")).expect("a link");
        write("new/dir/with space.txt", "x\n");
        write("new/a \"quoted\"\nname \u{e4}.txt", "x\n");
        write("new/empty", "");
        // What the agent hides from Git has changed all the same.
        write("new/.gitignore", "*\n");
        write("new/hidden.txt", "hidden key-12345678\n");
        fs::write(at("new/picture.png"), [0, 1, 255]).expect("a file");
        fs::write(at("new/edited.bin"), &bytes[1..]).expect("a file");
        fs::remove_file(at("new/gone.bin")).expect("a file");
        write("new/became-text", "text\n");
        fs::set_permissions(at("new/tool.bin"), fs::Permissions::from_mode(0o755)).expect("a file");
        fs::remove_file(at("new/linked.bin")).expect("a file");
        symlink("edited.bin", at("new/linked.bin")).expect("a link");
        fs::write(at("new/dir/new \u{e4} picture.png"), b"\x89PNG\0key-12345678").expect("a file");
        let changes = copy.changed_files(1 << 20).expect("changes");
        let patch = copy.patch(&changes, &[]).expect("a patch");
        assert_eq!(patch.left_out, [""; 0]);
        write("patch", &patch.text);
        WorkspaceCopy::make(&at("old"), &at("applied"), &at("new"), &|| false).expect("a copy");
        let patch_file = at("patch");
        git(&at("applied"), &[OsStr::new("apply"), patch_file.as_os_str()], &[])
            .unwrap_or_else(|error| panic!("{error}\n{}", patch.text));
        assert_eq!(files(&at("applied")), files(&at("new")));
        git(&at("applied"), &[OsStr::new("apply"), OsStr::new("--reverse"), patch_file.as_os_str()], &[])
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(files(&at("applied")), files(&at("old")));
        let redactor = Redactor::new(["key-12345678"]);
        let CopyPatch { text: redacted, left_out } = copy.patch(&changes, &[&redactor]).expect("a patch");
        assert_eq!(left_out, ["dir/new \u{e4} picture.png"], "a file that is not text cannot be redacted");
        assert!(redacted.contains("hidden [redacted]") && !redacted.contains("key-1"), "{redacted}");
        assert!(copy.changed_files(1000).is_err_and(|error| error.to_string().contains("more than 1000")));
    }

    /// Returns the names, modes and content of all files below a directory.
    fn files(root: &Path) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut waiting = vec![root.to_owned()];
        while let Some(dir) = waiting.pop() {
            for entry in fs::read_dir(&dir).expect("a directory").flatten() {
                let metadata = entry.metadata().expect("metadata");
                if metadata.is_dir() {
                    waiting.push(entry.path());
                    continue;
                }
                let name = entry.path().strip_prefix(root).expect("inside").to_string_lossy().into_owned();
                let is_link = metadata.file_type().is_symlink();
                let content = match is_link {
                    true => {
                        fs::read_link(entry.path()).expect("a link").into_os_string().into_encoded_bytes()
                    }
                    false => fs::read(entry.path()).expect("a file"),
                };
                let mode = if is_link { 0 } else { metadata.permissions().mode() & 0o100 };
                found.push((name, mode, content));
            }
        }
        found.sort();
        found
    }
}
