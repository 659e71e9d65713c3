//! Leaves out the long messages that agents pass to `git commit` and `gh` in a here-document.
//!
//! The omitted text is not analyzed, so the text before it must consist of plain words whose quotes every shell parses
//! in the same way. Any other here-document in a substitution stays, and is not parsed.

use std::borrow::Cow;

const OPENING: &str = "$(cat <<'";
/// Characters outside quotes that may change how the following quotes are parsed.
const UNCLEAR: &str = "$`\\#<(){}";
const UNCLEAR_IN_QUOTES: &str = "$`\\";
/// Characters that end a simple command.
const SEPARATORS: &str = ";&|\n";

/// Replaces `"$(cat <<'TAG' … TAG)"` with `"$(cat)"` if it is an argument of a program that takes messages.
pub(super) fn without_messages(text: &str) -> Cow<'_, str> {
    fold(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn fold(text: &str) -> Option<String> {
    let (mut folded, mut rest, mut command) = (String::new(), text, String::new());
    while let Some(at) = rest.find(OPENING) {
        let before = &rest[..at];
        read_plain(before.strip_suffix('"')?, &mut command)?;
        takes_message(&command).then_some(())?;
        folded.push_str(before);
        folded.push_str("$(cat)");
        rest = behind_message(&rest[at + OPENING.len()..])?;
        folded.push('"');
        // A quote stands in for the message in the command.
        command.push('"');
    }
    folded.push_str(rest);
    Some(folded)
}

/// Reads plain words up to the start of a quoted word, and stores the last simple command in `command` as written.
fn read_plain(text: &str, command: &mut String) -> Option<()> {
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some('"') if UNCLEAR_IN_QUOTES.contains(c) => return None,
            Some(_) => {}
            None if UNCLEAR.contains(c) => return None,
            None if SEPARATORS.contains(c) => {
                command.clear();
                continue;
            }
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None => {}
        }
        command.push(c);
    }
    (quote.is_none() && text.ends_with([' ', '='])).then_some(())
}

/// Returns whether a simple command takes the following word as a message.
fn takes_message(command: &str) -> bool {
    let args: Vec<&str> = command.split_whitespace().take(4).collect();
    match args[..] {
        ["git", "commit", ..] | ["gh", "pr" | "issue" | "release", ..] => true,
        ["git", "-C", folder, "commit"] => !folder.contains(['\'', '"']),
        _ => false,
    }
}

/// Returns the text after the closing quote of a message. `text` starts at the delimiter.
fn behind_message(text: &str) -> Option<&str> {
    let (tag, body) = text.split_once("'\n")?;
    let is_name = !tag.is_empty() && tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let line = format!("\n{tag}\n");
    let end = if body.starts_with(&line[1..]) { 0 } else { body.find(&line)? + 1 };
    let behind = body[end + tag.len()..].trim_start_matches('\n').strip_prefix(")\"")?;
    // Older shells also end the document at a line that only starts with the delimiter.
    let ends_early = body[..end].lines().any(|line| line.trim_start().starts_with(tag));
    (is_name && !ends_early).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_messages_are_removed() {
        let message = "\"$(cat <<'EOF'\nit's ) `here`, $$( and \" too\nEOF\n)\"";
        for command in [
            "git commit -m @",
            "git commit -m @ && ls $(pwd)",
            "cd src && git add -A; git commit -am @\ngit push",
            "git -C src commit -m @",
            "git commit -m 'one' -m \"it's #2\" --message=@",
            "gh pr create --title \"Fix it\" --body @",
            "gh pr create --title @ --body @",
        ] {
            let folded = without_messages(&command.replace('@', message)).into_owned();
            assert_eq!(folded, command.replace('@', "\"$(cat)\""));
        }
    }

    #[test]
    fn code_is_not_mistaken_for_a_message() {
        for same in [
            // Here the quotes belong to the words, so the apparent message is code.
            "git commit '$(cat <<'E'\n' ; rm x ; echo '\nE\n)'",
            "git commit \"$$(cat <<'E'\n\" ; rm x ; echo \"\nE\n)\"",
            "git commit a \\\n# '\necho '$(cat <<'E'\n'\nrm x\necho '\nE\n)'",
            "git commit a \\\n# \"\ngit commit \"$(cat <<'E'\n\"\nrm x\necho \"\nE\n)\"",
            "# it's\ngit commit \"$(cat <<'E'\nE\n)\"",
            "git commit $(cat <<'E'\nE\n)",
            "git commit \"a$(cat <<'E'\nE\n)\"",
            "git commit \"\"\"$(cat <<'E'\nE\n)\"",
            "git commit -m \"$(sh <<'E'\nrm x\nE\n)\"",
            "git commit -m \"$(cat <<'E'\nE\nrm x)\"",
            "git commit -m \"$(cat <<'E'\nE\n) $(rm x)\"",
            "git commit -m \"$(cat <<'E'\nE)\"; rm x; echo \"\nE\n)\"",
            "git -C \"a commit b\" x -m \"$(cat <<'E'\nE\n)\"",
            "cat <<A\n\"\nA\ngit commit -m \"$(cat <<'E'\nE\n)\"",
            "awk \"$(cat <<'E'\nBEGIN{system(\"rm x\")}\nE\n)\"",
            "git commit -m a; ssh h \"$(cat <<'E'\nrm x\nE\n)\"",
            "git alias \"$(cat <<'E'\nrm x\nE\n)\"",
            "git commit-graph \"$(cat <<'E'\nrm x\nE\n)\"",
            "gh alias set x \"$(cat <<'E'\n!rm x\nE\n)\"",
        ] {
            assert_eq!(without_messages(same), same);
        }
    }
}
