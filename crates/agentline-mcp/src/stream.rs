//! Serves one client on a pair of streams. The end of its input is the end of its runs.

use crate::{
    client::McpClient,
    handler::{AgentToolHandler, ClientSource},
    scope::CallerScope,
    state::ServerState,
};
use rmcp::service::serve_server_with_ct;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// How long the last answers may take after the end of the input.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// The maximum length of a message. A client that sends a longer one is disconnected.
const LONGEST_MESSAGE: usize = 16 << 20;

/// Serves a client until its input or its output ends, or `stop` completes. Returns after its runs are over.
pub(crate) async fn serve(
    state: Arc<ServerState>,
    scope: CallerScope,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()>,
) {
    let client = McpClient::new(scope);
    let ended = CancellationToken::new();
    let input = ClientInput { input, ended: ended.clone(), message: 0 };
    let handler = AgentToolHandler { state, client: ClientSource::One(Arc::clone(&client)) };
    let service = CancellationToken::new();
    let served = async {
        // A client that does not begin with `initialize` gets no answer, as the protocol demands.
        if let Ok(running) = serve_server_with_ct(handler, (input, output), service.clone()).await {
            // The task of the service cannot panic without the connection being over.
            let _ = running.waiting().await;
        }
    };
    let ending = async {
        // At the end of the input, the runs end at once, and with them the calls that wait for them.
        tokio::select! {
            () = ended.cancelled() => {}
            () = stop => {}
        }
        client.close().await;
        service.cancel();
        // A client that does not read its answers does not keep the connection.
        sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        () = served => {}
        () = ending => {}
    }
    client.close().await;
}

/// The input of a client, which reports its end. A message that is too long ends it.
struct ClientInput<R> {
    input: R,
    ended: CancellationToken,
    /// The number of bytes of the current message.
    message: usize,
}

impl<R: AsyncRead + Unpin> AsyncRead for ClientInput<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.input).poll_read(context, buffer));
        let new = &buffer.filled()[before..];
        self.message = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => new.len() - end - 1,
            None => self.message + new.len(),
        };
        let is_end = new.is_empty();
        if read.is_err() || is_end || self.message > LONGEST_MESSAGE {
            self.ended.cancel();
            buffer.set_filled(before);
        }
        Poll::Ready(read)
    }
}
