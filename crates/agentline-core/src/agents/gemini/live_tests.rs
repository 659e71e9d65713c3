//! Tests launches over ACP, and which requests need ACP.

use super::{tests::*, *};
use crate::McpServer;

fn live_on(version: &str, request: RunRequest) -> Result<Launch, Vec<Problem>> {
    launch(&Plan::new(request, Surface::Acp), &context(version), &fs())
}

fn live(request: RunRequest) -> Launch {
    live_on("0.61.0", request).unwrap()
}

#[test]
fn conversation_process_starts_without_session_settings() {
    let request = RunRequest::new("hi").model("m").permission_mode(PermissionMode::Bypass);
    let server = McpServer::Command { command: "c".into(), args: vec![], env: [].into() };
    let launch = live(request.system_prompt("be brief").mcp_server("s", server.clone()));
    assert_eq!(
        launch.args.join(" "),
        format!("gemini.js --acp --approval-mode yolo --session-id {SESSION} --skip-trust")
    );
    assert_eq!(launch.preset, ["-m", "m"], "its sessions start with this model and can set another one");
    assert_eq!(launch.stdin, "be brief\n\nhi");
    assert_eq!(launch.session_id, None, "the agent chooses the session id");
    assert_eq!(launch.abandoned.as_deref(), Some(SESSION));
    assert_eq!(launch.dialogue.surface, Surface::Acp);
    let mode = launch.mode.unwrap();
    assert_eq!((mode.id.as_str(), mode.must), ("yolo", false));
    let model = launch.model.unwrap();
    assert_eq!((model.id.as_str(), model.strict), ("m", false));
    assert_eq!(launch.servers["s"], server);
    assert_eq!((launch.quiet, launch.proof), (0, None));
    let settings =
        launch.files.iter().find(|f| f.path == Path::new("/p/home/.gemini/settings.json")).unwrap();
    let settings = String::from_utf8(settings.content.clone()).unwrap();
    assert!(
        settings.contains("\"enableInteractiveShell\": false") && !settings.contains("mcpServers"),
        "{settings}"
    );
}

#[test]
fn only_process_wide_settings_require_a_new_process() {
    let same = |a: Launch, b: Launch| {
        (&a.program, &a.args, &a.env, a.files, &a.links) == (&b.program, &b.args, &b.env, b.files, &b.links)
    };
    let plain = || live(RunRequest::new("hi"));
    let url = McpServer::Url { url: "http://h/mcp".into(), headers: [].into() };
    let other =
        RunRequest::new("other").model("m").mcp_server("u", url).permission_mode(PermissionMode::Auto);
    assert!(same(plain(), live(other)));
    for request in [
        RunRequest::new("hi").deny("Bash"),
        RunRequest::new("hi").deny("Bash(rm *)"),
        RunRequest::new("hi").include_dir("/lib"),
        RunRequest::new("hi").env("A", "b"),
        RunRequest::new("hi").trust(Trust::Full),
        RunRequest::new("hi").permission_mode(PermissionMode::Plan),
        RunRequest::new("hi").permission_mode(PermissionMode::Bypass),
    ] {
        assert!(!same(plain(), live(request.clone())), "{request:?}");
    }
}

#[test]
fn conversation_modes_map_to_agent_modes() {
    let mode = |request: RunRequest| {
        let mode = live(request).mode.unwrap();
        (mode.id, mode.must)
    };
    use PermissionMode::{AcceptEdits, Auto, Bypass, Default, Deny, Plan, Prompt};
    for (requested, id, must) in [
        (Default, "default", true),
        (AcceptEdits, "default", true),
        (Auto, "default", true),
        (Deny, "default", true),
        (Prompt, "default", true),
        (Plan, "plan", true),
        (Bypass, "yolo", false),
    ] {
        assert_eq!(
            mode(RunRequest::new("x").permission_mode(requested)),
            (id.to_owned(), must),
            "{requested:?}"
        );
    }
    assert_eq!(
        mode(RunRequest::new("x").permission_mode(Plan).mode_id("autoEdit")),
        ("autoEdit".to_owned(), false)
    );
}

