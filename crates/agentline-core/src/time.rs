//! Parses and formats points in time, as seconds or milliseconds since 1970. The core has no clock.

use crate::Millis;
use jiff::{
    SignedDuration,
    civil::{DateTime, datetime},
    fmt::temporal::DateTimeParser,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EPOCH: DateTime = datetime(1970, 1, 1, 0, 0, 0, 0);
/// Where the seconds begin in RFC 3339. The parser also accepts forms of ISO 8601 without them.
const SECONDS: usize = "2026-11-15T13:00".len();
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// The last second of the year 9999, the latest accepted point in time.
pub(crate) const LAST_SECOND: f64 = 253_402_300_799.0;

/// Returns the time at this many seconds since 1970, if it is accepted.
pub(crate) fn from_seconds(seconds: f64) -> Option<SystemTime> {
    let since = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= LAST_SECOND)?;
    UNIX_EPOCH.checked_add(since)
}

/// Returns the seconds since 1970, negative for an earlier time.
pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .map_or_else(|before| -before.duration().as_secs_f64(), |since| since.as_secs_f64())
}

/// Returns whether a time is between the years 1970 and 9999.
pub(crate) fn is_accepted(time: SystemTime) -> bool {
    (0.0..=LAST_SECOND).contains(&seconds(time))
}

/// The JSON form of an optional time: seconds since 1970, with fractions.
pub(crate) mod epoch_seconds {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(seconds).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        let read = |seconds| {
            from_seconds(seconds).ok_or_else(|| de::Error::custom("not a time between 1970 and 9999"))
        };
        Option::<f64>::deserialize(deserializer)?.map(read).transpose()
    }
}

/// Parses RFC 3339, such as `2026-11-15T13:00:00Z` or `2026-11-15 14:00:00.5+01:00`, as seconds since 1970.
pub(crate) fn rfc3339(text: &str) -> Option<f64> {
    let pieces = DateTimeParser::new().parse_pieces(text).ok()?;
    let has_seconds = text.as_bytes().get(SECONDS) == Some(&b':');
    let local = pieces.date().to_datetime(pieces.time().filter(|_| has_seconds)?);
    // A `Timestamp` would not cover the last day of the year 9999.
    let offset = SignedDuration::from_secs(pieces.to_numeric_offset()?.seconds().into());
    Some((local.duration_since(EPOCH) - offset).as_secs_f64())
}

/// Parses RFC 3339 as milliseconds since 1970.
pub(crate) fn millis(text: &str) -> Option<Millis> {
    let millis = (rfc3339(text)? * 1000.0).round();
    (millis >= 0.0).then_some(millis as Millis)
}

/// Parses a minute in UTC, such as `2026-11-15T13-05`, as milliseconds since 1970.
pub(crate) fn minute(text: &str) -> Option<Millis> {
    let (date, time) = text.split_once('T')?;
    millis(&format!("{date}T{}:00Z", time.replace('-', ":")))
}

/// Formats the minute of a time in milliseconds since 1970, in UTC, as [`minute`] parses it.
pub(crate) fn as_minute(at: Millis) -> String {
    let since = SignedDuration::from_millis(i64::try_from(at).unwrap_or(i64::MAX));
    EPOCH.saturating_add(since).strftime("%Y-%m-%dT%H-%M").to_string()
}

/// Formats a time in milliseconds since 1970 as RFC 3339 in UTC, as [`millis`] parses it.
pub(crate) fn rfc3339_of(at: Millis) -> String {
    let since = SignedDuration::from_millis(i64::try_from(at).unwrap_or(i64::MAX));
    EPOCH.saturating_add(since).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Formats a number of days since 1970 as a date, such as `2026-11-15`. Days after the year 9999 are formatted as the
/// last day of that year.
pub(crate) fn date(day: i64) -> String {
    let since = SignedDuration::from_secs(day.saturating_mul(SECONDS_PER_DAY));
    EPOCH.date().saturating_add(since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_as_seconds() {
        for second in [0.0, 0.5, 1_893_456_000.25, LAST_SECOND] {
            assert_eq!(from_seconds(second).map(seconds), Some(second));
        }
        for wrong in [-1.0, LAST_SECOND + 1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(from_seconds(wrong), None, "{wrong}");
        }
        assert!(!is_accepted(UNIX_EPOCH - Duration::from_secs(1)));
    }

    #[test]
    fn times_are_parsed_with_their_zones() {
        assert_eq!(rfc3339("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(rfc3339("2026-11-15T13:16:49Z"), Some(1_794_748_609.0));
        assert_eq!(rfc3339("2026-11-15 14:16:49.25+01:00"), Some(1_794_748_609.25));
        assert_eq!(rfc3339("2024-02-29t23:59:59-00:30"), Some(1_709_252_999.0));
        assert_eq!(rfc3339("9999-12-31T23:59:59Z"), Some(253_402_300_799.0));
        for wrong in ["", "2026-11-15", "2026-11-15T13:16Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z"] {
            assert_eq!(rfc3339(wrong), None, "{wrong}");
        }
        for wrong in
            ["2026-11-15T13:16:49", "2026-11-15T24:00:00Z", "é026-11-15T13:16:49Z", "2026-11-15T1:6:4Z"]
        {
            assert_eq!(rfc3339(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn days_round_trip() {
        assert_eq!((date(0), date(-1)), ("1970-01-01".into(), "1969-12-31".into()));
        assert_eq!((date(20_772), date(11_016)), ("2026-11-15".into(), "2000-02-29".into()));
        for day in (0..80_000).step_by(13) {
            assert_eq!(millis(&format!("{}T00:00:00Z", date(day))), u64::try_from(day * 86_400_000).ok());
        }
        assert_eq!(date(i64::MAX), "9999-12-31");
    }

    #[test]
    fn time_is_formatted_with_milliseconds() {
        assert_eq!(millis("2026-11-15T04:31:09.025Z"), Some(1_794_717_069_025));
        assert_eq!(rfc3339_of(1_794_717_069_025), "2026-11-15T04:31:09.025Z");
        assert_eq!(rfc3339_of(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(millis("1969-12-31T23:59:59Z"), None);
        assert_eq!(millis("yesterday"), None);
    }

    #[test]
    fn minutes_are_parsed_from_file_names() {
        assert_eq!(minute("2026-11-15T13-16"), Some(1_794_748_560_000));
        assert_eq!(minute("1794748560000"), None);
        assert_eq!(minute("2026-11-15T13-1"), None);
        assert_eq!(as_minute(1_794_748_560_000 + 59_999), "2026-11-15T13-16");
        for at in (0..40_000_000).step_by(7_919).map(|minutes| minutes * 60_000) {
            assert_eq!(minute(&as_minute(at)), Some(at));
        }
    }
}
