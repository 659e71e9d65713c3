//! Carries one run through the pool: its place, its events, and a second try when its agent died before it spoke.

use super::{
    key::Wanted,
    lanes::{Grant, Lanes, Place, StartRight},
};
use crate::{
    agentline::Agentline,
    gear::Served,
    link::{Bell, Came, Driven, Held},
    live::LiveHandle,
    ready::not_started,
    seat::Tell,
};
use agentline_core::{Event, Failure, Kind, Outcome, Record, Verdict, Want};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How often a run is begun at most.
const TRIES: u32 = 2;

/// One run on its way through the pool.
pub(super) struct Carrier {
    pub(super) agentline: Agentline,
    pub(super) lanes: Arc<Lanes>,
    pub(super) wanted: Arc<Wanted>,
    pub(super) link: Driven,
    pub(super) bell: Bell,
}

/// How a try ended.
enum Tried {
    Over(Box<Outcome>),
    /// The agent was lost before it had said anything.
    Unheard(Box<Outcome>),
}

impl Carrier {
    pub(super) async fn carry(self) {
        let begun = Instant::now();
        let mut outcome = None;
        for attempt in 1..=TRIES {
            let place = tokio::select! {
                place = self.place() => place,
                stopped = self.stopped() => Err(Box::new(self.cancelled(stopped))),
                () = tokio::time::sleep(self.patience(begun)) => Err(Box::new(self.waited_too_long())),
            };
            match place {
                Err(end) => outcome = Some(end),
                Ok(place) => match self.ride(place).await {
                    Tried::Over(end) => outcome = Some(end),
                    Tried::Unheard(end) => {
                        outcome = Some(end);
                        if attempt < TRIES {
                            self.lanes.retried();
                            continue;
                        }
                    }
                },
            }
            break;
        }
        if let Some(outcome) = outcome {
            self.link.finish(*outcome);
        }
    }

    /// A place on a process, started for this where there is none.
    async fn place(&self) -> Result<Place, Box<Outcome>> {
        match self.lanes.place(&self.wanted).await {
            Grant::Place(place) => Ok(place),
            Grant::Start(right) => start(&self.agentline, right, &self.wanted).await,
            Grant::Refused(why) => {
                Err(Box::new(self.not_begun(Verdict::Failed, Failure::new(Kind::Spawn, why))))
            }
        }
    }

    /// Goes the whole way on one process.
    async fn ride(&self, mut place: Place) -> Tried {
        let wanted = Arc::clone(&self.wanted);
        let home = place.live.agent_home.clone();
        let made = self.agentline.blocking(move |inner| {
            let served = inner.serve(&wanted.asked, &wanted.options, &wanted.launch.servers)?;
            inner.trip(&wanted.asked, &wanted.launch, &home, &wanted.options, Served::Now(served))
        });
        let mut trip = match made.await {
            Ok(trip) => trip,
            Err(error) => {
                let outcome = self.agentline.inner().not_prepared(&self.wanted.asked.who, &error);
                return Tried::Over(Box::new(outcome));
            }
        };
        if let Some(session) = place.spare.take() {
            trip.order.session = Want::Open(session);
        }
        let run = place.live.board(trip, Tell::AtOnce);
        let tried = self.forward(&run).await;
        if let Tried::Unheard(_) = tried {
            place.retire();
        }
        tried
    }

    /// Hands events on. Those of a run that has not spoken yet are kept, so that it can be begun again.
    async fn forward(&self, run: &Held) -> Tried {
        let mut kept: Vec<Record> = Vec::new();
        let mut spoke = false;
        let stopper = run.stopper();
        loop {
            let came = tokio::select! {
                came = std::future::poll_fn(|cx| run.poll(cx)), if !self.link.is_full() => came,
                stopped = self.rung() => {
                    if let Some(signal) = stopped {
                        stopper.stop(signal);
                    }
                    continue;
                }
            };
            match came {
                Came::Batch(mut batch) => {
                    spoke |= batch.iter().any(|record| is_heard(&record.event));
                    if spoke {
                        kept.append(&mut batch);
                        self.link.send(std::mem::take(&mut kept));
                    } else {
                        kept.append(&mut batch);
                    }
                }
                Came::Over(outcome) => {
                    let outcome = outcome.unwrap_or_else(|| {
                        let lost = Failure::new(Kind::Crashed, "the agent was torn down from inside");
                        Box::new(self.not_begun(Verdict::Failed, lost))
                    });
                    if !spoke && lost_early(&outcome) {
                        return Tried::Unheard(outcome);
                    }
                    if !kept.is_empty() {
                        self.link.send(kept);
                    }
                    return Tried::Over(outcome);
                }
            }
        }
    }

