//! One rule of a policy: which tool uses it matches, and how specifically.

use super::{
    command::{CommandPart, ParsedCommand},
    glob::WordGlob,
    shell,
};
use crate::policy::path::{PathPattern, ResolvedPath, WorkspaceRoots};
use crate::{PermissionRequest, Problem, Rule, ToolKind, permission::shown};

/// Alternative names of tools, as other documentation uses them.
const OTHER_NAMES: &[(&str, &str)] = &[("MultiEdit", "Edit"), ("Shell", "Bash"), ("Agent", "Task")];

/// The canonical names that also apply to a tool with an agent-specific name, by kind: for `allow` rules, and for `ask`
/// and `deny` rules.
const NAMES_OF_KINDS: &[(ToolKind, &[&str], &[&str])] = &[
    (ToolKind::Write, &["Write", "Edit"], &["Write", "Edit"]),
    (ToolKind::Edit, &["Write", "Edit"], &["Write", "Edit"]),
    (ToolKind::Shell, &["Bash"], &["Bash"]),
    (ToolKind::Read, &["Read"], &["Read"]),
    (ToolKind::Search, &["Glob", "Grep"], &["Glob", "Grep"]),
    (ToolKind::Web, &["WebFetch"], &["WebFetch", "WebSearch"]),
    (ToolKind::Agent, &["Task"], &["Task"]),
];

/// The list that a rule is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RuleEffect {
    Allow,
    Ask,
    Deny,
}

/// The specificity with which a rule matches a tool use. The rule with the greatest rank decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Specificity {
    /// Whether the rule has a pattern.
    pattern: bool,
    /// The number of literal characters in the pattern.
    length: usize,
    /// Whether the pattern is entirely literal.
    literal: bool,
    /// Whether the rule names the tool without `*`.
    named: bool,
    /// The number of literal characters in the tool name.
    name: usize,
    /// The list of the rule. On a tie, `deny` wins over `ask`, and `ask` over `allow`.
    pub(crate) effect: RuleEffect,
}

/// The match of a rule with a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleMatch {
    pub(super) rank: Specificity,
    /// Whether the rule matches only because the program or its arguments cannot be determined.
    pub(super) undeterminable: bool,
}

/// One thing that a tool use touches. Each is checked separately.
#[derive(Clone, Debug)]
pub(super) enum Target<'a> {
    /// A file: its real location, and its path as written.
    Path { at: ResolvedPath, spelled: ResolvedPath },
    /// A part of a command.
    Command { whole: &'a ParsedCommand, part: &'a CommandPart },
    /// A host on the web.
    Host(String),
    /// An unknown target.
    Unknown,
}

/// A rule that is ready to be matched.
#[derive(Clone, Debug)]
pub(super) struct CompiledRule {
    pub(super) effect: RuleEffect,
    /// The rule as written.
    pub(super) rule: Rule,
    /// The canonical name of the tool.
    tool: String,
    name: WordGlob,
    path: Option<PathPattern>,
    command: Vec<WordGlob>,
    command_head: String,
    /// `command_head` with the canonical path of the program, if the program is given by a path.
    path_head: Option<String>,
    /// The name of the program in the command pattern. `None` matches any program.
    program: Option<WordGlob>,
}

