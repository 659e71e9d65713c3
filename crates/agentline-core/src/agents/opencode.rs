//! OpenCode, driven by `opencode serve` or `opencode acp`. A variable lists what it may do without asking; it asks about
//! the rest.

pub(super) mod acp;
mod database;
mod failures;
mod options;
mod quirks;
#[cfg(test)]
mod saved_tests;
mod serve;
mod session_message;
mod session_reader;
mod sessions;
mod settings;
mod sign_in;
mod tools;
mod transplant;
mod workspace;

use super::adapter::{self, AdapterLaunch};
use crate::{
    Agent, AgentDescription, AgentInfo, AgentOption, Dialogue, DialogueConfig, Failure, Features, FileSystem,
    Launch, LaunchContext, LoopbackApi, NativeDecision, PermissionMode, Plan, Problem, PromptText,
    RequestedMode, Rule, RunRequest, SessionSource, SetupProbe, Surface, SurfaceFeatures, SystemMode,
    ToolTable, ToolUseContext, Trust, Version, acp::Acp, policy::Exceptions,
};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// OpenCode.
#[derive(Clone, Copy, Debug)]
pub struct OpenCode;

static INFO: AgentInfo<'static> = AgentInfo {
    aliases: &["opencode-ai", "opencode_acp"],
    title: "OpenCode",
    program: "opencode",
    path_variable: "OPENCODE_PATH",
    package: "opencode-ai",
    pinned: "1.18.33",
    sign_in_hint: "run `opencode auth login`, or set the API key of your provider, such as ANTHROPIC_API_KEY",
    variables: &[
        "OPENCODE_*",
        "ANTHROPIC_*",
        "OPENAI_*",
        "GEMINI_API_KEY",
        "GOOGLE_*",
        "OPENROUTER_API_KEY",
        "GROQ_API_KEY",
        "XAI_API_KEY",
        "MISTRAL_API_KEY",
        "DEEPSEEK_API_KEY",
        "AZURE_*",
    ],
    install_script: true,
    instructions: &["AGENTS.md", "CLAUDE.md"],
    project_files: &["opencode.json", "opencode.jsonc", ".opencode", ".claude", ".agents", ".env"],
    surfaces: &[Surface::Serve, Surface::Acp],
    home_page: "https://opencode.ai",
    ..AgentInfo::new("opencode")
};

/// The arguments for ACP. Failed requests to the model's service are only in the log.
const ACP_ARGUMENTS: &[&str] = &["acp", "--print-logs", "--log-level", "ERROR"];
/// The start of the line with which `opencode serve` prints its address.
const ANNOUNCEMENT: &str = "opencode server listening on ";
/// The user name for the password of the API.
const API_USER: &str = "opencode";
/// The variable for that password.
const API_PASSWORD: &str = "OPENCODE_SERVER_PASSWORD";

/// Tools that OpenCode uses without asking: they change nothing and run nothing.
const FREE: &[&str] = &["read", "glob", "grep", "list", "todowrite", "todoread", "skill", "lsp"];

/// The OpenCode permission of each tool name in rules.
const PERMISSIONS: &[(&[&str], &str)] = &[
    (&["Write", "Edit", "MultiEdit", "write", "edit", "patch"], "edit"),
    (&["Bash", "Shell", "bash"], "bash"),
    (&["Read", "read"], "read"),
    (&["Glob", "glob"], "glob"),
    (&["Grep", "grep"], "grep"),
    (&["LS", "list"], "list"),
    (&["WebFetch", "webfetch"], "webfetch"),
    (&["WebSearch", "websearch"], "websearch"),
    (&["Task", "Agent", "task"], "task"),
];

