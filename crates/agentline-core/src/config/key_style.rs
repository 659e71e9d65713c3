//! The spelling of keys in hints: callers without flags get the keys of their language.

use super::keys::keys;

/// The spelling of keys in a caller's language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyStyle {
    /// `max_turns`, as in configuration files and Python.
    #[default]
    Snake,
    /// `maxTurns`, as in JavaScript.
    Camel,
}

/// Replaces command-line flags in a hint with the matching keys, for callers that have no flags.
#[must_use]
pub fn keys_for_flags(hint: &str, style: KeyStyle) -> String {
    keys().iter().fold(hint.to_owned(), |hint, key| {
        let shown = match style {
            KeyStyle::Snake => key.name.to_owned(),
            KeyStyle::Camel => camel_case(key.name),
        };
        let words = key.flag.map(|flag| format!("--{flag}")).into_iter().chain([key.name.to_owned()]);
        words.fold(hint, |hint, word| {
            [" ", "`"]
                .iter()
                .fold(hint, |hint, end| hint.replace(&format!("`{word}{end}"), &format!("`{shown}{end}")))
        })
    })
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.push_str(letters.as_str());
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_keys_in_the_callers_language() {
        let hint = "raise `--max-turns`, or pass `--cwd DIR`; see `--other` and `retry_patience`";
        assert_eq!(
            keys_for_flags(hint, KeyStyle::Snake),
            "raise `max_turns`, or pass `working_dir DIR`; see `--other` and `retry_patience`"
        );
        assert_eq!(
            keys_for_flags(hint, KeyStyle::Camel),
            "raise `maxTurns`, or pass `workingDir DIR`; see `--other` and `retryPatience`"
        );
    }
}
