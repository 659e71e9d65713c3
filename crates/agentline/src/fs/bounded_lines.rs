//! Reads lines of bounded length from an untrusted peer.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// How many bytes of an overlong line are kept, so that its sender can be identified.
const MAX_SAMPLE: usize = 64 << 10;

/// A reader of lines of bounded length. The bytes need not be UTF-8.
#[derive(Debug)]
pub(crate) struct BoundedLines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    limit: usize,
    /// Whether the rest of an overlong line is being skipped.
    is_skipping: bool,
}

/// A line from a peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BoundedLine {
    /// A complete line without its terminator.
    Whole(Vec<u8>),
    /// The beginning of a line that is longer than the limit.
    TooLong(Vec<u8>),
}

#[cfg(unix)]
impl BoundedLine {
    /// Returns the line unless it was too long.
    pub(crate) fn whole(self) -> Option<Vec<u8>> {
        match self {
            Self::Whole(line) => Some(line),
            Self::TooLong(_) => None,
        }
    }
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    /// Creates a reader for lines of at most `limit` bytes.
    pub(crate) fn new(from: R, limit: usize) -> Self {
        Self { from: BufReader::new(from), line: Vec::new(), limit, is_skipping: false }
    }

    /// Returns the next line, or `None` at the end of the stream. Cancel-safe: dropping the future loses no data.
    ///
    /// # Errors
    /// Fails if the stream fails.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<BoundedLine>> {
        loop {
            let bytes = self.from.fill_buf().await?;
            if bytes.is_empty() {
                let rest = std::mem::take(&mut self.line);
                return Ok(
                    Some(BoundedLine::Whole(rest)).filter(|line| *line != BoundedLine::Whole(Vec::new()))
                );
            }
            let end = memchr::memchr(b'\n', bytes);
            let used = end.map_or(bytes.len(), |end| end + 1);
            if !self.is_skipping {
                self.line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            }
            self.from.consume(used);
            let was_skipping = self.is_skipping;
            self.is_skipping = end.is_none() && (was_skipping || self.line.len() > self.limit);
            if !was_skipping && self.line.len() > self.limit {
                let mut line = std::mem::take(&mut self.line);
                line.truncate(MAX_SAMPLE);
                line.shrink_to_fit();
                return Ok(Some(BoundedLine::TooLong(line)));
            }
            if end.is_some() && !was_skipping {
                return Ok(Some(BoundedLine::Whole(std::mem::take(&mut self.line))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn oversized_line_is_reported_once_and_the_next_line_is_read() {
        let text = format!("short\n{}\n\nnext\n{}", "x".repeat(100_000), "y".repeat(30));
        let mut lines = BoundedLines::new(text.as_bytes(), 20);
        let whole = |text: &str| Some(BoundedLine::Whole(text.into()));
        assert_eq!(lines.next().await.unwrap(), whole("short"));
        match lines.next().await.unwrap() {
            Some(BoundedLine::TooLong(line)) => {
                assert!(line.len() <= MAX_SAMPLE && line.iter().all(|b| *b == b'x'))
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(lines.next().await.unwrap(), whole(""));
        assert_eq!(lines.next().await.unwrap(), whole("next"));
        assert!(matches!(lines.next().await.unwrap(), Some(BoundedLine::TooLong(_))));
        assert_eq!(lines.next().await.unwrap(), None);
    }
}
