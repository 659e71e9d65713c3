//! Reads JSON from other programs tolerantly, in one pass.
//!
//! Unknown keys are skipped, the last of two equal keys wins, and a value of the wrong type reads as the default, so
//! that it does not make the whole line unreadable.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, marker::PhantomData, ops::Deref};

/// A type that can be read from any JSON value. By default, every value reads as the default value.
pub(crate) trait Tolerant<'de>: Default {
    /// Returns whether the value was an object. Any other value reads as the default.
    fn is_object(&self) -> bool {
        false
    }
    fn of_borrowed(text: &'de str) -> Self {
        Self::of_str(text)
    }
    fn of_str(_text: &str) -> Self {
        Self::default()
    }
    fn of_u64(_n: u64) -> Self {
        Self::default()
    }
    fn of_f64(_n: f64) -> Self {
        Self::default()
    }
    fn of_bool(_b: bool) -> Self {
        Self::default()
    }
    fn of_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
    fn of_seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

/// Reads a tolerant type from any JSON value.
pub(crate) fn tolerant<'de, T: Tolerant<'de>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    d.deserialize_any(Anything(PhantomData))
}

struct Anything<T>(PhantomData<T>);

impl<'de, T: Tolerant<'de>> Visitor<'de> for Anything<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_borrowed_str<E: Error>(self, v: &'de str) -> Result<T, E> {
        Ok(T::of_borrowed(v))
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<T, E> {
        Ok(T::of_str(v))
    }
    fn visit_u64<E: Error>(self, v: u64) -> Result<T, E> {
        Ok(T::of_u64(v))
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<T, E> {
        Ok(T::of_f64(v as f64))
    }
    fn visit_f64<E: Error>(self, v: f64) -> Result<T, E> {
        Ok(T::of_f64(v))
    }
    fn visit_bool<E: Error>(self, v: bool) -> Result<T, E> {
        Ok(T::of_bool(v))
    }
    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::of_map(map)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::of_seq(seq)
    }
}

macro_rules! deserialize_tolerantly {
    ($name:ident<$lt:lifetime>) => {
        impl<$lt> Deserialize<$lt> for $name<$lt> {
            fn deserialize<D: Deserializer<$lt>>(d: D) -> Result<Self, D::Error> {
                tolerant(d)
            }
        }
    };
    ($name:ident) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                tolerant(d)
            }
        }
    };
}

/// A string, borrowed if it has no escapes. Numbers and booleans read as their text, other values as "".
#[derive(Default, Debug, Clone, PartialEq)]
pub(crate) struct Str<'a>(pub(crate) Cow<'a, str>);

impl<'de> Tolerant<'de> for Str<'de> {
    fn of_borrowed(text: &'de str) -> Self {
        Self(Cow::Borrowed(text))
    }
    fn of_str(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }
    fn of_u64(n: u64) -> Self {
        Self(Cow::Owned(n.to_string()))
    }
    fn of_f64(n: f64) -> Self {
        Self(Cow::Owned(n.to_string()))
    }
    fn of_bool(b: bool) -> Self {
        Self(Cow::Owned(b.to_string()))
    }
}
deserialize_tolerantly!(Str<'de>);

impl Str<'_> {
    pub(crate) fn own(self) -> String {
        self.0.into_owned()
    }
}

impl Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// A count: a non-negative whole number, which may be written as a string. Anything else reads as unknown.
#[derive(Default, Debug, Clone, Copy, PartialEq)]
pub(crate) struct Num(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // Parse the raw text, because a number outside the range of every type would otherwise fail the whole line.
        let raw = <&RawValue>::deserialize(d)?.get();
        let text = raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')).unwrap_or(raw).trim();
        // Above 2^53, a float is not exact, and fractions are not counts.
        let whole = |n: &f64| (0.0..=9_007_199_254_740_992.0).contains(n) && n.fract() == 0.0;
        let by_float = || text.parse::<f64>().ok().filter(whole).map(|n| n as u64);
        Ok(Self(text.parse().ok().or_else(by_float)))
    }
}

