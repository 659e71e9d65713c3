//! The options that only Codex has.

use crate::{AgentOption, OptionKind, Problem, RunRequest};

const EFFORT: &str = "effort";

/// The accepted efforts. Which of them a model supports differs.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"];

/// The options, in the order of the documentation.
pub(super) static OPTIONS: &[AgentOption] = &[AgentOption::new(
    EFFORT,
    OptionKind::Text,
    r#""high""#,
    "How much the model reasons: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max` or `ultra`, as far as the \
     model supports it.",
)
.flag(EFFORT)];

/// Returns the reasoning effort of a request.
pub(super) fn effort(request: &RunRequest) -> Option<&str> {
    request.agent_options.get(EFFORT)?.as_str()
}

/// Returns a problem for each invalid option.
pub(super) fn check(request: &RunRequest) -> Option<Problem> {
    let effort = effort(request).filter(|effort| !EFFORTS.contains(effort))?;
    Some(
        Problem::new(EFFORT, format!("`{effort}` is not an effort of Codex"))
            .hint(format!("use one of: {}", EFFORTS.join(", "))),
    )
}
