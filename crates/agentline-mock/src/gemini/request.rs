//! What the agent asked the model, kept for tests to look at.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a request is for. Only [`Purpose::Main`] uses up a step of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// A turn of the agent or of one of its subagents.
    Main,
    /// The agent lets a small model choose the model (when it runs with `auto`).
    Router,
    /// Any other helper request: a session's summary, a check for loops, a web search, an edit to correct.
    Utility,
    /// A count of tokens.
    Count,
    /// A path that this model does not serve; answered with 404.
    Unknown,
}

/// One request that reached the model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GeminiRequest {
    /// The path with its query.
    pub path: String,
    /// The model in the path, or nothing.
    pub model: String,
    /// Header names are in lower case.
    pub headers: BTreeMap<String, String>,
    /// The JSON body; `null` if it was not JSON.
    pub body: Value,
    /// When it came, in milliseconds after the model started.
    pub at_ms: u64,
    /// What it was for.
    pub purpose: Purpose,
}

impl GeminiRequest {
    /// The names of the tools that the agent offered, in its order.
    pub fn offered_tools(&self) -> Vec<String> {
        function_declarations(&self.body)
            .filter_map(|tool| tool["name"].as_str())
            .map(str::to_owned)
            .collect()
    }

    /// Every text of the user's turns, oldest first. The first is the agent's own `<session_context>`.
    pub fn user_texts(&self) -> Vec<String> {
        let turns = contents(&self.body).filter(|turn| turn["role"] == "user");
        turns.flat_map(parts).filter_map(|part| part["text"].as_str()).map(str::to_owned).collect()
    }

    /// The system instruction, its parts joined.
    pub fn system_text(&self) -> String {
        parts(&self.body["systemInstruction"]).filter_map(|part| part["text"].as_str()).collect()
    }

    /// The tool results sent back so far: the tool's name and its `response` object, oldest first.
    pub fn tool_responses(&self) -> Vec<(String, Value)> {
        let responses = contents(&self.body).flat_map(parts).map(|part| &part["functionResponse"]);
        let named =
            responses.filter_map(|response| Some((response["name"].as_str()?, &response["response"])));
        named.map(|(name, response)| (name.to_owned(), response.clone())).collect()
    }

    /// The prompt that is being answered: the text of the last turn of the user that answers no tool.
    ///
    /// Several sessions of one agent can be told apart by it; see [`ScriptedModel::matching`](super::ScriptedModel).
    pub fn prompt(&self) -> String {
        let Some((_, turn)) = self.last_prompt() else { return String::new() };
        let texts = parts(turn).filter_map(|part| part["text"].as_str());
        texts
            .filter(|text| !text.trim_start().starts_with("<session_context>"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// How often the model has spoken since that prompt: the index of the step that a script for it needs.
    pub fn turn_in_prompt(&self) -> usize {
        let after = self.last_prompt().map_or(0, |(index, _)| index + 1);
        contents(&self.body).skip(after).filter(|turn| turn["role"] == "model").count()
    }

    /// The files that came along in the turns of the user, oldest first: their type, and their content in base64.
    pub fn attachments(&self) -> Vec<(String, String)> {
        let turns = contents(&self.body).filter(|turn| turn["role"] == "user");
        let data = turns.flat_map(parts).map(|part| &part["inlineData"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        data.filter_map(|data| Some((text(&data["mimeType"])?, text(&data["data"])?))).collect()
    }

    fn last_prompt(&self) -> Option<(usize, &Value)> {
        let is_prompt = |turn: &Value| {
            turn["role"] == "user" && !parts(turn).any(|part| part["functionResponse"].is_object())
        };
        contents(&self.body).enumerate().filter(|(_, turn)| is_prompt(turn)).last()
    }

    /// How often the model has spoken in this conversation: the index of the step that a script of its own needs.
    pub fn turn(&self) -> usize {
        contents(&self.body).filter(|turn| turn["role"] == "model").count()
    }
}

pub(super) fn function_declarations(body: &Value) -> impl Iterator<Item = &Value> {
    items(&body["tools"]).flat_map(|tool| items(&tool["functionDeclarations"]))
}

fn contents(body: &Value) -> impl Iterator<Item = &Value> {
    items(&body["contents"])
}

fn parts(turn: &Value) -> impl Iterator<Item = &Value> {
    items(&turn["parts"])
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
