//! Tests of the adapter `gemini_acp` (name, defaults, overrides) and of agents defined only by the configuration.

use super::*;
use crate::{
    Agent, AgentInfo, Launch, ModelValidation, Plan, Program, RunRequest,
    agents::{self, AgentRegistry},
    memory_fs::MemoryFs,
};
use std::time::UNIX_EPOCH;

fn preset() -> Config {
    from_json(json!({"agent": "gemini_acp"}))
}

#[test]
fn adapter_preset_is_found_by_name() {
    let agent = agents::find("gemini_acp").unwrap();
    assert_eq!((agent.info().id, agent.info().program), ("gemini", "gemini"));
    assert!(agent.preset("gemini_acp").is_some() && agent.preset("gemini").is_none());
}

#[test]
fn preset_has_the_documented_defaults() {
    let config = preset();
    let request = &config.request;
    assert_eq!(config.notices, []);
    // The program's version decides between `--acp` and its old name.
    assert_eq!(request.agent_args, None);
    assert_eq!(request.permission_mode, PermissionMode::Auto);
    assert_eq!(request.quiet_period, Some(Duration::from_millis(500)));
    assert_eq!(request.startup_timeout, Duration::from_secs(30));
    assert_eq!(request.surface, Some(Surface::Acp));
    assert_eq!(request.pass_env, ["*"]);
    assert!(!request.allow_file_reads && !request.allow_file_writes && !request.emit_thoughts);
    assert_eq!((request.model.as_deref(), request.mode_id.as_deref()), (None, None));
    assert_eq!(request.model_validation, ModelValidation::Warn);
    assert!(request.env.is_empty() && request.mcp_servers.is_empty());
    assert_eq!(config.origins["quiet_period_ms"], "gemini_acp");
}

#[test]
fn preset_accepts_documented_names_and_explicit_settings_win() {
    let config = from_json(json!({
        "agent": "gemini_acp", "agent_bin": "mine", "agent_args": ["--acp"], "model_id": "m", "mode_id": "plan",
        "startup_timeout_s": 12.5, "allow_file_reads": true, "allow_file_writes": true, "quiet_period_ms": 200,
        "emit_thought_chunks": true, "permission_mode": "deny", "env": {"A": "1"}, "cwd": "/w",
    }));
    let request = &config.request;
    assert_eq!(config.agents["gemini"].program, Some("mine".into()));
    assert_eq!(request.agent_args.as_deref().unwrap(), ["--acp"]);
    assert_eq!((request.model.as_deref(), request.mode_id.as_deref()), (Some("m"), Some("plan")));
    assert_eq!(request.startup_timeout, Duration::from_millis(12_500));
    assert!(request.allow_file_reads && request.allow_file_writes && request.emit_thoughts);
    assert_eq!(request.quiet_period, Some(Duration::from_millis(200)));
    assert_eq!(request.permission_mode, PermissionMode::Deny);
    assert_eq!((request.env["A"].as_str(), request.working_dir.clone()), ("1", Some("/w".into())));
    // Even a layer below the one that names the adapter overrides the adapter's defaults.
    let user = Layer::file("user", "permission_mode = 'plan'");
    let flags = Layer::flags(map(json!({"agent": "gemini_acp"})));
    let config = Config::build(&[user, flags]).unwrap();
    assert_eq!(
        (config.request.permission_mode, config.origins["permission_mode"].as_str()),
        (PermissionMode::Plan, "user")
    );
    let other = Layer::flags(map(json!({"agent": "gemini"})));
    let named = Layer::file("user", "agent = 'gemini_acp'");
    assert_eq!(Config::build(&[named, other]).unwrap().request.permission_mode, PermissionMode::Default);
}

/// Fails to compile for types with interior mutability: shared cells are not unwind safe.
fn frozen<T: Sync + std::panic::RefUnwindSafe>() {}

#[test]
fn built_configuration_is_immutable() {
    frozen::<RunRequest>();
    frozen::<Config>();
    let config = preset();
    let mut request = config.request.clone();
    request.quiet_period = None;
    request.env.insert("A".into(), "1".into());
    assert_eq!(config, preset(), "changing a copy does not change the configuration");
    assert_eq!(RunRequest::preset("gemini_acp", "x").unwrap().permission_mode, PermissionMode::Auto);
    assert!(RunRequest::preset("unknown-agent", "x").unwrap_err().to_string().contains("`unknown-agent`"));
}

