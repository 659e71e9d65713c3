//! Writes the tape of a run while the run is in progress.

use crate::fs::disk_fs::canonicalize;
use crate::fs::private_dir;
use agentline_core::{
    Input, LineRedactor, Millis, Redactor, TapeHeader, tape_client_message, tape_frame, tape_line,
};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

/// A tape that is being recorded, with secrets redacted.
pub(crate) struct TapeFile {
    out: BufWriter<File>,
    redactor: LineRedactor,
    failed: bool,
    path: PathBuf,
}

impl TapeFile {
    pub(crate) fn create(path: &Path, header: &TapeHeader, redactor: Redactor) -> io::Result<Self> {
        let out = BufWriter::with_capacity(64 << 10, private_dir::create_file(path)?);
        let mut tape =
            Self { out, redactor: LineRedactor::new(redactor), failed: false, path: path.to_owned() };
        tape.line(&header.line());
        tape.out.flush()?;
        Ok(tape)
    }

    /// Replaces the redactor for all further lines.
    pub(crate) fn set_redactor(&mut self, redactor: Redactor) {
        let (out, failed) = (&mut self.out, &mut self.failed);
        self.redactor.finish(|line| *failed |= writeln!(out, "{line}").is_err());
        self.redactor = LineRedactor::new(redactor);
    }

    pub(crate) fn input(&mut self, input: &Input<'_>) {
        self.line(&tape_line(input));
    }

    pub(crate) fn frame(&mut self, at: Millis, frame: &str) {
        self.line(&tape_frame(at, frame));
    }

    pub(crate) fn client_message(&mut self, at: Millis, message: &str) {
        self.line(&tape_client_message(at, message));
    }

    /// Writes everything to disk and returns whether all writes succeeded.
    ///
    /// Secrets in `learned`, which were recognized only when several lines were joined, are removed from the lines that
    /// contain parts of them.
    pub(crate) fn finish(&mut self, learned: &[String]) -> bool {
        let (out, failed) = (&mut self.out, &mut self.failed);
        self.redactor.finish(|line| *failed |= writeln!(out, "{line}").is_err());
        self.failed |= self.out.flush().is_err();
        if !learned.is_empty() {
            self.failed |= redact_again(&self.path, learned).is_err();
        }
        !self.failed
    }

    fn line(&mut self, line: &str) {
        let (out, failed) = (&mut self.out, &mut self.failed);
        self.redactor.push(line, |line| *failed |= writeln!(out, "{line}").is_err());
    }
}

/// Rewrites a tape without these secrets. Fails if the tape is not a regular file: a pipe has already been read.
fn redact_again(path: &Path, secrets: &[String]) -> io::Result<()> {
    let path = canonicalize(path)?;
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("the tape is not a regular file, so it cannot be redacted"));
    }
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    let mut out = BufWriter::new(tempfile::NamedTempFile::new_in(parent)?);
    let (mut redactor, mut written) = (LineRedactor::new(Redactor::new(secrets)), Ok(()));
    let mut write = |line: &str| {
        if written.is_ok() {
            written = writeln!(out, "{line}");
        }
    };
    for line in BufReader::new(File::open(&path)?).lines() {
        redactor.push(&line?, &mut write);
    }
    redactor.finish(&mut write);
    written?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.persist(&path)?;
    Ok(())
}
