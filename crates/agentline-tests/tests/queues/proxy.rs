//! The proxy between workers and servers disturbs connections as its modes say.

use agentline_tests::{
    PATIENCE,
    queue_faults::{Disturbance, Proxy},
};
use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// How a connection ends that the proxy resets, for a reader and for a writer.
const RESETS: [ErrorKind; 2] = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];

/// Starts a server that sends every byte back, and returns its port.
async fn echo() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

async fn open(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("a connection")
}

/// Sends a byte and reads one.
async fn exchange(stream: &mut TcpStream) -> std::io::Result<u8> {
    stream.write_u8(7).await?;
    timeout(PATIENCE, stream.read_u8()).await.expect("an answer or an error")
}

/// Waits until a connection ends, and returns how.
async fn end(stream: &mut TcpStream) -> ErrorKind {
    exchange(stream).await.expect_err("the end of the connection").kind()
}

#[tokio::test]
async fn proxy_delays_drops_and_resets() {
    let proxy = Proxy::start(echo().await).await;
    let mut stream = open(&proxy).await;
    assert_eq!(exchange(&mut stream).await.expect("an answer"), 7);

    let delay = Duration::from_millis(60);
    proxy.disturb(Disturbance::Delay(delay));
    let start = Instant::now();
    assert_eq!(exchange(&mut stream).await.expect("an answer"), 7);
    assert!(start.elapsed() >= 2 * delay, "both directions are delayed: {:?}", start.elapsed());

    // On a busy machine, the proxy may see the byte when the disturbance is over. Then it is passed on, and another is sent.
    let (error, mut unanswered) = loop {
        proxy.disturb(Disturbance::Drop);
        stream.write_u8(7).await.expect("a write");
        let answer = timeout(Duration::from_millis(100), stream.read_u8()).await;
        answer.expect_err("no answer, and no end of the connection");
        let unanswered = open(&proxy).await;
        proxy.disturb(Disturbance::None);
        if let Err(error) = exchange(&mut stream).await {
            break (error, unanswered);
        }
        while timeout(Duration::from_millis(100), stream.read_u8()).await.is_ok() {}
    };
    assert!(RESETS.contains(&error.kind()), "{error}");
    // It may have been accepted when the disturbance was over.
    let _ = exchange(&mut unanswered).await;

    let mut stream = open(&proxy).await;
    assert_eq!(exchange(&mut stream).await.expect("an answer"), 7);
    proxy.disturb(Disturbance::Reset);
    for mut stream in [stream, open(&proxy).await] {
        assert!(RESETS.contains(&end(&mut stream).await));
    }
}