fn launched(request: RunRequest) -> Launch {
    let agent = agents::find(&request.agent).unwrap();
    let plan = Plan::of(request, &*agent).unwrap();
    let program =
        Program { path: "/bin/gemini".into(), args: vec![], version: crate::Version::parse("0.61.0") };
    let mut context = crate::LaunchContext::new(program, "/ws".into(), "/u".into(), "/p".into());
    context.env = [("PATH", "/bin"), ("MY_CREDENTIALS", "/c"), ("OTHER", "o")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    agent.launch(&plan, &context, &MemoryFs::default()).unwrap()
}

#[test]
fn preset_passes_the_callers_environment_with_overrides() {
    let mut request = preset().request;
    request.prompt = "hi".into();
    let launch = launched(request.clone().env("OTHER", "mine"));
    assert_eq!((launch.env["MY_CREDENTIALS"].as_str(), launch.env["OTHER"].as_str()), ("/c", "mine"));
    assert!(launch.withheld.is_empty());
    assert_eq!((launch.quiet, launch.args[0].as_str()), (500, "--acp"));
    request.agent = "gemini".into();
    request.pass_env.clear();
    assert_eq!(launched(request).withheld, ["MY_CREDENTIALS", "OTHER"]);
}

#[test]
fn model_is_validated_only_in_strict_mode() {
    let wish = |value: serde_json::Value| {
        let mut request = from_json(value).request;
        request.prompt = "hi".into();
        launched(request).model.unwrap()
    };
    assert!(!wish(json!({"agent": "gemini_acp", "model_id": "m"})).strict);
    let strict = wish(json!({"agent": "gemini_acp", "model_id": "m", "model_validation": "strict"}));
    assert!(strict.strict && strict.id == "m");
}

#[test]
fn custom_agent_needs_only_a_command() {
    let config = from_toml(
        "[agents.mine]\ncommand = 'mine'\nargs = ['acp', '-x']\nenv = { A = '1' }\nsurface = 'acp'\n[agents.gemini]\nargs = ['--acp']",
    );
    assert_eq!(config.notices, []);
    let registry = AgentRegistry::of(&config.agents);
    let ids: Vec<&str> = registry.all().iter().map(|agent| agent.info().id).collect();
    assert_eq!(ids.iter().filter(|id| **id == "mine").count(), 1);
    assert_eq!(ids.iter().filter(|id| **id == "gemini").count(), 1, "the built-in agent is not replaced");
    let mine = registry.find("mine").unwrap();
    let again = AgentRegistry::of(&registry.settings()).find("mine").unwrap();
    assert_eq!(format!("{:?}", mine.info()), format!("{:?}", again.info()));
    let AgentInfo { program, package, .. } = mine.info();
    assert_eq!((program, package), ("mine", ""));
    let plan = Plan::of(RunRequest::new("hi").agent("mine").model("m").system_prompt("s"), &*mine).unwrap();
    assert_eq!(plan.surface, Surface::Acp);
    let context = crate::LaunchContext::new(
        Program { path: "/bin/mine".into(), args: vec![], version: None },
        "/ws".into(),
        "/u".into(),
        "/p".into(),
    );
    let launch = mine.launch(&plan, &context, &MemoryFs::default()).unwrap();
    assert_eq!((launch.args.join(" ").as_str(), launch.stdin.as_str()), ("acp -x", "s\n\nhi"));
    assert_eq!((launch.quiet, launch.mode, launch.model.unwrap().id.as_str()), (500, None, "m"));
    let refused = registry.find("mien").err().unwrap().to_string();
    assert!(refused.contains("did you mean `mine`?"), "{refused}");
    assert!(agents::find("mine").is_err());
}

#[test]
fn unsupported_features_of_a_custom_agent_are_refused() {
    let config = from_toml(
        "[agents.mine]\ncommand = ['mine', 'acp']\n[agents.odd]\ncommand = 'odd'\nsurface = 'json'",
    );
    let registry = AgentRegistry::of(&config.agents);
    let mine = registry.find("mine").unwrap();
    let keys = |agent: &dyn Agent, request: RunRequest| -> Vec<String> {
        Plan::of(request, agent).unwrap_err().0.into_iter().map(|p| p.key).collect()
    };
    let request = RunRequest::new("x").sandbox(Sandbox::On).session_id("i");
    assert_eq!(keys(&*mine, request), ["sandbox", "session_id"]);
    assert_eq!(keys(&*mine, RunRequest::new("x").surface(Surface::Json)), ["surface"]);
    assert_eq!(keys(&*registry.find("odd").unwrap(), RunRequest::new("x")), ["agents.odd.surface"]);
    let wrong = Config::build(&[Layer::file("f", "[agents.mine]\ncommand = []")]).unwrap_err().to_string();
    assert!(wrong.contains("`agents.mine.command`: is empty"), "{wrong}");
}

#[test]
fn times_are_read_in_both_formats() {
    let in_2030 = Some(UNIX_EPOCH + Duration::from_secs(1_893_456_000));
    for value in [
        json!(1_893_456_000),
        json!(1_893_456_000.0),
        json!("1893456000"),
        json!("2030-01-01T00:00:00Z"),
        json!("2030-01-01 01:00:00+01:00"),
    ] {
        assert_eq!(from_json(json!({"deadline": value})).request.deadline, in_2030, "{value}");
    }
    assert_eq!(from_toml("deadline = 2030-01-01T00:00:00Z").request.deadline, in_2030);
    for value in [json!("soon"), json!(-1), json!("2030-01-01"), json!(true), json!("nan")] {
        let wrong = Config::from_map(map(json!({"deadline": value}))).unwrap_err().to_string();
        assert!(wrong.contains("deadline must be a point in time"), "{wrong}");
    }
    for value in [json!(9e99), json!("9e99"), json!(253_402_300_800_u64)] {
        let wrong = Config::from_map(map(json!({"deadline": value}))).unwrap_err().to_string();
        assert!(wrong.contains("deadline must not be later than the year 9999"), "{wrong}");
    }
}
