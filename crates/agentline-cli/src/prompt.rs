//! Reads the prompt from the argument, standard input, or the settings.

use agentline::{Problem, RunRequest};
use std::{
    io::{self, IsTerminal, Read},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The maximum length of a prompt in bytes, which also limits the input from an endless pipe.
const MAX_PROMPT_BYTES: u64 = 64 << 20;

/// Returns the prompt of a run. Standard input is read only for `-` or if no prompt is given.
pub(crate) fn read(typed: Option<&str>, request: &RunRequest) -> Result<String, Problem> {
    let stdin_is_terminal = io::stdin().is_terminal();
    match typed {
        Some("-") if stdin_is_terminal => {
            Err(Problem::new("PROMPT", "`-` reads standard input, but standard input is a terminal")
                .hint("pipe the prompt, or pass it as an argument"))
        }
        Some("-") => from_stdin(request.timeout),
        Some(prompt) => Ok(prompt.to_owned()),
        // With a prompt in the settings, standard input is not read, even if it is a pipe.
        None if request.prompt_file.is_some() || !request.prompt.is_empty() => Ok(request.prompt.clone()),
        None if stdin_is_terminal => Err(Problem::new("PROMPT", "missing prompt")
            .hint("pass it as an argument (`agentline run \"…\"`), pipe it, or use `--prompt-file`")),
        None => from_stdin(request.timeout),
    }
}

fn from_stdin(time: Duration) -> Result<String, Problem> {
    let bytes = read_stdin(time).map_err(|error| {
        Problem::new("PROMPT", format!("cannot read standard input: {error}"))
            .hint("pass the prompt as an argument")
    })?;
    if bytes.len() as u64 > MAX_PROMPT_BYTES {
        return Err(Problem::new("PROMPT", format!("the prompt is longer than {MAX_PROMPT_BYTES} bytes"))
            .hint("put the text into a file in the workspace and name that file in the prompt"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Problem::new("PROMPT", format!("the prompt is not valid UTF-8 at byte {at}"))
            .hint("convert it, for example with `iconv -t UTF-8`")
    })
}

/// Reads standard input to its end within the run's timeout. A thread that is still reading is abandoned.
fn read_stdin(time: Duration) -> io::Result<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    let read = move || {
        let mut bytes = Vec::new();
        let read = io::stdin().lock().take(MAX_PROMPT_BYTES + 1).read_to_end(&mut bytes);
        // The receiver may have timed out.
        let _ = send.send(read.map(|_| bytes));
    };
    thread::Builder::new().name("agentline-prompt".into()).spawn(read)?;
    receive.recv_timeout(time).unwrap_or_else(|_| {
        let message = format!("input did not end within {} s (`--timeout`)", time.as_secs_f64());
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    })
}
