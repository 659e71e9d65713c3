//! The outcomes that the server itself gives to runs.

use crate::messages::ServedRun;
use agentline::{FailureKind, Verdict, agents::AgentId, host::messages::RpcError};
use agentline_core::{Failure, Outcome, RunInfo};
use serde_json::{Value, json};

/// Returns the outcome of a run that ended because the server stopped.
pub(crate) fn interrupted(run: &ServedRun) -> Outcome {
    let failure = Failure::new(FailureKind::Interrupted, "the server stopped while the run was in progress");
    outcome(run, Verdict::Failed, failure.hint(resume_hint(run.session_id.as_deref())))
}

/// Changes the outcome of a run that was cancelled because the server stops. What it did until then is kept.
pub(crate) fn interrupt(outcome: &mut Value, run: &ServedRun) {
    let session = outcome.get("session_id").and_then(Value::as_str).or(run.session_id.as_deref());
    let hint = resume_hint(session);
    outcome["verdict"] = json!(Verdict::Failed);
    let stopped = interrupted(run).error.map(|error| json!(error)).unwrap_or_default();
    outcome["error"] = stopped;
    outcome["error"]["hint"] = hint.into();
}

/// Returns the outcome of a prompt that was cancelled before it was sent.
pub(crate) fn never_sent(run: &ServedRun) -> Outcome {
    let failure = Failure::new(FailureKind::Cancelled, "cancelled before the prompt was sent");
    outcome(run, Verdict::Cancelled, failure)
}

/// Returns the outcome of a run that the engine refused after it was accepted.
pub(crate) fn refused(run: &ServedRun, error: &RpcError) -> Value {
    let known =
        error.data.as_ref().and_then(|data| data.get("outcome")).filter(|outcome| outcome.is_object());
    known.cloned().unwrap_or_else(|| {
        let failure = Failure::new(FailureKind::Settings, error.message.clone());
        json!(outcome(run, Verdict::Failed, failure))
    })
}

fn resume_hint(session: Option<&str>) -> String {
    match session {
        Some(session) => format!("start a run with `resume` set to `{session}` to continue the session"),
        None => "start the run again".to_owned(),
    }
}

fn outcome(run: &ServedRun, verdict: Verdict, failure: Failure) -> Outcome {
    let mut info = RunInfo::default();
    info.run_id.clone_from(&run.run);
    info.agent = AgentId::from(run.agent.clone().unwrap_or_default());
    info.model.clone_from(&run.model);
    info.name.clone_from(&run.name);
    info.cwd = run.working_dir.clone().unwrap_or_default();
    let mut outcome = Outcome::not_started(&info, verdict, failure);
    outcome.session_id.clone_from(&run.session_id);
    outcome.cost_usd = run.cost_usd;
    outcome
}
