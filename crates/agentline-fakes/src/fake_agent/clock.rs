//! The time in Gemini's format: `2026-11-15T04:28:24.844Z`.

use jiff::Timestamp;

/// Returns the current time in UTC.
pub(super) fn timestamp() -> String {
    written(Timestamp::now())
}

fn written(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_formatted_correctly() {
        let written = |millis| written(Timestamp::from_millisecond(millis).unwrap());
        assert_eq!(written(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(written(1_735_689_599_999), "2024-12-31T23:59:59.999Z");
        assert_eq!(written(1_794_716_904_844), "2026-11-15T04:28:24.844Z");
    }
}
