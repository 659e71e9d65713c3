//! A queue of lines for the host. Adding a line never blocks. If the host reads slowly, pieces of text are merged, or the
//! run waits for room.

use agentline_core::{Event, Record, rpc};
use serde::Serialize;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::Notify,
};

/// The number of bytes written at once. Events behind them in the queue can still be merged.
const BATCH: usize = 64 << 10;
/// How many items may be queued before a run whose events are not merged waits for the host.
const QUEUE_LIMIT: usize = 64;

/// The queue of lines.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    wakeup: Notify,
    /// Wakes runs that wait for room.
    space: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// The number of items taken out so far, which is also the number of the first queued item.
    taken: u64,
    /// The number of the last queued piece of text of each run.
    open: HashMap<Arc<str>, u64>,
    closed: bool,
    /// Whether no run has to wait for room, because the host no longer reads or the connection is closing.
    unlimited: bool,
}

#[derive(Debug)]
enum Waiting {
    Line(String),
    Event { run: Arc<str>, record: Box<Record>, joined: u64 },
}

/// The parameters of `run/event`, see [`RunEvent`](super::messages::RunEvent). The event is written unchanged.
#[derive(Serialize)]
struct EventParams<'a> {
    run: &'a str,
    event: &'a Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    joined: Option<u64>,
}

impl Outbox {
    /// Queues the line of a message that is not an event.
    pub(super) fn send_line(&self, line: String) {
        let mut queue = self.lock();
        // Text that was queued before a message is not merged with text after it.
        queue.open.clear();
        queue.waiting.push_back(Waiting::Line(line));
        drop(queue);
        self.wakeup.notify_one();
    }

    /// Queues a notification.
    pub(super) fn notify(&self, method: &str, params: &impl Serialize) {
        self.send_line(rpc::notification(method, params));
    }

    /// Queues an event of a run. With `merge`, it may be merged with queued text or output of the same run.
    pub(super) fn event(&self, run: &Arc<str>, record: Record, merge: bool) {
        let mut queue = self.lock();
        if !(merge && queue.join(run, &record)) {
            let number = queue.taken + queue.waiting.len() as u64;
            let is_piece = matches!(
                record.event,
                Event::Text { .. } | Event::Thinking { .. } | Event::ToolOutput { .. }
            );
            if merge && is_piece {
                queue.open.insert(Arc::clone(run), number);
            } else {
                queue.open.remove(run);
            }
            queue.waiting.push_back(Waiting::Event {
                run: Arc::clone(run),
                record: Box::new(record),
                joined: 1,
            });
        }
        drop(queue);
        self.wakeup.notify_one();
    }

    /// Waits until the queue has room. Cancel safe.
    pub(super) async fn wait_for_room(&self) {
        loop {
            let mut space = std::pin::pin!(self.space.notified());
            space.as_mut().enable();
            if self.lock().has_room() {
                return;
            }
            space.await;
        }
    }

    /// Ends all waits for room, now and later.
    pub(super) fn lift_limit(&self) {
        self.lock().unlimited = true;
        self.space.notify_waiters();
    }

