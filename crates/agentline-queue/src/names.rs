//! The names of experiments, jobs, routes and records.

use crate::QueueError;

/// The length of the longest name.
const LONGEST: usize = 200;

/// Checks the name of a record: parts of letters, digits, `-` and `_`, with `.` between them.
///
/// # Errors
/// Fails with [`QueueError::InvalidName`].
pub fn check_name(name: &str) -> Result<(), QueueError> {
    if name.len() <= LONGEST && name.split('.').all(is_part) {
        return Ok(());
    }
    Err(QueueError::InvalidName(name.to_owned()))
}

/// Checks the name of an experiment, a job, a route or a worker, which has one part: letters, digits, `-` and `_`. It
/// can be a part of a path.
///
/// # Errors
/// Fails with [`QueueError::InvalidName`].
pub fn check_part(name: &str) -> Result<(), QueueError> {
    if name.len() <= LONGEST && is_part(name) {
        return Ok(());
    }
    Err(QueueError::InvalidName(name.to_owned()))
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
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
            check_part(name).expect_err("no name");
        }
        check_part("A-1_b").expect("a name");
        check_part("experiment.e1").expect_err("two parts");
    }
}
