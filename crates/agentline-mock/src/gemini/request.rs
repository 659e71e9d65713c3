//! The agent's requests to the model, kept for tests.

use std::collections::BTreeMap;

use serde_json::Value;

use super::GeminiTokens;

/// The purpose of a request. Only [`Purpose::Main`] advances the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// A turn of the agent or of one of its subagents.
    Main,
    /// The agent lets a small model choose the model (with `auto`).
    Router,
    /// Any other helper request: a session summary, a loop check, a web search, an edit correction.
    Utility,
    /// A token count.
    Count,
    /// An unknown path, answered with 404.
    Unknown,
}

/// One request to the model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GeminiRequest {
    /// The path with its query.
    pub path: String,
    /// The model in the path, or an empty string.
    pub model: String,
    /// Header names are in lower case.
    pub headers: BTreeMap<String, String>,
    /// The JSON body, or `null` if it was not JSON.
    pub body: Value,
    /// The time of arrival in milliseconds after the model started.
    pub at_ms: u64,
    /// Its purpose.
    pub purpose: Purpose,
    /// The token counts of the answer, if it had any.
    pub tokens: Option<GeminiTokens>,
}

impl GeminiRequest {
    /// Returns the names of the tools that the agent offered, in its order.
    pub fn offered_tools(&self) -> Vec<String> {
        function_declarations(&self.body)
            .filter_map(|tool| tool["name"].as_str())
            .map(str::to_owned)
            .collect()
    }

    /// Returns every text of the user's turns, oldest first. The first is the agent's own `<session_context>`.
    pub fn user_texts(&self) -> Vec<String> {
        let turns = contents(&self.body).filter(|turn| turn["role"] == "user");
        turns.flat_map(parts).filter_map(|part| part["text"].as_str()).map(str::to_owned).collect()
    }

    /// Returns the system instruction with its parts joined.
    pub fn system_text(&self) -> String {
        parts(&self.body["systemInstruction"]).filter_map(|part| part["text"].as_str()).collect()
    }

    /// Returns the tool results sent so far, oldest first: the tool's name and its `response` object.
    pub fn tool_responses(&self) -> Vec<(String, Value)> {
        let responses = contents(&self.body).flat_map(parts).map(|part| &part["functionResponse"]);
        let named =
            responses.filter_map(|response| Some((response["name"].as_str()?, &response["response"])));
        named.map(|(name, response)| (name.to_owned(), response.clone())).collect()
    }

    /// Returns the prompt that is being answered: the text of the last user turn that is not a tool result.
    ///
    /// It distinguishes several sessions of one agent; see [`GeminiModel::matching`](super::GeminiModel).
    pub fn prompt(&self) -> String {
        let Some((_, turn)) = self.last_prompt() else { return String::new() };
        let texts = parts(turn).filter_map(|part| part["text"].as_str());
        texts
            .filter(|text| !text.trim_start().starts_with("<session_context>"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Returns the number of model turns since that prompt: the index of the next step in its script.
    pub fn turn_in_prompt(&self) -> usize {
        let after = self.last_prompt().map_or(0, |(index, _)| index + 1);
        contents(&self.body).skip(after).filter(|turn| turn["role"] == "model").count()
    }

    /// Returns the attached files of the user's turns, oldest first: their type, and their content in base64.
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

    /// Returns the number of model turns in this conversation: the index of the next step in its script.
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
