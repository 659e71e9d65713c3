//! The operations of the interface.

use super::query_of;
use crate::messages::{
    Cancelling, ConversationList, Decided, Directories, DirectoryQuery, EventBatch, EventsQuery,
    ExperimentList, ExperimentProgress, ExperimentQuery, FileQuery, LoginLink, NextPrompt, OpenPermissions,
    OutcomeQuery, PermissionReply, RunFiles, RunList, RunOutcome, RunQuery, ServedConversation, ServedRun,
    ServerInfo, SessionsFilterQuery, StartRun, Steer,
};
use agentline::host::messages::{Cancelled, Detected, SessionsLoad, SessionsQuery};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

const JSON: &str = "application/json";
/// The description of a stream of events.
const EVENTS: &str = "`id`, `event` and `data` of each event are the fields of `NumberedEvent`; the data of `resync` is `Resync`.";

/// One operation.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) query: Vec<Value>,
    pub(super) body: Option<Value>,
    /// The status, its description and its body.
    pub(super) answers: Vec<(u16, &'static str, Option<Payload>)>,
}

/// The body of a response.
pub(super) struct Payload {
    pub(super) content_type: &'static str,
    pub(super) schema: Value,
}

impl Operation {
    fn new(route: &'static str, id: &'static str, tag: &'static str, summary: &'static str) -> Self {
        let (method, path) = route.split_once(' ').unwrap_or(("get", route));
        Self { method, path, id, tag, summary, query: Vec::new(), body: None, answers: Vec::new() }
    }

    fn query<T: JsonSchema>(mut self, generator: &mut SchemaGenerator) -> Self {
        let schema = generator.subschema_for::<T>();
        self.query = query_of(generator, &schema);
        self
    }

    fn body<T: JsonSchema>(mut self, generator: &mut SchemaGenerator) -> Self {
        self.body = Some(json!(generator.subschema_for::<T>()));
        self
    }

    fn answer<T: JsonSchema>(self, generator: &mut SchemaGenerator, status: u16) -> Self {
        let schema = json!(generator.subschema_for::<T>());
        self.answer_with(status, JSON, schema)
    }

    fn answer_of(self, status: u16, shape: &str) -> Self {
        self.answer_with(status, JSON, json!({"$ref": format!("#/components/schemas/{shape}")}))
    }

    fn answer_with(mut self, status: u16, content_type: &'static str, schema: Value) -> Self {
        let description = if status == 201 { "It was created." } else { "The result." };
        self.answers.push((status, description, Some(Payload { content_type, schema })));
        self
    }

    fn done(mut self, status: u16, description: &'static str) -> Self {
        self.answers.push((status, description, None));
        self
    }
}

/// Returns all operations.
pub(super) fn operations(generator: &mut SchemaGenerator) -> Vec<Operation> {
    [runs(generator), conversations(generator), saved(generator), server(generator)]
        .into_iter()
        .flatten()
        .collect()
}

fn runs(g: &mut SchemaGenerator) -> Vec<Operation> {
    let op = |route, id, summary| Operation::new(route, id, "runs", summary);
    vec![
        op("post /v1/runs", "startRun", "Starts a run").body::<StartRun>(g).answer::<ServedRun>(g, 201),
        op("get /v1/runs", "listRuns", "Lists runs, newest first; can wait for a change")
            .query::<RunQuery>(g)
            .answer::<RunList>(g, 200),
        op("get /v1/runs/{run}", "showRun", "Returns a run").answer::<ServedRun>(g, 200),
        op("get /v1/runs/{run}/events", "streamEvents", "Streams the events of a run, from `Last-Event-ID`")
            .query::<EventsQuery>(g)
            .answer_with(200, "text/event-stream", json!({"type": "string", "description": EVENTS}))
            .done(204, "The client has all events, and the run is over."),
        op("get /v1/runs/{run}/poll", "pollEvents", "Waits for events of a run and returns them")
            .query::<EventsQuery>(g)
            .answer::<EventBatch>(g, 200),
        op("post /v1/runs/{run}/cancel", "cancelRun", "Cancels a run; its outcome follows in the events")
            .body::<Cancelling>(g)
            .answer::<Cancelled>(g, 200),
        op("get /v1/runs/{run}/outcome", "showOutcome", "Returns the outcome of a run; can wait for it")
            .query::<OutcomeQuery>(g)
            .answer::<RunOutcome>(g, 200),
        op("get /v1/runs/{run}/files", "listFiles", "Returns the files that a run changed, with diffs")
            .answer::<RunFiles>(g, 200),
        op("get /v1/runs/{run}/file", "readFile", "Returns a file of the run's workspace as it is now")
            .query::<FileQuery>(g)
            .answer_with(200, "application/octet-stream", json!({"type": "string", "format": "binary"})),
        op(
            "get /v1/runs/{run}/permissions",
            "listPermissions",
            "Returns the open permission requests of a run",
        )
        .answer::<OpenPermissions>(g, 200),
        op("post /v1/runs/{run}/permissions/{id}", "answerPermission", "Answers a permission request")
            .body::<PermissionReply>(g)
            .answer::<Decided>(g, 200),
        op(
            "post /v1/runs/{run}/steer",
            "steerRun",
            "Sends a text into a conversation, after its prompts or instead of the active one",
        )
        .body::<Steer>(g)
        .answer::<ServedRun>(g, 201),
    ]
}

