//! Passes a conversation from one real agent to the next: each continues the session of the one before, and its model
//! gets everything that was said and done so far.

use crate::agents::acp_agents::harness::{AgentStage, CLAUDE, CODEX, OPENCODE, TestedAgent};
use agentline::{
    Agentline, PermissionMode, RunRequest, Verdict,
    sessions::{LossKind, TransplantOptions, Transplanted},
};
use agentline_mock::{
    gemini::{GeminiStep, Script},
    scripted::ModelStep,
};
use agentline_tests::{OPENCODE_MODEL, TestStage, needs_real_gemini, shown};
use std::{
    fs,
    path::{Path, PathBuf},
};

const GEMINI_SESSION: &str = "85611794-3609-48ad-94cc-0feefe2222e4";

/// What the recorded session of Gemini CLI says: a prompt, an answer, a file that was written, and a tool's result.
const RECORDED: &[&str] = &["Do the whole thing", "Let me write it.", "line2", "Successfully modified file"];

/// Places the recorded session into a home, as a session of this workspace.
fn place_recording(home: &Path, workspace: &Path) {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agentline-core/tests/captures");
    let file = "tmp__ws__chats__session-2026-11-15T05-02-85611794.jsonl";
    let chats = home.join(".gemini/tmp/ws/chats");
    fs::create_dir_all(&chats).unwrap();
    let from = captures.join("gemini/saved/0.61.0/full_tools").join(file);
    fs::copy(from, chats.join("session-2026-11-15T05-02-85611794.jsonl")).unwrap();
    fs::write(home.join(".gemini/tmp/ws/.project_root"), workspace.to_str().unwrap()).unwrap();
}

/// Copies a directory of an agent from one home to another.
fn copy_store(from: &Path, to: &Path, name: &str) {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            let target = to.join(path.file_name().unwrap());
            if kind.is_dir() {
                copy(&path, &target);
            } else if kind.is_file() {
                fs::copy(&path, &target).unwrap();
            }
        }
    }
    copy(&from.join(name), &to.join(name));
}

/// Transplants a session, and checks that nothing that was said or done is lost.
async fn transplant(agentline: &Agentline, id: &str, to: &str, workspace: PathBuf) -> Transplanted {
    let mut options = TransplantOptions::new(to).project(workspace);
    if to == OPENCODE.name {
        // Its server continues a session with the session's own model, which must be one that it knows.
        options = options.model(OPENCODE_MODEL);
    }
    let (agentline, id) = (agentline.clone(), id.to_owned());
    let work = move || {
        let found = agentline.sessions().find(&id, Path::new("/")).unwrap();
        agentline.transplant(&found, &options).unwrap()
    };
    let done = tokio::task::spawn_blocking(work).await.unwrap();
    let kept = [LossKind::Text, LossKind::Calls, LossKind::Results, LossKind::Media];
    assert!(done.losses.iter().all(|loss| !kept.contains(&loss.kind)), "{done:?}");
    done
}

/// Continues a session and returns the text of the model's last request.
async fn continue_session(stage: &AgentStage, id: &str, question: &str) -> String {
    let agentline = stage.agentline();
    let mut request = stage.request(PermissionMode::Default).resume(id);
    request.prompt = question.into();
    let outcome = agentline.run(request).await.unwrap().outcome().await;
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    let requests = stage.stage.model.turns();
    requests.last().unwrap().body.to_string()
}

fn assert_said(request: &str, words: &[&str]) {
    for word in words {
        assert!(request.contains(word), "no `{word}` in {request}");
    }
}

fn staged(agent: TestedAgent, question: &'static str, answer: &str) -> Option<AgentStage> {
    agent.stage_with(vec![(question, vec![ModelStep::text(answer)])])
}

#[tokio::test]
async fn a_conversation_passes_from_agent_to_agent() {
    needs_real_gemini!();
    let Some(claude) = staged(CLAUDE, "Question for Claude", "Claude answers Ottokar.") else { return };
    place_recording(&claude.stage.home(), &claude.stage.workspace());
    let new = transplant(&claude.agentline(), GEMINI_SESSION, "claude", claude.stage.workspace()).await;
    let request = continue_session(&claude, &new.id, "Question for Claude").await;
    assert_said(&request, RECORDED);
    assert_said(&request, &["\"name\":\"Write\"", "\"name\":\"Bash\"", "Question for Claude"]);

    let codex = staged(CODEX, "Question for Codex", "Codex answers Edeltraud.").unwrap();
    copy_store(&claude.stage.home(), &codex.stage.home(), ".claude");
    drop(claude);
    let new = transplant(&codex.agentline(), &new.id, "codex", codex.stage.workspace()).await;
    let request = continue_session(&codex, &new.id, "Question for Codex").await;
    assert_said(&request, RECORDED);
    assert_said(&request, &["Claude answers Ottokar.", "apply_patch", "exec_command", "Question for Codex"]);

    let gemini = TestStage::new(Script::always(GeminiStep::text("Gemini answers Balduin.")));
    copy_store(&codex.stage.home(), &gemini.home(), ".codex");
    drop(codex);
    let new = transplant(&gemini.agentline(), &new.id, "gemini", gemini.workspace()).await;
    let request: RunRequest = gemini.request("Question for Gemini").resume(&new.id);
    let outcome = gemini.agentline().run(request).await.unwrap().outcome().await;
    assert_eq!(outcome.verdict, Verdict::Done, "{}", shown(&outcome));
    let request = gemini.model.requests_to_main().last().unwrap().body.to_string();
    assert_said(&request, RECORDED);
    assert_said(&request, &["Claude answers Ottokar.", "Codex answers Edeltraud.", "Question for Gemini"]);
    assert_said(&request, &["\"name\":\"write_file\"", "\"name\":\"run_shell_command\""]);

    let opencode = staged(OPENCODE, "Question for OpenCode", "OpenCode answers Kunigunde.").unwrap();
    copy_store(&gemini.home(), &opencode.stage.home(), ".gemini");
    drop(gemini);
    let new = transplant(&opencode.agentline(), &new.id, "opencode", opencode.stage.workspace()).await;
    let request = continue_session(&opencode, &new.id, "Question for OpenCode").await;
    assert_said(&request, RECORDED);
    assert_said(&request, &["Codex answers Edeltraud.", "Gemini answers Balduin.", "Question for OpenCode"]);
    assert_said(&request, &["\"name\":\"write\"", "\"name\":\"bash\""]);
}
