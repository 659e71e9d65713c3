//! Rejects text that would take the parser too long or nest too deeply, before and after tokenizing.
//!
//! The parser recurses once per nesting level, and the command of a hostile model must not exhaust the stack. The
//! estimated depth is never less than the real recursion depth.

use brush_parser::{ParserOptions, SourceInfo, Token, ast::Program, parse_tokens, uncached_tokenize_str};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

/// The longest command that is parsed, in bytes.
pub(super) const MAX_LENGTH: usize = 64 << 10;
/// The maximum number of expansions in a command that may contain others.
const MAX_EXPANSIONS: usize = 48;
/// The maximum number of separators between commands, and of line ends outside quotes.
const MAX_SEPARATORS: usize = 4096;
/// The maximum nesting depth of compound commands.
const MAX_DEPTH: usize = 20;

/// Words that open a compound command, with the number of levels that each may add.
const OPENERS: &[(&str, usize)] =
    &[("{", 1), ("if", 1), ("for", 1), ("while", 1), ("until", 1), ("case", 2), ("[[", 1), ("select", 1)];
/// Words that close a compound command, with the number of levels that each removes.
const CLOSERS: &[(&str, usize)] = &[("}", 1), ("fi", 1), ("done", 1), ("esac", 2), ("]]", 1)];
/// Operators and words after which a closing word is a keyword and not an argument.
const COMMAND_STARTS: &[&str] = &[
    ";", "&", "\n", "(", ")", ";;", ";&", ";;&", "&&", "||", "then", "else", "do", "in", "{", "}", "fi",
    "done", "esac", "]]",
];

/// Parses a command. Returns `None` if it is too long, nests too deeply, or is not valid in this grammar.
pub(super) fn parse(text: &str) -> Option<Program> {
    let options = ParserOptions::default();
    let tokens = tokens(text)?;
    if depth(&tokens) > MAX_DEPTH {
        return None;
    }
    caught(|| parse_tokens(&tokens, &options, &SourceInfo::default()).ok())
}

/// Tokenizes a text. Returns `None` if the text is too long, has too many commands or expansions, or ends inside a
/// quote.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let is_too_large = text.len() > MAX_LENGTH || separators(text) > MAX_SEPARATORS;
    if is_too_large || expansions(text) > MAX_EXPANSIONS || has_nested_document(text) {
        return None;
    }
    let tokens = caught(|| uncached_tokenize_str(text, &ParserOptions::default().tokenizer_options()).ok())?;
    let is_line_end = |token: &&Token| matches!(token, Token::Operator(text, _) if text == "\n");
    let lines = tokens.iter().filter(is_line_end).count();
    (lines <= MAX_SEPARATORS && !has_unclear_process_id(&tokens)).then_some(tokens)
}

/// Returns whether `$$` is followed by text that the parser, but not every shell, parses as an expansion of the second
/// `$`.
///
/// The text of a here-document with a quoted delimiter is not expanded, so it does not count.
fn has_unclear_process_id(tokens: &[Token]) -> bool {
    let is_unclear = |text: &str| ["$$(", "$${", "$$[", "$$'", "$$`"].iter().any(|form| text.contains(form));
    let is_quoted_document = |at: usize| {
        let operator = at.checked_sub(2).map(|operator| &tokens[operator]);
        let follows_tag = matches!(operator, Some(Token::Operator(operator, _)) if matches!(operator.as_str(), "<<" | "<<-"));
        follows_tag && tokens[at - 1].to_str().starts_with(['\'', '"', '\\'])
    };
    tokens.iter().enumerate().any(|(at, token)| {
        let text = token.to_str();
        (is_unclear(text) || is_unclear(&text.replace("\\\n", ""))) && !is_quoted_document(at)
    })
}

thread_local! {
    static IS_PARSING: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of the parser, or `None` if it panics. The panic is not reported, because its message may quote
/// the command.
fn caught<T>(parse: impl FnOnce() -> Option<T>) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_PARSING.get() {
                report(panic);
            }
        }));
    });
    IS_PARSING.set(true);
    let found = catch_unwind(AssertUnwindSafe(parse));
    IS_PARSING.set(false);
    found.ok().flatten()
}

fn separators(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b';' | b'&' | b'|')).count()
}

/// Counts expansions that may contain others: all but `${NAME}` and `$(…)` with plain words.
fn expansions(text: &str) -> usize {
    let bytes = text.as_bytes();
    (0..bytes.len()).filter(|at| opens_expansion(bytes, *at) && !is_plain_expansion(bytes, *at)).count()
}

/// Returns whether a here-document may be inside an expansion. The parser and shells disagree about the end of such an
/// expansion.
fn has_nested_document(text: &str) -> bool {
    let bytes = text.as_bytes();
    let opens =
        |at: &usize| (opens_expansion(bytes, *at) && !is_plain_expansion(bytes, *at)) || bytes[*at] == b'`';
    let find_document = |text: &str| text.replace("<<<", "   ").find("<<");
    let Some(document) = find_document(text) else { return false };
    let Some(first) = (0..bytes.len()).find(opens) else { return false };
    // After a parenthesis, the parser misreads here-documents that contain substitutions.
    find_document(&text[first..]).is_some() || text[..document].contains('(')
}

fn opens_expansion(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at..at + 2), Some(b"$(" | b"${" | b"<(" | b">(" | b"$["))
}

/// Returns whether an expansion contains only plain words.
fn is_plain_expansion(bytes: &[u8], at: usize) -> bool {
    let close = if bytes[at + 1] == b'{' { b'}' } else { b')' };
    let end = bytes[at + 2..].iter().position(|b| b"$`(){}<>\"'\\#\n".contains(b));
    end.is_some_and(|end| bytes[at + 2 + end] == close)
}

