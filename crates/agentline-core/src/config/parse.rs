//! Parsers for short forms that users type: `10m`, `NAME=VALUE`, `docs=https://…`.

use crate::McpServer;
use std::{collections::BTreeMap, time::Duration};

/// The units of a time, in seconds.
const UNITS: &[(&str, f64)] = &[("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Parses a time: `90` and `1.5` are seconds; `500ms`, `90s`, `10m`, `1h30m` and `2d` name their unit.
///
/// ```
/// use agentline_core::config::parse_duration;
/// use std::time::Duration;
/// assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
/// assert!(parse_duration("soon").is_err());
/// ```
///
/// # Errors
/// Returns a message for the user if the text is not a time.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    duration_in(text, 1.0)
}

/// Parses a time in which a number without a unit counts in units of `unit` seconds.
pub(super) fn duration_in(text: &str, unit: f64) -> Result<Duration, String> {
    let wrong = || {
        format!("`{text}` is not a duration; write seconds, or a duration such as `10m`, `1h30m`, `500ms`")
    };
    let mut rest = text.trim();
    if let Ok(number) = rest.parse::<f64>() {
        return Duration::try_from_secs_f64(number * unit).map_err(|_| wrong());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (_, size) = UNITS.iter().find(|(name, _)| *name == &rest[..letters]).ok_or_else(wrong)?;
        seconds += number * size;
        rest = rest[letters..].trim_start();
    }
    if text.trim().is_empty() {
        Err(wrong())
    } else {
        Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
    }
}

/// Formats a time as a short text that [`parse_duration`] reads back.
#[must_use]
pub fn show_duration(time: Duration) -> String {
    if !time.subsec_nanos().is_multiple_of(1_000_000) {
        return format!("{}s", time.as_secs_f64());
    }
    let (all, millis) = (time.as_secs(), time.subsec_millis());
    let parts = [(all / 3600, "h"), (all / 60 % 60, "m"), (all % 60, "s"), (u64::from(millis), "ms")];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".into() } else { text }
}

/// Parses `NAME=VALUE`. The value may contain anything except NUL, and never appears in the error.
///
/// # Errors
/// Returns a message for the user if the name or the `=` is missing, or if the text contains a NUL byte.
pub fn parse_env(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, _)) if name.is_empty() || name.contains('\0') => {
            Err("missing variable name before `=`; write `NAME=VALUE`".into())
        }
        Some((_, value)) if value.contains('\0') => Err("the value contains a NUL byte".into()),
        Some((name, value)) => Ok((name.into(), value.into())),
        None => {
            Err("missing `=`; write `NAME=VALUE`, or use `pass_env` to pass on one of your variables".into())
        }
    }
}

/// Parses `name=URL` or `name=command args…`, where quotes group words as in a shell.
///
/// ```
/// use agentline_core::{McpServer, config::parse_mcp};
/// let (name, server) = parse_mcp("notes=npx -y notes-server 'my notes'").unwrap();
/// assert_eq!(name, "notes");
/// assert!(matches!(server, McpServer::Command { command, args, .. } if command == "npx" && args[2] == "my notes"));
/// ```
///
/// # Errors
/// Returns a message for the user, which never contains the text after the `=`.
pub fn parse_mcp(text: &str) -> Result<(String, McpServer), String> {
    let form = "write `name=URL` or `name=command args…`";
    let (name, rest) = text.split_once('=').ok_or_else(|| format!("missing `=`; {form}"))?;
    let (name, rest) = (name.trim(), rest.trim());
    if name.is_empty() {
        return Err(format!("missing server name before `=`; {form}"));
    }
    if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!("the server name before `=` contains whitespace; {form}"));
    }
    let scheme = rest.split_once("://").map(|(scheme, behind)| (scheme.to_ascii_lowercase(), behind));
    if let Some(("http" | "https", behind)) = scheme.as_ref().map(|(s, b)| (s.as_str(), *b)) {
        if rest.contains(char::is_whitespace) {
            return Err(format!("the URL of `{name}` contains whitespace; {form}"));
        }
        if behind.is_empty() || behind.starts_with(['/', '?', '#']) {
            return Err(format!("the URL of `{name}` has no host; {form}"));
        }
        return Ok((name.into(), McpServer::Url { url: rest.into(), headers: BTreeMap::new() }));
    }
    if scheme.is_some_and(|(s, _)| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric())) {
        return Err(format!("the URL of `{name}` must start with `http://` or `https://`; {form}"));
    }
    let mut args = shell_words(rest)
        .ok_or_else(|| format!("the command of `{name}` has an unclosed quote"))?
        .into_iter();
    let command = args.next().ok_or_else(|| format!("missing value after `{name}=`; {form}"))?;
    Ok((name.into(), McpServer::Command { command, args: args.collect(), env: BTreeMap::new() }))
}

