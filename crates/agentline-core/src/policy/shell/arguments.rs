//! Analyzes the arguments of programs that start others in their own way: shells, `find`, `xargs` and builtins.

use super::{
    data,
    followed::{ASSIGNING, DECLARING, SHELLS},
    walk::{StdinSource, Walk},
    words::Word,
};

/// Long options of shells without a value.
const SHELL_FLAGS: &[&str] = &["login", "noprofile", "norc", "posix", "restricted", "verbose", "noediting"];
/// Actions of `find` that start a program.
const EXECUTING: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
/// Tests of `find` with a value, which may be known only at run time.
const FIND_VALUES: &[&str] = &[
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-regex",
    "-iregex",
    "-newer",
    "-mtime",
    "-mmin",
    "-size",
    "-maxdepth",
    "-mindepth",
    "-type",
    "-user",
    "-group",
    "-perm",
];
/// Options, operators, tests and actions of `find` without a value.
const FIND_FLAGS: &[&str] = &[
    "-H", "-L", "-P", "-a", "-and", "-delete", "-depth", "-empty", "-false", "-ls", "-mount", "-not", "-o",
    "-or", "-print", "-print0", "-prune", "-quit", "-true", "-xdev",
];
/// Options of `xargs` with a value, and without one.
const XARGS_VALUES: &str = "adEILnPs";
const XARGS_FLAGS: &str = "0rtpxo";
const XARGS_LONG: &[&str] = &["null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty"];
/// Options with a value behind `=`. Without one, some take the next word, and some take none.
const XARGS_LONG_VALUES: &[&str] =
    &["arg-file", "delimiter", "max-args", "max-lines", "max-procs", "max-chars"];
/// Options of `set` that do not change how words are parsed. `-o` takes a name.
const SET_FLAGS: &str = "abefhmnptuvxBCETPo";
const SET_OPTIONS: &[&str] = &[
    "allexport",
    "errexit",
    "errtrace",
    "functrace",
    "monitor",
    "noclobber",
    "noglob",
    "nounset",
    "pipefail",
    "verbose",
    "xtrace",
];
const SHOPT_OPTIONS: &[&str] =
    &["dotglob", "failglob", "globstar", "inherit_errexit", "lastpipe", "nocaseglob", "nullglob"];

/// Returns whether a shell option is known not to change how words are parsed.
fn is_plain_option(name: &Word) -> bool {
    name.known_text().is_some_and(|name| SET_OPTIONS.contains(&name))
}

