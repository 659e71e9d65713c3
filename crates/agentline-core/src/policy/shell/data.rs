//! Programs that take their arguments as data, and variables that a shell treats specially.

use super::words::Word;

/// Programs that never run an argument as a command, whatever it says.
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
/// Words by which some of them run a command after all.
const RUNNING_WORDS: &[(&str, &[&str])] = &[
    ("gh", &["alias", "extension", "codespace"]),
    (
        "git",
        &[
            "-c",
            "bisect",
            "config",
            "difftool",
            "filter-branch",
            "for-each-repo",
            "mergetool",
            "rebase",
            "submodule",
        ],
    ),
    ("npm", &["exec", "explore", "x"]),
    ("pnpm", &["dlx", "exec"]),
    ("printf", &["-v"]),
    ("test", &["-v", "-R"]),
    ("[", &["-v", "-R"]),
    ("yarn", &["dlx", "exec"]),
];
/// Options whose value is a command, by program. A long one may be abbreviated.
const COMMAND_OPTIONS: &[(&str, &[&str])] = &[
    (
        "git",
        &["--config-env", "--exec", "--ext-diff", "--open-files-in-pager", "--receive-pack", "--upload-pack"],
    ),
    ("man", &["-H", "-P", "--html", "--pager"]),
    ("rg", &["--hostname-bin", "--pre"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("sort", &["--compress-program"]),
    ("split", &["--filter"]),
    (
        "tar",
        &[
            "-F",
            "-I",
            "--checkpoint-action",
            "--info-script",
            "--new-volume-script",
            "--rmt-command",
            "--rsh-command",
            "--to-command",
            "--use-compress-program",
        ],
    ),
];
/// Variables that a shell evaluates, sets by itself, or by which it finds what it runs.
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
/// Syntax that bash reads in another way than other shells.
const OF_BASH: &[&str] = &[
    "[[", "&>", ">&", "|&", "$'", "$\"", "$[", "<<<", "<(", ">(", ";&", ";;&", "function", "coproc",
    "select", "((",
];

/// Whether a shell treats a variable of this name specially.
pub(super) fn is_special(name: &str) -> bool {
    SPECIAL.contains(&name) || SPECIAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a program takes these arguments as data.
pub(super) fn takes_data(program: &str, name: &str, arguments: &[Word]) -> bool {
    let in_place =
        !program.contains('/') || program == format!("/bin/{name}") || program == format!("/usr/bin/{name}");
    let words = of(RUNNING_WORDS, name);
    let runs = |word: &Word| {
        words.iter().any(|running| {
            word.written.starts_with(running) && (running.starts_with('-') || word.written == *running)
        })
    };
    in_place && is_data_program(name) && !arguments.iter().any(runs) && !has_command_option(name, arguments)
}

/// Whether it is the name of a program that takes its arguments as data.
pub(super) fn is_data_program(name: &str) -> bool {
    DATA.contains(&name)
}

/// Whether the last of the leading arguments that are the program's own subcommands is behind this many words.
pub(super) fn own_words(name: &str) -> Option<usize> {
    matches!(name, "docker" | "podman").then_some(2)
}

/// Whether an argument is an option whose value the program runs.
pub(super) fn has_command_option(name: &str, arguments: &[Word]) -> bool {
    let options = of(COMMAND_OPTIONS, name);
    let is_option = |(at, word): (usize, &Word)| {
        let written = word.written.as_str();
        let long = written.split('=').next().unwrap_or_default();
        let cluster = written.strip_prefix('-').or_else(|| (name == "tar" && at == 0).then_some(written));
        options.iter().any(|option| match option.strip_prefix("--") {
            Some(_) => long.len() > 3 && option.starts_with(long),
            None => cluster.is_some_and(|c| !c.starts_with('-') && c.contains(&option[1..])),
        })
    };
    arguments.iter().enumerate().any(is_option)
}

/// Whether bash and other shells read a text in different ways.
pub(super) fn is_of_bash(text: &str) -> bool {
    let text = text.replace("$((", "").replace("2>&1", "").replace(">&2", "");
    OF_BASH.iter().any(|syntax| text.contains(syntax))
}

/// The words of a text that may be the name of a program.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && !"_.+-".contains(c)).filter(|name| !name.is_empty())
}

fn of(table: &[(&str, &'static [&'static str])], name: &str) -> &'static [&'static str] {
    table.iter().find(|(program, _)| *program == name).map_or(&[], |(_, values)| *values)
}
