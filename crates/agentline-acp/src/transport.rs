//! The transport: frames in both directions, each with one JSON-RPC message and without a line ending.

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc::{Receiver, Sender, channel},
};

/// How many frames wait in each direction before the sender waits.
const CAPACITY: usize = 64;
/// How many bytes of frames are joined into one write at most, apart from the first frame.
const JOINED: usize = 64 << 10;
/// The largest frame that is read from lines, in bytes.
const LONGEST: usize = 256 << 20;

/// Two channels of frames between a server and one client. The connection ends when the incoming channel closes.
#[derive(Debug)]
pub struct AcpTransport {
    pub(crate) incoming: Receiver<Vec<u8>>,
    pub(crate) outgoing: Sender<Vec<u8>>,
}

impl AcpTransport {
    /// Creates a transport from the frames of the client and a channel for frames to it.
    #[must_use]
    pub fn new(incoming: Receiver<Vec<u8>>, outgoing: Sender<Vec<u8>>) -> Self {
        Self { incoming, outgoing }
    }

    /// Creates the two ends of a connection in memory.
    #[must_use]
    pub fn pair() -> (Self, Self) {
        let (to_left, from_right) = channel(CAPACITY);
        let (to_right, from_left) = channel(CAPACITY);
        (Self::new(from_right, to_right), Self::new(from_left, to_left))
    }

    /// Creates a transport over lines, such as standard input and output. Two tasks copy the frames. They end with the
    /// streams or with the other side of the transport.
    #[must_use]
    pub fn lines<R, W>(reader: R, writer: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (ours, theirs) = Self::pair();
        let (incoming, outgoing) = (ours.incoming, ours.outgoing);
        tokio::spawn(read_lines(BufReader::with_capacity(64 << 10, reader), outgoing));
        tokio::spawn(write_lines(incoming, writer));
        theirs
    }

    /// Receives the next frame, or `None` at the end of the connection. Cancel safe.
    pub async fn receive(&mut self) -> Option<Vec<u8>> {
        self.incoming.recv().await
    }

    /// Sends a frame. Returns whether the other side still exists.
    pub async fn send(&self, frame: impl Into<Vec<u8>>) -> bool {
        self.outgoing.send(frame.into()).await.is_ok()
    }
}

async fn read_lines(mut reader: impl AsyncBufRead + Unpin, frames: Sender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        match next_line(&mut reader, &mut line).await {
            Ok(true) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(true) if frames.send(line).await.is_err() => return,
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
    }
}

/// Reads a line without its line ending, of which at most `LONGEST` bytes are kept. Returns whether there was one.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut has_read = false;
    loop {
        let bytes = reader.fill_buf().await?;
        if bytes.is_empty() {
            return Ok(has_read);
        }
        has_read = true;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.unwrap_or(bytes.len());
        let room = LONGEST.saturating_sub(line.len()).min(used);
        line.extend_from_slice(&bytes[..room]);
        reader.consume(end.map_or(used, |end| end + 1));
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(true);
        }
    }
}

async fn write_lines(mut frames: Receiver<Vec<u8>>, mut writer: impl AsyncWrite + Unpin) {
    while let Some(mut frame) = frames.recv().await {
        frame.push(b'\n');
        // Small frames that are already waiting are written together.
        while frame.len() < JOINED
            && let Ok(next) = frames.try_recv()
        {
            frame.extend_from_slice(&next);
            frame.push(b'\n');
        }
        if writer.write_all(&frame).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_become_frames_and_frames_become_lines() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let (reader, writer) = tokio::io::split(server);
        let mut transport = AcpTransport::lines(reader, writer);
        client.write_all(b"{ \"a\":1 }\r\n\n  \n\xff\nlast").await.unwrap();
        assert_eq!(transport.receive().await.unwrap(), b"{ \"a\":1 }");
        assert_eq!(transport.receive().await.unwrap(), b"\xff");
        assert!(transport.send("one").await && transport.send("two").await);
        let mut read = [0; 8];
        tokio::io::AsyncReadExt::read_exact(&mut client, &mut read).await.unwrap();
        assert_eq!(&read, b"one\ntwo\n");
        client.shutdown().await.unwrap();
        assert_eq!(transport.receive().await.unwrap(), b"last");
        assert_eq!(transport.receive().await, None);
    }
}