#[test]
fn prompt_that_looks_like_a_cli_command_stays_a_prompt() {
    let verbatim_and_warned = |text: &str| {
        let launch = live(RunRequest::new(text));
        (launch.stdin == text, launch.warnings.iter().any(|w| w.code == "prompt_not_verbatim"))
    };
    for text in ["/about", " \n/help me", "/ init", "$memory show"] {
        assert_eq!(verbatim_and_warned(text), (false, true), "{text}");
        assert!(live(RunRequest::new(text)).stdin.ends_with(text));
    }
    for text in ["hello", "/etc/hosts is what?", "see @a.txt", "bob@example.com", "$", "/"] {
        assert_eq!(verbatim_and_warned(text), (true, false), "{text}");
    }
}

#[test]
fn old_versions_get_model_and_mode_as_flags() {
    let request = || RunRequest::new("x").model("m").permission_mode(PermissionMode::Bypass);
    let launch = live_on("0.24.0", request()).unwrap();
    assert_eq!(launch.args.join(" "), "gemini.js --experimental-acp -m m --approval-mode yolo");
    assert_eq!((launch.mode, launch.model, launch.quiet), (None, None, 500));
    let launch = live_on("0.36.0", request()).unwrap();
    assert_eq!(launch.args.join(" "), "gemini.js --acp --approval-mode yolo");
    assert!(launch.mode.is_some() && launch.model.is_some());
    let own = RunRequest {
        agent_args: Some(vec!["--experimental-acp".into(), "-d".into()]),
        ..RunRequest::new("x")
    };
    assert!(live(own.clone()).args.join(" ").starts_with("gemini.js --experimental-acp -d --session-id"));
    let own = live(own.model("m").permission_mode(PermissionMode::Bypass));
    assert!(own.args.join(" ").starts_with("gemini.js --experimental-acp -d --session-id"));
    assert!(
        own.preset.is_empty() && own.mode.is_some() && own.model.is_some(),
        "mode and model are set for each session"
    );
    let found = live_on("0.24.0", RunRequest::new("x").resume("latest")).unwrap_err();
    assert_eq!(found[0].key, "resume");
}

