//! Programs that start the program named by their arguments.

use super::words::Word;

/// The meaning of the words after a program's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    /// Starts them as a program with arguments.
    Program,
    /// Passes them to a shell as one text.
    ShellText,
}

/// The argument syntax of a program that starts another one.
#[derive(Clone, Copy, Debug)]
struct Wrapper {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value.
    values: &'static str,
    /// Long options. A trailing `=` marks options with a value.
    long: &'static [&'static str],
    /// The number of operands between the options and the program.
    operands: usize,
    /// Whether `NAME=value` may precede the program.
    assigns: bool,
    /// A short option whose value is the text of a command.
    text: Option<char>,
    runs: Runs,
}

const fn wrapper(name: &'static str, flags: &'static str, values: &'static str) -> Wrapper {
    Wrapper { name, flags, values, long: &[], operands: 0, assigns: false, text: None, runs: Runs::Program }
}

/// The wrappers whose options are known. A use with any other option is undeterminable.
const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        long: &["ignore-environment", "null", "debug", "unset=", "chdir="],
        assigns: true,
        ..wrapper("env", "i0v", "uC")
    },
    Wrapper { long: &["adjustment="], ..wrapper("nice", "0123456789", "n") },
    wrapper("nohup", "", ""),
    Wrapper {
        long: &["foreground", "preserve-status", "verbose", "kill-after=", "signal="],
        operands: 1,
        ..wrapper("timeout", "vfp", "ks")
    },
    Wrapper {
        long: &["append", "verbose", "portability", "format=", "output="],
        ..wrapper("time", "apvq", "fo")
    },
    wrapper("command", "p", ""),
    wrapper("builtin", "", ""),
    wrapper("exec", "cl", "a"),
    wrapper("coproc", "", ""),
    wrapper("noglob", "", ""),
    wrapper("nocorrect", "", ""),
    wrapper("busybox", "", ""),
    wrapper("toybox", "", ""),
    Wrapper {
        long: &[
            "background",
            "preserve-env",
            "set-home",
            "login",
            "non-interactive",
            "stdin",
            "user=",
            "group=",
        ],
        assigns: true,
        ..wrapper("sudo", "AbEHiknPSs", "ugpCTrtUDRh")
    },
    wrapper("doas", "nsL", "uC"),
    Wrapper { long: &["ctty", "fork", "wait"], ..wrapper("setsid", "cfw", "") },
    Wrapper { long: &["input=", "output=", "error="], ..wrapper("stdbuf", "", "ioe") },
    Wrapper { long: &["class=", "classdata=", "ignore"], ..wrapper("ionice", "t", "cn") },
    Wrapper { long: &["groups=", "userspec=", "skip-chdir"], operands: 1, ..wrapper("chroot", "", "") },
    Wrapper { operands: 1, ..wrapper("taskset", "ac", "") },
    Wrapper { operands: 1, ..wrapper("chrt", "abdfiorRm", "") },
    Wrapper {
        long: &["beep", "color", "differences", "errexit", "chgexit", "no-title", "precise", "interval="],
        runs: Runs::ShellText,
        ..wrapper("watch", "bcdegptw", "n")
    },
    Wrapper {
        long: &[
            "mount",
            "uts",
            "ipc",
            "net",
            "pid",
            "user",
            "cgroup",
            "time",
            "fork",
            "map-root-user",
            "map-current-user",
            "mount-proc",
            "keep-caps",
            "root=",
            "wd=",
            "setuid=",
            "setgid=",
        ],
        ..wrapper("unshare", "muinpUCTfrc", "RwSG")
    },
    Wrapper {
        long: &["command=", "quiet", "return", "flush", "append"],
        text: Some('c'),
        ..wrapper("script", "qefa", "")
    },
    Wrapper {
        long: &["shared", "exclusive", "nonblock", "unlock", "close", "no-fork", "timeout=", "wait="],
        operands: 1,
        text: Some('c'),
        ..wrapper("flock", "sxenuoF", "wE")
    },
    wrapper("strace", "cCdfFhikqrtTvVwxyYzZ", "abeEIoOpPsSuUX"),
    wrapper("ltrace", "cCfhiLrStTV", "aAeFlnoDpsuwx"),
];

