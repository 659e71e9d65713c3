//! Determines which programs a shell command starts, from its syntax tree.
//!
//! Every program is reported that the text itself starts: through quotes, assignments, wrappers such as `env`, nested
//! shells, functions, conditionals, loops and substitutions. Where the text does not tell which program runs, because
//! that depends on a variable, a glob, standard input or text that is evaluated, the command is reported as
//! undeterminable.

mod ansi;
mod arguments;
mod arithmetic;
mod data;
mod guard;
mod messages;
mod plain;
mod runners;
mod walk;
mod words;
mod wrappers;

use std::collections::BTreeSet;
use words::Word;

/// What the words of one simple command are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    words: Vec<Word>,
}

impl Invocation {
    /// The command with the program as it is written and by its name alone, as far as the words are known. The second
    /// value says that more words follow which are known only when the command runs.
    pub(super) fn forms(&self) -> Vec<(String, bool)> {
        let known = self.words.iter().take_while(|word| word.known).count();
        let open = known < self.words.len();
        let mut text = self.words[..known].iter().map(|w| w.text.as_str()).collect::<Vec<_>>().join(" ");
        if let Some(word) = self.words.get(known).filter(|_| known > 0) {
            text = format!("{text} {}", word.text);
        }
        let program = self.words.first().map_or("", |word| word.text.as_str());
        let name = program_name(program);
        let mut forms = vec![(text.clone(), open)];
        if name != program && text.len() >= program.len() {
            forms.push((format!("{name}{}", &text[program.len()..]), open));
        }
        forms
    }
}

/// What a shell command does, as far as its text tells.
#[derive(Clone, Debug, Default)]
pub(super) struct Analysis {
    /// Every simple command that it runs, and those that these start.
    pub(super) invocations: Vec<Invocation>,
    /// Something runs that the text does not name.
    pub(super) undeterminable: bool,
    /// Words of text that something may run which is not known to take it as data.
    pub(super) named: BTreeSet<String>,
}

/// A command, taken apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    /// The commands as they are written, with what each does, where nothing runs but these and none of them writes to
    /// a file by a redirection; `None` where more may happen.
    pub(super) plain: Option<Vec<(String, Analysis)>>,
    /// What the whole does.
    pub(super) whole: Analysis,
}

/// Analyzes a command. `paths` tells by which other paths the one of a program is known.
pub(super) fn analyze(text: &str, paths: &dyn Fn(&str) -> Vec<String>) -> Script {
    walk::analyze(text, paths)
}

/// The name of a program without its folder.
pub(super) fn program_name(program: &str) -> &str {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    if cfg!(windows) { name.strip_suffix(".exe").unwrap_or(name) } else { name }
}
