//! Simple syntax highlighting without a parser: comments, strings, numbers, function calls and common keywords.

use crate::render::page::escape;
use std::{
    io::{self, Write},
    ops::Range,
};

/// Keywords of common languages, sorted.
const KEYWORDS: &[&str] = &[
    "False",
    "None",
    "Self",
    "True",
    "abstract",
    "and",
    "as",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "crate",
    "def",
    "default",
    "defer",
    "del",
    "do",
    "done",
    "elif",
    "else",
    "end",
    "enum",
    "esac",
    "except",
    "export",
    "extends",
    "extern",
    "false",
    "fi",
    "final",
    "finally",
    "fn",
    "for",
    "from",
    "func",
    "function",
    "if",
    "impl",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "is",
    "lambda",
    "let",
    "loop",
    "match",
    "mod",
    "module",
    "mut",
    "namespace",
    "new",
    "nil",
    "not",
    "null",
    "or",
    "package",
    "pass",
    "private",
    "protected",
    "pub",
    "public",
    "raise",
    "return",
    "self",
    "static",
    "struct",
    "super",
    "switch",
    "then",
    "this",
    "throw",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "undefined",
    "union",
    "unsafe",
    "use",
    "var",
    "void",
    "where",
    "while",
    "with",
    "yield",
];

/// The comment syntax of a language, and whether `'` starts a string.
#[derive(Clone, Copy, Debug)]
pub(super) struct Language {
    comment: &'static str,
    has_blocks: bool,
    single: bool,
}

/// Languages by fence name or file extension.
const LANGUAGES: &[(&[&str], Language)] = &[
    (&["rs", "rust"], Language { comment: "//", has_blocks: true, single: false }),
    (
        &[
            "js",
            "jsx",
            "mjs",
            "cjs",
            "ts",
            "tsx",
            "javascript",
            "typescript",
            "c",
            "h",
            "cc",
            "cpp",
            "hpp",
            "cs",
            "go",
            "java",
            "kt",
            "swift",
            "scala",
            "dart",
            "php",
            "css",
            "scss",
            "proto",
            "zig",
        ],
        Language { comment: "//", has_blocks: true, single: true },
    ),
    (
        &[
            "py",
            "python",
            "sh",
            "bash",
            "zsh",
            "shell",
            "rb",
            "ruby",
            "pl",
            "r",
            "yaml",
            "yml",
            "toml",
            "ini",
            "conf",
            "make",
            "makefile",
            "dockerfile",
            "nix",
            "elixir",
            "ex",
            "exs",
            "ps1",
        ],
        Language { comment: "#", has_blocks: false, single: true },
    ),
    (&["sql", "lua", "hs", "haskell", "elm"], Language { comment: "--", has_blocks: false, single: true }),
    (&["json", "jsonl", "jsonc", "json5"], Language { comment: "//", has_blocks: false, single: false }),
];

impl Language {
    /// Returns the language of a fence name or a path.
    pub(super) fn of(name: &str) -> Option<Self> {
        let ending = name.rsplit(['.', '/']).next()?.trim().to_ascii_lowercase();
        LANGUAGES.iter().find(|(names, _)| names.contains(&ending.as_str())).map(|(_, language)| *language)
    }
}

/// A byte range of code and its CSS class.
pub(super) type Token = (Range<usize>, &'static str);

/// Writes highlighted code.
pub(super) fn code(out: &mut dyn Write, text: &str, language: Option<Language>) -> io::Result<()> {
    let Some(language) = language else { return escape::text(out, text) };
    let mut from = 0;
    for (range, class) in tokens(text, language) {
        escape::text(out, &text[from..range.start])?;
        write!(out, "<span class={class}>")?;
        escape::text(out, &text[range.clone()])?;
        out.write_all(b"</span>")?;
        from = range.end;
    }
    escape::text(out, &text[from..])
}

/// Returns the highlighted tokens of a text.
pub(super) fn tokens(text: &str, language: Language) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (length, class) = if rest.starts_with(language.comment.as_bytes()) {
            (memchr(rest, b'\n').unwrap_or(rest.len()), Some("c"))
        } else if language.has_blocks && rest.starts_with(b"/*") {
            (text[at..].find("*/").map_or(rest.len(), |end| end + 2), Some("c"))
        } else {
            match rest[0] {
                b'"' | b'`' => (string(rest), Some("s")),
                b'\'' if language.single => (string(rest), Some("s")),
                byte if is_word(byte) => {
                    let length = rest.iter().take_while(|byte| is_word(**byte)).count();
                    let word = &text[at..at + length];
                    let class = match () {
                        () if byte.is_ascii_digit() => Some("n"),
                        () if KEYWORDS.binary_search(&word).is_ok() => Some("k"),
                        () if rest.get(length) == Some(&b'(') => Some("f"),
                        () => None,
                    };
                    (length, class)
                }
                _ => (1, None),
            }
        };
        if let Some(class) = class {
            found.push((at..at + length, class));
        }
        at += length;
    }
    found
}

/// Returns the length of a string. An unclosed string ends with its line.
fn string(rest: &[u8]) -> usize {
    let quote = rest[0];
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 1,
            byte if byte == quote => return at + 1,
            b'\n' if quote != b'`' => return at,
            _ => {}
        }
        at += 1;
    }
    rest.len()
}

fn memchr(bytes: &[u8], byte: u8) -> Option<usize> {
    bytes.iter().position(|b| *b == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(language: &str, text: &str) -> String {
        let mut out = Vec::new();
        code(&mut out, text, Language::of(language)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn highlighted_code_keeps_its_text() {
        assert_eq!(
            shown("src/main.rs", "let a = \"<b>\"; // é <i>"),
            "<span class=k>let</span> a = <span class=s>&quot;&lt;b&gt;&quot;</span>; <span class=c>// é &lt;i&gt;</span>"
        );
        assert_eq!(
            shown("python", "# x\nf(1)"),
            "<span class=c># x</span>\n<span class=f>f</span>(<span class=n>1</span>)"
        );
        assert_eq!(shown("unknown", "let <"), "let &lt;");
    }

    #[test]
    fn keyword_lists_are_sorted() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn unterminated_tokens_keep_the_text() {
        for text in ["\"", "'\\", "/*", "`é\\", "\"a\nb", "//"] {
            for language in ["js", "rs", "py", "sql", "json"] {
                let plain = shown(language, text).replace("&quot;", "\"").replace("&#39;", "'");
                let plain: String =
                    plain.split('<').map(|p| p.split_once('>').map_or(p, |(_, t)| t)).collect();
                assert_eq!(plain, text, "{language}");
            }
        }
    }
}
