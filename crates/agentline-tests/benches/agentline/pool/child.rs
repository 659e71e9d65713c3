//! Agentline in a separate process: it executes one command per line and reports the cost.

use crate::transport::{cpu, spent};
use agentline::{
    Agentline, Outcome, PermissionMode, Pool, PoolOptions, RunRequest, detect::HostEnv,
    supervisor::Supervisor,
};
use agentline_tests::MODEL;
use serde::{Deserialize, Serialize};
use std::{io::BufRead, path::PathBuf, time::Instant};

/// Selects the kind of child.
pub(crate) const NAME: &str = "pool";
pub(crate) const PROGRAM: &str = "AGENTLINE_BENCH_PROGRAM";
/// The path of this program: under a profiler, it cannot determine that itself.
pub(crate) const SUPERVISOR: &str = "AGENTLINE_BENCH_SUPERVISOR";
pub(crate) const WORKSPACE: &str = "AGENTLINE_BENCH_WORKSPACE";
pub(crate) const PROMPT: &str = "What is 2 + 2?";
/// The runs after which memory is measured.
const PACE: usize = 10;

/// The cost of an operation.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// In seconds.
    pub(crate) wall: f64,
    /// Of this process alone, in seconds.
    pub(crate) cpu: f64,
    pub(crate) summary: String,
}

pub(crate) fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let bench = Bench::new();
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        for line in lines {
            let measurement = bench.execute(&line).await;
            println!("{}", serde_json::to_string(&measurement).expect("JSON"));
        }
        bench.pool.close().await;
        bench.spares.close().await;
    });
}

struct Bench {
    agentline: Agentline,
    workspace: PathBuf,
    pool: Pool,
    /// The pool for runs with a prewarmed session.
    spares: Pool,
}

impl Bench {
    fn new() -> Self {
        let env: std::collections::BTreeMap<String, String> = std::env::vars().collect();
        let workspace = PathBuf::from(&env[WORKSPACE]);
        let host_env = HostEnv::new(env.clone(), &env["HOME"], &workspace);
        let supervisor = Supervisor::Path(PathBuf::from(&env[SUPERVISOR]));
        let agentline = Agentline::new(host_env).program("gemini", &env[PROGRAM]).supervisor(supervisor);
        let pool = Pool::new(agentline.clone(), PoolOptions::default());
        let spares = Pool::new(agentline.clone(), PoolOptions::default());
        Self { agentline, workspace, pool, spares }
    }

    fn request(&self, prompt: &str) -> RunRequest {
        let mode = PermissionMode::Bypass;
        RunRequest::new(prompt)
            .model(MODEL)
            .permission_mode(mode)
            .working_dir(&self.workspace)
            .agent_option("extensions", Vec::<String>::new())
    }

    async fn execute(&self, line: &str) -> Measurement {
        let (command, number) = line.split_once(' ').unwrap_or((line, "0"));
        match command {
            "cold" => {
                measured(async {
                    done(&self.agentline.run(self.request(PROMPT)).await.expect("a run").outcome().await)
                })
                .await
            }
            "pool" => measured(self.one()).await,
            "workspaces" => self.one_workspace_per_prompt(number.parse().expect("a number")).await,
            "spare" => {
                let ready = self.spares.prewarm(self.request(""), 1).await;
                assert_eq!(ready.expect("a session"), 1);
                measured(async {
                    done(&self.spares.run(self.request(PROMPT)).await.expect("a run").outcome().await);
                })
                .await
            }
            "many" => self.many(number.parse().expect("a number")).await,
            "lanes" => self.lanes().await,
            other => panic!("{other}?"),
        }
    }

    async fn one(&self) {
        done(&self.pool.run(self.request(PROMPT)).await.expect("a run").outcome().await);
    }

