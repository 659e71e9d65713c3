//! Decodes `$'…'` strings, in which bash replaces escapes.

/// Decodes the text between the quotes of `$'…'`. Returns `None` if shells disagree about it.
pub(super) fn decode(inner: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let mut after = rest[at + 1..].chars();
        let c = after.next()?;
        rest = after.as_str();
        match c {
            'a' => text.push('\u{7}'),
            'b' => text.push('\u{8}'),
            'e' | 'E' => text.push('\u{1b}'),
            'f' => text.push('\u{c}'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'v' => text.push('\u{b}'),
            '\\' | '\'' | '"' | '?' => text.push(c),
            'x' => text.push(number(&mut rest, 16, 2)?),
            'u' => text.push(number(&mut rest, 16, 4)?),
            'U' => text.push(number(&mut rest, 16, 8)?),
            '0'..='7' => {
                rest = &inner[inner.len() - rest.len() - 1..];
                text.push(number(&mut rest, 8, 3)?);
            }
            _ => return None,
        }
    }
    text.push_str(rest);
    Some(text)
}

/// Takes the digits of a character from the front. Returns `None` for non-ASCII values, which depend on the locale, and
/// for zero, which ends a string.
fn number(rest: &mut &str, radix: u32, most: usize) -> Option<char> {
    let length = rest.chars().take(most).take_while(|c| c.is_digit(radix)).count();
    let value = u8::from_str_radix(&rest[..length], radix).ok()?;
    *rest = &rest[length..];
    (value != 0 && value.is_ascii()).then_some(char::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_as_bash_does() {
        for (inner, expected) in [
            ("rm", Some("rm")),
            ("\\x72m", Some("rm")),
            ("\\162\\155", Some("rm")),
            ("\\u0072m", Some("rm")),
            ("\\U00000072m", Some("rm")),
            ("\\x2dc", Some("-c")),
            ("x:\\n\\trm \\'y\\'", Some("x:\n\trm 'y'")),
            ("\\1411", Some("a1")),
            ("\\x611", Some("a1")),
            ("é\\x61", Some("éa")),
            ("\\x00rm", None),
            ("\\xe9", None),
            ("\\x", None),
            ("\\777", None),
            ("\\cA", None),
            ("\\z", None),
            ("\\", None),
        ] {
            assert_eq!(decode(inner).as_deref(), expected, "{inner}");
        }
    }
}
