//! Compares two tapes of one scenario. Times and the order of lines of different channels differ from
//! recording to recording, so they are ignored.

use serde_json::Value;
use similar::TextDiff;
use std::collections::BTreeMap;

/// Returns the unified difference of two texts, or `None` if they are equal.
#[must_use]
pub fn unified_difference(name: &str, old: &str, new: &str) -> Option<String> {
    (old != new).then(|| {
        let difference = TextDiff::from_lines(old, new);
        let (before, after) = (format!("{name} (stored)"), format!("{name} (new)"));
        difference.unified_diff().context_radius(2).header(&before, &after).to_string()
    })
}

/// Returns the lines of a tape by channel, without their times and without ticks of the clock.
pub(crate) fn by_channel(tape: &str) -> String {
    let mut channels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in tape.lines() {
        let Ok(mut line) = serde_json::from_str::<Value>(line) else { continue };
        // The time that the preparation took.
        if let Some(Value::Object(clocks)) = line.pointer_mut("/order/clocks") {
            clocks.remove("spent");
        }
        let Value::Object(mut line) = line else { continue };
        line.remove("at");
        let channel = line.get("ch").and_then(Value::as_str).unwrap_or("header").to_owned();
        if channel != "clock" {
            channels.entry(channel).or_default().push(Value::Object(line).to_string());
        }
    }
    channels.into_values().flatten().map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_in_content_counts() {
        let tape = |at: u64, text: &str| {
            format!(
                "{{\"schema\":\"s\"}}\n{{\"at\":{at},\"ch\":\"err\",\"text\":\"e\"}}\n{{\"at\":1,\"ch\":\"clock\"}}\n\
                 {{\"at\":{at},\"ch\":\"out\",\"text\":\"{text}\"}}\n"
            )
        };
        assert_eq!(by_channel(&tape(1, "a")), by_channel(&tape(2, "a")));
        let difference =
            unified_difference("t", &by_channel(&tape(1, "a")), &by_channel(&tape(1, "b"))).expect("one");
        assert!(difference.contains("-{\"ch\":\"out\",\"text\":\"a\"}"), "{difference}");
        assert!(difference.contains("+{\"ch\":\"out\",\"text\":\"b\"}"), "{difference}");
    }
}