    /// Waits until the caller wants the run stopped.
    async fn stopped(&self) -> i32 {
        loop {
            if let Some(signal) = self.link.stop() {
                return signal;
            }
            self.bell.notified().await;
        }
    }

    /// Waits until the caller wants the run stopped, or has made room for more.
    async fn rung(&self) -> Option<i32> {
        match self.link.stop() {
            Some(signal) => Some(signal),
            None => {
                self.bell.notified().await;
                self.link.stop()
            }
        }
    }

    /// How long the run may still wait for a place.
    fn patience(&self, begun: Instant) -> Duration {
        let request = &self.wanted.asked.plan.request;
        let left = request.timeout.saturating_sub(begun.elapsed());
        request.deadline.map_or(left, |when| left.min(crate::ready::time_until(when)))
    }

    fn not_begun(&self, verdict: Verdict, failure: Failure) -> Outcome {
        Outcome::not_begun(&self.wanted.asked.who, verdict, failure)
    }

    fn cancelled(&self, signal: i32) -> Outcome {
        let by = if signal == 15 { "SIGTERM" } else { "SIGINT" };
        let failure =
            Failure::new(Kind::Cancelled, format!("stopped by the caller ({by}) before it had begun"));
        self.not_begun(Verdict::Cancelled, failure)
    }

    fn waited_too_long(&self) -> Outcome {
        let failure =
            Failure::new(Kind::TimeoutRun, "the run waited for a place in the pool for all of its time");
        self.not_begun(Verdict::TimedOut, failure.hint("give the pool more processes, or the run more time"))
    }
}

/// Starts a process for the pool.
async fn start(
    agentline: &Agentline,
    right: StartRight,
    wanted: &Arc<Wanted>,
) -> Result<Place, Box<Outcome>> {
    let begun = Instant::now();
    let wanted = Arc::clone(wanted);
    let for_start = Arc::clone(&wanted);
    let start = agentline.blocking(move |inner| inner.start_shared(&for_start.asked)).await;
    let start = start.map_err(|error| Box::new(agentline.inner().not_prepared(&wanted.asked.who, &error)))?;
    let agent = start.agent;
    let mark = uuid::Uuid::new_v4().to_string();
    match LiveHandle::start(agentline.inner(), start, &mark, begun) {
        Ok(live) => Ok(right.started(live, &wanted)),
        Err(error) => Err(Box::new(not_started(&wanted.asked.who, agent, &error))),
    }
}

/// Starts a process with a session that waits for its run; says whether it is ready.
pub(super) async fn prewarm(agentline: &Agentline, lanes: &Arc<Lanes>, wanted: &Arc<Wanted>) -> bool {
    let Some(right) = lanes.start_right(wanted) else { return false };
    let Ok(place) = start(agentline, right, wanted).await else { return false };
    open_spare(agentline, &place, wanted).await
}

/// Opens a session for a run to come.
async fn open_spare(agentline: &Agentline, place: &Place, wanted: &Arc<Wanted>) -> bool {
    let (for_trip, home) = (Arc::clone(wanted), place.live.agent_home.clone());
    let opening =
        agentline.blocking(move |inner| inner.opening_trip(&for_trip.asked, &for_trip.launch, &home));
    let run = place.live.board(opening.await, Tell::AtOnce);
    let outcome = loop {
        if let Came::Over(outcome) = std::future::poll_fn(|cx| run.poll(cx)).await {
            break outcome;
        }
    };
    match outcome.filter(|outcome| outcome.error.is_none()).and_then(|outcome| outcome.session_id) {
        Some(session) => {
            // One that nobody else could use is not kept.
            wanted.session.into_iter().for_each(|key| place.keep_spare(key, session.clone()));
            true
        }
        None => {
            place.retire();
            false
        }
    }
}

/// Whether something happened that cannot be undone by beginning again.
fn is_heard(event: &Event) -> bool {
    !matches!(
        event,
        Event::Started(_)
            | Event::Warning { .. }
            | Event::Unreadable { .. }
            | Event::Commands { .. }
            | Event::Mode { .. }
            | Event::ConfigOption { .. }
            | Event::SessionInfo { .. }
            | Event::Agent { .. }
    )
}

/// The agent was lost, not the run refused.
fn lost_early(outcome: &Outcome) -> bool {
    outcome
        .error
        .as_ref()
        .is_some_and(|error| matches!(error.kind, Kind::Crashed | Kind::NoResult | Kind::TimeoutStartup))
        && outcome.files.is_empty()
}
