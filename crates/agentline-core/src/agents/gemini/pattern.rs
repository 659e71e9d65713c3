//! Turns the globs of rules into regular expressions over a tool call's arguments as Gemini CLI writes them.
//!
//! The CLI tests a policy's `argsPattern` against the arguments as one line of JSON in which every top-level pair
//! stands between NUL characters. Patterns are anchored there, so that neither another argument nor a nested one can
//! stand in for the one that is meant. It refuses a pattern of more than 2,048 characters, or with a quantifier
//! behind a group that holds one; so groups here are never quantified, and every other character is escaped.

/// The longest pattern that the CLI takes.
pub(super) const LONGEST: usize = 2048;

/// Which way an inexact match is safe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lean {
    /// For what is permitted: rather match too little.
    Narrow,
    /// For what is refused: rather match too much.
    Wide,
}

/// Paths that a glob covers. `roots` are the workspace's own absolute spellings.
pub(super) fn path(argument: &str, glob: &str, roots: &[&str], lean: Lean) -> String {
    let absolute = glob.starts_with('/') || glob.get(1..3).is_some_and(|d| d == ":/" || d == ":\\");
    let glob = glob.strip_prefix("./").unwrap_or(glob);
    let folder = if glob.ends_with('/') { "**" } else { "" };
    let body = glob_body(&format!("{glob}{folder}"), lean);
    let mut pattern = opening(argument);
    // A path that climbs says nothing about where it leads, so it is never taken for a permitted one.
    if lean == Lean::Narrow {
        pattern.push_str(r#"(?!\.\.[/\\"])(?![^\x00]*[/\\]\.\.[/\\"])"#);
    }
    if !absolute {
        let mut starts = vec![String::new(), literal("./", Lean::Narrow)];
        if lean == Lean::Wide {
            // The CLI takes `@src/a` for `src/a` when there is no folder `@src`.
            starts = vec![String::new(), r"[@.][./\\]*".into(), r"[.][./\\]*[/\\]".into()];
        }
        starts.extend(roots.iter().map(|root| {
            let root = root.trim_end_matches(['/', '\\']);
            format!("{}{}", literal(root, lean), separator(lean))
        }));
        pattern.push_str(&format!("({})", starts.join("|")));
    }
    pattern + &body + closing()
}

/// Paths that climb or hold a NUL, which the CLI drops: where a path is refused, these are too.
pub(super) fn unclear_path(argument: &str) -> String {
    format!(r#"{}(\.\.[/\\"]|[^\x00]*[/\\]\.\.[/\\"]|[^\x00]*\\u0000)"#, opening(argument))
}

/// Commands that a glob covers. One that ends in ` *` or `:*` covers the bare command too.
pub(super) fn command(glob: &str, lean: Lean) -> String {
    let mut pattern = opening("command");
    if lean == Lean::Wide {
        // `/bin/rm` is `rm`.
        pattern.push_str(r"(| *|[^ \x00]*/)");
    }
    let (head, open) = match glob.strip_suffix(":*").or_else(|| glob.strip_suffix(" *")) {
        Some(head) => (head, true),
        None => (glob, false),
    };
    for (i, piece) in head.split('*').enumerate() {
        if i > 0 {
            pattern.push_str(r"[^\x00]*");
        }
        pattern.push_str(&literal(piece, Lean::Narrow));
    }
    if open {
        // Behind a command comes its end or white space, which JSON may have escaped.
        pattern.push_str(r"(|[ \\][^\x00]*)");
    }
    pattern + closing()
}

/// Whether the CLI takes a pattern: the same tests as its own.
pub(super) fn is_taken(pattern: &str) -> bool {
    pattern.chars().count() <= LONGEST && !quantified_group(pattern)
}

/// The CLI's own test for nested quantifiers: `\([^)]*[*+?{].*\)[*+?{]`.
fn quantified_group(pattern: &str) -> bool {
    let quantifier = |c: char| matches!(c, '*' | '+' | '?' | '{');
    pattern.match_indices('(').any(|(open, _)| {
        let rest = &pattern[open + 1..];
        let inner = rest.split(')').next().unwrap_or_default();
        let Some(at) = inner.find(quantifier) else { return false };
        let behind = &rest[at + 1..];
        behind.match_indices(')').any(|(close, _)| behind[close + 1..].starts_with(quantifier))
    })
}

fn opening(argument: &str) -> String {
    format!(r#"\x00"{argument}":""#)
}

fn closing() -> &'static str {
    r#""\x00"#
}

/// `**` crosses folders, `*` and `?` stay within one.
fn glob_body(glob: &str, lean: Lean) -> String {
    let mut out = String::new();
    let mut rest = glob;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("**/") {
            out.push_str(&format!(r"(|[^\x00]*{})", separator(lean)));
            rest = after;
        } else if let Some(after) = rest.strip_prefix("**") {
            out.push_str(r"[^\x00]*");
            rest = after;
        } else {
            match c {
                '*' => out.push_str(r"[^/\x00]*"),
                '?' => out.push_str(r"[^/\x00]"),
                '/' => out.push_str(separator(lean)),
                _ => out.push_str(&literal(c.encode_utf8(&mut [0; 4]), lean)),
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// Between folders: a slash where it must be exact; where it may be more, also what means the same.
fn separator(lean: Lean) -> &'static str {
    match lean {
        Lean::Narrow if cfg!(windows) => r"[/\\]+",
        Lean::Narrow => "/",
        Lean::Wide => r"(/|[/\\][./\\]*[/\\])",
    }
}

/// Text as it stands in JSON, each character for itself. Where systems do not tell cases apart, a refusal does not.
fn literal(text: &str, lean: Lean) -> String {
    let mut out = String::new();
    let json = serde_json::to_string(text).unwrap_or_default();
    for c in json.trim_start_matches('"').chars().take(json.chars().count().saturating_sub(2)) {
        if lean == Lean::Wide && cfg!(any(windows, target_os = "macos")) && c.is_ascii_alphabetic() {
            out.push_str(&format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase()));
        } else if lean == Lean::Wide && c == '/' {
            out.push_str(separator(lean));
        } else if c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | ' ' | '"') || !c.is_ascii() {
            out.push(c);
        } else {
            out.push_str(&format!(r"\x{:02x}", u32::from(c)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permitted_path_is_anchored_and_does_not_climb() {
        assert_eq!(
            path("file_path", "src/**", &["/ws"], Lean::Narrow),
            r#"\x00"file_path":"(?!\.\.[/\\"])(?![^\x00]*[/\\]\.\.[/\\"])(|\x2e/|/ws/)src/[^\x00]*"\x00"#
        );
        assert_eq!(
            path("file_path", "/etc/*.c", &["/ws"], Lean::Narrow),
            r#"\x00"file_path":"(?!\.\.[/\\"])(?![^\x00]*[/\\]\.\.[/\\"])/etc/[^/\x00]*\x2ec"\x00"#
        );
    }

    #[test]
    fn commands_end_at_a_word() {
        assert_eq!(command("git *", Lean::Narrow), r#"\x00"command":"git(|[ \\][^\x00]*)"\x00"#);
        assert_eq!(command("npm run:*", Lean::Narrow), r#"\x00"command":"npm run(|[ \\][^\x00]*)"\x00"#);
        assert_eq!(command("ls -l*a", Lean::Narrow), r#"\x00"command":"ls \x2dl[^\x00]*a"\x00"#);
        assert_eq!(command("say \"hi\"", Lean::Narrow), r#"\x00"command":"say \x5c"hi\x5c""\x00"#);
    }

    #[test]
    fn the_cli_would_take_every_pattern() {
        assert!(!is_taken("(a*)*") && !is_taken("(?:a)?(b)?") && !is_taken(&"a".repeat(2049)));
        for glob in ["src/**", "**/x.rs", "a(b)*/[c]+{d}?/**/e", "(*)*", "**", "*?*", "é/\"q\"/", "./x"] {
            for lean in [Lean::Narrow, Lean::Wide] {
                for pattern in [path("file_path", glob, &["/w (x)+/y"], lean), command(glob, lean)] {
                    assert!(is_taken(&pattern), "{glob}: {pattern}");
                }
            }
        }
        assert!(is_taken(&unclear_path("file_path")));
    }
}
