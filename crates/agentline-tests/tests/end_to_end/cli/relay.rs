//! Passes connections on to a server and cuts them on request.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// A listener on loopback in front of a server.
pub(super) struct CuttableRelay {
    port: u16,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl CuttableRelay {
    /// Starts a relay to this address.
    pub(super) fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let open = Arc::clone(&streams);
        thread::spawn(move || {
            for client in listener.incoming().filter_map(Result::ok) {
                // A client whose server does not answer is closed.
                let _ = pass_on(client, &address, &open);
            }
        });
        Self { port, streams }
    }

    /// Returns the address for clients, as a URL without a path.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections. New ones are passed on again.
    pub(super) fn cut(&self) {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass_on(client: TcpStream, address: &str, open: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let server = TcpStream::connect(address)?;
    for (mut from, mut to) in
        [(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)]
    {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    open.lock().unwrap_or_else(PoisonError::into_inner).extend([client, server]);
    Ok(())
}
