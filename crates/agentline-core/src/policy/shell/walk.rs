//! Walks the syntax tree of a command and collects what it runs.

use super::{
    Analysis, Invocation, Script, guard, program_name,
    words::{self, Scanned, Word},
    wrappers::{Started, started},
};
use brush_parser::ast;
use std::collections::BTreeSet;

/// How many commands within commands are followed.
const MAX_NESTING: u8 = 8;
/// How much text is parsed for one command in all, in bytes.
const MAX_PARSED: usize = 1 << 20;

/// Variables whose values a shell evaluates or runs.
const EVALUATED_VARIABLES: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "ZDOTDIR",
];

/// Words that are no programs. Where one stands in the place of a program, shells read the text in another way.
const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "in", "select", "then", "until", "while",
];

/// What a program reads from standard input.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    /// The text of a here-document or here-string.
    pub(super) text: Option<Word>,
}

/// Collects what a command runs.
pub(super) struct Walk<'a> {
    real_path: &'a dyn Fn(&str) -> String,
    pub(super) found: Analysis,
    nesting: u8,
    parsed: usize,
    /// Variables that hold something other than a number.
    values: BTreeSet<String>,
    /// Variables that stand in arithmetic, where a shell evaluates their values.
    evaluated: BTreeSet<String>,
}

/// Analyzes a command.
pub(super) fn analyze(text: &str, real_path: &dyn Fn(&str) -> String) -> Script {
    let new = || Walk {
        real_path,
        found: Analysis::default(),
        nesting: 0,
        parsed: 0,
        values: BTreeSet::new(),
        evaluated: BTreeSet::new(),
    };
    let mut walk = new();
    let unclear = text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t'))
        || (cfg!(windows) && text.contains(['^', '%', '`', '$', '@', '&', '{', '(']));
    let text = &*guard::without_messages(text);
    let program = if unclear { None } else { guard::parse(text) };
    let Some(program) = program else {
        walk.found.undeterminable = true;
        return Script { plain: None, whole: walk.found };
    };
    let simple = plain_commands(&program);
    walk.program(&program, text);
    let whole = walk.finish();
    let plain = simple.filter(|_| !(cfg!(windows) && text.contains(['\'', '"']))).map(|commands| {
        let analyze_one = |command: &ast::SimpleCommand| {
            let mut walk = new();
            walk.simple(command, &Input::default());
            (as_written(command), walk.finish())
        };
        commands.into_iter().map(analyze_one).collect()
    });
    Script { plain, whole }
}

