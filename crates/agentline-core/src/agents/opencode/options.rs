//! The options that only OpenCode has.

use crate::{AgentOption, OptionKind, Problem, RunRequest, Surface};

const EFFORT: &str = "effort";

/// The options, in the order of the documentation.
pub(super) static OPTIONS: &[AgentOption] = &[AgentOption::new(
    EFFORT,
    OptionKind::Text,
    r#""high""#,
    "How much the model reasons: a variant of the model, such as `low` or `high`. Needs `model`.",
)
.flag(EFFORT)];

/// Returns the effort of a request.
pub(super) fn effort(request: &RunRequest) -> Option<&str> {
    request.agent_options.get(EFFORT)?.as_str()
}

/// Returns a problem for an effort that cannot be set. Whether the model has the variant is known once OpenCode has
/// listed its models.
pub(super) fn check(request: &RunRequest, surface: Surface) -> Option<Problem> {
    effort(request)?;
    if surface != Surface::Serve {
        let text = format!("is not supported on the surface `{surface}`");
        return Some(Problem::new(EFFORT, text).hint("use the surface `serve`"));
    }
    // OpenCode ignores a variant that a model does not have, and only a requested model is known before the prompt.
    request.model.is_none().then(|| {
        Problem::new(EFFORT, "needs a model: the efforts of OpenCode are variants of a model")
            .hint("add `model`, as `provider/model`")
    })
}
