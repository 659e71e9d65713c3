//! Compiles the rules of `--allow`, `--ask` and `--deny` into a policy file of Gemini CLI, and knows how to tell that it was read.
//!
//! The CLI goes on without a policy file that it cannot read. Three things together show before the first turn that
//! ours is in force: what is written is checked here by the CLI's own tests; the CLI reports on stderr every rule that
//! it drops, as [`BROKEN`]; and the last rule of the file names a tool that cannot exist, which the CLI reports as
//! [`PROOF`] only after it has read and accepted the whole file.
//!
//! The file comes beside the user's own policies. What is permitted has the rank of the CLI's own `--allowed-tools`,
//! so a stronger rule of the user still refuses; what is refused has the highest rank that a user's rule can have. Only
//! where a rule that permits is more specific than one that refuses do all of ours stand at the top, in the order in
//! which [`crate::Policy`] prefers them.
//!
//! Known limits: commands that the CLI takes for harmless, such as `echo`, run without the question that a rule of
//! `--ask` wants; links are not followed; `replace` corrects a relative path that does not exist to the one file that
//! ends so; a refused command can hide behind another program (`env rm`); what `Read` is refused can still be searched.

use super::{
    pattern::{self, Lean},
    refusal::RULE_MARK,
    tools,
};
use crate::{
    PermissionMode, Problem, Rule, RunRequest, nearest,
    policy::{Rank, rank},
};
use serde::{Deserialize, Serialize};

/// The name of the file; the CLI names it when it speaks of it.
pub(super) const FILE: &str = "agentline-run.toml";
/// What the CLI writes to stderr when it has read and accepted the file.
pub(super) const PROOF: &str = "[USER] Policy file warning in agentline-run.toml:";
/// What the CLI writes to stderr when it drops the file or a rule of it.
pub(super) const BROKEN: &str = "[USER] Policy file error in agentline-run.toml:";

/// A tool that cannot exist: the CLI warns of the two underscores.
const CANARY: &str = "agentline__was_read";
const ALLOW_RANK: u16 = 300;
const ASK_RANK: u16 = 600;
const DENY_RANK: u16 = 999;
/// The modes in which permissions count. Planning stays planning.
const WORKING_MODES: &[&str] = &["default", "autoEdit", "yolo"];

const SHELL: &str = "run_shell_command";

/// The rules that may name a path: how they begin, the tool, and the argument that holds its path.
const PATHS: &[(&str, &str, &str)] = &[
    ("Write", "write_file", "file_path"),
    ("Edit", "replace", "file_path"),
    ("Read", "read_file", "file_path"),
    ("", "list_directory", "dir_path"),
];

/// Names that other documents use for tools.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("MultiEdit", "Edit"),
    ("LS", "list_directory"),
    ("Shell", "Bash"),
    ("ShellTool", SHELL),
    ("Agent", "Task"),
];

/// A whole policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    rule: Vec<Entry>,
}

/// One rule of a policy file, with the CLI's own names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    tool_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mcp_name: Option<String>,
    decision: String,
    priority: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args_pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow_redirection: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deny_message: Option<String>,
}

