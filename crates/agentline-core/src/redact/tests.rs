//! Tests that every spelling of a secret is redacted and that ordinary text stays unchanged.

use super::{Patterns, Scanner, StreamRedactor};
use crate::{MARK, Redactor};
use proptest::prelude::*;

const KEY: &str = "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY";

fn base64(bytes: &[u8], alphabet: &[u8; 64], padding: bool) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            out.push(char::from(alphabet[(bits >> (18 - 6 * i) & 63) as usize]));
        }
        if padding {
            out.push_str(&"=".repeat(3 - chunk.len()));
        }
    }
    out
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns the length of the longest common substring.
fn common(a: &str, b: &str) -> usize {
    (0..a.len())
        .flat_map(|i| (i + 1..=a.len()).map(move |j| (i, j)))
        .filter_map(|(i, j)| a.get(i..j))
        .filter(|part| b.contains(part))
        .map(str::len)
        .max()
        .unwrap_or(0)
}

#[test]
fn every_encoding_of_a_secret_with_special_characters_is_redacted() {
    let signs =
        ["\\", "\"", "%", "+", "/", " ", "é", "\\n", "\\\"", "%41", "&%", "\\u0041", "+/r\"q\\s%é \\t"];
    for secret in signs.map(|sign| format!("Zq8xW2vB7nM4{sign}kL9pT3rq")) {
        let redactor = Redactor::new([&secret]);
        let encoded = |is_unescaped: fn(u8) -> bool| -> String {
            let encode =
                |byte| if is_unescaped(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
            secret.bytes().map(encode).collect()
        };
        let spelled = [
            secret.clone(),
            encoded(|byte| byte.is_ascii_alphanumeric()),
            encoded(|byte| byte.is_ascii_alphanumeric()).to_lowercase(),
            encoded(|byte| byte.is_ascii() && byte != b'\\' && byte != b'%'),
            encoded(|_| false),
            secret.bytes().map(|byte| format!("{byte:02x}")).collect(),
            base64(secret.as_bytes(), STANDARD, false),
            base64(format!("u:{secret}").as_bytes(), URL_SAFE, true),
        ];
        for text in spelled {
            let json = serde_json::to_string(&text).unwrap();
            for text in [text, serde_json::to_string(&json).unwrap(), json] {
                let hidden = redactor.text(&text).into_owned();
                assert!(hidden.contains(MARK) && hidden.replace(MARK, "").len() <= 12, "{text} -> {hidden}");
            }
        }
    }
}

#[test]
fn every_encoding_of_a_known_secret_is_redacted() {
    let redactor = Redactor::new([KEY]);
    let hex: String = KEY.bytes().map(|b| format!("{b:02x}")).collect();
    let percent: String = KEY.bytes().map(|b| format!("%{b:02X}")).collect();
    let mut spelled = vec![
        KEY.to_owned(),
        KEY.to_uppercase(),
        KEY.to_lowercase(),
        hex.to_uppercase(),
        hex,
        percent.to_lowercase(),
        percent,
        KEY.replace('-', "%2D"),
        KEY.replace('-', "\\u002d"),
    ];
    for prefix in ["", "u", "us", "user:", "api_key=", "Authorization: Bearer "] {
        for suffix in ["", "\n", ":x", " and more text"] {
            let whole = format!("{prefix}{KEY}{suffix}");
            for alphabet in [STANDARD, URL_SAFE] {
                for padding in [true, false] {
                    spelled.push(base64(whole.as_bytes(), alphabet, padding));
                }
            }
        }
    }
    for text in spelled {
        for text in [text.clone(), format!("x {text} y"), serde_json::to_string(&text).unwrap()] {
            let hidden = redactor.text(&text).into_owned();
            assert!(
                hidden.contains(MARK) && hidden.replace(MARK, "").len() + 38 <= text.len(),
                "{text} -> {hidden}"
            );
        }
    }
    // Only bytes that also encode neighboring text remain.
    let pair = base64(format!("user:{KEY}").as_bytes(), STANDARD, true);
    let hidden = redactor.text(&pair).into_owned();
    assert!(hidden.replace(MARK, "").len() <= 9, "{hidden}");
}

#[test]
fn wrapped_base64_and_pem_lines_are_redacted() {
    let lines: Vec<String> =
        (0..6).map(|i| base64(&[i * 40 + 3, 77, 200, 9 + i].repeat(12), STANDARD, false)).collect();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"));
    for secret in [pem.clone(), pem.replace('\n', "\\n")] {
        let redactor = Redactor::new([&secret]);
        for line in &lines {
            assert_eq!(redactor.text(&format!("+ {line} +")), "+ [redacted] +");
        }
        assert_eq!(redactor.text("-----END PRIVATE KEY-----"), "-----END PRIVATE KEY-----");
    }
    let wrapped: Vec<String> = base64(pem.as_bytes(), STANDARD, true)
        .as_bytes()
        .chunks(76)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    let hidden = Redactor::new([&pem]).text(&wrapped.join("\n")).into_owned();
    assert!(hidden.replace(MARK, "").len() < 4, "{hidden}");
}

#[test]
fn well_known_secret_formats_are_redacted_without_registration() {
    let redactor = Redactor::default();
    let random = "R4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0m";
    let pem_body = format!("{random}\n").repeat(3);
    let keys = [
        format!("ghp_{}", &random[..36]),
        format!("gho_{}", &random[..36]),
        format!("ghs_{}", &random[..36]),
        format!("ghu_{}", &random[..36]),
        format!("github_pat_{}_{}", &random[..22], &random[..59]),
        format!("glpat-{}", &random[..20]),
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        "ASIAIOSFODNN7EXAMPLE".to_owned(),
        format!("sk-ant-api03-{random}-{random}AA"),
        "sk-ant-ab0123456789cdef0123".to_owned(),
        format!("sk-proj-{random}"),
        format!("sk-{}", &random[..48]),
        KEY.to_owned(),
        "xoxb-123456789012-123456789012-abcdefabcdef".to_owned(),
        "xoxp-123456789012-123456789012-abcdefabcdef".to_owned(),
        format!("ya29.{random}"),
        format!("npm_{}", &random[..36]),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r".to_owned(),
        format!("-----BEGIN RSA PRIVATE KEY-----\n{pem_body}-----END RSA PRIVATE KEY-----"),
        format!(
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\n{pem_body}-----END EC PRIVATE KEY-----"
        ),
    ];
    for key in &keys {
        assert_eq!(redactor.text(key), MARK, "{key}");
        for (before, after) in [("use ", " now"), ("\"", "\""), ("key=", "&x=1"), ("a\n", "\nb"), ("(", ").")]
        {
            let text = format!("{before}{key}{after}");
            assert_eq!(redactor.text(&text), format!("{before}{MARK}{after}"), "{text}");
            let quoted = serde_json::to_string(&serde_json::to_string(&text).unwrap()).unwrap();
            assert!(!redactor.text(&quoted).contains(&random[..8]), "{quoted}");
        }
    }
    let quoted = serde_json::to_string(&format!("x\n{}\n", keys[0])).unwrap();
    assert_eq!(redactor.text(&quoted), "\"x[redacted]\\n\"".replace("x[", "x\\n["));
}

#[test]
fn ordinary_text_matches_no_secret_format() {
    let text = "risk-free desk-top sk-learn sk-loading-indicator-with-a-very-long-class-name-and-more AKIA ASIAN \
        ghp_short github_pat_ npm_config_cache npm_package_version eyJ.eyJ.x AIza xoxb-token \
        3f786850e387550fdab836ed7e6dc881de23001b gemini-2.5-pro claude-sonnet-4-5-20250929 \
        -----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY----- and -----BEGIN CERTIFICATE-----\nMIIB\n \
        -----BEGIN PRIVATE KEY----- is how a file begins that holds a private key and nothing else but that one key \
        sk-ant-your-key-goes-here-please /AKIAdataAKIAdata11 ya29. AKIAIOSFODNN7EXAMPLEmore";
    assert_eq!(Redactor::default().text(text), text);
    assert_eq!(Redactor::default().text(&text.replace('\n', "\\n")), text.replace('\n', "\\n"));
}

#[test]
fn secret_interrupted_by_a_tool_call_is_redacted_on_both_sides() {
    for key in [KEY, "hunter2-hunter2", "sk-ant-ab0123456789cdef0123"] {
        let redactor = Redactor::new([KEY, "hunter2-hunter2"]);
        for cut in 1..key.len() {
            let mut stream = StreamRedactor::default();
            let mut shown = stream.push(redactor.patterns(), format!("it is {}", &key[..cut])).concat();
            shown.extend(stream.interrupt(redactor.patterns()));
            shown.push('|');
            shown.extend(stream.push(redactor.patterns(), format!("{} and Done.", &key[cut..])));
            shown.extend(stream.finish(redactor.patterns()));
            assert!(common(key, &shown.replace(MARK, "")) <= 7, "{cut}: {shown}");
            assert!(shown.starts_with("it is ") && shown.ends_with(" and Done."), "{cut}: {shown}");
        }
    }
}

#[test]
fn word_after_a_tool_call_is_kept() {
    let redactor = Redactor::new(["test-key-of-ours"]);
    let mut stream = StreamRedactor::default();
    let mut shown = String::new();
    for piece in ["I run the tes", "Done", " with ghp_R4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0m", "Done. "] {
        shown.extend(stream.push(redactor.patterns(), piece.to_owned()));
        shown.extend(stream.interrupt(redactor.patterns()));
        shown.push('|');
    }
    assert_eq!(shown, "I run the tes|Done| with [redacted]|Done. |");
}

#[test]
fn held_text_is_searched_for_newly_added_secrets() {
    let (one, two) = (Redactor::new(["first-secret"]), Redactor::new(["first-secret", "first-one-more"]));
    let mut stream = StreamRedactor::default();
    let mut shown = stream.push(one.patterns(), "a first-".into()).concat();
    shown.extend(stream.push(two.patterns(), "one-more b".into()));
    shown.extend(stream.finish(two.patterns()));
    assert_eq!(shown, "a [redacted] b");
}

#[test]
fn private_key_removed_in_a_diff_is_redacted() {
    let body = vec!["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"; 20].join("\n-");
    let diff =
        format!("@@ -1,22 +0,0 @@\n------BEGIN PRIVATE KEY-----\n-{body}\n------END PRIVATE KEY-----\n x");
    assert_eq!(Redactor::default().text(&diff), "@@ -1,22 +0,0 @@\n-[redacted]\n x");
}

#[test]
fn characters_are_never_split() {
    // A secret whose decoded spelling starts and ends inside a character.
    let redactor = Redactor::new(["%A9password%C3", "größte-Größe", "pass-😀-word"]);
    for text in
        ["é©password", "\u{a9}passwordÃ", "éééé©", "größte-Größe", "pass-\\ud83d\\ude00-word", "pass-😀-word"]
    {
        let _ = redactor.text(text);
        let mut stream = StreamRedactor::default();
        for piece in text.chars() {
            let _ = stream.push(redactor.patterns(), piece.to_string());
        }
        let _ = stream.finish(redactor.patterns());
    }
    assert_eq!(redactor.text("x pass-\\ud83d\\ude00-word y"), "x [redacted] y");
    assert_eq!(redactor.text("x pass-😀-word y"), "x [redacted] y");
    assert_eq!(redactor.text("x gr%C3%B6%c3%9fte-Gr\\u00f6\\\\u00dfe y"), "x [redacted] y");
}

proptest! {
    #[test]
    fn skipping_plain_text_does_not_change_the_result(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("AIzaSy"), Just("D-9tSrke72"), Just(KEY), Just("sss"), Just("ssssssss"), Just("s"), Just("%73"), Just("%"),
                Just("\\"), Just("\\n"), Just("\\\""), Just("\\u0073"), Just("\n"), Just("npm_"), Just("ghp_"), Just("sk-ant-"),
                Just("R4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0m"), Just(" "), Just("x"), Just("-----BEGIN "), Just("eyJ"),
                Just("-"), Just("---"), Just("glpat-"), Just("-----BEGIN PRIVATE KEY-----"), Just("-----END PRIVATE KEY-----"),
            ],
            0..24,
        ),
    ) {
        let text = parts.concat();
        let patterns = Patterns::new([KEY, "ssssssss"]);
        let mut scanner = Scanner::default();
        // When scanned one byte at a time, the fast paths skip nothing that could matter.
        text.bytes().enumerate().for_each(|(at, byte)| scanner.scan(&patterns, &[byte], at));
        scanner.finish(&patterns);
        prop_assert_eq!(patterns.find(&text), scanner.take_found(usize::MAX), "{:?}", text);
    }

    #[test]
    fn literal_secret_is_redacted_after_any_prefix(
        before in "([%\\\\uU0-9a-fA-F]{0,8}|[ -~\n]{0,8})",
        secret in prop_oneof![Just(KEY), Just("deadbeefcafe0123"), Just("ud83d-secret"), Just("0041-secret")],
        cut in 0usize..60,
    ) {
        let redactor = Redactor::new([secret]);
        let text = format!("{before}{secret} ");
        let whole = redactor.text(&text);
        prop_assert!(!whole.contains(secret), "{:?}", whole);
        let (mut stream, cut) = (StreamRedactor::default(), cut.min(text.len()));
        let mut shown: String = [&text[..cut], &text[cut..]]
            .iter()
            .flat_map(|piece| stream.push(redactor.patterns(), (*piece).to_owned()))
            .collect();
        shown.extend(stream.finish(redactor.patterns()));
        prop_assert!(!shown.contains(secret), "{:?}", shown);
    }

    #[test]
    fn streamed_and_whole_text_are_redacted_alike(
        parts in proptest::collection::vec(
            prop_oneof![
                Just(KEY.to_owned()), Just("ghp_R4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0m".to_owned()),
                Just("\\".to_owned()), Just("%".to_owned()), Just("\\u0041".to_owned()), Just("AIzaSy".to_owned()),
                Just("sk-".to_owned()), Just("eyJ".to_owned()), Just("-----BEGIN ".to_owned()), "[ -~\n]{0,6}", "\\PC{0,3}",
            ],
            0..12,
        ),
        cuts in proptest::collection::vec(0usize..300, 0..12),
    ) {
        let text = parts.concat();
        let redactor = Redactor::new([KEY]);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len() && text.is_char_boundary(*cut)).collect();
        cuts.sort_unstable();
        cuts.push(text.len());
        let (mut stream, mut shown, mut from) = (StreamRedactor::default(), String::new(), 0);
        for cut in cuts {
            shown.extend(stream.push(redactor.patterns(), text[from..cut].to_owned()));
            from = cut;
        }
        shown.extend(stream.finish(redactor.patterns()));
        let whole = redactor.text(&text).into_owned();
        // A stream shows up to three letters, and the prefix of a key format, before it detects a secret. At
        // its end it hides more than the whole text does: most of an incomplete secret.
        let whole_parts: Vec<&str> = whole.split(MARK).collect();
        let fits = |shown: &str, whole: &str| {
            let Some(more) = shown.strip_prefix(whole) else { return false };
            let prefixes = ["", "ghp_", "sk-", "AIza", "eyJ"];
            let letters =
                |more: &str| more.replace("\\u0041", "A").split('\\').next().unwrap_or_default().len();
            prefixes.iter().filter_map(|prefix| more.strip_prefix(prefix)).any(|more| letters(more) <= 3)
        };
        let agrees = |shown: &str| {
            let parts: Vec<&str> = shown.split(MARK).collect();
            let last = parts.len() - 1;
            parts.len() <= whole_parts.len()
                && parts[..last].iter().zip(&whole_parts).all(|(shown, whole)| fits(shown, whole))
                && (fits(parts[last], whole_parts[last]) || whole_parts[last].starts_with(parts[last]))
        };
        let is_complete = shown.split(MARK).count() == whole_parts.len() && agrees(&shown);
        let same = is_complete || shown.strip_suffix(MARK).is_some_and(agrees);
        prop_assert!(same, "{:?}: {:?} or {:?}", text, shown, whole);
    }
}

