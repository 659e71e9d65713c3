//! The names and settings of streams, consumers and subjects.

use async_nats::jetstream::{
    consumer::{AckPolicy, pull},
    stream::{Config, DiscardPolicy, StorageType},
};
use std::time::Duration;

/// The subject on which clients report changes.
pub(super) const WAKE_SUBJECT: &str = "agentline_changes";
/// The stream of records, which also counts the claims of jobs that were given back.
pub(super) const RECORDS: &str = "agentline_records";

/// What a stream of an experiment contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Job,
    Lease,
    Result,
}

impl Kind {
    fn token(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Lease => "lease",
            Self::Result => "result",
        }
    }
}

/// Returns the name of a stream of an experiment.
pub(super) fn name(kind: Kind, experiment: &str) -> String {
    format!("agentline_{}_{experiment}", kind.token())
}

/// Returns the settings of a stream of an experiment.
pub(super) fn of_experiment(kind: Kind, experiment: &str) -> Config {
    // A lease is replaced; a job and a result never are.
    let is_fixed = kind != Kind::Lease;
    Config {
        name: name(kind, experiment),
        subjects: vec![format!("agentline.{experiment}.{}.>", kind.token())],
        discard: if is_fixed { DiscardPolicy::New } else { DiscardPolicy::Old },
        discard_new_per_subject: is_fixed,
        allow_direct: kind == Kind::Result,
        ..one_message_per_subject()
    }
}

/// Returns the settings of the stream of records.
pub(super) fn of_records() -> Config {
    Config {
        name: RECORDS.into(),
        subjects: vec![format!("{RECORDS}.>"), "agentline_released.>".into()],
        ..one_message_per_subject()
    }
}

fn one_message_per_subject() -> Config {
    Config {
        storage: StorageType::File,
        max_messages_per_subject: 1,
        max_messages: -1,
        max_bytes: -1,
        max_consumers: -1,
        num_replicas: 1,
        ..Config::default()
    }
}

/// Returns the settings of the consumer of a route.
pub(super) fn consumer(experiment: &str, route: &str, lease: Duration) -> pull::Config {
    pull::Config {
        durable_name: Some(route.to_owned()),
        filter_subject: job_subject(experiment, route, "*"),
        ack_policy: AckPolicy::Explicit,
        ack_wait: lease,
        max_deliver: -1,
        max_ack_pending: -1,
        ..pull::Config::default()
    }
}

/// Returns the subject of a job.
pub(super) fn job_subject(experiment: &str, route: &str, job: &str) -> String {
    format!("agentline.{experiment}.job.{route}.{job}")
}

/// Returns the subject of a lease.
pub(super) fn lease_subject(experiment: &str, job: &str) -> String {
    format!("agentline.{experiment}.lease.{job}")
}

/// Returns the subject of a result.
pub(super) fn result_subject(experiment: &str, job: &str) -> String {
    format!("agentline.{experiment}.result.{job}")
}

/// Returns the subject of the number of earlier claims of a job that was given back.
pub(super) fn released_subject(experiment: &str, job: &str) -> String {
    format!("agentline_released.{experiment}.{job}")
}

/// Returns the subject of a record.
pub(super) fn record_subject(name: &str) -> String {
    format!("{RECORDS}.{name}")
}

/// Returns the name of the object store of an experiment.
pub(super) fn artifact_bucket(experiment: &str) -> String {
    format!("agentline_{experiment}")
}

/// Returns the name of the stream of an object store.
pub(super) fn artifact_stream(experiment: &str) -> String {
    format!("OBJ_{}", artifact_bucket(experiment))
}
