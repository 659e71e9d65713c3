//! Claude Code: spoken to through its adapter, `claude-agent-acp`, which brings Claude Code with it.

mod manners;
mod saved;
mod tools;
mod workspace;

use super::{
    adapter::{self, Own, found},
    lines::first_keys,
};
use crate::{
    Agent, Card, Decision, Dialogue, Failure, Ground, Launch, Look, ModeWish, PermissionMode, Plan, Problem,
    Prospect, Repertoire, Rule, RunRequest, SavedForm, SessionFile, SessionFold, SessionRoot, SignIn, Stance,
    Surface, SystemMode, Talk, ToolTable, Trust, Words, acp::Acp, policy::Exceptions,
};
use serde_json::json;
use std::{collections::BTreeMap, path::Path};

/// Anthropic's Claude Code.
#[derive(Clone, Copy, Debug)]
pub struct Claude;

static CARD: Card = Card::new(
    "claude",
    &["claude-code", "claude_acp"],
    "Claude Code",
    "claude-agent-acp",
    "CLAUDE_AGENT_ACP_PATH",
    "@agentclientprotocol/claude-agent-acp",
    "0.99.0",
    20,
    "set ANTHROPIC_API_KEY, or run `claude` once in a terminal and sign in",
    &["ANTHROPIC_*", "CLAUDE_*", "DISABLE_AUTOUPDATER", "MAX_THINKING_TOKENS", "API_TIMEOUT_MS"],
    &[Surface::Acp],
    None,
)
.instructions(&["CLAUDE.md", "CLAUDE.local.md"])
.project_files(&[".claude", ".mcp.json"])
.home_page("https://github.com/agentclientprotocol/claude-agent-acp");

/// Tools that it uses without asking.
const UNASKED: &[&str] = &["Read", "Glob", "Grep", "LS"];

/// Commands that change nothing, which it runs without asking.
const UNASKED_COMMANDS: &[&str] = &[
    "awk", "basename", "cat", "cd", "cut", "date", "df", "diff", "dirname", "du", "echo", "env", "file",
    "find", "grep", "head", "hostname", "id", "jq", "less", "ls", "man", "printenv", "printf", "ps", "pwd",
    "readlink", "realpath", "rg", "sed", "sort", "stat", "tail", "test", "tr", "tree", "true", "type",
    "uname", "uniq", "wc", "which", "whoami", "xargs",
];
/// Commands of git among them.
const UNASKED_GIT: &[&str] = &[
    "blame",
    "branch",
    "config",
    "describe",
    "diff",
    "grep",
    "log",
    "ls-files",
    "ls-remote",
    "reflog",
    "remote",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "stash",
    "status",
    "tag",
    "worktree",
];

/// How many folders below the projects a session of a sub-agent may lie.
const DEEPEST: usize = 6;

/// Types of records with which a session may begin, and that no other agent has.
const KINDS: &[&str] = &["file-history-snapshot", "queue-operation", "custom-title", "ai-title"];

