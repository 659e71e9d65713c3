//! Queues of jobs that workers on several machines share.
//!
//! A [`Queue`] holds the jobs of experiments. A worker claims a job for a limited time (a [`Lease`]), renews the lease while
//! it works, and commits one result. If a worker disappears, its lease ends and another worker claims the job. Only one
//! result of a job is ever committed, whoever is late.
//!
//! A queue knows nothing about agents: payloads, results and records are bytes. It is implemented with SQLite for the
//! workers of one machine, and with NATS JetStream and PostgreSQL for those of several.

mod artifacts;
mod clock;
mod connect;
mod error;
mod lease;
mod names;
#[cfg(feature = "nats")]
mod nats;
mod options;
#[cfg(feature = "postgres")]
mod postgres;
mod queue;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tree;
mod untrusted;
mod with_artifacts;

pub use artifacts::{
    ArtifactFuture, ArtifactVisitor, Artifacts, DirectoryArtifacts, MAX_ARTIFACT, artifact_name,
};
pub use clock::{Clock, SystemClock, TestClock};
pub use connect::connect;
pub use error::QueueError;
pub use lease::{LeaseState, LeaseTimer};
pub use names::{check_name, check_part};
#[cfg(feature = "nats")]
pub use nats::NatsQueue;
pub use options::{ConnectOptions, without_password};
#[cfg(feature = "postgres")]
pub use postgres::PostgresQueue;
pub use queue::{
    CommitResult, Cursor, Job, JobCounts, JobRoute, Lease, Queue, QueueFuture, QueueRecord, ResultPage,
    StoredResult,
};
#[cfg(feature = "s3")]
pub use s3::S3Artifacts;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteQueue;
pub use tree::{TreeError, TreeLimits, TreeRef, download_tree, upload_tree};
