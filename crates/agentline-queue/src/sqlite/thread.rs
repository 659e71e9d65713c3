//! A thread that executes requests. It ends, after its last request, with the last handle.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tokio::runtime::Handle;

/// The thread. Dropping it waits for its end, on a thread that may block.
#[derive(Debug)]
pub(super) struct RequestThread<T> {
    requests: Option<Sender<T>>,
    thread: Option<JoinOnDrop>,
}

/// Waits for the end of a thread when it is dropped.
#[derive(Debug)]
struct JoinOnDrop(Option<JoinHandle<()>>);

impl<T: Send + 'static> RequestThread<T> {
    /// Starts a thread that executes requests until there are no more senders.
    pub(super) fn start(execute: impl FnOnce(Receiver<T>) + Send + 'static) -> io::Result<Self> {
        let (sender, requests) = channel();
        let thread = std::thread::Builder::new().name("sqlite-queue".to_owned());
        let thread = thread.spawn(move || execute(requests))?;
        Ok(Self { requests: Some(sender), thread: Some(JoinOnDrop(Some(thread))) })
    }

    /// Sends a request. Returns whether the thread is there.
    pub(super) fn send(&self, request: T) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.send(request).is_ok())
    }
}

impl<T> Drop for RequestThread<T> {
    fn drop(&mut self) {
        drop(self.requests.take());
        let thread = self.thread.take();
        // A request may take long, and its end must not depend on the tasks of this runtime.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || drop(thread));
        }
    }
}

impl Drop for JoinOnDrop {
    fn drop(&mut self) {
        let thread = self.0.take();
        // A request that holds the last handle is dropped by the thread itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic outside of the requests has been reported.
            let _ = thread.join();
        }
    }
}
