//! Shared code of readers for line-based sessions: lines are read tolerantly, and damage is recorded.

use crate::{
    Millis, ReadError, SavedSession, time,
    wire::{Str, Tolerant, mend_surrogates},
};
use serde::{
    Deserialize,
    de::{Deserializer as _, Error as _, MapAccess, Visitor},
};
use std::fmt;

/// A session that is read line by line.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    /// The session read so far.
    pub(super) session: SavedSession,
    /// The number of lines read.
    pub(super) count: u64,
}

impl LineReader {
    /// Creates an empty session of this agent.
    pub(super) fn new(agent: &str) -> Self {
        let mut lines = Self::default();
        lines.session.info.agent = agent.into();
        lines
    }

    /// Reads the next line. Returns `None` for a blank line, and for a line that is not an object, which is recorded as
    /// damage. Unpaired surrogates are repaired in `mended`.
    pub(super) fn read<'a, T: Tolerant<'a> + Deserialize<'a>>(
        &mut self,
        line: &'a str,
        mended: &'a mut String,
    ) -> Option<T> {
        self.count += 1;
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() {
            return None;
        }
        let mut read = serde_json::from_str::<T>(line);
        if read.is_err()
            && let Some(better) = mend_surrogates(line)
        {
            *mended = better;
            read = serde_json::from_str(mended);
        }
        let message = match read {
            Ok(record) if record.is_object() => return Some(record),
            Ok(_) => "not an object".to_owned(),
            Err(e) if e.is_eof() => "truncated".to_owned(),
            Err(e) => format!("not JSON: {e}"),
        };
        self.session.damage.push(ReadError::new(Some(self.count), message));
        None
    }

    /// Parses the timestamp of a record and extends the time range of the session.
    pub(super) fn moment(&mut self, text: &str) -> Option<Millis> {
        let at = time::millis(text)?;
        let info = &mut self.session.info;
        info.started = Some(info.started.map_or(at, |before| before.min(at)));
        info.updated = Some(info.updated.map_or(at, |before| before.max(at)));
        Some(at)
    }
}

/// Returns the keys of the object on the first line of a file, with their values if these are text. The line may be
/// truncated.
pub(super) fn first_keys(head: &[u8]) -> Vec<(String, String)> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or_default(),
    };
    let line = text.trim_start_matches('\u{feff}').trim_start().lines().next().unwrap_or_default();
    let mut keys = Vec::new();
    // If the line is truncated, the keys read so far are used.
    let _ = serde_json::Deserializer::from_str(line).deserialize_map(Keys(&mut keys));
    keys
}

struct Keys<'a>(&'a mut Vec<(String, String)>);

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Str<'de>>()? {
            self.0.push((key.own(), String::new()));
            let value = map.next_value::<Str<'de>>()?.own();
            self.0.last_mut().ok_or_else(|| A::Error::custom("no key"))?.1 = value;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_line_yields_its_complete_keys() {
        let head = br#"{"type":"meta","payload":{"a":[1,2"#;
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(first_keys(head), [pair("type", "meta"), pair("payload", "")]);
        assert_eq!(first_keys(b"\xef\xbb\xbf{\"a\":1}\n{\"b\":2}"), [pair("a", "1")]);
        assert_eq!(first_keys("{\"a\":\"ü".as_bytes().split_last().unwrap().1), [pair("a", "")]);
        assert!(first_keys(b"[1]").is_empty());
        assert!(first_keys(b"").is_empty());
    }
}
