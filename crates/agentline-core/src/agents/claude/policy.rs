//! The rules of a request in Claude Code's own form: tools that it removes, and tools for which it always asks.

use crate::{
    NativeDecision, PermissionMode, PolicyDecision, Problem, Rule, RunRequest, ToolUseContext,
    agents::adapter, policy::Exceptions,
};
use std::collections::BTreeSet;

/// Tools that Claude Code uses without asking. It also runs commands that it considers harmless.
const UNASKED: &[&str] = &["Read", "Glob", "Grep", "LS"];

/// Tools whose calls say too little about the files they read for a rule with a pattern.
const SEARCHES: &[&str] = &["Glob", "Grep", "LS"];

/// Tools that always ask for permission.
const ALWAYS_ASKED: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit", "WebFetch"];

/// The tools that enforce the rules of a request: those removed from the model, and those for which Claude Code must
/// always ask, so that the host decides. Without this, it runs many commands without asking, and everything that the
/// user's own settings allow.
pub(super) struct EnforcedTools {
    pub(super) taken_away: BTreeSet<String>,
    pub(super) asked: BTreeSet<String>,
}

impl EnforcedTools {
    pub(super) fn of(request: &RunRequest) -> Self {
        let exceptions = Exceptions::of(request);
        let lists = [("deny", &request.deny), ("ask", &request.ask)];
        let rules = lists.into_iter().flat_map(|(key, rules)| rules.iter().map(move |rule| (key, rule)));
        let mut enforced = Self { taken_away: BTreeSet::new(), asked: BTreeSet::new() };
        for (key, rule) in rules {
            let taken_away = key == "deny" && rule.pattern().is_none() && !exceptions.outrank(rule);
            let tools = if taken_away { &mut enforced.taken_away } else { &mut enforced.asked };
            if !rule.tool().contains('*') {
                tools.insert(common_name(rule.tool()).to_owned());
            }
        }
        enforced
    }
}

/// Returns Claude Code's name for a tool of a rule.
fn common_name(tool: &str) -> &str {
    if tool == "Shell" { "Bash" } else { tool }
}

/// Returns why a `deny` or `ask` rule cannot be enforced, and what to write instead.
pub(super) fn unenforced(rule: &Rule) -> Option<(String, String)> {
    if rule.tool().contains('*') && !rule.tool().starts_with("mcp__") {
        let reason = "it covers tools that Claude Code uses without asking, such as `Read`";
        return Some((reason.into(), "name each tool: `--deny Bash --deny Read`".into()));
    }
    (rule.pattern().is_some() && SEARCHES.contains(&rule.tool())).then(|| {
        let reason = "Claude Code does not report which files a search reads";
        (reason.into(), format!("write a rule for the whole tool: `{}`", rule.tool()))
    })
}

/// Returns a problem for each rule of a prompt that cannot be enforced in a session that was opened without it.
pub(super) fn unenforced_in_session(opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
    let enforced = EnforcedTools::of(opened);
    adapter::unenforced_in_session(opened, prompt, |rule| {
        let tool = common_name(rule.tool());
        let always = ALWAYS_ASKED.contains(&tool) || tool.starts_with("mcp__");
        always || enforced.asked.contains(tool) || enforced.taken_away.contains(tool)
    })
}

/// Returns how Claude Code itself decides on a tool use, before it asks for permission.
pub(super) fn native_decision(request: &RunRequest, prospect: &ToolUseContext<'_>) -> NativeDecision {
    let rule = prospect.decision.ruling().rule.as_deref().unwrap_or_default();
    let taken_away =
        matches!(prospect.decision, PolicyDecision::Deny(_)) && !rule.is_empty() && !rule.contains('(');
    match request.permission_mode {
        _ if taken_away => NativeDecision::Refuses("the tool is not offered to the model"),
        // Whether this mode is available is known only once a session is open.
        PermissionMode::Bypass => NativeDecision::Unknown,
        _ if EnforcedTools::of(request).asked.contains(&prospect.ask.tool) => NativeDecision::Asks,
        _ if UNASKED.contains(&prospect.ask.tool.as_str()) => NativeDecision::Runs("reads without asking"),
        // It runs commands that it considers harmless, and there is no list of them.
        _ if prospect.ask.command.is_some() => NativeDecision::Unknown,
        _ => NativeDecision::Asks,
    }
}
