//! The names of experiments, jobs, routes and records.

use crate::QueueError;

/// The length of the longest name.
const LONGEST: usize = 200;

/// Checks the name of an experiment, a job or a route: letters, digits, `-` and `_`. The name of a record may also
/// contain `.`, but not at its ends, and not twice in a row.
///
/// # Errors
/// Fails with [`QueueError::InvalidName`].
pub fn check_name(name: &str) -> Result<(), QueueError> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if name.len() <= LONGEST && name.split('.').all(is_part) {
        return Ok(());
    }
    Err(QueueError::InvalidName(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_part_of_a_subject() {
        for name in ["a", "A-1_b", "experiment.e1.state"] {
            check_name(name).expect("a name");
        }
        for name in ["", ".", "a.", ".a", "a..b", "a b", "a*", "a>", "ä", "a/b", &"a".repeat(201)] {
            check_name(name).expect_err("no name");
        }
    }
}
