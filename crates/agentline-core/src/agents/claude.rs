//! Claude Code, driven through its ACP adapter `claude-agent-acp`, which includes Claude Code.

mod control;
mod failures;
mod messages;
mod profile;
mod result;
mod sessions;
mod sign_in;
mod stream;
mod tools;
mod transplant;
mod workspace;

use super::adapter::{self, AdapterLaunch};
use crate::{
    AdapterInfo, Agent, AgentInfo, Dialogue, DialogueConfig, Failure, Features, FileSystem, Launch,
    LaunchContext, NativeDecision, PermissionMode, Plan, PolicyDecision, Problem, PromptText, RequestedMode,
    Rule, RunRequest, SessionSource, SetupProbe, Surface, SystemMode, ToolTable, ToolUseContext, Trust,
    acp::Acp, policy::Exceptions,
};
use serde_json::json;
use std::{collections::BTreeSet, path::Path};

/// Anthropic's Claude Code.
#[derive(Clone, Copy, Debug)]
pub struct Claude;

static INFO: AgentInfo<'static> = AgentInfo {
    aliases: &["claude-code", "claude_acp"],
    title: "Claude Code",
    program: "claude",
    path_variable: "CLAUDE_CLI_PATH",
    program_dir: Some(".claude/local"),
    package: "@anthropic-ai/claude-code",
    pinned: "2.1.325",
    min_node: 18,
    sign_in_hint: "set ANTHROPIC_API_KEY, or run `claude` once in a terminal and sign in",
    variables: &["ANTHROPIC_*", "CLAUDE_*", "DISABLE_AUTOUPDATER", "MAX_THINKING_TOKENS", "API_TIMEOUT_MS"],
    instructions: &["CLAUDE.md", "CLAUDE.local.md"],
    project_files: &[".claude", ".mcp.json"],
    home_page: "https://github.com/anthropics/claude-code",
    install_script: true,
    adapter: Some(AdapterInfo {
        program: "claude-agent-acp",
        path_variable: "CLAUDE_AGENT_ACP_PATH",
        package: "@agentclientprotocol/claude-agent-acp",
        pinned: "0.99.0",
        min_node: 20,
        home_page: "https://github.com/agentclientprotocol/claude-agent-acp",
    }),
    ..AgentInfo::new("claude")
};

/// Tools that Claude Code uses without asking. It also runs commands that it considers harmless.
const UNASKED: &[&str] = &["Read", "Glob", "Grep", "LS"];

/// Tools whose calls say too little about the files they read for a rule with a pattern.
const SEARCHES: &[&str] = &["Glob", "Grep", "LS"];

/// Tools that always ask for permission.
const ALWAYS_ASKED: &[&str] = &["Write", "Edit", "MultiEdit", "NotebookEdit", "WebFetch"];

impl Agent for Claude {
    fn info(&self) -> AgentInfo<'_> {
        INFO
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, &INFO);
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
            _ if EnforcedTools::of(request).asked.contains(&prospect.ask.tool) => NativeDecision::Asks,
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
        let mut own = AdapterLaunch::new(INFO);
        own.set("DISABLE_AUTOUPDATER", "1");
        own.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        own.key_variable = Some("ANTHROPIC_API_KEY");
        own.mode = Some(match request.permission_mode {
            PermissionMode::Plan => RequestedMode::new("plan", true),
            // Each call is allowed separately, so that the rules are checked for each. Its own mode that allows
            // everything is not available to every user.
            _ => RequestedMode::new("default", true),
        });
        let enforced = EnforcedTools::of(request);
        let mut options = json!({"disallowedTools": enforced.taken_away});
        if !enforced.asked.is_empty() {
            options["settings"] = json!({"permissions": {"ask": enforced.asked}});
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
        let enforced = EnforcedTools::of(opened);
        adapter::unenforced_in_session(opened, prompt, |rule| {
            let tool = common_name(rule.tool());
            let always = ALWAYS_ASKED.contains(&tool) || tool.starts_with("mcp__");
            always || enforced.asked.contains(tool) || enforced.taken_away.contains(tool)
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

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::prompt_text(plan, false, cwd, fs)
    }

    fn features(&self) -> Features {
        Features::full(&[("opus", "Opus"), ("sonnet", "Sonnet"), ("haiku", "Haiku")])
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        match config.surface {
            Surface::Acp => Box::new(Acp::new(config, Box::new(profile::ClaudeProfile))),
            _ => Box::new(stream::ClaudeStream::new(config)),
        }
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }

    fn sessions(&self) -> &dyn SessionSource {
        self
    }

    fn setup(&self) -> &dyn SetupProbe {
        self
    }
}

/// The tools that enforce the rules of a request: those removed from the model, and those for which Claude Code must
/// always ask, so that the host decides. Without this, it runs many commands without asking, and everything that the
/// user's own settings allow.
struct EnforcedTools {
    taken_away: BTreeSet<String>,
    asked: BTreeSet<String>,
}

impl EnforcedTools {
    fn of(request: &RunRequest) -> Self {
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
fn unenforced(rule: &Rule) -> Option<(String, String)> {
    if rule.tool().contains('*') && !rule.tool().starts_with("mcp__") {
        let reason = "it covers tools that Claude Code uses without asking, such as `Read`";
        return Some((reason.into(), "name each tool: `--deny Bash --deny Read`".into()));
    }
    (rule.pattern().is_some() && SEARCHES.contains(&rule.tool())).then(|| {
        let reason = "Claude Code does not report which files a search reads";
        (reason.into(), format!("write a rule for the whole tool: `{}`", rule.tool()))
    })
}
