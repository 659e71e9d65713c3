//! The schemas of values whose types serialize themselves: saved sessions, agents, the pool, reports.
//!
//! They have the documented fields; more may be added. The tests check them against real traffic.

use serde_json::{Map, Value, json};

/// The fields of usage that are absent if there is nothing to say.
const OPTIONAL_USAGE: &[&str] =
    &["cache_write_tokens", "cache_write_long_tokens", "tool_tokens", "cost_source", "cost_estimated"];

/// Returns the schemas by name.
pub(super) fn all() -> Map<String, Value> {
    let shapes = [sessions(), server(), experiments()].into_iter().flatten();
    shapes.map(|(name, shape)| (name.to_owned(), shape)).collect()
}

/// Returns the schema of an object. All fields are always there, except the optional ones.
fn object(fields: &[(&str, Value)], optional: &[&str]) -> Value {
    let required: Vec<&str> =
        fields.iter().map(|(name, _)| *name).filter(|name| !optional.contains(name)).collect();
    let fields: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "required": required, "properties": fields, "additionalProperties": true})
}

fn kind(name: &str) -> Value {
    json!({"type": name})
}

fn nullable(name: &str) -> Value {
    json!({"type": [name, "null"]})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn open() -> Value {
    json!({"type": "object", "additionalProperties": true})
}

/// Returns fields of one type.
fn fields<const N: usize>(schema: &Value, names: [&'static str; N]) -> Vec<(&'static str, Value)> {
    names.into_iter().map(|name| (name, schema.clone())).collect()
}

/// Returns the fields of a session. Times are in milliseconds since the Unix epoch.
fn session() -> Vec<(&'static str, Value)> {
    let mut all = fields(&kind("string"), ["agent", "id"]);
    all.extend(fields(&nullable("string"), ["project", "title", "agent_version", "model", "parent"]));
    all.extend(fields(&nullable("integer"), ["started", "updated"]));
    all
}

/// Returns the fields of counted tokens and their cost. Null means unknown.
fn usage() -> Vec<(&'static str, Value)> {
    let mut all = fields(
        &nullable("integer"),
        ["input_tokens", "output_tokens", "cached_tokens", "thought_tokens", "total_tokens"],
    );
    all.extend(fields(&kind("integer"), ["cache_write_tokens", "cache_write_long_tokens", "tool_tokens"]));
    all.push(("requests", kind("integer")));
    all.push(("cost_usd", nullable("number")));
    all.push(("known_cost_usd", kind("number")));
    all.push(("cost_source", kind("string")));
    all.push(("cost_estimated", kind("boolean")));
    all
}

fn sessions() -> Vec<(&'static str, Value)> {
    let integer = kind("integer");
    let by_model = json!({"type": "object", "additionalProperties": reference("UsageCounts")});
    let mut listed = [session(), usage()].concat();
    listed.extend(fields(&integer, ["prompts", "answers", "tool_calls", "size", "damage"]));
    listed.extend([("by_model", by_model.clone()), ("places", list(json!({})))]);
    let mut result = session();
    result.extend([("place", json!({})), ("hits", list(reference("SearchHit")))]);
    let mut hit = fields(&kind("string"), ["entry_id", "role", "place", "text"]);
    hit.extend(fields(&integer, ["entry", "line"]));
    hit.extend(fields(&list(kind("string")), ["before", "after"]));
    hit.extend([("timestamp", nullable("integer")), ("tool", nullable("string"))]);
    hit.push(("spans", list(object(&fields(&integer, ["start", "end"]), &[]))));
    let mut details = session();
    details.push(("cost_usd", nullable("number")));
    let message = [
        ("id", kind("string")),
        ("role", kind("string")),
        ("content", json!({"type": ["string", "array"]})),
        ("stop_reason", nullable("string")),
        ("timestamp", integer.clone()),
        ("tool", kind("string")),
    ];
    let loaded = [
        ("session", reference("SessionDetails")),
        ("messages", list(reference("SessionMessage"))),
        ("damage", list(open())),
    ];
    let mut row = usage();
    row.extend(fields(&integer, ["sessions", "answers", "turns"]));
    row.extend([("name", kind("string")), ("title", kind("string")), ("by_model", by_model)]);
    let count = [
        ("by", kind("string")),
        ("rows", list(reference("SessionUsageRow"))),
        ("total", reference("SessionUsageRow")),
    ];
    vec![
        ("SavedSessions", object(&[("sessions", list(reference("SavedSession")))], &[])),
        ("SavedSession", object(&listed, OPTIONAL_USAGE)),
        ("SearchResults", object(&[("results", list(reference("SearchResult")))], &[])),
        ("SearchResult", object(&result, &[])),
        ("SearchHit", object(&hit, &[])),
        ("LoadedSession", object(&loaded, &[])),
        ("SessionDetails", object(&details, &[])),
        ("SessionMessage", object(&message, &["id", "stop_reason", "timestamp"])),
        ("SessionUsage", object(&count, &[])),
        ("SessionUsageRow", object(&row, &[OPTIONAL_USAGE, &["title"]].concat())),
        ("UsageCounts", object(&usage(), OPTIONAL_USAGE)),
    ]
}

fn server() -> Vec<(&'static str, Value)> {
    let (text, integer) = (kind("string"), kind("integer"));
    let abilities = [("card", reference("AgentCard")), ("surfaces", open())];
    let mut card = fields(
        &text,
        [
            "id",
            "title",
            "program",
            "path_variable",
            "package",
            "pinned",
            "sign_in_hint",
            "provider",
            "home_page",
        ],
    );
    card.extend(fields(&list(text.clone()), ["aliases", "variables", "surfaces", "instructions"]));
    card.extend([("min_node", integer.clone()), ("max_prompt_bytes", nullable("integer"))]);
    card.push(("install_script", kind("boolean")));
    let mut process = fields(&integer, ["active", "sessions", "age_ms"]);
    process.extend([("agent", text), ("version", nullable("string")), ("ready", kind("boolean"))]);
    process.extend(fields(&nullable("integer"), ["pid", "memory"]));
    let mut pool = fields(&integer, ["queued", "runs", "started", "retried", "recycled"]);
    pool.push(("processes", list(reference("PoolProcess"))));
    let runs = fields(&integer, ["active", "waiting"]);
    let state = [("pool", object(&pool, &[])), ("runs", object(&runs, &[]))];
    vec![
        ("Agents", list(reference("AgentAbilities"))),
        ("AgentAbilities", object(&abilities, &[])),
        ("AgentCard", object(&card, &[])),
        ("PoolState", object(&state, &[])),
        ("PoolProcess", object(&process, &[])),
    ]
}

fn experiments() -> Vec<(&'static str, Value)> {
    let integer = kind("integer");
    let interval = json!({"type": ["array", "null"], "items": kind("number")});
    let mut variant = fields(&integer, ["runs", "passed", "failed", "infrastructure"]);
    variant.extend(fields(&nullable("number"), ["pass_rate", "cost_usd", "judge_cost_usd"]));
    variant.extend(fields(&interval, ["interval", "bounds"]));
    variant.extend(fields(&nullable("object"), ["cost_per_run_usd", "tokens", "duration_ms"]));
    let case = [("id", kind("string")), ("runs", list(open()))];
    let report = [
        ("schema", kind("string")),
        ("name", kind("string")),
        ("description", nullable("string")),
        ("variants", json!({"type": "object", "additionalProperties": reference("ExperimentVariant")})),
        ("comparisons", list(open())),
        ("sequential", nullable("object")),
        ("changes", list(open())),
        ("cases", list(object(&case, &[]))),
        ("left_out", integer),
        ("warnings", list(kind("string"))),
    ];
    vec![("ExperimentReport", object(&report, &[])), ("ExperimentVariant", object(&variant, &[]))]
}