/// Programs that start others in ways that are not analyzed, and programs that evaluate text.
const OPAQUE: &[&str] = &[
    "eval",
    "parallel",
    "repeat",
    "foreach",
    "fc",
    "bind",
    "complete",
    "compgen",
    "enable",
    "hash",
    "emulate",
    "zmodload",
    "autoload",
    "nsenter",
    "setpriv",
    "runuser",
    "su",
    "su-exec",
    "gosu",
    "systemd-run",
    "bwrap",
    "firejail",
    "proot",
    "fakeroot",
    "fakechroot",
    "faketime",
    "prlimit",
    "numactl",
    "setarch",
    "linux32",
    "linux64",
    "choom",
    "chpst",
    "softlimit",
    "setuidgid",
    "envdir",
    "dumb-init",
    "tini",
    "catchsegv",
    "valgrind",
    "gdb",
    "rlwrap",
    "unbuffer",
    "expect",
    "entr",
    "xvfb-run",
    "dbus-run-session",
    "dbus-launch",
    "caffeinate",
    "arch",
    "cgexec",
    "torsocks",
    "proxychains",
    "proxychains4",
    "tsocks",
    "fish",
    "csh",
    "tcsh",
    "pwsh",
    "powershell",
    "nu",
    "elvish",
    "xonsh",
    "screen",
    "tmux",
    "at",
    "batch",
    "crontab",
    "start-stop-daemon",
    "daemonize",
    "pkexec",
    "sg",
    "newgrp",
    "capsh",
    "ld.so",
    "ld-linux.so.2",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "run-parts",
    "perf",
    "nodemon",
    "watchexec",
    "hyperfine",
    "cpulimit",
    "chronic",
    "ifne",
    "pee",
    "mispipe",
    "lckdo",
    "setlock",
    "direnv",
    "coresched",
    "i386",
    "i486",
    "i586",
    "i686",
    "pipesz",
    "runcon",
    "ssh-agent",
    "systemd-cat",
    "systemd-inhibit",
    "uclampset",
    "uname26",
    "x86_64",
    "ppc",
    "ppc32",
    "ppc64",
    "sparc",
    "sparc64",
    "s390",
    "s390x",
];

/// The program or command that a program starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StartedProgram<'a> {
    /// Nothing, as far as known.
    Nothing,
    /// Another program.
    Program(&'a [Word]),
    /// The text of a command, for a shell.
    Text(Word),
    /// Something that cannot be determined.
    Unknown,
}

/// Returns what `name` starts with these arguments.
pub(super) fn started<'a>(name: &str, arguments: &'a [Word]) -> StartedProgram<'a> {
    if OPAQUE.contains(&name) {
        return StartedProgram::Unknown;
    }
    let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) else {
        return StartedProgram::Nothing;
    };
    wrapper.start(arguments).unwrap_or(StartedProgram::Unknown)
}

/// Returns whether a program starts the one named by its arguments.
pub(super) fn is_wrapper(name: &str) -> bool {
    OPAQUE.contains(&name) || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
}