impl Walk<'_> {
    fn finish(mut self) -> Analysis {
        // The value of a variable in arithmetic is an expression, which may hold a substitution.
        if self.evaluated.intersection(&self.values).next().is_some() {
            self.found.undeterminable = true;
        }
        self.found
    }

    pub(super) fn undeterminable(&mut self) {
        self.found.undeterminable = true;
    }

    /// The text of a command within the command.
    pub(super) fn script(&mut self, text: &str) {
        self.parsed += text.len();
        if self.nesting >= MAX_NESTING || self.parsed > MAX_PARSED {
            return self.undeterminable();
        }
        self.nesting += 1;
        let text = &*guard::without_messages(text);
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
                ast::Command::Simple(simple) => self.simple(simple, &Input::default()),
                ast::Command::Compound(compound, redirects) => {
                    self.compound(compound, text);
                    self.redirects(redirects.as_ref());
                }
                ast::Command::Function(function) => {
                    let ast::FunctionBody(body, redirects) = &function.body;
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
                for word in clause.values.iter().flatten() {
                    let scanned = self.word(&word.value);
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

    /// `((…))` is arithmetic to every shell only where the parentheses touch; else it is a subshell in a subshell.
    fn arithmetic_command(&mut self, command: &ast::ArithmeticCommand, text: &str) {
        let source: String = text.chars().skip(command.loc.start.index).take(command.loc.length()).collect();
        self.arithmetic(&command.expr.value);
        let inner = source.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
        match inner {
            Some(inner) if inner.starts_with('(') && inner.ends_with(')') => {
                if source.contains(['\n', ';']) {
                    self.script(inner);
                }
            }
            Some(inner) => self.script(inner),
            None => self.undeterminable(),
        }
    }

    /// An arithmetic expression, in which values are evaluated again.
    pub(super) fn arithmetic(&mut self, expression: &str) {
        let Some(scanned) = words::scan(expression, true) else { return self.undeterminable() };
        let positional =
            expression.split('$').skip(1).any(|rest| rest.starts_with(|c: char| "0123456789@*!".contains(c)));
        if !scanned.commands.is_empty()
            || scanned.prompt
            || positional
            || expression.contains(['\'', '"', '\\'])
        {
            return self.undeterminable();
        }
        let names = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        self.evaluated.extend(names.map(str::to_owned));
    }

    fn test(&mut self, test: &ast::ExtendedTestExpr) {
        use ast::{BinaryPredicate as B, ExtendedTestExpr as T, UnaryPredicate as U};
        match test {
            T::And(left, right) | T::Or(left, right) => {
                self.test(left);
                self.test(right);
            }
            T::Not(inner) | T::Parenthesized(inner) => self.test(inner),
            T::UnaryTest(predicate, word) => {
                let scanned = self.pattern(&word.value);
                let names =
                    matches!(predicate, U::ShellVariableIsSetAndAssigned | U::ShellVariableIsSetAndNameRef);
                if names && !scanned.is_some_and(|s| s.word.known && !s.word.text.contains('[')) {
                    self.undeterminable();
                }
            }
            T::BinaryTest(predicate, left, right) => {
                self.pattern(&left.value);
                self.pattern(&right.value);
                let compares_numbers = matches!(
                    predicate,
                    B::ArithmeticEqualTo
                        | B::ArithmeticNotEqualTo
                        | B::ArithmeticLessThan
                        | B::ArithmeticLessThanOrEqualTo
                        | B::ArithmeticGreaterThan
                        | B::ArithmeticGreaterThanOrEqualTo
                );
                if compares_numbers {
                    for side in [left, right] {
                        let unquoted = side.value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
                        self.arithmetic(unquoted.unwrap_or(&side.value));
                    }
                }
            }
        }
    }

    fn redirects(&mut self, list: Option<&ast::RedirectList>) -> Input {
        let mut input = Input::default();
        for redirect in list.iter().flat_map(|list| &list.0) {
            self.redirect(redirect, &mut input);
        }
        input
    }

    fn redirect(&mut self, redirect: &ast::IoRedirect, input: &mut Input) {
        use ast::{IoFileRedirectTarget as Target, IoRedirect as R};
        match redirect {
            R::File(_, _, Target::Filename(word) | Target::Duplicate(word)) | R::OutputAndError(word, _) => {
                self.word(&word.value);
            }
            R::File(_, _, Target::ProcessSubstitution(_, subshell)) => self.subshell(subshell),
            R::File(_, _, Target::Fd(_)) => {}
            R::HereDocument(fd, document) => {
                let text = &document.doc.value;
                let word = if document.requires_expansion {
                    match self.scan(text, true) {
                        Some(scanned) => scanned.word,
                        None => return self.undeterminable(),
                    }
                } else {
                    Word::literal(text.as_str())
                };
                if fd.is_none_or(|fd| fd == 0) {
                    input.text = Some(word);
                }
            }
            R::HereString(fd, word) => {
                let scanned = self.word(&word.value);
                if fd.is_none_or(|fd| fd == 0) {
                    input.text = Some(scanned);
                }
            }
        }
    }

    fn subshell(&mut self, subshell: &ast::SubshellCommand) {
        // Arithmetic in there is located in a text that is not at hand.
        self.list(&subshell.list, "");
    }

    pub(super) fn simple(&mut self, command: &ast::SimpleCommand, outer: &Input) {
        use ast::CommandPrefixOrSuffixItem as Item;
        let mut input = outer.clone();
        let mut words = Vec::new();
        for item in command.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                Item::IoRedirect(redirect) => self.redirect(redirect, &mut input),
                Item::AssignmentWord(assignment, _) => self.assignment(assignment),
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
                        self.assignment(assignment);
                        words.push(Word { splits: false, ..Word::unknown() });
                    }
                },
                Item::ProcessSubstitution(_, subshell) => {
                    self.subshell(subshell);
                    words.push(Word { text: "/dev/fd/".into(), known: false, splits: false });
                }
            }
        }
        if !words.is_empty() {
            self.invoke(words, &input);
        }
    }

    fn assignment(&mut self, assignment: &ast::Assignment) {
        let name = match &assignment.name {
            ast::AssignmentName::VariableName(name) => name,
            ast::AssignmentName::ArrayElementName(name, index) => {
                self.arithmetic(index);
                name
            }
        };
        if EVALUATED_VARIABLES.contains(&name.as_str()) {
            self.undeterminable();
        }
        match &assignment.value {
            ast::AssignmentValue::Scalar(word) => {
                let value = self.word(&word.value);
                let computed = word.value.starts_with("$((") && word.value.ends_with("))");
                if !computed || assignment.append {
                    self.assigned(name, &value);
                }
            }
            ast::AssignmentValue::Array(values) => {
                self.values.insert(name.clone());
                for (index, value) in values {
                    if let Some(index) = index {
                        self.arithmetic(&index.value);
                    }
                    self.word(&value.value);
                }
            }
        }
    }

    /// Notes a variable whose value is not a plain number.
    pub(super) fn assigned(&mut self, name: &str, value: &Word) {
        let number = value.known_text().is_some_and(|text| text.chars().all(|c| c.is_ascii_digit()));
        if !number {
            self.values.insert(name.to_owned());
        }
    }

    /// An argument of the form `NAME=value`.
    fn check_variable(&mut self, word: &Word) {
        if let Some((name, value)) = word.text.split_once('=') {
            let name = name.trim_end_matches('+');
            if EVALUATED_VARIABLES.contains(&name) || name.starts_with("BASH_FUNC") {
                self.undeterminable();
            }
            let value = Word { text: value.to_owned(), ..word.clone() };
            self.assigned(name, &value);
        }
    }

    /// A word where a command may hold one.
    pub(super) fn word(&mut self, text: &str) -> Word {
        match self.scan(text, false) {
            Some(scanned) => scanned.word,
            None => {
                self.undeterminable();
                Word::unknown()
            }
        }
    }

    /// A word that is compared and may hold parentheses and bars.
    fn pattern(&mut self, text: &str) -> Option<Scanned> {
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
        for expression in &scanned.arithmetic {
            self.arithmetic(expression);
        }
        for quoted in &scanned.quoted {
            self.quoted(quoted);
        }
        Some(scanned)
    }

    /// Quoted text is an argument and does not run. But a builtin may evaluate a substitution in it, so what that would run
    /// counts too.
    fn quoted(&mut self, text: &str) {
        let looks_evaluated = text.contains("[$(") || text.contains("[`");
        if looks_evaluated {
            self.undeterminable();
        }
    }

    /// A program with its arguments.
    pub(super) fn invoke(&mut self, words: Vec<Word>, input: &Input) {
        if self.nesting >= MAX_NESTING {
            return self.undeterminable();
        }
        let Some(program) = words.first().and_then(Word::known_text).map(str::to_owned) else {
            return self.undeterminable();
        };
        let unclear = program.is_empty()
            || RESERVED.contains(&program.as_str())
            || program.starts_with(['=', '-'])
            || program.starts_with("/proc/")
            || program.starts_with("/dev/")
            || program.ends_with('/');
        if unclear {
            return self.undeterminable();
        }
        for word in &words[1..] {
            self.check_variable(word);
        }
        let mut names = vec![program_name(&program).to_owned()];
        if program.contains('/') {
            let real = (self.real_path)(&program);
            let real = program_name(&real).to_owned();
            if !real.is_empty() && !names.contains(&real) {
                names.push(real);
            }
        }
        self.nesting += 1;
        for (at, name) in names.iter().enumerate() {
            let mut called = words.clone();
            if at > 0 {
                called[0] = Word::literal(name.as_str());
            }
            let folded =
                if cfg!(any(windows, target_os = "macos")) { name.to_lowercase() } else { name.clone() };
            match started(&folded, &words[1..]) {
                Started::Nothing => self.arguments(&folded, &words[1..], input),
                Started::Program(rest) => self.invoke(rest.to_vec(), input),
                Started::Text(text) => self.text(&text),
                Started::Unknown => self.undeterminable(),
            }
            self.found.invocations.push(Invocation { words: called });
        }
        self.nesting -= 1;
    }

    /// The text of a command, where it is known.
    pub(super) fn text(&mut self, text: &Word) {
        match text.known_text() {
            Some(text) => self.script(text),
            None => self.undeterminable(),
        }
    }
}

