//! Bytes in a JSON script: a string if they are text, a list of numbers otherwise.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Numbers(Vec<u8>),
}

pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => bytes.serialize(serializer),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Ok(match Form::deserialize(deserializer)? {
        Form::Text(text) => text.into_bytes(),
        Form::Numbers(bytes) => bytes,
    })
}