/// A boolean. Anything else reads as `false`.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flag(pub(crate) bool);

impl Tolerant<'_> for Flag {
    fn of_bool(b: bool) -> Self {
        Self(b)
    }
}
deserialize_tolerantly!(Flag);

/// A list. Anything else reads as empty.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Tolerant<'de> for List<T> {
    fn of_seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Self(items))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        tolerant(d)
    }
}

/// The entries of an object, in order. Anything else reads as empty.
#[derive(Debug)]
pub(crate) struct Entries<'a, T>(pub(crate) Vec<(Str<'a>, T)>);

impl<T> Default for Entries<'_, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Tolerant<'de> for Entries<'de, T> {
    fn of_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Self(entries))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<'de, T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        tolerant(d)
    }
}

/// Declares a wire record with optional fields, which is read in one pass and never fails because of a type.
macro_rules! wire {
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$lt:lifetime> { $($field:ident : $ty:ty = $key:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Default, Debug)]
        $vis struct $name<$lt> {
            $($vis $field: $ty,)*
            was_object: bool,
            lifetime: std::marker::PhantomData<&$lt ()>,
        }
        impl<$lt> $crate::wire::Tolerant<$lt> for $name<$lt> {
            fn is_object(&self) -> bool {
                self.was_object
            }
            fn of_map<A: serde::de::MapAccess<$lt>>(mut map: A) -> Result<Self, A::Error> {
                let mut record = Self { was_object: true, ..Self::default() };
                while let Some(key) = map.next_key::<$crate::wire::Str<$lt>>()? {
                    match &*key {
                        $($key => record.$field = map.next_value()?,)*
                        _ => { map.next_value::<serde::de::IgnoredAny>()?; }
                    }
                }
                Ok(record)
            }
        }
        impl<$lt> serde::Deserialize<$lt> for $name<$lt> {
            fn deserialize<D: serde::Deserializer<$lt>>(d: D) -> Result<Self, D::Error> {
                $crate::wire::tolerant(d)
            }
        }
    };
}
pub(crate) use wire;

/// Returns the same value on one line, for line-based formats.
pub(crate) fn on_one_line(value: &RawValue) -> Box<RawValue> {
    let text = value.get();
    if !text.contains(['\n', '\r']) {
        return value.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string || !c.is_ascii_whitespace() {
            out.push(c);
        }
        in_string ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    RawValue::from_string(out).unwrap_or_else(|_| value.to_owned())
}

/// A part of a line that contains more than one JSON object.
#[derive(Debug, PartialEq)]
pub(crate) enum LinePart<'a> {
    /// A JSON object.
    Object(&'a str),
    /// Any other text that is not blank.
    Noise(&'a str),
}

/// The number of truncated objects after which the rest of a line counts as noise.
const MOST_BROKEN: u32 = 8;

/// Finds the JSON objects in a line that also contains other text, several values or truncated ones.
pub(crate) fn parts(line: &str) -> Vec<LinePart<'_>> {
    let mut parts = Vec::new();
    let mut noise_from = 0;
    let mut at = 0;
    let mut broken = 0;
    while broken < MOST_BROKEN
        && let Some(found) = line[at..].find('{')
    {
        let from = at + found;
        let mut values = serde_json::Deserializer::from_str(&line[from..]).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {
                let end = from + values.byte_offset();
                push_noise(&mut parts, &line[noise_from..from]);
                parts.push(LinePart::Object(&line[from..end]));
                noise_from = end;
                at = end;
            }
            Some(Err(e)) => {
                broken += u32::from(e.is_eof());
                at = from + 1;
            }
            None => break,
        }
    }
    push_noise(&mut parts, &line[noise_from..]);
    parts
}

fn push_noise<'a>(parts: &mut Vec<LinePart<'a>>, text: &'a str) {
    if !text.trim().is_empty() {
        parts.push(LinePart::Noise(text));
    }
}