impl AgentDescription for OpenCode {
    fn info(&self) -> AgentInfo<'_> {
        INFO
    }

    fn options(&self) -> &'static [AgentOption] {
        options::OPTIONS
    }

    fn preset(&self, name: &str) -> Option<&'static str> {
        (name == "opencode_acp").then_some("surface = \"acp\"\n")
    }

    fn abilities(&self, surface: Surface, _version: Option<Version>) -> SurfaceFeatures {
        match surface {
            Surface::Acp => SurfaceFeatures::of_protocol(surface),
            Surface::Serve => SurfaceFeatures::live(),
            _ => SurfaceFeatures::default(),
        }
    }

    fn quirks(&self, surface: Surface, _version: Option<Version>) -> Vec<&'static str> {
        quirks::quirks(surface)
    }

    fn passes_denial_reasons(&self, surface: Surface) -> bool {
        surface == Surface::Serve
    }

    fn features(&self) -> Features {
        Features::full(&[])
    }

    fn tools(&self) -> &'static ToolTable {
        &tools::TOOLS
    }
}

impl Agent for OpenCode {
    fn choose(&self, request: &RunRequest) -> Result<Surface, Problem> {
        // `serve` reports more than ACP.
        Ok(if only_acp(request).next().is_none() { Surface::Serve } else { Surface::Acp })
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, &INFO);
        // The settings of a process have its system prompt, and sessions are listed by date.
        problems.retain(|problem| !matches!(&*problem.key, "system_mode" | "resume"));
        problems.extend(permissions(request).err().unwrap_or_default());
        problems.extend(adapter::unenforceable(request, surface, |_, rule| unenforced(rule)));
        problems.extend(options::check(request, surface));
        if surface == Surface::Serve {
            problems.extend(only_acp(request).map(|key| {
                Problem::new(key, "is not supported on the surface `serve`").hint("remove it, or use `acp`")
            }));
            return problems;
        }
        problems
    }

    fn native_decision(
        &self,
        request: &RunRequest,
        _surface: Surface,
        prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        let configured = permissions(request).unwrap_or_default();
        let tool = prospect.ask.tool.as_str();
        let name = permission_of(tool).unwrap_or("*");
        match configured.get(name).or_else(|| configured.get("*")).and_then(Value::as_str) {
            // It asks about paths outside the workspace, unless everything is allowed.
            _ if !prospect.inside && configured.get("*") != Some(&json!("allow")) => NativeDecision::Asks,
            Some("allow") => NativeDecision::Runs("is configured to use the tool without asking"),
            Some("deny") => NativeDecision::Refuses("is configured to deny the tool"),
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
        let serves = plan.surface == Surface::Serve;
        let words: &[&str] =
            if serves { &["serve", "--hostname", "127.0.0.1", "--port", "0"] } else { ACP_ARGUMENTS };
        own.args = words.iter().map(|word| (*word).to_owned()).collect();
        own.set("OPENCODE_DISABLE_AUTOUPDATE", "1");
        if serves {
            // Without this name, OpenCode offers its tool for questions, and a run has no user to answer them.
            own.set("OPENCODE_CLIENT", "agentline");
            own.quiet = 0;
            own.takes_folders = true;
        }
        let appended = request.system_prompt.as_ref().filter(|_| request.system_mode == SystemMode::Append);
        own.takes_system = serves || request.system_mode == SystemMode::Replace;
        if serves {
            let mut options = Map::new();
            options.extend(appended.map(|system| ("system".to_owned(), json!(system))));
            options.extend(options::effort(request).map(|effort| ("variant".to_owned(), json!(effort))));
            own.meta = Some(Value::from(options)).filter(|options| options != &json!({}));
        }
        let mut permissions = permissions(request)?;
        if !request.include_directories.is_empty() && permissions["*"] != json!("allow") {
            permissions["external_directory"] = included_directories(request, &context.cwd);
        }
        own.set("OPENCODE_PERMISSION", permissions.to_string());
        if request.trust != Trust::Full {
            own.set("OPENCODE_DISABLE_PROJECT_CONFIG", "1");
        }
        let plans = request.permission_mode == PermissionMode::Plan;
        own.mode = Some(RequestedMode::new(if plans { "plan" } else { "build" }, plans));
        let mut launch = adapter::launch(plan, context, fs, own)?;
        let content = launch.env.get(settings::CONTENT).map(String::as_str);
        let content = settings::content(plan, content).map_err(|problem| vec![problem])?;
        launch.env.insert(settings::CONTENT.to_owned(), content);
        if serves {
            launch.env.insert("OPENCODE_SERVER_USERNAME".into(), API_USER.into());
            launch.api = Some(LoopbackApi::new(ANNOUNCEMENT, "/global/event", API_USER, API_PASSWORD));
        }
        Ok(launch)
    }

    fn unenforced_in_session(&self, opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
        let configured = permissions(opened).unwrap_or_default();
        adapter::unenforced_in_session(opened, prompt, |rule| {
            let name = permission_of(rule.tool()).unwrap_or("*");
            configured.get(name).or_else(|| configured.get("*")) != Some(&json!("allow"))
        })
    }

    fn refuses_workspace(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Option<Failure> {
        let trusted = plan.request.trust == Trust::Full;
        let source = workspace::plugin_source(&context.cwd, &context.home, fs).filter(|_| !trusted)?;
        Some(adapter::refuses_settings(INFO.title, &source))
    }

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        let by_settings = plan.surface == Surface::Serve || plan.request.system_mode == SystemMode::Replace;
        adapter::prompt_text(plan, !by_settings, cwd, fs)
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        match config.surface {
            Surface::Serve => Box::new(serve::Serve::default()),
            _ => Box::new(Acp::new(config, Box::<acp::OpenCodeProfile>::default())),
        }
    }

    fn sessions(&self) -> &dyn SessionSource {
        self
    }

    fn setup(&self) -> &dyn SetupProbe {
        self
    }
}

