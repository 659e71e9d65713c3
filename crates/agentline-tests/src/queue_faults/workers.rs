//! The workers of a test with faults.

use super::{
    Disturbance, EXPERIMENT, FaultPlan, FaultReport, Outage, Proxy, Random, add_reclaims,
    log::{Logs, is_idle},
    now,
    worker::QueueWorkerOptions,
};
use crate::{
    engines::{Engine, FakeDate},
    wait_in_runtime,
};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A process.
#[derive(Debug)]
struct WorkerProcess {
    child: Child,
    log: PathBuf,
    proxy: Option<Arc<Proxy>>,
    /// Until when it is stopped or cut off.
    disturbed_until: Option<Instant>,
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All workers. They are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Workers {
    program: PathBuf,
    plan: FaultPlan,
    dir: TempDir,
    /// The date of the first worker and of the server.
    date: Option<FakeDate>,
    running: Vec<WorkerProcess>,
    /// The logs of killed workers, and when they were killed.
    killed: Vec<(PathBuf, Duration)>,
    /// The logs of stopped workers, and when they were stopped.
    stopped: Vec<(PathBuf, Duration)>,
    started: usize,
    /// The most memory that a worker had, in kilobytes.
    memory_kb: u64,
}

impl Workers {
    pub(super) fn new(program: &Path, plan: &FaultPlan) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let date = FakeDate::new(dir.path());
        let program = program.to_owned();
        Self {
            program,
            plan: plan.clone(),
            dir,
            date,
            running: Vec::new(),
            killed: Vec::new(),
            stopped: Vec::new(),
            started: 0,
            memory_kb: 0,
        }
    }

    /// Starts a worker in a place, with its own connection to the server.
    pub(super) async fn start(&mut self, number: usize, engine: &Engine) {
        let proxy = match engine.port() {
            Some(port) => Some(Arc::new(Proxy::start(port).await)),
            None => None,
        };
        let options = QueueWorkerOptions {
            address: proxy.as_ref().map_or_else(|| engine.address(), |proxy| engine.address_at(proxy.port())),
            experiment: EXPERIMENT.into(),
            lease: self.plan.lease,
            slots: self.plan.slots,
            longest_work: self.plan.longest_work,
        };
        self.started += 1;
        let log = self.dir.path().join(format!("{}.log", self.started));
        let mut command = Command::new(&self.program);
        command.args(options.arguments()).arg(&log).stdin(Stdio::piped()).stdout(Stdio::null());
        if let Some(date) = self.date.as_ref().filter(|_| number == 0) {
            date.apply(&mut command);
        }
        let child = command.spawn().expect("a worker");
        let worker = WorkerProcess { child, log, proxy, disturbed_until: None };
        // A worker that was killed has left its place.
        self.running.insert(number.min(self.running.len()), worker);
    }

    /// Returns a worker that is neither stopped nor cut off, if there are others.
    pub(super) fn pick(&self, random: &mut Random) -> Option<usize> {
        let is_free =
            |worker: &WorkerProcess| worker.disturbed_until.is_none_or(|until| until < Instant::now());
        let free: Vec<usize> =
            (0..self.running.len()).filter(|number| is_free(&self.running[*number])).collect();
        let index = usize::try_from(random.below(free.len() as u64)).unwrap_or(0);
        free.get(index).copied().filter(|_| free.len() > 2)
    }

    /// Kills a worker.
    pub(super) fn kill(&mut self, number: usize) {
        let mut worker = self.running.remove(number);
        self.memory_kb = self.memory_kb.max(peak_memory_kb(worker.child.id()).unwrap_or(0));
        worker.child.kill().expect("our child");
        worker.child.wait().expect("our child");
        self.killed.push((worker.log.clone(), now()));
    }

    /// Stops a worker for twice the lease.
    pub(super) fn stop(&mut self, number: usize) {
        let (worker, time) = (&mut self.running[number], self.plan.lease * 2);
        let pid = worker.child.id();
        signal("-STOP", pid);
        self.stopped.push((worker.log.clone(), now()));
        worker.disturbed_until = Some(Instant::now() + time + Duration::from_millis(200));
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            signal("-CONT", pid);
        });
    }

    /// Disturbs the connection of a worker, perhaps for longer than a lease.
    pub(super) fn cut(&mut self, number: usize, random: &mut Random) {
        let longest = u64::try_from(self.plan.lease.as_millis()).unwrap_or(u64::MAX) * 3 / 2;
        let time = Duration::from_millis(random.below(longest));
        let delay = Duration::from_millis(20 + random.below(300));
        let mode = [Disturbance::Delay(delay), Disturbance::Drop, Disturbance::Reset]
            [usize::try_from(random.below(3)).unwrap_or(0)];
        let worker = &mut self.running[number];
        let Some(proxy) = worker.proxy.clone() else { return };
        proxy.disturb(mode);
        worker.disturbed_until = Some(Instant::now() + time);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            proxy.disturb(Disturbance::None);
        });
    }

    /// Returns the date of the first worker and of the server; `None` if it cannot be changed.
    pub(super) fn date(&self) -> Option<&FakeDate> {
        self.date.as_ref()
    }

    /// Changes the date by up to a day, in both directions.
    pub(super) fn change_date(&self, random: &mut Random) {
        let sign = ['+', '-'][usize::try_from(random.below(2)).unwrap_or(0)];
        if let Some(date) = &self.date {
            date.set(&format!("{sign}{}", random.below(86_400)));
        }
    }

    /// Returns whether a worker is stopped, or was stopped a moment ago.
    pub(super) fn was_stopped_since(&self, time: Duration) -> bool {
        let since = now().saturating_sub(self.plan.lease * 2 + time);
        self.stopped.last().is_some_and(|(_, at)| *at >= since)
    }

    /// Waits until stopped workers have continued and none has a job.
    pub(super) async fn settle(&mut self) {
        for worker in &self.running {
            if let Some(until) = worker.disturbed_until {
                tokio::time::sleep_until(until.into()).await;
            }
        }
        wait_in_runtime("workers without jobs", || self.running.iter().all(|worker| is_idle(&worker.log)))
            .await;
    }

    /// Kills all workers, which have no jobs, and returns the most memory that one had, in kilobytes.
    pub(super) fn kill_all(&mut self) -> u64 {
        while !self.running.is_empty() {
            self.kill(0);
        }
        self.memory_kb
    }

    /// Reads the logs of all workers, which are killed.
    pub(super) fn summarize(
        &self,
        results: &HashMap<String, Vec<u8>>,
        outages: &[Outage],
        report: &mut FaultReport,
    ) {
        let mut logs = Logs::default();
        let had: Vec<_> = self.killed.iter().map(|(log, at)| (logs.add(log), *at)).collect();
        for (had, killed_at) in &had {
            add_reclaims(&logs, had, *killed_at, results, outages, report);
        }
        for (log, stopped_at) in &self.stopped {
            let had = Logs::held_at(log, *stopped_at);
            add_reclaims(&logs, &had, *stopped_at, results, outages, report);
        }
        report.duplicates = logs.executions.saturating_sub(report.jobs);
        report.clock_jumps = logs.date_changes;
        let late = ["abandoned", "lost", "duplicate"];
        report.abandoned = late.iter().filter_map(|ending| logs.endings.get(*ending)).sum();
    }
}

/// Sends a signal to a child.
fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "signal {name} was not sent");
}

/// Returns the most memory that a process has had so far, in kilobytes.
pub(super) fn peak_memory_kb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
