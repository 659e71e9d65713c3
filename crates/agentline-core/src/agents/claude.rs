//! Claude Code, driven through its ACP adapter `claude-agent-acp`, which includes Claude Code.

mod profile;
mod sessions;
mod tools;
mod workspace;

use super::adapter::{self, AdapterLaunch, found};
use crate::agents::line_reader::first_keys;
use crate::{
    Agent, AgentInfo, Dialogue, DialogueConfig, Failure, Features, FileSystem, Launch, LaunchContext,
    NativeDecision, PermissionMode, Plan, PolicyDecision, Problem, PromptText, RequestedMode, Rule,
    RunRequest, SessionFile, SessionFormat, SessionReader, SessionRoot, SignIn, Surface, SystemMode,
    ToolTable, ToolUseContext, Trust, acp::Acp, policy::Exceptions,
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Anthropic's Claude Code.
#[derive(Clone, Copy, Debug)]
pub struct Claude;

static INFO: AgentInfo = AgentInfo::new(
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

/// Tools that it uses without asking. It also runs commands that it considers harmless.
const UNASKED: &[&str] = &["Read", "Glob", "Grep", "LS"];

/// Tools whose calls say too little about the files they read for a rule with a pattern.
const SEARCHES: &[&str] = &["Glob", "Grep", "LS"];

/// Tools that always ask for permission.
const ALWAYS_ASKED: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit", "WebFetch"];

/// The maximum depth of a sub-agent's session file below the projects folder.
const DEEPEST: usize = 6;

/// Record types that may begin a session and that no other agent uses.
const KINDS: &[&str] = &["file-history-snapshot", "queue-operation", "custom-title", "ai-title"];

impl Agent for Claude {
    fn info(&self) -> &'static AgentInfo {
        &INFO
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, surface, &INFO);
        // The adapter can replace the system prompt.
        problems.retain(|problem| problem.key != "system_mode");
        problems.extend(adapter::unenforceable(request, surface, |_, rule| unenforced(rule)));
        problems
    }

    fn native_decision(
        &self,
        request: &RunRequest,
        _surface: Surface,
        prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        let rule = prospect.decision.ruling().rule.as_deref().unwrap_or_default();
        let taken_away =
            matches!(prospect.decision, PolicyDecision::Deny(_)) && !rule.is_empty() && !rule.contains('(');
        match request.permission_mode {
            _ if taken_away => NativeDecision::Refuses("the tool is not offered to the model"),
            // Whether this mode is available is known only once a session is open.
            PermissionMode::Bypass => NativeDecision::Unknown,
            _ if HeldTools::of(request).asked.contains(&prospect.ask.tool) => NativeDecision::Asks,
            _ if UNASKED.contains(&prospect.ask.tool.as_str()) => {
                NativeDecision::Runs("reads without asking")
            }
            // It runs commands that it considers harmless, and there is no list of them.
            _ if prospect.ask.command.is_some() => NativeDecision::Unknown,
            _ => NativeDecision::Asks,
        }
    }

    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>> {
        let request = &plan.request;
        let mut own = AdapterLaunch::new(&INFO);
        own.set("DISABLE_AUTOUPDATER", "1");
        own.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        own.key_variable = Some("ANTHROPIC_API_KEY");
        own.mode = Some(match request.permission_mode {
            PermissionMode::Plan => RequestedMode::new("plan", true),
            // Each call is allowed separately, so that the rules are checked for each. Its own mode that allows
            // everything is not available to every user.
            _ => RequestedMode::new("default", true),
        });
        let held = HeldTools::of(request);
        let mut options = json!({"disallowedTools": held.taken_away});
        if !held.asked.is_empty() {
            options["settings"] = json!({"permissions": {"ask": held.asked}});
        }
        if request.trust != Trust::Full {
            // Otherwise it would run hooks and servers that are defined in the workspace.
            options["settingSources"] = json!(["user"]);
        }
        let folders: Vec<String> = request
            .include_directories
            .iter()
            .map(|folder| context.cwd.join(folder).to_string_lossy().into_owned())
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
        adapter::launch(plan, context, fs, own)
    }

    fn unenforced_in_session(&self, opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
        let held = HeldTools::of(opened);
        adapter::unenforced_in_session(opened, prompt, |rule| {
            let tool = common_name(&rule.tool);
            let always = ALWAYS_ASKED.contains(&tool) || tool.starts_with("mcp__");
            always || held.asked.contains(tool) || held.taken_away.contains(tool)
        })
    }

    fn refuses_workspace(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Option<Failure> {
        let trusted = plan.request.trust == Trust::Full;
        let settings = workspace::session_end_hooks(context, fs).filter(|_| !trusted)?;
        Some(adapter::refuses_settings(INFO.title, &settings))
    }

    fn words(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::words(plan, false, cwd, fs)
    }

    fn features(&self) -> Features {
        Features::full(&[("opus", "Opus"), ("sonnet", "Sonnet"), ("haiku", "Haiku")])
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        Box::new(Acp::new(config, Box::new(profile::ClaudeProfile)))
    }

    fn session_roots(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        _look: &dyn FileSystem,
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
        Some(SessionFile {
            form: Some(SessionFormat::Lines),
            id: Some(agent.unwrap_or(stem).to_owned()),
            parent,
        })
    }

    fn session_format(&self, head: &[u8]) -> Option<SessionFormat> {
        let keys = first_keys(head);
        let has = |name: &str| keys.iter().any(|(key, _)| key == name);
        let kind = keys.iter().find(|(key, _)| key == "type").map_or("", |(_, kind)| kind);
        let own = has("parentUuid") || (has("sessionId") && !kind.is_empty()) || has("leafUuid");
        (own || KINDS.contains(&kind)).then_some(SessionFormat::Lines)
    }

    fn session_reader(&self, form: SessionFormat) -> Option<Box<dyn SessionReader>> {
        (form == SessionFormat::Lines).then(|| Box::new(sessions::ClaudeReader::new()) as _)
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }

    fn sign_in(
        &self,
        _cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
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
        ways.push(found(folder.join(".credentials.json"), fs, "written when you sign in with `claude`"));
        if cfg!(target_os = "macos") {
            ways.push(
                SignIn::new("keychain", false).note("not checked; it may contain a sign-in of `claude`"),
            );
        }
        adapter::first_wins(ways)
    }
}

/// The tools that enforce the rules of a request: those removed from the model, and those for which Claude Code must
/// always ask, so that the host decides. Without this, it runs many commands without asking, and everything that the
/// user's own settings allow.
struct HeldTools {
    taken_away: BTreeSet<String>,
    asked: BTreeSet<String>,
}

impl HeldTools {
    fn of(request: &RunRequest) -> Self {
        let exceptions = Exceptions::of(request);
        let lists = [("deny", &request.deny), ("ask", &request.ask)];
        let rules = lists.into_iter().flat_map(|(key, rules)| rules.iter().map(move |text| (key, text)));
        let mut held = Self { taken_away: BTreeSet::new(), asked: BTreeSet::new() };
        for (key, rule) in rules.filter_map(|(key, text)| Rule::parse(key, text).ok().map(|rule| (key, rule)))
        {
            let taken_away = key == "deny" && rule.pattern.is_none() && !exceptions.outrank(&rule);
            let tools = if taken_away { &mut held.taken_away } else { &mut held.asked };
            if !rule.tool.contains('*') {
                tools.insert(common_name(&rule.tool).to_owned());
            }
        }
        held
    }
}

/// Returns Claude Code's name for a tool of a rule.
fn common_name(tool: &str) -> &str {
    if tool == "Shell" { "Bash" } else { tool }
}

/// Returns why a `deny` or `ask` rule cannot be enforced, and what to write instead.
fn unenforced(rule: &Rule) -> Option<(String, String)> {
    if rule.tool.contains('*') && !rule.tool.starts_with("mcp__") {
        let why = "it covers tools that Claude Code uses without asking, such as `Read`";
        return Some((why.into(), "name each tool: `--deny Bash --deny Read`".into()));
    }
    (rule.pattern.is_some() && SEARCHES.contains(&rule.tool.as_str())).then(|| {
        let why = "Claude Code does not report which files a search reads";
        (why.into(), format!("write a rule for the whole tool: `{}`", rule.tool))
    })
}
