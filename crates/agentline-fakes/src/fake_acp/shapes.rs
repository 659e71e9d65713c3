//! The JSON of the protocol, in the formats that real agents send.

use serde_json::{Value, json};
use std::sync::LazyLock;

use super::faults::{ActiveFaults, FaultFlag};

/// The modes of a session. Each begins in the first one.
pub(super) static MODES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let modes = std::env::var("FAKE_ACP_MODES").unwrap_or_else(|_| "default,autoEdit,yolo,plan".to_owned());
    modes.split(',').map(ToOwned::to_owned).collect()
});

/// Returns whether a session has this mode.
pub(super) fn has_mode(id: &str) -> bool {
    MODES.iter().any(|mode| mode == id)
}

/// The models that a session lists.
pub(super) const MODELS: [&str; 3] = ["auto", "fake-large", "fake-small"];

/// An image of one pixel.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

/// Returns the result of `initialize`.
pub(super) fn initialized(faults: &ActiveFaults, version: &str) -> Value {
    let protocol = faults.number(FaultFlag::ProtocolVersion, 2).unwrap_or(1);
    if faults.has(FaultFlag::InitializeBare) {
        return json!({"protocolVersion": protocol});
    }
    if faults.has(FaultFlag::InitializeOdd) {
        return json!({
            "protocolVersion": protocol, "agentInfo": "fake-acp", "agentCapabilities": [], "authMethods": null,
            "later": {"field": 1},
        });
    }
    let needs_auth = faults.has(FaultFlag::AuthRequired) || faults.has(FaultFlag::AuthHopeless);
    let methods = if needs_auth {
        json!([{"id": "fake-login", "name": "Log in", "description": "Nothing is checked"}])
    } else {
        json!([])
    };
    let mut result = json!({
        "protocolVersion": protocol,
        "agentInfo": {"name": "fake-acp", "title": "Fake ACP agent", "version": version},
        "agentCapabilities": {
            "loadSession": !faults.has(FaultFlag::NoLoad),
            "promptCapabilities": {"image": true, "audio": true, "embeddedContext": true},
            "mcpCapabilities": {"http": true, "sse": true},
        },
        "authMethods": methods,
    });
    if faults.has(FaultFlag::ProcessPerSession) {
        result["agentCapabilities"]["sessionCapabilities"] = json!({"close": {}});
    }
    result
}

/// Returns the modes, models and options in the results of `session/new` and `session/load`.
pub(super) fn opened(faults: &ActiveFaults, mode: &str, model: &str) -> Value {
    if faults.has(FaultFlag::NoModesNoModels) {
        return json!({});
    }
    if faults.has(FaultFlag::ConfigOptionsOnly) {
        return json!({"configOptions": config_options(mode, model)});
    }
    let modes: Vec<Value> = MODES
        .iter()
        .map(|id| json!({"id": id, "name": id, "description": format!("The mode {id}")}))
        .collect();
    let models: Vec<Value> = MODELS.iter().map(|id| json!({"modelId": id, "name": id})).collect();
    json!({
        "modes": {"availableModes": modes, "currentModeId": mode},
        "models": {"availableModels": models, "currentModelId": model},
        "configOptions": config_options(mode, model),
    })
}

/// Returns the options of a session.
pub(super) fn config_options(mode: &str, model: &str) -> Value {
    let option = |id: &str| json!({"value": id, "name": id});
    let models: Vec<Value> = MODELS.iter().map(|id| option(id)).collect();
    let modes: Vec<Value> = MODES.iter().map(|id| option(id)).collect();
    json!([
        {
            "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": model,
            "options": models,
        },
        {
            "id": "mode", "name": "Session Mode", "category": "mode", "type": "select", "currentValue": mode,
            "options": modes,
        },
    ])
}

/// Returns a chunk of text of the answer or of a thought.
pub(super) fn chunk(faults: &ActiveFaults, kind: &str, text: &str) -> Value {
    let content = if faults.has(FaultFlag::TextAsString) {
        json!(text)
    } else if faults.has(FaultFlag::TextAsList) {
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        json!([{"type": "text", "text": &text[..middle]}, {"type": "text", "text": &text[middle..]}])
    } else {
        json!({"type": "text", "text": text})
    };
    json!({"sessionUpdate": kind, "content": content})
}

pub(super) fn image() -> Value {
    let content = json!({"type": "image", "mimeType": "image/png", "data": PICTURE});
    json!({"sessionUpdate": "agent_message_chunk", "content": content})
}

pub(super) fn audio() -> Value {
    let content = json!({"type": "audio", "mimeType": "audio/wav", "data": "UklGRiQAAABXQVZF"});
    json!({"sessionUpdate": "agent_message_chunk", "content": content})
}

pub(super) fn plan() -> Value {
    let entry = |content: &str, priority: &str, status: &str| json!({"content": content, "priority": priority, "status": status});
    json!({"sessionUpdate": "plan", "entries": [
        entry("Read the code", "high", "completed"),
        entry("Change the code", "medium", "in_progress"),
        entry("Run the tests", "low", "pending"),
    ]})
}

pub(super) fn commands() -> Value {
    json!({"sessionUpdate": "available_commands_update", "availableCommands": [
        {"name": "help", "description": "Shows what there is."},
        {"name": "review", "description": "Reviews changes.", "input": {"hint": "what to review"}},
    ]})
}

/// Returns a permission request with the options in Gemini's order, the most permissive first.
pub(super) fn options(faults: &ActiveFaults) -> Value {
    let option = |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
    let always = option("proceed_always", "Allow for this session", "allow_always");
    let reject = option("cancel", "Reject", "reject_once");
    if faults.has(FaultFlag::NoOptions) {
        json!([])
    } else if faults.has(FaultFlag::RejectOnly) {
        json!([reject, option("never", "Never", "reject_always")])
    } else if faults.has(FaultFlag::AlwaysOnly) {
        json!([always, reject])
    } else if faults.has(FaultFlag::UnknownOptionKinds) {
        json!([
            option("a", "Allow twice", "allow_twice"), option("b", "Maybe", "maybe"),
            option("c", "Allow", "allow_once"), {"optionId": "d", "name": "No kind"}, reject,
        ])
    } else if faults.has(FaultFlag::LyingOptionIds) {
        json!([option("allow_once", "No", "reject_once"), option("cancel", "Yes", "allow_once")])
    } else {
        json!([always, option("proceed_once", "Allow", "allow_once"), reject])
    }
}

/// Returns a JSON-RPC error.
pub(super) fn error(code: i64, message: &str) -> Value {
    json!({"code": code, "message": message})
}

/// Returns an error in the format of Gemini's internal errors.
pub(super) fn internal(details: &str) -> Value {
    json!({"code": -32603, "message": "Internal error", "data": {"details": details}})
}