fn conversations(g: &mut SchemaGenerator) -> Vec<Operation> {
    let op = |route, id, summary| Operation::new(route, id, "conversations", summary);
    vec![
        op("post /v1/conversations", "openConversation", "Opens a conversation")
            .body::<StartRun>(g)
            .answer::<ServedConversation>(g, 201),
        op(
            "get /v1/conversations",
            "listConversations",
            "Lists the conversations since the start of the server",
        )
        .answer::<ConversationList>(g, 200),
        op("get /v1/conversations/{id}", "showConversation", "Returns a conversation")
            .answer::<ServedConversation>(g, 200),
        op("delete /v1/conversations/{id}", "closeConversation", "Closes a conversation and ends its agent")
            .done(204, "It is closed."),
        op("post /v1/conversations/{id}/prompts", "sendPrompt", "Sends a prompt after the earlier ones")
            .body::<NextPrompt>(g)
            .answer::<ServedRun>(g, 201),
    ]
}

fn saved(g: &mut SchemaGenerator) -> Vec<Operation> {
    let op = |route, id, summary| Operation::new(route, id, "sessions", summary);
    let experiment = |route, id, summary| Operation::new(route, id, "experiments", summary);
    vec![
        op("get /v1/sessions", "listSessions", "Lists saved sessions of all agents, newest first")
            .query::<SessionsFilterQuery>(g)
            .answer_of(200, "SavedSessions"),
        op("post /v1/sessions/search", "searchSessions", "Searches the content of saved sessions")
            .body::<SessionsQuery>(g)
            .answer_of(200, "SearchResults"),
        op("get /v1/sessions/show", "showSession", "Returns a saved session with its messages")
            .query::<SessionsLoad>(g)
            .answer_of(200, "LoadedSession"),
        op("get /v1/sessions/usage", "sessionUsage", "Counts tokens and cost of saved sessions")
            .query::<SessionsFilterQuery>(g)
            .answer_of(200, "SessionUsage"),
        experiment("get /v1/experiments", "listExperiments", "Finds experiments in the served directories")
            .answer::<ExperimentList>(g, 200),
        experiment("get /v1/experiments/status", "experimentStatus", "Returns the progress of an experiment")
            .query::<ExperimentQuery>(g)
            .answer::<ExperimentProgress>(g, 200),
        experiment("get /v1/experiments/report", "experimentReport", "Returns the report of an experiment")
            .query::<ExperimentQuery>(g)
            .answer_of(200, "ExperimentReport")
            .answer_with(200, "text/html", json!({"type": "string"})),
    ]
}

fn server(g: &mut SchemaGenerator) -> Vec<Operation> {
    let op = |route, id, summary| Operation::new(route, id, "server", summary);
    vec![
        op("get /v1/info", "serverInfo", "Returns what the token may do, and where")
            .answer::<ServerInfo>(g, 200),
        op("get /v1/agents", "listAgents", "Returns the abilities of each agent").answer_of(200, "Agents"),
        op("get /v1/agents/{agent}", "detectAgent", "Finds the program of an agent")
            .answer::<Detected>(g, 200),
        op("get /v1/pool", "poolStatus", "Returns the status of the pool of agents")
            .answer_of(200, "PoolState"),
        op("get /v1/directories", "listDirectories", "Returns the subdirectories of a directory")
            .query::<DirectoryQuery>(g)
            .answer::<Directories>(g, 200),
        op("post /v1/login-links", "newLoginLink", "Creates a link that signs a browser in once")
            .answer::<LoginLink>(g, 200),
        op("post /v1/logout", "logOut", "Ends the session of the browser")
            .done(204, "The session has ended, and the cookie is removed."),
    ]
}
