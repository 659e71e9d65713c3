//! Takes a command apart, so that a rule for one program does not let another one slip through beside it.
//!
//! What is permitted must be understood: a command with a substitution, a redirection to a file, a comment or a quote
//! that stays open is not [plain](Command::plain), and no pattern permits it. What is refused is looked for wherever it
//! may hide: behind assignments, keywords, wrappers such as `env`, folders, quotes, and inside `sh -c`.

/// Words that may stand before a command.
const BEFORE: &[&str] = &["!", "if", "then", "else", "elif", "do", "while", "until", "{", "}"];
/// Programs that start the program named behind them.
const WRAPPERS: &[&str] = &[
    "builtin", "command", "doas", "env", "exec", "nice", "nohup", "setsid", "stdbuf", "sudo", "time", "xargs",
];
/// Programs that read a command from an argument.
const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "sh", "zsh"];
/// How deep a command inside a command is followed.
const DEPTH: u8 = 4;

/// A command, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// What runs one after another or side by side; the whole text where it is not plain.
    pub(super) parts: Vec<String>,
    /// It was understood: nothing runs but the parts.
    pub(super) plain: bool,
}

impl Command {
    /// Takes a command apart.
    pub(super) fn read(text: &str) -> Self {
        match plain_parts(text) {
            Some(parts) => Self { parts, plain: true },
            None => Self { parts: vec![text.trim().to_owned()], plain: false },
        }
    }

    /// Every form in which a refusal may meet one of the parts.
    pub(super) fn forms(&self, part: &str) -> Vec<String> {
        let mut forms = vec![part.to_owned()];
        let pieces = if self.plain { vec![part] } else { pieces(part) };
        for piece in pieces {
            add_forms(piece, DEPTH, &mut forms);
        }
        forms
    }
}

/// The parts of a command that is understood; `None` where something else may run.
fn plain_parts(text: &str) -> Option<Vec<String>> {
    if cfg!(windows) && text.contains(['\'', '"', '^', '%', '`']) && text.contains(['&', '|', ';', '\n']) {
        // The shells there do not agree on what a quote is.
        return None;
    }
    let mut parts = vec![String::new()];
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let part = parts.last_mut()?;
        let at_word_start = part.chars().next_back().is_none_or(char::is_whitespace);
        rest = match c {
            '\\' => {
                let next = after.chars().next()?;
                part.extend([c, next]);
                &after[next.len_utf8()..]
            }
            '\'' => {
                let end = after.find('\'')?;
                part.push_str(&rest[..end + 2]);
                &after[end + 1..]
            }
            '"' => {
                let end = end_of_double_quote(after)?;
                part.push_str(&rest[..end + 2]);
                &after[end + 1..]
            }
            '$' if after.starts_with(['(', '\'', '"', '[']) => return None,
            '`' | '<' | '(' | ')' => return None,
            '#' if at_word_start => return None,
            '>' => {
                let target = harmless_target(after)?;
                // The number of the stream that is redirected goes with it.
                let digits = part.trim_end_matches(|d: char| d.is_ascii_digit());
                if digits.is_empty() || digits.ends_with(char::is_whitespace) {
                    part.truncate(digits.len());
                }
                &after[target..]
            }
            '&' if after.starts_with('>') => after,
            ';' | '|' | '&' | '\n' => {
                parts.push(String::new());
                after
            }
            c if c.is_control() && !matches!(c, '\t' | '\r') => return None,
            c => {
                part.push(c);
                after
            }
        };
    }
    Some(parts.iter().map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect())
}

/// Where a double quote ends; `None` where it does not, or where something runs inside of it.
fn end_of_double_quote(text: &str) -> Option<usize> {
    let mut letters = text.char_indices();
    while let Some((at, c)) = letters.next() {
        match c {
            '"' => return Some(at),
            '\\' => drop(letters.next()?),
            '`' => return None,
            '$' if text[at + 1..].starts_with('(') => return None,
            _ => {}
        }
    }
    None
}

