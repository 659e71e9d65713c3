//! The queries of a host about saved sessions.

use super::{
    messages::{RpcError, SessionsLoad, SessionsParse, SessionsQuery},
    serve::Host,
};
use crate::{
    Error,
    sessions::{Case, Query, SessionError, SessionFilter},
};
use agentline_core::{BlockOrder, Message, RawJson, SessionFormat, claude_view, unified_view};
use serde_json::{Value, json};

impl From<SessionError> for RpcError {
    fn from(error: SessionError) -> Self {
        Error::from(error).into()
    }
}

impl Host {
    /// Lists sessions, newest first.
    pub(super) async fn list(&self, params: SessionsQuery) -> Result<Value, RpcError> {
        let store = self.agentline().sessions();
        self.agentline()
            .blocking(move |_| {
                let mut found = store.list(&filter(&params))?;
                found.truncate(params.limit.unwrap_or(usize::MAX));
                Ok(json!({"sessions": found}))
            })
            .await
    }

    /// Loads one session with its messages.
    pub(super) async fn load(&self, params: SessionsLoad) -> Result<Value, RpcError> {
        let (store, cwd) = (self.agentline().sessions(), self.agentline().host_env().cwd.clone());
        self.agentline()
            .blocking(move |_| {
                let cwd = params.project.as_ref().map_or(cwd.clone(), |project| cwd.join(project));
                let filter = params
                    .agent
                    .as_ref()
                    .map_or_else(SessionFilter::new, |agent| SessionFilter::new().agent(agent));
                let selector = params.session.as_deref().unwrap_or("latest");
                let session = store.load(&store.find_of(selector, &cwd, &filter)?)?;
                let order = if params.order.as_deref() == Some("turn") {
                    BlockOrder::Turn
                } else {
                    BlockOrder::Grouped
                };
                let messages: Vec<Message<'_>> = match params.view.as_deref() {
                    Some("claude") => claude_view(&session, params.context).collect(),
                    _ => unified_view(&session, order, params.context).collect(),
                };
                Ok(json!({"session": session.info, "messages": messages, "damage": session.damage}))
            })
            .await
    }

    /// Converts one record to a message of the view `unified`. Records without a message give null.
    pub(super) fn parse(&self, params: SessionsParse) -> Result<Value, RpcError> {
        let id = self.agent_id(params.agent.as_deref())?;
        let agentline = self.agentline();
        let agent = agentline.registry().find(&id).map_err(|problem| RpcError::usage(&[problem]))?;
        let text = match params.record {
            Value::String(text) => text,
            record => record.to_string(),
        };
        let mut message = Value::Null;
        if let Some(mut reader) = agent.sessions().reader(SessionFormat::Lines) {
            reader.take(RawJson::new(text));
            let session = reader.finish();
            let first = unified_view(&session, BlockOrder::Grouped, true).next();
            message = first.map_or(Value::Null, |first| json!(first));
        }
        Ok(json!({"message": message}))
    }

    /// Searches the content of sessions.
    pub(super) async fn search(&self, params: SessionsQuery) -> Result<Value, RpcError> {
        let store = self.agentline().sessions();
        self.agentline()
            .blocking(move |_| {
                let mut query = Query::new(params.words.clone()).regex(params.regex).filter(filter(&params));
                if params.case_sensitive {
                    query = query.case(Case::Sensitive);
                }
                let mut found = store.search(&query.context(params.context_lines))?;
                found.truncate(params.limit.unwrap_or(usize::MAX));
                Ok(json!({"results": found}))
            })
            .await
    }
}

fn filter(params: &SessionsQuery) -> SessionFilter {
    let mut filter = SessionFilter::new();
    if let Some(agent) = &params.agent {
        filter = filter.agent(agent);
    }
    if let Some(project) = &params.project {
        filter = filter.project(project);
    }
    if let Some(since) = params.since {
        filter = filter.since(since);
    }
    if let Some(until) = params.until {
        filter = filter.until(until);
    }
    filter
}
