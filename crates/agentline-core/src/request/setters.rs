//! The methods that build a run request step by step.

use super::{InvalidRule, Limits, ModelValidation, PermissionMode, RunRequest, Sandbox, SystemMode, Trust};
use crate::{AgentId, CachePolicy, McpServer, Rule, RuleError, Surface};
use serde_json::Value;
use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

/// Defines setters that return the request, so that calls can be chained.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident : $from:ty => |$value:ident| $into:expr;)*) => {
        impl RunRequest { $($(#[$doc])* #[must_use] pub fn $name(mut self, $value: $from) -> Self { self.$name = $into; self })* }
    };
}
setters! {
    /// Sets the agent, by id or alias.
    agent: impl Into<AgentId> => |v| v.into();
    /// Sets the surface. By default, the best one is chosen.
    surface: Surface => |v| Some(v);
    /// Sets the model.
    model: impl Into<String> => |v| Some(v.into());
    /// Sets the workspace.
    working_dir: impl Into<PathBuf> => |v| Some(v.into());
    /// Sets the file that contains the prompt.
    prompt_file: impl Into<PathBuf> => |v| Some(v.into());
    /// Sets the caller's system prompt.
    system_prompt: impl Into<String> => |v| Some(v.into());
    /// Sets whether the system prompt extends the agent's own or replaces it.
    system_mode: SystemMode => |v| v;
    /// Sets the caller's name for this prompt.
    name: impl Into<String> => |v| Some(v.into());
    /// Sets what the agent may do without asking.
    permission_mode: PermissionMode => |v| v;
    /// Sets the agent's own sandbox.
    sandbox: Sandbox => |v| v;
    /// Sets the session to resume: an id or `latest`.
    resume: impl Into<String> => |v| Some(v.into());
    /// Sets the id for a new session.
    session_id: impl Into<String> => |v| Some(v.into());
    /// Sets the time limit of the whole run.
    timeout: Duration => |v| v;
    /// Sets the time at which the run must be over.
    deadline: SystemTime => |v| Some(v);
    /// Sets the maximum silence while nothing is pending.
    idle_timeout: Duration => |v| v;
    /// Sets the maximum silence while a tool runs.
    tool_timeout: Duration => |v| v;
    /// Sets the maximum time until the agent's first response.
    startup_timeout: Duration => |v| v;
    /// Sets the maximum time for which an agent may retry.
    retry_patience: Duration => |v| v;
    /// Sets how many times the run is retried on each model.
    retries: u32 => |v| Some(v);
    /// Sets whether the run may be retried after it changed files.
    retry_after_changes: bool => |v| v;
    /// Sets the silence after the answer that ends a turn over ACP.
    quiet_period: Duration => |v| Some(v);
    /// Sets the limits on turns, tool calls, tokens and cost.
    limits: Limits => |v| v;
    /// Sets the trust in the workspace.
    trust: Trust => |v| v;
    /// Sets whether the agent resolves `@file` references.
    file_references: bool => |v| v;
    /// Sets the API key for the agent's service.
    api_key: impl Into<String> => |v| Some(v.into());
    /// Sets how a model that the agent does not list is treated.
    model_validation: ModelValidation => |v| v;
    /// Sets the command that decides whether the task is complete.
    until: impl Into<String> => |v| Some(v.into());
    /// Sets the maximum number of times that the agent is re-prompted.
    max_rounds: u32 => |v| v;
    /// Sets how many times the agent may repair a value that does not match the schema.
    repair_turns: u32 => |v| v;
    /// Sets the agent's own mode over ACP.
    mode_id: impl Into<String> => |v| Some(v.into());
    /// Sets whether the agent may request to read files in the workspace over ACP.
    allow_file_reads: bool => |v| v;
    /// Sets whether the agent may request to write files in the workspace over ACP.
    allow_file_writes: bool => |v| v;
    /// Sets whether the run gets an empty workspace of its own, which is removed afterwards.
    temporary_workspace: bool => |v| v;
    /// Sets whether the request needs a live agent.
    needs_live: bool => |v| v;
    /// Sets whether the changed files of the outcome have unified diffs.
    diffs: bool => |v| v;
    /// Sets the file to which the tape is written.
    record: impl Into<PathBuf> => |v| Some(v.into());
    /// Sets whether the result of an identical earlier run may be reused.
    cache: CachePolicy => |v| v;
}

impl RunRequest {
    /// Adds a rule that allows a tool use. The run refuses a text that is not a rule.
    #[must_use]
    pub fn allow(mut self, rule: impl TryInto<Rule, Error: Into<RuleError>>) -> Self {
        match rule.try_into() {
            Ok(rule) => self.allow.push(rule),
            Err(error) => self.invalid_rules.push(InvalidRule::new("allow", error)),
        }
        self
    }

    /// Adds a rule that denies a tool use. The run refuses a text that is not a rule.
    #[must_use]
    pub fn deny(mut self, rule: impl TryInto<Rule, Error: Into<RuleError>>) -> Self {
        match rule.try_into() {
            Ok(rule) => self.deny.push(rule),
            Err(error) => self.invalid_rules.push(InvalidRule::new("deny", error)),
        }
        self
    }

    /// Adds a rule for a tool use that needs the host's permission. The run refuses a text that is not a rule.
    #[must_use]
    pub fn ask(mut self, rule: impl TryInto<Rule, Error: Into<RuleError>>) -> Self {
        match rule.try_into() {
            Ok(rule) => self.ask.push(rule),
            Err(error) => self.invalid_rules.push(InvalidRule::new("ask", error)),
        }
        self
    }

    /// Adds a model that is tried if the model's service refuses the run or all retries failed.
    #[must_use]
    pub fn fallback_model(mut self, model: impl Into<String>) -> Self {
        self.fallback_models.push(model.into());
        self
    }

    /// Adds a directory outside the workspace that tools may use.
    #[must_use]
    pub fn include_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.include_directories.push(dir.into());
        self
    }

    /// Sets an option that only this agent has.
    #[must_use]
    pub fn agent_option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.agent_options.insert(name.into(), value.into());
        self
    }

    /// Adds a variable to the agent's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Passes one more variable of the caller to the agent.
    #[must_use]
    pub fn pass_env(mut self, name: impl Into<String>) -> Self {
        self.pass_env.push(name.into());
        self
    }

    /// Adds an MCP server.
    #[must_use]
    pub fn mcp_server(mut self, name: impl Into<String>, server: McpServer) -> Self {
        self.mcp_servers.insert(name.into(), server);
        self
    }
}
