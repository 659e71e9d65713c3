//! Checks that an agent is refused if it does not confirm that it ignores the workspace's configuration. The fake
//! agents do not confirm.

use super::workspace::{HostileWorkspace, SHELL};
use agentline::{
    Agentline, FailureKind, Outcome, Pool, PoolOptions, RunRequest, Surface, Trust, Verdict, detect::HostEnv,
};
use agentline_tests::{FakeStage, needs_real_gemini, real_gemini, shown};
use std::{fs, os::unix::fs::PermissionsExt as _};

#[track_caller]
fn assert_refused(outcome: &Outcome, file: &str) {
    assert_eq!(outcome.verdict, Verdict::Failed, "{}", shown(outcome));
    let error = outcome.error.as_ref().unwrap();
    assert_eq!(error.kind, FailureKind::Settings, "{}", shown(outcome));
    assert!(error.message.contains(file), "{}", error.message);
    assert!(error.hint.as_ref().unwrap().contains("--trust full"), "{error:?}");
    assert_eq!(outcome.text, "", "{}", shown(outcome));
}

#[tokio::test]
async fn an_unconfirmed_agent_is_refused_over_acp() {
    for (file, text) in [
        (".gemini/settings.json", "{}"),
        (".env", "A=1"),
        (".gemini/.env", "A=1"),
        (".gemini/commands/x.toml", ""),
        (".agents/skills/x/SKILL.md", ""),
    ] {
        let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
        let run = async |request: RunRequest| stage.agentline().run(request).await.unwrap().outcome().await;
        let request = || stage.request("say hello").surface(Surface::Acp);
        let clean = run(request()).await;
        assert_eq!((clean.verdict, clean.text.as_str()), (Verdict::Done, "hello"), "{}", shown(&clean));
        let path = stage.workspace().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let named = file.rsplit_once("/x").map_or(file, |(folder, _)| folder);
        assert_refused(&run(request()).await, named);
        assert_refused(&run(request().trust(Trust::No)).await, named);
        let trusted = run(request().trust(Trust::Full)).await;
        assert_eq!(trusted.verdict, Verdict::Done, "{file}: {}", shown(&trusted));
    }
}

#[tokio::test]
async fn warm_process_is_confirmed_for_each_workspace() {
    let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-acp"));
    let pool = Pool::new(stage.agentline(), PoolOptions::default());
    let run = async || pool.run(stage.request("say hello")).await.unwrap().outcome().await;
    let clean = run().await;
    assert_eq!(clean.verdict, Verdict::Done, "{}", shown(&clean));
    fs::write(stage.workspace().join(".env"), "A=1").unwrap();
    assert_refused(&run().await, ".env");
    fs::remove_file(stage.workspace().join(".env")).unwrap();
    let clean = run().await;
    assert_eq!(clean.verdict, Verdict::Done, "{}", shown(&clean));
    assert_eq!(pool.status().started, 1, "{:?}", pool.status());
    pool.close().await;
}

#[tokio::test]
async fn unconfirmed_agent_is_refused_in_headless_runs() {
    for surface in [Surface::StreamJson, Surface::Json] {
        let stage = FakeStage::new(env!("CARGO_BIN_EXE_fake-gemini"));
        let host_env = HostEnv::new(stage.variables(), stage.path().join("home"), stage.workspace());
        let agentline = Agentline::new(host_env).program("gemini", env!("CARGO_BIN_EXE_fake-gemini"));
        let run = async |trust: Trust| {
            let request = stage.request("hello").surface(surface).trust(trust);
            agentline.run(request).await.unwrap().outcome().await
        };
        let clean = run(Trust::Run).await;
        assert_eq!(clean.verdict, Verdict::Done, "{surface}: {}", shown(&clean));
        fs::write(stage.workspace().join(".env"), "A=1").unwrap();
        let refused = run(Trust::Run).await;
        let error = refused.error.as_ref().unwrap();
        assert_eq!(
            (refused.verdict, error.kind),
            (Verdict::Failed, FailureKind::Settings),
            "{}",
            shown(&refused)
        );
        let trusted = run(Trust::Full).await;
        assert_eq!(trusted.verdict, Verdict::Done, "{surface}: {}", shown(&trusted));
    }
}

/// Versions of Gemini CLI that load settings or `.env` files with other calls than those that the script intercepts.
#[tokio::test]
async fn agent_that_loads_its_configuration_differently_is_refused() {
    needs_real_gemini!();
    let real = real_gemini().unwrap().path.canonicalize().unwrap();
    for (is_warm, call, instead) in [
        (
            false,
            "readFileSync",
            "String(file).endsWith('settings.json') ? read(fs.openSync(file), ...rest) : read(file, ...rest)",
        ),
        (
            true,
            "existsSync",
            "String(file).endsWith('.env') ? fs.readdirSync('.').includes('.env') : read(file)",
        ),
    ] {
        let hostile = HostileWorkspace::new();
        let program = hostile.stage.outside().join("gemini");
        let script = format!(
            "#!/usr/bin/env node\nconst fs = require('node:fs');\nconst read = fs.{call};\n\
             fs.{call} = (file, ...rest) => {instead};\nrequire('node:module').syncBuiltinESMExports();\n\
             import({:?});\n",
            real.display().to_string()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let agentline = hostile.stage.agentline().program("gemini", &program);
        let run = async |request: RunRequest| agentline.run(request).await.unwrap().outcome().await;
        let request = hostile.request(SHELL).surface(Surface::Acp);
        if is_warm {
            let pool = Pool::new(agentline.clone(), PoolOptions::default());
            let warm = pool.run(request).await.unwrap().outcome().await;
            assert_refused(&warm, ".gemini/settings.json");
            pool.close().await;
        } else {
            assert_refused(&run(request).await, ".gemini/settings.json");
        }
        hostile.assert_unharmed();
    }
}
