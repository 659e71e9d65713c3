//! Another date for a process: the library of `faketime`, of the system or from PyPI.

use super::pip::PipPackage;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

/// The library, built for x86-64.
const PACKAGE: PipPackage = PipPackage {
    dir: "faketime",
    name: "libfaketime",
    version: "3.0.1",
    digests: &["5eed7c17f3d4ba0f6f828de4975f69a622b06b1e792674e6c1b069c0689fab79"],
    file: "libfaketime/vendor/libfaketime/src/libfaketime.so.1",
};

/// The library, and a file with the difference between the date of a process and the real one.
#[derive(Clone, Debug)]
pub struct FakeDate {
    library: PathBuf,
    file: PathBuf,
}

impl FakeDate {
    /// Writes the file into a directory; `None` if the library is not available and tests may skip it.
    ///
    /// # Panics
    /// Panics if CI=true and the library is not available.
    #[must_use]
    pub fn new(dir: &Path) -> Option<Self> {
        let library = match library() {
            Ok(library) => library,
            Err(error) => {
                let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
                assert!(!is_ci, "there is no faketime, and CI tests with it: {error}");
                let _ = writeln!(std::io::stderr(), "skipped: the date does not change: {error}");
                return None;
            }
        };
        let date = Self { library, file: dir.join("date") };
        date.set("+0");
        Some(date)
    }

    /// Lets the processes of a command have this date. Their other clocks are real.
    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", &self.file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Changes the date: a difference in seconds, with its sign.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn set(&self, difference: &str) {
        let new = self.file.with_extension("new");
        let changed = fs::write(&new, difference).and_then(|()| fs::rename(&new, &self.file));
        changed.expect("another date");
    }
}

fn library() -> Result<PathBuf, String> {
    let machine = std::env::consts::ARCH;
    let of_system = format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1");
    if Path::new(&of_system).exists() {
        return Ok(of_system.into());
    }
    if machine == "x86_64" { PACKAGE.install() } else { Err(format!("{of_system} does not exist")) }
}