impl Walk<'_> {
    /// Analyzes what a program or builtin runs because of its arguments.
    pub(super) fn arguments(&mut self, name: &str, arguments: &[Word], input: &StdinSource) {
        match name {
            "find" => self.find(arguments, input),
            "xargs" => self.xargs(arguments),
            "trap" => self.trap(arguments),
            "alias" => self.alias(arguments),
            "source" | "." => self.source(arguments),
            "let" => {
                for argument in arguments {
                    match argument.known_text() {
                        Some(text) => self.arithmetic(text),
                        None => self.undeterminable(),
                    }
                }
            }
            "test" | "[" => self.test_builtin(arguments),
            "set" => self.set(arguments),
            "shopt" => self.shopt(arguments),
            "cd" | "pushd" | "popd" => self.moved = true,
            name if ASSIGNING.contains(&name) => self.assigning(name, arguments),
            name if DECLARING.contains(&name) => self.declaring(arguments),
            shell if SHELLS.contains(&shell) && self.shell(shell, arguments, input).is_none() => {
                self.undeterminable();
            }
            _ => {}
        }
    }

    /// Analyzes a shell: the text after `-c`, a script, or standard input.
    fn shell(&mut self, name: &str, arguments: &[Word], input: &StdinSource) -> Option<()> {
        let bash = matches!(name, "bash" | "rbash");
        let mut rest = arguments;
        let (mut takes_text, mut reads_input) = (false, false);
        while let Some((first, after)) = rest.split_first() {
            let option = first.known_text()?;
            if option == "--" || option == "-" {
                rest = after;
                break;
            }
            if let Some(long) = option.strip_prefix("--") {
                if !SHELL_FLAGS.contains(&long) {
                    return None;
                }
                rest = after;
                continue;
            }
            let Some(cluster) = option.strip_prefix(['-', '+']) else { break };
            rest = after;
            for letter in cluster.chars() {
                match letter {
                    'c' => takes_text = true,
                    's' => reads_input = true,
                    // `-o` takes the name of an option. `-O` and `-i` change how text is parsed.
                    'o' => {
                        is_plain_option(rest.first()?).then_some(())?;
                        rest = &rest[1..];
                    }
                    'a' | 'b' | 'e' | 'f' | 'h' | 'l' | 'm' | 'n' | 'p' | 'r' | 't' | 'u' | 'v' | 'x'
                    | 'B' | 'C' | 'E' | 'P' | 'T' | 'D' => {}
                    _ => return None,
                }
            }
        }
        if takes_text {
            let text = rest.first()?;
            self.text(text, bash);
            return Some(());
        }
        match rest.first() {
            Some(script) if !reads_input => is_script(script).then_some(()),
            _ => {
                let text = input.text.as_ref().filter(|_| !input.unclear)?;
                self.text(text, bash);
                Some(())
            }
        }
    }

    /// Analyzes `find`. Every word must be known except the values of known tests, because any other word may be an
    /// action or the end of one.
    fn find(&mut self, arguments: &[Word], input: &StdinSource) {
        let (mut at, mut is_clear) = (0, true);
        while let Some(word) = arguments.get(at) {
            let Some(text) = word.known_text() else { return self.undeterminable() };
            at += 1;
            if EXECUTING.contains(&text) {
                at = self.find_action(arguments, at, input);
            } else if FIND_VALUES.contains(&text) && is_clear {
                let Some(value) = arguments.get(at) else { return };
                if value.splits || EXECUTING.contains(&value.text.as_str()) {
                    return self.undeterminable();
                }
                at += 1;
            } else if text.starts_with('-') && !FIND_FLAGS.contains(&text) {
                // It is not known how many of the next words are its values.
                is_clear = false;
            }
        }
    }

    /// Analyzes the command of an action and returns where it ends.
    fn find_action(&mut self, arguments: &[Word], from: usize, input: &StdinSource) -> usize {
        // `+` ends it only after `{}`.
        let ends = |end: &usize| match arguments[*end].known_text() {
            Some(";") => true,
            Some("+") => *end > from && arguments[*end - 1].text == "{}",
            _ => false,
        };
        let end = (from..arguments.len()).find(ends).unwrap_or(arguments.len());
        let command = &arguments[from..end];
        if command.iter().any(|word| !word.known) {
            self.undeterminable();
        }
        self.invoke(command.iter().map(|word| filled_in(word, "{}")).collect(), input);
        end
    }

    fn xargs(&mut self, arguments: &[Word]) {
        let mut rest = arguments;
        let mut replaced = None;
        while let Some((first, after)) = rest.split_first() {
            let Some(option) = first.known_text() else { return self.undeterminable() };
            if option == "--" {
                rest = after;
                break;
            }
            if !option.starts_with('-') || option == "-" {
                break;
            }
            rest = after;
            let takes_next = if let Some(long) = option.strip_prefix("--") {
                let has_value =
                    long.split_once('=').is_some_and(|(name, _)| XARGS_LONG_VALUES.contains(&name));
                if !has_value && !XARGS_LONG.contains(&long) {
                    return self.undeterminable();
                }
                false
            } else {
                let cluster = &option[1..];
                let value = cluster.find(|c| XARGS_VALUES.contains(c));
                if !cluster[..value.unwrap_or(cluster.len())].chars().all(|c| XARGS_FLAGS.contains(c)) {
                    return self.undeterminable();
                }
                if value.is_some_and(|at| cluster[at..].starts_with('I')) {
                    let attached = value.map(|at| &cluster[at + 1..]).filter(|text| !text.is_empty());
                    let next = after.first().and_then(Word::known_text);
                    replaced = attached.or(next).map(str::to_owned);
                    if replaced.is_none() {
                        return self.undeterminable();
                    }
                }
                value.is_some_and(|at| at + 1 == cluster.len())
            };
            if takes_next {
                match rest.split_first() {
                    Some((value, after)) if !value.splits => rest = after,
                    _ => return self.undeterminable(),
                }
            }
        }
        if rest.is_empty() {
            return;
        }
        let mut words: Vec<Word> = match &replaced {
            Some(text) => rest.iter().map(|word| filled_in(word, text)).collect(),
            None => rest.to_vec(),
        };
        // Standard input becomes further arguments.
        words.push(Word::unknown());
        self.invoke(words, &StdinSource::default());
    }

    fn trap(&mut self, arguments: &[Word]) {
        let rest = match arguments.split_first() {
            Some((first, rest)) if first.known_text() == Some("--") => rest,
            _ => arguments,
        };
        match rest {
            [] | [_] => {
                if rest.iter().any(|word| !word.known) {
                    self.undeterminable();
                }
            }
            [action, ..] => match action.known_text() {
                Some("-" | "" | "-p" | "-l") => {}
                _ => self.text(action, true),
            },
        }
    }

    /// Analyzes `alias`, which changes how the following words are parsed.
    fn alias(&mut self, arguments: &[Word]) {
        if arguments.iter().any(|word| !word.known || word.text.contains('=')) {
            self.undeterminable();
        }
    }

    /// Analyzes `set`, because some options change how the following words are parsed.
    fn set(&mut self, arguments: &[Word]) {
        let mut rest = arguments.iter();
        while let Some(word) = rest.next() {
            let cluster = word.text.strip_prefix(['-', '+']).filter(|cluster| *cluster != "-");
            if !word.known && (word.splits || word.text.is_empty() || cluster.is_some()) {
                return self.undeterminable();
            }
            // The first word that is not an option starts the positional parameters.
            let Some(cluster) = cluster else { return };
            let on = word.text.starts_with('-');
            let named = if cluster.contains('o') { rest.next() } else { None };
            let is_plain = cluster.chars().all(|letter| SET_FLAGS.contains(letter));
            if on && (!is_plain || named.is_some_and(|name| !is_plain_option(name))) {
                return self.undeterminable();
            }
        }
    }

    fn shopt(&mut self, arguments: &[Word]) {
        let is_plain = |word: &Word| {
            word.known_text().is_some_and(|text| text.starts_with('-') || SHOPT_OPTIONS.contains(&text))
        };
        if !arguments.iter().all(is_plain) {
            self.undeterminable();
        }
    }

    fn source(&mut self, arguments: &[Word]) {
        if !arguments.first().is_some_and(is_script) {
            self.undeterminable();
        }
    }

    /// Analyzes builtins whose arguments name variables. The shell evaluates an index in such a name.
    fn assigning(&mut self, name: &str, arguments: &[Word]) {
        let names_variable = match name {
            "printf" => arguments.first().is_some_and(|word| !word.known || word.text.starts_with("-v")),
            "wait" => arguments.iter().any(|word| !word.known || word.text.starts_with("-p")),
            _ => true,
        };
        if !names_variable {
            return;
        }
        let calls_back = matches!(name, "mapfile" | "readarray")
            && arguments.iter().any(|word| word.text.starts_with('-') && word.text.contains('C'));
        // Only the option of `printf` names a variable. The rest is data.
        let naming = if name == "printf" { &arguments[..arguments.len().min(2)] } else { arguments };
        let is_unclear = |word: &Word| !word.known || word.text.contains('[') || word.holds_command();
        if calls_back || naming.iter().any(is_unclear) {
            self.undeterminable();
        }
        for word in naming.iter().filter(|word| word.known) {
            let attached = if name == "printf" { word.text.strip_prefix("-v") } else { None };
            let variable = attached.filter(|rest| !rest.is_empty()).unwrap_or(&word.text);
            if data::is_special(variable) {
                self.undeterminable();
            }
            if name == "unset" {
                continue;
            }
            self.assigned(variable, &Word::unknown());
            self.arrays.insert(variable.to_owned());
        }
        if name == "read" {
            self.assigned("REPLY", &Word::unknown());
        }
    }

    /// Analyzes declarations that make the shell evaluate values or follow name references.
    fn declaring(&mut self, arguments: &[Word]) {
        let evaluates = |word: &Word| {
            let option = word.text.strip_prefix('-').unwrap_or_default();
            option.contains(['i', 'n']) || (!word.known && !word.text.contains('='))
        };
        let is_array = |word: &Word| word.text.starts_with('-') && word.text.contains(['a', 'A']);
        let arrays = arguments.iter().any(is_array);
        let indexed = |word: &Word| word.text.split('=').next().is_some_and(|name| name.contains('['));
        let unclear = |word: &Word| evaluates(word) || indexed(word) || word.holds_command();
        if arguments.iter().any(unclear) {
            self.undeterminable();
        }
        for word in arguments.iter().filter(|word| !word.text.starts_with('-')) {
            let (name, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
            let name = name.trim_end_matches('+').to_owned();
            if arrays {
                self.arrays.insert(name.clone());
            }
            // The shell parses the value of a declared array as a list.
            if value.starts_with('(') || (!word.known && word.text.contains('=')) {
                self.declared.insert(name);
            }
        }
    }
}

/// Returns the word with its text from the placeholder on marked as unknown until run time.
fn filled_in(word: &Word, placeholder: &str) -> Word {
    match word.text.split_once(placeholder) {
        Some((before, _)) => Word { text: before.to_owned(), known: false, ..word.clone() },
        None => word.clone(),
    }
}

/// Returns whether a word names a script file. The content of scripts is not analyzed.
fn is_script(word: &Word) -> bool {
    let Some(path) = word.known_text() else { return false };
    let name = path.rsplit('/').next().unwrap_or(path);
    let stream = name == "stdin" || name == "tty" || name.chars().all(|c| c.is_ascii_digit());
    let device = path.split('/').any(|part| matches!(part, "dev" | "proc"));
    !path.is_empty() && path != "-" && !stream && !device
}
