//! Formats times in a time zone.

use agentline_core::Millis;
use jiff::{Timestamp, tz::TimeZone};

/// Formats times in a time zone.
#[derive(Clone, Debug)]
pub struct TimeFormat {
    zone: TimeZone,
}

impl TimeFormat {
    /// Uses the time zone of this machine.
    #[must_use]
    pub fn local() -> Self {
        Self { zone: TimeZone::system() }
    }

    /// Uses UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC }
    }

    /// Formats a time like `2026-11-15 13:04`.
    #[must_use]
    pub fn minute(&self, at: Millis) -> String {
        self.format(at, "%Y-%m-%d %H:%M")
    }

    /// Formats a time like `11-15 13:04`.
    #[must_use]
    pub fn short_minute(&self, at: Millis) -> String {
        self.format(at, "%m-%d %H:%M")
    }

    /// Formats a time like `13:04:05`.
    #[must_use]
    pub fn time(&self, at: Millis) -> String {
        self.format(at, "%H:%M:%S")
    }

    /// Formats a time like `2026-11-15T13:04:05+01:00`, for programs.
    #[must_use]
    pub fn exact(&self, at: Millis) -> String {
        self.format(at, "%Y-%m-%dT%H:%M:%S%:z")
    }

    /// Formats a time, or returns the number if it is outside of the calendar.
    fn format(&self, at: Millis, form: &str) -> String {
        let known = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
        known.map_or_else(
            || at.to_string(),
            |known| known.to_zoned(self.zone.clone()).strftime(form).to_string(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::TimeFormat;

    #[test]
    fn times_are_formatted() {
        let (clock, at) = (TimeFormat::utc(), 1_794_747_845_678);
        assert_eq!(clock.minute(at), "2026-11-15 13:04");
        assert_eq!(clock.short_minute(at), "11-15 13:04");
        assert_eq!(clock.time(at), "13:04:05");
        assert_eq!(clock.exact(at), "2026-11-15T13:04:05+00:00");
        assert_eq!(clock.minute(u64::MAX), u64::MAX.to_string());
    }
}
