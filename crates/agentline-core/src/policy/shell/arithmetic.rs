//! Analyzes what a shell evaluates: arithmetic, tests, and text that looks like an array index.

use super::{
    walk::Walk,
    words::{self, Word},
};
use brush_parser::ast;

impl Walk<'_> {
    /// Analyzes `((…))`, which all shells parse as arithmetic only if the parentheses touch.
    ///
    /// Otherwise it is a subshell in a subshell.
    pub(super) fn arithmetic_command(&mut self, command: &ast::ArithmeticCommand, text: &str) {
        let (start, length) = (command.loc.start.index, command.loc.length());
        let source = match text.get(start..start + length).filter(|_| text.is_ascii()) {
            Some(source) => source.to_owned(),
            None => text.chars().skip(start).take(length).collect(),
        };
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

    /// Analyzes an arithmetic expression, in which values are evaluated again.
    pub(super) fn arithmetic(&mut self, expression: &str) {
        let Some(scanned) = words::scan(expression, true) else { return self.undeterminable() };
        let parameter =
            |rest: &str| rest.trim_start_matches('{').starts_with(|c: char| "0123456789@*!".contains(c));
        let positional = expression.split('$').skip(1).any(parameter);
        let operators = |c: char| c.is_ascii_alphanumeric() || "_ \t\n$+-*/%<>=!&|^~?:,()[]{}@#".contains(c);
        self.names(expression);
        if !scanned.commands.is_empty() || scanned.prompt || positional || !expression.chars().all(operators)
        {
            return self.undeterminable();
        }
        let names = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        self.evaluated.extend(names.map(str::to_owned));
    }

    pub(super) fn test(&mut self, test: &ast::ExtendedTestExpr) {
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

    /// Checks text for substitutions inside an array index.
    ///
    /// Quoted text is an argument and does not run. But a builtin may evaluate it as the name of an array element, and
    /// then runs a substitution in the index.
    pub(super) fn index_in_text(&mut self, text: &str) {
        let mut depth = 0_usize;
        for (at, c) in text.char_indices() {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                '`' if depth > 0 => return self.undeterminable(),
                '$' if depth > 0 && text[at + 1..].starts_with('(') => return self.undeterminable(),
                _ => {}
            }
        }
    }

    /// Analyzes `test` and `[`, in which `-v` evaluates the name after it.
    pub(super) fn test_builtin(&mut self, arguments: &[Word]) {
        let may_name = |word: &Word| {
            matches!(word.text.as_str(), "-v" | "-R")
                || (!word.known && matches!(word.text.as_str(), "" | "-"))
        };
        let evaluated = |word: &Word| !word.known || (word.text.contains('[') && word.text != "[");
        if arguments.windows(2).any(|pair| may_name(&pair[0]) && evaluated(&pair[1])) {
            self.undeterminable();
        }
    }
}
