//! Programs that treat most arguments as data, but run a command for some subcommands or options.
//!
//! What such a program runs is known only if its options are known. A word that may turn into an option at run time
//! makes the command undeterminable.

use super::words::Word;

/// A program with subcommands.
struct Subcommands {
    names: &'static [&'static str],
    /// Options before the subcommand. A trailing `=` marks options whose value is the next word.
    leading: &'static [&'static str],
    /// Subcommands that run none of their arguments.
    data: &'static [&'static str],
}

const SUBCOMMANDS: &[Subcommands] = &[
    Subcommands {
        names: &["git"],
        leading: &["--no-pager", "-P", "-p", "--paginate", "--bare", "--version", "--help", "-C="],
        data: &[
            "add",
            "apply",
            "blame",
            "branch",
            "cat-file",
            "check-ignore",
            "checkout",
            "cherry-pick",
            "clean",
            "clone",
            "commit",
            "describe",
            "diff",
            "fetch",
            "grep",
            "init",
            "log",
            "ls-files",
            "ls-remote",
            "ls-tree",
            "merge",
            "merge-base",
            "mv",
            "pull",
            "push",
            "reflog",
            "remote",
            "reset",
            "restore",
            "rev-list",
            "rev-parse",
            "revert",
            "rm",
            "shortlog",
            "show",
            "show-ref",
            "stash",
            "status",
            "switch",
            "tag",
            "worktree",
        ],
    },
    Subcommands {
        names: &["npm", "pnpm", "yarn"],
        leading: &["--silent", "-s", "--prefix="],
        data: &[
            "add",
            "audit",
            "ci",
            "i",
            "info",
            "install",
            "list",
            "ls",
            "outdated",
            "remove",
            "rm",
            "run",
            "run-script",
            "search",
            "t",
            "test",
            "un",
            "uninstall",
            "update",
            "version",
            "view",
            "why",
        ],
    },
    Subcommands {
        names: &["gh"],
        leading: &[],
        data: &["api", "auth", "issue", "label", "pr", "release", "repo", "run", "search", "workflow"],
    },
    Subcommands {
        names: &["pip", "pip3"],
        leading: &["-q", "--quiet"],
        data: &["check", "download", "freeze", "index", "install", "list", "show", "uninstall", "wheel"],
    },
    Subcommands {
        names: &["cargo"],
        leading: &["-q", "--quiet", "-v", "--offline", "--locked"],
        data: &[
            "add", "b", "bench", "build", "c", "check", "clean", "clippy", "doc", "fetch", "fmt", "metadata",
            "publish", "remove", "rm", "search", "t", "test", "tree", "update",
        ],
    },
    Subcommands {
        names: &["docker", "podman"],
        leading: &[],
        data: &[
            "build", "image", "images", "info", "inspect", "kill", "logs", "network", "ps", "pull", "push",
            "rm", "rmi", "stop", "tag", "version", "volume",
        ],
    },
];
/// Options whose value can make the program run a command, by program or subcommand. Long options may be abbreviated.
const COMMAND_OPTIONS: &[(&str, &[&str])] = &[
    ("cargo", &["--config"]),
    (
        "git",
        &["--config-env", "--exec", "--ext-diff", "--open-files-in-pager", "--receive-pack", "--upload-pack"],
    ),
    ("git clone", &["-u", "-c", "--config"]),
    ("git grep", &["-O"]),
    ("man", &["-H", "-P", "--html", "--pager"]),
    ("npm", &["--call", "--script-shell"]),
    ("pnpm", &["--script-shell"]),
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
/// Options that always take the next word as their value, by program or subcommand.
const VALUE_OPTIONS: &[(&str, &[&str])] = &[
    ("cargo", &["-p", "--package", "--bin", "--example", "--features", "--target", "--manifest-path"]),
    ("docker", &["-e", "--env", "--name", "-p", "-u", "-v", "--volume", "-w", "--workdir"]),
    ("git checkout", &["-b", "-B"]),
    ("git commit", &["-m", "-am", "--message", "-F", "--file", "--author", "--date"]),
    ("git merge", &["-m"]),
    ("git stash", &["-m"]),
    ("git switch", &["-c", "-C"]),
    ("git tag", &["-m"]),
    ("gh", &["--title", "--body"]),
    ("podman", &["-e", "--env", "--name", "-p", "-u", "-v", "--volume", "-w", "--workdir"]),
    ("rg", &["-e", "-g", "-t"]),
    ("sort", &["-o", "-k", "-t"]),
    ("tar", &["-C", "-f", "-xf", "-cf", "-czf", "-xzf", "xf", "cf", "czf", "xzf", "tf"]),
];
/// Programs for which no word after `--` is an option or a command.
const ENDS_OPTIONS: &[&str] = &["git", "man", "rg", "rsync", "sort", "split", "tar"];

/// One use of such a program, with its arguments.
pub(super) struct Runner<'a> {
    name: &'a str,
    arguments: &'a [Word],
    /// The index of the subcommand, if all options before it are known.
    subcommand: Option<usize>,
}

