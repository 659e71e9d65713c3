//! Default hints for each kind of failure.

use crate::Kind;

/// The hint for a run that achieved nothing because a tool was refused.
pub(crate) const PERMIT: &str =
    "look at `denied`; permit it by `--allow`, or pass another `--permission-mode`";

/// Returns the default hint for a kind, used if the agent's own table has none.
pub(crate) fn hint(kind: Kind, sign_in: Option<&str>) -> Option<String> {
    Some(match kind {
        Kind::NotAuthenticated => sign_in?.to_owned(),
        Kind::Untrusted => {
            "pass `--trust run`, or `--trust full` to load the workspace's own settings too".into()
        }
        Kind::UnknownModel => "pass another `--model`, or none for the agent's own choice".into(),
        Kind::RateLimited => "wait and try again, or pass another `--model`".into(),
        Kind::Network => "check the network and proxy settings, then try again".into(),
        Kind::TimeoutRun => "raise `--timeout`".into(),
        Kind::TimeoutIdle => "raise `--idle-timeout`, or look at the last thing seen".into(),
        Kind::TimeoutStartup => "run `agentline doctor`, or raise `--startup-timeout`".into(),
        Kind::MaxTurns => "raise `--max-turns`".into(),
        Kind::MaxToolCalls => "raise `--max-tool-calls`".into(),
        Kind::MaxTokens => "raise `--max-tokens`".into(),
        Kind::MaxOutputTokens => "raise `--max-output-tokens`".into(),
        Kind::MaxCost => "raise `--max-cost`".into(),
        Kind::MaxRounds => "raise `--max-rounds`, or see what `--until` still finds wrong".into(),
        Kind::ContextOverflow => "shorten the prompt, or put the text into files and name them".into(),
        Kind::AgentTurns => "raise the turn limit in the agent's own settings".into(),
        Kind::Settings => "correct the agent's settings file; `agentline doctor` names it".into(),
        Kind::Input => "run `agentline doctor`, and look at `stderr_tail`".into(),
        Kind::Sandbox => "start the sandbox, or leave out `--sandbox`".into(),
        Kind::Mcp => "run the server by hand, or leave out `--mcp`".into(),
        Kind::Policy => "correct the rule in `--allow` or `--deny`".into(),
        Kind::SessionNotFound => "leave out `--resume`, or pass `latest`".into(),
        Kind::Loop => "say more precisely what is wanted, or pass another `--model`".into(),
        Kind::Empty => "try again, or ask in other words".into(),
        Kind::Blocked => "ask in other words; the service refused the content".into(),
        Kind::ApiError => "try again; if it stays, pass another `--model`".into(),
        Kind::Cancelled => "run it again, or pass `--resume` with its `session_id`".into(),
        Kind::NoResult | Kind::Crashed | Kind::Tool => {
            "look at `stderr_tail`; record the run with `--record FILE` to look closer".into()
        }
        Kind::NotInstalled | Kind::Spawn => "run `agentline doctor`".into(),
        Kind::InvalidOutput => "look at `text`, and simplify the schema".into(),
    })
}
