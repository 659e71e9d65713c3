//! Validates a request before a run starts, so that later code can rely on it.

use crate::{Agent, Plan, Problem, Problems, RunRequest, agent_option::check_options, agents, time};
use std::time::Duration;

/// Checks everything that does not depend on the agent.
fn check(request: &RunRequest) -> Result<(), Problems> {
    let mut problems = Vec::new();
    if request.prompt.contains('\0') {
        problems.push(Problem::new("prompt", "contains a NUL byte").hint("remove it"));
    }
    if request.prompt.trim().is_empty() && request.prompt_file.is_none() {
        problems.push(
            Problem::new("prompt", "is empty")
                .hint("give the prompt as an argument, on stdin or with `--prompt-file`"),
        );
    }
    let words = [("model", &request.model), ("resume", &request.resume), ("session_id", &request.session_id)];
    let words = words.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    let models = request.fallback_models.iter().map(|model| ("fallback_models", model));
    for (key, value) in words.chain(models) {
        // An agent would parse the value as a flag, and some flags permit everything.
        if value.starts_with('-') {
            problems.push(
                Problem::new(key, format!("{key} must not begin with `-`"))
                    .value(value.clone())
                    .hint("write only the name or id"),
            );
        }
    }
    for (key, clock) in [
        ("timeout", request.timeout),
        ("idle_timeout", request.idle_timeout),
        ("tool_timeout", request.tool_timeout),
        ("startup_timeout", request.startup_timeout),
        ("retry_patience", request.retry_patience),
    ] {
        if clock == Duration::ZERO {
            problems.push(
                Problem::new(key, "must be greater than 0")
                    .hint("write seconds, or a duration such as `10m`"),
            );
        }
    }
    if request.deadline.is_some_and(|when| !time::is_accepted(when)) {
        problems.push(
            Problem::new("deadline", "must be a point in time between the years 1970 and 9999")
                .hint("choose a future time, or remove it for no deadline"),
        );
    }
    problems.extend(["deny", "ask", "allow"].iter().flat_map(|list| request.invalid_rules(list)));
    if request.resume.is_some() && request.session_id.is_some() {
        problems.push(
            Problem::new("session_id", "cannot be used together with `resume`")
                .hint("remove one of them: a resumed session keeps its id"),
        );
    }
    if request.limits.max_cost.is_some_and(|c| !c.is_finite() || c < 0.0) {
        problems.push(Problem::new("max_cost", "must be an amount in US dollars, 0 or more"));
    }
    for name in request.env.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            problems.push(
                Problem::new("env", format!("`{name}` is not a valid variable name"))
                    .hint("write `--env NAME=VALUE`"),
            );
        }
    }
    Problems(problems).into_result()
}

impl RunRequest {
    /// Checks everything that does not depend on the agent.
    ///
    /// # Errors
    ///
    /// Returns all problems together, such as an empty prompt, a NUL byte in it, or a timeout of zero.
    pub fn check(&self) -> Result<(), Problems> {
        check(self)
    }
}

impl Plan {
    /// Checks a request for one agent and chooses a surface.
    ///
    /// # Errors
    ///
    /// Returns all problems together, each with its key.
    pub fn of(mut request: RunRequest, agent: &dyn Agent) -> Result<Self, Problems> {
        let mut problems = check(&request).err().unwrap_or_default().0;
        let info = agent.info();
        // The version that the caller names decides which program is started.
        request.agent = match agents::split_version(&request.agent).1 {
            Some(version) => format!("{}@{version}", info.id).into(),
            None => info.id.into(),
        };
        if let Some(most) = info.max_prompt_bytes
            && request.prompt.len() > most
        {
            problems.push(
                Problem::new(
                    "prompt",
                    format!("is {} bytes long; {} accepts at most {most}", request.prompt.len(), info.title),
                )
                .hint("shorten it, or move the text to a file in the workspace and refer to the file"),
            );
        }
        let owner = agents::owner_of_option;
        problems.extend(check_options(agent.options(), info.title, &request.agent_options, owner));
        let surface = match request.surface {
            Some(surface) if info.surfaces.contains(&surface) && agent.abilities(surface, None).works => {
                Some(surface)
            }
            Some(surface) => {
                let known: Vec<&str> = info
                    .surfaces
                    .iter()
                    .filter(|s| agent.abilities(**s, None).works)
                    .map(|s| s.name())
                    .collect();
                problems.push(
                    Problem::new("surface", format!("`{surface}` is not supported by {}", info.title))
                        .hint(format!("use one of: auto, {}", known.join(", "))),
                );
                None
            }
            None => agent.choose(&request).map_err(|p| problems.push(p)).ok(),
        };
        if let Some(surface) = surface {
            problems.extend(agent.check(&request, surface));
            if problems.is_empty() {
                return Ok(Self { request, surface, is_live: agent.is_live(surface) });
            }
        }
        Err(Problems(request.as_written(problems)))
    }
}
