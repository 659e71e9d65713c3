//! A host program that tests kill: it runs one agent, prints `ready` when the agent does, and prints how it ended.
//!
//! `supervised-host MARK HOW PROGRAM [ARG]…`, where HOW is `wait` or `panic` (as soon as the agent is ready). The
//! variable `ISOLATION` may contain a value of `isolation`.

use std::io::Write;

use agentline::{
    init,
    internals::process::{Process, ProcessEvent, Spawn},
    supervisor::Isolation,
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
            }
            // An agent that never becomes ready must not use unbounded memory.
            ProcessEvent::Bytes(_) if is_ready || bytes.len() > 4096 => bytes.clear(),
            ProcessEvent::Bytes(_) | ProcessEvent::Message => {}
            ProcessEvent::Exit(exit) => return print_line(&format!("{exit:?}")),
        }
    }
}

fn print_line(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("a reader");
}
