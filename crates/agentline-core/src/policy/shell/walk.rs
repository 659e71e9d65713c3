//! Walks the syntax tree of a command and collects what it runs.

use super::{
    Analysis, Invocation, ParsedScript,
    data::{self, is_special, takes_data},
    followed::is_followed,
    guard, messages,
    plain::{as_written, plain_commands},
    program_name,
    runners::Runner,
    words::{self, Scanned, Word},
    wrappers::{StartedProgram, is_wrapper, started},
};
use brush_parser::ast;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

/// The maximum nesting depth of commands within commands.
const MAX_NESTING: u8 = 8;
/// The maximum total size of the text parsed for one command, in bytes.
const MAX_PARSED: usize = 1 << 20;
/// The maximum number of words that are compared with program names.
const MAX_NAMED: usize = 4096;
/// The maximum number of different programs that a command may name by a path.
const MAX_PATHS: usize = 32;

/// Words that are not programs. If one is in the position of a program, shells parse the text differently.
const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "in", "select", "then", "until", "while",
];

/// Returns whether a function of this name would change the meaning of a command that the analysis knows.
fn is_known_name(name: &str) -> bool {
    let is_read = is_followed(name) || started(name, &[]) != StartedProgram::Nothing || is_wrapper(name);
    is_read
        || data::is_data_program(name)
        || Runner::of(name, &[]).is_some()
        || RESERVED.contains(&name)
        || name.starts_with("command_not_found")
        || name.contains('/')
}

/// The standard input of a program.
#[derive(Clone, Debug, Default)]
pub(super) struct StdinSource {
    /// The text of a here-document or here-string.
    pub(super) text: Option<Word>,
    /// Whether it may also read something else.
    pub(super) unclear: bool,
    /// The texts of all here-documents and here-strings.
    written: Vec<Word>,
}

/// Finds the other paths of programs, once for each program of a command, because a search may walk the workspace.
struct ProgramPaths<'a> {
    resolve: &'a dyn Fn(&str) -> Vec<String>,
    found: RefCell<BTreeMap<String, Vec<String>>>,
}

impl ProgramPaths<'_> {
    /// Returns the other paths of a program, or `None` if the command names too many programs by a path.
    fn of(&self, program: &str) -> Option<Vec<String>> {
        let mut found = self.found.borrow_mut();
        if !found.contains_key(program) {
            (found.len() < MAX_PATHS).then_some(())?;
            found.insert(program.to_owned(), (self.resolve)(program));
        }
        found.get(program).cloned()
    }
}

/// Collects what a command runs.
pub(super) struct Walk<'a> {
    paths: &'a ProgramPaths<'a>,
    pub(super) found: Analysis,
    nesting: u8,
    parsed: usize,
    /// Variables whose values are not plain numbers.
    values: BTreeSet<String>,
    /// Variables used in arithmetic, where a shell evaluates their values.
    pub(super) evaluated: BTreeSet<String>,
    /// Arrays, and variables declared with values that a shell evaluates for arrays.
    pub(super) arrays: BTreeSet<String>,
    pub(super) declared: BTreeSet<String>,
    /// Whether the command changes its directory, so that relative paths have another meaning.
    pub(super) moved: bool,
    /// Names of programs given by a relative path.
    relative: BTreeSet<String>,
}

