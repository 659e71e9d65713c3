//! Determines the kind of a session record without parsing its content.

use crate::wire::{List, Str};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, value::RawValue};
use std::fmt;

/// The keys of a record that determine how it is processed.
#[derive(Debug, Default)]
pub(super) struct RecordKeys<'a> {
    pub(super) is_object: bool,
    pub(super) id: Option<Str<'a>>,
    pub(super) kind: Option<Str<'a>>,
    pub(super) rewind_to: Option<Str<'a>>,
    pub(super) set: Option<Box<Self>>,
    pub(super) session_id: Option<Str<'a>>,
    pub(super) project_hash: Option<Str<'a>>,
    pub(super) started: Option<Str<'a>>,
    pub(super) updated: Option<Str<'a>>,
    pub(super) summary: Option<Str<'a>>,
    pub(super) directories: Option<List<Str<'a>>>,
    pub(super) messages: Option<Vec<&'a RawValue>>,
}

/// Reads the keys of a record. If there is an error, the keys before it are returned as well.
pub(super) fn skim(text: &str) -> (RecordKeys<'_>, Option<Error>) {
    let mut keys = RecordKeys::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Keys(&mut keys).deserialize(&mut reader).and_then(|()| reader.end());
    (keys, read.err())
}

/// Returns the id of a complete message.
pub(super) fn id_of(message: &RawValue) -> Option<String> {
    let mut id = None;
    // The id comes first, so the rest is not parsed.
    let _ = FindId(&mut id).deserialize(&mut serde_json::Deserializer::from_str(message.get()));
    id
}

/// Returns the complete record at the end of a line that begins with an incomplete one.
pub(super) fn last_record(line: &str) -> Option<&str> {
    let mut broken = 0;
    let mut at = 1;
    while broken < MOST_BROKEN {
        let from = at + line.get(at..)?.find('{')?;
        at = from + 1;
        let rest = &line[from..];
        // An object after one of these characters is part of the incomplete record.
        let is_due = line[..from].trim_end().ends_with(['[', ',', ':']);
        if !is_due && HEADS.iter().any(|head| rest.starts_with(head)) {
            match skim(rest) {
                (_, None) => return Some(rest),
                (_, Some(error)) => broken += u32::from(error.is_eof()),
            }
        }
    }
    None
}

/// The beginnings of records as the CLI writes them.
const HEADS: [&str; 4] = ["{\"id\":\"", "{\"$set\":{", "{\"sessionId\":\"", "{\"$rewindTo\":\""];

/// The maximum number of incomplete records in a line before the search ends.
const MOST_BROKEN: u32 = 8;

struct Keys<'s, 'a>(&'s mut RecordKeys<'a>);

impl<'a> DeserializeSeed<'a> for Keys<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Keys<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let keys = self.0;
        keys.is_object = true;
        while let Some(key) = map.next_key::<Str<'a>>()? {
            match &*key {
                "id" => keys.id = map.next_value()?,
                "type" => keys.kind = map.next_value()?,
                "$rewindTo" => keys.rewind_to = map.next_value()?,
                "$set" => {
                    let inner = keys.set.insert(Box::default());
                    map.next_value_seed(Keys(inner))?;
                }
                "sessionId" => keys.session_id = map.next_value()?,
                "projectHash" => keys.project_hash = map.next_value()?,
                "startTime" => keys.started = map.next_value()?,
                "lastUpdated" => keys.updated = map.next_value()?,
                "summary" => keys.summary = map.next_value()?,
                "directories" => keys.directories = map.next_value()?,
                "messages" => map.next_value_seed(Messages(keys.messages.insert(Vec::new())))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Messages<'s, 'a>(&'s mut Vec<&'a RawValue>);

impl<'a> DeserializeSeed<'a> for Messages<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Messages<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(message) = seq.next_element()? {
            self.0.push(message);
        }
        Ok(())
    }
}

struct FindId<'s>(&'s mut Option<String>);

impl<'a> DeserializeSeed<'a> for FindId<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for FindId<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Str<'a>>()? {
            if &*key == "id" {
                *self.0 = Some(map.next_value::<Str<'a>>()?.own()).filter(|id| !id.is_empty());
                return Err(A::Error::custom("enough was read"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}
