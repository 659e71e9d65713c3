//! The queries of a host: agents, saved sessions and the cache.

use super::{
    messages::{AboutAgent, CacheAbout, CacheTold, Detected, RpcError, SessionsLoad, SessionsQuery},
    serve::Host,
};
use crate::{
    cache::Cache,
    compat::agent_cli::{self, CliCapabilities},
    sessions::{Case, Query, SessionFilter},
};
use agentline_core::{BlockOrder, Message, RunRequest, claude_view, unified_view};
use serde_json::{Map, Value, json};

impl Host {
    /// Returns the size of the cache.
    pub(super) async fn cache_stats(&self, asked: CacheAbout) -> Result<CacheTold, RpcError> {
        let cache = self.cache(asked)?;
        Ok(self.agentline.blocking(move |_| cache.stats()).await.into())
    }

    /// Clears the cache.
    pub(super) async fn cache_clear(&self, asked: CacheAbout) -> Result<CacheTold, RpcError> {
        let cache = self.cache(asked)?;
        let cleared = self.agentline.blocking(move |_| cache.clear()).await;
        let failed = |why| RpcError::new(RpcError::INTERNAL, format!("cannot clear the cache: {why}"));
        Ok(cleared.map_err(failed)?.into())
    }

    fn cache(&self, asked: CacheAbout) -> Result<Cache, RpcError> {
        let keys: Map<String, Value> =
            asked.dir.map(|dir| ("cache_path".to_owned(), dir.into())).into_iter().collect();
        let (agentline, request, _) = self.settle(keys)?;
        Ok(Cache::of(&agentline, &request.cache))
    }

    /// Returns the abilities of each agent for each of its surfaces.
    pub(super) fn agents(&self) -> Value {
        let agents = self.agentline.registry().all().map(|agent| {
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
    pub(super) async fn detect(&self, asked: AboutAgent) -> Result<Detected, RpcError> {
        let id = self.about(&asked)?;
        let detecting = self.agentline.clone();
        let agent = id.clone();
        let found = tokio::task::spawn_blocking(move || agent_cli::detect_cli(&detecting, &id)).await;
        let path = found.ok().flatten().map(|path| path.to_string_lossy().into_owned());
        Ok(Detected { agent, path })
    }

    /// Returns the capabilities of an agent, as reported by the agent itself where possible.
    pub(super) async fn capabilities(&self, asked: AboutAgent) -> Result<CliCapabilities, RpcError> {
        Ok(agent_cli::capabilities(&self.agentline, &self.about(&asked)?).await?)
    }

    /// Returns the id of the requested agent, or of the default agent.
    fn about(&self, asked: &AboutAgent) -> Result<String, RpcError> {
        let defaults = self.defaults();
        let ours = RunRequest::default().agent;
        let meant = asked.agent.as_deref().or_else(|| defaults.get("agent")?.as_str()).unwrap_or(&ours);
        let agent = self.agentline.registry().find(meant).map_err(|problem| RpcError::usage(&[problem]))?;
        Ok(agent.info().id.to_owned())
    }

    /// Lists sessions, newest first.
    pub(super) async fn list(&self, asked: SessionsQuery) -> Result<Value, RpcError> {
        let store = self.agentline.sessions();
        self.agentline
            .blocking(move |_| {
                let mut found = store.list(&filter(&asked))?;
                found.truncate(asked.limit.unwrap_or(usize::MAX));
                Ok(json!({"sessions": found}))
            })
            .await
    }

    /// Loads one session with its messages.
    pub(super) async fn load(&self, asked: SessionsLoad) -> Result<Value, RpcError> {
        let (store, cwd) = (self.agentline.sessions(), self.agentline.host_env().cwd.clone());
        self.agentline
            .blocking(move |_| {
                let cwd = asked.project.as_ref().map_or(cwd.clone(), |project| cwd.join(project));
                let filter = asked
                    .agent
                    .as_ref()
                    .map_or_else(SessionFilter::new, |agent| SessionFilter::new().agent(agent));
                let which = asked.session.as_deref().unwrap_or("latest");
                let session = store.load(&store.find_of(which, &cwd, &filter)?)?;
                let order = if asked.order.as_deref() == Some("turn") {
                    BlockOrder::Turn
                } else {
                    BlockOrder::Grouped
                };
                let messages: Vec<Message<'_>> = match asked.view.as_deref() {
                    Some("claude") => claude_view(&session, asked.context).collect(),
                    _ => unified_view(&session, order, asked.context).collect(),
                };
                Ok(json!({"session": session.info, "messages": messages, "damage": session.damage}))
            })
            .await
    }

    /// Searches the content of sessions.
    pub(super) async fn search(&self, asked: SessionsQuery) -> Result<Value, RpcError> {
        let store = self.agentline.sessions();
        self.agentline
            .blocking(move |_| {
                let mut query = Query::new(asked.words.clone()).regex(asked.regex).filter(filter(&asked));
                if asked.case_sensitive {
                    query = query.case(Case::Sensitive);
                }
                let mut found = store.search(&query.context(asked.context_lines))?;
                found.truncate(asked.limit.unwrap_or(usize::MAX));
                Ok(json!({"results": found}))
            })
            .await
    }
}

fn filter(asked: &SessionsQuery) -> SessionFilter {
    let mut filter = SessionFilter::new();
    if let Some(agent) = &asked.agent {
        filter = filter.agent(agent);
    }
    if let Some(project) = &asked.project {
        filter = filter.project(project);
    }
    if let Some(since) = asked.since {
        filter = filter.since(since);
    }
    if let Some(until) = asked.until {
        filter = filter.until(until);
    }
    filter
}
