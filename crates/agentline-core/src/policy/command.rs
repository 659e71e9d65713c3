//! A shell command as rules see it: its simple commands and the programs that they start.
//!
//! An `allow` pattern needs a command that is fully understood. If a command is more than a sequence of simple
//! commands, because it has a substitution, a loop or a redirection to a file, it is not [plain](Command::plain), and
//! no pattern allows it. `deny` patterns are compared with every program that the text starts; see [`super::shell`].

use super::shell::{self, Analysis};
use std::collections::BTreeSet;

/// The maximum number of forms of a command that are compared with rules.
const MAX_FORMS: usize = 1024;
/// The maximum total size of these forms, in bytes.
const MAX_FORM_BYTES: usize = 512 << 10;

/// An analyzed command, split into parts.
#[derive(Clone, Debug)]
pub(super) struct ParsedCommand {
    /// The simple commands, or the whole command if it is not plain.
    pub(super) parts: Vec<CommandPart>,
    /// Whether the command was understood: it runs nothing but its parts.
    pub(super) plain: bool,
}

/// One part of a command.
#[derive(Clone, Debug)]
pub(super) struct CommandPart {
    /// The text as written.
    pub(super) text: String,
    /// Every form that a `deny` rule may match, with whether more words follow that are known only at run time.
    pub(super) forms: BTreeSet<(String, bool)>,
    /// Whether it starts a program that its text does not name.
    pub(super) undeterminable: bool,
    /// Words that may be names of programs that it starts.
    pub(super) named: BTreeSet<String>,
}

impl ParsedCommand {
    /// Analyzes a command. `paths` returns the other paths under which a program's path is known.
    pub(super) fn read(text: &str, paths: &dyn Fn(&str) -> Vec<String>) -> Self {
        let script = shell::analyze(text, paths);
        let whole = || vec![CommandPart::new(text.trim().to_owned(), &script.whole)];
        match &script.plain {
            Some(parts) if parts.len() <= MAX_FORMS => {
                let part = |(text, analysis): &(String, Analysis)| CommandPart::new(text.clone(), analysis);
                Self { parts: parts.iter().map(part).collect(), plain: true }
            }
            _ => Self { parts: whole(), plain: false },
        }
    }
}

impl CommandPart {
    fn new(text: String, analysis: &Analysis) -> Self {
        let mut forms: BTreeSet<(String, bool)> = [(text.clone(), false)].into();
        let mut undeterminable = analysis.undeterminable;
        let mut bytes = 0;
        for form in analysis.invocations.iter().flat_map(shell::Invocation::forms) {
            bytes += form.0.len();
            if forms.len() >= MAX_FORMS || bytes > MAX_FORM_BYTES {
                undeterminable = true;
                break;
            }
            forms.insert(form);
        }
        Self { text, forms, undeterminable, named: analysis.named.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> ParsedCommand {
        ParsedCommand::read(text, &|path| vec![path.to_owned()])
    }

    #[test]
    #[cfg(not(windows))]
    fn plain_commands_are_split_into_parts() {
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
            ("a # it's\nb", &["a", "b"]),
            ("A=1 a", &["A=1 a"]),
            ("a  'b'", &["a 'b'"]),
        ] {
            let command = read(text);
            assert!(command.plain, "{text}");
            let found: Vec<&str> = command.parts.iter().map(|part| part.text.as_str()).collect();
            assert_eq!(found, parts, "{text}");
        }
    }

    #[test]
    fn commands_with_hidden_parts_are_not_plain() {
        for text in [
            "git $(rm x)",
            "git `rm x`",
            "git \"$(rm x)\"",
            "git \"`rm x`\"",
            "git $((x))",
            "git > out",
            "git >> out",
            "git >/dev/nullx",
            "git >&file",
            "git 2>&1x",
            "git < in",
            "git <(rm x)",
            "(rm x)",
            "{ rm x; }",
            "if a; then b; fi",
            "git() { rm x; }; git",
            "git 'open",
            "git \"open",
            "git \\",
            "cat <<EOF\nEOF",
            "git \u{1b}[2K",
            "git \0",
            "git \r rm x",
            ";;",
        ] {
            assert!(!read(text).plain, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in r#"[a-z '"\\$(){}<>|&;`#=\n*?!\[\]~-]{0,60}"#) {
            let _ = read(&text);
        }

        #[test]
        fn word_combinations_never_panic(
            words in proptest::collection::vec(
                proptest::sample::select(vec![
                    "if", "then", "fi", "for", "in", "do", "done", "case", "esac", "{", "}", "(", ")", "((", "))", "[[",
                    "]]", "$(", "`", "<<E", "\nE\n", "\n", ";", ";;", "|", "&&", "!", "time", "coproc", "function", "f()",
                    "env", "-u", "xargs", "-I", "{}", "find", "-exec", "sh", "-c", "'rm x'", "\"$X\"", "$X", "A=1", "a=(",
                    "a[1]=2", "$'\\x72'", "<(", ">", "2>&1", "<<<", "trap", "alias", "x=y", "eval", "é", "{a,b}", "${x@P}",
                ]),
                0..24,
            ),
            blank in proptest::bool::ANY,
        ) {
            let _ = read(&words.join(if blank { " " } else { "" }));
        }
    }
}
