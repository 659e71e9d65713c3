//! Reads the stdout and stderr of an agent fairly, and waits until one of them has more.

use std::io;
use std::time::{Duration, Instant};

use super::tail::Tail;
#[cfg(unix)]
use super::unix::Pipe;
use super::{StdStream, StdoutMode, os};

#[cfg(unix)]
pub(super) type Handle = std::os::fd::OwnedFd;
#[cfg(windows)]
pub(super) type Handle = std::os::windows::io::OwnedHandle;

/// The first polling interval without a watch, also used after each successful read.
const POLL_FIRST: Duration = Duration::from_millis(1);
/// The longest polling interval without a watch.
const POLL_LAST: Duration = Duration::from_millis(10);

/// The number of consecutive writes right after a read that count as a flood.
const FLOOD_WRITES: u32 = 8;
/// How long writes of a flood are collected. Waking up for each of its lines would halve the writer's speed.
const FLOOD_INTERVAL: Duration = Duration::from_millis(1);

/// The two output streams of an agent.
#[derive(Debug)]
pub(super) struct AgentOutput {
    stdout: Source,
    stderr: Tail,
    /// Whether the last read was from stderr and did not read all of it.
    err_floods: bool,
    /// Whether stderr may have been written to since it was last found empty.
    err_may_wait: bool,
    watch: Option<os::FileWatch>,
    poll: Duration,
    read_at: Instant,
    /// The number of consecutive writes that came right after a read.
    quick_writes: u32,
}

#[derive(Debug)]
enum Source {
    File(Tail),
    #[cfg(unix)]
    Pipe(Pipe),
}

impl AgentOutput {
    /// Creates the streams, and the ends of stdout and stderr for the agent.
    pub(super) fn open(stdout: StdoutMode) -> io::Result<(Self, Handle, Handle)> {
        let (err, their_err) = os::unnamed_file()?;
        let (stdout, their_stdout, stderr, watch) = match stdout {
            #[cfg(unix)]
            StdoutMode::Pipe => {
                let (pipe, theirs) = Pipe::new()?;
                let mut watch = os::FileWatch::new(&[&err]);
                let stderr = Tail::new(err, &their_err)?;
                watch.take_if(|watch| watch.take_notifications() < 1);
                (Source::Pipe(pipe), theirs, stderr, watch)
            }
            _ => {
                let (out, theirs) = os::unnamed_file()?;
                let mut watch = os::FileWatch::new(&[&out, &err]);
                let stdout = Tail::new(out, &theirs)?;
                let stderr = Tail::new(err, &their_err)?;
                watch.take_if(|watch| watch.take_notifications() < 2);
                (Source::File(stdout), theirs.into(), stderr, watch)
            }
        };
        let output = Self {
            stdout,
            stderr,
            err_floods: false,
            err_may_wait: true,
            watch,
            poll: POLL_FIRST,
            read_at: Instant::now(),
            quick_writes: 0,
        };
        Ok((output, their_stdout, their_err.into()))
    }

    /// Appends the bytes that one of the streams is known to have, without waiting, and returns that stream.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> Option<StdStream> {
        #[cfg(unix)]
        if let Source::Pipe(pipe) = &mut self.stdout {
            if self.err_floods {
                // No task waits on the pipe meanwhile, so its size must be queried.
                pipe.query_unread();
            } else if !self.err_may_wait && pipe.has_unread() {
                // The runtime may not yet have reported an earlier write to stderr.
                self.err_may_wait = self.watch.as_mut().is_some_and(|watch| watch.take_notifications() > 0);
            }
        }
        let is_file = matches!(self.stdout, Source::File(_));
        // Stderr is read first, so that text written there before stdout is also read before it. Only a flood has to
        // wait.
        let err_comes_last = self.err_floods;
        let order =
            if err_comes_last { [StdStream::Out, StdStream::Err] } else { [StdStream::Err, StdStream::Out] };
        let found = order.into_iter().find(|stream| {
            let read = match stream {
                StdStream::Out => self.stdout.read(into),
                StdStream::Err if self.err_may_wait || is_file => self.stderr.read(into),
                StdStream::Err => 0,
            };
            read > 0
        });
        let err_was_empty = found.is_none() || (found == Some(StdStream::Out) && !err_comes_last);
        // Without a watch, writes are not reported.
        self.err_may_wait = !err_was_empty || self.watch.is_none();
        if let Some(stream) = found {
            self.err_floods = stream == StdStream::Err && self.stderr.waiting() > 0;
            self.poll = POLL_FIRST;
            self.read_at = Instant::now();
        }
        found
    }

    /// Makes the next read check both streams, because no further writes will be reported.
    pub(super) fn ends(&mut self) {
        self.err_may_wait = true;
        #[cfg(unix)]
        if let Source::Pipe(pipe) = &mut self.stdout {
            pipe.query_unread();
        }
    }

    /// Waits until there may be more to read. Cancel safe.
    pub(super) async fn written(&mut self) {
        let file = async {
            match &mut self.watch {
                Some(watch) => {
                    watch.written().await;
                    self.err_may_wait = true;
                    let quick = self.read_at.elapsed() < FLOOD_INTERVAL;
                    self.quick_writes = if quick { self.quick_writes.saturating_add(1) } else { 0 };
                    if self.quick_writes > FLOOD_WRITES {
                        tokio::time::sleep(FLOOD_INTERVAL).await;
                    }
                }
                None => {
                    tokio::time::sleep(self.poll).await;
                    self.poll = (self.poll * 2).min(POLL_LAST);
                }
            }
        };
        match &mut self.stdout {
            Source::File(_) => file.await,
            #[cfg(unix)]
            Source::Pipe(pipe) => tokio::select! {
                // Stderr comes first, so that text written there first is read first.
                biased;
                () = file => {}
                () = pipe.readable() => {}
            },
        }
    }

    /// Returns whether stdout has ended. Files never end.
    pub(super) fn stdout_ended(&self) -> bool {
        match &self.stdout {
            Source::File(_) => false,
            #[cfg(unix)]
            Source::Pipe(pipe) => pipe.ended(),
        }
    }

    /// Returns the number of unread bytes.
    pub(super) fn waiting(&self) -> u64 {
        self.stdout.waiting() + self.stderr.waiting()
    }
}

