//! Tests of complete launches, for each option of a request.

use super::*;
use crate::{Limits, McpServer, Program, memory_fs::MemoryFs};

pub(super) const SESSION: &str = "11111111-2222-4333-8444-555555555555";

pub(super) fn context(version: &str) -> LaunchContext {
    let program = Program {
        path: "/bin/node".into(),
        args: vec!["gemini.js".into()],
        version: Version::parse(version),
    };
    let mut context = LaunchContext::new(program, "/ws".into(), "/u".into(), "/p".into());
    context.session_id = SESSION.into();
    let caller =
        [("PATH", "/bin"), ("GEMINI_API_KEY", "key-of-the-caller"), ("OTHER_TOKEN", "token-of-another")];
    context.env = caller.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    context
}

pub(super) fn fs() -> MemoryFs {
    MemoryFs::default().plain("/u/.gemini/settings.json", "{}").plain("/lib/x", "").plain("/ws/a", "")
}

fn launched(request: RunRequest) -> Launch {
    launched_on("0.61.0", request).unwrap()
}

fn launched_on(version: &str, request: RunRequest) -> Result<Launch, Vec<Problem>> {
    launch(&Plan::new(request, Surface::StreamJson), &context(version), &fs())
}

fn args(request: RunRequest) -> String {
    launched(request).args.join(" ")
}

pub(super) fn file(launch: &Launch, path: &str) -> String {
    let found = launch.files.iter().find(|f| f.path == Path::new(path));
    String::from_utf8(found.unwrap_or_else(|| panic!("{path} is not written")).content.clone()).unwrap()
}

