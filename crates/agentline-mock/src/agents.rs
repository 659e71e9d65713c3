//! The agents that the scripted models can serve: their API, the home in which they use such a model, and their tools.

mod claude;
mod codex;
mod copilot;
mod droid;
mod gemini;
mod goose;
mod grok;
mod kimi;
mod opencode;
mod pi;
mod qwen;
mod vibe;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::answer::{Action, Answer, AnswerPart, ServiceError};
use crate::gemini::{GeminiModel, GeminiRequest, Purpose};
use crate::scripted::{HttpError, ModelPart, ModelRequest, ModelStep, ModelTokens, ScriptedModel};
use crate::step::ModelFault;
use crate::{anthropic, openai, responses};

/// An agent that a scripted model can serve.
pub struct ScriptedAgent {
    /// The agent's id in agentline.
    pub id: &'static str,
    /// The model to request, unless the agent's own default serves.
    pub model: Option<&'static str>,
    /// Another model that the agent accepts.
    pub other_model: &'static str,
    /// A model that the service does not have.
    pub unknown_model: &'static str,
    api: ModelApi,
    /// Whether the agent counts the tokens of the reasoning separately. If not, they are part of the answer.
    pub counts_reasoning: bool,
    /// Writes the files into a home with which the agent uses a model at this address, and returns its variables.
    prepare: fn(home: &Path, url: &str) -> io::Result<Variables>,
    /// Returns the call of a tool. The names are those of the tools that the agent offers.
    call: fn(action: &Action, offered: &[String]) -> ModelPart,
}

/// The tool with which models of several agents submit a structured answer.
const VALUE_TOOL: &str = "StructuredOutput";

