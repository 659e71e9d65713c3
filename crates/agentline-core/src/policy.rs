//! Decides whether an agent may use a tool: the most specific rule decides, and the mode decides where no rule matches.
//!
//! Everything that a tool use touches is checked separately: each file, each part of a command, each host. If a rule
//! denies one of them, the whole use is denied. Rules allow a use only if they allow all of its parts.

mod command;
mod glob;
mod native;
mod path;
mod rule;
mod shell;
mod web;

#[cfg(test)]
mod tests;

pub use crate::policy::path::ResolvedPath;
use crate::policy::path::{WorkspaceRoots, slashes};
use crate::{
    PermissionDecision, PermissionMode, PermissionRequest, Problem, Problems, Rule, RunRequest, ToolKind,
};
use command::ParsedCommand;
pub use native::{NativeDecision, ToolUseContext};
use rule::{CompiledRule, RuleMatch, Target};
pub(crate) use rule::{RuleEffect, Specificity};
use std::{collections::BTreeSet, path::Path};

/// The reason for denying access to a file outside the workspace and the included directories.
pub const OUTSIDE_WORKSPACE: &str = "outside_workspace";
/// The reason for denying a command that starts a program which its text does not name.
pub const UNDETERMINABLE_COMMAND: &str = "undeterminable_command";

/// The reason for allowing a tool of an MCP server that the caller named and trusts.
const TRUSTED_SERVER: &str = "trusted_server";

/// The permissions of an agent in one run: a permission mode and rules.
#[derive(Clone, Debug)]
pub struct Policy {
    mode: PermissionMode,
    rules: Vec<CompiledRule>,
    roots: WorkspaceRoots,
    /// MCP servers whose tools belong to the host.
    own: Vec<String>,
    /// All other MCP servers.
    foreign: Vec<String>,
    /// Those of the other servers whose tools may run where no rule decides, because the caller named the server.
    trusted: Vec<String>,
}

/// The decision of a policy about one tool use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyDecision {
    /// The tool may run.
    Allow(PermissionDecision),
    /// The tool must not run.
    Deny(PermissionDecision),
    /// The user must be asked. The value is the denial that applies if no user can be asked.
    Ask(PermissionDecision),
}

impl PolicyDecision {
    /// Returns the decision. For `Ask`, this is the denial that applies if no user can be asked.
    #[must_use]
    pub fn ruling(&self) -> &PermissionDecision {
        match self {
            Self::Allow(ruling) | Self::Deny(ruling) | Self::Ask(ruling) => ruling,
        }
    }

    /// Returns `allow`, `deny` or `ask`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Allow(_) => "allow",
            Self::Deny(_) => "deny",
            Self::Ask(_) => "ask",
        }
    }
}

impl Policy {
    /// Creates the policy of a request whose workspace is `cwd`.
    ///
    /// # Errors
    ///
    /// Returns a problem for each invalid rule.
    pub fn new(request: &RunRequest, cwd: &Path) -> Result<Self, Problems> {
        let spelled = |path: &Path| path::absolute("", &path.to_string_lossy());
        let roots = WorkspaceRoots {
            workspace: vec![spelled(cwd)],
            included: request.include_directories.iter().map(|dir| spelled(&cwd.join(dir))).collect(),
        };
        Self::with_roots(request, roots)
    }

    /// Adds another path of the workspace, such as the target of a symbolic link.
    #[must_use]
    pub fn also_at(mut self, cwd: &Path) -> Self {
        let spelling = path::absolute("", &cwd.to_string_lossy());
        if !self.roots.workspace.contains(&spelling) {
            self.roots.workspace.push(spelling);
            // Absolute paths in rules may refer to the new path. Each rule was compiled before, so none can fail here.
            for rule in &mut self.rules {
                if let Ok(again) = CompiledRule::new(rule.effect, "", &rule.rule, &self.roots) {
                    *rule = again;
                }
            }
        }
        self
    }

    /// Registers a server whose tools belong to the host. They need no permission in any mode.
    #[must_use]
    pub fn own_server(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.foreign.retain(|other| *other != name);
        self.own.push(name);
        self
    }

    /// Replaces the MCP servers whose tools may run where no rule decides. Without this, they are all servers that the
    /// request names.
    #[must_use]
    pub fn trusted_servers(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.trusted = names.into_iter().collect();
        self
    }

    /// Returns the mode that applies where no rule matches.
    #[must_use]
    pub fn mode(&self) -> PermissionMode {
        self.mode
    }

    /// Returns whether any rule applies only to certain paths.
    #[must_use]
    pub fn has_path_patterns(&self) -> bool {
        self.rules.iter().any(CompiledRule::has_path_pattern)
    }

    /// Resolves a path without following links, for callers without access to the file system.
    #[must_use]
    pub fn resolve(&self, path: &str) -> ResolvedPath {
        self.roots.resolve(path)
    }

    /// Returns the files that a tool use would change, as the agent wrote them, or nothing if it changes none.
    #[must_use]
    pub fn changed_files(ask: &PermissionRequest) -> Vec<&str> {
        if changes_files(ask) { files(ask) } else { Vec::new() }
    }

