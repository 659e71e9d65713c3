//! The two streams of an agent, read fairly, and the sleep until one of them has more.

use std::io;
use std::time::Duration;

use super::tail::Tail;
#[cfg(unix)]
use super::unix::Pipe;
use super::{Std, Via, os};

#[cfg(unix)]
pub(super) type Handle = std::os::fd::OwnedFd;
#[cfg(windows)]
pub(super) type Handle = std::os::windows::io::OwnedHandle;

/// Without a watch the files are looked at after this long, at first and after each find …
const POLL_FIRST: Duration = Duration::from_millis(1);
/// … and this often at least, when nothing comes.
const POLL_LAST: Duration = Duration::from_millis(10);

/// Both streams of an agent.
#[derive(Debug)]
pub(super) struct Output {
    stdout: Source,
    stderr: Tail,
    /// The stream that was read last; the other one comes first next time.
    last: Std,
    watch: Option<os::Watch>,
    poll: Duration,
}

#[derive(Debug)]
enum Source {
    File(Tail),
    #[cfg(unix)]
    Pipe(Pipe),
}

impl Output {
    /// The streams, and the ends of stdout and stderr that the agent gets.
    pub(super) fn open(stdout: Via) -> io::Result<(Self, Handle, Handle)> {
        let (stdout, their_stdout) = Source::open(stdout)?;
        let (stderr, their_stderr) = file()?;
        let watch = match &stdout {
            Source::File(stdout) => os::Watch::new(&[stdout.file(), stderr.file()]),
            #[cfg(unix)]
            Source::Pipe(_) => os::Watch::new(&[stderr.file()]),
        };
        let output = Self { stdout, stderr, last: Std::Err, watch, poll: POLL_FIRST };
        Ok((output, their_stdout, their_stderr))
    }

    /// Appends what one of the streams has, if any has something, without waiting.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> Option<Std> {
        let order = match self.last {
            Std::Out => [Std::Err, Std::Out],
            Std::Err => [Std::Out, Std::Err],
        };
        let found = order.into_iter().find(|stream| {
            let read = match stream {
                Std::Out => self.stdout.read(into),
                Std::Err => self.stderr.read(into),
            };
            read > 0
        });
        if let Some(stream) = found {
            self.last = stream;
            self.poll = POLL_FIRST;
        }
        found
    }

    /// Waits until there may be more. May be dropped and called again.
    pub(super) async fn written(&mut self) {
        let file = async {
            match &mut self.watch {
                Some(watch) => watch.written().await,
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
                () = pipe.readable() => {}
                () = file => {}
            },
        }
    }

    /// How many bytes wait to be read.
    pub(super) fn waiting(&self) -> u64 {
        self.stdout.waiting() + self.stderr.waiting()
    }
}

impl Source {
    fn open(via: Via) -> io::Result<(Self, Handle)> {
        match via {
            #[cfg(unix)]
            Via::Pipe => Pipe::new().map(|(ours, theirs)| (Self::Pipe(ours), theirs)),
            _ => file().map(|(ours, theirs)| (Self::File(ours), theirs)),
        }
    }

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

/// A file for us to read and the agent to append to.
fn file() -> io::Result<(Tail, Handle)> {
    let (ours, theirs) = os::unnamed_file()?;
    Ok((Tail::new(ours)?, theirs.into()))
}