/// Returns an upper bound of the nesting depth of compound commands.
fn depth(tokens: &[Token]) -> usize {
    let (mut depth, mut deepest, mut negations, mut cases) = (0_usize, 0, 0, 0_usize);
    let mut before = ";";
    for (at, token) in tokens.iter().enumerate() {
        let text = token.to_str();
        match token {
            Token::Operator(..) if text == "(" => depth += 1,
            Token::Operator(..) if text == ")" => depth = depth.saturating_sub(1),
            Token::Operator(..) => {}
            Token::Word(..) => {
                // A pattern of `case` may be spelled like a closing word.
                let may_be_pattern =
                    cases > 0 && tokens.get(at + 1).is_some_and(|next| matches!(next.to_str(), ")" | "|"));
                if let Some((_, levels)) = OPENERS.iter().find(|(word, _)| *word == text) {
                    depth += levels;
                    cases += usize::from(text == "case");
                } else if (COMMAND_STARTS.contains(&before) && !may_be_pattern) || text == "]]" {
                    let closed =
                        CLOSERS.iter().find(|(word, _)| *word == text).map_or(0, |(_, levels)| *levels);
                    depth = depth.saturating_sub(closed);
                    cases = cases.saturating_sub(usize::from(text == "esac"));
                }
            }
        }
        negations = if text == "!" { negations + 1 } else { 0 };
        deepest = deepest.max(depth + negations);
        before = text;
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `act` on the smallest stack of any thread on which a policy decides.
    fn on_a_small_stack(act: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(1 << 20).spawn_scoped(scope, act).unwrap();
            thread.join().unwrap();
        });
    }

    #[test]
    fn nesting_never_exhausts_the_stack() {
        let nested = |open: &str, inner: &str, close: &str, levels: usize| {
            format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
        };
        let forms = [
            ("( ", "a", " )"),
            ("(", "a", ")"),
            ("{ ", "a", "; }"),
            ("if a; then ", "a", "; fi"),
            ("if a; then echo fi; ", "a", "; fi"),
            ("if ", "a", "; then a; fi"),
            ("for i in a; do ", "a", "; done"),
            ("while a; do ", "a", "; done"),
            ("case a in a) ", "a", ";; esac"),
            ("case a in\nfi) if a; then ", "a", "; fi;; esac"),
            ("case a in (fi) if a; then ", "a", "; fi;; esac"),
            ("case a in\nesac) { ", "a", "; };; esac"),
            ("echo $(", "a", ")"),
            ("echo \"$(", "a", ")\""),
            ("echo $(')' ", "a", ")"),
            ("f() { ", "a", "; }"),
            ("cat <(", "a", ")"),
            ("[[ ( ", "a", " ) ]]"),
            ("! ", "a", ""),
            ("coproc ", "a", ""),
        ];
        on_a_small_stack(|| {
            for (open, inner, close) in forms {
                for levels in [1, 6, 20, 21, 48, 200, 2000] {
                    let _ = parse(&nested(open, inner, close, levels));
                }
            }
            let _ = parse(&format!("[[ {}a{} ]]", "( ".repeat(500), " )".repeat(500)));
            let _ = parse(&format!("[[ {}a ]]", "! ".repeat(500)));
            let _ = parse(&format!("[[ {}a ]]", "a && ".repeat(5000)));
            let _ = parse(&format!("echo {}1{}", "$((".repeat(500), "))".repeat(500)));
            let _ = parse(&format!("echo {}1{}", "${a:-".repeat(500), "}".repeat(500)));
            let _ = parse(&format!("(( {}1{} ))", "(".repeat(500), ")".repeat(500)));
        });
    }

    #[test]
    fn parser_panic_is_caught() {
        for text in ["${${<<E}\nE", "''${<<E}$(\nE"] {
            let options = ParserOptions::default().tokenizer_options();
            assert!(caught(|| uncached_tokenize_str(text, &options).ok()).is_none(), "{text}");
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn caught_panic_prints_nothing() {
        let own = std::env::current_exe().unwrap();
        let name = concat!(module_path!(), "::parser_panic_is_caught");
        let name = name.split_once("::").unwrap().1;
        let output = std::process::Command::new(own).args(["--exact", name, "--nocapture"]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(text(&output.stdout).contains("1 passed"), "{}", text(&output.stdout));
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
    }

    #[test]
    fn ordinary_scripts_are_parsed() {
        let loops = "for f in a b; do if [ -f \"$f\" ]; then cat \"$f\"; fi; done\n".repeat(200);
        assert!(parse(&loops).is_some());
        let page = format!("cat > page.js <<'EOF'\n{}EOF\n", "f(`${a}`, ${b.c}, { d: [1] });\n".repeat(500));
        assert!(parse(&page).is_some());
        assert!(parse(&"a".repeat(MAX_LENGTH + 1)).is_none());
        assert!(parse(&"a;".repeat(MAX_SEPARATORS)).is_some());
        assert!(parse(&"a;".repeat(MAX_SEPARATORS + 1)).is_none());
        assert!(parse(&"a\n".repeat(MAX_SEPARATORS)).is_some());
        assert!(parse(&"a\n".repeat(MAX_SEPARATORS + 1)).is_none());
        let long = format!("cat > list <<'EOF'\n{}EOF\n", "a\n".repeat(MAX_SEPARATORS + 1));
        assert!(parse(&long).is_some());
    }
}
