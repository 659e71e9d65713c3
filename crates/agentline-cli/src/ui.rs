//! The only writer of standard output and standard error.
//!
//! Standard output has the answer and nothing else. It is buffered, and flushed when nothing more is available to
//! write. So a million lines take a few hundred writes, and a single word is still visible immediately.

mod spinner_terminal;

use crate::{error::CommandError, exit};
use agentline::Problem;
use agentline_core::terminal_text::{fit, painted, plain, wrap};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spinner_terminal::SpinnerTerminal;
use std::{
    io::{self, BufWriter, IsTerminal, Stdout, Write},
    time::{Duration, Instant},
};

pub(crate) use agentline_core::terminal_text::Paint;

/// The buffer size, enough for a batch of events. Larger writes are not buffered.
const BUFFER: usize = 64 << 10;

/// The width to assume for a terminal that does not report it.
const USUAL_WIDTH: usize = 80;
/// The columns and lines to assume for a terminal that does not report them.
const USUAL_SIZE: (u16, u16) = (80, 24);
/// The maximum number of lines above the spinner.
const MAX_PREVIEW_LINES: usize = 8;

/// The columns of the spinner's line that its message does not use.
const SPINNER_MARGIN: usize = 12;

/// Returns the columns and lines of the terminal of standard error.
fn status_size() -> (u16, u16) {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or(USUAL_SIZE, |(width, height)| (width.0, height.0))
}

/// Returns where the spinner is drawn, ten times a second at most.
fn spinner_target() -> ProgressDrawTarget {
    // An old console of Windows needs more than escape sequences, and does not print `^C`.
    if cfg!(windows) {
        return ProgressDrawTarget::stderr_with_hz(10);
    }
    ProgressDrawTarget::term_like_with_hz(Box::new(SpinnerTerminal::default()), 10)
}

/// The setting of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The writer of standard output and standard error.
#[derive(Debug)]
pub(crate) struct Ui {
    out: BufWriter<Stdout>,
    color_out: bool,
    color_err: bool,
    quiet: bool,
    verbose: bool,
    shows_progress: bool,
    shares_terminal: bool,
    started_at: Instant,
    spinner: Option<ProgressBar>,
}

impl Default for Ui {
    fn default() -> Self {
        Self::new(Global::default())
    }
}

impl Ui {
    pub(crate) fn new(global: Global) -> Self {
        let (out_is_terminal, err_is_terminal) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let colored = |is_terminal: bool| match global.color {
            Color::Auto => is_terminal && !no_color && std::env::var_os("TERM").is_none_or(|t| t != "dumb"),
            Color::Always => true,
            Color::Never => false,
        };
        Self {
            out: BufWriter::with_capacity(BUFFER, io::stdout()),
            color_out: colored(out_is_terminal),
            color_err: colored(err_is_terminal),
            quiet: global.quiet,
            verbose: global.verbose,
            shows_progress: err_is_terminal && !global.quiet,
            shares_terminal: out_is_terminal && err_is_terminal,
            started_at: Instant::now(),
            spinner: None,
        }
    }

    /// Returns standard output, for the answer. Clears the spinner first if it is on the same terminal.
    pub(crate) fn out(&mut self) -> &mut impl Write {
        if self.shares_terminal {
            self.clear_spinner();
        }
        &mut self.out
    }

    /// Writes lines of a report to standard output, on a terminal wrapped between words.
    pub(crate) fn report(&mut self, text: &str) -> io::Result<()> {
        let room = self.width().unwrap_or(usize::MAX);
        let out = self.out();
        text.lines().flat_map(|line| wrap(line, room)).try_for_each(|line| writeln!(out, "{line}"))
    }

    /// Flushes standard output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns whether progress is shown on standard error.
    pub(crate) fn shows_progress(&self) -> bool {
        self.shows_progress
    }

    /// Enables progress lines without a terminal. The spinner still needs one.
    pub(crate) fn force_progress(&mut self) {
        self.shows_progress = !self.quiet;
    }

    /// Returns whether standard error is a terminal, where recorded pauses are useful.
    pub(crate) fn is_watched(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Returns whether standard output and standard error are both terminals.
    pub(crate) fn shares_terminal(&self) -> bool {
        self.shares_terminal
    }

    /// Returns whether standard error has colors.
    pub(crate) fn has_coloured_status(&self) -> bool {
        self.color_err
    }

    /// Returns whether standard output has colors.
    pub(crate) fn is_coloured(&self) -> bool {
        self.color_out
    }

    /// Returns the number of columns of standard output, or `None` if it is not a terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        let size = || terminal_size::terminal_size_of(io::stdout());
        io::stdout().is_terminal().then(|| size().map_or(USUAL_WIDTH, |(width, _)| usize::from(width.0)))
    }

    /// Returns the number of columns and lines of standard error, or `None` if it is not a terminal.
    pub(crate) fn status_size(&self) -> Option<(usize, usize)> {
        let (columns, lines) = io::stderr().is_terminal().then(status_size)?;
        Some((columns.into(), lines.into()))
    }

