//! Scans the words of a command: their value without quotes, and what runs inside them.
//!
//! The parser has already split the text into words. Anything inconsistent with that is reported as not understood.

use super::{ansi, guard};

/// A word without its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The text up to the first part that is known only at run time.
    pub(super) text: String,
    /// Whether `text` is the whole word.
    pub(super) known: bool,
    /// Whether it may expand to several words or to none.
    pub(super) splits: bool,
    /// Whether it is split at blanks in the value of an expansion.
    pub(super) splits_at_blanks: bool,
    /// All literal text in it, including the text after unknown parts.
    pub(super) written: String,
}

impl Word {
    /// Creates a word that is not known before run time.
    pub(super) fn unknown() -> Self {
        Self { splits: true, splits_at_blanks: true, ..Self::default() }
    }

    /// Records that a part of the word is known only at run time.
    fn forget(&mut self, splits: bool) {
        self.known = false;
        self.splits |= splits;
        self.splits_at_blanks |= splits;
    }

    /// Appends literal text. After an unknown part, only `written` grows, because `text` must be a prefix of the word.
    fn push(&mut self, text: &str) {
        self.written.push_str(text);
        if self.known {
            self.text.push_str(text);
        }
    }

    /// Creates a word with a known text.
    pub(super) fn literal(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { written: text.clone(), text, known: true, ..Self::default() }
    }

    /// Returns whether a shell that evaluates the text would run a command.
    pub(super) fn holds_command(&self) -> bool {
        ["$(", "`", "${!"].iter().any(|opening| self.written.contains(opening))
    }

    /// Returns the text if it is known completely.
    pub(super) fn known_text(&self) -> Option<&str> {
        self.known.then_some(self.text.as_str())
    }
}

/// The contents of a word.
#[derive(Clone, Debug)]
pub(super) struct Scanned {
    pub(super) word: Word,
    /// The commands of its substitutions.
    pub(super) commands: Vec<String>,
    /// Its arithmetic expressions.
    pub(super) arithmetic: Vec<String>,
    /// Whether it is expanded like a prompt or through a name in another variable, which runs substitutions in the
    /// value of a variable.
    pub(super) prompt: bool,
    /// Variables that it assigns: `${NAME:=value}`.
    pub(super) assigns: Vec<String>,
    /// Whether the scan is inside double quotes, where another double quote means that their end was not found.
    in_quotes: bool,
}

/// Scans a word. `quoted` means that the text is inside double quotes or a here-document.
pub(super) fn scan(text: &str, quoted: bool) -> Option<Scanned> {
    let mut scanned = Scanned {
        word: Word::literal(""),
        commands: Vec::new(),
        arithmetic: Vec::new(),
        prompt: false,
        assigns: Vec::new(),
        in_quotes: false,
    };
    scan_into(text, quoted, &mut scanned)?;
    if !quoted && text.starts_with('~') && !scanned.word.text.contains('/') {
        scanned.word.known = false;
    }
    Some(scanned)
}

fn scan_into(text: &str, quoted: bool, out: &mut Scanned) -> Option<()> {
    let mut at = 0;
    let separator = last_brace_separator(text);
    let expand = |out: &mut Scanned, c: char| {
        (out.word.known, out.word.splits) = (false, true);
        out.word.written.push(c);
    };
    let push = |out: &mut Scanned, text: &str| out.word.push(text);
    while let Some(c) = text[at..].chars().next() {
        let after = at + c.len_utf8();
        at = match c {
            '\\' => {
                let next = text[after..].chars().next();
                match next {
                    Some('\n') => {}
                    Some(c) if !quoted || "$`\"\\".contains(c) => push(out, c.encode_utf8(&mut [0; 4])),
                    Some(c) => push(out, &format!("\\{c}")),
                    None if quoted => push(out, "\\"),
                    None => return None,
                }
                after + next.map_or(0, char::len_utf8)
            }
            '\'' if !quoted => {
                let end = after + text[after..].find('\'')?;
                push(out, &text[after..end]);
                end + 1
            }
            '"' if !quoted => {
                let end = end_of_double_quote(text, after)?;
                out.in_quotes = true;
                scan_into(&text[after..end], true, out)?;
                out.in_quotes = false;
                end + 1
            }
            '"' if out.in_quotes => return None,
            '`' => {
                let end = end_of_quote(text, after, '`')?;
                // The meaning of a backslash inside backticks depends on the context.
                (!text[after..end].contains('\\')).then_some(())?;
                out.commands.push(text[after..end].to_owned());
                out.word.forget(!quoted);
                end + 1
            }
            '$' => dollar(text, after, quoted, out)?,
            c if c.is_control() && !(quoted && matches!(c, '\n' | '\t')) => return None,
            ' ' | ';' | '&' | '|' | '<' | '>' | '(' | ')' if !quoted => return None,
            '*' | '?' if !quoted => {
                expand(out, c);
                after
            }
            '[' if !quoted && text.len() > 1 => {
                expand(out, c);
                after
            }
            '{' if !quoted && separator.is_some_and(|separator| after <= separator) => {
                expand(out, c);
                after
            }
            c => {
                push(out, c.encode_utf8(&mut [0; 4]));
                after
            }
        };
    }
    Some(())
}

