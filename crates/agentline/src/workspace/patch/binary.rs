//! The part of a patch for a file that is not text, as `git diff --binary` writes it.

use miniz_oxide::deflate::compress_to_vec_zlib;
use sha1::{Digest, Sha1};

/// The name of a file that does not exist.
const NO_BLOB: &str = "0000000000000000000000000000000000000000";
/// The level of compression: the default of zlib.
const LEVEL: u8 = 6;
/// The number of bytes in a line.
const LINE: usize = 52;
const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Returns the lines of a patch after its header: the names of both contents, and each content as a whole. `None` is a
/// file that does not exist, and `mode` is that of a file whose mode stays the same.
pub(super) fn hunks(old: Option<&[u8]>, new: Option<&[u8]>, mode: Option<&str>) -> String {
    let [from, to] = [old, new].map(|content| content.map_or_else(|| NO_BLOB.to_owned(), blob_name));
    let mode = mode.map(|mode| format!(" {mode}")).unwrap_or_default();
    let mut text = format!("index {from}..{to}{mode}\nGIT binary patch\n");
    // The second content is for `git apply --reverse`.
    for content in [new, old] {
        literal(content.unwrap_or_default(), &mut text);
    }
    text
}

/// Returns the name under which Git stores a content. `git apply` compares it.
fn blob_name(content: &[u8]) -> String {
    let hash = Sha1::new().chain_update(format!("blob {}\0", content.len())).chain_update(content).finalize();
    crate::fs::digest::hex(&hash)
}

fn literal(content: &[u8], text: &mut String) {
    *text += &format!("literal {}\n", content.len());
    for line in compress_to_vec_zlib(content, LEVEL).chunks(LINE) {
        let length = u8::try_from(line.len()).unwrap_or_default();
        text.push(char::from(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }));
        for group in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..group.len()].copy_from_slice(group);
            let mut value = u32::from_be_bytes(bytes);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = ALPHABET[(value % 85) as usize];
                value /= 85;
            }
            text.extend(digits.map(char::from));
        }
        text.push('\n');
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lengths_are_those_of_git() {
        let empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        let text = hunks(None, Some(&[]), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], [&format!("index {NO_BLOB}..{empty}"), "GIT binary patch", "literal 0"]);
        // Eight bytes of an empty zlib stream, in ten digits.
        assert!(lines[3].starts_with('H') && lines[3].len() == 11, "{}", lines[3]);
        let text = hunks(Some(&[0; 3]), Some(b"x"), Some("100644"));
        assert!(text.lines().next().is_some_and(|line| line.ends_with(" 100644")), "{text}");
    }
}