    /// Returns whether `--verbose` is set.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Writes a line to standard error.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if self.shares_terminal {
            // Earlier output must be above this line. The next flush reports a closed pipe.
            let _ = self.out.flush();
        }
        // An error cannot be reported if standard error is not writable.
        let write = || drop(writeln!(io::stderr().lock(), "{line}"));
        match &self.spinner {
            Some(spinner) => spinner.suspend(write),
            None => write(),
        }
    }

    /// Writes text to standard error, on a terminal wrapped between words.
    fn paragraph(&mut self, text: &str) {
        let room = self.status_size().map_or(usize::MAX, |(columns, _)| columns);
        text.lines().flat_map(|line| wrap(line, room)).for_each(|line| self.line(line));
    }

    /// Writes a line to standard error after which an answer is typed. Clears the spinner, which would overwrite it.
    pub(crate) fn prompt(&mut self, line: &str) {
        self.clear_spinner();
        // An error cannot be reported if standard error is not writable.
        let mut err = io::stderr().lock();
        let _ = write!(err, "{line}").and_then(|()| err.flush());
    }

    /// Writes a line to standard error, unless `--quiet` is set.
    pub(crate) fn print_status(&mut self, line: impl AsRef<str>) {
        if !self.quiet {
            self.line(line);
        }
    }

    /// Writes a line to standard error if `--verbose` is set.
    pub(crate) fn detail(&mut self, line: impl AsRef<str>) {
        if self.verbose {
            let line = self.paint(Paint::Dim, line.as_ref());
            self.line(line);
        }
    }

    /// Writes a warning to standard error.
    pub(crate) fn warn(&mut self, message: &str) {
        let label = self.paint(Paint::Yellow, "warning:");
        if !self.quiet {
            self.paragraph(&format!("{label} {}", plain(message)));
        }
    }

    /// Writes an error with its hint to standard error.
    pub(crate) fn error(&mut self, message: &str, hint: Option<&str>) {
        let label = self.paint(Paint::Red, "error:");
        self.paragraph(&format!("{label} {message}"));
        if let Some(hint) = hint {
            let label = self.paint(Paint::Bold, "hint:");
            // Not wrapped, so that a command in it can be copied.
            self.line(format!("{label} {hint}"));
        }
    }

    /// Styles a text for standard error.
    pub(crate) fn paint(&self, paint: Paint, text: &str) -> String {
        painted(self.color_err, paint, text)
    }

    /// Styles a text for standard output.
    pub(crate) fn paint_out(&self, paint: Paint, text: &str) -> String {
        painted(self.color_out, paint, text)
    }

    /// Shows a spinner with a message and the elapsed time, on a terminal only.
    pub(crate) fn busy(&mut self, message: &str) {
        self.busy_below(&[], message);
    }

    /// Shows lines that are not final, and a spinner below them, on a terminal only.
    pub(crate) fn busy_below(&mut self, lines: &[String], message: &str) {
        let Some((columns, _)) = self.status_size().filter(|_| self.shows_progress) else { return };
        if self.shares_terminal {
            // Earlier output must be above this line. The next flush reports a closed pipe.
            let _ = self.out.flush();
        }
        let template = if lines.is_empty() { "" } else { "{prefix}\n" };
        let style = ProgressStyle::with_template(&format!("{template}{{spinner}} {{elapsed:>3}} {{msg}}"));
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let started_at = self.started_at;
        let spinner = self.spinner.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, spinner_target());
            bar.set_style(style.clone());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar.with_elapsed(started_at.elapsed())
        });
        spinner.set_style(style);
        spinner.set_prefix(lines.join("\n"));
        spinner.set_message(fit(message, columns.saturating_sub(SPINNER_MARGIN)));
    }

    /// Returns how many lines fit above the spinner.
    pub(crate) fn preview_lines(&self) -> usize {
        self.status_size()
            .filter(|_| self.shows_progress)
            .map_or(0, |(_, lines)| (lines / 2).min(MAX_PREVIEW_LINES))
    }

    /// Clears the spinner.
    pub(crate) fn clear_spinner(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    /// Writes clap's output: help and version to standard output, errors to standard error. Returns the exit code.
    pub(crate) fn usage(&mut self, error: &clap::Error) -> u8 {
        let styled = error.render();
        let on_stderr = error.use_stderr();
        let colored = if on_stderr { self.color_err } else { self.color_out };
        let text = if colored { styled.ansi().to_string() } else { styled.to_string() };
        if on_stderr {
            self.line(text.trim_end());
            return exit::USAGE;
        }
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Ok(()) => exit::DONE,
            Err(error) => self.stop(&error.into()),
        }
    }

    /// Writes the reason why a command stopped. Returns the exit code.
    pub(crate) fn stop(&mut self, stop: &CommandError) -> u8 {
        self.clear_spinner();
        match stop {
            CommandError::Usage(problems) => problems.0.iter().for_each(|problem| self.problem(problem)),
            CommandError::Nothing(problem) => self.problem(problem),
            CommandError::Failed(message) => self.error(message, None),
            CommandError::Unable { message, hint } => self.error(message, Some(hint)),
            CommandError::BrokenPipe | CommandError::Signal(_) => {}
        }
        stop.code()
    }

    fn problem(&mut self, problem: &Problem) {
        let label = self.paint(Paint::Red, "error:");
        self.paragraph(&format!("{label} {problem}"));
    }
}

/// Options of every command.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Global {
    /// Print only errors to standard error
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Show more detail, such as the agent's command line
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use colors
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}
