//! Programs that treat their arguments as data, and variables that shells treat specially.

use super::{runners::Runner, words::Word};

/// Programs that treat their arguments as data, except where other tables say otherwise ([`EVALUATING_WORDS`],
/// [`Runner`]).
const DATA: &[&str] = &[
    ":",
    "[",
    "basename",
    "cargo",
    "cat",
    "cd",
    "chmod",
    "chown",
    "cmp",
    "comm",
    "command",
    "cp",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "docker",
    "du",
    "echo",
    "egrep",
    "exit",
    "false",
    "fgrep",
    "file",
    "find",
    "gh",
    "git",
    "grep",
    "head",
    "jq",
    "kill",
    "ln",
    "ls",
    "man",
    "md5sum",
    "mkdir",
    "mv",
    "npm",
    "pgrep",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "realpath",
    "return",
    "rg",
    "rmdir",
    "seq",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "tail",
    "tee",
    "test",
    "touch",
    "tr",
    "true",
    "type",
    "uniq",
    "wc",
    "which",
    "yarn",
];
/// Options with which a builtin evaluates an argument.
const EVALUATING_WORDS: &[(&str, &[&str])] =
    &[("printf", &["-v"]), ("test", &["-v", "-R"]), ("[", &["-v", "-R"])];
/// Variables that a shell evaluates, sets by itself, or uses to find programs.
const SPECIAL: &[&str] = &[
    "_",
    "ENV",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "EXECIGNORE",
    "FCEDIT",
    "FUNCNAME",
    "FUNCNEST",
    "GLOBIGNORE",
    "GROUPS",
    "HISTCMD",
    "HISTFILE",
    "IFS",
    "INPUTRC",
    "LINENO",
    "MAPFILE",
    "OPTARG",
    "OPTERR",
    "OPTIND",
    "PATH",
    "PIPESTATUS",
    "POSIXLY_CORRECT",
    "PPID",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SRANDOM",
    "UID",
    "ZDOTDIR",
    "histchars",
];
const SPECIAL_PREFIXES: &[&str] = &["BASH", "COMP_", "DYLD_", "LD_", "READLINE_"];
/// Syntax that bash parses differently from other shells.
const OF_BASH: &[&str] = &[
    "[[", "&>", ">&", "|&", "$'", "$\"", "$[", "<<<", "<(", ">(", ";&", ";;&", "function", "coproc",
    "select", "((",
];

/// Returns whether shells treat a variable of this name specially.
pub(super) fn is_special(name: &str) -> bool {
    SPECIAL.contains(&name) || SPECIAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether programs run the value of a variable of this name.
pub(super) fn holds_command(name: &str) -> bool {
    name.starts_with("GIT_")
        || ["PAGER", "EDITOR", "BROWSER", "COMMAND"].iter().any(|end| name.ends_with(end))
}

/// Returns whether a program treats these arguments as data.
pub(super) fn takes_data(program: &str, name: &str, arguments: &[Word]) -> bool {
    let is_position_safe =
        !program.contains('/') || program == format!("/bin/{name}") || program == format!("/usr/bin/{name}");
    let words = EVALUATING_WORDS.iter().filter(|(builtin, _)| *builtin == name).flat_map(|(_, words)| *words);
    let mut evaluating =
        words.filter(|word| arguments.iter().any(|argument| argument.written.starts_with(**word)));
    let runs_none = Runner::of(name, arguments).is_none_or(|runner| runner.takes_data());
    is_position_safe && is_data_program(name) && runs_none && evaluating.next().is_none()
}

/// Returns whether a program of this name usually treats its arguments as data.
pub(super) fn is_data_program(name: &str) -> bool {
    DATA.contains(&name)
}

/// Returns how many leading arguments are subcommands of the program.
pub(super) fn own_arguments(name: &str, arguments: &[Word]) -> usize {
    let has_groups = matches!(name, "docker" | "podman");
    let leading = arguments.iter().take_while(|word| !word.written.starts_with('-')).count();
    if has_groups { leading.min(2) } else { 0 }
}

/// Returns whether bash and other shells may parse a text differently.
pub(super) fn is_of_bash(text: &str) -> bool {
    let text = text.replace("$((", "").replace("2>&1", "").replace(">&2", "");
    OF_BASH.iter().any(|syntax| text.contains(syntax))
}

/// Returns the words of a text that may be program names, including those attached to a number or a
/// one-letter option.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && !"_.+-".contains(c));
    words.flat_map(|word| [Some(word), attached(word)]).flatten().filter(|name| !name.is_empty())
}

/// Returns the text attached to a one-letter option (`-Orm`) or to a letter after a number (`1erm`).
fn attached(word: &str) -> Option<&str> {
    let number = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = word.strip_prefix('-').or_else(|| (number.len() < word.len()).then_some(number))?;
    rest.strip_prefix(|c: char| c.is_ascii_alphabetic())
}

/// Returns a text without the quotes, escapes and globs that may hide a name from a comparison.
pub(super) fn without_quotes(text: &str) -> String {
    text.replace(['\\', '\'', '"', '[', '*', '?'], "")
}
