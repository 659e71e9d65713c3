//! Compiles the rules of `--allow`, `--ask` and `--deny` to a policy file of Gemini CLI, and detects whether the CLI
//! read it.
//!
//! The CLI continues without a policy file that it cannot read. Three things together show by the first turn that the
//! generated file is in force: its text is validated here as strictly as by the CLI; the CLI reports every rule that it
//! drops on stderr, as [`BROKEN`]; and the last rule of the file names a tool that cannot exist, which the CLI reports
//! as [`PROOF`] only after it has read and accepted the whole file. Over ACP the last two are not checked, because the
//! CLI holds back its stderr until it exits.
//!
//! A rule with a pattern is not written to the file, because a regular expression over the arguments can be evaded with
//! quotes, wrappers and links. Instead the file makes the CLI ask about every use of that tool, and [`crate::Policy`]
//! decides. This is possible only over ACP; on the other surfaces such a rule is refused before anything starts. The
//! CLI runs commands that it considers harmless without asking, unless the `ask_user` rule has a pattern.
//!
//! The file is used in addition to the user's own policies. Allow rules have the priority of the CLI's own
//! `--allowed-tools`, so a stronger rule of the user still denies. Deny rules have nearly the highest priority that a
//! user's rule can have; only tools that the host decides have a higher one. If a weaker rule is more specific than
//! a stronger one (for example, an allow rule that is more specific than a deny rule), all rules get descending
//! priorities from the highest one, in the order of [`crate::Policy`].
use super::{refusal::RULE_MARK, tools};
use crate::{
    PermissionMode, Problem, Rule, RunRequest, Surface,
    agents::adapter,
    nearest,
    policy::{RuleEffect, Specificity, rank},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the file, which the CLI uses in its reports.
pub(super) const FILE: &str = "agentline-run.toml";
/// The prefix of the stderr line that the CLI prints when it has read and accepted the file.
pub(super) const PROOF: &str = "[USER] Policy file warning in agentline-run.toml:";
/// The prefix of the stderr line that the CLI prints when it drops the file or one of its rules.
pub(super) const BROKEN: &str = "[USER] Policy file error in agentline-run.toml:";

/// A tool that cannot exist: the CLI warns about the two underscores.
const CANARY: &str = "agentline__was_read";
const ALLOW_RANK: u16 = 300;
const ASK_RANK: u16 = 600;
const DENY_RANK: u16 = 998;
/// The highest priority, for tools whose uses the host decides.
const ANSWERED_RANK: u16 = 999;
/// A pattern that matches every use. With a pattern, the CLI asks about harmless commands too.
const EVERY_USE: &str = ".";
/// The modes in which allow and ask rules apply. They do not apply in plan mode.
const WORKING_MODES: &[&str] = &["default", "autoEdit", "yolo"];

const SHELL: &str = "run_shell_command";

/// The tools whose uses can be matched by a pattern, and whether they only read.
const JUDGED: &[(&str, bool)] = &[
    (SHELL, false),
    ("write_file", false),
    ("replace", false),
    ("read_file", true),
    ("read_many_files", true),
];

/// Alternative names of tools.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("MultiEdit", "Edit"),
    ("LS", "list_directory"),
    ("Shell", "Bash"),
    ("ShellTool", SHELL),
    ("Agent", "Task"),
];

/// A policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    rule: Vec<Entry>,
}

/// One rule of a policy file, with the CLI's field names.
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

/// Returns whether there are rules with patterns, which agentline must decide itself.
pub(super) fn has_patterns(request: &RunRequest) -> bool {
    let mut rules = request.deny.iter().chain(&request.ask).chain(&request.allow);
    rules.any(|rule| rule.pattern().is_some())
}

/// Returns whether agentline must decide on uses of some tools itself: there are rules with patterns or `ask` rules.
pub(super) fn needs_host_decisions(request: &RunRequest) -> bool {
    !request.ask.is_empty() || has_patterns(request)
}