#[test]
fn chunks_keep_their_boundaries_and_the_marker_is_in_the_last() {
    let redactor = Redactor::new(["password-of-mine"]);
    let shown = |pieces: &[&str]| -> Vec<Vec<String>> {
        let mut stream = StreamRedactor::default();
        let mut shown: Vec<_> =
            pieces.iter().map(|piece| stream.push(redactor.patterns(), (*piece).to_owned())).collect();
        shown.push(stream.finish(redactor.patterns()));
        shown
    };
    assert_eq!(
        shown(&["a pass", "word", "-of-mine b. "]),
        [vec![], vec![], vec!["a ", "", "[redacted] b. "], vec![]]
    );
    assert_eq!(shown(&["x password-of-mine y p"]), [vec!["x [redacted] y p"], vec![]]);
}

#[test]
fn chunk_ending_with_a_short_prefix_is_emitted_immediately() {
    let redactor = Redactor::new(["no-key-of-anything"]);
    let mut stream = StreamRedactor::default();
    for piece in ["begun", " an", " no-", " sk-", " eyJhb", " -----BEGIN PRIVATE KEY-----", " ghp_abc", " "] {
        assert_eq!(stream.push(redactor.patterns(), piece.to_owned()), [piece]);
    }
    // The rest of a secret whose first letters were shown is redacted.
    let key = "no-key-of-anything ghp_R4nd0mR4nd0mR4nd0mR4nd0mR4nd0mR4nd0m ";
    let mut shown = String::new();
    for letter in key.chars() {
        shown.extend(stream.push(redactor.patterns(), letter.to_string()));
    }
    assert_eq!(shown, "no-[redacted] ghp_R4n[redacted] ");
}
