//! The tools: their names, descriptions and arguments.

use rmcp::model::{Tool, ToolAnnotations};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The arguments of `agent_run` and `agent_start`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct StartRunArgs {
    /// The task for the agent. It knows nothing about this conversation, so describe the task completely.
    pub(crate) prompt: String,
    /// The agent. agent_list has the available ones.
    pub(crate) agent: Option<String>,
    /// The model, as the agent names it.
    pub(crate) model: Option<String>,
    /// The directory in which the agent works, relative to the default one, or absolute.
    pub(crate) cwd: Option<PathBuf>,
    /// What the agent may do without permission: `plan` (only read), `default`, `accept-edits` or `bypass`. It cannot
    /// allow more than the server does.
    pub(crate) permission_mode: Option<String>,
    /// The time limit of the run in seconds. It can only lower the limit of the server.
    pub(crate) timeout_s: Option<f64>,
    /// The most that the run may cost in US dollars.
    pub(crate) max_cost: Option<f64>,
    /// The `session_id` of an earlier run of the same agent in the same directory, to continue it.
    pub(crate) resume: Option<String>,
}

/// The arguments of `agent_wait`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WaitArgs {
    /// The run, as `agent_start` or `agent_run` returned it.
    pub(crate) run: String,
    /// How long to wait in seconds. The server may return earlier.
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
        tool::<StartRunArgs>("agent_run", run, Effect::Changes),
        tool::<StartRunArgs>(
            "agent_start",
            "Starts a coding agent on a task and returns its `run` at once. Several agents can work at the same time. \
             Call agent_wait for the result.",
            Effect::Changes,
        ),
        tool::<WaitArgs>("agent_wait", wait, Effect::Reads),
        tool::<ResultArgs>(
            "agent_result",
            "Returns the result of a run, or its progress if it is not over. Does not wait.",
            Effect::Reads,
        ),
        tool::<CancelArgs>("agent_cancel", "Stops a run.", Effect::Stops),
        tool::<ListRunsArgs>(
            "agent_list",
            "Lists the available agents and the runs of this client.",
            Effect::Reads,
        ),
        tool::<SearchSessionsArgs>(
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

fn tool<A: JsonSchema>(
    name: &'static str,
    description: impl Into<std::borrow::Cow<'static, str>>,
    effect: Effect,
) -> Tool {
    let hints = ToolAnnotations::new()
        .read_only(effect == Effect::Reads)
        .destructive(effect == Effect::Changes)
        .open_world(effect == Effect::Changes);
    Tool::new(name, description, schema_of::<A>()).with_annotations(hints)
}

/// Returns a schema for models: inlined, without parts that are only for validators.
fn schema_of<A: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = Value::from(settings.into_generator().into_root_schema_for::<A>());
    let Some(schema) = schema.as_object_mut() else { return Map::new() };
    schema.remove("title");
    schema.remove("description");
    // Some models require the key even if there are no properties.
    schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    std::mem::take(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_objects_without_references() {
        let tools = all(45);
        assert_eq!(tools.len(), 7);
        for tool in tools {
            let schema = Value::Object((*tool.input_schema).clone());
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert!(schema["properties"].is_object(), "{}", tool.name);
            assert!(!schema.to_string().contains("$ref"), "{}", tool.name);
        }
    }
}
