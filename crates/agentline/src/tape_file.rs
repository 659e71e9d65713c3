//! Writes the tape of a run while it goes on.

use agentline_core::{Input, Millis, TapeHeader, Veil, tape_frame, tape_line};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

/// A tape that is being recorded. Secrets are hidden on it.
pub(crate) struct TapeFile {
    out: BufWriter<File>,
    veil: Veil,
    failed: bool,
}

impl TapeFile {
    pub(crate) fn create(path: &Path, header: &TapeHeader, veil: Veil) -> io::Result<Self> {
        let mut tape =
            Self { out: BufWriter::with_capacity(64 << 10, File::create(path)?), veil, failed: false };
        tape.line(&header.line())?;
        tape.out.flush()?;
        Ok(tape)
    }

    pub(crate) fn input(&mut self, input: &Input<'_>) {
        let line = tape_line(input);
        self.failed |= self.line(&line).is_err();
    }

    pub(crate) fn frame(&mut self, at: Millis, frame: &str) {
        let line = tape_frame(at, frame);
        self.failed |= self.line(&line).is_err();
    }

    /// Puts everything on the disk; false when something could not be written.
    pub(crate) fn finish(&mut self) -> bool {
        self.failed |= self.out.flush().is_err();
        !self.failed
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.out.write_all(self.veil.text(line).as_bytes())?;
        self.out.write_all(b"\n")
    }
}