/// Returns the tools for which the CLI must ask about every use.
pub(super) fn answered_tools(request: &RunRequest) -> BTreeSet<&'static str> {
    let lists = [("deny", &request.deny), ("ask", &request.ask), ("allow", &request.allow)];
    let rules = lists.into_iter().flat_map(|(key, rules)| rules.iter().map(move |rule| (key, rule)));
    let answered = rules.filter(|(key, rule)| rule.pattern().is_some() || *key == "ask");
    answered
        .flat_map(|(_, rule)| tools::TOOLS.natives(common_name(rule.tool())).collect::<Vec<_>>())
        .collect()
}

/// Returns the rules of a prompt that need a policy file that the session was not opened with. The CLI always asks
/// about file changes and web access.
pub(super) fn unenforced_in_session(opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
    const ALWAYS_ASKED: &[&str] = &["write_file", "replace", "web_fetch"];
    let asked = answered_tools(opened);
    adapter::unenforced_in_session(opened, prompt, |rule| {
        let mut natives = tools::TOOLS.natives(common_name(rule.tool()));
        natives.all(|tool| ALWAYS_ASKED.contains(&tool) || asked.contains(tool))
    })
}

/// Compiles the policy of a request on a surface. Returns `None` if the mode alone is sufficient.
pub(super) fn compile(request: &RunRequest, surface: Surface) -> Result<Option<PolicyFile>, Vec<Problem>> {
    let live = surface == Surface::Acp;
    let answered = if live { answered_tools(request) } else { BTreeSet::new() };
    let mut ranked: Vec<(Specificity, Vec<Entry>)> = Vec::new();
    let mut problems = Vec::new();
    let kinds = [("deny", &request.deny), ("ask", &request.ask), ("allow", &request.allow)];
    for (key, rules) in kinds {
        for rule in rules {
            let compiled = entries_of(rule, key).and_then(|mut found| {
                if rule.pattern().is_some() && !live {
                    return Err(unenforceable(key, rule, surface));
                }
                found
                    .retain(|entry| entry.mcp_name.is_some() || !answered.contains(entry.tool_name.as_str()));
                Ok((rank(key, rule, &[], false)?, found))
            });
            match compiled {
                Ok(found) if found.1.is_empty() => {}
                Ok(found) => ranked.push(found),
                Err(problem) => problems.push(problem),
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut entries: Vec<Entry> = answered.into_iter().map(Entry::answered).collect();
    entries.extend(in_order(ranked));
    let plans = request.permission_mode == PermissionMode::Plan || request.mode_id.as_deref() == Some("plan");
    for name in request.own_tools.iter().filter(|_| plans) {
        // In plan mode the CLI offers no tools of servers, including the one that returns a structured answer. Over ACP
        // it uses `mcp_shop` as the name of the server `shop` when it checks a call, so only the full tool name
        // matches.
        let modes = Some(vec!["plan".to_owned()]);
        entries.push(Entry { modes, ..Entry::allow(&name.replacen("__", "_", 2)) });
    }
    if request.permission_mode == PermissionMode::Plan {
        // In a headless run, the CLI lets the model leave plan mode by itself and then allows everything.
        let message = "This run only plans. Answer with the plan.";
        entries.push(Entry { deny_message: Some(message.into()), ..Entry::deny("exit_plan_mode") });
    }
    if entries.is_empty() {
        return Ok(None);
    }
    entries.push(Entry { priority: 0, ..Entry::deny(CANARY) });
    Ok(Some(PolicyFile { rule: entries }))
}

/// Returns the entries of all rules. If the fixed priorities would not let the most specific rule win, each rule gets
/// its own priority.
fn in_order(mut ranked: Vec<(Specificity, Vec<Entry>)>) -> Vec<Entry> {
    if is_out_of_order(&ranked) {
        let mut order: Vec<Specificity> = ranked.iter().map(|(rank, _)| *rank).collect();
        order.sort_unstable();
        for (rank, entries) in &mut ranked {
            let above = order.len() - order.partition_point(|other| other <= rank);
            let priority = DENY_RANK.saturating_sub(u16::try_from(above).unwrap_or(u16::MAX)).max(ALLOW_RANK);
            entries.iter_mut().for_each(|entry| entry.priority = priority);
        }
    }
    ranked.into_iter().flat_map(|(_, entries)| entries).collect()
}

/// The range of specificity of the rules for one tool: the least specific deny and ask rules, and the most specific ask
/// and allow rules.
#[derive(Clone, Copy, Debug, Default)]
struct Extremes {
    lowest_deny: Option<Specificity>,
    lowest_ask: Option<Specificity>,
    highest_ask: Option<Specificity>,
    highest_allow: Option<Specificity>,
}

impl Extremes {
    fn add(&mut self, rank: Specificity) {
        let lower = |extreme: &mut Option<Specificity>| {
            *extreme = Some(extreme.map_or(rank, |extreme| extreme.min(rank)))
        };
        let higher = |extreme: &mut Option<Specificity>| {
            *extreme = Some(extreme.map_or(rank, |extreme| extreme.max(rank)))
        };
        match rank.effect {
            RuleEffect::Deny => lower(&mut self.lowest_deny),
            RuleEffect::Ask => {
                lower(&mut self.lowest_ask);
                higher(&mut self.highest_ask);
            }
            RuleEffect::Allow => higher(&mut self.highest_allow),
        }
    }

    /// Returns whether a weaker rule of `others` is more specific than a stronger rule of this one.
    fn is_out_of_order_with(&self, others: &Self) -> bool {
        let below = |one: Option<Specificity>, other: Option<Specificity>| {
            one.zip(other).is_some_and(|(one, other)| one < other)
        };
        below(self.lowest_deny, others.highest_ask)
            || below(self.lowest_deny, others.highest_allow)
            || below(self.lowest_ask, others.highest_allow)
    }
}

/// Returns whether fixed priorities would let a less specific rule win, among rules that match the same use.
fn is_out_of_order(ranked: &[(Specificity, Vec<Entry>)]) -> bool {
    // By tool, by server, rules that match every tool, and all rules.
    let mut tools: BTreeMap<(Option<&str>, &str), Extremes> = BTreeMap::new();
    let mut servers: BTreeMap<&str, (Extremes, Extremes)> = BTreeMap::new();
    let (mut wide, mut all) = (Extremes::default(), Extremes::default());
    for (rank, entry) in
        ranked.iter().flat_map(|(rank, entries)| entries.iter().map(move |entry| (*rank, entry)))
    {
        tools.entry((entry.mcp_name.as_deref(), &entry.tool_name)).or_default().add(rank);
        all.add(rank);
        if let Some(server) = &entry.mcp_name {
            let (whole, every) = servers.entry(server).or_default();
            every.add(rank);
            if entry.tool_name == "*" {
                whole.add(rank);
            }
        } else if entry.tool_name == "*" || entry.tool_name.starts_with("mcp_") {
            wide.add(rank);
        }
    }
    let upset =
        |one: &Extremes, other: &Extremes| one.is_out_of_order_with(other) || other.is_out_of_order_with(one);
    tools.values().any(|tool| tool.is_out_of_order_with(tool))
        || servers.values().any(|(whole, every)| upset(whole, every))
        || upset(&wide, &all)
}

impl PolicyFile {
    /// Returns the text of the file.
    pub(super) fn to_toml(&self) -> Result<String, Problem> {
        toml::to_string(self).map_err(|error| {
            Problem::new("allow", format!("the rules cannot be written as a policy file: {error}"))
                .hint("remove rules until it works, and report this as a bug")
        })
    }
}

impl Entry {
    /// Creates a rule that makes the CLI ask about every use of a tool.
    fn answered(tool: &str) -> Self {
        let only_reads = JUDGED.iter().any(|(name, only_reads)| *name == tool && *only_reads);
        let mut entry =
            Self { priority: ANSWERED_RANK, args_pattern: Some(EVERY_USE.into()), ..Self::ask(tool) };
        if only_reads {
            // Plan mode uses read tools too. It denies all others by itself.
            entry.modes = None;
        }
        entry
    }

    fn deny(tool: &str) -> Self {
        Self { tool_name: tool.into(), decision: "deny".into(), priority: DENY_RANK, ..Self::default() }
    }

    /// Creates an ask rule. In a headless run the CLI denies the call instead.
    fn ask(tool: &str) -> Self {
        let args_pattern = (tool == SHELL).then(|| EVERY_USE.to_owned());
        Self { decision: "ask_user".into(), priority: ASK_RANK, args_pattern, ..Self::allow(tool) }
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

/// Returns the entries of one rule.
fn entries_of(rule: &Rule, key: &str) -> Result<Vec<Entry>, Problem> {
    let new = |tool: &str| match key {
        "allow" => Entry::allow(tool),
        "ask" => Entry::ask(tool),
        _ => Entry { deny_message: Some(format!("{RULE_MARK}{rule}")), ..Entry::deny(tool) },
    };
    let cannot = |reason: &str, way_out: &str| {
        Problem::new(key, format!("`{rule}` cannot be enforced: {reason}")).hint(way_out.to_owned())
    };
    if let Some(server) = rule.tool().strip_prefix("mcp__") {
        let (server, tool) = server.split_once("__").unwrap_or((server, "*"));
        if server.is_empty() || tool.is_empty() || (tool != "*" && tool.contains('*')) || server.contains('*')
        {
            return Err(cannot(
                "it does not name an MCP server or one of its tools",
                "write `mcp__server` for all tools of a server, or `mcp__server__tool` for one",
            ));
        }
        if rule.pattern().is_some() {
            return Err(cannot(
                "patterns are not supported for tools of MCP servers",
                "write the rule without a pattern",
            ));
        }
        return Ok(vec![Entry { mcp_name: Some(server.into()), ..new(tool) }]);
    }
    let outside =
        rule.tool().starts_with("mcp_") || rule.tool().starts_with("discovered_tool_") || rule.tool() == "*";
    if outside && rule.pattern().is_none() && !rule.tool().contains("__") {
        return Ok(vec![new(rule.tool())]);
    }
    let name = common_name(rule.tool());
    let natives = tools::TOOLS.natives(name).collect::<Vec<_>>();
    if natives.is_empty() {
        let suggestion = nearest(rule.tool(), tools::TOOLS.names()).map(|n| format!("did you mean `{n}`? "));
        let common = "Write, Edit, Read, LS, Glob, Grep, Bash, WebFetch, WebSearch, mcp__server__tool";
        return Err(Problem::new(key, format!("`{rule}`: Gemini CLI has no tool `{}`", rule.tool())).hint(
            format!("{}known tools: {common}, and Gemini CLI's own names", suggestion.unwrap_or_default()),
        ));
    }
    if rule.pattern().is_some() && !natives.iter().all(|native| JUDGED.iter().any(|(tool, _)| tool == native))
    {
        return Err(cannot(
            "Gemini CLI can allow or deny this tool only as a whole",
            &format!("write `{}` without a pattern", rule.tool()),
        ));
    }
    let whole = |tool: &&str| {
        let all = *tool == SHELL && key == "allow";
        Entry { allow_redirection: all.then_some(true), ..new(tool) }
    };
    Ok(natives.iter().map(whole).collect())
}

/// Returns the name of a tool in the tool table.
fn common_name(tool: &str) -> &str {
    OTHER_NAMES.iter().find(|(other, _)| *other == tool).map_or(tool, |(_, name)| *name)
}

fn unenforceable(key: &str, rule: &Rule, surface: Surface) -> Problem {
    let tool = rule.tool();
    let reason = "Gemini CLI asks about every use only over ACP";
    Problem::new(key, format!("`{rule}` cannot be enforced on the surface `{surface}`: {reason}"))
        .hint(format!("use the surface `acp` or `auto`, or a rule for the whole tool: `{tool}`"))
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
