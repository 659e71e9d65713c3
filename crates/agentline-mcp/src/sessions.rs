//! Searches saved sessions for `sessions_search`.

use crate::{report::result, scope::CallerScope, tools::SearchSessionsArgs};
use agentline::{
    Agentline,
    sessions::{Query, SearchResult},
};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
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
    let rows: Vec<Value> = found.iter().map(row).collect();
    let mut text = format!("{total} sessions contain `{}`\n", args.query);
    for session in &found {
        let info = &session.info;
        text.push_str(&format!("\n{} {} {}\n", info.agent, info.id, session.title.as_deref().unwrap_or("")));
        for hit in session.hits.iter().take(HITS) {
            text.push_str(&format!("  {}\n", cut(&hit.text)));
        }
    }
    Ok(result(text, json!({"total": total, "sessions": rows}), false))
}

fn is_visible(scope: &CallerScope, session: &SearchResult) -> bool {
    session.info.project.as_deref().is_some_and(|project| scope.contains(Path::new(project)))
}

fn row(session: &SearchResult) -> Value {
    let hits: Vec<Value> =
        session.hits.iter().take(HITS).map(|hit| json!({"role": hit.role, "text": cut(&hit.text)})).collect();
    json!({
        "agent": session.info.agent,
        "session_id": session.info.id,
        "cwd": session.info.project,
        "title": session.title,
        "updated": session.info.updated,
        "hits": hits,
    })
}

fn cut(text: &str) -> String {
    text.trim().chars().take(LONGEST_HIT).collect()
}
