//! Determines which programs a shell command starts, from its syntax tree.
//!
//! Reports every program that the text itself starts: through quotes, assignments, wrappers such as `env`, nested
//! shells, functions, conditionals, loops and substitutions. If the program depends on a variable, a glob, standard
//! input or evaluated text, the command is reported as undeterminable.

mod ansi;
mod arguments;
mod arithmetic;
mod data;
mod followed;
mod guard;
mod messages;
mod plain;
mod runners;
mod walk;
mod words;
mod wrappers;

use std::collections::BTreeSet;
use words::Word;

/// The words of one simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    words: Vec<Word>,
}

impl Invocation {
    /// Returns the command with its program as written and with the bare program name, up to the first unknown word.
    ///
    /// The second value of each pair says whether more words follow that are known only at run time.
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

/// The effects of a shell command, as far as its text shows them.
#[derive(Clone, Debug, Default)]
pub(super) struct Analysis {
    /// Every simple command that it runs, and the commands that those start.
    pub(super) invocations: Vec<Invocation>,
    /// Whether it runs something that the text does not name.
    pub(super) undeterminable: bool,
    /// Words from text that a program may run, because it is not known to treat the text as data.
    pub(super) named: BTreeSet<String>,
}

/// An analyzed command.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedScript {
    /// The simple commands as written, each with its analysis. `None` if anything else runs, or if a redirection writes
    /// to a file.
    pub(super) plain: Option<Vec<(String, Analysis)>>,
    /// The analysis of the whole command.
    pub(super) whole: Analysis,
}

/// Analyzes a command. `paths` returns the other paths under which a program's path is known.
pub(super) fn analyze(text: &str, paths: &dyn Fn(&str) -> Vec<String>) -> ParsedScript {
    walk::analyze(text, paths)
}

/// Returns the name of a program without its directory.
pub(super) fn program_name(program: &str) -> &str {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    if cfg!(windows) { name.strip_suffix(".exe").unwrap_or(name) } else { name }
}
