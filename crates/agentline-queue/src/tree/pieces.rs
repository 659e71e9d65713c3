//! Cuts a packed tree into compressed pieces, and reads it back from them.

use super::{TreeError, TreeRef};
use crate::{MAX_ARTIFACT, QueueError};
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use tokio::sync::mpsc;

/// The size of a full piece before compression in bytes. A transfer has a few of them in memory.
pub(super) const PIECE: usize = 1 << 20;
/// The size of the largest piece that is read. With its first byte it is an artifact.
const LARGEST: usize = MAX_ARTIFACT - 1;
/// The level of compression: most of the gain for a small part of the time.
const LEVEL: u8 = 3;
/// The first byte of a piece that is not compressed.
const STORED: u8 = 0;
/// The first byte of a piece that is compressed with deflate.
const DEFLATED: u8 = 1;

/// Collects the bytes of a packed tree and sends them in pieces. Blocks.
#[derive(Debug)]
pub(super) struct PieceWriter {
    piece: Vec<u8>,
    digest: Sha256,
    size: u64,
    send: mpsc::Sender<Vec<u8>>,
}

impl PieceWriter {
    /// Sends pieces to a channel.
    pub(super) fn new(send: mpsc::Sender<Vec<u8>>) -> Self {
        Self { piece: Vec::new(), digest: Sha256::new(), size: 0, send }
    }

    /// Appends everything that a source still has, at most `most` bytes, and returns how much it was.
    pub(super) fn write_from(&mut self, source: &mut dyn Read, most: u64) -> Result<u64, WriteError> {
        let mut written = 0;
        while written < most {
            if self.piece.len() == PIECE {
                self.cut()?;
            }
            let room = (PIECE - self.piece.len()) as u64;
            let read = source.take(room.min(most - written)).read_to_end(&mut self.piece)?;
            if read == 0 {
                break;
            }
            written += read as u64;
        }
        Ok(written)
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), TreeError> {
        let most = bytes.len() as u64;
        match self.write_from(&mut bytes, most) {
            Ok(_) => Ok(()),
            Err(WriteError::Send(error)) => Err(error),
            Err(WriteError::Read(error)) => Err(QueueError::Unavailable(error.to_string()).into()),
        }
    }

    /// Begins a new piece.
    pub(super) fn cut(&mut self) -> Result<(), TreeError> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.digest.update(&self.piece);
        self.size += self.piece.len() as u64;
        let sent = self.send.blocking_send(compress(&self.piece));
        self.piece.clear();
        sent.map_err(|_| QueueError::Unavailable("the transfer was stopped".into()).into())
    }

    /// Sends the last piece and returns the name and the size of the whole.
    pub(super) fn finish(mut self) -> Result<(String, u64), TreeError> {
        self.cut()?;
        Ok((hexadecimal(self.digest), self.size))
    }
}

/// Why bytes of a source were not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The source failed.
    Read(io::Error),
    /// The pieces cannot be sent.
    Send(TreeError),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<TreeError> for WriteError {
    fn from(error: TreeError) -> Self {
        Self::Send(error)
    }
}

fn compress(content: &[u8]) -> Vec<u8> {
    let deflated = compress_to_vec(content, LEVEL);
    let (first, body) =
        if deflated.len() < content.len() { (DEFLATED, &deflated[..]) } else { (STORED, content) };
    [&[first], body].concat()
}

fn decompress(mut piece: Vec<u8>) -> Option<Vec<u8>> {
    match *piece.first()? {
        STORED if piece.len() <= LARGEST + 1 => {
            piece.remove(0);
            Some(piece)
        }
        DEFLATED => decompress_to_vec_with_limit(&piece[1..], LARGEST).ok(),
        _ => None,
    }
}

fn hexadecimal(digest: Sha256) -> String {
    use std::fmt::Write;
    digest.finalize().iter().fold(String::with_capacity(64), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// Reads a packed tree from its pieces. Blocks.
#[derive(Debug)]
pub(super) struct PieceReader {
    receive: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    position: usize,
    digest: Sha256,
    /// The bytes that the reference promises and that have not been received.
    expected: u64,
    name: String,
}

impl PieceReader {
    /// Reads the pieces of a tree from a channel.
    pub(super) fn new(receive: mpsc::Receiver<Vec<u8>>, tree: &TreeRef) -> Self {
        let (expected, name) = (tree.size, tree.name.clone());
        Self { receive, piece: Vec::new(), position: 0, digest: Sha256::new(), expected, name }
    }

    /// Returns at least one byte and at most `most`.
    pub(super) fn read(&mut self, most: u64) -> Result<&[u8], TreeError> {
        while self.position == self.piece.len() {
            if !self.receive()? {
                return Err(self.invalid("it ends too early"));
            }
        }
        let left = self.piece.len() - self.position;
        let begin = self.position;
        self.position += usize::try_from(most).map_or(left, |most| most.min(left));
        Ok(&self.piece[begin..self.position])
    }

    /// Returns the next `N` bytes.
    pub(super) fn read_array<const N: usize>(&mut self) -> Result<[u8; N], TreeError> {
        let mut bytes = [0; N];
        let mut filled = 0;
        while filled < N {
            let part = self.read((N - filled) as u64)?;
            bytes[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        Ok(bytes)
    }

    /// Returns the next bytes that have their length before them, if it is at most `most`.
    pub(super) fn read_with_length(&mut self, most: usize) -> Result<Vec<u8>, TreeError> {
        let length = usize::from(u16::from_be_bytes(self.read_array()?));
        if length > most {
            return Err(self.invalid("a path is too long"));
        }
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            bytes.extend_from_slice(self.read((length - bytes.len()) as u64)?);
        }
        Ok(bytes)
    }

    /// Returns how many bytes may follow.
    pub(super) fn left(&self) -> u64 {
        self.expected + (self.piece.len() - self.position) as u64
    }

    /// Checks that nothing follows, and that the whole has the name and the size of the reference.
    pub(super) fn finish(&mut self) -> Result<(), TreeError> {
        let has_more = self.position < self.piece.len() || self.receive()?;
        if has_more || self.expected > 0 {
            return Err(self.invalid("it has another size"));
        }
        if hexadecimal(self.digest.clone()) != self.name {
            return Err(self.invalid("its content does not match its name"));
        }
        Ok(())
    }

    /// Receives the next piece; `false` if there is none.
    fn receive(&mut self) -> Result<bool, TreeError> {
        let Some(piece) = self.receive.blocking_recv() else { return Ok(false) };
        self.piece = decompress(piece).ok_or_else(|| self.invalid("a piece cannot be decompressed"))?;
        self.position = 0;
        self.digest.update(&self.piece);
        let size = self.piece.len() as u64;
        let left = self.expected.checked_sub(size);
        self.expected = left.ok_or_else(|| self.invalid("it is larger than its reference says"))?;
        Ok(true)
    }

    /// Returns the error for a tree that cannot be unpacked.
    pub(super) fn invalid(&self, reason: &str) -> TreeError {
        TreeError::Invalid { name: self.name.clone(), reason: reason.to_owned() }
    }
}
