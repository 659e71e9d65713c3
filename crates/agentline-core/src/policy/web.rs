//! Finds the hosts that a web tool would contact.

use crate::PermissionRequest;
use serde_json::Value;

/// Returns the hosts of every URL in the arguments, or `None` if one of them is unclear.
pub(super) fn hosts(ask: &PermissionRequest) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    let input: Value = serde_json::from_str(ask.input.as_deref()?.get()).ok()?;
    collect(input, &mut texts);
    let mut hosts = Vec::new();
    for text in &texts {
        // Only ASCII lowercasing keeps byte offsets.
        let text = text.to_ascii_lowercase();
        for (at, sign) in text.match_indices("://") {
            hosts.push(host(&text[at + sign.len()..])?);
        }
    }
    (!hosts.is_empty()).then_some(hosts)
}

fn collect(value: Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(values) => values.into_iter().for_each(|v| collect(v, texts)),
        Value::Object(map) => map.into_iter().for_each(|(_, v)| collect(v, texts)),
        _ => {}
    }
}

/// Returns the host at the start of the text after `://`, or `None` if URL parsers could disagree about it.
fn host(text: &str) -> Option<String> {
    let ends = |c: char| c.is_whitespace() || "/?#\"'<>,)]}".contains(c);
    let authority = text.split(ends).next().unwrap_or_default();
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    let host = host.trim_end_matches('.');
    let clear = !host.is_empty()
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        && port.chars().all(|c| c.is_ascii_digit());
    clear.then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn found(json: &str) -> Option<Vec<String>> {
        let input = RawValue::from_string(json.to_owned()).unwrap();
        hosts(&PermissionRequest { input: Some(input), ..PermissionRequest::default() })
    }

    #[test]
    fn hosts_are_found_anywhere_in_the_input() {
        assert_eq!(found(r#"{"url":"https://Docs.RS:443/a"}"#).unwrap(), ["docs.rs"]);
        assert_eq!(found(r#"{"p":["see http://a.b, or (https://c.d.)"]}"#).unwrap(), ["a.b", "c.d"]);
        for unclear in [
            r#"{"url":"docs.rs"}"#,
            r#"{"url":"https://docs.rs@evil.test/"}"#,
            r#"{"url":"https://docs.rs\\@evil.test/"}"#,
            r#"{"url":"https://docs.rs%2eevil.test/"}"#,
            r#"{"url":"https://döcs.rs/"}"#,
            r#"{"url":"https:///x"}"#,
            "{}",
        ] {
            assert_eq!(found(unclear), None, "{unclear}");
        }
    }
}
