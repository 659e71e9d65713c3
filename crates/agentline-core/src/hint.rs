//! Default hints for each kind of failure.

use crate::FailureKind;

/// The hint for a run that achieved nothing because a tool was refused.
pub(crate) const PERMIT: &str =
    "look at `denied`; permit it by `--allow`, or pass another `--permission-mode`";

/// Returns the default hint for a kind, used if the agent's own table has none.
pub(crate) fn hint(kind: FailureKind, sign_in: Option<&str>) -> Option<String> {
    Some(match kind {
        FailureKind::NotAuthenticated => sign_in?.to_owned(),
        FailureKind::Untrusted => {
            "pass `--trust run`, or `--trust full` to load the workspace's own settings too".into()
        }
        FailureKind::UnknownModel => "pass another `--model`, or none for the agent's own choice".into(),
        FailureKind::RateLimited => "wait and try again, or pass another `--model`".into(),
        FailureKind::Network => "check the network and proxy settings, then try again".into(),
        FailureKind::TimeoutRun => "raise `--timeout`".into(),
        FailureKind::TimeoutIdle => "raise `--idle-timeout`, or look at the last thing seen".into(),
        FailureKind::TimeoutStartup => "run `agentline doctor`, or raise `--startup-timeout`".into(),
        FailureKind::MaxTurns => "raise `--max-turns`".into(),
        FailureKind::MaxToolCalls => "raise `--max-tool-calls`".into(),
        FailureKind::MaxTokens => "raise `--max-tokens`".into(),
        FailureKind::MaxOutputTokens => "raise `--max-output-tokens`".into(),
        FailureKind::MaxCost => "raise `--max-cost`".into(),
        FailureKind::MaxRounds => "raise `--max-rounds`, or see what `--until` still finds wrong".into(),
        FailureKind::ContextOverflow => "shorten the prompt, or put the text into files and name them".into(),
        FailureKind::AgentTurns => "raise the turn limit in the agent's own settings".into(),
        FailureKind::Settings => "correct the agent's settings file; `agentline doctor` names it".into(),
        FailureKind::Input => "run `agentline doctor`, and look at `stderr_tail`".into(),
        FailureKind::Sandbox => "start the sandbox, or leave out `--sandbox`".into(),
        FailureKind::Mcp => "run the server by hand, or leave out `--mcp`".into(),
        FailureKind::Policy => "correct the rule in `--allow` or `--deny`".into(),
        FailureKind::SessionNotFound => "leave out `--resume`, or pass `latest`".into(),
        FailureKind::Loop => "say more precisely what is wanted, or pass another `--model`".into(),
        FailureKind::Empty => "try again, or ask in other words".into(),
        FailureKind::Blocked => "ask in other words; the service refused the content".into(),
        FailureKind::ApiError => "try again; if it stays, pass another `--model`".into(),
        FailureKind::Cancelled => "run it again, or pass `--resume` with its `session_id`".into(),
        FailureKind::NoResult | FailureKind::Crashed | FailureKind::Tool => {
            "look at `stderr_tail`; record the run with `--record FILE` to look closer".into()
        }
        FailureKind::NotInstalled | FailureKind::Spawn => "run `agentline doctor`".into(),
        FailureKind::InvalidOutput => "look at `text`, and simplify the schema".into(),
    })
}