    /// Decides on one tool use. `resolve` returns the real location of a path.
    #[must_use]
    pub fn decide(&self, ask: &PermissionRequest, resolve: &dyn Fn(&str) -> ResolvedPath) -> PolicyDecision {
        if self.is_own(ask) && !self.refuses_own(ask) {
            return PolicyDecision::Allow(PermissionDecision {
                reason: Some("own_tool".into()),
                ..PermissionDecision::allow("agentline")
            });
        }
        let paths = |path: &str| vec![resolve(path).program(), self.roots.resolve(path).program()];
        let command = ask.command.as_deref().map(|text| ParsedCommand::read(text, &paths));
        let targets = self.targets(ask, command.as_ref(), resolve);
        // Which rules match the tool is the same for every target.
        let rules: Vec<_> =
            self.rules.iter().filter_map(|rule| Some((rule, rule.matches_tool(ask)?))).collect();
        let best = |target: &Target<'_>| {
            let found_match = rules
                .iter()
                .filter_map(|(rule, tool)| Some((rule.matches_target(ask, *tool, target)?, *rule)));
            found_match.max_by_key(|(found_match, _)| found_match.rank)
        };
        let found: Vec<Option<(RuleMatch, &CompiledRule)>> = targets.iter().map(best).collect();
        let first_with = |effect: RuleEffect| {
            found.iter().flatten().find(|(found_match, _)| found_match.rank.effect == effect)
        };
        let refusal = |(found_match, rule): &(RuleMatch, &CompiledRule)| {
            let reason = if found_match.undeterminable { UNDETERMINABLE_COMMAND } else { "rule" };
            PermissionDecision::deny("rule", reason).rule(rule.rule.as_str().trim())
        };
        if let Some(found_match) = first_with(RuleEffect::Deny) {
            return PolicyDecision::Deny(refusal(found_match));
        }
        let changes = changes_files(ask);
        let escapes = |(target, found_match): (&Target<'_>, &Option<(RuleMatch, &CompiledRule)>)| {
            let outside = matches!(target, Target::Path { at, .. } if !at.inside);
            outside && !found_match.is_some_and(|(_, rule)| rule.names_a_place_outside())
        };
        if changes && targets.iter().zip(&found).any(escapes) {
            return PolicyDecision::Deny(PermissionDecision::deny("agentline", OUTSIDE_WORKSPACE));
        }
        if self.mode == PermissionMode::Plan && !only_looks(ask) {
            return PolicyDecision::Deny(PermissionDecision::deny("mode", "mode"));
        }
        if let Some(found_match) = first_with(RuleEffect::Ask) {
            return PolicyDecision::Ask(refusal(found_match));
        }
        if let Some((_, rule)) = first_with(RuleEffect::Allow).filter(|_| found.iter().all(Option::is_some)) {
            return PolicyDecision::Allow(PermissionDecision::allow("rule").rule(rule.rule.as_str().trim()));
        }
        if self.mode != PermissionMode::Deny && self.is_trusted(ask) {
            return PolicyDecision::Allow(PermissionDecision {
                reason: Some(TRUSTED_SERVER.into()),
                ..PermissionDecision::allow("agentline")
            });
        }
        self.by_mode(changes && targets.iter().all(|t| matches!(t, Target::Path { .. })))
    }

    /// Returns the mode's decision, for uses that no rule decides. `edits` means that the use only changes known files.
    fn by_mode(&self, edits: bool) -> PolicyDecision {
        let refusal = PermissionDecision::deny("mode", "mode");
        let permission = || PermissionDecision {
            reason: Some(self.mode.name().into()),
            ..PermissionDecision::allow("mode")
        };
        match self.mode {
            PermissionMode::Bypass | PermissionMode::Auto => PolicyDecision::Allow(permission()),
            PermissionMode::AcceptEdits if edits => PolicyDecision::Allow(permission()),
            PermissionMode::Deny => PolicyDecision::Deny(refusal),
            PermissionMode::Default
            | PermissionMode::AcceptEdits
            | PermissionMode::Plan
            | PermissionMode::Prompt => PolicyDecision::Ask(refusal),
        }
    }

    /// Returns everything that a tool use touches. The list is never empty.
    fn targets<'a>(
        &self,
        ask: &'a PermissionRequest,
        command: Option<&'a ParsedCommand>,
        resolve: &dyn Fn(&str) -> ResolvedPath,
    ) -> Vec<Target<'a>> {
        let mut targets = Vec::new();
        if let Some(whole) = command {
            targets.extend(whole.parts.iter().map(|part| Target::Command { whole, part }));
        } else if ask.kind == ToolKind::Web {
            targets.extend(web::hosts(ask).unwrap_or_default().into_iter().map(Target::Host));
        }
        for path in files(ask) {
            let path_target = || Target::Path { at: resolve(path), spelled: self.roots.resolve(path) };
            targets.push(if path.is_empty() { Target::Unknown } else { path_target() });
        }
        if targets.is_empty() {
            targets.push(Target::Unknown);
        }
        targets
    }

    fn is_own(&self, ask: &PermissionRequest) -> bool {
        if let Some(server) = &ask.server {
            return self.own.contains(server);
        }
        let is_of = |server: &String| ask.tool.starts_with(&format!("mcp__{server}__"));
        self.own.iter().any(is_of) && !self.foreign.iter().any(is_of)
    }

    /// Returns whether the use is known to be of a tool of a trusted server. The name of a tool alone is not enough: it
    /// does not say where the name of the server ends.
    fn is_trusted(&self, ask: &PermissionRequest) -> bool {
        ask.server.as_ref().is_some_and(|server| self.trusted.contains(server))
    }

    /// Returns whether a rule denies a tool of the host by name.
    fn refuses_own(&self, ask: &PermissionRequest) -> bool {
        let refuses = |rule: &&CompiledRule| rule.effect == RuleEffect::Deny && rule.is_by_name();
        self.rules.iter().filter(refuses).any(|rule| rule.matches(ask, &Target::Unknown).is_some())
    }

    fn with_roots(request: &RunRequest, roots: WorkspaceRoots) -> Result<Self, Problems> {
        let lists = [
            (RuleEffect::Deny, "deny", &request.deny),
            (RuleEffect::Ask, "ask", &request.ask),
            (RuleEffect::Allow, "allow", &request.allow),
        ];
        let (mut rules, mut problems) = (Vec::new(), Vec::<Problem>::new());
        for (effect, key, list) in lists {
            problems.extend(request.invalid_rules(key));
            for rule in list {
                match CompiledRule::new(effect, key, rule, &roots) {
                    Ok(rule) => rules.push(rule),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        if !problems.is_empty() {
            return Err(Problems(problems));
        }
        let foreign: Vec<String> = request.mcp_servers.keys().cloned().collect();
        let trusted = foreign.clone();
        Ok(Self { mode: request.permission_mode, rules, roots, own: Vec::new(), foreign, trusted })
    }
}

/// Returns how specific a rule is, in the order that [`Policy::decide`] uses. `key` is the list that the rule is in.
pub(crate) fn rank(
    key: &str,
    rule: &Rule,
    workspace: &[&str],
    is_command: bool,
) -> Result<Specificity, Problem> {
    let effect = match key {
        "allow" => RuleEffect::Allow,
        "ask" => RuleEffect::Ask,
        _ => RuleEffect::Deny,
    };
    let workspace = workspace.iter().map(|root| path::absolute("", root)).collect();
    let roots = WorkspaceRoots { workspace, included: Vec::new() };
    Ok(CompiledRule::new(effect, key, rule, &roots)?.rank(is_command))
}

/// The `allow` and `ask` rules that can outrank a `deny` rule for a whole tool or server.
///
/// An agent that enforced such a `deny` rule by itself would deny too much.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exceptions {
    /// Tools with rules that have a pattern.
    patterned: BTreeSet<String>,
    /// All tools and servers that rules name.
    named: BTreeSet<String>,
}

impl Exceptions {
    /// Collects the `allow` and `ask` rules of a request.
    pub(crate) fn of(request: &RunRequest) -> Self {
        let mut found = Self::default();
        for rule in request.allow.iter().chain(&request.ask) {
            if rule.pattern().is_some() {
                found.patterned.insert(rule.tool().to_owned());
            }
            found.named.insert(rule.tool().to_owned());
        }
        found
    }

    /// Returns whether one of these rules outranks `rule`.
    pub(crate) fn outrank(&self, rule: &Rule) -> bool {
        let below = format!("{}__", rule.tool());
        let of_server =
            || self.named.range(below.clone()..).next().is_some_and(|name| name.starts_with(&below));
        rule.pattern().is_none() && (self.patterned.contains(rule.tool()) || of_server())
    }
}

/// Returns the files that a tool use names. Paths next to a command are ignored: they only say where it runs.
pub(crate) fn files(ask: &PermissionRequest) -> Vec<&str> {
    let mut files: Vec<&str> = Vec::new();
    if ask.command.is_none() {
        files.extend(ask.paths.iter().map(String::as_str));
    }
    for diff in &ask.diffs {
        // Some agents put only the file name into a diff and report the full path separately.
        let behind_slash = format!("/{}", slashes(&diff.path));
        if !files.iter().any(|path| *path == diff.path || slashes(path).ends_with(&behind_slash)) {
            files.push(&diff.path);
        }
    }
    files
}

/// Returns whether a tool use is known to change files. What a command changes is not known.
pub(crate) fn changes_files(ask: &PermissionRequest) -> bool {
    let by_name = matches!(ask.tool.as_str(), "Write" | "Edit" | "MultiEdit" | "NotebookEdit");
    by_name || matches!(ask.kind, ToolKind::Write | ToolKind::Edit) || !ask.diffs.is_empty()
}

/// Returns whether a tool use neither changes nor runs anything.
fn only_looks(ask: &PermissionRequest) -> bool {
    let reads = matches!(ask.kind, ToolKind::Read | ToolKind::Search | ToolKind::Web);
    reads && ask.command.is_none() && !changes_files(ask)
}
