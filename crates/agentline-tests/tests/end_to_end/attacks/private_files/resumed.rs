//! Checks that killing a resumed run never loses the user's session.

use agentline::{Pool, PoolOptions, Verdict};
use agentline_mock::gemini::{GeminiModel, GeminiStep, Script};
use agentline_tests::{
    MODEL, TestStage, exit_of, needs_real_gemini, real_gemini, shown, survivors, wait_until,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Returns the files of a session in the user's store.
fn files(stage: &TestStage, session: &str) -> Vec<PathBuf> {
    let ending = format!("-{}.jsonl", &session[..8]);
    let projects = fs::read_dir(stage.home().join(".gemini/tmp")).into_iter().flatten().flatten();
    let chats = projects.flat_map(|project| fs::read_dir(project.path().join("chats")).into_iter().flatten());
    let mut files: Vec<PathBuf> = chats.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(&ending));
    files.sort();
    files
}

/// Starts the agent as its user does, with default settings.
fn bare_start(stage: &TestStage) {
    let program = real_gemini().expect("real agents are enabled");
    let mut command = Command::new(program.path);
    command.args(program.args).args(["-m", MODEL, "--skip-trust", "-p", "an ordinary start"]);
    command.env_clear().envs(stage.variables()).env("GEMINI_CLI_NO_RELAUNCH", "1");
    let output = command.current_dir(stage.workspace()).stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}

/// Resumes the session with the whole program and kills it with SIGKILL after the model request.
fn kill_amid_resume(stage: &TestStage, session: &str) {
    let asked = stage.model.requests_to_main().len();
    let mark = format!("MARK_OF_THE_TEST={}", stage.outside().display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentline-under-test"));
    command
        .args(["run", "-m", MODEL, "--resume", session, "--pass-env", "MARK_OF_THE_TEST", "never"])
        .env_clear()
        .envs(stage.variables())
        .env("MARK_OF_THE_TEST", stage.outside())
        .env("GEMINI_CLI_PATH", real_gemini().expect("real agents are enabled").path)
        .current_dir(stage.workspace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut program = command.spawn().expect("it starts");
    wait_until("the model is asked", || stage.model.requests_to_main().len() > asked);
    program.kill().expect("it can be killed");
    exit_of(&mut program, "the end of the killed program");
    wait_until("nothing is left running", || survivors(&mark).is_empty());
}

fn stored(files: &[PathBuf]) -> String {
    files.iter().map(|file| fs::read_to_string(file).expect("a session file")).collect()
}

fn rename_to_minute(file: &Path, minute: &str, session: &str) -> PathBuf {
    let named = file.with_file_name(format!("session-{minute}-{}.jsonl", &session[..8]));
    fs::rename(file, &named).expect("the file can be renamed");
    named
}

#[tokio::test]
async fn resumed_session_survives_a_kill() {
    needs_real_gemini!();
    let model = GeminiModel::matching([
        ("never", Script::always(GeminiStep::text("late").delay(120_000))),
        ("", Script::always(GeminiStep::text("ok"))),
    ]);
    let stage = TestStage::with_model(model.expect("a free port on loopback"));
    let agentline = stage.agentline();
    let pool = Pool::new(agentline.clone(), PoolOptions::default());
    let run = async |prompt: &str, is_warm: bool| {
        let request = stage.request(prompt);
        let run = if is_warm { pool.run(request).await } else { agentline.run(request).await };
        let outcome = run.expect("a valid request").outcome().await;
        assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
        outcome.session_id.expect("a session")
    };
    let session = run("remember the number 4711", true).await;
    // The agent creates a second file for a session that was started in another minute.
    let original = rename_to_minute(&files(&stage, &session)[0], "2026-01-01T00-00", &session);
    kill_amid_resume(&stage, &session);
    let left = files(&stage, &session);
    assert_eq!(left.len(), 2, "the kill leaves an empty duplicate behind: {left:?}");
    let duplicate = left.iter().find(|file| **file != original).expect("a second file").clone();
    let content = fs::read(&duplicate).expect("a session file");

    // Every run in the project removes it, on a warm process and before a new one scans its sessions.
    run("on a warm process", true).await;
    assert_eq!(pool.status().started, 1, "{:?}", pool.status());
    assert_eq!(files(&stage, &session), std::slice::from_ref(&original), "warm");
    pool.close().await;
    fs::write(&duplicate, &content).expect("a session file");
    run("a cold start", false).await;
    assert_eq!(files(&stage, &session), std::slice::from_ref(&original), "cold");

    bare_start(&stage);
    assert!(stored(&files(&stage, &session)).contains("4711"), "{:?}", files(&stage, &session));
}
