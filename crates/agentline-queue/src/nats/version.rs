//! The versions of the server that are supported.

use crate::QueueError;

/// The oldest supported server.
const OLDEST: (u32, u32) = (2, 10);

/// Refuses a server that is too old.
pub(super) fn check_version(version: &str) -> Result<(), QueueError> {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    Err(QueueError::TooOld {
        server: "NATS server".into(),
        found: version.to_owned(),
        needed: format!("{}.{}", OLDEST.0, OLDEST.1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused() {
        for version in ["2.10.0", "2.10.26", "2.15.1", "2.12.0-beta.1", "3.0.0"] {
            check_version(version).expect("a supported version");
        }
        let error = check_version("2.9.10").expect_err("an old version");
        assert_eq!(error.to_string(), "NATS server 2.9.10 is too old; 2.10 or newer is needed");
    }
}