/// How long the target of a redirection is when it writes to no file: `/dev/null`, or another stream.
fn harmless_target(after: &str) -> Option<usize> {
    let trimmed = after.strip_prefix('>').unwrap_or(after).trim_start_matches([' ', '\t']);
    let length = match trimmed.strip_prefix('&') {
        Some(stream) => {
            let digits = stream.chars().take_while(char::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            digits + 1
        }
        None => trimmed.starts_with("/dev/null").then_some("/dev/null".len())?,
    };
    let ends = trimmed[length..].chars().next().is_none_or(|c| c.is_whitespace() || ";|&".contains(c));
    ends.then_some(after.len() - trimmed.len() + length)
}

/// Everything between the signs that separate commands, in quotes or not.
fn pieces(text: &str) -> Vec<&str> {
    let pieces = text.split(['\n', ';', '|', '&', '(', ')', '`', '{', '}']);
    pieces.map(str::trim).filter(|p| !p.is_empty()).collect()
}

/// The forms of one simple command: without what stands before it, without quotes, without folders.
fn add_forms(piece: &str, depth: u8, forms: &mut Vec<String>) {
    let words = words(piece);
    let mut words = words.as_slice();
    loop {
        let Some(first) = words.first() else { return };
        let program = first.rsplit(['/', '\\']).next().unwrap_or(first);
        let mut put = |form: String| {
            if !forms.contains(&form) {
                forms.push(form);
            }
        };
        put(words.join(" "));
        put(std::iter::once(program)
            .chain(words[1..].iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" "));
        let inner = match program {
            "eval" => Some(words[1..].join(" ")),
            shell if SHELLS.contains(&shell) => {
                let flag =
                    words.iter().position(|w| w.starts_with('-') && !w.starts_with("--") && w.contains('c'));
                flag.and_then(|at| words.get(at + 1)).cloned()
            }
            _ => None,
        };
        if let Some(inner) = inner.filter(|_| depth > 0) {
            for piece in pieces(&inner) {
                add_forms(piece, depth - 1, forms);
            }
        }
        let is_wrapper = WRAPPERS.contains(&program);
        if !is_wrapper && !BEFORE.contains(&program) && !is_assignment(first) {
            return;
        }
        words = &words[1..];
        if is_wrapper {
            let skipped = words.iter().take_while(|w| w.starts_with('-') || is_assignment(w)).count();
            // A flag may take the next word, so both readings count.
            if skipped > 0 && words.len() > skipped + 1 {
                add_forms(&words[skipped + 1..].join(" "), depth.saturating_sub(1), forms);
            }
            words = &words[skipped..];
        }
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// The words of a simple command without their quotes; one that stays open ends with the text.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg(not(windows))]
    fn plain_commands_fall_into_parts() {
        for (text, parts) in [
            ("git status", &["git status"][..]),
            ("a && b; c | d", &["a", "b", "c", "d"]),
            ("a || b & c\nd", &["a", "b", "c", "d"]),
            ("a |& b", &["a", "b"]),
            ("echo 'a; b' \"c && d\" e\\;f", &["echo 'a; b' \"c && d\" e\\;f"]),
            ("make 2>&1 | tail", &["make", "tail"]),
            ("make >/dev/null 2>&1", &["make"]),
            ("make &> /dev/null; x", &["make", "x"]),
            ("git log --format=%h#x", &["git log --format=%h#x"]),
            ("echo $HOME ${A}", &["echo $HOME ${A}"]),
            ("  ;; ", &[]),
        ] {
            let command = Command::read(text);
            assert!(command.plain, "{text}");
            assert_eq!(command.parts, parts, "{text}");
        }
    }

    #[test]
    fn what_hides_something_is_not_plain() {
        for text in [
            "git $(rm x)",
            "git `rm x`",
            "git \"$(rm x)\"",
            "git \"`rm x`\"",
            "git > out",
            "git >> out",
            "git >/dev/nullx",
            "git >&file",
            "git 2>&1x",
            "git < in",
            "git <(rm x)",
            "(rm x)",
            "git() { rm x; }; git",
            "git 'open",
            "git \"open",
            "git \\",
            "git # it's\nrm x # it's",
            "git $'a\\'; rm x #'",
            "cat <<EOF\nEOF",
            "git \u{1b}[2K",
            "git \0",
        ] {
            assert!(!Command::read(text).plain, "{text}");
        }
    }

    #[test]
    fn refusals_see_through_disguise() {
        for text in [
            "rm x",
            "/bin/rm x",
            "'rm' x",
            "r\\m x",
            "A=1 B=2 rm x",
            "env -i A=1 rm x",
            "sudo -u root rm x",
            "nohup nice rm x",
            "! rm x",
            "bash -c 'rm x'",
            "sh -lc \"ls; rm x\"",
            "eval rm x",
            "bash -c \"bash -c 'rm x'\"",
            "git $(rm x)",
            "git `rm x`",
            "(rm x)",
            "{ rm x; }",
            "if true; then rm x; fi",
            "git # it's\nrm x",
            "find | xargs -0 rm x",
        ] {
            let command = Command::read(text);
            let forms: Vec<String> = command.parts.iter().flat_map(|p| command.forms(p)).collect();
            assert!(forms.iter().any(|f| f == "rm x"), "{text}: {forms:?}");
        }
        let command = Command::read("git commit -m 'rm x; rm x'");
        assert!(!command.forms(&command.parts[0]).iter().any(|f| f.starts_with("rm")));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"[a-z '"\\$(){}<>|&;`#=\n-]{0,40}"#) {
            let command = Command::read(&text);
            for part in &command.parts {
                let _ = command.forms(part);
            }
        }
    }
}