/// Replaces escapes of lone surrogates (`\ud83d`), which are valid in JavaScript strings but not in Rust strings.
///
/// Returns `None` if there are none.
pub(crate) fn mend_surrogates(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let unit = |i: usize| -> Option<u16> {
        let hex = text.get(i + 2..i + 6)?;
        (bytes.get(i) == Some(&b'\\') && bytes.get(i + 1) == Some(&b'u'))
            .then(|| u16::from_str_radix(hex, 16).ok())?
    };
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        let i = at + found;
        match unit(i) {
            Some(0xd800..=0xdbff) if matches!(unit(i + 6), Some(0xdc00..=0xdfff)) => at = i + 12,
            Some(0xd800..=0xdfff) => {
                out.push_str(&text[copied..i]);
                out.push_str("\\ufffd");
                copied = i + 6;
                at = i + 6;
            }
            _ => at = (i + 2).min(bytes.len()),
        }
    }
    (copied > 0).then(|| out + &text[copied..])
}

#[cfg(test)]
mod tests {
    use super::*;

    wire! { struct Probe<'a> { text: Str<'a> = "text", count: Num = "count", list: List<Str<'a>> = "list" } }

    #[test]
    fn wrong_type_drops_only_its_field() {
        let probe: Probe<'_> =
            serde_json::from_str(r#"{"text":{"a":[1]},"count":"7","list":3,"more":[{}]}"#).unwrap();
        assert!(probe.is_object());
        assert_eq!((&*probe.text, probe.count.0, probe.list.0.len()), ("", Some(7), 0));
        let probe: Probe<'_> = serde_json::from_str("[1,2]").unwrap();
        assert!(!probe.is_object());
    }

    #[test]
    fn last_duplicate_key_wins_and_invalid_numbers_are_unknown() {
        let probe: Probe<'_> = serde_json::from_str(r#"{"text":"a","text":"b","count":-3}"#).unwrap();
        assert_eq!((&*probe.text, probe.count.0), ("b", None));
        let probe: Probe<'_> = serde_json::from_str(r#"{"count":1e300}"#).unwrap();
        assert_eq!(probe.count.0, None);
    }

    #[test]
    fn string_without_escapes_is_borrowed() {
        let probe: Probe<'_> = serde_json::from_str(r#"{"text":"plain"}"#).unwrap();
        assert!(matches!(probe.text.0, Cow::Borrowed(_)));
    }

    #[test]
    fn multi_line_value_is_joined_into_one_line() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let lines = raw("{\n  \"a b\": [1,\r\n 2],\n  \"c\": \"x \\\" \\\\\",\n \"d\": \" y\"}");
        assert_eq!(on_one_line(&lines).get(), r#"{"a b":[1,2],"c":"x \" \\","d":" y"}"#);
        assert_eq!(on_one_line(&raw("[1, 2]")).get(), "[1, 2]");
    }

    #[test]
    fn objects_are_found_between_other_text() {
        use LinePart::{Noise, Object};
        assert_eq!(
            parts(r#"log: {"a":1} {"b":{}}end"#),
            [Noise("log: "), Object(r#"{"a":1}"#), Object(r#"{"b":{}}"#), Noise("end")]
        );
        assert_eq!(
            parts(r#"{"type":"mess{"type":"result"}"#),
            [Noise(r#"{"type":"mess"#), Object(r#"{"type":"result"}"#)]
        );
        assert_eq!(
            parts(r#"{"type":{"type":"result"}"#),
            [Noise(r#"{"type":"#), Object(r#"{"type":"result"}"#)]
        );
        assert_eq!(parts("  "), []);
        assert_eq!(parts("plain"), [Noise("plain")]);
    }

    #[test]
    fn lone_surrogate_is_replaced() {
        assert_eq!(mend_surrogates(r#"{"a":"\ud83d"}"#).unwrap(), r#"{"a":"\ufffd"}"#);
        assert_eq!(mend_surrogates(r#"{"a":"\ud83d\ude00 \\ud83d"}"#), None);
        assert_eq!(mend_surrogates(r#"\ude00\ud83d\u0041"#).unwrap(), r"\ufffd\ufffd\u0041");
    }
}
