//! Network namespaces of Linux: programs in one of them are on a machine of their own as far as the network is concerned.

use crate::os::enter_network_namespace;
use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

/// Calls `start` in a new network namespace, which programs that it starts inherit. In it, nothing can be reached but these
/// ports of 127.0.0.1, which lead to the same ports outside. Returns `None` if this user may not create a network namespace,
/// which only root may on most systems.
///
/// # Panics
/// Panics if the namespace cannot be created for another reason, or if `start` panics.
pub fn in_network_namespace<T: Send>(ports: &[u16], start: impl FnOnce() -> T + Send) -> Option<T> {
    let (sender, listeners) = mpsc::channel();
    thread::scope(|scope| {
        // The namespace is that of a thread, which ends with `start`.
        let entered = scope.spawn(move || -> io::Result<T> {
            enter_network_namespace()?;
            for port in ports {
                let listener = TcpListener::bind(("127.0.0.1", *port))?;
                sender.send((listener, *port)).expect("the other thread receives");
            }
            drop(sender);
            Ok(start())
        });
        // A listener stays in its namespace, and this thread is outside.
        for (listener, port) in listeners {
            thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    thread::spawn(move || relay(&client, port));
                }
            });
        }
        match entered.join().expect("a thread without a panic") {
            Ok(started) => Some(started),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => panic!("a network namespace: {error}"),
        }
    })
}

/// Connects a client to a port of this machine.
fn relay(client: &TcpStream, port: u16) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
    let copy = |mut from: &TcpStream, mut to: &TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::scope(|scope| {
        scope.spawn(|| copy(client, &server));
        copy(&server, client);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn only_the_named_ports_are_reached() {
        let listener = || TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let (named, other) = (listener(), listener());
        let [near, far] = [&named, &other].map(|one| one.local_addr().expect("an address").port());
        let answered = thread::spawn(move || {
            let (mut client, _) = named.accept().expect("a client");
            let mut text = String::new();
            client.read_to_string(&mut text).expect("a text");
            client.write_all(text.to_uppercase().as_bytes()).expect("an answer");
        });
        let started = in_network_namespace(&[near], || {
            assert!(TcpStream::connect(("127.0.0.1", far)).is_err(), "the other port is reached");
            let mut server = TcpStream::connect(("127.0.0.1", near)).expect("the named port");
            server.write_all(b"text").expect("a request");
            server.shutdown(Shutdown::Write).expect("its end");
            let mut answer = String::new();
            server.read_to_string(&mut answer).expect("an answer");
            answer
        });
        let Some(answer) = started else { return crate::skipped("a network namespace") };
        assert_eq!(answer, "TEXT");
        answered.join().expect("no panic");
    }
}
