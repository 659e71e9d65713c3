//! Inner servers: an agent that this server started gets tools of this server over a private socket.
//!
//! The process that the agent starts as its MCP server only copies its standard streams to that socket, after one line
//! with the token of the run. Everything else happens in the outermost server.

pub use crate::state::PARENT_VARIABLE;
use crate::{
    state::{ServerState, TOKEN_VARIABLE},
    stream,
};
use std::{
    collections::BTreeMap,
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::{sleep, timeout},
};

/// The maximum length of the first line.
const LONGEST_TOKEN: u64 = 256;
/// How long a connection may take to send its token.
const TOKEN_TIME: Duration = Duration::from_secs(10);
/// What the outermost server answers to a token that it knows.
const ACCEPTED: &[u8] = b"ok\n";
/// How long an inner server waits for the last answers after the end of its input.
const LAST_ANSWERS: Duration = Duration::from_secs(30);
/// How many connections are open at the same time. Further ones wait.
const CONNECTIONS: usize = 256;
/// The delay before accepting again when the process is out of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The socket for inner servers. Dropping it removes it.
pub(crate) struct NestedListener {
    listener: UnixListener,
    path: PathBuf,
    /// Only this user can enter it.
    _dir: TempDir,
}

impl NestedListener {
    /// Opens the socket.
    ///
    /// # Errors
    /// Fails if the directory or the socket cannot be created.
    pub(crate) fn open() -> io::Result<Self> {
        let private = Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix("agentline-mcp-").permissions(private).tempdir()?;
        let path = dir.path().join("parent.sock");
        Ok(Self { listener: UnixListener::bind(&path)?, path, _dir: dir })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts connections until the future is dropped.
    pub(crate) async fn accept(&self, state: &Arc<ServerState>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(serve(stream, Arc::clone(state)))),
                    Err(_) => sleep(ACCEPT_AGAIN).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// Serves an inner server, until it ends or the run that it belongs to is over.
async fn serve(stream: UnixStream, state: Arc<ServerState>) {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input);
    let mut line = String::new();
    let mut first = (&mut input).take(LONGEST_TOKEN);
    if !matches!(timeout(TOKEN_TIME, first.read_line(&mut line)).await, Ok(Ok(_))) {
        return;
    }
    // An unknown token is that of a run that is over.
    let Some(run) = state.parent(line.trim()) else { return };
    let Ok(_place) = run.inner.try_acquire() else { return };
    if !matches!(timeout(TOKEN_TIME, output.write_all(ACCEPTED)).await, Ok(Ok(()))) {
        return;
    }
    let scope = run.scope.clone();
    stream::serve(state, scope, input, output, run.ended()).await;
}

/// Returns whether this process belongs to a run of another server, according to its environment.
#[must_use]
pub fn has_parent(env: &BTreeMap<String, String>) -> bool {
    value(env, PARENT_VARIABLE).is_some()
}

fn value<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a String> {
    env.get(name).filter(|value| !value.is_empty())
}

/// Connects the streams of an inner server to the outermost one, if the environment names one. Returns `false` if it
/// does not, so that this process is an outermost server itself.
///
/// # Errors
/// Fails if the outermost server cannot be reached or does not know the token.
pub async fn connect_to_parent(
    env: &BTreeMap<String, String>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<bool> {
    let Some(socket) = value(env, PARENT_VARIABLE) else { return Ok(false) };
    let token = value(env, TOKEN_VARIABLE).map(String::as_str).unwrap_or_default();
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(format!("{token}\n").as_bytes()).await?;
    let mut answer = [0; ACCEPTED.len()];
    if stream.read_exact(&mut answer).await.is_err() || answer != ACCEPTED {
        let message =
            format!("it does not know the token in {TOKEN_VARIABLE}, or the run of the token is over");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    copy(stream, input, output).await?;
    Ok(true)
}

async fn copy(
    stream: UnixStream,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let up = async {
        let copied = tokio::io::copy(&mut input, &mut to).await;
        // The outermost server sees the end of the input.
        drop(to);
        copied?;
        sleep(LAST_ANSWERS).await;
        Ok(())
    };
    let down = async {
        tokio::io::copy(&mut from, &mut output).await?;
        output.flush().await
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn process_without_the_variable_is_no_inner_server() {
        for env in [BTreeMap::new(), BTreeMap::from([(PARENT_VARIABLE.to_owned(), String::new())])] {
            assert!(!connect_to_parent(&env, tokio::io::empty(), tokio::io::sink()).await.unwrap());
        }
    }

    #[tokio::test]
    async fn inner_server_fails_if_the_outermost_one_is_gone() {
        let gone = NestedListener::open().unwrap().path().to_string_lossy().into_owned();
        let env = BTreeMap::from([(PARENT_VARIABLE.to_owned(), gone)]);
        assert!(connect_to_parent(&env, tokio::io::empty(), tokio::io::sink()).await.is_err());
    }

    #[test]
    fn only_this_user_can_reach_the_socket() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let listener = NestedListener::open().unwrap();
        let mode = std::fs::metadata(listener.path().parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
