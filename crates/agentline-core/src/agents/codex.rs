//! Codex, driven through its ACP adapter `codex-acp`, which includes Codex. Codex runs tools in its own sandbox and
//! asks for permission to leave it.

mod profile;
mod sessions;
mod sign_in;
mod tools;
mod transplant;
mod workspace;

use super::adapter::{self, AdapterLaunch};
use crate::{
    AdapterInfo, Agent, AgentInfo, Dialogue, DialogueConfig, Failure, Features, FileSystem, Launch,
    LaunchContext, NativeDecision, PermissionMode, Plan, Problem, PromptText, RequestedMode, Rule,
    RunRequest, SessionSource, SetupProbe, Surface, ToolTable, ToolUseContext, Trust, acp::Acp,
};
use std::path::Path;

/// OpenAI's Codex.
#[derive(Clone, Copy, Debug)]
pub struct Codex;

static INFO: AgentInfo<'static> = AgentInfo {
    aliases: &["codex-cli", "codex_acp"],
    title: "Codex",
    program: "codex",
    path_variable: "CODEX_CLI_PATH",
    package: "@openai/codex",
    pinned: "0.166.0",
    min_node: 18,
    sign_in_hint: "set OPENAI_API_KEY, or run `codex login`",
    variables: &["CODEX_*", "OPENAI_*"],
    instructions: &["AGENTS.md", "AGENTS.override.md"],
    project_files: &[".codex", ".agents"],
    home_page: "https://github.com/openai/codex",
    adapter: Some(AdapterInfo {
        program: "codex-acp",
        path_variable: "CODEX_ACP_PATH",
        package: "@agentclientprotocol/codex-acp",
        pinned: "2.6.0",
        min_node: 20,
        home_page: "https://github.com/agentclientprotocol/codex-acp",
    }),
    ..AgentInfo::new("codex")
};

impl Agent for Codex {
    fn info(&self) -> AgentInfo<'_> {
        INFO
    }

    fn needs_prices(&self) -> bool {
        true
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, &INFO);
        problems.extend(adapter::unenforceable(request, surface, |_, rule| unenforced(request, rule)));
        problems
    }

    fn native_decision(
        &self,
        request: &RunRequest,
        _surface: Surface,
        prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        let runs = prospect.ask.command.is_some() || prospect.looks_at_files();
        match request.permission_mode {
            PermissionMode::Bypass => NativeDecision::Runs("does not ask in its mode `agent-full-access`"),
            _ if writes_inside(request) && (runs || (prospect.changes_files() && prospect.inside)) => {
                NativeDecision::Runs(
                    "runs in a sandbox that can write only in the workspace, and asks before it leaves the sandbox",
                )
            }
            _ if runs => {
                NativeDecision::Runs("runs in a read-only sandbox, and asks before it leaves the sandbox")
            }
            _ => NativeDecision::Unknown,
        }
    }

    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>> {
        let mut own = AdapterLaunch::new(INFO);
        own.key_variable = Some("OPENAI_API_KEY");
        own.mode = Some(match plan.request.permission_mode {
            PermissionMode::Bypass => RequestedMode::new("agent-full-access", false),
            _ if writes_inside(&plan.request) => RequestedMode::new("workspace-write", true),
            // In its mode `agent`, a model decides on permissions and the host is not asked.
            _ => RequestedMode::new("read-only", true),
        });
        own.only_when_asked = true;
        if plan.request.trust != Trust::Full {
            own.session_cwd = workspace::undeclared(plan, context);
        }
        adapter::launch(plan, context, fs, own)
    }

    fn refuses_workspace(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Option<Failure> {
        let settings = workspace::loaded_settings(plan, context, fs);
        let settings = settings.filter(|_| plan.request.trust != Trust::Full)?;
        Some(adapter::refuses_settings(INFO.title, &settings))
    }

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::prompt_text(plan, true, cwd, fs)
    }

    fn features(&self) -> Features {
        Features::full(&[])
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        Box::new(Acp::new(config, Box::new(profile::CodexProfile)))
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

/// Returns whether the sandbox allows writes in the workspace, which Codex then makes without asking.
fn writes_inside(request: &RunRequest) -> bool {
    // In the read-only sandbox, Codex asks about edits, so rules apply to them. But commands that write fail there
    // without a permission request, so they cannot be allowed.
    let ruled = !request.deny.is_empty() || !request.ask.is_empty();
    matches!(request.permission_mode, PermissionMode::AcceptEdits | PermissionMode::Auto) && !ruled
}

/// Returns why a `deny` or `ask` rule cannot be enforced, and what to write instead.
fn unenforced(request: &RunRequest, rule: &Rule) -> Option<(String, String)> {
    if request.permission_mode == PermissionMode::Bypass {
        let reason = "in the mode `bypass`, Codex never asks";
        return Some((reason.into(), "use `--permission-mode auto`, or remove the rule".into()));
    }
    if matches!(rule.tool(), "Write" | "Edit" | "MultiEdit" | "apply_patch") {
        return None;
    }
    if rule.tool().starts_with("mcp__") {
        let reason = "Codex does not ask about MCP tools that declare themselves read-only";
        return Some((reason.into(), "remove the server from the run, or remove the rule".into()));
    }
    let reason = "Codex runs commands, reads and searches in its sandbox without asking";
    let way_out =
        "remove the rule: the sandbox is read-only, except in `bypass` and in modes that accept edits";
    Some((reason.into(), way_out.into()))
}