impl<'a> Runner<'a> {
    /// Returns the use of a program, or `None` if it is not in the tables.
    pub(super) fn of(name: &'a str, arguments: &'a [Word]) -> Option<Self> {
        let known = |(program, _): &(&str, _)| *program == name;
        let table = SUBCOMMANDS.iter().find(|table| table.names.contains(&name));
        (table.is_some() || COMMAND_OPTIONS.iter().any(known)).then(|| Self {
            name,
            arguments,
            subcommand: table.and_then(|table| table.position(arguments)),
        })
    }

    /// Returns whether it is not known which words are options, or whether an option runs a command.
    pub(super) fn is_unclear(&self) -> bool {
        self.has_command_option() || (0..self.arguments.len()).any(|at| self.hides_option(at))
    }

    /// Returns whether the program runs none of its arguments.
    pub(super) fn takes_data(&self) -> bool {
        let Some(table) = SUBCOMMANDS.iter().find(|table| table.names.contains(&self.name)) else {
            return true;
        };
        // `ext::COMMAND` is a repository URL that runs a command.
        let has_helper = self.name == "git" && self.arguments.iter().any(|word| word.written.contains("::"));
        !has_helper && self.subcommand_text().is_some_and(|text| table.data.contains(&text))
    }

    fn subcommand_text(&self) -> Option<&'a str> {
        self.arguments[self.subcommand?].known_text()
    }

    /// Returns the options that a table has for the program and its subcommand.
    fn options(&self, table: &[(&str, &'static [&'static str])]) -> impl Iterator<Item = &'static str> {
        let whole = format!("{} {}", self.name, self.subcommand_text().unwrap_or_default());
        let fits = |key: &str| key == self.name || key == whole;
        let found: Vec<_> =
            table.iter().filter(|(key, _)| fits(key)).flat_map(|(_, options)| *options).collect();
        found.into_iter().copied()
    }

    /// Returns whether a word may turn into an option or the subcommand at run time.
    fn hides_option(&self, at: usize) -> bool {
        let word = &self.arguments[at];
        if word.known || self.is_behind_options(at) {
            return false;
        }
        let names_option = word.text.starts_with("--") && word.text.contains('=');
        let may_be = word.text.is_empty() || (word.text.starts_with('-') && !names_option);
        word.splits_at_blanks
            || self.subcommand == Some(at)
            || (may_be && (word.splits || !self.is_value(at)))
    }

    /// Returns whether a word directly follows an option that takes it as its value.
    fn is_value(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).and_then(|at| self.arguments[at].known_text()) else {
            return false;
        };
        let leads = self.subcommand.is_none_or(|subcommand| at < subcommand);
        let table = SUBCOMMANDS.iter().find(|table| table.names.contains(&self.name));
        match table.filter(|_| leads) {
            Some(table) => table.takes_value(before),
            None => self.options(VALUE_OPTIONS).any(|option| option == before) && !self.may_be_value(at - 1),
        }
    }

    /// Returns whether a word that looks like an option may be the value of the option before it.
    ///
    /// Returns `false` where this does not matter, because no option runs a command.
    fn may_be_value(&self, at: usize) -> bool {
        let harmless = matches!(self.name, "docker" | "gh" | "podman")
            || (self.name == "git" && self.subcommand_text() == Some("commit"));
        !harmless && at > 0 && self.arguments[at - 1].written.starts_with('-')
    }

    fn is_behind_options(&self, at: usize) -> bool {
        let subcommand = self.subcommand.unwrap_or(0);
        ENDS_OPTIONS.contains(&self.name)
            && at > subcommand
            && self.arguments[subcommand..at].iter().any(|word| word.known_text() == Some("--"))
    }

    /// Returns whether an argument is an option whose value the program may run.
    fn has_command_option(&self) -> bool {
        let options: Vec<_> = self.options(COMMAND_OPTIONS).collect();
        let is_option = |(at, word): (usize, &Word)| {
            let written = word.written.as_str();
            let long = written.split('=').next().unwrap_or_default();
            let bundle = self.name == "tar" && at == 0;
            let cluster = written.strip_prefix('-').or_else(|| bundle.then_some(written));
            options.iter().any(|option| match option.strip_prefix("--") {
                Some(_) => long.len() > 2 && option.starts_with(long),
                None => cluster.is_some_and(|c| !c.starts_with('-') && c.contains(&option[1..])),
            })
        };
        self.arguments.iter().enumerate().any(is_option)
    }
}

impl Subcommands {
    /// Returns the index of the subcommand, or `None` if an option before it is not known.
    fn position(&self, arguments: &[Word]) -> Option<usize> {
        let mut at = 0;
        while let Some(option) = arguments.get(at)?.written.strip_prefix('-').map(|_| &arguments[at].text) {
            at += if self.takes_value(option) { 2 } else { 1 };
            let known = self.takes_value(option) || self.leading.contains(&option.as_str());
            known.then_some(())?;
        }
        (at < arguments.len()).then_some(at)
    }

    fn takes_value(&self, option: &str) -> bool {
        self.leading.iter().any(|leading| leading.strip_suffix('=') == Some(option))
    }
}
