//! Builds the launch of Claude Code: its own CLI on `stream-json`, and its adapter on ACP.

use super::{INFO, options, policy::EnforcedTools, store};
use crate::{
    FileSystem, Launch, LaunchContext, PermissionMode, Plan, Problem, RequestedMode, RunRequest, Surface,
    SystemMode, Trust,
    agents::adapter::{self, AdapterLaunch},
};
use serde_json::{Value, json};
use std::path::Path;

/// The arguments of every process on `stream-json`: one session, messages in both directions, questions to the host.
const ARGUMENTS: &[&str] = &[
    "--print",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",
    "--include-partial-messages",
    "--include-hook-events",
    "--permission-prompt-tool=stdio",
    "--permission-mode=default",
];

/// Tools that wait for a person at a terminal.
const INTERACTIVE: &[&str] = &["AskUserQuestion"];

/// The id of the hook with which Claude Code waits before its next request.
const LIMITS_HOOK: &str = "limits";

/// The title of the sessions of the adapter. It would ask the model for one otherwise, and not count the tokens.
pub(super) const SESSION_TITLE: &str = "agentline";

/// Variables for every process.
const VARIABLES: &[(&str, &str)] = &[
    ("DISABLE_AUTOUPDATER", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    // With its default of 10, it retries a failing request for minutes.
    ("CLAUDE_CODE_MAX_RETRIES", "2"),
    // Otherwise the model would have to search for the tools of MCP servers before it can use them.
    ("ENABLE_TOOL_SEARCH", "0"),
    ("CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION", "0"),
];

/// Checks a request, before anything is looked up.
pub(super) fn check(request: &RunRequest, surface: Surface) -> Vec<Problem> {
    let mut problems = adapter::check(request, &INFO);
    // The system prompt can be replaced.
    problems.retain(|problem| problem.key != "system_mode");
    problems.extend(options::check(request));
    if surface != Surface::Acp {
        problems.retain(|problem| !matches!(&*problem.key, "session_id" | "file_references"));
        problems.extend(only_over_acp(request));
        let id = request.session_id.as_ref().filter(|id| !is_uuid(id));
        problems.extend(id.map(|id| {
            Problem::new("session_id", format!("`{id}` is not a UUID")).hint("pass a new UUID, or remove it")
        }));
    }
    problems
}

/// Returns a problem for each option that only the adapter supports.
fn only_over_acp(request: &RunRequest) -> impl Iterator<Item = Problem> {
    let options = [
        ("agent_args", request.agent_args.is_some()),
        ("allow_file_reads", request.allow_file_reads),
        ("allow_file_writes", request.allow_file_writes),
        ("authenticate", request.authenticate.is_some()),
    ];
    let set = options.into_iter().filter(|(_, is_set)| *is_set);
    set.map(|(key, _)| {
        Problem::new(key, "is supported only over ACP").hint("remove it, or pass `--surface acp`")
    })
}

/// Chooses the surface for a request that names none.
pub(super) fn choose(request: &RunRequest) -> Surface {
    if only_over_acp(request).next().is_some() { Surface::Acp } else { Surface::StreamJson }
}

fn is_uuid(id: &str) -> bool {
    let lengths = id.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && id.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// Returns whether Claude Code can check an answer against a schema itself: the answer is the input of a tool, so it
/// must be an object.
pub(super) fn takes_schema(surface: Surface, schema: &Value) -> bool {
    surface == Surface::StreamJson && schema["type"] == "object" && schema.get("$ref").is_none()
}

/// Builds the launch of a checked plan.
pub(super) fn launch(
    plan: &Plan,
    context: &LaunchContext,
    fs: &dyn FileSystem,
) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let mut own = AdapterLaunch::new(INFO);
    VARIABLES.iter().for_each(|(name, value)| own.set(name, *value));
    if !request.file_references {
        // Otherwise it would read every file that the prompt mentions as `@path`.
        own.set("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1");
    }
    own.key_variable = Some("ANTHROPIC_API_KEY");
    own.mode = Some(match request.permission_mode {
        PermissionMode::Plan => RequestedMode::new("plan", true),
        // Each call is allowed separately, so that the rules are checked for each. Its own mode that allows
        // everything is not available to every user.
        _ => RequestedMode::new("default", true),
    });
    own.takes_folders = true;
    let mut launch = match plan.surface {
        Surface::Acp => over_acp(plan, context, fs, own)?,
        _ => on_stream_json(plan, context, fs, own)?,
    };
    launch.agent_home = store::home(&launch.env, &context.home);
    Ok(launch)
}

fn included(request: &RunRequest, cwd: &Path) -> Vec<String> {
    let folders = request.include_directories.iter();
    folders.map(|folder| cwd.join(folder).to_string_lossy().into_owned()).collect()
}

fn on_stream_json(
    plan: &Plan,
    context: &LaunchContext,
    fs: &dyn FileSystem,
    mut own: AdapterLaunch<'_>,
) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let named = request.resume.as_ref().or(request.session_id.as_ref());
    let session = named.unwrap_or(&context.session_id).clone();
    // The result of a turn is its last message.
    own.quiet = 0;
    own.takes_system = true;
    // A failure to start is then a message too, and not only a line on stderr.
    own.set("CLAUDE_CODE_STARTUP_FAILURE_RESULTS", "1");
    own.args = arguments(request, &context.cwd, &session);
    let mut launch = adapter::launch(plan, context, fs, own)?;
    launch.dialogue.session_id = Some(session.clone());
    launch.dialogue.resumes = request.resume.is_some();
    launch.dialogue.model.clone_from(&request.model);
    launch.dialogue.handshake = Some(handshake(request).to_string());
    launch.session_id = Some(session);
    Ok(launch)
}

