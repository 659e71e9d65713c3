//! Recognizes runs that failed because the machine had no memory or no disk space left, which says nothing about the
//! agent.

use agentline::FailureKind;
use std::io::{self, Write};
use std::path::Path;

/// The number of bytes that must fit on a disk that is not full.
const LEAST_SPACE: usize = 256 << 10;

/// The number of processes that the system has killed for lack of memory, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OomKills(Option<u64>);

impl OomKills {
    /// Reads the current number.
    pub(super) fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/vmstat").unwrap_or_default())
    }

    fn parse(counters: &str) -> Self {
        let kills = counters.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Self(kills.and_then(|kills| kills.trim().parse().ok()))
    }

    /// Returns whether a run that began at this number ended in a way that can be a kill for lack of memory, while the
    /// system killed a process for it.
    pub(super) fn explain(self, kind: Option<FailureKind>, now: Self) -> bool {
        matches!(kind, Some(FailureKind::Crashed | FailureKind::NoResult))
            && self.0.zip(now.0).is_some_and(|(before, now)| now > before)
    }
}

/// Returns whether an error means that a disk is full.
pub(super) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns whether the disk of a directory is full: a small file does not fit.
pub(super) fn is_full(dir: &Path) -> bool {
    tempfile::tempfile_in(dir).and_then(fill).is_err_and(|error| is_no_space(&error))
}

fn fill(mut file: impl Write) -> io::Result<()> {
    file.write_all(&vec![1; LEAST_SPACE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kill_for_lack_of_memory_explains_a_crash_only() {
        let (before, after) = (OomKills::parse("nr_x 1\noom_kill 3\n"), OomKills::parse("oom_kill 4\n"));
        let unknown = OomKills::parse("nr_x 1\n");
        for (kind, now, is_explained) in [
            (Some(FailureKind::Crashed), after, true),
            (Some(FailureKind::NoResult), after, true),
            (Some(FailureKind::Crashed), before, false),
            (Some(FailureKind::Crashed), unknown, false),
            (Some(FailureKind::Loop), after, false),
            (None, after, false),
        ] {
            assert_eq!(before.explain(kind, now), is_explained, "{kind:?} {now:?}");
        }
        assert!(!unknown.explain(Some(FailureKind::Crashed), after));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn full_disk_is_recognized() {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("the device");
        assert!(fill(full).is_err_and(|error| is_no_space(&error)));
        assert!(!is_full(&std::env::temp_dir()));
        assert!(!is_full(Path::new("/nowhere")), "a missing directory is not full");
        assert_ne!(OomKills::now(), OomKills(None));
    }
}
