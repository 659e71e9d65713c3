//! Formats events for `text/event-stream`.

use bytes::Bytes;

/// Formats an event. Its data is JSON, which has no line breaks outside of strings and only escaped ones in them.
pub(crate) fn frame(id: u64, event: &str, data: &str) -> Bytes {
    let mut text = String::with_capacity(data.len() + event.len() + 40);
    text.push_str("id: ");
    text.push_str(&id.to_string());
    text.push_str("\nevent: ");
    text.extend(event.chars().filter(|c| !c.is_control()));
    text.push_str("\ndata: ");
    text.push_str(data);
    text.push_str("\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_name_cannot_add_a_line() {
        assert_eq!(frame(7, "a\nid: 9", "{}"), "id: 7\nevent: aid: 9\ndata: {}\n\n");
    }
}