/// The simple commands of a program that holds nothing else, and whose words and redirections do nothing of their own.
fn plain_commands(program: &ast::Program) -> Option<Vec<&ast::SimpleCommand>> {
    let mut commands = Vec::new();
    for ast::CompoundListItem(and_or, _) in program.complete_commands.iter().flat_map(|list| &list.0) {
        let others = and_or.additional.iter().map(|(ast::AndOr::And(p) | ast::AndOr::Or(p))| p);
        for command in std::iter::once(&and_or.first).chain(others).flat_map(|pipeline| &pipeline.seq) {
            match command {
                ast::Command::Simple(simple) if is_plain(simple) => commands.push(simple),
                _ => return None,
            }
        }
    }
    Some(commands)
}

fn is_plain(command: &ast::SimpleCommand) -> bool {
    use ast::CommandPrefixOrSuffixItem as Item;
    let plain_word = |word: &ast::Word| {
        words::scan(&word.value, false)
            .is_some_and(|s| s.commands.is_empty() && s.arithmetic.is_empty() && !s.prompt)
    };
    let plain_item = |item: &Item| match item {
        Item::IoRedirect(redirect) => writes_nothing(redirect),
        Item::Word(word) | Item::AssignmentWord(_, word) => plain_word(word),
        Item::ProcessSubstitution(..) => false,
    };
    let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
    let suffix = command.suffix.iter().flat_map(|suffix| &suffix.0);
    prefix.chain(suffix).all(plain_item) && command.word_or_name.iter().all(plain_word)
}

