//! A slice of JSON text exactly as an agent wrote it, which shares its buffer.

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;
use std::{fmt, ops::Range, sync::Arc};

/// A slice of a shared text. The messages of a large session all point into the same buffer.
#[derive(Clone)]
pub struct RawJson {
    text: Arc<String>,
    range: Range<usize>,
}

impl RawJson {
    /// Takes ownership of a text without copying it.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        let text = Arc::new(text.into());
        Self { range: 0..text.len(), text }
    }

    /// Returns a part of this text.
    ///
    /// # Panics
    ///
    /// Panics if the range is not in this text or splits a character.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let range = self.range.start + range.start..self.range.start + range.end;
        assert!(
            range.end <= self.range.end && self.text.get(range.clone()).is_some(),
            "the range is outside the text"
        );
        Self { text: Arc::clone(&self.text), range }
    }

    /// Returns the part of this text that `slice` points to, or `None` if `slice` is from another text.
    #[must_use]
    pub fn part_of(&self, slice: &str) -> Option<Self> {
        let start = (slice.as_ptr() as usize).checked_sub(self.as_str().as_ptr() as usize)?;
        (start + slice.len() <= self.as_str().len()).then(|| self.part(start..start + slice.len()))
    }

    /// Returns the text as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text[self.range.clone()]
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::sample(self.as_str()))
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RawJson {}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.as_str()).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Returns the start of a text, short enough for a log.
#[must_use]
pub fn sample(text: &str) -> String {
    const MOST: usize = 200;
    let mut end = text.len().min(MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_found_by_slice_and_serialized_verbatim() {
        let line = RawJson::new("{\"a\": [1,  2], \"b\":\"\\u00e9\"}");
        let raw: std::collections::BTreeMap<&str, &RawValue> = serde_json::from_str(line.as_str()).unwrap();
        let part = line.part_of(raw["a"].get()).unwrap();
        assert_eq!(serde_json::to_string(&part).unwrap(), "[1,  2]");
        assert_eq!(line.part_of("elsewhere"), None);
        assert_eq!(part.part(1..2).as_str(), "1");
    }
}