impl Agent for Claude {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, surface, &CARD);
        // Its adapter takes the whole of the instructions.
        problems.retain(|problem| problem.key != "system_mode");
        problems.extend(adapter::unenforceable(request, surface, unenforced));
        problems
    }

    fn stance(&self, request: &RunRequest, _surface: Surface, prospect: &Prospect<'_>) -> Stance {
        let rule = prospect.decision.ruling().rule.as_deref().unwrap_or_default();
        let taken_away =
            matches!(prospect.decision, Decision::Deny(_)) && !rule.is_empty() && !rule.contains('(');
        match request.permission_mode {
            _ if taken_away => Stance::Refuses("the tool is taken away from the model"),
            // Whether that mode is offered is known only when a session is open.
            PermissionMode::Bypass => Stance::Unknown,
            _ if UNASKED.contains(&prospect.ask.tool.as_str()) => Stance::Runs("reads without asking"),
            _ => Stance::Asks,
        }
    }

    fn launch(&self, plan: &Plan, ground: &Ground, look: &dyn Look) -> Result<Launch, Vec<Problem>> {
        let request = &plan.request;
        let mut own = Own::new(&CARD);
        own.set("DISABLE_AUTOUPDATER", "1");
        own.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        own.key_variable = Some("ANTHROPIC_API_KEY");
        own.mode = Some(match request.permission_mode {
            PermissionMode::Plan => ModeWish::new("plan", true),
            // What is permitted is permitted one by one, so that our rules are asked about each. Its own mode for
            // permitting everything is not there for every user.
            _ => ModeWish::new("default", true),
        });
        let exceptions = Exceptions::of(request);
        let denied: Vec<String> = request
            .deny
            .iter()
            .filter_map(|text| Rule::parse("deny", text).ok())
            .filter(|rule| rule.pattern.is_none() && rule.tool != "*")
            // It asks about the tool instead, and our answer tells the two apart.
            .filter(|rule| UNASKED.contains(&rule.tool.as_str()) || !exceptions.outrank(rule))
            .map(|rule| rule.tool)
            .collect();
        let mut options = json!({"disallowedTools": denied});
        if request.trust != Trust::Full {
            // Otherwise hooks and servers of whoever wrote the workspace are run.
            options["settingSources"] = json!(["user"]);
        }
        let folders: Vec<String> = request
            .include_directories
            .iter()
            .map(|folder| ground.cwd.join(folder).to_string_lossy().into_owned())
            .collect();
        if !folders.is_empty() {
            options["additionalDirectories"] = json!(folders);
        }
        let mut meta = json!({"claudeCode": {"options": options}});
        if let Some(system) = &request.system_prompt {
            meta["systemPrompt"] = match request.system_mode {
                SystemMode::Replace => json!(system),
                SystemMode::Append => json!({"append": system}),
            };
            own.takes_system = true;
        }
        own.takes_folders = true;
        own.meta = Some(meta);
        adapter::launch(plan, ground, look, own)
    }

    fn refuses_workspace(&self, plan: &Plan, ground: &Ground, look: &dyn Look) -> Option<Failure> {
        let trusted = plan.request.trust == Trust::Full;
        let settings = workspace::session_end_hooks(ground, look).filter(|_| !trusted)?;
        Some(adapter::refuses_settings(CARD.title, &settings))
    }

    fn words(&self, plan: &Plan, cwd: &Path, look: &dyn Look) -> Result<Words, Problem> {
        adapter::words(plan, false, cwd, look)
    }

    fn repertoire(&self) -> Repertoire {
        Repertoire::full(&[("opus", "Opus"), ("sonnet", "Sonnet"), ("haiku", "Haiku")])
    }

    fn dialogue(&self, talk: &Talk) -> Box<dyn Dialogue> {
        Box::new(Acp::new(talk, Box::new(manners::ClaudeManners)))
    }

    fn session_roots(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        _look: &dyn Look,
    ) -> Vec<SessionRoot> {
        let folder = adapter::home_folder(env, home, "CLAUDE_CONFIG_DIR", ".claude");
        vec![SessionRoot::files(folder.join("projects"), DEEPEST)]
    }

    fn session_file(&self, path: &Path) -> Option<SessionFile> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
        let folders: Vec<_> = path.parent()?.iter().filter_map(|name| name.to_str()).collect();
        let agent = stem.strip_prefix("agent-");
        let parent = match (agent, &*folders) {
            (_, [_project]) => None,
            (Some(_), [_project, session, "subagents", ..]) => Some((*session).to_owned()),
            _ => return None,
        };
        Some(SessionFile { form: Some(SavedForm::Lines), id: Some(agent.unwrap_or(stem).to_owned()), parent })
    }

    fn session_form(&self, head: &[u8]) -> Option<SavedForm> {
        let keys = first_keys(head);
        let has = |name: &str| keys.iter().any(|(key, _)| key == name);
        let kind = keys.iter().find(|(key, _)| key == "type").map_or("", |(_, kind)| kind);
        let own = has("parentUuid") || (has("sessionId") && !kind.is_empty()) || has("leafUuid");
        (own || KINDS.contains(&kind)).then_some(SavedForm::Lines)
    }

    fn session_fold(&self, form: SavedForm) -> Option<Box<dyn SessionFold>> {
        (form == SavedForm::Lines).then(|| Box::new(saved::ClaudeFold::new()) as _)
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }

    fn sign_in(
        &self,
        _cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        look: &dyn Look,
    ) -> Vec<SignIn> {
        let folder = adapter::home_folder(env, home, "CLAUDE_CONFIG_DIR", ".claude");
        let names = [
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_OAUTH_TOKEN",
        ];
        let mut ways = adapter::variables(env, &names);
        ways.push(found(folder.join(".credentials.json"), look, "the sign-in of `claude`"));
        if cfg!(target_os = "macos") {
            ways.push(
                SignIn::new("the keychain", false)
                    .note("not looked into; a sign-in of `claude` may be there"),
            );
        }
        adapter::first_wins(ways)
    }
}

/// Why a rule of `deny` or `ask` cannot be enforced, and what to write instead.
fn unenforced(key: &str, rule: &Rule) -> Option<(String, String)> {
    let taken_away = key == "deny" && rule.pattern.is_none();
    if rule.tool.contains('*') && !rule.tool.starts_with("mcp__") {
        let why = "it is about tools that Claude Code uses without asking, such as `Read`";
        return Some((why.into(), "name each tool: `--deny Bash --deny Read`".into()));
    }
    if UNASKED.contains(&rule.tool.as_str()) && !taken_away {
        let way_out = format!("write `--deny {}` to take the tool away", rule.tool);
        return Some(("Claude Code reads without asking".into(), way_out));
    }
    if !matches!(rule.tool.as_str(), "Bash" | "Shell") || taken_away {
        return None;
    }
    let mut words = rule.pattern.as_deref().unwrap_or("*").split([' ', ':']);
    let program = words.next().unwrap_or_default();
    let unasked = match (program, words.next()) {
        ("git", Some(command)) => command.contains('*') || UNASKED_GIT.contains(&command),
        ("git", None) => true,
        (program, _) => program.contains('*') || UNASKED_COMMANDS.contains(&program),
    };
    unasked.then(|| {
        let why = "Claude Code runs commands that it takes for harmless without asking";
        (why.into(), "write `--deny Bash` to take the tool away".into())
    })
}
