//! Waits for a run on behalf of one call: reports progress and asks the client for permissions, for a limited time.

use crate::{
    question::RunQuestion,
    run_table::{AgentRun, RunView},
};
use rmcp::{
    RoleServer,
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, InputRequest,
        ProgressNotificationParam, ProgressToken, ServerRequest,
    },
    service::{Peer, PeerRequestOptions},
    task_manager::{TaskContext, TaskManager},
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// How often progress is reported if something changed.
const TICK: Duration = Duration::from_secs(1);
/// How often it is reported otherwise, so that clients see that the call is alive.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long a client may take to accept a notification.
const NOTIFY_TIME: Duration = Duration::from_secs(5);

/// Why a wait ended.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The run is over.
    Over,
    /// The time is over.
    Running,
    /// The client has to answer these questions; see [`AskBy::Result`].
    Input(Vec<Arc<RunQuestion>>),
    /// The client cancelled the call.
    Cancelled,
}

/// How the client is asked for permissions.
#[derive(Clone)]
pub(crate) enum AskBy {
    /// It cannot be asked.
    None,
    /// With a request to the client, up to protocol 2025-11-25.
    Peer(Peer<RoleServer>),
    /// With the result of the call, which the client repeats, from protocol 2026-07-28.
    Result,
    /// With the state of a task.
    Task(TaskContext, TaskManager),
}

/// Where progress is reported.
pub(crate) enum ReportTo {
    /// The client did not ask for progress.
    Discard,
    /// Notifications for this token.
    Peer(Peer<RoleServer>, ProgressToken),
    /// The status message of a task.
    Task(TaskContext),
}

/// Sends the progress of a run.
struct Reporter {
    to: ReportTo,
    last: Option<(String, Instant)>,
    count: u32,
}

/// Waits until the run is over, the time is over, or the client has to do something.
pub(crate) async fn wait(
    run: &AgentRun,
    until: Instant,
    ask: AskBy,
    report: ReportTo,
    cancelled: &CancellationToken,
) -> Waited {
    let mut view = run.view();
    let mut open = run.board.as_ref().map(|board| board.open());
    let mut reporter = Reporter { to: report, last: None, count: 0 };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answered: Vec<String> = Vec::new();
    loop {
        if view.borrow_and_update().is_over() {
            return Waited::Over;
        }
        let mut questions = open.as_mut().map(|open| open.borrow_and_update().clone()).unwrap_or_default();
        // The agent may not have received an answer that has just been given.
        questions.retain(|question| question.is_open());
        let question = questions.iter().find(|question| !answered.contains(&question.id));
        match (&ask, question) {
            (AskBy::Result, Some(_)) => return Waited::Input(questions),
            (AskBy::Peer(_) | AskBy::Task(..), Some(question)) => {
                let asked = put_question(&ask, question, until.min(question.deadline));
                tokio::select! {
                    () = asked => answered.push(question.id.clone()),
                    () = over(&mut view) => {}
                    () = cancelled.cancelled() => return Waited::Cancelled,
                }
                if Instant::now() >= until && !view.borrow().is_over() {
                    return Waited::Running;
                }
                continue;
            }
            _ => {}
        }
        tokio::select! {
            _ = view.changed() => {}
            () = changed(&mut open) => {}
            () = sleep_until(until) => return Waited::Running,
            () = cancelled.cancelled() => return Waited::Cancelled,
            _ = ticks.tick() => {
                let line = view.borrow().progress.line();
                reporter.report(line).await;
            }
        }
    }
}

async fn over(view: &mut watch::Receiver<RunView>) {
    // The sender lives as long as the run, which the caller holds.
    let _ = view.wait_for(RunView::is_over).await;
}

async fn changed(open: &mut Option<watch::Receiver<Vec<Arc<RunQuestion>>>>) {
    let reported = match open {
        Some(open) => open.changed().await.is_ok(),
        None => false,
    };
    if !reported {
        std::future::pending().await
    }
}

/// Asks the client, until the deadline at most. A question without an answer stays open until its own deadline.
async fn put_question(by: &AskBy, question: &RunQuestion, deadline: Instant) {
    let request = elicitation(question);
    match by {
        AskBy::Peer(peer) => {
            let time = deadline.saturating_duration_since(Instant::now());
            let sent = peer.send_request_with_option(
                ServerRequest::ElicitRequest(request),
                PeerRequestOptions::with_timeout(time),
            );
            let answer = async { sent.await?.await_response().await };
            match timeout_at(deadline + TICK, answer).await {
                Ok(Ok(ClientResult::ElicitResult(result))) => {
                    question.answer(result.action == ElicitationAction::Accept);
                }
                Ok(Err(rmcp::ServiceError::Timeout { .. })) | Err(_) => {}
                // A client that declares elicitation and then refuses to ask cannot allow anything.
                Ok(_) => question.answer(false),
            }
        }
        AskBy::Task(context, tasks) => {
            let asked = context.request_input(&question.id, InputRequest::Elicitation(request));
            match timeout_at(deadline, asked).await {
                Ok(Ok(answer)) => question.answer(is_accepted(&answer)),
                Ok(Err(_)) => question.answer(false),
                Err(_) => {
                    // Removes the question from the state of the task.
                    let stale = [(question.id.clone(), Value::Null)];
                    let _ = tasks.update_task(context.task_id(), stale);
                }
            }
        }
        AskBy::None | AskBy::Result => {}
    }
}

/// Returns the request to the client for a question: a form without fields, to accept or decline.
pub(crate) fn elicitation(question: &RunQuestion) -> ElicitRequest {
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question.message.clone(),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    })
}

/// Returns whether the answer of a client allows the use of the tool.
pub(crate) fn is_accepted(answer: &Value) -> bool {
    answer["action"] == "accept"
}

impl Reporter {
    async fn report(&mut self, line: String) {
        let is_due = match &self.last {
            None => true,
            Some((last, at)) => *last != line || at.elapsed() >= HEARTBEAT,
        };
        if !is_due {
            return;
        }
        self.count += 1;
        match &self.to {
            ReportTo::Discard => {}
            ReportTo::Peer(peer, token) => {
                let progress = ProgressNotificationParam::new(token.clone(), f64::from(self.count))
                    .with_message(line.as_str());
                // A client that does not read its notifications does not delay the answer for long.
                let _ = timeout(NOTIFY_TIME, peer.notify_progress(progress)).await;
            }
            ReportTo::Task(context) => context.set_status_message(line.as_str()),
        }
        self.last = Some((line, Instant::now()));
    }
}
