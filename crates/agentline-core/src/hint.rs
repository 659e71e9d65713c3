//! Default hints for each kind of failure.

use crate::FailureKind;

/// The hint for a run that achieved nothing because a tool was refused.
pub(crate) const PERMIT: &str =
    "see `denied`; allow the tool with `--allow`, or pass another `--permission-mode`";

/// Returns the default hint for a kind, used if the agent's own table has none.
pub(crate) fn hint(kind: FailureKind, sign_in: Option<&str>) -> Option<String> {
    Some(match kind {
        FailureKind::NotAuthenticated => sign_in?.to_owned(),
        FailureKind::Untrusted => {
            "pass `--trust run`, or `--trust full` to load the workspace's own settings too".into()
        }
        FailureKind::UnknownModel => "pass another `--model`, or omit it to use the agent's default".into(),
        FailureKind::RateLimited => "wait and retry, or pass another `--model`".into(),
        FailureKind::Network => "check the network and proxy settings, then retry".into(),
        FailureKind::TimeoutRun => "raise `--timeout`".into(),
        FailureKind::TimeoutIdle => {
            "raise `--idle-timeout`, which limits silence separately from `--timeout`, or check what the agent did last"
                .into()
        }
        FailureKind::TimeoutStartup => "run `agentline doctor`, or raise `--startup-timeout`".into(),
        FailureKind::MaxTurns => "raise `--max-turns`".into(),
        FailureKind::MaxToolCalls => "raise `--max-tool-calls`".into(),
        FailureKind::MaxTokens => "raise `--max-tokens`".into(),
        FailureKind::MaxOutputTokens => "raise `--max-output-tokens`".into(),
        FailureKind::MaxCost => "raise `--max-cost`".into(),
        FailureKind::MaxRounds => "raise `--max-rounds`, or check why `--until` still fails".into(),
        FailureKind::ContextOverflow => {
            "shorten the prompt, or move text into files and refer to them".into()
        }
        FailureKind::AgentTurns => "raise the turn limit in the agent's own settings".into(),
        FailureKind::Settings => "fix the agent's settings file; `agentline doctor` shows its path".into(),
        FailureKind::Input => "run `agentline doctor`, and check `stderr_tail`".into(),
        FailureKind::Sandbox => "start the sandbox, or omit `--sandbox`".into(),
        FailureKind::Mcp => "run the server manually to see its error, or omit `--mcp`".into(),
        FailureKind::Policy => "fix the rule in `--allow` or `--deny`".into(),
        FailureKind::SessionNotFound => "omit `--resume`, or pass `--resume latest`".into(),
        FailureKind::Loop => "make the prompt more specific, or pass another `--model`".into(),
        FailureKind::Empty => "retry, or rephrase the prompt".into(),
        FailureKind::Blocked => "rephrase the prompt; the service blocked the content".into(),
        FailureKind::ApiError => "retry; if it fails again, pass another `--model`".into(),
        FailureKind::Cancelled => "run it again, or continue it with `--resume` and its `session_id`".into(),
        FailureKind::NoResult | FailureKind::Crashed | FailureKind::Tool => {
            "check `stderr_tail`; record the run with `--record FILE` for details".into()
        }
        FailureKind::NotInstalled | FailureKind::Spawn => "run `agentline doctor`".into(),
        FailureKind::InvalidOutput => "check `text`, and simplify the schema".into(),
        FailureKind::Interrupted => "check what the run did, then run it again with `--rerun infra`".into(),
    })
}
