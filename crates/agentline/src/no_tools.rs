//! Stands in for the module `tools` in builds without the feature `tools`, which serve no tools and relay no servers.

use crate::{
    error::Error,
    process::{Isolation, KillDeadline, Supervisor},
};
use agentline_core::{McpServer, Problem, Problems};
use std::{collections::BTreeMap, convert::Infallible, ffi::OsString, path::PathBuf};

/// A set of tools, which is always empty.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ToolHost {}

impl ToolHost {
    pub(crate) fn name(&self) -> &'static str {
        "agentline"
    }

    pub(crate) fn tool_names(&self) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn descriptions(&self) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn ambiguous_servers<'a>(
        &self,
        _servers: impl IntoIterator<Item = &'a String>,
    ) -> Vec<Problem> {
        Vec::new()
    }

    /// Fails: a run that needs a tool server cannot start in this build.
    pub(crate) fn serve(&self, offer: ToolOffer) -> Result<RunningTools, Error> {
        let key = offer.servers.keys().next().map_or("tools".into(), |name| format!("mcp_servers.{name}"));
        let problem = Problem::new(key, "this build of agentline serves no tools and relays no MCP servers");
        Err(Problems::from(problem.hint("enable the Cargo feature `tools` of the crate `agentline`")).into())
    }
}

/// The offer of one run: the names of servers that would have to be relayed.
#[derive(Default)]
pub(crate) struct ToolOffer {
    servers: BTreeMap<String, McpServer>,
}

impl ToolOffer {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn server(mut self, name: impl Into<String>, server: McpServer) -> Self {
        self.servers.insert(name.into(), server);
        self
    }

    pub(crate) fn structured(self, answer: AnswerTool) -> Self {
        match answer.0 {}
    }

    pub(crate) fn added_arguments(self, _names: &'static [&'static str]) -> Self {
        self
    }

    pub(crate) fn cwd(self, _cwd: impl Into<PathBuf>) -> Self {
        self
    }

    pub(crate) fn env(self, _env: BTreeMap<OsString, OsString>) -> Self {
        self
    }

    pub(crate) fn supervisor(self, _supervisor: Supervisor) -> Self {
        self
    }

    pub(crate) fn isolation(self, _isolation: Isolation) -> Self {
        self
    }

    pub(crate) fn kill_deadline(self, _deadline: Option<KillDeadline>) -> Self {
        self
    }
}

/// The tool for a structured answer. No value of this type exists in this build.
#[derive(Debug)]
pub(crate) struct AnswerTool(Infallible);

/// Tools that are being served. No value of this type exists in this build.
#[derive(Debug)]
pub(crate) struct RunningTools(Infallible);

impl RunningTools {
    pub(crate) fn servers(&self) -> &BTreeMap<String, McpServer> {
        match self.0 {}
    }

    pub(crate) fn token(&self) -> &str {
        match self.0 {}
    }

    pub(crate) async fn next(&mut self) -> Vec<String> {
        match self.0 {}
    }

    pub(crate) fn cancel_calls(&self) {
        match self.0 {}
    }

    pub(crate) async fn close(self) {
        match self.0 {}
    }
}