#[test]
fn stored_session_is_not_resumed_within_the_minute_of_its_file() {
    let record = r#"{"sessionId":"aaaa1111-1","startTime":"x","kind":"main"}
{"id":"1","type":"user","content":"hi"}
"#;
    let fs = fs()
        .plain("/u/.gemini/projects.json", r#"{"projects":{"/ws":"ws"}}"#)
        .plain("/u/.gemini/tmp/ws/.project_root", "/ws")
        .plain("/u/.gemini/tmp/ws/chats/session-2026-11-15T13-16-aaaa1111.jsonl", record)
        .plain("/u/.gemini/tmp/ws/chats/session-2026-11-15T13-20-bbbb1111.jsonl", record);
    let plan = Plan::new(RunRequest::new("x").resume("aaaa"), Surface::Acp);
    let launch = launch(&plan, &context("0.61.0"), &fs).unwrap();
    assert_eq!(launch.not_before, Some(1_794_748_560_000 + 60_000));
    assert_eq!(launch.session_id.as_deref(), Some("aaaa1111-1"));
    assert!(!launch.args.contains(&"--resume".to_owned()));
}

#[test]
fn surface_is_chosen_from_the_request() {
    let chosen = |request: &RunRequest| live::choose(request);
    assert_eq!(chosen(&RunRequest::new("x").resume("latest")), Surface::StreamJson);
    let schema = RunRequest { output_schema: Some("s".into()), ..RunRequest::new("x") };
    let attached = RunRequest { attachments: vec!["a".into()], ..RunRequest::new("x") };
    let auto = || RunRequest::new("x").permission_mode(PermissionMode::Auto);
    let hosted = RunRequest::new("x").needs_live(true);
    for request in [schema.clone(), attached, auto(), hosted, RunRequest::new("x").until("true").ask("Bash")]
    {
        assert_eq!(chosen(&request), Surface::Acp, "{request:?}");
    }
    assert_eq!(chosen(&auto().sandbox(Sandbox::On)), Surface::StreamJson);
    // Rules with patterns are enforced only over ACP, regardless of other options.
    assert_eq!(chosen(&RunRequest::new("x").deny("Bash")), Surface::StreamJson);
    for request in [
        RunRequest::new("x").deny("Bash(rm *)"),
        RunRequest::new("x").allow("Write(src/**)"),
        RunRequest::new("x").deny("Read(secret/**)").sandbox(Sandbox::On),
    ] {
        assert_eq!(chosen(&request), Surface::Acp, "{request:?}");
    }
    let keys = |request: &RunRequest, surface| {
        check(request, surface).into_iter().map(|p| p.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&schema.clone().sandbox(Sandbox::On), Surface::Acp), ["sandbox"]);
    assert_eq!(keys(&schema, Surface::StreamJson), ["output_schema"]);
    assert_eq!(keys(&RunRequest::new("x").session_id("a"), Surface::Acp), ["session_id"]);
    assert_eq!(keys(&RunRequest::new("x").mode_id("autoEdit").deny("Bash"), Surface::Acp), ["mode_id"]);
    assert!(keys(&auto(), Surface::Json).is_empty());
    let ruled = RunRequest::new("x").deny("Bash(rm *)");
    assert_eq!(keys(&ruled, Surface::StreamJson), ["deny"]);
    assert_eq!(keys(&ruled.clone().mode_id("yolo"), Surface::Acp), ["mode_id"]);
    let sandboxed = check(&ruled.sandbox(Sandbox::On), Surface::Acp);
    assert!(sandboxed[0].hint.as_deref().is_some_and(|hint| hint.contains("whole tools")), "{sandboxed:?}");
}

#[test]
fn only_runs_without_commands_share_a_process() {
    let shares = |request: RunRequest| live::starts_nothing(&request);
    let url = || McpServer::Url { url: "http://h/mcp".into(), headers: [].into() };
    let program = McpServer::Command { command: "c".into(), args: vec![], env: [].into() };
    assert!(!shares(RunRequest::new("x")));
    assert!(!shares(RunRequest::new("x").deny("Bash(rm *)")));
    assert!(shares(RunRequest::new("x").deny("Bash")));
    assert!(shares(RunRequest::new("x").deny("run_shell_command").mcp_server("u", url())));
    assert!(!shares(RunRequest::new("x").deny("Bash").mcp_server("p", program)));
    assert!(shares(RunRequest::new("x").permission_mode(PermissionMode::Plan)));
    assert!(!shares(RunRequest::new("x").permission_mode(PermissionMode::Plan).mode_id("yolo")));
}

#[test]
fn servers_only_expressible_in_settings_stay_in_the_settings() {
    let fs = fs().plain(
        "/ws/mcp.json",
        r#"{"mcpServers":{"plain":{"command":"c"},"web":{"httpUrl":"http://h","headers":{"A":"b"},"trust":false},
            "folder":{"command":"c","cwd":"/x"},"sse":{"url":"http://h/sse"}}}"#,
    );
    let request = RunRequest { mcp_settings_path: Some("mcp.json".into()), ..RunRequest::new("x") };
    let launch = |request| launch(&Plan::new(request, Surface::Acp), &context("0.61.0"), &fs).unwrap();
    let denying = launch(request.clone().permission_mode(PermissionMode::Deny));
    assert!(denying.trusted_servers.is_empty());
    assert!(!file(&denying, "/p/home/.gemini/settings.json").contains("\"trust\": true"));
    let launch = launch(request);
    assert_eq!(launch.servers.keys().collect::<Vec<_>>(), ["plain", "web"]);
    assert_eq!(launch.trusted_servers, ["folder", "plain", "sse"], "`web` has `trust: false`");
    let settings = file(&launch, "/p/home/.gemini/settings.json");
    assert!(
        settings.contains("\"folder\"") && settings.contains("\"sse\"") && !settings.contains("\"plain\"")
    );
}
