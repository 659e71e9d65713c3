//! Writes the tape of a run while it goes on.

use crate::private_dir;
use agentline_core::{Input, LineVeil, Millis, TapeHeader, Veil, tape_frame, tape_line};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

/// A tape that is being recorded. Secrets are hidden on it.
pub(crate) struct TapeFile {
    out: BufWriter<File>,
    veil: LineVeil,
    failed: bool,
}

impl TapeFile {
    pub(crate) fn create(path: &Path, header: &TapeHeader, veil: Veil) -> io::Result<Self> {
        let out = BufWriter::with_capacity(64 << 10, private_dir::create_file(path)?);
        let mut tape = Self { out, veil: LineVeil::new(veil), failed: false };
        tape.line(&header.line());
        tape.out.flush()?;
        Ok(tape)
    }

    /// Hides this from now on.
    pub(crate) fn hide(&mut self, veil: Veil) {
        let (out, failed) = (&mut self.out, &mut self.failed);
        self.veil.finish(|line| *failed |= writeln!(out, "{line}").is_err());
        self.veil = LineVeil::new(veil);
    }

    pub(crate) fn input(&mut self, input: &Input<'_>) {
        self.line(&tape_line(input));
    }

    pub(crate) fn frame(&mut self, at: Millis, frame: &str) {
        self.line(&tape_frame(at, frame));
    }

    /// Puts everything on the disk; false when something could not be written.
    pub(crate) fn finish(&mut self) -> bool {
        let (out, failed) = (&mut self.out, &mut self.failed);
        self.veil.finish(|line| *failed |= writeln!(out, "{line}").is_err());
        self.failed |= self.out.flush().is_err();
        !self.failed
    }

    fn line(&mut self, line: &str) {
        let (out, failed) = (&mut self.out, &mut self.failed);
        self.veil.push(line, |line| *failed |= writeln!(out, "{line}").is_err());
    }
}