/// Splits a command as a shell would, without expansions. Returns `None` if a quote is not closed.
fn shell_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => match letters.next()? {
                            c @ ('"' | '\\' | '$' | '`') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' if cfg!(not(windows)) => word.get_or_insert_default().push(letters.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// Splits the value of an environment variable at commas, except inside parentheses, since a rule may contain commas.
pub(super) fn comma_list(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(|word| word.trim().to_owned())
    .filter(|word| !word.is_empty())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_parsed_in_every_format() {
        for (text, millis) in [
            ("90", 90_000),
            ("1.5", 1_500),
            ("500ms", 500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            (" 1h 30 m ", 5_400_000),
            ("2d", 172_800_000),
            ("1.5h", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", " ", "soon", "10x", "m", "-5", "1h30", "nan", "inf", "1e300", "10M", "1..5s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_duration("10x").unwrap_err(),
            "`10x` is not a duration; write seconds, or a duration such as `10m`, `1h30m`, `500ms`"
        );
    }

    proptest! {
        #[test]
        fn formatted_duration_round_trips(millis in 0_u64..1_000_000_000_000) {
            let time = Duration::from_millis(millis);
            let back = parse_duration(&show_duration(time)).unwrap();
            prop_assert!(back.abs_diff(time) < Duration::from_micros(500), "{time:?} {back:?}");
        }

        #[test]
        fn parsing_short_forms_never_panics(text in ".{0,40}") {
            let _ = (parse_duration(&text), parse_env(&text), parse_mcp(&text), comma_list(&text));
        }
    }

    #[test]
    fn variables_are_split_at_the_first_equals_sign() {
        assert_eq!(parse_env("A=b=c "), Ok(("A".into(), "b=c ".into())));
        assert_eq!(parse_env("A="), Ok(("A".into(), String::new())));
        assert_eq!(
            parse_env("hunter2-the-secret").unwrap_err(),
            "missing `=`; write `NAME=VALUE`, or use `pass_env` to pass on one of your variables"
        );
        assert_eq!(parse_env("=x").unwrap_err(), "missing variable name before `=`; write `NAME=VALUE`");
        assert_eq!(parse_env("A=\0").unwrap_err(), "the value contains a NUL byte");
    }

    #[test]
    fn servers_are_parsed_as_urls_or_commands() {
        let url = McpServer::Url { url: "https://x.test/mcp?k=v".into(), headers: BTreeMap::new() };
        assert_eq!(parse_mcp("docs=https://x.test/mcp?k=v"), Ok(("docs".into(), url)));
        let McpServer::Command { command, args, .. } =
            parse_mcp(r#"a="my prog" -x 'two words' "q\"q" ''"#).unwrap().1
        else {
            panic!("not a command")
        };
        assert_eq!(command, "my prog");
        assert_eq!(args, ["-x", "two words", "q\"q", ""]);
        assert!(parse_mcp("a=npx proxy ws://h/x").is_ok());
        for (text, message) in [
            ("docs", "missing `=`; write `name=URL` or `name=command args…`"),
            ("=x", "missing server name before `=`; write `name=URL` or `name=command args…`"),
            (
                "a b=x",
                "the server name before `=` contains whitespace; write `name=URL` or `name=command args…`",
            ),
            ("a= ", "missing value after `a=`; write `name=URL` or `name=command args…`"),
            ("a='x", "the command of `a` has an unclosed quote"),
            ("a=http://", "the URL of `a` has no host; write `name=URL` or `name=command args…`"),
            (
                "a=ftp://x",
                "the URL of `a` must start with `http://` or `https://`; write `name=URL` or `name=command args…`",
            ),
            ("a=http://x y", "the URL of `a` contains whitespace; write `name=URL` or `name=command args…`"),
        ] {
            assert_eq!(parse_mcp(text).unwrap_err(), message, "{text}");
        }
    }

    #[test]
    fn commas_inside_rules_do_not_split_them() {
        assert_eq!(
            comma_list("Write(src/**), Bash(echo a,b),,WebFetch"),
            ["Write(src/**)", "Bash(echo a,b)", "WebFetch"]
        );
        assert_eq!(comma_list("a),b"), ["a)", "b"]);
    }
}