/// Scans an expansion that starts with a dollar sign, and returns where it ends.
fn dollar(text: &str, after: usize, quoted: bool, out: &mut Scanned) -> Option<usize> {
    let Some(next) = text[after..].chars().next() else {
        out.word.push("$");
        return Some(after);
    };
    match next {
        '\'' if !quoted => {
            let end = end_of_quote(text, after + 1, '\'')?;
            let inner = &text[after + 1..end];
            // A shell that does not know these quotes ends them there.
            (!inner.contains("\\'")).then_some(())?;
            let decoded = ansi::decode(inner);
            if decoded.is_none() {
                out.word.forget(false);
            }
            out.word.push(decoded.as_deref().unwrap_or(inner));
            Some(end + 1)
        }
        '"' if !quoted => {
            // bash may replace the text with a translation.
            out.word.forget(false);
            Some(after)
        }
        '(' => {
            out.word.forget(!quoted);
            if let Some(end) = end_of_arithmetic(text, after) {
                out.arithmetic.push(text[after + 2..end - 1].to_owned());
                return Some(end + 1);
            }
            let end = end_of_substitution(text, after)?;
            out.commands.push(text[after + 1..end].to_owned());
            Some(end + 1)
        }
        '{' => {
            let end = end_of_brace(text, after + 1)?;
            let body = &text[after + 1..end];
            out.word.forget(!quoted || body.contains('@'));
            out.prompt |= body.ends_with("@P") || is_indirect(body);
            (is_parameter(body) && is_clear(body)).then_some(())?;
            let name = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
            if body[name..].starts_with([':', '=']) && body[name..].trim_start_matches(':').starts_with('=') {
                out.assigns.push(body[..name].to_owned());
            }
            let mut inner = scan(body, true)?;
            out.word.written.push_str(&inner.word.written);
            out.assigns.append(&mut inner.assigns);
            out.commands.append(&mut inner.commands);
            out.arithmetic.append(&mut inner.arithmetic);
            out.prompt |= inner.prompt;
            let computes =
                body.split_once(':').is_some_and(|(_, rest)| !rest.starts_with(['-', '=', '+', '?']));
            let indexes = body.replace("[@]", "").replace("[*]", "").contains('[');
            if computes || indexes {
                // The value of the variable itself is not evaluated.
                out.arithmetic.push(body[name..].to_owned());
            }
            Some(end + 1)
        }
        '[' => None,
        c if c.is_ascii_alphabetic() || c == '_' => {
            out.word.forget(!quoted);
            let name = text[after..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            Some(name.map_or(text.len(), |length| after + length))
        }
        c if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
            out.word.forget((!quoted && !"#?$!".contains(c)) || c == '@');
            Some(after + 1)
        }
        _ => {
            out.word.push("$");
            Some(after)
        }
    }
}

/// Returns whether the content of `${…}` is a parameter with an operator.
///
/// Anything else is a command, or flags of another shell.
fn is_parameter(body: &str) -> bool {
    let body = body.strip_prefix(['#', '!']).filter(|rest| !rest.is_empty()).unwrap_or(body);
    let name = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
    let rest =
        if name == 0 { body.strip_prefix(['@', '*', '#', '?', '$', '!', '-']) } else { Some(&body[name..]) };
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(|c| ":-=+?%#/^,@[*".contains(c)))
}

