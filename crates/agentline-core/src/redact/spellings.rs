//! Generates the words to search for, so that a secret is found in every encoding.

use super::decode::folded;

/// Only this many bytes of a longer secret are encoded.
const LONGEST_ENCODED: usize = 4 << 10;
/// The minimum length of a line of a multi-line secret that is redacted by itself.
const SHORTEST_LINE: usize = 16;
/// The minimum length of a word after decoding.
const SHORTEST_FOLDED: usize = 6;
/// The maximum number of ambiguous positions that are combined freely. Further ones share a choice.
const MOST_CUTS: usize = 4;
/// In a longer secret, all ambiguous positions share one choice.
const LONGEST_AMBIGUOUS: usize = 256;
/// The maximum number of bytes after the first character of an escape.
const LONGEST_ESCAPE: usize = 11;
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns all words for one secret, folded.
pub(super) fn spellings(secret: &str) -> Vec<Vec<u8>> {
    let mut spellings = itself(secret);
    let bytes = &secret.as_bytes()[..secret.len().min(LONGEST_ENCODED)];
    spellings.extend((0..3).map(|before| folded(&base64_core(bytes, before))));
    spellings.push(bytes.iter().flat_map(|byte| hex(*byte)).collect());
    let lines = secret.split('\n').flat_map(|line| line.split("\\n")).map(str::trim);
    let lines = lines.filter(|line| line.len() >= SHORTEST_LINE && line.len() < secret.trim().len());
    spellings.extend(lines.filter(|line| !line.starts_with("-----")).flat_map(itself));
    spellings.retain(|spelling| spelling.len() >= SHORTEST_FOLDED);
    spellings
}

/// Returns the words for the secret itself, without surrounding quotation marks, which look like those of a JSON
/// string.
///
/// The text after a backslash or percent sign is ambiguous: it is an escape, or literal if the text is cut
/// there or the sign itself is encoded. The first letter of the secret can also follow a backslash.
fn itself(secret: &str) -> Vec<Vec<u8>> {
    let secret = secret.trim_matches('"');
    let cuts = ambiguous_cuts(secret.as_bytes());
    let most = if secret.len() > LONGEST_AMBIGUOUS { 1 } else { MOST_CUTS };
    let is_chosen = |choice: usize, at: usize| choice >> (at % most) & 1 == 1;
    let mut spellings: Vec<Vec<u8>> = (0..1 << cuts.len().min(most))
        .map(|choice| {
            let chosen =
                cuts.iter().enumerate().filter(|(at, _)| is_chosen(choice, *at)).map(|(_, cut)| *cut);
            folded_in_pieces(secret.as_bytes(), chosen)
        })
        .collect();
    spellings.push(folded(format!("\\{secret}").as_bytes()));
    spellings
}

/// Returns the positions after a backslash or percent sign at which cutting the text changes its meaning.
fn ambiguous_cuts(secret: &[u8]) -> Vec<usize> {
    let matters = |cut: &usize| {
        let window = &secret[cut - 1..secret.len().min(cut + LONGEST_ESCAPE)];
        folded(window) != folded_in_pieces(window, [1])
    };
    memchr::memchr2_iter(b'\\', b'%', secret).map(|at| at + 1).filter(matters).collect()
}

fn folded_in_pieces(text: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let (mut word, mut from) = (Vec::new(), 0);
    for cut in cuts {
        word.extend(folded(&text[from..cut]));
        from = cut;
    }
    word.extend(folded(&text[from..]));
    word
}

fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)])
}

/// Returns the base64 characters that depend only on these bytes, if `before` other bytes precede them.
fn base64_core(bytes: &[u8], before: usize) -> Vec<u8> {
    let padded: Vec<u8> = std::iter::repeat_n(0, before).chain(bytes.iter().copied()).collect();
    let first = (before * 8).div_ceil(6);
    let letter = |at: usize| {
        let (byte, shift) = (at * 6 / 8, at * 6 % 8);
        let pair = u16::from(padded[byte]) << 8 | u16::from(padded.get(byte + 1).copied().unwrap_or(0));
        BASE64[usize::from(pair >> (10 - shift) & 63)]
    };
    (first..padded.len() * 8 / 6).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_matched_in_three_alignments() {
        let core = |before| String::from_utf8(base64_core(b"hunter2!", before)).unwrap();
        // `base64` of the secret alone, after `:` and after `u:`, without the characters that depend on neighboring
        // bytes.
        assert!("aHVudGVyMiE=".starts_with(&core(0)) && core(0).len() == 10);
        assert!("Omh1bnRlcjIh"[2..].starts_with(&core(1)) && core(1).len() == 10);
        assert!("dTpodW50ZXIyIQ=="[3..].starts_with(&core(2)) && core(2).len() == 10);
    }
}