    /// Runs prompts on a warm pool, each in its own workspace, as in a batch with one workspace per case.
    async fn one_workspace_per_prompt(&self, prompts: usize) -> Measurement {
        let pool = Pool::new(self.agentline.clone(), PoolOptions::default());
        let root = self.workspace.with_file_name("workspaces");
        let mut walls = Vec::new();
        let before = cpu();
        for prompt in 0..=prompts {
            let workspace = root.join(prompt.to_string());
            std::fs::create_dir_all(&workspace).expect("a workspace");
            std::fs::write(workspace.join("README.md"), "A case.\n").expect("a file");
            let request = self.request(PROMPT).working_dir(&workspace);
            let start = Instant::now();
            done(&pool.run(request).await.expect("a run").outcome().await);
            walls.push(start.elapsed().as_secs_f64());
        }
        let cpu = cpu() - before;
        let started = pool.status().started;
        pool.close().await;
        std::fs::remove_dir_all(&root).expect("the workspaces");
        // The first prompt starts the process.
        let first = walls.remove(0);
        let wall = crate::median(&walls);
        let summary = format!(
            "one workspace per prompt: {:.1} ms (median of {prompts}), {:.2} ms of our own each, the first {:.0} ms, {started} agents started",
            wall * 1e3,
            cpu * 1e3 / (prompts + 1) as f64,
            first * 1e3,
        );
        Measurement { wall, cpu, summary }
    }

    /// Starts many consecutive runs and measures memory.
    async fn many(&self, runs: usize) -> Measurement {
        let (start, before) = (Instant::now(), spent());
        let (mut own, mut pool) = (Vec::new(), Vec::new());
        for run in 1..=runs {
            self.one().await;
            if run % PACE == 0 {
                own.push(resident_mb());
                let memory = |of: &Pool| of.status().processes.iter().filter_map(|p| p.memory).sum::<u64>();
                pool.push(memory(&self.pool) as f64 / f64::from(1 << 20));
            }
        }
        let (wall, after) = (start.elapsed().as_secs_f64(), spent());
        let (user, system) = (after.user - before.user, after.system - before.system);
        let cpu = user + system;
        let status = self.pool.status();
        let most = pool.iter().fold(0_f64, |a, b| a.max(*b));
        let summary = format!(
            "{runs} runs: {:.1} ms and {:.2} ms of our own each (mean, restarts included; {:.2} in the kernel, {:.0} waits); agentline {:.1} MB after {PACE}, \
             {:.1} MB at the end; pool {:.0} MB at most, {} agents started, {} recycled",
            wall * 1e3 / runs as f64,
            cpu * 1e3 / runs as f64,
            system * 1e3 / runs as f64,
            (after.waits - before.waits) / runs as f64,
            own.first().copied().unwrap_or_default(),
            own.last().copied().unwrap_or_default(),
            most,
            status.started,
            status.recycled,
        );
        Measurement { wall, cpu, summary }
    }

    /// Runs eight prompts, four at a time, on one process, with a model that takes half a second.
    async fn lanes(&self) -> Measurement {
        let mut options = PoolOptions::default();
        (options.max_processes, options.concurrent_sessions) = (1, 4);
        let pool = Pool::new(self.agentline.clone(), options);
        let request = |prompt: &str| self.request(prompt).deny("Bash");
        // The first prompt of a process is slower than all others.
        done(&pool.run(request(PROMPT)).await.expect("a run").outcome().await);
        assert_eq!(pool.prewarm(request(""), 8).await.expect("sessions"), 8);
        let mut measurement = measured(async {
            let mut runs = tokio::task::JoinSet::new();
            for _ in 0..8 {
                let run = pool.run(request("Answer slowly.")).await.expect("a run");
                runs.spawn(async move { done(&run.outcome().await) });
            }
            runs.join_all().await;
        })
        .await;
        measurement.summary = format!(
            "8 prompts of 500 ms, 4 at a time: {:.0} ms, {:.2} ms of our own each",
            measurement.wall * 1e3,
            measurement.cpu * 1e3 / 8.0
        );
        pool.close().await;
        measurement
    }
}

async fn measured(work: impl Future<Output = ()>) -> Measurement {
    let (start, before) = (Instant::now(), cpu());
    work.await;
    Measurement { wall: start.elapsed().as_secs_f64(), cpu: cpu() - before, summary: String::new() }
}

fn done(outcome: &Outcome) {
    assert!(outcome.is_done(), "{outcome:?}");
}

fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kb = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kb.unwrap_or(f64::NAN) / 1024.0
}