/// The policy of a request, or `None` when the mode alone says everything. `roots` are spellings of the workspace.
pub(super) fn compile(request: &RunRequest, roots: &[&str]) -> Result<Option<Policy>, Vec<Problem>> {
    let mut ranked: Vec<(Rank, Vec<Entry>)> = Vec::new();
    let mut problems = Vec::new();
    let kinds = [("deny", &request.deny), ("ask", &request.ask), ("allow", &request.allow)];
    for (key, rules) in kinds {
        for text in rules {
            let read = Rule::parse(key, text).and_then(|rule| {
                let found = entries_of(&rule, key, text, roots)?;
                let is_command = found.iter().any(|entry| entry.tool_name == SHELL);
                Ok((rank(key, text, roots, is_command)?, found))
            });
            match read {
                Ok(found) => ranked.push(found),
                Err(problem) => problems.push(problem),
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut entries = in_order(ranked);
    let plans = request.permission_mode == PermissionMode::Plan || request.mode_id.as_deref() == Some("plan");
    for name in request.own_tools.iter().filter(|_| plans) {
        // In plan mode the CLI offers no tool of a server, and would leave out the one by which a value is handed in.
        // Over ACP it takes the server `shop` for `mcp_shop` when it judges a call, so that only whole names meet.
        let modes = Some(vec!["plan".to_owned()]);
        entries.push(Entry { modes, ..Entry::allow(&name.replacen("__", "_", 2)) });
    }
    if request.permission_mode == PermissionMode::Plan {
        // Headless, the CLI lets the model end the planning by itself and then permits everything.
        let message = "This run only plans. Answer with the plan.";
        entries.push(Entry { deny_message: Some(message.into()), ..Entry::deny("exit_plan_mode") });
    }
    if entries.is_empty() {
        return Ok(None);
    }
    entries.push(Entry { priority: 0, ..Entry::deny(CANARY) });
    Ok(Some(Policy { rule: entries }))
}

/// The entries of all rules. Where the lists alone would not make the most specific rule win, each gets a place of its own.
fn in_order(mut ranked: Vec<(Rank, Vec<Entry>)>) -> Vec<Entry> {
    let priority = |entries: &[Entry]| entries.first().map_or(0, |entry| entry.priority);
    let meet = |a: &[Entry], b: &[Entry]| a.iter().any(|a| b.iter().any(|b| a.may_meet(b)));
    let is_upset = |(a, ours): &(Rank, Vec<Entry>)| {
        ranked.iter().any(|(b, theirs)| a < b && priority(ours) > priority(theirs) && meet(ours, theirs))
    };
    if ranked.iter().any(is_upset) {
        let order: Vec<Rank> = {
            let mut order: Vec<Rank> = ranked.iter().map(|(rank, _)| *rank).collect();
            order.sort_unstable();
            order
        };
        for (rank, entries) in &mut ranked {
            let above = order.iter().filter(|other| *other > rank).count();
            let priority = DENY_RANK.saturating_sub(u16::try_from(above).unwrap_or(u16::MAX)).max(ALLOW_RANK);
            entries.iter_mut().for_each(|entry| entry.priority = priority);
        }
    }
    ranked.into_iter().flat_map(|(_, entries)| entries).collect()
}

impl Policy {
    /// The file's text, after reading it back as strictly as the CLI does.
    pub(super) fn to_toml(&self) -> Result<String, Problem> {
        let text = toml::to_string(self).map_err(|e| unwritable(&e.to_string()))?;
        let again: Self = toml::from_str(&text).map_err(|e| unwritable(&e.to_string()))?;
        if &again == self { Ok(text) } else { Err(unwritable("it reads back differently")) }
    }
}

impl Entry {
    /// Whether one use can be met by both.
    fn may_meet(&self, other: &Self) -> bool {
        let same = self.tool_name == other.tool_name || self.tool_name == "*" || other.tool_name == "*";
        let reaches_servers = |entry: &Self| entry.tool_name == "*" || entry.tool_name.starts_with("mcp_");
        match (&self.mcp_name, &other.mcp_name) {
            (Some(a), Some(b)) => a == b && same,
            (None, None) => same,
            (Some(_), None) => reaches_servers(other),
            (None, Some(_)) => reaches_servers(self),
        }
    }

    fn deny(tool: &str) -> Self {
        Self { tool_name: tool.into(), decision: "deny".into(), priority: DENY_RANK, ..Self::default() }
    }

    /// Headless there is nobody to be asked, and the CLI refuses.
    fn ask(tool: &str) -> Self {
        Self { decision: "ask_user".into(), priority: ASK_RANK, ..Self::allow(tool) }
    }

    fn allow(tool: &str) -> Self {
        let modes = WORKING_MODES.iter().map(|m| (*m).to_owned()).collect();
        Self {
            tool_name: tool.into(),
            decision: "allow".into(),
            priority: ALLOW_RANK,
            modes: Some(modes),
            ..Self::default()
        }
    }
}

/// What one rule becomes.
fn entries_of(rule: &Rule, key: &str, text: &str, roots: &[&str]) -> Result<Vec<Entry>, Problem> {
    // What is unclear is rather refused or asked than permitted.
    let lean = if key == "allow" { Lean::Narrow } else { Lean::Wide };
    let new = |tool: &str| match key {
        "allow" => Entry::allow(tool),
        "ask" => Entry::ask(tool),
        _ => Entry { deny_message: Some(format!("{RULE_MARK}{text}")), ..Entry::deny(tool) },
    };
    let cannot = |why: &str, way_out: &str| {
        Problem::new(key, format!("`{text}` cannot be held: {why}")).hint(way_out.to_owned())
    };
    if let Some(server) = rule.tool.strip_prefix("mcp__") {
        let (server, tool) = server.split_once("__").unwrap_or((server, "*"));
        if server.is_empty() || tool.is_empty() || (tool != "*" && tool.contains('*')) || server.contains('*')
        {
            return Err(cannot(
                "the name is not that of a server or of one of its tools",
                "write `mcp__server` for all its tools or `mcp__server__tool` for one",
            ));
        }
        if rule.pattern.is_some() {
            return Err(cannot(
                "the arguments of an MCP server's tool are not known",
                "write the rule without brackets",
            ));
        }
        return Ok(vec![Entry { mcp_name: Some(server.into()), ..new(tool) }]);
    }
    let outside =
        rule.tool.starts_with("mcp_") || rule.tool.starts_with("discovered_tool_") || rule.tool == "*";
    if outside && rule.pattern.is_none() && !rule.tool.contains("__") {
        return Ok(vec![new(&rule.tool)]);
    }
    let name = OTHER_NAMES
        .iter()
        .find(|(other, _)| *other == rule.tool)
        .map_or(rule.tool.as_str(), |(_, name)| *name);
    let natives = tools::TOOLS.natives(name).collect::<Vec<_>>();
    if natives.is_empty() {
        let meant = nearest(&rule.tool, tools::TOOLS.names()).map(|n| format!("did you mean `{n}`? "));
        let common = "Write, Edit, Read, LS, Glob, Grep, Bash, WebFetch, WebSearch, mcp__server__tool";
        return Err(Problem::new(key, format!("`{text}`: Gemini CLI has no tool `{}`", rule.tool))
            .hint(format!("{}known: {common}, and Gemini's own names", meant.unwrap_or_default())));
    }
    let Some(glob) = &rule.pattern else {
        let whole = |tool: &&str| {
            let all = *tool == SHELL && lean == Lean::Narrow;
            Entry { allow_redirection: all.then_some(true), ..new(tool) }
        };
        return Ok(natives.iter().map(whole).collect());
    };
    let on_path = PATHS.iter().find(|(canonical, native, _)| *canonical == name || *native == name);
    let tool = on_path.map_or(natives[0], |(_, native, _)| native);
    let patterns = match on_path {
        _ if tool == SHELL => {
            // Gemini's own form, `run_shell_command(git)`, means every command that begins so.
            let own = name == SHELL && !glob.contains('*');
            vec![pattern::command(&if own { format!("{glob} *") } else { glob.clone() }, lean)]
        }
        Some(_) if glob.split(['/', '\\']).any(|part| part == "..") => {
            return Err(cannot(
                "its path climbs with `..`",
                "write the path from the workspace or from the root",
            ));
        }
        Some((.., argument)) if lean == Lean::Wide => {
            vec![pattern::path(argument, glob, roots, lean), pattern::unclear_path(argument)]
        }
        Some((.., argument)) => vec![pattern::path(argument, glob, roots, lean)],
        None => {
            return Err(cannot(
                "Gemini CLI can only be told to refuse or permit this tool as a whole",
                &format!("write `{}` without brackets", rule.tool),
            ));
        }
    };
    if let Some(long) = patterns.iter().find(|p| !pattern::is_taken(p)) {
        let why = format!("its pattern comes to {} characters, of {} at most", long.len(), pattern::LONGEST);
        return Err(cannot(&why, "shorten it, or write several rules"));
    }
    Ok(patterns.into_iter().map(|p| Entry { args_pattern: Some(p), ..new(tool) }).collect())
}

fn unwritable(why: &str) -> Problem {
    Problem::new("allow", format!("the rules cannot be written as a policy file: {why}"))
        .hint("leave out rules until it works, and report it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn compiled(request: &RunRequest) -> Vec<Entry> {
        let policy = compile(request, &["/ws"]).unwrap().unwrap();
        policy.to_toml().unwrap();
        policy.rule
    }

    fn refused(key: &str, rule: &str) -> Problem {
        let request = RunRequest::new("x");
        let request = if key == "allow" { request.allow(rule) } else { request.deny(rule) };
        compile(&request, &["/ws"]).unwrap_err().remove(0)
    }

    #[test]
    fn without_rules_there_is_no_file() {
        assert_eq!(compile(&RunRequest::new("x"), &[]).unwrap(), None);
    }

    #[test]
    fn the_last_rule_proves_that_the_file_was_read() {
        let entries = compiled(&RunRequest::new("x").allow("WebFetch"));
        assert_eq!(entries.last().unwrap().tool_name, CANARY);
        assert_eq!(entries.len(), 2);
        assert!(PROOF.contains(FILE) && BROKEN.contains(FILE));
    }

    #[test]
    fn refusals_outrank_permissions_and_permissions_do_not_reach_planning() {
        let entries =
            compiled(&RunRequest::new("x").allow("Write(src/**)").deny("Bash(rm *)").deny("Edit(a)"));
        let by_tool: BTreeMap<&str, &Entry> = entries.iter().map(|e| (e.tool_name.as_str(), e)).collect();
        assert_eq!((by_tool["write_file"].priority, by_tool[SHELL].priority), (300, 999));
        assert_eq!(by_tool["write_file"].modes.as_deref().unwrap(), WORKING_MODES);
        assert_eq!(by_tool[SHELL].modes, None);
        assert_eq!(entries.iter().filter(|e| e.tool_name == "replace").count(), 2, "and paths that climb");
    }

    #[test]
    fn the_more_specific_rule_stands_above() {
        let places = |request: &RunRequest| -> Vec<(String, u16)> {
            compiled(request).iter().map(|e| (e.decision.clone(), e.priority)).collect()
        };
        let rows = |rows: &[(&str, u16)]| -> Vec<(String, u16)> {
            rows.iter().map(|(decision, priority)| ((*decision).to_owned(), *priority)).collect()
        };
        let request = RunRequest::new("x").deny("Bash").allow("Bash(git *)").ask("Bash(git push *)");
        assert_eq!(places(&request), rows(&[("deny", 997), ("ask_user", 999), ("allow", 998), ("deny", 0)]));
        let request = RunRequest::new("x").deny("mcp__a").allow("mcp__a__get");
        assert_eq!(places(&request), rows(&[("deny", 998), ("allow", 999), ("deny", 0)]));
        let request = RunRequest::new("x").deny("*").allow("WebFetch");
        assert_eq!(places(&request), rows(&[("deny", 998), ("allow", 999), ("deny", 0)]));
        // These agree with their lists already, or have nothing to do with each other.
        for request in [
            RunRequest::new("x").deny("Bash(rm *)").allow("Bash"),
            RunRequest::new("x").deny("Bash").allow("WebFetch"),
            RunRequest::new("x").deny("mcp__a").allow("mcp__b__get"),
        ] {
            let found = compiled(&request);
            assert_eq!((found[0].priority, found[1].priority), (DENY_RANK, ALLOW_RANK));
        }
    }

    #[test]
    fn servers_native_names_and_whole_tools() {
        let request = RunRequest::new("x").allow("mcp__my-srv__get").allow("mcp__other").allow("Bash");
        let entries = compiled(&request.allow("run_shell_command(git)").deny("mcp_a_b"));
        let row = |e: &Entry| (e.tool_name.clone(), e.mcp_name.clone(), e.allow_redirection);
        assert_eq!(row(&entries[1]), ("get".into(), Some("my-srv".into()), None));
        assert_eq!(row(&entries[2]), ("*".into(), Some("other".into()), None));
        assert_eq!(row(&entries[3]), (SHELL.into(), None, Some(true)));
        assert_eq!(
            entries[4].args_pattern.as_deref(),
            Some(pattern::command("git *", Lean::Narrow).as_str())
        );
        assert_eq!(row(&entries[0]), ("mcp_a_b".into(), None, None));
    }

    #[test]
    fn planning_cannot_be_left() {
        let request = RunRequest::new("x").permission_mode(PermissionMode::Plan);
        assert_eq!(compiled(&request)[0].tool_name, "exit_plan_mode");
    }

    #[test]
    fn tools_of_the_caller_may_be_used_while_planning() {
        let mut request = RunRequest::new("x").permission_mode(PermissionMode::Plan);
        request.own_tools = vec!["mcp__shop__count".into()];
        let own = &compiled(&request)[0];
        assert_eq!((own.tool_name.as_str(), own.decision.as_str()), ("mcp_shop_count", "allow"));
        assert_eq!(own.modes.as_deref(), Some(&["plan".to_owned()][..]));
        // Everywhere else nothing refuses them, and no file is needed.
        request.permission_mode = PermissionMode::Default;
        assert_eq!(compile(&request, &[]).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_held_is_refused_with_the_way_out() {
        for (key, rule, word) in [
            ("allow", "WebFetch(domain:x.org)", "as a whole"),
            ("deny", "Grep(secret)", "as a whole"),
            ("deny", "Glob(secret)", "as a whole"),
            ("allow", "Write(../x)", "climbs"),
            ("allow", "mcp__s__t(x)", "arguments"),
            ("deny", "mcp____t", "name"),
            ("allow", "Wirte(src)", "no tool"),
            ("deny", "Bash(git", "bracket"),
        ] {
            let problem = refused(key, rule);
            assert_eq!(problem.key, key);
            assert!(problem.message.contains(word), "{rule}: {problem}");
            assert!(problem.hint.is_some(), "{rule}");
        }
        assert!(refused("allow", "Writ").hint.unwrap().contains("did you mean `Write`?"));
        assert!(refused("allow", &format!("Write({})", "a".repeat(3000))).message.contains("2048"));
    }
}
