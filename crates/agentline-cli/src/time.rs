//! Parses times that the user types, in the time zone of this machine.

use agentline::Problem;
use agentline_core::Millis;
use jiff::{
    Span, Timestamp, Zoned,
    civil::{Date, DateTime},
    tz::TimeZone,
};

/// Parses times in a time zone.
#[derive(Clone, Debug)]
pub(crate) struct TimeParser {
    zone: TimeZone,
}

impl TimeParser {
    /// Returns a parser for the time zone of this machine.
    pub(crate) fn local() -> Self {
        Self { zone: TimeZone::system() }
    }

    /// Returns the current offset from UTC, in seconds to the east.
    pub(crate) fn east_of_utc(&self) -> i32 {
        self.zone.to_offset(Timestamp::now()).seconds()
    }

    /// Returns the start of a typed time: a day, `today`, `yesterday`, a day with a time, or an age such as
    /// `7d`, `12h`, `2w`.
    pub(crate) fn since(&self, flag: &str, text: &str) -> Result<Millis, Problem> {
        self.bound(text, Timestamp::now().to_zoned(self.zone.clone()), false).ok_or_else(|| wrong(flag, text))
    }

    /// Returns the exclusive end of a typed time. For a day, that is the start of the next day.
    pub(crate) fn until(&self, flag: &str, text: &str) -> Result<Millis, Problem> {
        self.bound(text, Timestamp::now().to_zoned(self.zone.clone()), true).ok_or_else(|| wrong(flag, text))
    }

    fn bound(&self, text: &str, now: Zoned, is_end: bool) -> Option<Millis> {
        let text = text.trim();
        let day = match text {
            "now" => return millis(&now),
            "today" => Some(now.date()),
            "yesterday" => now.date().yesterday().ok(),
            // Parsing as a day would ignore the time of day.
            moment if moment.contains(':') => return self.moment(moment),
            other => other.parse::<Date>().ok(),
        };
        if let Some(day) = day {
            let day = if is_end { day.tomorrow().ok()? } else { day };
            return millis(&day.to_zoned(self.zone.clone()).ok()?);
        }
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let number: i64 = number.parse().ok().filter(|n| (0..100_000).contains(n))?;
        let ago = match unit {
            "m" => Span::new().try_minutes(number),
            "h" => Span::new().try_hours(number),
            "d" => Span::new().try_days(number),
            "w" => Span::new().try_weeks(number),
            _ => return None,
        };
        millis(&now.checked_sub(ago.ok()?).ok()?)
    }

    /// Parses a day with a time, in this time zone unless the text names another.
    fn moment(&self, text: &str) -> Option<Millis> {
        if let Ok(moment) = text.parse::<Timestamp>() {
            return Millis::try_from(moment.as_millisecond()).ok();
        }
        millis(&text.parse::<DateTime>().ok()?.to_zoned(self.zone.clone()).ok()?)
    }
}

fn millis(at: &Zoned) -> Option<Millis> {
    Millis::try_from(at.timestamp().as_millisecond()).ok()
}

fn wrong(flag: &str, text: &str) -> Problem {
    Problem::new(flag, format!("`{text}` is not a date, a time or an age")).hint(
        "use a date such as `2026-11-01`, `today` or `yesterday`, a time such as `2026-11-01 13:30`, or an age such as `7d`, `12h`, `2w`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_times_are_parsed() {
        let parser = TimeParser { zone: TimeZone::UTC };
        let zoned = |at: i64| Timestamp::from_millisecond(at).unwrap().to_zoned(TimeZone::UTC);
        let now = zoned(1_794_747_845_678);
        let bound = |text: &str, is_end: bool| {
            let at = parser.bound(text, now.clone(), is_end)?;
            Some(zoned(i64::try_from(at).unwrap()).strftime("%Y-%m-%dT%H:%M:%S").to_string())
        };
        assert_eq!(bound("2026-11-01", false).as_deref(), Some("2026-11-01T00:00:00"));
        assert_eq!(bound("2026-11-01", true).as_deref(), Some("2026-11-02T00:00:00"));
        assert_eq!(bound("today", false).as_deref(), Some("2026-11-15T00:00:00"));
        assert_eq!(bound("yesterday", true).as_deref(), Some("2026-11-15T00:00:00"));
        assert_eq!(bound("7d", false).as_deref(), Some("2026-11-08T13:04:05"));
        assert_eq!(bound("2026-11-01T10:00:00Z", false).as_deref(), Some("2026-11-01T10:00:00"));
        for moment in
            ["2026-11-01T10:30:00", "2026-11-01 10:30", "2026-11-01T12:30:00+02:00", " 2026-11-01 10:30 "]
        {
            assert_eq!(bound(moment, false).as_deref(), Some("2026-11-01T10:30:00"), "{moment}");
            assert_eq!(bound(moment, true).as_deref(), Some("2026-11-01T10:30:00"), "{moment}");
        }
        for bad in
            ["10:30", "2026-11-01 25:00", "", "soon", "-1d", "2026-13-01", "7y", "99999999999999999999d", "ä"]
        {
            assert_eq!(bound(bad, false), None, "{bad}");
        }
    }
}
