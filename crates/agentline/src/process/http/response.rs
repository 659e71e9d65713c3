//! Reads an HTTP/1.1 response: its status, and its body with a length, in chunks, or until the connection is closed.

use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// The longest line of a response's head, and of the frame of a chunk, in bytes.
const MAX_LINE: usize = 16 << 10;
/// The most lines of a response's head.
const MAX_LINES: usize = 200;

/// A response whose head has been read.
#[derive(Debug)]
pub(super) struct Response<R> {
    /// The status.
    pub(super) status: u16,
    reader: R,
    body: Body,
}

/// The rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// This many bytes follow.
    Bytes(u64),
    /// This many bytes of the current chunk follow, and then other chunks.
    Chunk(u64),
    /// A chunk begins.
    NextChunk,
    /// Everything until the connection is closed.
    UntilClose,
}

impl<R: AsyncBufRead + Unpin> Response<R> {
    /// Reads the head of a response.
    pub(super) async fn read(mut reader: R) -> io::Result<Self> {
        loop {
            let (status, body) = head(&mut reader).await?;
            // An interim response has no body, and the real one follows.
            if !(100..200).contains(&status) {
                return Ok(Self { status, reader, body });
            }
        }
    }

    /// Appends the next bytes of the body. Returns whether there were any; otherwise the body is complete.
    pub(super) async fn read_some(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        if self.body == Body::NextChunk {
            let line = line(&mut self.reader).await?;
            let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            let size = std::str::from_utf8(size).ok().and_then(|size| u64::from_str_radix(size, 16).ok());
            self.body = match size.ok_or_else(|| invalid("a chunk has no size"))? {
                // Trailers have no meaning here, and the connection is not used again.
                0 => Body::Bytes(0),
                size => Body::Chunk(size),
            };
        }
        let left = match self.body {
            Body::Bytes(0) => return Ok(false),
            Body::Bytes(left) | Body::Chunk(left) => left,
            Body::UntilClose | Body::NextChunk => u64::MAX,
        };
        let bytes = self.reader.fill_buf().await?;
        if bytes.is_empty() {
            let is_whole = self.body == Body::UntilClose;
            return if is_whole { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        into.extend_from_slice(&bytes[..count]);
        self.reader.consume(count);
        let left = left - count as u64;
        self.body = match self.body {
            Body::Bytes(_) => Body::Bytes(left),
            Body::Chunk(_) if left > 0 => Body::Chunk(left),
            Body::Chunk(_) => {
                if !line(&mut self.reader).await?.is_empty() {
                    return Err(invalid("a chunk is longer than its size"));
                }
                Body::NextChunk
            }
            other => other,
        };
        Ok(true)
    }

    /// Reads the whole body, up to `most` bytes.
    pub(super) async fn whole_body(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while self.read_some(&mut body).await? {
            if body.len() > most {
                return Err(invalid("the response is too long"));
            }
        }
        Ok(body)
    }
}

async fn head<R: AsyncBufRead + Unpin>(reader: &mut R) -> io::Result<(u16, Body)> {
    let first = line(reader).await?;
    let first = String::from_utf8_lossy(&first);
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
    let status = status.ok_or_else(|| invalid("the answer is not an HTTP response"))?;
    let (mut length, mut is_chunked) = (None, false);
    for _ in 0..MAX_LINES {
        let line = line(reader).await?;
        if line.is_empty() {
            return Ok((
                status,
                match length {
                    _ if matches!(status, 204 | 304) => Body::Bytes(0),
                    _ if is_chunked => Body::NextChunk,
                    Some(length) => Body::Bytes(length),
                    None => Body::UntilClose,
                },
            ));
        }
        let line = String::from_utf8_lossy(&line);
        let Some((name, value)) = line.split_once(':') else {
            return Err(invalid("a header has no value"));
        };
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim().parse::<u64>().map_err(|_| invalid("the length is not a number"))?;
            length = Some(value);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.trim().to_ascii_lowercase().ends_with("chunked");
        }
    }
    Err(invalid("the response has too many headers"))
}

/// Reads a line without its line ending.
async fn line<R: AsyncBufRead + Unpin>(reader: &mut R) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let bytes = reader.fill_buf().await?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = memchr::memchr(b'\n', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        if line.len() + part.len() > MAX_LINE {
            return Err(invalid("a line of the response is too long"));
        }
        line.extend_from_slice(part);
        let count = end.map_or(bytes.len(), |end| end + 1);
        reader.consume(count);
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(line);
        }
    }
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    async fn read(text: &[u8], capacity: usize) -> Result<(u16, String), String> {
        let mut response = Response::read(BufReader::with_capacity(capacity, text))
            .await
            .map_err(|error| error.to_string())?;
        let body = response.whole_body(1000).await.map_err(|error| error.to_string())?;
        Ok((response.status, String::from_utf8_lossy(&body).into_owned()))
    }

    #[tokio::test]
    async fn bodies_are_read_by_length_in_chunks_and_until_the_end() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, more", (200, "hello")),
            ("HTTP/1.1 204 No Content\r\n\r\n", (204, "")),
            ("HTTP/1.0 404 Not Found\n\nplain", (404, "plain")),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", (201, "")),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
                (200, "hello!"),
            ),
        ] {
            for capacity in [1, 3, 4096] {
                assert_eq!(
                    read(text.as_bytes(), capacity).await,
                    Ok((expected.0, expected.1.to_owned())),
                    "{text}"
                );
            }
        }
    }

    #[tokio::test]
    async fn damaged_and_endless_responses_are_errors() {
        let endless_line = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; 100_000]].concat();
        let endless_head = [b"HTTP/1.1 200 OK\r\n".to_vec(), b"A: b\r\n".repeat(1000)].concat();
        let long_body = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &[b'x'; 5000]].concat();
        for text in [
            b"".as_slice(),
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nlong\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            &endless_line,
            &endless_head,
            &long_body,
        ] {
            let result = read(text, 512).await;
            assert!(
                result.is_err(),
                "{:?} gave {result:?}",
                String::from_utf8_lossy(&text[..text.len().min(80)])
            );
        }
    }
}
