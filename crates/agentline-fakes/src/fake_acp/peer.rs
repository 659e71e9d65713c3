//! The connection: writes lines with their faults, and matches the client's responses with our requests.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::faults::{ActiveFaults, FaultFlag};

/// Our side of the connection.
#[derive(Debug)]
pub(super) struct AcpPeer {
    pub(super) faults: ActiveFaults,
    /// Held for a whole line, so that lines of several sessions never mix.
    line: Mutex<()>,
    started: AtomicBool,
    next_id: AtomicU64,
    open: Mutex<HashMap<String, Sender<Value>>>,
}

impl AcpPeer {
    pub(super) fn new(faults: ActiveFaults) -> Self {
        Self {
            faults,
            line: Mutex::default(),
            started: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
            open: Mutex::default(),
        }
    }

    /// Sends a notification about a session.
    pub(super) fn update(&self, session: &str, update: &Value) {
        let mut params = json!({"sessionId": session, "update": update});
        if self.faults.has(FaultFlag::UpdateWithoutSession) {
            params.as_object_mut().map(|params| params.remove("sessionId"));
        }
        self.send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    /// Sends the result of a client's request.
    pub(super) fn answer(&self, id: &Value, result: &Value) {
        let mut message = json!({"jsonrpc": "2.0", "id": self.answer_id(id), "result": result});
        if self.faults.has(FaultFlag::ResultAndError) {
            message["error"] = json!({"code": -32603, "message": "and yet an error"});
        }
        self.send_answer(&message);
    }

    /// Sends the error for a client's request.
    pub(super) fn refuse(&self, id: &Value, error: &Value) {
        self.send_answer(&json!({"jsonrpc": "2.0", "id": self.answer_id(id), "error": error}));
    }

    /// Sends a request to the client. The whole response is sent to the channel.
    pub(super) fn ask(&self, method: &str, params: &Value) -> Receiver<Value> {
        // As in Gemini, our ids start with 0, so that they collide with those of the client.
        let number = self.next_id.fetch_add(1, Ordering::SeqCst);
        let id = if self.faults.has(FaultFlag::RequestIdsAsStrings) {
            json!(format!("ask-{number}"))
        } else {
            json!(number)
        };
        let (sender, receiver) = mpsc::channel();
        lock(&self.open).insert(id.to_string(), sender);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        receiver
    }

    /// Handles a response from the client. A response to an unknown request is dropped.
    pub(super) fn settle(&self, answer: Value) {
        let asked = lock(&self.open).remove(&answer["id"].to_string());
        if let Some(asked) = asked {
            // The caller may have given up.
            let _ = asked.send(answer);
        }
    }

    /// Sends a message as a line.
    pub(super) fn send(&self, message: &Value) {
        let mut message = message.clone();
        if self.faults.has(FaultFlag::NoVersionField) {
            message.as_object_mut().map(|message| message.remove("jsonrpc"));
        }
        self.line(message.to_string().as_bytes());
    }

    /// Sends a raw line with the faults that apply to all lines.
    pub(super) fn line(&self, bytes: &[u8]) {
        let has = |flag| self.faults.has(flag);
        let _whole = lock(&self.line);
        let mut out: Vec<u8> = Vec::with_capacity(bytes.len() + 2);
        if !self.started.swap(true, Ordering::SeqCst) {
            if has(FaultFlag::Bom) {
                out.extend_from_slice(b"\xef\xbb\xbf");
            }
            if has(FaultFlag::JunkFirst) {
                out.extend_from_slice(
                    b"Loaded cached credentials.\n(node:1) Warning: something is deprecated\n",
                );
            }
        }
        let before: &[(FaultFlag, &[u8])] = &[
            (FaultFlag::JunkBetween, b"[debug] this is { not JSON\n"),
            (FaultFlag::BlankLines, b"\n   \n\n"),
            (FaultFlag::InvalidUtf8, b"\xff\xfe broken \xc3\x28 bytes\n"),
            (FaultFlag::NumberLines, b"42\n\"text\"\ntrue\nnull\n{}\n"),
            (FaultFlag::ArrayLines, b"[]\n[{\"jsonrpc\":\"2.0\",\"method\":\"session/update\"}]\n"),
            (FaultFlag::NulBytes, b"\0\0\n"),
        ];
        for (_, junk) in before.iter().filter(|(flag, _)| has(*flag)) {
            out.extend_from_slice(junk);
        }
        if has(FaultFlag::TruncatedLines) {
            out.extend_from_slice(&bytes[..bytes.len() / 2]);
            out.push(b'\n');
        }
        out.extend_from_slice(bytes);
        out.extend_from_slice(if has(FaultFlag::Crlf) { b"\r\n" } else { b"\n" });
        // A client that no longer reads is noticed at the end of our input.
        let _ = if has(FaultFlag::SlowBytes) { dribble(&out) } else { write(&out) };
    }

    fn answer_id(&self, id: &Value) -> Value {
        match id {
            Value::Number(number) if self.faults.has(FaultFlag::AnswerIdsAsStrings) => {
                json!(number.to_string())
            }
            other => other.clone(),
        }
    }

    fn send_answer(&self, message: &Value) {
        if self.faults.has(FaultFlag::AnswersToNobody) {
            self.send(&json!({"jsonrpc": "2.0", "id": 987_654, "result": {"stopReason": "end_turn"}}));
            self.send(&json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "?"}}));
        }
        self.send(message);
        if self.faults.has(FaultFlag::AnswersTwice) {
            self.send(message);
        }
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Writes in many small pieces, with pauses, so that no read sees a whole line.
fn dribble(bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks((bytes.len() / 20).max(1)) {
        write(piece)?;
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Locks a mutex even if another thread panicked, so that one panic does not stop the other threads.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
