//! The parameters of the client's requests, as far as they are used.

use crate::failure::{ErrorResponse, INVALID_PARAMS};
use agentline::McpServer;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, path::PathBuf};

/// The parameters of `session/new` and `session/load`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OpenSession {
    pub(crate) cwd: PathBuf,
    #[serde(default)]
    pub(crate) session_id: Option<String>,
    #[serde(default)]
    mcp_servers: Vec<ClientServer>,
}

/// The parameters of a request about one session.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OneSession {
    pub(crate) session_id: String,
    #[serde(default)]
    pub(crate) mode_id: Option<String>,
    #[serde(default)]
    pub(crate) prompt: Vec<serde_json::Value>,
}

/// An MCP server of the client.
#[derive(Debug, Deserialize)]
struct ClientServer {
    name: String,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<NameAndValue>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    headers: Vec<NameAndValue>,
}

#[derive(Debug, Deserialize)]
struct NameAndValue {
    name: String,
    value: String,
}

impl OpenSession {
    /// Returns the MCP servers of the session.
    pub(crate) fn servers(&mut self) -> Result<BTreeMap<String, McpServer>, ErrorResponse> {
        std::mem::take(&mut self.mcp_servers).into_iter().map(ClientServer::into_server).collect()
    }
}

impl ClientServer {
    fn into_server(self) -> Result<(String, McpServer), ErrorResponse> {
        let map = |pairs: Vec<NameAndValue>| pairs.into_iter().map(|pair| (pair.name, pair.value)).collect();
        let server = match (self.command, self.url) {
            (Some(command), _) => McpServer::Command { command, args: self.args, env: map(self.env) },
            (None, Some(url)) => McpServer::Url { url, headers: map(self.headers) },
            (None, None) => {
                let text = format!("the MCP server `{}` has neither a command nor a URL", self.name);
                return Err(ErrorResponse::new(INVALID_PARAMS, text));
            }
        };
        Ok((self.name, server))
    }
}

/// Reads the parameters of a request.
pub(crate) fn read<T: DeserializeOwned>(params: &RawValue) -> Result<T, ErrorResponse> {
    serde_json::from_str(params.get())
        .map_err(|error| ErrorResponse::new(INVALID_PARAMS, format!("invalid parameters: {error}")))
}
