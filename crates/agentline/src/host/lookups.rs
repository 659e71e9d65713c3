//! The queries of a host about agents and the cache.

use super::{
    messages::{AgentQuery, CacheQuery, CacheUsage, Detected, Extract, RpcError},
    serve::Host,
};
use crate::{
    cache::Cache,
    compat::agent_cli::{self, CliCapabilities},
};
use agentline_core::{RunRequest, extract_json};
use serde_json::{Map, Value, json};

impl Host {
    /// Returns the size of the cache.
    pub(super) async fn cache_stats(&self, query: CacheQuery) -> Result<CacheUsage, RpcError> {
        let cache = self.cache(query)?;
        Ok(self.agentline().blocking(move |_| cache.stats()).await.into())
    }

    /// Clears the cache.
    pub(super) async fn cache_clear(&self, query: CacheQuery) -> Result<CacheUsage, RpcError> {
        let cache = self.cache(query)?;
        let cleared = self.agentline().blocking(move |_| cache.clear()).await;
        let failed = |error| RpcError::new(RpcError::INTERNAL, format!("cannot clear the cache: {error}"));
        Ok(cleared.map_err(failed)?.into())
    }

    fn cache(&self, query: CacheQuery) -> Result<Cache, RpcError> {
        let keys: Map<String, Value> =
            query.dir.map(|dir| ("cache_path".to_owned(), dir.into())).into_iter().collect();
        let (agentline, request, _) = self.resolve_keys(keys)?;
        Ok(Cache::of(&agentline, &request.cache))
    }

    /// Returns the abilities of each agent for each of its surfaces.
    pub(super) fn agents(&self) -> Value {
        let agentline = self.agentline();
        let agents = agentline.registry().all().iter().map(|agent| {
            let agent_info = agent.info();
            let surfaces: serde_json::Map<String, Value> = agent_info
                .surfaces
                .iter()
                .map(|surface| (surface.to_string(), json!(agent.abilities(*surface, None))))
                .collect();
            json!({"card": agent_info, "surfaces": surfaces})
        });
        Value::Array(agents.collect())
    }

    /// Returns the path of an agent's program.
    pub(super) async fn detect(&self, query: AgentQuery) -> Result<Detected, RpcError> {
        let agent = self.agent_id(query.agent.as_deref())?;
        let agentline = self.agentline();
        let detecting = agentline.clone();
        let detected = agentline.blocking(move |_| {
            let path = agent_cli::detect_cli(&detecting, &agent);
            let path = path.map(|path| path.to_string_lossy().into_owned());
            let launcher = agent_cli::detect_launcher(&detecting, &agent);
            Detected { agent, path, launcher }
        });
        Ok(detected.await)
    }

    /// Returns the JSON value in a text.
    pub(super) fn extract(query: &Extract) -> Value {
        extract_json(&query.text).map_or_else(|| json!({}), |value| json!({"value": value}))
    }

    /// Returns the capabilities of an agent, as reported by the agent itself where possible.
    pub(super) async fn capabilities(&self, query: AgentQuery) -> Result<CliCapabilities, RpcError> {
        Ok(agent_cli::capabilities(&self.agentline(), &self.agent_id(query.agent.as_deref())?).await?)
    }

    /// Returns the id of the requested agent, or of the default agent.
    pub(super) fn agent_id(&self, agent: Option<&str>) -> Result<String, RpcError> {
        let defaults = self.defaults();
        let default_agent = RunRequest::default().agent;
        let requested = agent.or_else(|| defaults.get("agent")?.as_str()).unwrap_or(&default_agent);
        let agentline = self.agentline();
        let agent = agentline.registry().find(requested).map_err(|problem| RpcError::usage(&[problem]))?;
        Ok(agent.info().id.to_owned())
    }
}
