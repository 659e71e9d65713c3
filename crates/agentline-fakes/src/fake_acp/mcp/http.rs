//! Streamable HTTP for a client with one request at a time.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::control::Control;
use super::PATIENCE;

/// An MCP server at an address.
#[derive(Debug)]
pub(super) struct HttpLink {
    host: String,
    path: String,
    headers: Vec<(String, String)>,
    session: Option<String>,
    next_id: u64,
}

impl HttpLink {
    pub(super) fn open(server: &Value) -> Result<Self, String> {
        let url = server["url"].as_str().unwrap_or_default();
        let rest = url.strip_prefix("http://").ok_or_else(|| format!("`{url}` is not plain HTTP"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let header =
            |entry: &Value| Some((entry["name"].as_str()?.to_owned(), entry["value"].as_str()?.to_owned()));
        let headers = server["headers"].as_array().into_iter().flatten().filter_map(header).collect();
        Ok(Self { host: host.to_owned(), path: format!("/{path}"), headers, session: None, next_id: 0 })
    }

    pub(super) fn ask(&mut self, method: &str, params: &Value, control: &Control) -> Result<Value, String> {
        self.next_id += 1;
        let id = self.next_id;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.post(&message, Some(id), control)?.ok_or_else(|| "the server did not answer".to_owned())
    }

    /// Posts a message and reads until the response with this id. Giving up closes the connection.
    pub(super) fn post(
        &mut self,
        message: &Value,
        id: Option<u64>,
        control: &Control,
    ) -> Result<Option<Value>, String> {
        let describe = |error: io::Error| error.to_string();
        let mut stream = TcpStream::connect(&self.host).map_err(describe)?;
        stream.set_read_timeout(Some(Duration::from_millis(20))).map_err(describe)?;
        stream.write_all(self.request(message).as_bytes()).map_err(describe)?;
        let mut reader = BufReader::new(Patient { stream, control, until: Instant::now() + PATIENCE });
        let status = line(&mut reader).map_err(describe)?;
        let mut chunked = false;
        let mut length = None;
        loop {
            let header = line(&mut reader).map_err(describe)?;
            let Some((name, value)) = header.split_once(':') else { break };
            match (name.to_ascii_lowercase().as_str(), value.trim()) {
                ("mcp-session-id", value) => self.session = Some(value.to_owned()),
                ("transfer-encoding", "chunked") => chunked = true,
                ("content-length", value) => length = value.parse::<u64>().ok(),
                _ => {}
            }
        }
        if !status.contains(" 20") {
            return Err(status);
        }
        let Some(id) = id else { return Ok(None) };
        let body: Box<dyn Read> = match length {
            _ if chunked => Box::new(Chunked { reader, left: 0 }),
            Some(length) => Box::new(reader.take(length)),
            None => Box::new(reader),
        };
        let mut body = BufReader::new(body);
        // One JSON document and one event of a stream are both a line here, except for the prefix.
        loop {
            let mut text = String::new();
            if body.read_line(&mut text).map_err(describe)? == 0 {
                return Ok(None);
            }
            let text = text.strip_prefix("data:").unwrap_or(&text).trim();
            match serde_json::from_str::<Value>(text) {
                Ok(answer) if answer["id"] == id => return Ok(Some(answer)),
                _ => {}
            }
        }
    }

    fn request(&self, message: &Value) -> String {
        let body = message.to_string();
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\n",
            self.path, self.host
        );
        let session = self.session.iter().map(|id| ("mcp-session-id", id.as_str()));
        let configured = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in configured.chain(session) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        format!("{head}content-length: {}\r\n\r\n{body}", body.len())
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut text = String::new();
    reader.read_line(&mut text)?;
    Ok(text.trim_end().to_owned())
}

/// A reader with a timeout that stops when the turn is cancelled.
struct Patient<'a> {
    stream: TcpStream,
    control: &'a Control,
    until: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if self.control.cancelled() {
                        return Err(io::Error::other("cancelled"));
                    }
                    if Instant::now() > self.until {
                        return Err(io::Error::other("the server does not answer"));
                    }
                }
                other => return other,
            }
        }
    }
}

/// A chunked body without the chunk sizes.
struct Chunked<R> {
    reader: R,
    left: u64,
}

impl<R: BufRead> Read for Chunked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let mut size = line(&mut self.reader)?;
            if size.is_empty() {
                // The end of the previous chunk.
                size = line(&mut self.reader)?;
            }
            self.left = u64::from_str_radix(size.split(';').next().unwrap_or_default(), 16).unwrap_or(0);
        }
        let count = (&mut self.reader).take(self.left).read(buffer)?;
        self.left -= count as u64;
        Ok(count)
    }
}