/// Returns the options of a request that only ACP has: arguments of the caller, a sign-in by message, and files that the
/// agent requests from the host.
fn only_acp(request: &RunRequest) -> impl Iterator<Item = &'static str> {
    let options = [
        ("agent_args", request.agent_args.is_some()),
        ("authenticate", request.authenticate.is_some()),
        ("allow_file_reads", request.allow_file_reads),
        ("allow_file_writes", request.allow_file_writes),
    ];
    options.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key)
}

/// Returns the permission that applies to a tool of a rule.
fn permission_of(tool: &str) -> Option<&'static str> {
    PERMISSIONS.iter().find(|(tools, _)| tools.contains(&tool)).map(|(_, name)| *name)
}

/// Returns OpenCode's permissions for a request, which say what it may do without asking.
fn permissions(request: &RunRequest) -> Result<Value, Vec<Problem>> {
    let mut all = Map::new();
    if request.permission_mode == PermissionMode::Bypass && request.deny.is_empty() && request.ask.is_empty()
    {
        return Ok(json!({"*": "allow"}));
    }
    all.insert("*".into(), "ask".into());
    all.extend(FREE.iter().map(|name| ((*name).to_owned(), "allow".into())));
    let mut problems = Vec::new();
    let exceptions = Exceptions::of(request);
    for (key, rules) in [("ask", &request.ask), ("deny", &request.deny)] {
        for rule in rules {
            let Some(name) = permission_of(rule.tool()) else { continue };
            match rule.pattern() {
                // OpenCode asks about the tool instead, and the host applies both rules.
                None if !FREE.contains(&name) && exceptions.outrank(rule) => {}
                None => _ = all.insert(name.to_owned(), key.into()),
                // Patterns are applied by the host when OpenCode asks. For other tools, it reports too little to apply
                // them.
                Some(_) if FREE.contains(&name) => problems.push(
                    Problem::new(
                        key,
                        format!(
                            "`{rule}` cannot be enforced: OpenCode does not report a file before it reads it"
                        ),
                    )
                    .hint(format!("write `{}` without a pattern", rule.tool())),
                ),
                Some(_) => {}
            }
        }
    }
    if problems.is_empty() { Ok(all.into()) } else { Err(problems) }
}