impl Wrapper {
    fn start<'a>(&self, mut rest: &'a [Word]) -> Option<StartedProgram<'a>> {
        let mut operands = self.operands;
        let mut options = true;
        loop {
            let Some((first, after)) = rest.split_first() else {
                // Without a program, a wrapper starts nothing or a shell.
                return Some(if self.runs_a_shell_by_itself() {
                    StartedProgram::Unknown
                } else {
                    StartedProgram::Nothing
                });
            };
            let text = first.known_text();
            if options && text == Some("--") {
                (options, rest) = (false, after);
            } else if let Some(option) = text.filter(|t| options && t.len() > 1 && t.starts_with('-')) {
                if self.name == "command" && matches!(option, "-v" | "-V") {
                    return Some(StartedProgram::Nothing);
                }
                if let Some(command) = self.text_option(option, after)? {
                    return Some(StartedProgram::Text(command));
                }
                rest = self.skip_option(option, after)?;
            } else if (self.name == "env" && text == Some("-"))
                || (self.assigns && text.is_some_and(|word| word.contains('=')))
            {
                rest = after;
            } else if operands > 0 {
                let begins_otherwise =
                    !first.splits && !first.text.is_empty() && !first.text.starts_with('-');
                // Otherwise it may be an option, and then the operand is the program.
                (first.known || begins_otherwise).then_some(())?;
                (operands, rest) = (operands - 1, after);
                // Further options belong to the started program, except for `flock FILE -c TEXT`.
                options = self.text.is_some() && after.first().is_some_and(|w| w.text.starts_with('-'));
            } else if self.runs == Runs::ShellText {
                return Some(StartedProgram::Text(joined(rest)));
            } else if self.name == "script" {
                return None;
            } else {
                return Some(StartedProgram::Program(rest));
            }
        }
    }

    /// Returns the text after an option such as `-c`. The outer `None` means that it cannot be determined.
    fn text_option(&self, option: &str, after: &[Word]) -> Option<Option<Word>> {
        let Some(letter) = self.text else { return Some(None) };
        if let Some(value) = option.strip_prefix("--command=") {
            return Some(Some(Word::literal(value)));
        }
        if option == "--command" {
            return after.first().cloned().map(Some);
        }
        let Some(cluster) = option.strip_prefix('-').filter(|o| !o.starts_with('-')) else {
            return Some(None);
        };
        match cluster.split_once(letter) {
            None => Some(None),
            Some((flags, "")) if flags.chars().all(|c| self.flags.contains(c)) => {
                after.first().cloned().map(Some)
            }
            Some(_) => None,
        }
    }

    /// Returns the words after an option and its value, or `None` if the option is not known.
    fn skip_option<'a>(&self, option: &str, after: &'a [Word]) -> Option<&'a [Word]> {
        let value = |after: &'a [Word]| {
            let (value, rest) = after.split_first()?;
            // A value such as `|command` runs a command.
            let may_run = matches!(self.name, "strace" | "ltrace") && !value.known && value.text.is_empty();
            (!value.splits && !may_run && !value.written.starts_with(['|', '!'])).then_some(rest)
        };
        if let Some(long) = option.strip_prefix("--") {
            return match long.split_once('=') {
                Some((name, value)) => {
                    let known = self.long.contains(&format!("{name}=").as_str());
                    (known && !value.starts_with(['|', '!'])).then_some(after)
                }
                None if self.long.contains(&long) => Some(after),
                None if self.long.contains(&format!("{long}=").as_str()) => value(after),
                None => None,
            };
        }
        let cluster = &option[1..];
        for (at, letter) in cluster.char_indices() {
            if self.values.contains(letter) {
                let attached = at + letter.len_utf8() < cluster.len();
                let runs = cluster[at + letter.len_utf8()..].starts_with(['|', '!']);
                return if attached { (!runs).then_some(after) } else { value(after) };
            }
            if !self.flags.contains(letter) {
                return None;
            }
        }
        Some(after)
    }

    /// Returns whether it starts a shell if no program is named.
    fn runs_a_shell_by_itself(&self) -> bool {
        matches!(self.name, "script" | "unshare" | "chroot" | "sudo" | "doas")
    }
}

/// Joins words into one text for a shell.
pub(super) fn joined(words: &[Word]) -> Word {
    let known = words.iter().all(|word| word.known);
    let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let written = words.iter().map(|word| word.written.as_str()).collect::<Vec<_>>().join(" ");
    Word { text, known, written, ..Word::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let words: Vec<Word> = text
            .split(' ')
            .map(|word| if word == "$X" { Word::unknown() } else { Word::literal(word) })
            .collect();
        match started(&words[0].text, &words[1..]) {
            StartedProgram::Nothing => "-".into(),
            StartedProgram::Program(rest) => {
                rest.iter().map(|w| w.text.clone()).collect::<Vec<_>>().join(" ")
            }
            StartedProgram::Text(word) => format!("'{}'", word.text),
            StartedProgram::Unknown => "?".into(),
        }
    }

    #[test]
    fn program_is_found_after_wrapper_options() {
        for (text, expected) in [
            ("ls -l", "-"),
            ("env rm x", "rm x"),
            ("env -i A=1 -u B rm x", "rm x"),
            ("env -uB --unset=C -- rm x", "rm x"),
            ("env - rm x", "rm x"),
            ("env -S rm", "?"),
            ("env --split-string=rm", "?"),
            ("env $X rm x", " rm x"),
            ("env", "-"),
            ("nice -n 5 rm x", "rm x"),
            ("nice -10 rm x", "rm x"),
            ("timeout -k 5 --signal=KILL 5 rm x", "rm x"),
            ("timeout --foreground 5 rm -rf x", "rm -rf x"),
            ("timeout $X rm x", "?"),
            ("command -p rm x", "rm x"),
            ("command -v rm", "-"),
            ("exec -a ls rm x", "rm x"),
            ("sudo -u root -E A=1 rm x", "rm x"),
            ("sudo -s", "?"),
            ("sudo --new-option rm x", "?"),
            ("stdbuf -oL rm x", "rm x"),
            ("chroot --userspec=a / rm x", "rm x"),
            ("watch -n 1 rm x", "'rm x'"),
            ("script -qc $X /dev/null", "''"),
            ("script -q /dev/null", "?"),
            ("flock -n lock rm x", "rm x"),
            ("flock lock -c rm", "'rm'"),
            ("unshare -Ur rm x", "rm x"),
            ("strace -f -o out rm x", "rm x"),
            ("eval rm x", "?"),
            ("parallel rm ::: x", "?"),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