/// Names and values of environment variables.
type Variables = Vec<(&'static str, String)>;

/// The agents that a scripted model can serve.
pub static AGENTS: &[&ScriptedAgent] = &[
    &gemini::AGENT,
    &claude::AGENT,
    &codex::AGENT,
    &opencode::AGENT,
    &copilot::AGENT,
    &qwen::AGENT,
    &goose::AGENT,
    &kimi::AGENT,
    &vibe::AGENT,
    &grok::AGENT,
    &droid::AGENT,
    &pi::AGENT,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelApi {
    Gemini,
    Anthropic,
    Responses,
    Chat,
}

impl ModelApi {
    /// Returns the text with which the service reports an error.
    fn message(self, error: ServiceError, model: &str) -> String {
        match (self, error) {
            (Self::Anthropic, ServiceError::Unauthorized) => "invalid x-api-key".into(),
            (_, ServiceError::Unauthorized) => "Incorrect API key provided: no-key-of-anything.".into(),
            (Self::Anthropic, ServiceError::RateLimited) => {
                "This request would exceed the rate limit for your organization.".into()
            }
            (_, ServiceError::RateLimited) => "Rate limit reached for requests.".into(),
            (_, ServiceError::Internal) => "Internal server error".into(),
            (Self::Anthropic, ServiceError::Overloaded) => "Overloaded".into(),
            (_, ServiceError::Overloaded) => "The model is overloaded. Please try again later.".into(),
            (Self::Anthropic, ServiceError::TooLong) => {
                "prompt is too long: 250000 tokens > 200000 maximum".into()
            }
            (Self::Gemini, ServiceError::TooLong) => {
                "The input token count (1500000) exceeds the maximum number of tokens allowed (1048576)."
                    .into()
            }
            (_, ServiceError::TooLong) => {
                "Your input exceeds the context window of this model. Please adjust your input and try again."
                    .into()
            }
            (Self::Anthropic, ServiceError::UnknownModel) => format!("model: {model}"),
            (_, ServiceError::UnknownModel) => {
                format!("The model `{model}` does not exist or you do not have access to it.")
            }
        }
    }
}

impl ScriptedAgent {
    /// Returns an agent by its id.
    #[must_use]
    pub fn find(id: &str) -> Option<&'static Self> {
        AGENTS.iter().find(|agent| agent.id == id).copied()
    }

    /// Starts a model that answers each turn of the agent by its content.
    ///
    /// # Errors
    /// Returns an error if there is no free port on loopback.
    pub fn model(
        &'static self,
        respond: impl Fn(&ServedRequest) -> Answer + Send + Sync + 'static,
    ) -> io::Result<AgentModel> {
        let respond_step = move |request: &ServedRequest| self.step(&respond(request), request);
        let server = match self.api {
            ModelApi::Gemini => AgentServer::Gemini(GeminiModel::by_prompt(move |request| {
                gemini::step(&respond_step(&ServedRequest::of_gemini(request)))
            })?),
            api => {
                let by_content = move |request: &ModelRequest| respond_step(&ServedRequest::of(request));
                AgentServer::Other(match api {
                    ModelApi::Anthropic => anthropic::model_by(by_content)?,
                    ModelApi::Responses => responses::model_by(by_content)?,
                    _ => openai::model_by(by_content)?,
                })
            }
        };
        Ok(AgentModel { agent: self, server })
    }

    /// Prepares an empty home in which the agent uses a model at this address, and returns the variables that it needs.
    ///
    /// # Errors
    /// Returns an error if the home cannot be written.
    pub fn prepare(&self, home: &Path, url: &str) -> io::Result<BTreeMap<String, String>> {
        let variables = (self.prepare)(home, url)?;
        Ok(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn step(&self, answer: &Answer, request: &ServedRequest) -> ModelStep {
        let part = |part: &AnswerPart| match part {
            AnswerPart::Text(text) => ModelPart::Text(text.clone()),
            AnswerPart::Thought(text) => ModelPart::Thought(text.clone()),
            AnswerPart::Use(action) => (self.call)(action, &request.offered_tools),
            AnswerPart::Value(value) if request.offered_tools.iter().any(|tool| tool == VALUE_TOOL) => {
                call(VALUE_TOOL, value.clone())
            }
            AnswerPart::Value(value) => ModelPart::Text(value.to_string()),
        };
        let error = |error: ServiceError| HttpError {
            status: error.status(),
            message: self.api.message(error, &request.model),
        };
        ModelStep {
            parts: answer.parts.iter().map(part).collect(),
            usage: answer.usage,
            cut: answer.cut,
            fault: answer.fault.as_ref().map(|fault| match fault {
                ModelFault::Error(of) => ModelFault::Error(error(*of)),
                ModelFault::Drop => ModelFault::Drop,
                ModelFault::DropMidway => ModelFault::DropMidway,
                ModelFault::HangMidway => ModelFault::HangMidway,
                ModelFault::Hang => ModelFault::Hang,
            }),
            delay_ms: answer.delay_ms,
        }
    }
}

impl fmt::Debug for ScriptedAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedAgent").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A request of an agent to its scripted model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServedRequest {
    /// The requested model.
    pub model: String,
    /// Whether it is a turn of the agent. Other requests are for the agent's own purposes, such as a title.
    pub is_turn: bool,
    /// Every text of the user's turns, oldest first. Agents add texts of their own.
    pub user_texts: Vec<String>,
    /// The names of the tools that the agent offered.
    pub offered_tools: Vec<String>,
    /// The tool results so far as text, oldest first.
    pub tool_results: Vec<String>,
    /// The JSON body.
    pub body: Value,
    /// The time of arrival in milliseconds after the model started.
    pub at_ms: u64,
    /// The token counts of the answer, if it had any.
    pub tokens: Option<ModelTokens>,
}

impl ServedRequest {
    fn of(request: &ModelRequest) -> Self {
        Self {
            model: request.body["model"].as_str().unwrap_or_default().to_owned(),
            is_turn: request.is_turn,
            user_texts: request.user_texts(),
            offered_tools: request.offered_tools(),
            tool_results: request.tool_results(),
            body: request.body.clone(),
            at_ms: request.at_ms,
            tokens: request.tokens,
        }
    }

    fn of_gemini(request: &GeminiRequest) -> Self {
        let tokens = request.tokens.map(|tokens| ModelTokens {
            input: tokens.prompt,
            cached: tokens.cached,
            output: tokens.candidates + tokens.thoughts,
            reasoning: tokens.thoughts,
        });
        Self {
            model: request.model.clone(),
            is_turn: request.purpose == Purpose::Main,
            user_texts: request.user_texts(),
            offered_tools: request.offered_tools(),
            tool_results: request.tool_responses().iter().map(|(_, response)| response.to_string()).collect(),
            body: request.body.clone(),
            at_ms: request.at_ms,
            tokens,
        }
    }
}

/// The scripted model of one agent. It serves until it is dropped.
#[derive(Debug)]
pub struct AgentModel {
    agent: &'static ScriptedAgent,
    server: AgentServer,
}

#[derive(Debug)]
enum AgentServer {
    Gemini(GeminiModel),
    Other(ScriptedModel),
}

impl AgentModel {
    /// Returns the base address, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.server {
            AgentServer::Gemini(model) => model.url(),
            AgentServer::Other(model) => model.url(),
        }
    }

    /// Prepares an empty home in which the agent uses this model, and returns the variables that it needs.
    ///
    /// # Errors
    /// Returns an error if the home cannot be written.
    pub fn prepare(&self, home: &Path) -> io::Result<BTreeMap<String, String>> {
        self.agent.prepare(home, &self.url())
    }

    /// Returns every request to the model so far, in order of arrival.
    #[must_use]
    pub fn log(&self) -> Vec<ServedRequest> {
        match &self.server {
            AgentServer::Gemini(model) => {
                let requests = model.requests();
                let answered =
                    |request: &&GeminiRequest| !matches!(request.purpose, Purpose::Count | Purpose::Unknown);
                requests.iter().filter(answered).map(ServedRequest::of_gemini).collect()
            }
            AgentServer::Other(model) => model.requests().iter().map(ServedRequest::of).collect(),
        }
    }
}

/// Writes a file below a directory, and creates the directories in between.
fn write_file(dir: &Path, path: &str, content: &str) -> io::Result<()> {
    let path = dir.join(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, content)
}

/// Returns the call of a tool with JSON arguments.
fn call(name: impl Into<String>, args: Value) -> ModelPart {
    ModelPart::Call { namespace: None, name: name.into(), args }
}

/// Returns the offered name of an MCP tool: the one that ends with the tool's own name, or else the usual one.
fn offered_name(offered: &[String], tool: &str, usual: String) -> String {
    if offered.contains(&usual) {
        return usual;
    }
    offered.iter().find(|name| name.ends_with(tool)).cloned().unwrap_or(usual)
}