impl CompiledRule {
    /// Compiles a rule. `key` is the list that contains it.
    pub(super) fn new(
        effect: RuleEffect,
        key: &str,
        rule: &Rule,
        roots: &WorkspaceRoots,
    ) -> Result<Self, Problem> {
        let cannot = |reason: &str, way_out: &str| {
            Problem::new(key, format!("{} cannot be enforced: {reason}", shown(rule.as_str()))).hint(way_out)
        };
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == rule.tool());
        let tool = other.map_or(rule.tool(), |(_, name)| *name);
        let pattern = rule.pattern();
        if let Some(rest) = tool.strip_prefix("mcp__") {
            if rest.is_empty() || rest.split("__").any(str::is_empty) {
                let way_out = "write `mcp__server` for all tools of a server, or `mcp__server__tool` for one";
                return Err(cannot("it does not name an MCP server or one of its tools", way_out));
            }
            if pattern.is_some() {
                let reason = "patterns are not supported for tools of MCP servers";
                return Err(cannot(reason, "write the rule without a pattern"));
            }
        }
        if tool == "WebFetch" && pattern.is_some_and(|p| p.contains(['/', '@', ' '])) {
            return Err(cannot("the pattern is not a host name", "write `WebFetch(domain:example.org)`"));
        }
        let path = match pattern.map(|p| PathPattern::read(p, roots)) {
            Some(None) if tool != "Bash" => {
                let way_out = "write a path relative to the workspace, or an absolute path";
                return Err(cannot("the path contains `..` after a `*`", way_out));
            }
            path => path.flatten(),
        };
        let (head, open) = pattern.map_or(("", false), head_of_command);
        let mut command = vec![WordGlob::read(head)];
        if open {
            command.push(WordGlob::read(head).and_more());
        }
        let command_head = head.to_owned();
        let path_head = with_program_path(head, roots);
        let program = head.split_whitespace().next().map(shell::program_name);
        let program = program.filter(|name| name.contains(|c| c != '*')).map(WordGlob::read);
        Ok(Self {
            effect,
            name: WordGlob::read(tool),
            tool: tool.to_owned(),
            rule: rule.clone(),
            path,
            command,
            command_head,
            path_head,
            program,
        })
    }

    /// Returns how specific the rule is by itself, for rules that are passed to an agent with its own order.
    pub(super) fn rank(&self, is_command: bool) -> Specificity {
        let length = match &self.path {
            Some(path) if !is_command => path.length,
            _ => self.command_head.chars().filter(|c| *c != '*').count(),
        };
        let literal = self.rule.pattern().is_some_and(is_literal);
        let name = self.tool.chars().filter(|c| *c != '*').count();
        // A rule for a server applies to all its tools.
        let whole_server = self.tool.strip_prefix("mcp__").is_some_and(|rest| !rest.contains("__"));
        let (named, name) = if whole_server { (false, name + 2) } else { (self.is_by_name(), name) };
        Specificity {
            pattern: self.rule.pattern().is_some(),
            length,
            literal,
            named,
            name,
            effect: self.effect,
        }
    }

    /// Returns how the rule matches one target of a tool use, if at all.
    pub(super) fn matches(&self, ask: &PermissionRequest, target: &Target<'_>) -> Option<RuleMatch> {
        self.matches_target(ask, self.matches_tool(ask)?, target)
    }

    /// Returns how the rule matches a target, given the result of [`Self::matches_tool`].
    pub(super) fn matches_target(
        &self,
        ask: &PermissionRequest,
        (named, name): (bool, usize),
        target: &Target<'_>,
    ) -> Option<RuleMatch> {
        let whole =
            Specificity { pattern: false, length: 0, literal: false, named, name, effect: self.effect };
        let Some(pattern) = self.rule.pattern() else {
            return Some(RuleMatch { rank: whole, undeterminable: false });
        };
        let permits = self.effect == RuleEffect::Allow;
        let mut undeterminable = false;
        let length = match target {
            // An `allow` rule must match with certainty; other rules need not.
            Target::Unknown if permits => return None,
            Target::Unknown => 0,
            Target::Path { at, spelled } => {
                let path = self.path.as_ref()?;
                let fits = if permits { path.permits(at) } else { path.refuses(at, spelled) };
                fits.then_some(path.length)?
            }
            Target::Command { whole, part } if permits => {
                self.permits_command(ask, whole, &part.text).then(|| self.command_length())?
            }
            Target::Command { part, .. } => {
                undeterminable = !self.refuses_command(ask, part);
                if undeterminable {
                    (part.undeterminable || self.may_refuse_command(part) || self.may_start(part))
                        .then_some(0)?
                } else {
                    self.command_length()
                }
            }
            Target::Host(host) => {
                let domain = pattern.strip_prefix("domain:").unwrap_or(pattern).trim();
                fits_host(domain, host).then_some(domain.len())?
            }
        };
        let rank =
            Specificity { pattern: true, length, literal: is_literal(pattern) && !undeterminable, ..whole };
        Some(RuleMatch { rank, undeterminable })
    }

    fn command_length(&self) -> usize {
        self.command_head.chars().filter(|c| *c != '*').count()
    }

    /// Returns whether the rule applies only to certain paths of a tool.
    pub(super) fn has_path_pattern(&self) -> bool {
        self.path.is_some() && self.tool != "Bash"
    }

    /// Returns whether its pattern is a path outside the workspace. Only such a rule can allow writing there.
    pub(super) fn names_a_place_outside(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.absolute)
    }

    /// Returns whether it names a single tool or server, without `*`.
    pub(super) fn is_by_name(&self) -> bool {
        !self.tool.contains('*')
    }

    /// Returns whether the rule applies to this tool: whether by its full name, and the number of literal characters.
    pub(super) fn matches_tool(&self, ask: &PermissionRequest) -> Option<(bool, usize)> {
        let length = self.tool.chars().filter(|c| *c != '*').count();
        let known = NAMES_OF_KINDS
            .iter()
            .any(|(_, names, more)| names.contains(&ask.tool.as_str()) || more.contains(&ask.tool.as_str()));
        let of_kind =
            NAMES_OF_KINDS.iter().find(|(kind, ..)| *kind == kind_of(ask) && !known && ask.server.is_none());
        let implied = of_kind
            .map_or(&[][..], |(_, allow, all)| if self.effect == RuleEffect::Allow { allow } else { all });
        let of_server = ask.server.as_ref().filter(|_| !ask.tool.starts_with("mcp__"));
        let full = of_server.map_or_else(String::new, |server| format!("mcp__{server}__{}", ask.tool));
        let own = [ask.tool.as_str(), &ask.native_tool, &full];
        let mut names = own.into_iter().chain(implied.iter().copied());
        if names.any(|name| !name.is_empty() && self.name.fits(name, false)) {
            return Some((self.is_by_name(), length));
        }
        // A rule for a server applies to all its tools, so it ranks below a rule for one tool.
        servers(ask).any(|server| self.name.fits(&server, false)).then_some((false, length + 2))
    }

    /// Returns whether a text matches the command pattern.
    fn fits_command(&self, ask: &PermissionRequest, text: &str, fold: bool) -> bool {
        // With an agent's own tool name, a pattern without `*` matches every command that starts with it.
        let own = self.tool == ask.native_tool && ask.native_tool != ask.tool;
        let begins = own && !self.command_head.contains('*');
        self.command.iter().any(|glob| glob.fits(text, fold))
            || (begins && WordGlob::read(&self.command_head).and_more().fits(text, fold))
    }

    fn permits_command(&self, ask: &PermissionRequest, whole: &ParsedCommand, part: &str) -> bool {
        let same = self.rule.pattern().is_some_and(|p| !p.contains('*') && p == part);
        same || (whole.plain && self.fits_command(ask, part, false))
    }

    fn refuses_command(&self, ask: &PermissionRequest, part: &CommandPart) -> bool {
        // On case-insensitive systems, a `deny` rule ignores case.
        let fold = cfg!(any(windows, target_os = "macos"));
        let by_path = self.path_head.as_deref().map(|head| {
            let glob = WordGlob::read(head);
            if self.command.len() > 1 { vec![WordGlob::read(head).and_more(), glob] } else { vec![glob] }
        });
        let fits_path = |form: &str| by_path.iter().flatten().any(|glob| glob.fits(form, fold));
        part.forms.iter().any(|(form, _)| self.fits_command(ask, form, fold) || fits_path(form))
    }

    /// Returns whether text that a program may run names the program of the pattern.
    fn may_start(&self, part: &CommandPart) -> bool {
        let fold = cfg!(any(windows, target_os = "macos"));
        let Some(program) = &self.program else { return false };
        match program.literal().filter(|_| !fold) {
            Some(name) => part.named.contains(name),
            None => part.named.iter().any(|name| program.fits(name, fold)),
        }
    }

    /// Returns whether the pattern may cover a command whose first words alone are known.
    fn may_refuse_command(&self, part: &CommandPart) -> bool {
        let may_become = |head: &str, form: &str| {
            let (sure, star) = head.split_once('*').map_or((head, false), |(before, _)| (before, true));
            sure.starts_with(form) || sure == form.trim_end() || (star && form.starts_with(sure))
        };
        let heads = [Some(&self.command_head), self.path_head.as_ref()];
        let fits = |form: &str| heads.iter().flatten().any(|head| may_become(head, form));
        part.forms.iter().any(|(form, open)| *open && fits(form))
    }
}

