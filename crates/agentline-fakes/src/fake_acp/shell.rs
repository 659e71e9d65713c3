//! Shell commands of the agent, each in its own session, as real agents start them.

use std::env;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::control::Control;
use super::peer::lock;

/// The first argument of a process that becomes a shell.
pub(super) const FLAG: &str = "--fake-acp-shell";

/// The exit status and output of a command. The status is `None` if it was cancelled.
pub(super) struct CommandResult {
    pub(super) status: Option<ExitStatus>,
    pub(super) output: String,
}

/// Leaves the session of the agent and becomes the shell.
pub(super) fn be_shell(args: &[String]) -> io::Result<u8> {
    let [command] = args else { return Ok(2) };
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        crate::os::own_session()?;
        Err(Command::new("sh").arg("-c").arg(command).exec())
    }
    #[cfg(not(unix))]
    {
        let status = Command::new("cmd").arg("/C").arg(command).status()?;
        Ok(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1))
    }
}

/// Runs a command to its end, or kills it and all its children when the turn is cancelled.
pub(super) fn run(command: &str, cwd: &Path, control: &Control) -> io::Result<CommandResult> {
    let mut child = Command::new(env::current_exe()?)
        .args([FLAG, command])
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let output = Arc::new(Mutex::new(Vec::new()));
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    let readers: Vec<_> =
        pipes.into_iter().flatten().map(|pipe| collect(pipe, Arc::clone(&output))).collect();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if control.cancelled() {
            // The command leads its own process group. On systems without groups, only the child is ended.
            let _ = crate::os::kill_group(child.id());
            let _ = child.kill();
            child.wait()?;
            break None;
        }
        control.wait(Duration::from_millis(5));
    };
    // A process that the command left behind may keep the pipe open; it is not awaited.
    let until = Instant::now() + Duration::from_millis(200);
    while readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < until {
        thread::sleep(Duration::from_millis(2));
    }
    let output = String::from_utf8_lossy(&lock(&output)).into_owned();
    Ok(CommandResult { status, output })
}

fn collect(mut pipe: Box<dyn Read + Send>, into: Arc<Mutex<Vec<u8>>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            lock(&into).extend_from_slice(&buffer[..count]);
        }
    })
}