/// Returns OpenCode's permission for paths outside the workspace: it uses the included directories without asking. Edits
/// have a permission of their own.
fn included_directories(request: &RunRequest, cwd: &Path) -> Value {
    let pattern = |dir: &PathBuf| format!("{}/*", cwd.join(dir).display());
    let included = request.include_directories.iter().map(|dir| (pattern(dir), json!("allow")));
    // The last pattern that matches decides, and this one is the first in the order of the map.
    std::iter::once(("*".to_owned(), json!("ask"))).chain(included).collect::<Map<_, _>>().into()
}

/// Shell builtins that start no program and that OpenCode runs without asking.
const UNASKED_BUILTINS: &[&str] = &[
    "cd", "chdir", "declare", "export", "local", "popd", "pushd", "readonly", "typeset", "unset", "[", "[[",
];

/// Returns why a `deny` or `ask` rule cannot be enforced, and what to write instead.
fn unenforced(rule: &Rule) -> Option<(String, String)> {
    let Some(permission) = permission_of(rule.tool()) else {
        let reason = "OpenCode has no such tool, or uses it without asking";
        let names: Vec<&str> = PERMISSIONS.iter().map(|(tools, _)| tools[0]).collect();
        return (!rule.tool().starts_with("mcp__"))
            .then(|| (reason.into(), format!("use one of: {}", names.join(", "))));
    };
    let program = rule.pattern().filter(|_| permission == "bash")?.split([' ', ':']).next()?;
    (program.contains(['*', '?']) || UNASKED_BUILTINS.contains(&program)).then(|| {
        let reason = "OpenCode does not ask about commands that start no program: redirections, assignments, `cd`, `export`";
        (reason.into(), "name a program, or write `Bash` without a pattern".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_is_chosen_unless_a_request_needs_acp() {
        let chosen = |request: RunRequest| OpenCode.choose(&request).unwrap();
        assert_eq!(chosen(RunRequest::new("x")), Surface::Serve);
        let mut request = RunRequest::new("x");
        request.agent_args = Some(vec!["acp".into()]);
        assert_eq!(chosen(request.clone()), Surface::Acp);
        let problems = OpenCode.check(&request, Surface::Serve);
        assert_eq!(problems.iter().map(|problem| &*problem.key).collect::<Vec<_>>(), ["agent_args"]);
        let mut request = RunRequest::new("x");
        request.limits.max_tokens = Some(1);
        request.resume = Some("latest".into());
        assert!(OpenCode.check(&request, Surface::Serve).is_empty());
        assert!(OpenCode.check(&request, Surface::Acp).is_empty(), "its database has the tokens");
        let keys = |request: &RunRequest, surface| -> Vec<String> {
            OpenCode.check(request, surface).into_iter().map(|problem| problem.key).collect()
        };
        let effort = RunRequest::new("x").agent_option("effort", "high");
        assert_eq!(keys(&effort, Surface::Serve), ["effort"], "a variant belongs to a model");
        let effort = effort.model("scripted/scripted-model");
        assert!(keys(&effort, Surface::Serve).is_empty());
        assert_eq!(keys(&effort, Surface::Acp), ["effort"]);
    }

    #[test]
    fn non_harmless_tools_ask_and_rules_are_passed_on() {
        let all =
            permissions(&RunRequest::new("x").deny("WebFetch").ask("Read").deny("Write(src/**)")).unwrap();
        assert_eq!(
            (&all["*"], &all["glob"], &all["read"], &all["webfetch"]),
            (&json!("ask"), &json!("allow"), &json!("ask"), &json!("deny"))
        );
        assert_eq!(all.get("edit"), None, "the agent asks about each edit, and agentline decides");
        let bypass = RunRequest::new("x").permission_mode(PermissionMode::Bypass);
        assert_eq!(permissions(&bypass).unwrap(), json!({"*": "allow"}));
        assert_eq!(permissions(&bypass.deny("Bash(rm *)")).unwrap()["*"], "ask");
        let specific = permissions(&RunRequest::new("x").deny("Bash").allow("Bash(git *)")).unwrap();
        assert_eq!(specific.get("bash"), None, "agentline decides for each command");
        let refused = permissions(&RunRequest::new("x").deny("Read(secret/**)")).unwrap_err();
        assert_eq!(refused[0].key, "deny");
    }
}