    /// Closes the queue. Queued lines are still written.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wakeup.notify_one();
    }

    /// Writes lines until the queue is closed and empty.
    pub(super) async fn write(&self, to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        let written = self.write_all(to).await;
        self.lift_limit();
        written
    }

    async fn write_all(&self, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(BATCH);
        loop {
            bytes.clear();
            let closed = self.lock().fill(&mut bytes);
            if bytes.is_empty() {
                if closed {
                    return to.flush().await;
                }
                to.flush().await?;
                self.wakeup.notified().await;
                continue;
            }
            self.space.notify_waiters();
            to.write_all(&bytes).await?;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn has_room(&self) -> bool {
        self.unlimited || self.waiting.len() < QUEUE_LIMIT
    }

    /// Appends a piece of text to the last one of its run, if that is still queued.
    fn join(&mut self, run: &Arc<str>, more: &Record) -> bool {
        let Some(number) = self.open.get(run) else { return false };
        let index = number.checked_sub(self.taken).and_then(|index| usize::try_from(index).ok());
        let Some(Waiting::Event { record, joined, .. }) = index.and_then(|index| self.waiting.get_mut(index))
        else {
            return false;
        };
        match (&mut record.event, &more.event) {
            (
                Event::ToolOutput { tool_use_id, text },
                Event::ToolOutput { tool_use_id: same, text: piece },
            ) if tool_use_id == same => text.push_str(piece),
            (Event::Text { text }, Event::Text { text: piece })
            | (Event::Thinking { text }, Event::Thinking { text: piece }) => text.push_str(piece),
            _ => return false,
        }
        (record.seq, record.at_ms, record.line) = (more.seq, more.at_ms, more.line);
        *joined += 1;
        true
    }

    /// Takes out the next lines to write. Returns whether the queue is closed.
    fn fill(&mut self, bytes: &mut Vec<u8>) -> bool {
        while bytes.len() < BATCH {
            let Some(next) = self.waiting.pop_front() else { break };
            self.taken += 1;
            match next {
                Waiting::Line(line) => bytes.extend_from_slice(line.as_bytes()),
                Waiting::Event { run, record, joined } => {
                    let joined = (joined > 1).then_some(joined);
                    let line =
                        rpc::notification("run/event", &EventParams { run: &run, event: &record, joined });
                    bytes.extend_from_slice(line.as_bytes());
                }
            }
        }
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::Origin;
    use serde_json::Value;

    fn text(seq: u32, text: &str) -> Record {
        Record::new(seq, u64::from(seq), Origin::Stdout, None, Event::Text { text: text.into() })
    }

    async fn lines(outbox: &Outbox) -> Vec<Value> {
        outbox.close();
        let mut written = Vec::new();
        outbox.write(&mut written).await.unwrap();
        String::from_utf8(written).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn queued_text_is_joined_per_run_without_loss() {
        let outbox = Outbox::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for seq in 1..=1000 {
            outbox.event(&a, text(seq, "x"), true);
            outbox.event(&b, text(seq, "y"), true);
        }
        outbox.event(&a, Record::new(1001, 0, Origin::Stdout, None, Event::warning("w", "m")), true);
        outbox.event(&a, text(1002, "z"), true);
        let lines = lines(&outbox).await;
        let received: Vec<(&str, &str, Option<u64>)> = lines
            .iter()
            .map(|l| &l["params"])
            .map(|p| (p["run"].as_str().unwrap(), p["event"]["type"].as_str().unwrap(), p["joined"].as_u64()))
            .collect();
        assert_eq!(
            received,
            [
                ("a", "text", Some(1000)),
                ("b", "text", Some(1000)),
                ("a", "warning", None),
                ("a", "text", None)
            ]
        );
        assert_eq!(lines[0]["params"]["event"]["text"].as_str().unwrap().len(), 1000);
        assert_eq!(lines[0]["params"]["event"]["seq"], 1000);
    }

    #[tokio::test]
    async fn queued_output_is_joined_per_tool_call() {
        let outbox = Outbox::default();
        let run: Arc<str> = "a".into();
        for (seq, call) in (1..).zip(["one", "one", "two", "one"]) {
            let event = Event::ToolOutput { tool_use_id: call.into(), text: "x".into() };
            outbox.event(&run, Record::new(seq, 0, Origin::Stdout, None, event), true);
        }
        let lines = lines(&outbox).await;
        let texts: Vec<&str> = lines.iter().filter_map(|l| l["params"]["event"]["text"].as_str()).collect();
        assert_eq!(texts, ["xx", "x", "x"]);
    }

    #[tokio::test]
    async fn text_is_not_joined_across_a_response() {
        let outbox = Outbox::default();
        let run: Arc<str> = "a".into();
        outbox.event(&run, text(1, "x"), true);
        outbox.send_line("{\"id\":1}\n".into());
        outbox.event(&run, text(2, "y"), true);
        assert_eq!(lines(&outbox).await.len(), 3);
    }

    #[tokio::test]
    async fn events_that_are_not_merged_wait_for_room() {
        let outbox = Outbox::default();
        let run: Arc<str> = "a".into();
        for seq in 1..=64 {
            outbox.wait_for_room().await;
            outbox.event(&run, text(seq, "x"), false);
        }
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), outbox.wait_for_room()).await;
        assert!(waits.is_err(), "the queue is full");
        assert_eq!(lines(&outbox).await.len(), 64);
        outbox.wait_for_room().await;
    }
}
