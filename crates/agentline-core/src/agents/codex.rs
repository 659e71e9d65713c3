//! Codex, driven through its ACP adapter `codex-acp`, which includes Codex. Codex runs tools in its own sandbox and
//! asks for permission to leave it.

mod profile;
mod sessions;
mod tools;
mod workspace;

use super::adapter::{self, AdapterLaunch, found};
use crate::agents::line_reader::first_keys;
use crate::{
    Agent, AgentInfo, Dialogue, DialogueConfig, Failure, Features, FileSystem, Launch, LaunchContext,
    NativeDecision, PermissionMode, Plan, Problem, PromptText, RequestedMode, Rule, RunRequest, SessionFile,
    SessionFormat, SessionReader, SessionRoot, SignIn, Surface, ToolTable, ToolUseContext, Trust, acp::Acp,
};
use std::{collections::BTreeMap, path::Path};

/// OpenAI's Codex.
#[derive(Clone, Copy, Debug)]
pub struct Codex;

static INFO: AgentInfo = AgentInfo::new(
    "codex",
    &["codex-cli", "codex_acp"],
    "Codex",
    "codex-acp",
    "CODEX_ACP_PATH",
    "@agentclientprotocol/codex-acp",
    "2.6.0",
    20,
    "set OPENAI_API_KEY, or run `codex login`",
    &["CODEX_*", "OPENAI_*"],
    &[Surface::Acp],
    None,
)
.instructions(&["AGENTS.md", "AGENTS.override.md"])
.project_files(&[".codex", ".agents"])
.home_page("https://github.com/agentclientprotocol/codex-acp");

/// The length of a UUID.
const UUID: usize = 36;

/// The record types that have an envelope.
const KINDS: &[&str] = &["session_meta", "response_item", "event_msg", "turn_context", "compacted"];

impl Agent for Codex {
    fn info(&self) -> &'static AgentInfo {
        &INFO
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, surface, &INFO);
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
        let mut own = AdapterLaunch::new(&INFO);
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

    fn words(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::words(plan, true, cwd, fs)
    }

    fn features(&self) -> Features {
        Features::full(&[])
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        Box::new(Acp::new(config, Box::new(profile::CodexProfile)))
    }

    fn session_roots(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<SessionRoot> {
        let folder = adapter::home_folder(env, home, "CODEX_HOME", ".codex");
        // Sessions are in subfolders by year, month and day.
        let mut roots = vec![SessionRoot::files(folder.join("sessions"), 3)];
        let archive = folder.join("archived_sessions");
        if fs.exists(&archive) {
            roots.push(SessionRoot::files(archive, 3));
        }
        roots
    }

    fn session_file(&self, path: &Path) -> Option<SessionFile> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.strip_prefix("rollout-")?;
        // The name is a timestamp and a UUID, followed by a suffix in further files of the same session.
        let stem = stem.split('_').next().unwrap_or(stem);
        let id = stem.len().checked_sub(UUID).and_then(|at| stem.get(at..)).map(str::to_owned);
        Some(SessionFile { form: Some(SessionFormat::Lines), id, parent: None })
    }

    fn session_format(&self, head: &[u8]) -> Option<SessionFormat> {
        let keys = first_keys(head);
        let has = |name: &str| keys.iter().any(|(key, _)| key == name);
        let enveloped = keys.iter().any(|(key, kind)| key == "type" && KINDS.contains(&kind.as_str()));
        let bare = has("id") && has("timestamp") && has("instructions") && !has("type");
        ((enveloped && has("payload")) || bare).then_some(SessionFormat::Lines)
    }

    fn session_titles(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> BTreeMap<String, String> {
        let file = adapter::home_folder(env, home, "CODEX_HOME", ".codex").join("session_index.jsonl");
        let text = fs.read(&file).unwrap_or_default();
        sessions::titles(&String::from_utf8_lossy(&text))
    }

    /// After a rewind, Codex continues in another file, which says where the first one is cut.
    fn session_files_go_on(&self) -> bool {
        true
    }

    fn session_reader(&self, form: SessionFormat) -> Option<Box<dyn SessionReader>> {
        (form == SessionFormat::Lines).then(|| Box::new(sessions::CodexReader::new()) as _)
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
        let folder = adapter::home_folder(env, home, "CODEX_HOME", ".codex");
        let mut ways = adapter::variables(env, &["CODEX_API_KEY", "OPENAI_API_KEY"]);
        ways.push(found(folder.join("auth.json"), fs, "written by `codex login`"));
        let config = folder.join("config.toml");
        if fs.text(&config).is_some_and(|text| text.contains("model_provider")) {
            ways.push(found(config, fs, "custom model provider"));
        }
        adapter::first_wins(ways)
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
        let why = "in the mode `bypass`, Codex never asks";
        return Some((why.into(), "use `--permission-mode auto`, or remove the rule".into()));
    }
    if matches!(rule.tool.as_str(), "Write" | "Edit" | "MultiEdit" | "apply_patch") {
        return None;
    }
    if rule.tool.starts_with("mcp__") {
        let why = "Codex does not ask about MCP tools that declare themselves read-only";
        return Some((why.into(), "remove the server from the run, or remove the rule".into()));
    }
    let why = "Codex runs commands, reads and searches in its sandbox without asking";
    let way_out =
        "remove the rule: the sandbox is read-only, except in `bypass` and in modes that accept edits";
    Some((why.into(), way_out.into()))
}
