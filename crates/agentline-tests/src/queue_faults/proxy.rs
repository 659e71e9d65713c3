//! A TCP proxy that disturbs the connections through it.

use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// What the proxy does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// It passes them on.
    None,
    /// It passes them on later.
    Delay(Duration),
    /// It drops them, and resets the connection when the disturbance is over.
    Drop,
    /// It resets all connections, also new ones.
    Reset,
}

/// A proxy. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    mode: watch::Sender<Disturbance>,
    accepting: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    /// Starts a proxy for a port of this machine.
    ///
    /// # Panics
    /// Panics if there is no free port.
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (mode, changes) = watch::channel(Disturbance::None);
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, target, changes.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, mode, accepting }
    }

    /// Returns the port of the proxy.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Disturbs all connections from now on.
    pub fn disturb(&self, mode: Disturbance) {
        self.mode.send_replace(mode);
    }
}

async fn relay(mut client: TcpStream, target: u16, mut mode: watch::Receiver<Disturbance>) {
    // The proxy never ends a connection in the ordinary way, so that the other side cannot take its time.
    let _ = client.set_zero_linger();
    let _ = client.set_nodelay(true);
    if *mode.borrow_and_update() == Disturbance::Drop {
        let _ = mode.changed().await;
        return;
    }
    if *mode.borrow() == Disturbance::Reset {
        return;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let _ = server.set_nodelay(true);
    // Owned halves would announce the end when they are dropped.
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        () = pump(from_client, to_server, mode.clone()) => {}
        () = pump(from_server, to_client, mode) => {}
    }
}

/// Passes bytes on until one side closes the connection or a disturbance ends it.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut mode: watch::Receiver<Disturbance>) {
    let mut bytes = vec![0; 64 << 10];
    let mut has_dropped = false;
    loop {
        let count = tokio::select! {
            count = from.read(&mut bytes) => count.unwrap_or(0),
            changed = mode.changed() => {
                let is_reset = *mode.borrow_and_update() == Disturbance::Reset;
                if changed.is_err() || has_dropped || is_reset {
                    return;
                }
                continue;
            }
        };
        let current = *mode.borrow();
        match current {
            _ if count == 0 => return,
            Disturbance::Reset => return,
            Disturbance::Drop => {
                has_dropped = true;
                continue;
            }
            Disturbance::Delay(time) => tokio::time::sleep(time).await,
            Disturbance::None => {}
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
