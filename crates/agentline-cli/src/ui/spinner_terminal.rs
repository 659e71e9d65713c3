//! The terminal on which the spinner is drawn.

use indicatif::TermLike;
use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

/// The columns that the spinner leaves free for `^C`. Without them, the terminal would put `^C` on the next line, and
/// the spinner's line would not be cleared.
const ECHOED: u16 = 3;

/// Standard error, narrower than it is. Output is written when it is flushed.
#[derive(Debug, Default)]
pub(super) struct SpinnerTerminal {
    buffer: Mutex<String>,
}

impl SpinnerTerminal {
    fn push(&self, text: &str) -> io::Result<()> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    /// Moves the cursor. A count of zero would move it by one.
    fn move_cursor(&self, count: usize, direction: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.push(&format!("\u{1b}[{count}{direction}")) }
    }
}

impl TermLike for SpinnerTerminal {
    fn width(&self) -> u16 {
        super::status_size().0.saturating_sub(ECHOED).max(1)
    }

    fn height(&self) -> u16 {
        super::status_size().1
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.move_cursor(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.push(s)?;
        self.push("\n")
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.push(s)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.push("\r\u{1b}[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let text = std::mem::take(&mut *buffer);
        let mut stderr = io::stderr().lock();
        stderr.write_all(text.as_bytes())?;
        stderr.flush()
    }
}