/// Analyzes a command.
pub(super) fn analyze(text: &str, paths: &dyn Fn(&str) -> Vec<String>) -> ParsedScript {
    let paths = ProgramPaths { resolve: paths, found: RefCell::default() };
    let new = || Walk {
        paths: &paths,
        found: Analysis::default(),
        nesting: 0,
        parsed: 0,
        values: BTreeSet::new(),
        evaluated: BTreeSet::new(),
        arrays: BTreeSet::new(),
        declared: BTreeSet::new(),
        moved: false,
        relative: BTreeSet::new(),
    };
    let mut walk = new();
    let unclear = text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t'))
        || (cfg!(windows) && text.contains(['^', '%', '`', '$', '@', '&', '{', '(']));
    let text = &*messages::without_messages(text);
    let program = if unclear { None } else { guard::parse(text) };
    let Some(program) = program else {
        walk.found.undeterminable = true;
        return ParsedScript { plain: None, whole: walk.found };
    };
    let simple = plain_commands(&program);
    walk.program(&program, text);
    let moved = walk.moved;
    let whole = walk.finish();
    let quoted_on_windows = cfg!(windows) && text.contains(['\'', '"']);
    let plain = simple.filter(|_| !whole.undeterminable && !quoted_on_windows).map(|commands| {
        let analyze_one = |command: &ast::SimpleCommand| {
            let mut walk = Walk { moved, ..new() };
            walk.simple(command, &StdinSource::default());
            (as_written(command), walk.finish())
        };
        commands.into_iter().map(analyze_one).collect()
    });
    ParsedScript { plain, whole }
}

impl StdinSource {
    fn hold(&mut self, fd: Option<i32>, word: Word) {
        if fd.is_none_or(|fd| fd == 0) {
            self.text = Some(word.clone());
        }
        self.written.push(word);
    }
}

