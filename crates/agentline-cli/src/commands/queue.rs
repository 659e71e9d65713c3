//! The flags of commands that use a queue, and the connection to it.

use crate::{error::CommandError, live_run};
use agentline::Problem;
use agentline_core::error_chain;
use agentline_queue::{ConnectOptions, Queue, QueueError, connect, without_password};
use clap::Args;
use std::{path::PathBuf, sync::Arc, time::Duration};

/// How a queue is reached.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Queue")]
pub(crate) struct QueueArgs {
    /// The queue: nats://HOST, tls://HOST (NATS with TLS), postgres://HOST/NAME, or sqlite:FILE for one machine
    #[arg(long, value_name = "URL", env = "AGENTLINE_QUEUE", hide_env_values = true)]
    queue: Option<String>,
    /// A file with credentials for NATS
    #[arg(long, value_name = "FILE", requires = "queue")]
    queue_credentials: Option<PathBuf>,
    /// A file with the certificate of the authority that signed the server's
    #[arg(long, value_name = "FILE", requires = "queue")]
    queue_ca: Option<PathBuf>,
    /// Where files travel, if not through the queue: a shared directory or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE", requires = "queue")]
    artifacts: Option<String>,
    /// Allow an unencrypted connection to another machine
    #[arg(long, requires = "queue")]
    allow_plaintext: bool,
}

impl QueueArgs {
    /// Returns the address. An empty variable counts as unset.
    pub(crate) fn address(&self) -> Option<&str> {
        self.queue.as_deref().filter(|address| !address.is_empty())
    }

    /// Returns the address, without a password, for messages.
    pub(crate) fn shown(&self) -> String {
        self.address().map(without_password).unwrap_or_default()
    }

    /// Returns whether the address comes from the environment and not from the flag.
    pub(crate) fn is_from_environment(&self) -> bool {
        let is_flag = |arg: std::ffi::OsString| {
            let arg = arg.to_string_lossy();
            arg == "--queue" || arg.starts_with("--queue=")
        };
        self.address().is_some() && !std::env::args_os().any(is_flag)
    }

    /// Connects to the queue, and tries again for some seconds, because a server may be starting.
    pub(crate) async fn connect(&self, patience: Duration) -> Result<Arc<dyn Queue>, CommandError> {
        let Some(address) = self.address() else {
            return Err(Problem::new("--queue", "is missing")
                .hint("name a queue, such as nats://localhost")
                .into());
        };
        let mut options = ConnectOptions::default();
        options.allow_plaintext = self.allow_plaintext;
        options.ca.clone_from(&self.queue_ca);
        options.credentials.clone_from(&self.queue_credentials);
        options.artifacts.clone_from(&self.artifacts);
        let until = std::time::Instant::now() + patience;
        loop {
            match connect(address, &options).await {
                Err(error) if error.is_temporary() && std::time::Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                connected => return connected.map_err(|error| queue_error(&error)),
            }
        }
    }
}

/// Runs a command that only talks to a queue.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    live_run::runtime(1)?.block_on(work)
}

/// Returns an error of a queue with what to do about it.
pub(crate) fn queue_error(error: &QueueError) -> CommandError {
    let hint = match error {
        QueueError::InvalidAddress { .. } => {
            "write nats://HOST, tls://HOST, postgres://HOST/NAME or sqlite:FILE"
        }
        QueueError::Plaintext(_) => "use TLS, or pass --allow-plaintext in a network that you trust",
        QueueError::TooOld { .. } => "upgrade the server",
        QueueError::Unauthorized(_) => "check the user, password, token or credentials file",
        QueueError::Unavailable(_) => "check the address, and that the server runs",
        QueueError::Storage(_) => {
            "check that the place of --artifacts is there, that this user may write to it, and that it has space"
        }
        QueueError::InvalidName(_) => "`agentline batch status` lists the names of experiments",
        // The message says what to do.
        QueueError::Refused(message) if message.contains("; ") => "change the server, or use another --queue",
        QueueError::TooLarge { .. } => {
            "use --artifacts with a shared directory or a bucket, or make it smaller"
        }
        _ => "check the server's log",
    };
    match error {
        QueueError::InvalidAddress { .. } | QueueError::Plaintext(_) => {
            Problem::new("--queue", error_chain(error)).hint(hint).into()
        }
        error => CommandError::Unable { message: error_chain(error), hint: hint.into() },
    }
}
