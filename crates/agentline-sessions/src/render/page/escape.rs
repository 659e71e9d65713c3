//! Escapes text for a page, and makes invisible and bidirectional control characters visible.

use std::io::{self, Write};

/// The replacement for a character.
enum Sign {
    /// An HTML entity.
    Name(&'static str),
    /// The code point of a control character, which is shown as `U+XXXX`.
    Number(u32),
}

/// Writes text between tags.
pub(super) fn text(out: &mut dyn Write, text: &str) -> io::Result<()> {
    escape(out, text, |out, sign| match sign {
        Sign::Name(name) => out.write_all(name.as_bytes()),
        Sign::Number(n) => write!(out, "<i class=ctl>U+{n:04X}</i>"),
    })
}

/// Writes text inside a quoted attribute, or where no tag is allowed.
pub(super) fn attribute(out: &mut dyn Write, text: &str) -> io::Result<()> {
    escape(out, text, |out, sign| match sign {
        Sign::Name(name) => out.write_all(name.as_bytes()),
        Sign::Number(n) => write!(out, "U+{n:04X}"),
    })
}

fn escape(
    out: &mut dyn Write,
    text: &str,
    write: impl Fn(&mut dyn Write, Sign) -> io::Result<()>,
) -> io::Result<()> {
    let bytes = text.as_bytes();
    let (mut from, mut at) = (0, 0);
    while at < bytes.len() {
        if !SPECIAL[usize::from(bytes[at])] {
            at += 1;
            continue;
        }
        let (sign, length) = match sign(&text[at..]) {
            (Some(sign), length) => (sign, length),
            (None, length) => {
                at += length;
                continue;
            }
        };
        out.write_all(&bytes[from..at])?;
        write(out, sign)?;
        at += length;
        from = at;
    }
    out.write_all(&bytes[from..])
}

/// The first bytes of characters that may need a replacement.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        special[byte] = byte as u8 != b'\n' && byte as u8 != b'\t';
        byte += 1;
    }
    let more = [b'&', b'<', b'>', b'"', b'\'', 0x7f, 0xc2, 0xd8, 0xe2, 0xef];
    let mut i = 0;
    while i < more.len() {
        special[more[i] as usize] = true;
        i += 1;
    }
    special
};

/// Returns the replacement for the first character, and the length of the character.
fn sign(rest: &str) -> (Option<Sign>, usize) {
    let Some(c) = rest.chars().next() else { return (None, 1) };
    let sign = match c {
        '&' => Some(Sign::Name("&amp;")),
        '<' => Some(Sign::Name("&lt;")),
        '>' => Some(Sign::Name("&gt;")),
        '"' => Some(Sign::Name("&quot;")),
        '\'' => Some(Sign::Name("&#39;")),
        // The carriage return of a Windows line ending is dropped.
        '\r' if rest[1..].starts_with('\n') => Some(Sign::Name("")),
        '\n' | '\t' => None,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => Some(Sign::Number(c.into())),
        '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => Some(Sign::Number(c.into())),
        _ => None,
    };
    (sign, c.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(input: &str) -> (String, String) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        text(&mut a, input).unwrap();
        attribute(&mut b, input).unwrap();
        (String::from_utf8(a).unwrap(), String::from_utf8(b).unwrap())
    }

    #[test]
    fn special_characters_are_escaped() {
        let (text, attribute) = both("<a b=\"c\" d='e'>&\0\u{202e}x\r\ny\tä→\u{85}");
        assert_eq!(
            text,
            "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;<i class=ctl>U+0000</i><i class=ctl>U+202E</i>x\ny\tä→<i class=ctl>U+0085</i>"
        );
        assert_eq!(attribute, "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;U+0000U+202Ex\ny\tä→U+0085");
    }

    #[test]
    fn no_unsafe_character_is_emitted() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let (_, written) = both(&c.to_string());
            let bad = |c: char| {
                "<>\"'\0\u{202e}\u{2066}\u{200f}".contains(c) || (c.is_control() && c != '\n' && c != '\t')
            };
            assert!(!written.contains(bad), "{:x}", u32::from(c));
        }
    }
}
