//! The time in Gemini's format: `2026-11-15T04:28:24.844Z`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in UTC.
pub(super) fn timestamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Formats milliseconds since 1970.
pub(super) fn format_millis(millis: u64) -> String {
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (mut days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    while days >= days_in_year(year) {
        days -= days_in_year(year);
        year += 1;
    }
    let mut month = 0;
    while days >= days_in_month(year, month) {
        days -= days_in_month(year, month);
        month += 1;
    }
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let (month, day) = (month + 1, days + 1);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

/// Months start at 0 here.
fn days_in_month(year: u64, month: usize) -> u64 {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if month == 1 && is_leap(year) { 29 } else { DAYS[month] }
}

#[cfg(test)]
mod tests {
    use super::format_millis;

    #[test]
    fn dates_are_formatted_correctly() {
        assert_eq!(format_millis(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_millis(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(format_millis(1_735_689_599_999), "2024-12-31T23:59:59.999Z");
        assert_eq!(format_millis(1_794_716_904_844), "2026-11-15T04:28:24.844Z");
    }
}
