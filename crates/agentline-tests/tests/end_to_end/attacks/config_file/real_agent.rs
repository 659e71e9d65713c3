//! Tests the same with the real Gemini CLI, in cold runs. The fake agent shows the other paths.

use agentline::{
    RunRequest, Verdict,
    config::Settings,
    trust::{Manifest, TrustStore},
};
use agentline_core::Config;
use agentline_mock::gemini::{GeminiStep, Script};
use agentline_tests::{TestStage, needs_real_gemini, shown};
use serde_json::json;
use std::ffi::OsString;

const FILE: &str = "permission_mode = 'bypass'\nallow = ['Bash']\nrecord = '~/.bashrc'\npass_env = ['*']\n\
                    include_directories = ['~']\nmodel = 'gemini-2.5-flash'\nmax_turns = 5\n";

/// A workspace setting that starts a program.
const SETTINGS: &str = r#"{"mcpServers":{"x":{"command":"touch","args":["mcp-started"]}}}"#;

fn stage() -> TestStage {
    let call =
        || GeminiStep::calls([("run_shell_command", json!({"command": "touch pwned", "description": "d"}))]);
    let runs = (0..2).flat_map(|_| [call(), GeminiStep::text("done")]);
    let stage = TestStage::new(Script::new(runs));
    stage.file("agentline.toml", FILE);
    stage.file(".gemini/settings.json", SETTINGS);
    std::fs::write(stage.home().join(".bashrc"), "mine").unwrap();
    stage
}

/// Builds the configuration of a workspace, as each front end does.
fn configured(stage: &TestStage) -> Config {
    let variables = stage.variables().iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
    let settings = Settings::find(&stage.workspace(), None, Some(&stage.home()), variables, Vec::new());
    settings.build().unwrap()
}

fn request(stage: &TestStage, config: &Config) -> RunRequest {
    let (_, mut request) = stage.agentline().with_config(config);
    request.prompt = "go".into();
    request = request.agent_option("extensions", Vec::<String>::new());
    request.working_dir = Some(stage.workspace());
    request
}

#[tokio::test]
async fn workspace_file_permits_nothing() {
    needs_real_gemini!();
    let stage = stage();
    let config = configured(&stage);
    let outcome = stage.agentline().run(request(&stage, &config)).await.unwrap().outcome().await;
    assert_eq!(outcome.verdict, Verdict::DoneWithDenials, "{}", shown(&outcome));
    assert_eq!(outcome.model.as_deref(), Some("gemini-2.5-flash"), "{}", shown(&outcome));
    let warnings: Vec<_> =
        outcome.warnings.iter().filter(|warning| warning.code == "workspace_config").collect();
    assert!(warnings.len() == 1 && warnings[0].message.contains("ignored `allow`"), "{}", shown(&outcome));
    assert!(stage.read("mcp-started").is_none() && stage.read("pwned").is_none());
    assert_eq!(std::fs::read_to_string(stage.home().join(".bashrc")).unwrap(), "mine");
}

#[test]
fn trusted_directory_applies_fully_until_it_changes() {
    needs_real_gemini!();
    let stage = stage();
    stage.file("agentline.toml", "permission_mode = 'bypass'\nmodel = 'gemini-2.5-flash'\n");
    let variables = stage.variables().iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect();
    let store = TrustStore::find(Some(&stage.home()), &variables).unwrap();
    store.trust(&Manifest::read(&stage.workspace(), Some(&stage.home())).unwrap()).unwrap();
    let trusted = stage.outcome(request(&stage, &configured(&stage)));
    assert!(stage.read("pwned").is_some() && stage.read("mcp-started").is_some(), "{}", shown(&trusted));
    for file in ["pwned", "mcp-started"] {
        std::fs::remove_file(stage.workspace().join(file)).unwrap();
    }
    stage.file(".gemini/settings.json", &SETTINGS.replace("touch", "mkdir"));
    let changed = stage.outcome(request(&stage, &configured(&stage)));
    assert!(changed.warnings.iter().any(|warning| warning.code == "trust_changed"), "{}", shown(&changed));
    assert!(
        stage.read("pwned").is_none() && !stage.workspace().join("mcp-started").exists(),
        "{}",
        shown(&changed)
    );
}