fn arguments(request: &RunRequest, cwd: &Path, session: &str) -> Vec<String> {
    let mut args: Vec<String> = ARGUMENTS.iter().map(|&arg| arg.to_owned()).collect();
    let mut add = |name: &str, value: &str| args.push(format!("--{name}={value}"));
    add(if request.resume.is_some() { "resume" } else { "session-id" }, session);
    // The model could also be set later, but that costs a request to the model's service.
    request.model.iter().for_each(|model| add("model", model));
    options::effort(request).into_iter().for_each(|effort| add("effort", effort));
    request.limits.max_turns.iter().for_each(|turns| add("max-turns", &turns.to_string()));
    let enforced = EnforcedTools::of(request);
    let taken_away = enforced.taken_away.iter().map(String::as_str).chain(INTERACTIVE.iter().copied());
    add("disallowedTools", &taken_away.collect::<Vec<_>>().join(","));
    if !enforced.asked.is_empty() {
        add("settings", &json!({"permissions": {"ask": enforced.asked}}).to_string());
    }
    if request.trust != Trust::Full {
        // Otherwise it would run hooks and servers that are defined in the workspace.
        add("setting-sources", "user");
    }
    included(request, cwd).iter().for_each(|folder| add("add-dir", folder));
    args
}

/// Returns the settings that a process gets before its first prompt. Unlike arguments, they have no maximum length and
/// are not visible to other users.
fn handshake(request: &RunRequest) -> Value {
    let mut own = json!({"promptSuggestions": false});
    match (&request.system_prompt, request.system_mode) {
        (Some(system), SystemMode::Replace) => own["systemPrompt"] = json!([system]),
        (Some(system), SystemMode::Append) => own["appendSystemPrompt"] = json!(system),
        (None, _) => {}
    }
    if let Some(schema) = &request.answer_schema {
        own["jsonSchema"] = schema.clone();
    }
    let limits = &request.limits;
    let is_limited = limits.max_tokens.is_some()
        || limits.max_output_tokens.is_some()
        || limits.max_tool_calls.is_some()
        || limits.max_cost.is_some();
    if is_limited {
        // It waits for the answer to this hook before it sends the results of tools, so that a limit acts in time.
        own["hooks"] = json!({"PostToolBatch": [{"hookCallbackIds": [LIMITS_HOOK]}]});
    }
    own
}