impl Source {
    fn read(&mut self, into: &mut Vec<u8>) -> usize {
        match self {
            Self::File(file) => file.read(into),
            #[cfg(unix)]
            Self::Pipe(pipe) => pipe.read(into),
        }
    }

    fn waiting(&self) -> u64 {
        match self {
            Self::File(file) => file.waiting(),
            #[cfg(unix)]
            Self::Pipe(pipe) => pipe.waiting(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tail::READ;
    use std::io::Write;

    #[tokio::test]
    async fn writes_are_found_without_a_watch() {
        let (mut output, stdout, stderr) = AgentOutput::open(StdoutMode::TailedFile).unwrap();
        #[cfg(target_os = "linux")]
        assert!(output.watch.is_some());
        output.watch = None;
        let mut writers = [std::fs::File::from(stdout), std::fs::File::from(stderr)];
        for (writer, stream) in writers.iter_mut().zip([StdStream::Out, StdStream::Err]) {
            let mut bytes = Vec::new();
            assert_eq!(output.read(&mut bytes), None);
            writer.write_all(b"text").unwrap();
            output.written().await;
            assert_eq!((output.read(&mut bytes), bytes.as_slice()), (Some(stream), b"text".as_slice()));
        }
        for _ in 0..8 {
            output.written().await;
        }
        assert_eq!(output.poll, POLL_LAST);
    }

    #[tokio::test]
    async fn streams_are_read_alternately() {
        for via in [StdoutMode::TailedFile, StdoutMode::Pipe] {
            let (mut output, stdout, stderr) = AgentOutput::open(via).unwrap();
            let flood = vec![b'x'; 4 * READ as usize];
            std::fs::File::from(stdout).write_all(b"one line").unwrap();
            std::fs::File::from(stderr).write_all(&flood).unwrap();
            assert_eq!(output.waiting(), 4 * READ + 8);
            let turns: Vec<_> = std::iter::from_fn(|| output.read(&mut Vec::new())).collect();
            assert_eq!(
                turns,
                [StdStream::Err, StdStream::Out, StdStream::Err, StdStream::Err, StdStream::Err]
            );
            assert_eq!(output.waiting(), 0);
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn earlier_stderr_output_is_read_first() {
        let (mut output, stdout, stderr) = AgentOutput::open(StdoutMode::Pipe).unwrap();
        let (mut stdout, mut stderr) = (std::fs::File::from(stdout), std::fs::File::from(stderr));
        let mut bytes = Vec::new();
        stdout.write_all(b"a").unwrap();
        output.written().await;
        assert_eq!(output.read(&mut bytes), Some(StdStream::Out));
        for _ in 0..50 {
            // Both writes happen before the runtime has a chance to report them.
            stderr.write_all(b"why").unwrap();
            stdout.write_all(b"b").unwrap();
            let mut turns = Vec::new();
            while turns.len() < 2 {
                output.written().await;
                turns.extend(std::iter::from_fn(|| output.read(&mut bytes)));
            }
            assert_eq!(turns, [StdStream::Err, StdStream::Out]);
        }
    }
}
