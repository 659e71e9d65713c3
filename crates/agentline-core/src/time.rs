//! Parses and formats points in time, as seconds or milliseconds since 1970. The core has no clock.

use crate::Millis;

/// Parses RFC 3339, such as `2026-11-15T13:00:00Z` or `2026-11-15 14:00:00.5+01:00`, as seconds since 1970.
pub(crate) fn rfc3339(text: &str) -> Option<f64> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(zone);
    let [hour, minute, second] = <[&str; 3]>::try_from(time.split(':').collect::<Vec<_>>()).ok()?;
    let second: f64 =
        second.bytes().all(|b| b.is_ascii_digit() || b == b'.').then(|| second.parse().ok())??;
    let (hour, minute) = (two_digits(hour)?, two_digits(minute)?);
    if hour > 23 || minute > 59 || second >= 61.0 {
        return None;
    }
    let offset = match zone {
        "Z" | "z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let minutes = two_digits(hours)? * 60 + two_digits(minutes)?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    let minutes = days(date)? * 24 * 60 + hour * 60 + minute - offset;
    #[expect(clippy::cast_precision_loss, reason = "a date of four digits is far below what a double holds")]
    let whole = (minutes * 60) as f64;
    Some(whole + second)
}

/// Parses RFC 3339 as milliseconds since 1970.
pub(crate) fn millis(text: &str) -> Option<Millis> {
    let millis = (rfc3339(text)? * 1000.0).round();
    (millis >= 0.0).then_some(millis as Millis)
}

/// Parses a minute in UTC, such as `2026-11-15T13-05`, as milliseconds since 1970.
pub(crate) fn minute(text: &str) -> Option<Millis> {
    let (date, time) = text.split_once('T')?;
    let (hour, minute) = time.split_once('-')?;
    let minutes = days(date)? * 24 * 60 + two_digits(hour)? * 60 + two_digits(minute)?;
    Millis::try_from(minutes * 60_000).ok()
}

/// Formats the minute of a time in milliseconds since 1970, in UTC, as [`minute`] parses it.
pub(crate) fn as_minute(at: Millis) -> String {
    let minutes = at / 60_000;
    let day = i64::try_from(minutes / (24 * 60)).unwrap_or(i64::MAX >> 1);
    format!("{}T{:02}-{:02}", date(day), minutes / 60 % 24, minutes % 60)
}

/// Formats a number of days since 1970 as a date, such as `2026-11-15`.
pub(crate) fn date(day: i64) -> String {
    // Years are counted from March of the year 0, so that a leap day is the last day of its year.
    let days = day + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Returns the number of days from 1970 to a date of the form `2026-11-15`.
fn days(date: &str) -> Option<i64> {
    let [year, month, day] = <[&str; 3]>::try_from(date.split('-').collect::<Vec<_>>()).ok()?;
    if year.len() != 4 {
        return None;
    }
    let (year, month, day) = (digits(year)?, two_digits(month)?, two_digits(day)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1..=length).contains(&day) {
        return None;
    }
    let before = year - 1;
    let of_years = 365 * before + before / 4 - before / 100 + before / 400;
    let of_months: i64 = lengths.iter().take(usize::try_from(month).ok()? - 1).sum();
    // There are 719,162 days before 1970.
    Some(of_years + of_months + day - 1 - 719_162)
}

fn two_digits(text: &str) -> Option<i64> {
    if text.len() == 2 { digits(text) } else { None }
}

fn digits(text: &str) -> Option<i64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_with_their_zones() {
        assert_eq!(rfc3339("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(rfc3339("2026-11-15T13:16:49Z"), Some(1_794_748_609.0));
        assert_eq!(rfc3339("2026-11-15 14:16:49.25+01:00"), Some(1_794_748_609.25));
        assert_eq!(rfc3339("2024-02-29t23:59:59-00:30"), Some(1_709_252_999.0));
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
            assert_eq!(days(&date(day)), Some(day));
        }
    }

    #[test]
    fn time_is_formatted_with_milliseconds() {
        assert_eq!(millis("2026-11-15T04:31:09.025Z"), Some(1_794_717_069_025));
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