/// Returns the kind of a tool use. If the agent reports none, the command or diffs determine it.
fn kind_of(ask: &PermissionRequest) -> ToolKind {
    match ask.kind {
        ToolKind::Other if ask.command.is_some() => ToolKind::Shell,
        ToolKind::Other if !ask.diffs.is_empty() => ToolKind::Edit,
        kind => kind,
    }
}

/// Returns the names by which a rule can refer to the server of a tool.
fn servers(ask: &PermissionRequest) -> impl Iterator<Item = String> {
    let known = ask.server.as_ref().map(|server| format!("mcp__{server}"));
    let rest = ask.tool.strip_prefix("mcp__").filter(|_| known.is_none()).unwrap_or_default();
    let cuts = rest.match_indices("__").map(|(at, _)| format!("mcp__{}", &rest[..at]));
    known.into_iter().chain(cuts).collect::<Vec<_>>().into_iter()
}

/// Splits a command pattern into its head and whether anything may follow. `git *` and `npm run:*` also match the bare
/// command.
fn head_of_command(pattern: &str) -> (&str, bool) {
    match pattern.strip_suffix(":*").or_else(|| pattern.strip_suffix(" *")) {
        Some(head) => (head, true),
        None => (pattern, false),
    }
}

/// Returns the head with the canonical path of its program, if the program is given by a path.
fn with_program_path(head: &str, roots: &WorkspaceRoots) -> Option<String> {
    let program = head.split_whitespace().next().filter(|program| program.contains('/'))?;
    let rest = head.trim_start().strip_prefix(program)?;
    (!program.contains(['*', '?', '~'])).then(|| format!("{}{rest}", roots.resolve(program).program()))
}

/// Returns whether every character of a pattern is literal.
fn is_literal(pattern: &str) -> bool {
    !pattern.contains(['*', '?']) && !pattern.ends_with('/')
}

/// Returns whether a host matches. `example.org` matches only that host, `*.example.org` its subdomains.
fn fits_host(domain: &str, host: &str) -> bool {
    let domain = domain.to_ascii_lowercase();
    match domain.strip_prefix("*.") {
        Some(above) => host.strip_suffix(above).is_some_and(|below| below.ends_with('.')),
        None => domain == host,
    }
}