#[test]
fn workspace_path_that_breaks_tools_causes_a_warning() {
    let codes = |cwd: &str| {
        let mut context = context("0.61.0");
        context.cwd = cwd.into();
        let launch = launch(&Plan::new(RunRequest::new("hi"), Surface::StreamJson), &context, &fs()).unwrap();
        launch.warnings.iter().map(|warning| warning.code.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(codes("/w\ns"), ["workspace_path"]);
    assert!(codes("/w s/ü").is_empty());
}

#[test]
fn launch_of_a_plain_run() {
    let launch = launched(RunRequest::new("hello\n"));
    assert_eq!(launch.args.join(" "), "gemini.js -o stream-json --skip-trust");
    assert_eq!((launch.stdin.as_str(), launch.cwd.to_str().unwrap()), ("hello\n", "/ws"));
    assert_eq!(launch.agent_home, Path::new("/p/home"));
    assert_eq!(launch.session_id, None, "the first event reports the id");
    assert_eq!(launch.withheld, ["OTHER_TOKEN"]);
    assert_eq!(launch.secrets, ["key-of-the-caller", "token-of-another"]);
    assert_eq!(launch.proof, None);
    let env = |name: &str| launch.env.get(name).map(String::as_str);
    assert_eq!(env("GEMINI_CLI_HOME"), Some("/p/home"));
    assert_eq!((env("GEMINI_CLI_NO_RELAUNCH"), env("NO_COLOR")), (Some("1"), Some("1")));
    assert_eq!((env("PATH"), env("GEMINI_API_KEY")), (Some("/bin"), Some("key-of-the-caller")));
    assert_eq!(env("GEMINI_CLI_TRUST_WORKSPACE"), None);
    assert!(file(&launch, "/p/home/.gemini/settings.json").contains("\"maxAttempts\": 2"));
}

#[test]
fn flags_follow_the_request() {
    assert!(args(RunRequest::new("x").model("m")).contains("-m m"));
    let mode = |mode| args(RunRequest::new("x").permission_mode(mode));
    assert!(!mode(PermissionMode::Default).contains("--approval-mode"));
    assert!(mode(PermissionMode::AcceptEdits).contains("--approval-mode auto_edit"));
    assert!(mode(PermissionMode::Bypass).contains("--approval-mode yolo"));
    assert!(mode(PermissionMode::Plan).contains("--approval-mode plan"));
    let dirs = RunRequest::new("x").include_dir("/lib");
    assert!(args(dirs).contains("--include-directories /lib"));
    let extensions = |names: &[&str]| args(RunRequest::new("x").agent_option("extensions", names));
    assert!(extensions(&[]).contains("-e none"));
    assert!(extensions(&["a", "b"]).contains("-e a -e b"));
    assert!(args(RunRequest::new("x").session_id("mine")).contains("--session-id mine"));
    let json = Plan::new(RunRequest::new("x"), Surface::Json);
    let json = launch(&json, &context("0.61.0"), &fs()).unwrap();
    assert_eq!(json.session_id.as_deref(), Some(SESSION), "no event reports the id before the end");
    let json = launch(&Plan::new(RunRequest::new("x"), Surface::Json), &context("0.61.0"), &fs()).unwrap();
    assert_eq!(json.args[1..3], ["-o", "json"]);
}

#[test]
fn requested_trust_overrides_the_environment() {
    let with = |trust| {
        let mut context = context("0.61.0");
        context.env.insert("GEMINI_CLI_TRUST_WORKSPACE".into(), "true".into());
        let plan = Plan::new(RunRequest::new("x").trust(trust), Surface::Json);
        let launch = launch(&plan, &context, &fs()).unwrap();
        let flag = launch.args.contains(&"--skip-trust".to_owned());
        (flag, launch.env.get("GEMINI_CLI_TRUST_WORKSPACE").cloned())
    };
    assert_eq!(with(Trust::Run), (true, None));
    assert_eq!(with(Trust::Full), (false, Some("true".into())));
    assert_eq!(with(Trust::No), (false, None));
}

#[test]
fn sandboxes_mount_the_files_of_the_run() {
    let on = launched(RunRequest::new("x").sandbox(Sandbox::On));
    assert!(on.args.contains(&"-s".to_owned()) && !on.env.contains_key("GEMINI_SANDBOX"));
    let docker = launched(RunRequest::new("x").sandbox(Sandbox::By("docker".into())));
    assert!(!docker.args.contains(&"-s".to_owned()));
    assert_eq!(docker.env["GEMINI_SANDBOX"], "docker");
    assert!(docker.env["SANDBOX_MOUNTS"].starts_with("/p/given:/p/given:ro"));
    let wrong = check(&RunRequest::new("x").sandbox(Sandbox::By("dokcer".into())), Surface::Json);
    assert_eq!(wrong[0].key, "sandbox");
}

#[test]
fn auth_method_is_set_if_the_cli_would_ignore_the_key() {
    let method = |env: &[(&str, &str)], fs: MemoryFs| {
        let mut context = context("0.61.0");
        context.env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let launch = launch(&Plan::new(RunRequest::new("x"), Surface::Json), &context, &fs).unwrap();
        let settings: Value = serde_json::from_str(&file(&launch, "/p/home/.gemini/settings.json")).unwrap();
        settings["security"]["auth"]["selectedType"].clone()
    };
    let key = ("GEMINI_API_KEY", "key-of-the-caller");
    assert_eq!(method(&[key], fs()), Value::Null);
    assert_eq!(method(&[key, ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1")], fs()), "gemini-api-key");
    let in_file = || fs().plain("/u/.gemini/.env", "GEMINI_API_KEY=key-in-a-file");
    assert_eq!(method(&[], in_file()), "gemini-api-key");
    assert_eq!(method(&[("GOOGLE_GENAI_USE_VERTEXAI", "true")], in_file()), Value::Null);
}

#[test]
fn sign_in_options_become_variables_and_settings() {
    let request =
        RunRequest::new("x").api_key("key-of-the-request").agent_option("google_cloud_project", "proj");
    let launch = launched(request.clone());
    assert_eq!(launch.env["GEMINI_API_KEY"], "key-of-the-request");
    assert_eq!(launch.env["GOOGLE_CLOUD_PROJECT"], "proj");
    assert!(launch.secrets.contains(&"key-of-the-request".to_owned()));
    assert!(file(&launch, "/p/home/.gemini/settings.json").contains("gemini-api-key"));
    let launch = launched(request.agent_option("use_vertex_ai", true));
    assert_eq!(launch.env["GOOGLE_GENAI_USE_VERTEXAI"], "true");
    assert!(file(&launch, "/p/home/.gemini/settings.json").contains("vertex-ai"));
}

#[test]
fn request_variables_are_passed_and_their_secrets_registered() {
    let request = RunRequest::new("x")
        .env("MY_TOKEN", "token-of-mine")
        .env("PLAIN", "just a value")
        .pass_env("OTHER_*");
    let launch = launched(request);
    assert_eq!(
        (launch.env["MY_TOKEN"].as_str(), launch.env["PLAIN"].as_str()),
        ("token-of-mine", "just a value")
    );
    assert_eq!(launch.env["OTHER_TOKEN"], "token-of-another");
    assert!(launch.withheld.is_empty());
    assert!(launch.secrets.contains(&"token-of-mine".to_owned()));
    assert!(!launch.secrets.contains(&"just a value".to_owned()));
}

#[test]
fn secrets_of_servers_and_user_files_are_registered() {
    let users = r#"{"mcpServers":{"own":{"httpUrl":"http://u:password-in-url@h/","headers":{"X":"header-of-user"}}}}"#;
    let fs = MemoryFs::default()
        .plain("/u/.gemini/settings.json", users)
        .plain("/u/.gemini/.env", "GEMINI_API_KEY=ignored-as-set\nA_SECRET='from-env-file'")
        .plain(
            "/u/.gemini/oauth_creds.json",
            r#"{"access_token":"ya29.token-of-user","scope":"not-a-secret"}"#,
        );
    let url = McpServer::Url {
        url: "http://h/mcp?token=token-in-query".into(),
        headers: [("Authorization".into(), "Bearer bearer-of-run".into())].into(),
    };
    let command = McpServer::Command {
        command: "srv".into(),
        args: Vec::new(),
        env: [("A".into(), "env-of-srv".into())].into(),
    };
    let request = RunRequest::new("x").mcp_server("u", url).mcp_server("c", command);
    let launch = launch(&Plan::new(request, Surface::Json), &context("0.61.0"), &fs).unwrap();
    for secret in [
        "password-in-url",
        "header-of-user",
        "from-env-file",
        "ya29.token-of-user",
        "token-in-query",
        "bearer-of-run",
        "env-of-srv",
    ] {
        assert!(launch.secrets.iter().any(|s| s == secret), "{secret}: {:?}", launch.secrets);
    }
    assert!(!launch.secrets.iter().any(|s| s == "not-a-secret"));
}

#[test]
fn rules_become_a_policy_next_to_the_users_policies() {
    let request = RunRequest::new("x").allow("Write").deny("Bash");
    let launch = launched(request.clone());
    let line = launch.args.join(" ");
    assert!(line.contains("--policy /p/given/agentline-run.toml --policy /u/.gemini/policies"), "{line}");
    assert_eq!(launch.proof, Some(PolicyAck::new(policy::PROOF, policy::BROKEN)));
    let text = file(&launch, "/p/given/agentline-run.toml");
    assert!(text.contains("write_file") && text.contains("agentline__was_read"), "{text}");

    let fs = MemoryFs::default().plain("/u/.gemini/settings.json", r#"{"policyPaths":["~/p.toml","/q"]}"#);
    let launch = launch_with(request, &fs);
    let line = launch.args.join(" ");
    assert!(line.contains("agentline-run.toml --policy /u/p.toml --policy /q "), "{line}");
}

fn launch_with(request: RunRequest, fs: &MemoryFs) -> Launch {
    launch(&Plan::new(request, Surface::Json), &context("0.61.0"), fs).unwrap()
}

#[test]
fn prompt_with_cli_syntax_becomes_a_command_with_a_random_name() {
    let launch = launched(RunRequest::new("/init @a {{args}}"));
    let name = format!("agentline-{}", SESSION.replace('-', ""));
    assert_eq!(launch.stdin, format!("/{name}"));
    assert!(
        file(&launch, &format!("/p/given/commands/{name}.toml"))
            .starts_with("prompt = \"/init @a @{/p/given/prompt/")
    );
    assert!(launch.args.join(" ").contains("--include-directories /p/given/prompt"));
}

#[test]
fn system_prompt_replaces_or_is_prepended() {
    let request = RunRequest::new("do").system_prompt("be brief");
    assert_eq!(launched(request.clone()).stdin, "be brief\n\ndo");
    let launch = launched(request.system_mode(SystemMode::Replace));
    assert_eq!(
        (launch.stdin.as_str(), launch.env["GEMINI_SYSTEM_MD"].as_str()),
        ("do", "/p/given/system.md")
    );
    assert_eq!(file(&launch, "/p/given/system.md"), "be brief");
}

#[test]
fn overlay_uses_the_relocated_home_of_the_user() {
    let mut context = context("0.61.0");
    context.env.insert("GEMINI_CLI_HOME".into(), "/moved".into());
    let launch = launch(&Plan::new(RunRequest::new("x"), Surface::Json), &context, &fs()).unwrap();
    assert_eq!(launch.env["GEMINI_CLI_HOME"], "/p/home");
    assert!(launch.links.contains(&("/p/home/.gemini/tmp".into(), "/moved/.gemini/tmp".into())));
}

#[test]
fn resume_passes_the_full_id_and_no_session_id() {
    let session = r#"{"sessionId":"abcdef12-0000","startTime":"2026-01-01","kind":"main"}
{"id":"1","type":"user","content":[{"text":"hi"}]}"#;
    let fs = fs()
        .plain("/u/.gemini/tmp/ws/.project_root", "/ws")
        .plain("/u/.gemini/tmp/ws/chats/session-2026-01-01T00-00-abcdef12.jsonl", session);
    let launch = launch_with(RunRequest::new("x").resume("abcdef12"), &fs);
    let line = launch.args.join(" ");
    assert!(line.contains("--resume abcdef12-0000") && !line.contains("--session-id"), "{line}");
    assert_eq!(launch.session_id.as_deref(), Some("abcdef12-0000"));
    let problems = launched_on("0.61.0", RunRequest::new("x").resume("latest")).unwrap_err();
    assert_eq!(problems[0].key, "resume");
}

#[test]
fn old_versions_get_no_unsupported_flags() {
    let line = |version: &str| launched_on(version, RunRequest::new("@x")).unwrap().args.join(" ");
    assert_eq!(line("0.36.0"), "gemini.js -o stream-json");
    assert_eq!(line("0.40.0"), "gemini.js -o stream-json --skip-trust");
    let old = launched_on("0.24.0", RunRequest::new("@x")).unwrap();
    assert_eq!((old.stdin.as_str(), old.agent_home.to_str().unwrap()), ("@x", "/u"));
    assert_eq!(old.warnings[0].code, "prompt_not_verbatim");
    assert!(!old.env.contains_key("GEMINI_CLI_HOME"));
    assert!(old.links.is_empty());
    let request = RunRequest::new("x").allow("Write").session_id("s").permission_mode(PermissionMode::Plan);
    let keys: Vec<String> = launched_on("0.24.0", request).unwrap_err().into_iter().map(|p| p.key).collect();
    assert_eq!(keys, ["allow", "permission_mode", "session_id"]);
}

#[test]
fn old_versions_refuse_options_that_they_cannot_provide() {
    let server = McpServer::Command { command: "srv".into(), args: Vec::new(), env: [].into() };
    let limits = Limits {
        max_turns: Some(2),
        max_tool_calls: Some(2),
        max_tokens: Some(2),
        max_output_tokens: Some(2),
        max_cost: Some(2.0),
    };
    let request = RunRequest::new("x").limits(limits).mcp_server("s", server).resume("latest");
    let refused = |version: &str, surface| -> Vec<String> {
        let launch = launch(&Plan::new(request.clone(), surface), &context(version), &fs());
        launch.unwrap_err().into_iter().map(|problem| problem.key).collect()
    };
    let and_tokens =
        |keys: &[&'static str]| [keys, &["max_tokens", "max_output_tokens", "max_cost"]].concat();
    assert_eq!(refused("0.11.3", Surface::StreamJson), and_tokens(&["resume", "mcp_servers"]));
    assert_eq!(refused("0.24.0", Surface::StreamJson), and_tokens(&["mcp_servers"]));
    let silent = ["mcp_servers", "max_turns", "max_tool_calls"];
    assert_eq!(refused("0.24.0", Surface::Json), and_tokens(&silent));
    assert_eq!(refused("0.24.0", Surface::Acp), and_tokens(&["resume", "mcp_servers", "max_turns"]));
    // There is no session to resume.
    assert_eq!(refused("0.41.0", Surface::Json), ["resume"]);
    let without_file = [and_tokens(&["max_tool_calls"]), vec!["resume"]].concat();
    assert_eq!(refused("0.40.1", Surface::Json), without_file);
    assert_eq!(refused("0.40.1", Surface::Acp), ["resume"]);
    for (version, surface, resumes, mcp, thinking) in [
        ("0.11.3", Surface::StreamJson, false, false, false),
        ("0.24.0", Surface::StreamJson, true, false, false),
        ("0.24.0", Surface::Json, true, false, false),
        ("0.24.0", Surface::Acp, false, false, true),
        ("0.40.1", Surface::Json, true, true, false),
        ("0.41.0", Surface::Json, true, true, true),
        ("0.40.1", Surface::Acp, true, true, true),
    ] {
        let found = crate::AgentDescription::abilities(
            &crate::agents::gemini::Gemini,
            surface,
            Version::parse(version),
        );
        assert_eq!(
            (found.resumes, found.mcp, found.thinking),
            (resumes, mcp, thinking),
            "{version} {surface}"
        );
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let mut request = RunRequest::new("x").include_dir("gone").prompt_file("none").resume("zzzz");
    request.mcp_settings_path = Some("none.json".into());
    let keys: Vec<String> = launched_on("0.61.0", request).unwrap_err().into_iter().map(|p| p.key).collect();
    assert_eq!(keys, ["include_directories", "prompt_file", "mcp_settings_path", "resume"]);
    let mut request = RunRequest::new("x").model("-x").session_id("a/b").allow("Nope").deny("WebFetch(x)");
    request.attachments = vec!["a.png".into()];
    request.output_schema = Some("s.json".into());
    let keys: Vec<String> = check(&request, Surface::Json).into_iter().map(|p| p.key).collect();
    assert_eq!(keys, ["output_schema", "attachments", "model", "session_id", "deny", "allow"]);
}

#[test]
fn prompt_too_long_with_its_prefix_is_refused() {
    let request = RunRequest::new("x".repeat(8_388_600)).system_prompt("y".repeat(100));
    assert_eq!(launched_on("0.61.0", request).unwrap_err()[0].key, "prompt");
}

#[test]
fn limits_are_written_to_the_settings() {
    let limits = Limits { max_turns: Some(2), ..Limits::default() };
    let launch = launched(RunRequest::new("x").limits(limits));
    assert!(file(&launch, "/p/home/.gemini/settings.json").contains("\"maxSessionTurns\": 2"));
}
