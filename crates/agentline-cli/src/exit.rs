//! The exit codes. Scripts rely on them, so they never change.

use agentline::{Signal, Verdict};

/// The agent finished and answered, and nothing was refused.
pub(crate) const DONE: u8 = 0;
/// The agent or its model failed.
pub(crate) const FAILED: u8 = 1;
/// Invalid flags or configuration; nothing was started.
pub(crate) const USAGE: u8 = 2;
/// The agent is not installed.
pub(crate) const NOT_INSTALLED: u8 = 3;
/// The agent is not signed in, or the service rejected the credentials.
pub(crate) const NOT_AUTHENTICATED: u8 = 4;
/// A limit of a batch was reached.
pub(crate) const LIMIT_REACHED: u8 = 7;
/// No run of a batch failed, but some say nothing about the agent.
pub(crate) const INFRASTRUCTURE: u8 = 12;
/// Stopped by SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
/// Standard output was closed; the code of a program that is killed by SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 141;
/// Stopped by SIGTERM.
pub(crate) const TERMINATED: u8 = 143;
/// The run was killed.
const KILLED: u8 = 137;

/// The table of exit codes in `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
    0  done: the agent finished and answered, and no tool was denied
    1  failed: the agent or its model failed; see the error
    2  invalid flags or configuration: nothing was started
    3  not_installed: the agent is not installed
    4  not_authenticated: not signed in, or the service rejected the credentials
    5  done_with_denials: the agent answered, but tools were denied or not offered
    6  empty: no answer, or the answer was blocked
    7  limit_reached: a --max-… limit stopped the run; its partial results are kept
    8  timed_out: the run, its startup or a period of silence took too long
    9  rate_limited: the service refused requests because of quota or load
   10  invalid_output: the answer does not match --schema, or has no value for --extract-json
   11  untrusted: the agent refused the workspace as untrusted
  130  cancelled by SIGINT
  143  cancelled by SIGTERM
";

/// Returns the exit code of a verdict. For a cancelled run, it depends on the signal.
pub(crate) fn of(verdict: Verdict, signal: Option<Signal>) -> u8 {
    match (verdict, signal) {
        (Verdict::Cancelled, Some(signal)) => by_signal(signal),
        _ => verdict.exit_code(),
    }
}

/// Returns the exit code of a run that was stopped by a signal.
pub(crate) fn by_signal(signal: Signal) -> u8 {
    match signal {
        Signal::Interrupt => INTERRUPTED,
        Signal::Terminate => TERMINATED,
        // Programs are not told of it; a caller of the library may use it.
        Signal::Kill => KILLED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_every_exit_code() {
        let verdicts = [
            Verdict::Done,
            Verdict::Failed,
            Verdict::NotInstalled,
            Verdict::NotAuthenticated,
            Verdict::DoneWithDenials,
            Verdict::Empty,
            Verdict::LimitReached,
            Verdict::TimedOut,
            Verdict::RateLimited,
            Verdict::InvalidOutput,
            Verdict::Untrusted,
            Verdict::Cancelled,
        ];
        for verdict in verdicts {
            let row = format!("{:>5}  {}", of(verdict, None), verdict.name());
            assert!(HELP.contains(&row), "{row}");
        }
        assert_eq!((by_signal(Signal::Interrupt), by_signal(Signal::Terminate)), (130, 143));
    }
}
