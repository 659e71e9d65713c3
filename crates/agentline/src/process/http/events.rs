//! Splits a stream of server-sent events into the data of its events.

/// Reads server-sent events. Their names and ids are ignored, and so are comments.
#[derive(Debug)]
pub(super) struct EventReader {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Whether the event has data, which may be empty.
    has_data: bool,
    /// Whether the event is longer than the limit and is dropped.
    is_dropped: bool,
    /// Whether the last byte was a carriage return, which ends a line with or without a line feed.
    after_return: bool,
    most: usize,
}

impl EventReader {
    /// Creates a reader that drops events with more than `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            is_dropped: false,
            after_return: false,
            most,
        }
    }

    /// Reads bytes and passes on the data of every event that they complete.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_return) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                return self.keep(rest);
            };
            self.keep(&rest[..end]);
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.end_line(&mut each);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.line.len() + self.data.len() + bytes.len() > self.most {
            self.is_dropped = true;
        }
        if !self.is_dropped {
            self.line.extend_from_slice(bytes);
        } else if self.line.is_empty() {
            // Only an empty line ends the event, so the line must not look empty.
            self.line.extend_from_slice(&bytes[..bytes.len().min(1)]);
        }
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        if self.line.is_empty() {
            if self.has_data && !self.is_dropped {
                each(&self.data);
            }
            self.data = Vec::new();
            (self.has_data, self.is_dropped) = (false, false);
        } else if let Some(data) = self.line.strip_prefix(b"data:")
            && !self.is_dropped
        {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(stream: &str, size: usize, most: usize) -> Vec<String> {
        let (mut reader, mut found) = (EventReader::new(most), Vec::new());
        for piece in stream.as_bytes().chunks(size) {
            reader.push(piece, |data| found.push(String::from_utf8_lossy(data).into_owned()));
        }
        found
    }

    #[test]
    fn events_do_not_depend_on_how_the_bytes_arrive() {
        let stream = ": hello\n\ndata: {\"a\":1}\n\nevent: x\r\nid: 7\r\ndata:one\r\ndata: two\r\n\r\ndata: r\rdata\r\rdata: lost";
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(events(stream, size, 1000), ["{\"a\":1}", "one\ntwo", "r"], "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_dropped_and_the_next_one_is_read() {
        let stream = format!("data: {}\ndata: more\n\ndata: short\n\n", "x".repeat(500));
        for size in [1, 64, 1000] {
            assert_eq!(events(&stream, size, 100), ["short"], "in pieces of {size}");
        }
    }
}
