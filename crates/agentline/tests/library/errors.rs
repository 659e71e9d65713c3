//! Checks that errors say each thing once: the `Display` of an error does not repeat its source.

use agentline::{
    Error, FailureKind, Outcome, Problem, Problems, TypedError, Verdict,
    agent_cli::LoadError,
    install::InstallError,
    internals::{files::FileError, process::SpawnError},
    sessions::SessionError,
};
use agentline_core::{Failure, RunInfo};
use std::{error, io, iter};

/// An error with a text that no other error has.
fn cause() -> io::Error {
    io::Error::other("the disk is on fire")
}

fn io_error() -> Error {
    Error::Io { operation: "read", path: "a.json".into(), source: cause() }
}

fn mismatch() -> TypedError {
    let source = serde_json::from_str::<u8>("300").expect_err("300 is too large");
    let failure = Failure::new(FailureKind::InvalidOutput, "no value");
    let outcome = Outcome::not_started(&RunInfo::default(), Verdict::InvalidOutput, failure);
    TypedError::Mismatch { source, outcome: Box::new(outcome) }
}

/// Returns every kind of error that wraps another, and some that wrap none.
fn errors() -> Vec<Box<dyn error::Error>> {
    let problem = || Problem::new("model", "is wrong").hint("use another");
    let program = || "agent".into();
    vec![
        Box::new(io_error()),
        Box::new(Error::Usage(problem().into())),
        Box::new(Error::NoSession(problem())),
        Box::new(SessionError::Io { operation: "read", path: "a.json".into(), source: cause() }),
        Box::new(SessionError::Usage(problem().into())),
        Box::new(SessionError::NoSession(problem())),
        Box::new(SpawnError::NotExecutable { program: program(), source: cause() }),
        Box::new(SpawnError::Supervisor { program: program(), source: cause() }),
        Box::new(SpawnError::NoNamespace { source: cause() }),
        Box::new(SpawnError::from(cause())),
        Box::new(InstallError::Cache { doing: "create", path: program(), source: cause() }),
        Box::new(FileError::Io { path: "a.txt".into(), source: cause() }),
        Box::new(LoadError::from(io_error())),
        Box::new(TypedError::from(io_error())),
        Box::new(mismatch()),
        Box::new(Problems::from(problem())),
        Box::new("Bash(git".parse::<agentline::Rule>().expect_err("it is not closed")),
    ]
}

#[test]
fn display_of_an_error_does_not_repeat_its_source() {
    let mut wrapping = 0;
    for error in errors() {
        for error in iter::successors(Some(&*error), |error| error.source()) {
            if let Some(source) = error.source() {
                wrapping += 1;
                let (shown, source) = (error.to_string(), source.to_string());
                assert!(!shown.contains(&source), "`{shown}` repeats `{source}`");
            }
        }
    }
    assert_eq!(wrapping, 10);
}

#[test]
fn sources_complete_the_message() {
    for error in errors() {
        let chain = agentline_core::error_chain(&*error);
        let wraps_cause = iter::successors(Some(&*error), |error| error.source())
            .any(|error| error.to_string().contains("on fire"));
        assert_eq!(chain.matches("the disk is on fire").count(), usize::from(wraps_cause), "{chain}");
    }
    let chain = agentline_core::error_chain(&io_error());
    assert_eq!(chain, "cannot read a.json: the disk is on fire");
    assert!(agentline_core::error_chain(&mismatch()).contains("300"));
}
