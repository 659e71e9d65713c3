//! Accepts connections: their number, TLS, and the time limits of slow clients.

mod connection_slots;

use crate::{
    app::Peer,
    options::{ServeError, ServeLimits},
};
use axum::{Router, body::Body, extract::Request};
use connection_slots::ConnectionSlots;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use socket2::{SockRef, TcpKeepalive};
use std::{
    io,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Instant, Sleep, sleep},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service as _;

/// The buffer of a connection in bytes. It also limits the head of a request.
const BUFFER: usize = 16 << 10;
/// The wait after a failed accept, for example because there are too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The silence of a peer after which it is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long open responses may take after the server has stopped.
const DRAIN: Duration = Duration::from_secs(3);

/// Reads the certificate chain and the private key.
pub(crate) fn tls(
    files: Option<&(std::path::PathBuf, std::path::PathBuf)>,
) -> Result<Option<TlsAcceptor>, ServeError> {
    let Some((certificates, key)) = files else { return Ok(None) };
    let invalid = |flag: &'static str, path: &Path, error: &dyn std::fmt::Display| {
        ServeError::option(flag, format!("`{}`: {error}", path.display()), "name a PEM file")
    };
    let chain = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| invalid("--tls-cert", certificates, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| invalid("--tls-key", key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("--tls-cert", certificates, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| invalid("--tls-cert", certificates, &error))?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Accepts connections until the server stops, and then lets open responses end.
pub(crate) async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    limits: ServeLimits,
    stop: CancellationToken,
) {
    let slots = ConnectionSlots::new(limits.connections);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let Ok((stream, remote)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        // Above the limit, the connection is closed at once.
        let Some(slot) = slots.take(remote.ip()) else { continue };
        let (router, acceptor, stop) = (router.clone(), acceptor.clone(), stop.clone());
        connections.spawn(async move {
            serve_stream(stream, remote, acceptor, router, limits, stop).await;
            drop(slot);
        });
    }
    drop(listener);
    connections.close();
    // Clients that do not read are left behind.
    let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
}

async fn serve_stream(
    stream: TcpStream,
    remote: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    limits: ServeLimits,
    stop: CancellationToken,
) {
    let Ok(local) = stream.local_addr() else { return };
    // Events are small and should arrive at once.
    let _ = stream.set_nodelay(true);
    notice_loss(&stream, limits.write_timeout);
    let stream = StallLimit::new(stream, limits.write_timeout);
    let peer = Peer { remote, local };
    match acceptor {
        Some(acceptor) => {
            let handshake = tokio::time::timeout(limits.read_timeout, acceptor.accept(stream)).await;
            if let Ok(Ok(stream)) = handshake {
                serve_http(stream, peer, router, limits, stop).await;
            }
        }
        None => serve_http(stream, peer, router, limits, stop).await,
    }
}

/// Ends the connection of a peer that has vanished without a word, for example because its network is gone. The defaults of
/// systems are between 15 minutes and hours. If an option is not supported, the default holds.
fn notice_loss(stream: &TcpStream, limit: Duration) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
    let _ = socket.set_tcp_keepalive(&keepalive);
    // Heartbeats that are not acknowledged suspend the check above.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(limit));
    #[cfg(not(target_os = "linux"))]
    let _ = limit;
}

async fn serve_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    limits: ServeLimits,
    stop: CancellationToken,
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        let request: Request = request.map(Body::new);
        router.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read_timeout)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let stopping = tokio::select! {
        // A client that breaks off is no error of the server.
        _ = connection.as_mut() => false,
        () = stop.cancelled() => true,
    };
    if stopping {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// A stream that fails when its peer has not read for some time.
struct StallLimit {
    stream: TcpStream,
    limit: Duration,
    /// Set while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl StallLimit {
    fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, deadline: None }
    }

    /// Returns the result of a write, or an error if writes have waited for too long.
    fn checked<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.deadline = None;
            return result;
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
        if deadline.as_mut().poll(cx).is_ready() {
            // A later write is refused, too.
            deadline.as_mut().reset(Instant::now());
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncRead for StallLimit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for StallLimit {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.checked(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.checked(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loss_of_a_peer_is_noticed_within_the_time_of_a_write() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let limits = ServeLimits::default();
        notice_loss(&stream, limits.write_timeout);
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(60)));
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
    }
}
