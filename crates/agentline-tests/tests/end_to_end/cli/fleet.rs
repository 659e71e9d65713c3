//! A fleet for tests: a queue, a user who submits experiments to it, and workers, each of which is another user.

use crate::cli::batch::user;
use crate::cli::user::{Done, User};
use agentline_tests::{
    engines::{
        Engine, EngineKind,
        nats::{NATS, NatsServer},
        postgres::PostgresServer,
    },
    exit_of, survivors, wait_until,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

/// The messages of a worker, in the folder of its user.
const LOG: &str = "worker.log";

/// A queue, and the user who submits experiments to it.
pub(super) struct Fleet {
    pub(super) engine: Engine,
    pub(super) user: User,
}

impl Fleet {
    /// Starts an engine; `None` if it is not installed and tests may skip it.
    pub(super) fn start(kind: EngineKind) -> Option<Self> {
        let engine = match kind {
            EngineKind::Sqlite => Engine::Sqlite(tempfile::tempdir().unwrap()),
            EngineKind::Nats | EngineKind::OldestNats => Engine::Nats(NatsServer::start(NATS)?),
            EngineKind::Postgres | EngineKind::OldestPostgres => Engine::Postgres(PostgresServer::start()?),
        };
        Some(Self { engine, user: user() })
    }

    /// Starts a worker with short leases, and waits until it is ready.
    pub(super) fn worker(&self, flags: &[&str]) -> Worker {
        self.worker_with_lease("2s", flags)
    }

    /// Starts a worker, and waits until it is ready.
    pub(super) fn worker_with_lease(&self, lease: &str, flags: &[&str]) -> Worker {
        let user = user();
        let queue = self.engine.address();
        let command = user.command(&["worker", "--lease", lease, "--queue", &queue]);
        let folder = user.path("..").canonicalize().unwrap();
        let mut worker = Worker::start(command, flags, &folder);
        worker.user = Some(user);
        worker
    }

    /// Starts to submit the suite, with its results on standard output.
    pub(super) fn submit(&self, dir: &str, flags: &[&str]) -> Submitter {
        let queue = self.engine.address();
        let mut command =
            self.user.command(&["batch", "suite.yaml", "--dir", dir, "-o", "jsonl", "--queue", &queue]);
        command.args(flags);
        Submitter::start(command, &self.user.path(&format!("../{dir}")))
    }

    /// Runs a command with the queue.
    pub(super) fn agentline(&self, args: &[&str]) -> Done {
        self.user.agentline(&[args, &["--queue", &self.engine.address()]].concat())
    }

    /// Returns the status of an experiment.
    pub(super) fn status(&self, experiment: &str) -> Value {
        let done = self.agentline(&["batch", "status", experiment, "-o", "json"]);
        assert_eq!(done.code, 0, "{}", done.err);
        done.json()
    }
}

/// A worker as a process. It is killed when this is dropped.
pub(super) struct Worker {
    child: Child,
    /// The folder of the worker's user, which is in the environment of all its processes.
    pub(super) folder: PathBuf,
    /// The worker's own user, who is removed with it.
    user: Option<User>,
}

impl Worker {
    /// Starts a command of a user with this folder, and waits until the worker is ready.
    pub(super) fn start(mut command: Command, flags: &[&str], folder: &Path) -> Self {
        let log = File::create(folder.join(LOG)).unwrap();
        let child = command.args(flags).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut worker = Self { child, folder: folder.to_owned(), user: None };
        wait_until("a worker", || {
            let exited = worker.child.try_wait().unwrap();
            assert!(exited.is_none(), "{exited:?}: {}", worker.log());
            worker.log().contains("waits for runs") || worker.log().contains("no agent is ready")
        });
        worker
    }

    /// Returns what the worker has printed.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join(LOG)).unwrap()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the processes of the worker's agents, and the worker itself unless it has exited.
    pub(super) fn processes(&self) -> Vec<u32> {
        survivors(&self.folder.to_string_lossy())
    }

    pub(super) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.unwrap().success());
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the exit.
    pub(super) fn exit(&mut self) -> ExitStatus {
        exit_of(&mut self.child, "the exit of a worker")
    }

    /// Kills the worker with SIGKILL.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.exit();
    }

    /// Asks the worker to end, and checks that it does so without an error.
    pub(super) fn end(mut self) -> String {
        self.signal("TERM");
        let status = self.exit();
        assert_eq!(status.code(), Some(0), "{}", self.log());
        self.log()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A submitting program. It is killed when this is dropped.
pub(super) struct Submitter {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Submitter {
    /// Starts a command whose streams go to files with this path.
    pub(super) fn start(mut command: Command, path: &Path) -> Self {
        let (out, err) = (path.with_extension("out"), path.with_extension("err"));
        let child =
            command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap()).spawn().unwrap();
        Self { child, out, err }
    }

    /// Returns the number of results so far.
    pub(super) fn results(&self) -> usize {
        fs::read_to_string(&self.out).unwrap().lines().count()
    }

    /// Returns the messages so far.
    pub(super) fn messages(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    pub(super) fn interrupt(&self) {
        let status = Command::new("kill").args(["-s", "INT", &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for the end. There may be any number of results, each of which is waited for.
    pub(super) fn end(mut self) -> Done {
        let (mut exited, mut results) = (None, 0);
        while exited.is_none() {
            wait_until("the next result of a batch, or its end", || {
                exited = self.child.try_wait().unwrap();
                exited.is_some() || self.results() > results
            });
            results = self.results();
        }
        let status = exited.unwrap();
        Done {
            code: status.code().unwrap_or(-1),
            out: fs::read_to_string(&self.out).unwrap(),
            err: self.messages(),
        }
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs that write their name into a file and then wait while another file exists.
pub(super) struct BlockedCases {
    dir: PathBuf,
}

impl BlockedCases {
    pub(super) fn new(user: &User) -> Self {
        let dir = user.path("marks");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("effects"), "").unwrap();
        Self { dir }
    }

    /// Returns the commands of a case that is blocked until it is released.
    pub(super) fn prompt(&self, case: &str) -> String {
        let (effects, block) = (self.dir.join("effects"), self.dir.join(case));
        fs::write(&block, "").unwrap();
        format!(
            "run echo {case} >> '{}'; while test -e '{}'; do sleep 0.02; done\\nsay done",
            effects.display(),
            block.display()
        )
    }

    /// Returns a case that is blocked.
    pub(super) fn case(&self, case: &str) -> String {
        format!("- {{id: {case}, prompt: \"{}\"}}\n", self.prompt(case))
    }

    /// Returns how often the agent of a case has started.
    pub(super) fn runs(&self, case: &str) -> usize {
        fs::read_to_string(self.dir.join("effects")).unwrap().lines().filter(|line| *line == case).count()
    }

    /// Waits until the agent of a case has started this often.
    pub(super) fn wait(&self, case: &str, runs: usize) {
        wait_until(&format!("execution {runs} of `{case}`"), || self.runs(case) >= runs);
        assert_eq!(self.runs(case), runs);
    }

    pub(super) fn release(&self, case: &str) {
        fs::remove_file(self.dir.join(case)).unwrap();
    }

    /// Returns the live processes of a worker's agents that wait.
    pub(super) fn waiting(&self, worker: &Worker) -> Vec<u32> {
        let mark = self.dir.to_string_lossy().into_owned();
        let waiting = agentline_tests::running_with(&mark);
        let own = worker.processes();
        waiting.into_iter().filter(|pid| own.contains(pid)).collect()
    }
}
