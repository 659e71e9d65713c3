//! The tools: their names, descriptions, arguments and results.

use crate::{
    outputs::{ListReport, RunReport, SearchReport},
    schema::schema_of,
};
use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{path::PathBuf, sync::Arc};

/// The permission modes that a caller can name.
const MODES: [&str; 4] = ["plan", "default", "accept-edits", "bypass"];

/// The arguments of `agent_run` and `agent_start`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct StartRunArgs {
    /// The task for the agent. It knows nothing about this conversation, so describe the task completely.
    #[schemars(length(min = 1))]
    pub(crate) prompt: String,
    /// The agent, such as one of agent_list. Without it, the default agent of the server.
    pub(crate) agent: Option<String>,
    /// The model, as the agent names it.
    pub(crate) model: Option<String>,
    /// The directory in which the agent works, relative to the default one, or absolute.
    pub(crate) cwd: Option<PathBuf>,
    /// What the agent may do without permission: `plan` (only read), `default`, `accept-edits` or `bypass`. It cannot
    /// allow more than the server does.
    #[schemars(extend("enum" = MODES))]
    pub(crate) permission_mode: Option<String>,
    /// The time limit of the run in seconds. It can only lower the limit of the server.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) timeout_s: Option<f64>,
    /// The most that the run may cost in US dollars.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) max_cost: Option<f64>,
    /// The `session_id` of an earlier run of the same agent in the same directory, to continue it.
    pub(crate) resume: Option<String>,
}

/// The arguments of `agent_wait`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WaitArgs {
    /// The run, as `agent_start` or `agent_run` returned it.
    pub(crate) run: String,
    /// The `age_s` of the last answer about this run.
    #[expect(
        dead_code,
        reason = "some clients stop a model that repeats the same call, so that calls have to differ"
    )]
    #[schemars(range(min = 0))]
    pub(crate) since_s: Option<f64>,
    /// How long to wait in seconds. The server may return earlier.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) timeout_s: Option<f64>,
}

/// The arguments of `agent_result`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ResultArgs {
    /// The run, as `agent_start` or `agent_run` returned it.
    pub(crate) run: String,
    /// Where the text begins, for the rest of a long answer: `next_offset` of the part before.
    #[serde(default)]
    pub(crate) offset: usize,
}

/// The arguments of `agent_cancel`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CancelArgs {
    /// The run, as `agent_start` or `agent_run` returned it.
    pub(crate) run: String,
}

/// The arguments of `agent_list`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ListRunsArgs {}

/// The arguments of `sessions_search`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SearchSessionsArgs {
    /// Words that a message contains, in any order.
    #[schemars(length(min = 1))]
    pub(crate) query: String,
    /// Only sessions of this agent.
    pub(crate) agent: Option<String>,
    /// The maximum number of sessions, 10 by default.
    pub(crate) limit: Option<usize>,
}

/// Returns all tools.
pub(crate) fn all(max_wait_s: u64) -> Vec<Tool> {
    let run = format!(
        "Runs a coding agent on a task in a directory and returns its answer, the changed files and the cost. If it \
         takes longer than {max_wait_s} s, returns the status `running` and the `run`: then call agent_wait with it."
    );
    let wait = format!(
        "Waits for a run, at most {max_wait_s} s, and returns its result, or the status `running` with its progress. \
         Call it again until the run is over."
    );
    vec![
        tool::<StartRunArgs, RunReport>("agent_run", run, Effect::Changes),
        tool::<StartRunArgs, RunReport>(
            "agent_start",
            "Starts a coding agent on a task and returns its `run` at once. Several agents can work at the same time. \
             Call agent_wait for the result.",
            Effect::Changes,
        ),
        tool::<WaitArgs, RunReport>("agent_wait", wait, Effect::Reads),
        tool::<ResultArgs, RunReport>(
            "agent_result",
            "Returns the result of a run, or its progress if it is not over. Does not wait.",
            Effect::Reads,
        ),
        tool::<CancelArgs, RunReport>("agent_cancel", "Stops a run.", Effect::Stops),
        tool::<ListRunsArgs, ListReport>(
            "agent_list",
            "Lists the available agents and the runs of this client.",
            Effect::Reads,
        ),
        tool::<SearchSessionsArgs, SearchReport>(
            "sessions_search",
            "Searches the saved conversations of all agents in the directories of this server.",
            Effect::Reads,
        ),
    ]
}

/// The effect of a tool, as clients may show it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Stops,
    Changes,
}

fn tool<A: JsonSchema, R: JsonSchema>(
    name: &'static str,
    description: impl Into<std::borrow::Cow<'static, str>>,
    effect: Effect,
) -> Tool {
    let hints = ToolAnnotations::new()
        .read_only(effect == Effect::Reads)
        .destructive(effect == Effect::Changes)
        .open_world(effect == Effect::Changes);
    Tool::new(name, description, schema_of::<A>())
        .with_raw_output_schema(Arc::new(schema_of::<R>()))
        .with_annotations(hints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn every_argument_and_every_result_has_a_description() {
        let tools = all(45);
        assert_eq!(tools.len(), 7);
        for tool in tools {
            assert!(tool.description.is_some(), "{}", tool.name);
            for schema in [&tool.input_schema, tool.output_schema.as_ref().unwrap()] {
                assert_eq!(schema["type"], "object", "{}", tool.name);
                assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
                let schema = Value::Object((**schema).clone());
                assert!(!schema.to_string().contains("$ref"), "{}: {schema}", tool.name);
                for (name, property) in schema["properties"].as_object().unwrap() {
                    assert!(property["description"].is_string(), "{}: {name}", tool.name);
                    let has_type = property["type"].is_string() || property["enum"].is_array();
                    assert!(has_type, "{}: {name}: {property}", tool.name);
                }
            }
        }
    }
}
