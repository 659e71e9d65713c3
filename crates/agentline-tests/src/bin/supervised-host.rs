//! A host program that tests kill: it runs one agent, prints `ready` when the agent does, and prints how it ended.
//!
//! `supervised-host MARK HOW PROGRAM [ARG]…`, where HOW is `wait` or `panic` (as soon as the agent is ready). The
//! variable `ISOLATION` may contain a value of `isolation`. `DEADLINE` may contain milliseconds: the host then extends
//! its deadline by that time again and again, and prints `extended` when the first one has passed; or `none`: it then
//! sets a deadline, removes it, and prints `removed`.

use std::io::Write;
use std::time::Duration;

use agentline::{
    init,
    internals::process::{Process, ProcessEvent, Spawn},
    supervisor::{Isolation, KillDeadline},
};

fn main() {
    init();
    agentline_tests::restore_signals();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(host());
}

async fn host() {
    let mut args = std::env::args().skip(1);
    let mut arg = || args.next().expect("MARK HOW PROGRAM");
    let (mark, action, program) = (arg(), arg(), arg());
    let cwd = std::env::current_dir().expect("a working directory");
    let mut spawn = Spawn::new(program, cwd, mark);
    spawn.args = args.map(Into::into).collect();
    spawn.env = std::env::vars_os().collect();
    if let Some(isolation) = std::env::var("ISOLATION").ok().and_then(|name| Isolation::from_name(&name)) {
        spawn.isolation = isolation;
    }
    let deadline = std::env::var("DEADLINE").ok();
    spawn.kill_deadline = deadline.as_ref().map(|_| KillDeadline::new().expect("a temporary file"));
    let kill_deadline = spawn.kill_deadline.clone();
    if let Some(kill_deadline) = &kill_deadline {
        set(kill_deadline, Some(START));
    }
    let mut process = match Process::spawn(spawn) {
        Ok(process) => process,
        Err(error) => return print_line(&agentline_core::error_chain(&error)),
    };
    let mut bytes = Vec::new();
    let mut is_ready = false;
    loop {
        match process.next(&mut bytes).await {
            ProcessEvent::Bytes(_) if !is_ready && bytes.starts_with(b"ready") => {
                is_ready = true;
                print_line("ready");
                assert_ne!(action, "panic", "panic on request");
                if let (Some(kill_deadline), Some(deadline)) = (kill_deadline.clone(), deadline.clone()) {
                    std::thread::spawn(move || hold(&kill_deadline, &deadline));
                }
            }
            // An agent that never becomes ready must not use unbounded memory.
            ProcessEvent::Bytes(_) if is_ready || bytes.len() > 4096 => bytes.clear(),
            ProcessEvent::Bytes(_) | ProcessEvent::Message => {}
            ProcessEvent::Exit(exit) => return print_line(&format!("{exit:?}")),
        }
    }
}

/// How long the agent may take to start.
const START: Duration = Duration::from_secs(60);

fn set(kill_deadline: &KillDeadline, from_now: Option<Duration>) {
    kill_deadline.set(from_now.map(|time| KillDeadline::now() + time)).expect("a written deadline");
}

/// Extends the deadline until this process ends, or removes it.
fn hold(kill_deadline: &KillDeadline, deadline: &str) {
    if deadline == "none" {
        set(kill_deadline, Some(Duration::from_secs(1)));
        set(kill_deadline, None);
        return print_line("removed");
    }
    let length = Duration::from_millis(deadline.parse().expect("milliseconds"));
    for round in 0.. {
        set(kill_deadline, Some(length));
        std::thread::sleep(length / 10);
        if round == 20 {
            print_line("extended");
        }
    }
}

fn print_line(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("a reader");
}