fn over_acp(
    plan: &Plan,
    context: &LaunchContext,
    fs: &dyn FileSystem,
    mut own: AdapterLaunch<'_>,
) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let enforced = EnforcedTools::of(request);
    let mut options =
        json!({"disallowedTools": enforced.taken_away, "promptSuggestions": false, "title": SESSION_TITLE});
    if !enforced.asked.is_empty() {
        options["settings"] = json!({"permissions": {"ask": enforced.asked}});
    }
    if request.trust != Trust::Full {
        options["settingSources"] = json!(["user"]);
    }
    if let Some(effort) = options::effort(request) {
        options["effort"] = json!(effort);
    }
    let folders = included(request, &context.cwd);
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
    own.meta = Some(meta);
    adapter::launch(plan, context, fs, own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Program, Version, agents::find, memory_fs::MemoryFs};

    fn launched(request: RunRequest) -> Launch {
        let agent = find("claude").unwrap();
        let plan = Plan::of(request, &*agent).unwrap();
        let program =
            Program { path: "/bin/claude".into(), args: vec![], version: Version::parse("2.1.325") };
        let mut context = LaunchContext::new(program, "/ws".into(), "/home/u".into(), "/p".into());
        context.session_id = "11111111-2222-4333-8444-555555555555".into();
        agent.launch(&plan, &context, &MemoryFs::default()).unwrap()
    }

    fn handshake_of(launch: &Launch) -> Value {
        serde_json::from_str(launch.dialogue.handshake.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn options_become_arguments_and_the_handshake() {
        let mut request =
            RunRequest::new("do it").agent("claude").model("opus").agent_option("effort", "high");
        request.include_directories = vec!["../lib".into()];
        request.limits = Limits { max_turns: Some(3), max_tokens: Some(9), ..Limits::default() };
        request.system_prompt = Some("be brief".into());
        let launch = launched(request.deny("WebFetch").deny("Bash(rm *)"));
        let has = |arg: &str| launch.args.iter().any(|one| one == arg);
        for arg in [
            "--session-id=11111111-2222-4333-8444-555555555555",
            "--model=opus",
            "--effort=high",
            "--max-turns=3",
            "--disallowedTools=WebFetch,AskUserQuestion",
            r#"--settings={"permissions":{"ask":["Bash"]}}"#,
            "--setting-sources=user",
            "--add-dir=/ws/../lib",
        ] {
            assert!(has(arg), "{arg}: {:?}", launch.args);
        }
        assert_eq!(launch.env["CLAUDE_CODE_MAX_RETRIES"], "2");
        assert_eq!(launch.env["ENABLE_TOOL_SEARCH"], "0");
        assert_eq!((&*launch.stdin, launch.quiet), ("do it", 0));
        let handshake = handshake_of(&launch);
        assert_eq!(handshake["appendSystemPrompt"], "be brief");
        assert_eq!(handshake["hooks"]["PostToolBatch"][0]["hookCallbackIds"][0], LIMITS_HOOK);
        assert!(!launch.args.iter().any(|arg| arg.contains("brief")), "other users can see arguments");
    }

    #[test]
    fn trusted_workspace_and_stored_session_change_the_arguments() {
        let mut request = RunRequest::new("x").agent("claude").resume("abc");
        request.trust = Trust::Full;
        request.system_prompt = Some("all".into());
        request.system_mode = SystemMode::Replace;
        request.answer_schema = Some(json!({"type": "object"}));
        let launch = launched(request);
        assert!(launch.args.contains(&"--resume=abc".to_owned()), "{:?}", launch.args);
        assert!(!launch.args.iter().any(|arg| arg.starts_with("--setting-sources")));
        assert!(launch.dialogue.resumes);
        let handshake = handshake_of(&launch);
        assert_eq!(
            (&handshake["systemPrompt"][0], &handshake["jsonSchema"]["type"]),
            (&json!("all"), &json!("object"))
        );
        assert_eq!(handshake["hooks"], Value::Null);
    }

    #[test]
    fn options_of_one_surface_are_refused_on_the_other() {
        let keys = |request: RunRequest, surface: Surface| {
            let problems = check(&request, surface);
            problems.into_iter().map(|problem| problem.key).collect::<Vec<String>>()
        };
        let mut request = RunRequest::new("x");
        request.allow_file_reads = true;
        assert_eq!(keys(request.clone(), Surface::StreamJson), ["allow_file_reads"]);
        assert_eq!((keys(request.clone(), Surface::Acp), choose(&request)), (vec![], Surface::Acp));
        let mut request = RunRequest::new("x");
        request.session_id = Some("mine".into());
        assert_eq!(keys(request.clone(), Surface::StreamJson), ["session_id"], "not a UUID");
        request.session_id = Some("11111111-2222-4333-8444-555555555555".into());
        assert_eq!(
            (keys(request.clone(), Surface::StreamJson), choose(&request)),
            (vec![], Surface::StreamJson)
        );
        assert_eq!(keys(request, Surface::Acp), ["session_id"]);
        let request = RunRequest::new("x").agent_option("effort", "huge");
        assert_eq!(keys(request, Surface::StreamJson), ["effort"]);
    }

    #[test]
    fn only_schemas_of_objects_are_checked_by_the_agent() {
        assert!(takes_schema(Surface::StreamJson, &json!({"type": "object"})));
        assert!(!takes_schema(Surface::StreamJson, &json!({"type": "array"})));
        assert!(!takes_schema(Surface::Acp, &json!({"type": "object"})));
    }
}
