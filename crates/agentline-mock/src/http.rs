//! A minimal HTTP/1.1 implementation that serves scripted answers and exact faults.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Larger bodies are refused: no agent sends one, and a wrong length must not exhaust the memory.
const MAX_BODY: u64 = 512 * 1024 * 1024;

/// One received request.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) method: String,
    /// The path with its query.
    pub(crate) target: String,
    /// Names are in lower case; the last value of a repeated header counts.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Incoming {
    /// Returns whether the client wants the connection closed after the answer.
    pub(crate) fn closes_connection(&self) -> bool {
        self.headers.get("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// A connection from a client, with a half for reading and one for writing.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    reader: BufReader<TcpStream>,
    writer: BufWriter<TcpStream>,
}

impl HttpConnection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { reader, writer: BufWriter::with_capacity(64 * 1024, stream) })
    }

    /// Reads the next request, or returns `None` if the client has closed the connection.
    pub(crate) fn next_request(&mut self) -> io::Result<Option<Incoming>> {
        let Some(first) = self.line()? else { return Ok(None) };
        let mut parts = first.split(' ');
        let (Some(method), Some(target)) = (parts.next(), parts.next()) else {
            return Err(invalid("the request line has no path"));
        };
        let (method, target) = (method.to_owned(), target.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line()?.ok_or_else(|| invalid("the request ended inside its headers"))?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("a header has no colon"))?;
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
        if headers.get("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            self.writer.flush()?;
        }
        let body = self.body(&headers)?;
        Ok(Some(Incoming { method, target, headers, body }))
    }

    /// Sends a whole answer with its length.
    pub(crate) fn answer(&mut self, status: u16, content_type: &str, body: &[u8]) -> io::Result<()> {
        self.head(status, content_type, &format!("content-length: {}", body.len()))?;
        self.writer.write_all(body)?;
        self.writer.flush()
    }

    /// Announces `length` bytes of body but sends only `part` of it, to break the answer in the middle.
    pub(crate) fn answer_in_part(
        &mut self,
        content_type: &str,
        part: &[u8],
        length: usize,
    ) -> io::Result<()> {
        self.head(200, content_type, &format!("content-length: {length}"))?;
        self.writer.write_all(part)?;
        self.writer.flush()
    }

    /// Starts an answer of unknown length; pieces follow with [`HttpConnection::piece`].
    pub(crate) fn start_stream(&mut self, content_type: &str) -> io::Result<()> {
        self.head(200, content_type, "transfer-encoding: chunked")
    }

    /// Writes one piece of a streamed answer. It may stay in the buffer until [`HttpConnection::flush`].
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        // An empty piece would mean the end of the stream.
        if bytes.is_empty() {
            return Ok(());
        }
        write!(self.writer, "{:x}\r\n", bytes.len())?;
        self.writer.write_all(bytes)?;
        self.writer.write_all(b"\r\n")
    }

    /// Sends everything written so far to the client.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Ends a streamed answer properly.
    pub(crate) fn end_stream(&mut self) -> io::Result<()> {
        self.writer.write_all(b"0\r\n\r\n")?;
        self.writer.flush()
    }

    /// Waits until the other side closes the connection, sending nothing.
    pub(crate) fn wait_for_close(&mut self) {
        let mut waste = [0; 4096];
        while matches!(self.reader.read(&mut waste), Ok(count) if count > 0) {}
    }

    /// Closes the connection immediately.
    pub(crate) fn drop_now(&mut self) {
        // The client may have closed it already, which is the desired state.
        let _ = self.writer.get_ref().shutdown(Shutdown::Both);
    }

    fn head(&mut self, status: u16, content_type: &str, framing: &str) -> io::Result<()> {
        let reason = reason(status);
        write!(self.writer, "HTTP/1.1 {status} {reason}\r\ncontent-type: {content_type}\r\n{framing}\r\n\r\n")
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        // A longer header line is invalid.
        if (&mut self.reader).take(1024 * 1024).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    fn body(&mut self, headers: &BTreeMap<String, String>) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            loop {
                let line = self.line()?.ok_or_else(|| invalid("the body ended before its last chunk"))?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(size, 16).map_err(|_| invalid("a chunk has no size"))?;
                self.take(size, &mut body)?;
                self.line()?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        let length = match headers.get("content-length") {
            Some(value) => value.parse().map_err(|_| invalid("content-length is not a number"))?,
            None => 0,
        };
        self.take(length, &mut body)?;
        Ok(body)
    }

    fn take(&mut self, size: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let whole = (into.len() as u64).saturating_add(size);
        if whole > MAX_BODY {
            return Err(invalid("the body is too large"));
        }
        (&mut self.reader).take(size).read_to_end(into)?;
        if (into.len() as u64) < whole {
            Err(invalid("the body is shorter than its declared length"))
        } else {
            Ok(())
        }
    }
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}