impl Walk<'_> {
    fn finish(mut self) -> Analysis {
        if self.moved {
            self.found.named.append(&mut self.relative);
        }
        // The value of a variable in arithmetic is an expression, which may contain a substitution.
        let evaluates = self.evaluated.iter().any(|name| self.values.contains(name) || is_special(name));
        if evaluates || !self.arrays.is_disjoint(&self.declared) || self.found.named.len() > MAX_NAMED {
            self.found.undeterminable = true;
        }
        self.found
    }

    pub(super) fn undeterminable(&mut self) {
        self.found.undeterminable = true;
    }

    /// Analyzes the text of a nested command.
    pub(super) fn script(&mut self, text: &str) {
        self.parsed += text.len();
        if self.nesting >= MAX_NESTING || self.parsed > MAX_PARSED {
            return self.undeterminable();
        }
        self.nesting += 1;
        let text = &*messages::without_messages(text);
        match guard::parse(text) {
            Some(program) => self.program(&program, text),
            None => self.undeterminable(),
        }
        self.nesting -= 1;
    }

    fn program(&mut self, program: &ast::Program, text: &str) {
        for list in &program.complete_commands {
            self.list(list, text);
        }
    }

    fn list(&mut self, list: &ast::CompoundList, text: &str) {
        for ast::CompoundListItem(and_or, _) in &list.0 {
            self.pipeline(&and_or.first, text);
            for ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) in &and_or.additional {
                self.pipeline(pipeline, text);
            }
        }
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline, text: &str) {
        for command in &pipeline.seq {
            match command {
                ast::Command::Simple(simple) => self.simple(simple, &StdinSource::default()),
                ast::Command::Compound(compound, redirects) => {
                    self.compound(compound, text);
                    self.redirects(redirects.as_ref());
                }
                ast::Command::Function(function) => {
                    let ast::FunctionBody(body, redirects) = &function.body;
                    if is_known_name(&function.fname.value) {
                        self.undeterminable();
                    }
                    self.compound(body, text);
                    self.redirects(redirects.as_ref());
                }
                ast::Command::ExtendedTest(test) => self.test(&test.expr),
            }
        }
    }

    fn compound(&mut self, compound: &ast::CompoundCommand, text: &str) {
        use ast::CompoundCommand as C;
        match compound {
            C::Arithmetic(command) => self.arithmetic_command(command, text),
            C::ArithmeticForClause(clause) => {
                for part in [&clause.initializer, &clause.condition, &clause.updater].into_iter().flatten() {
                    self.arithmetic(&part.value);
                }
                self.list(&clause.body.list, text);
            }
            C::BraceGroup(group) => self.list(&group.list, text),
            C::Subshell(subshell) => self.list(&subshell.list, text),
            C::ForClause(clause) => {
                if is_special(&clause.variable_name) {
                    self.undeterminable();
                }
                for word in clause.values.iter().flatten() {
                    let scanned = self.word(&word.value);
                    self.value(&scanned);
                    self.assigned(&clause.variable_name, &scanned);
                }
                if clause.values.is_none() {
                    self.values.insert(clause.variable_name.clone());
                }
                self.list(&clause.body.list, text);
            }
            C::CaseClause(clause) => {
                self.word(&clause.value.value);
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.pattern(&pattern.value);
                    }
                    if let Some(list) = &case.cmd {
                        self.list(list, text);
                    }
                }
            }
            C::IfClause(clause) => {
                self.list(&clause.condition, text);
                self.list(&clause.then, text);
                for other in clause.elses.iter().flatten() {
                    if let Some(condition) = &other.condition {
                        self.list(condition, text);
                    }
                    self.list(&other.body, text);
                }
            }
            C::WhileClause(clause) | C::UntilClause(clause) => {
                self.list(&clause.0, text);
                self.list(&clause.1.list, text);
            }
        }
    }

    fn redirects(&mut self, list: Option<&ast::RedirectList>) {
        let mut input = StdinSource::default();
        for redirect in list.iter().flat_map(|list| &list.0) {
            self.redirect(redirect, &mut input);
        }
        // One of the commands inside reads the text.
        for word in &input.written {
            self.names(&word.written);
        }
    }

    fn redirect(&mut self, redirect: &ast::IoRedirect, input: &mut StdinSource) {
        use ast::{IoFileRedirectKind as K, IoFileRedirectTarget as Target, IoRedirect as R};
        match redirect {
            R::File(fd, kind, target) => {
                input.unclear |=
                    *fd == Some(0) || matches!(kind, K::Read | K::ReadAndWrite | K::DuplicateInput);
                match target {
                    Target::Filename(word) | Target::Duplicate(word) => {
                        self.word(&word.value);
                    }
                    Target::ProcessSubstitution(_, subshell) => self.subshell(subshell),
                    Target::Fd(_) => {}
                }
            }
            R::OutputAndError(word, _) => {
                self.word(&word.value);
            }
            R::HereDocument(fd, document) => {
                let text = &document.doc.value;
                // Shells disagree about the end of such a document.
                let unclear = document.requires_expansion && !words::is_plain_document(text);
                if unclear || document.here_end.value.contains(['$', '`', '\n']) {
                    return self.undeterminable();
                }
                let word = if document.requires_expansion {
                    match self.scan(text, true) {
                        Some(scanned) => scanned.word,
                        None => return self.undeterminable(),
                    }
                } else {
                    Word::literal(text.as_str())
                };
                input.hold(*fd, word);
            }
            R::HereString(fd, word) => {
                let scanned = self.word(&word.value);
                input.hold(*fd, scanned);
            }
        }
    }

    fn subshell(&mut self, subshell: &ast::SubshellCommand) {
        // The text that contains this arithmetic is not available here.
        self.list(&subshell.list, "");
    }

    pub(super) fn simple(&mut self, command: &ast::SimpleCommand, outer: &StdinSource) {
        use ast::CommandPrefixOrSuffixItem as Item;
        let mut input = outer.clone();
        let mut words = Vec::new();
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                Item::IoRedirect(redirect) => self.redirect(redirect, &mut input),
                Item::AssignmentWord(assignment, _) => {
                    let read = command.word_or_name.as_ref().is_some_and(|word| word.value == "read");
                    self.assignment(assignment, read);
                }
                Item::Word(word) => words.push(self.word(&word.value)),
                Item::ProcessSubstitution(_, subshell) => self.subshell(subshell),
            }
        }
        if let Some(word) = &command.word_or_name {
            words.push(self.word(&word.value));
        }
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                Item::IoRedirect(redirect) => self.redirect(redirect, &mut input),
                Item::Word(word) => words.push(self.word(&word.value)),
                Item::AssignmentWord(assignment, word) => match &assignment.value {
                    ast::AssignmentValue::Scalar(_) => {
                        let value = self.word(&word.value);
                        self.check_variable(&value);
                        words.push(value);
                    }
                    ast::AssignmentValue::Array(_) => {
                        self.assignment(assignment, false);
                        words.push(Word { splits: false, ..Word::unknown() });
                    }
                },
                Item::ProcessSubstitution(_, subshell) => {
                    self.subshell(subshell);
                    words.push(Word { known: false, ..Word::literal("/dev/fd/") });
                }
            }
        }
        if words.is_empty() {
            for word in &input.written {
                self.names(&word.written);
            }
        } else {
            self.invoke(words, &input);
        }
    }

    /// Analyzes an assignment. `splits_input` means that only `read` uses it, to split its input.
    fn assignment(&mut self, assignment: &ast::Assignment, splits_input: bool) {
        let name = match &assignment.name {
            ast::AssignmentName::VariableName(name) => name,
            ast::AssignmentName::ArrayElementName(name, index) => {
                self.arithmetic(index);
                name
            }
        };
        if is_special(name) && !(splits_input && name == "IFS") {
            self.undeterminable();
        }
        match &assignment.value {
            ast::AssignmentValue::Scalar(word) => {
                let value = self.word(&word.value);
                self.value(&value);
                let computed = word.value.starts_with("$((") && word.value.ends_with("))");
                if !computed || assignment.append {
                    self.assigned(name, &value);
                }
            }
            ast::AssignmentValue::Array(values) => {
                self.values.insert(name.clone());
                self.arrays.insert(name.clone());
                for (index, value) in values {
                    if let Some(index) = index {
                        self.arithmetic(&index.value);
                    }
                    let value = self.word(&value.value);
                    self.value(&value);
                }
            }
        }
    }

    /// Records the value of a variable, which may be evaluated anywhere.
    fn value(&mut self, value: &Word) {
        self.names(&value.written);
        if value.holds_command() {
            self.undeterminable();
        }
    }

    /// Records words that may be program names.
    pub(super) fn names(&mut self, text: &str) {
        for text in [text, &data::without_quotes(text)] {
            for name in data::names(text) {
                if self.found.named.len() > MAX_NAMED {
                    return self.undeterminable();
                }
                if !self.found.named.contains(name) {
                    self.found.named.insert(name.to_owned());
                }
            }
        }
    }

    /// Records which arguments and input a program may run.
    fn arguments_that_may_run(&mut self, name: &str, words: &[Word], input: &StdinSource) {
        let program = words[0].known_text().unwrap_or_default();
        let arguments = &words[1..];
        if Runner::of(name, arguments).is_some_and(|runner| runner.is_unclear()) {
            self.undeterminable();
        }
        let is_data = takes_data(program, name, arguments);
        let own = data::own_arguments(name, arguments);
        for (at, word) in arguments.iter().enumerate() {
            if (!is_data && at >= own) || word.holds_command() {
                self.names(&word.written);
            }
        }
        for word in input.written.iter().filter(|_| !is_data) {
            self.names(&word.written);
        }
    }

    /// Records a variable, unless its value is a plain number.
    pub(super) fn assigned(&mut self, name: &str, value: &Word) {
        if data::holds_command(name) && !value.known {
            self.undeterminable();
        }
        let number = value.known_text().is_some_and(|text| text.chars().all(|c| c.is_ascii_digit()));
        if !number {
            self.values.insert(name.to_owned());
        }
    }

    /// Checks an argument of the form `NAME=value`.
    fn check_variable(&mut self, word: &Word) {
        if let Some((name, value)) = word.text.split_once('=') {
            let name = name.trim_end_matches('+');
            if is_special(name) {
                self.undeterminable();
            }
            let value = Word { text: value.to_owned(), ..word.clone() };
            self.assigned(name, &value);
        }
    }

    /// Scans a word of a command.
    pub(super) fn word(&mut self, text: &str) -> Word {
        if words::may_name_stream(text) {
            self.undeterminable();
        }
        match self.scan(text, false) {
            Some(scanned) => scanned.word,
            None => {
                self.undeterminable();
                Word::unknown()
            }
        }
    }

    /// Scans a word that is used as a pattern and may contain parentheses and bars.
    pub(super) fn pattern(&mut self, text: &str) -> Option<Scanned> {
        let scanned = self.scan(text, false);
        if scanned.is_none() && text.contains(['$', '`', '<', '>']) {
            self.undeterminable();
        }
        scanned
    }

    fn scan(&mut self, text: &str, quoted: bool) -> Option<Scanned> {
        let scanned = words::scan(text, quoted)?;
        if scanned.prompt {
            self.undeterminable();
        }
        for command in &scanned.commands {
            self.script(command);
        }
        if scanned.assigns.iter().any(|name| is_special(name)) {
            self.undeterminable();
        }
        self.values.extend(scanned.assigns.iter().cloned());
        for expression in &scanned.arithmetic {
            self.arithmetic(expression);
        }
        self.index_in_text(&scanned.word.written);
        Some(scanned)
    }

    /// Analyzes a program with its arguments.
    pub(super) fn invoke(&mut self, words: Vec<Word>, input: &StdinSource) {
        if self.nesting >= MAX_NESTING {
            return self.undeterminable();
        }
        let Some(program) = words.first().and_then(Word::known_text).map(str::to_owned) else {
            return self.undeterminable();
        };
        let unclear = program.is_empty()
            || RESERVED.contains(&program.as_str())
            || program.starts_with(['=', '-', '~'])
            || program.split('/').rev().skip(1).any(|part| matches!(part, "proc" | "dev" | "fd"))
            || program.ends_with('/');
        if unclear {
            return self.undeterminable();
        }
        for word in &words[1..] {
            self.check_variable(word);
        }
        let names = self.names_of(&program, &words);
        self.nesting += 1;
        for (at, name) in names.iter().enumerate() {
            let mut called = words.clone();
            if at > 0 {
                called[0] = Word::literal(name.as_str());
            }
            let folded =
                if cfg!(any(windows, target_os = "macos")) { name.to_lowercase() } else { name.clone() };
            match started(&folded, &words[1..]) {
                StartedProgram::Nothing => {
                    if !matches!(folded.as_str(), "xargs" | "find" | "trap" | "alias") {
                        self.arguments_that_may_run(&folded, &words, input);
                    }
                    self.arguments(&folded, &words[1..], input);
                }
                StartedProgram::Program(rest) => {
                    let sets_directory =
                        |word: &Word| word.written.starts_with("-C") || word.written.starts_with("--chdir");
                    self.moved |= folded == "chroot" || words[1..].iter().any(sets_directory);
                    self.invoke(rest.to_vec(), input);
                }
                StartedProgram::Text(text) => self.text(&text, false),
                StartedProgram::Unknown => self.undeterminable(),
            }
            self.found.invocations.push(Invocation { words: called });
        }
        self.nesting -= 1;
    }

    /// Returns the names of a program: as written, and by the targets of its path.
    fn names_of(&mut self, program: &str, words: &[Word]) -> Vec<String> {
        let mut names = vec![program_name(program).to_owned()];
        if !program.contains('/') {
            return names;
        }
        if !program.starts_with('/') {
            self.relative.insert(names[0].clone());
        }
        let Some(paths) = self.paths.of(program) else {
            self.undeterminable();
            return names;
        };
        for path in paths {
            let name = program_name(&path).to_owned();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
            let mut called = words.to_vec();
            called[0] = Word::literal(path);
            self.found.invocations.push(Invocation { words: called });
        }
        names
    }

    /// Analyzes the text of a command, if it is known. `bash` says whether bash parses it.
    pub(super) fn text(&mut self, text: &Word, bash: bool) {
        match text.known_text() {
            Some(text) if bash || !data::is_of_bash(text) => self.script(text),
            _ => self.undeterminable(),
        }
    }
}
