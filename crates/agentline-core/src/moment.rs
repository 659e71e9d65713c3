//! Moments in time as people and files write them, as times since 1970. The core has no clock; it only reads.

use crate::Millis;

/// Reads a minute as `2026-11-15T13-05`, in UTC, as milliseconds since 1970.
pub(crate) fn minute(text: &str) -> Option<Millis> {
    let (date, time) = text.split_once('T')?;
    let (hour, minute) = time.split_once('-')?;
    let minutes = days(date)? * 24 * 60 + two_digits(hour)? * 60 + two_digits(minute)?;
    Millis::try_from(minutes * 60_000).ok()
}

/// Days from 1970 to a date of the form `2026-11-15`.
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
    // 719,162 days lie before 1970 began.
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
    fn minutes_are_read_as_files_are_named() {
        assert_eq!(minute("2026-11-15T13-16"), Some(1_794_748_560_000));
        assert_eq!(minute("1794748560000"), None);
        assert_eq!(minute("2026-11-15T13-1"), None);
    }
}
