//! Searches saved sessions for `sessions_search`.

use crate::{
    outputs::{SearchReport, SessionHit, SessionMatch},
    report::result,
    scope::CallerScope,
    tools::SearchSessionsArgs,
};
use agentline::{
    Agentline,
    messages::Role,
    sessions::{Query, SearchResult},
};
use rmcp::model::CallToolResult;
use std::path::Path;

/// The number of sessions by default, and the maximum.
const SESSIONS: (usize, usize) = (10, 50);
/// The number of hits of one session.
const HITS: usize = 3;
/// The maximum length of a hit, in characters.
const LONGEST_HIT: usize = 300;

/// Searches the sessions in the directories of the caller. Reads files.
///
/// # Errors
/// Fails if the query is invalid.
pub(crate) fn search(
    agentline: &Agentline,
    scope: &CallerScope,
    args: &SearchSessionsArgs,
) -> Result<CallToolResult, String> {
    let mut query = Query::new(args.query.split_whitespace());
    if let Some(agent) = &args.agent {
        let filter = query.filter.clone().agent(agent.as_str());
        query = query.filter(filter);
    }
    let mut found = agentline.sessions().search(&query).map_err(|error| error.to_string())?;
    // What an agent did elsewhere is not for a client of these directories.
    found.retain(|session| is_visible(scope, session));
    let total = found.len();
    found.truncate(args.limit.unwrap_or(SESSIONS.0).min(SESSIONS.1));
    let mut text = format!("{total} sessions contain `{}`\n", args.query);
    for session in &found {
        let info = &session.info;
        text.push_str(&format!("\n{} {} {}\n", info.agent, info.id, session.title.as_deref().unwrap_or("")));
        for hit in session.hits.iter().take(HITS) {
            text.push_str(&format!("  {}\n", cut(&hit.text)));
        }
    }
    Ok(result(text, &SearchReport { total, sessions: found.iter().map(row).collect() }, false))
}

fn is_visible(scope: &CallerScope, session: &SearchResult) -> bool {
    session.info.project.as_deref().is_some_and(|project| scope.contains(Path::new(project)))
}

fn row(session: &SearchResult) -> SessionMatch {
    let info = &session.info;
    let hits = session.hits.iter().take(HITS);
    SessionMatch {
        agent: info.agent.to_string(),
        session_id: info.id.clone(),
        cwd: info.project.clone(),
        title: session.title.clone(),
        updated: info.updated,
        hits: hits.map(|hit| SessionHit { role: role(hit.role).into(), text: cut(&hit.text) }).collect(),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Assistant => "assistant",
        Role::User => "user",
        _ => "system",
    }
}

fn cut(text: &str) -> String {
    text.trim().chars().take(LONGEST_HIT).collect()
}