/// Whether a redirection leads to no file: to `/dev/null`, or to another stream.
fn writes_nothing(redirect: &ast::IoRedirect) -> bool {
    use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target, IoRedirect as R};
    match redirect {
        R::File(_, Kind::Write | Kind::Append, Target::Filename(word)) | R::OutputAndError(word, _) => {
            word.value == "/dev/null"
        }
        R::File(_, Kind::DuplicateOutput, Target::Fd(_)) => true,
        R::File(_, Kind::DuplicateOutput, Target::Duplicate(word)) => {
            !word.value.is_empty() && word.value.chars().all(|c| c.is_ascii_digit())
        }
        _ => false,
    }
}

/// A simple command as it is written, with one blank between its words and without its redirections.
fn as_written(command: &ast::SimpleCommand) -> String {
    use ast::CommandPrefixOrSuffixItem as Item;
    let of = |item: &Item| match item {
        Item::Word(word) | Item::AssignmentWord(_, word) => Some(word.value.clone()),
        Item::IoRedirect(_) | Item::ProcessSubstitution(..) => None,
    };
    let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0).filter_map(of);
    let suffix = command.suffix.iter().flat_map(|suffix| &suffix.0).filter_map(of);
    let name = command.word_or_name.iter().map(|word| word.value.clone());
    prefix.chain(name).chain(suffix).collect::<Vec<_>>().join(" ")
}
