//! Sends a million events, and one line of 50 MB, through the transport of the surface: from a process that writes them
//! to the consumer of the library. Each is measured in a separate process, so that its peak memory is measured alone.

use agentline::{Agentline, RunRequest, blocking, detect::HostEnv};
use std::{
    collections::BTreeMap, fmt::Write as _, os::unix::fs::PermissionsExt as _, path::Path, process::Command,
    time::Instant,
};

/// The variable that selects what a child of this benchmark does.
pub(crate) const CHILD: &str = "AGENTLINE_BENCH_CHILD";
const FILE: &str = "AGENTLINE_BENCH_FILE";
const ROUNDS: usize = 3;

pub(crate) fn run() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let init = r#"{"type":"init","timestamp":"t","session_id":"bench","model":"m"}"#;
    let result = r#"{"type":"result","status":"success","stats":{"total_tokens":3,"input_tokens":2,"output_tokens":1,"cached":0}}"#;
    let mut deltas = format!("{init}\n");
    for i in 0..1_000_000 {
        let _ = writeln!(
            deltas,
            r#"{{"type":"message","role":"assistant","content":"w{}","delta":true}}"#,
            i % 10
        );
    }
    let long = format!(
        "{init}\n{{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"{}\",\"delta\":true}}\n",
        "x".repeat(50 << 20)
    );
    let files = [
        ("1,000,000 events", deltas),
        ("a line of 50 MB", long),
        (
            "one event",
            format!(
                "{init}\n{{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"x\",\"delta\":true}}\n"
            ),
        ),
    ];
    println!(
        "{:<20} {:>8} {:>10} {:>14} {:>10} {:>12}",
        "through a process", "best s", "events", "events/s", "peak MB", "our CPU s"
    );
    for (name, content) in files {
        let file = dir.path().join("output.ndjson");
        std::fs::write(&file, format!("{content}{result}\n")).expect("space for the output");
        let rows: Vec<Row> = (0..ROUNDS).map(|_| in_a_process(&file)).collect();
        let best = rows.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("a round");
        println!(
            "{name:<20} {:>8.3} {:>10} {:>14.0} {:>10.1} {:>12.3}",
            best.seconds,
            best.events,
            best.events as f64 / best.seconds,
            best.peak_mb,
            best.cpu
        );
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Row {
    seconds: f64,
    events: u64,
    peak_mb: f64,
    cpu: f64,
}

fn in_a_process(file: &Path) -> Row {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).env(CHILD, "run").env(FILE, file).output().expect("a child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a row")
}

/// Runs an agent in the child that copies the file to its standard output.
pub(crate) fn child(_what: &str) {
    let file = std::env::var(FILE).expect("the file");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let agent = dir.path().join("agent");
    std::fs::write(&agent, format!("#!/bin/sh\nexec cat '{file}'\n")).expect("a script");
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o700)).expect("a program");
    let workspace = dir.path().join("ws");
    std::fs::create_dir_all(&workspace).expect("a workspace");
    let env: BTreeMap<String, String> =
        [("PATH".to_owned(), std::env::var("PATH").unwrap_or_default())].into();
    let agentline = Agentline::new(HostEnv::new(env, dir.path(), &workspace)).program("gemini", &agent);
    let start = Instant::now();
    let mut events = 0;
    let outcome = blocking::run(&agentline, RunRequest::new("go"), |_, _| events += 1).expect("a run");
    let seconds = start.elapsed().as_secs_f64();
    assert!(outcome.is_done(), "{outcome:?}");
    let (cpu, peak_mb) = usage();
    println!("{}", serde_json::to_string(&Row { seconds, events, peak_mb, cpu }).expect("a row"));
}

/// Returns the processor time and peak memory of this process.
pub(crate) fn usage() -> (f64, f64) {
    // `ru_maxrss` would include the memory that the parent had when it started this process.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    (cpu(), peak.unwrap_or(f64::NAN) / 1024.0)
}

/// Returns the processor time of this process in seconds.
pub(crate) fn cpu() -> f64 {
    let spent = spent();
    spent.user + spent.system
}

/// The resource usage of this process.
pub(crate) struct Spent {
    /// In seconds.
    pub(crate) user: f64,
    /// In the kernel, in seconds.
    pub(crate) system: f64,
    /// The number of voluntary context switches.
    pub(crate) waits: f64,
}

#[expect(unsafe_code, reason = "there is no safe alternative")]
pub(crate) fn spent() -> Spent {
    // SAFETY: the struct is plain data that the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Spent { user: seconds(usage.ru_utime), system: seconds(usage.ru_stime), waits: usage.ru_nvcsw as f64 }
}