/// Returns whether shells agree on the end and content of a here-document: text and the values of variables.
pub(super) fn is_plain_document(text: &str) -> bool {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_plain = |rest: &str| match rest.strip_prefix('{') {
        Some(rest) => rest.split_once('}').is_some_and(|(name, _)| is_name(name)),
        None => !rest.starts_with(['(', '[', '\\']),
    };
    let unescaped = text.replace("\\\\", "").replace("\\$", "").replace("\\`", "");
    !text.contains("\\\n") && !unescaped.contains('`') && unescaped.split('$').skip(1).all(is_plain)
}

/// Returns whether shells agree on the meaning of the content of `${…}`, regardless of the quotes around it.
fn is_clear(body: &str) -> bool {
    !["<(", ">(", "`", "\\\n"].iter().any(|unclear| body.contains(unclear))
}

/// Returns whether `${…}` expands the variable that another variable names. `${!NAME[@]}` returns the keys of an array.
fn is_indirect(body: &str) -> bool {
    let Some(rest) = body.strip_prefix('!').filter(|rest| !rest.is_empty()) else { return false };
    let keys = rest.strip_suffix("[@]").or_else(|| rest.strip_suffix("[*]"));
    !keys.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// Returns whether a word before a redirection names a variable for the stream: `{NAME}>file` or `{NAME[index]}>file`.
pub(super) fn may_name_stream(text: &str) -> bool {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    inner.is_some_and(|inner| {
        let name = inner.split('[').next().unwrap_or_default();
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Returns the position of the last separator of a brace expansion, which turns one word into several.
fn last_brace_separator(text: &str) -> Option<usize> {
    let inner = &text[..text.rfind('}')?];
    inner.rfind(',').max(inner.rfind(".."))
}

fn end_of_double_quote(text: &str, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(c) = text[at..].chars().next() {
        at = match c {
            '"' => return Some(at),
            '\\' => skip_escape(text, at)?,
            '`' => end_of_quote(text, at + 1, '`')? + 1,
            '$' => skip_dollar(text, at, true)?,
            c => at + c.len_utf8(),
        };
    }
    None
}

/// Returns the end of a quote in which only backslashes are special.
fn end_of_quote(text: &str, from: usize, quote: char) -> Option<usize> {
    let mut at = from;
    while let Some(c) = text[at..].chars().next() {
        at = match c {
            c if c == quote => return Some(at),
            '\\' => skip_escape(text, at)?,
            c => at + c.len_utf8(),
        };
    }
    None
}

/// Returns the end of `${…}`, starting after its opening brace.
fn end_of_brace(text: &str, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(c) = text[at..].chars().next() {
        at = match c {
            '}' => return Some(at),
            '\\' => skip_escape(text, at)?,
            '"' => end_of_double_quote(text, at + 1)? + 1,
            // Shells disagree about single quotes inside `${…}`.
            '\'' => return None,
            '`' => end_of_quote(text, at + 1, '`')? + 1,
            '$' => skip_dollar(text, at, true)?,
            c => at + c.len_utf8(),
        };
    }
    None
}

/// Returns the position of the last parenthesis of `((…))`, or `None` if the text is not arithmetic.
fn end_of_arithmetic(text: &str, from: usize) -> Option<usize> {
    if !text[from..].starts_with("((") {
        return None;
    }
    let mut depth = 0_usize;
    for (at, c) in text[from..].char_indices().map(|(at, c)| (from + at, c)) {
        match c {
            '(' => depth += 1,
            ')' if depth == 2 => return text[at + 1..].starts_with(')').then_some(at + 1),
            ')' => depth = depth.checked_sub(1)?,
            '\'' | '"' | '\\' => return None,
            _ => {}
        }
    }
    None
}

/// Returns the end of `$(…)`, starting at its opening parenthesis. The parser must agree.
fn end_of_substitution(text: &str, open: usize) -> Option<usize> {
    let end = end_of_parentheses(text, open)?;
    let whole = format!("${}", &text[open..=end]);
    // The parser drops comments from the text.
    let same = |token: &str| token == whole || (whole.contains('#') && token.ends_with(')'));
    matches!(&*guard::tokens(&whole)?, [token] if same(token.to_str())).then_some(end)
}

fn end_of_parentheses(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = open;
    let mut before = ' ';
    while let Some(c) = text[at..].chars().next() {
        let starts_word = before.is_whitespace() || ";&|()".contains(before);
        before = c;
        at = match c {
            '(' => {
                depth += 1;
                at + 1
            }
            ')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
                at + 1
            }
            '\\' => skip_escape(text, at)?,
            '\'' => at + 2 + text[at + 1..].find('\'')?,
            '"' => end_of_double_quote(text, at + 1)? + 1,
            '`' => end_of_quote(text, at + 1, '`')? + 1,
            '$' => skip_dollar(text, at, false)?,
            '#' if starts_word => at + text[at..].find('\n')?,
            // Patterns of `case` contain unbalanced parentheses.
            'c' if starts_word && text[at..].starts_with("case") => return None,
            '<' if text[at..].starts_with("<<<") => at + 3,
            '<' if text[at..].starts_with("<<") => return None,
            c => at + c.len_utf8(),
        };
    }
    None
}

fn skip_escape(text: &str, at: usize) -> Option<usize> {
    Some(at + 1 + text[at + 1..].chars().next()?.len_utf8())
}

fn skip_dollar(text: &str, at: usize, quoted: bool) -> Option<usize> {
    let after = at + 1;
    match text[after..].chars().next() {
        Some('(') => match end_of_arithmetic(text, after) {
            Some(end) => Some(end + 1),
            None => Some(end_of_parentheses(text, after)? + 1),
        },
        Some('{') => Some(end_of_brace(text, after + 1)? + 1),
        Some('$') => Some(after + 1),
        Some('\'') if !quoted => Some(end_of_quote(text, after + 1, '\'')? + 1),
        _ => Some(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_removed() {
        for (text, expected) in [
            ("rm", "rm"),
            ("'rm'", "rm"),
            ("r''m", "rm"),
            ("\"r\"\\m", "rm"),
            ("r\\\nm", "rm"),
            ("$'rm'", "rm"),
            ("$'\\x72m'", "rm"),
            ("'a b'", "a b"),
            ("\"a\\n\\$b\"", "a\\n$b"),
            ("{}", "{}"),
            ("[", "["),
            ("a=b", "a=b"),
            ("~/bin/x", "~/bin/x"),
        ] {
            assert_eq!(scan(text, false).unwrap().word, Word::literal(expected), "{text}");
        }
    }

    #[test]
    fn runtime_values_are_not_guessed() {
        for (text, splits) in [
            ("$X", true),
            ("\"$X\"", false),
            ("\"$@\"", true),
            ("r${Y}m", true),
            ("{rm,x}", true),
            ("r[m]", true),
            ("r?", true),
            ("$'\\xe9'", false),
            ("~", false),
            ("$((1))", true),
            ("\"`a`\"", false),
        ] {
            let word = scan(text, false).unwrap().word;
            assert_eq!((word.known, word.splits), (false, splits), "{text}");
        }
    }

    #[test]
    fn substitutions_are_delimited_correctly() {
        for (text, commands) in [
            ("$(a)", &["a"][..]),
            ("x$(a)y$(b)", &["a", "b"]),
            ("\"$(a \")\")\"", &["a \")\""]),
            ("$(a $(b))", &["a $(b)"]),
            ("\"$(a # )\nrm x\n)\"", &["a # )\nrm x\n"]),
            ("`a b`", &["a b"]),
            ("${x:-$(a)}", &["a"]),
            ("$( (a) )", &[" (a) "]),
        ] {
            let scanned = scan(text, false).unwrap_or_else(|| panic!("{text} is not understood"));
            assert_eq!(scanned.commands, commands, "{text}");
        }
        assert_eq!(scan("$((1 + (2)))", false).unwrap().arithmetic, ["1 + (2)"]);
        for unclear in [
            "$(case a in a) b;; esac)",
            "${x:-'}'}",
            "${x:-<(a)}",
            "${x:->(a)}",
            "${x:-`a`}",
            "${x:-$\\\n(a)}",
            "`a \\`b\\``",
            "$[1]",
            "\"$$(\" ; a ; echo \")\"",
            "\"$${\" ; a ; echo \"}\"",
            "a\u{b}b",
            "\"open",
            "$(a",
            "$(a <<E\nE\n)",
        ] {
            assert!(scan(unclear, false).is_none(), "{unclear}");
        }
    }
}
