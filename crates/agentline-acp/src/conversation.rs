//! One session of a client with an agent whose surface is translated.

use crate::{
    budget::SharedBudget,
    content,
    failure::{ErrorResponse, INVALID_PARAMS, INVALID_REQUEST},
    peer::ClientPeer,
    result::{has_too_many_turns, is_kind, meta},
    update::{UpdateWriter, permission_call},
    workspace::Workspace,
};
use agentline::{
    Event, FailureKind, Outcome, Permission, PermissionHandler, PermissionMode, PermissionRequest, Run,
    RunOptions, Session, Verdict,
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Instant,
};
use tokio::{sync::watch, time::sleep_until};

/// A session that is open for a client.
#[derive(Debug)]
pub(crate) struct AcpConversation {
    session: Session,
    /// The id that the client knows. An agent may give a resumed session another one.
    id: String,
    peer: ClientPeer,
    budget: SharedBudget,
    /// The loosest mode that the client may set: that of the settings.
    configured: PermissionMode,
    mode: Mutex<PermissionMode>,
    /// Stops the current prompt, if there is one.
    active: Mutex<Option<watch::Sender<bool>>>,
}

/// A prompt of a conversation, from its arrival to its end.
#[derive(Debug)]
pub(crate) struct ActivePrompt {
    conversation: Arc<AcpConversation>,
    cancelled: watch::Receiver<bool>,
}

impl AcpConversation {
    /// Opens a session of the agent.
    pub(crate) async fn open(
        workspace: Workspace,
        peer: ClientPeer,
        budget: SharedBudget,
    ) -> Result<Self, ErrorResponse> {
        let Workspace { agentline, request } = workspace;
        let resumed = request.resume.clone();
        let questions =
            PermissionQuestions { peer: peer.clone(), session: Arc::default(), always: Arc::default() };
        let session_id = Arc::clone(&questions.session);
        let handler = PermissionHandler::new(move |ask| {
            let questions = questions.clone();
            async move { questions.ask(ask).await }
        })
        .redacted();
        let configured = request.permission_mode;
        let options = RunOptions::new().permission_handler(handler);
        let session = agentline.session_with(request, options).await?;
        let id = resumed.unwrap_or_else(|| session.id().to_owned());
        // Nothing has set the id before.
        let _ = session_id.set(id.clone());
        let (mode, active) = (Mutex::new(configured), Mutex::default());
        Ok(Self { session, id, peer, budget, configured, mode, active })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Waits until no prompt is active.
    pub(crate) async fn idle(&self) {
        let active = lock(&self.active).as_ref().map(watch::Sender::subscribe);
        if let Some(mut active) = active {
            // The sender is dropped with the prompt.
            while active.changed().await.is_ok() {}
        }
    }

    /// Returns the modes of the session, for the client.
    pub(crate) fn modes(&self) -> Value {
        let known = PermissionMode::NAMES.iter().filter_map(|name| PermissionMode::parse(name));
        let offered = known.filter(|mode| self.permits(*mode));
        let all: Vec<Value> =
            offered.map(|mode| json!({"id": mode.name(), "name": mode_title(mode)})).collect();
        json!({"currentModeId": lock(&self.mode).name(), "availableModes": all})
    }

    /// Returns whether the settings permit a mode: no client gets a looser one.
    fn permits(&self, mode: PermissionMode) -> bool {
        mode == self.configured || (mode.is_stricter_than(self.configured) && mode != PermissionMode::Prompt)
    }

    /// Sets the mode of the next prompts.
    pub(crate) fn set_mode(&self, id: &str) -> Result<Value, ErrorResponse> {
        let mode = PermissionMode::parse(id).filter(|mode| self.permits(*mode));
        let mode = mode.ok_or_else(|| {
            ErrorResponse::new(INVALID_PARAMS, format!("the mode `{id}` is not one of the session's modes"))
        })?;
        *lock(&self.mode) = mode;
        Ok(json!({}))
    }

    /// Stops the current prompt.
    pub(crate) fn cancel(&self) {
        if let Some(stop) = &*lock(&self.active) {
            stop.send_replace(true);
        }
    }

    /// Begins a prompt. From now on, it can be cancelled.
    pub(crate) fn begin(self: Arc<Self>) -> Result<ActivePrompt, ErrorResponse> {
        let (stop, cancelled) = watch::channel(false);
        let mut active = lock(&self.active);
        if active.is_some() {
            return Err(ErrorResponse::new(INVALID_REQUEST, "a prompt is already active in this session"));
        }
        *active = Some(stop);
        drop(active);
        Ok(ActivePrompt { conversation: self, cancelled })
    }

    /// Ends the agent and waits for its exit.
    pub(crate) async fn close(self) {
        self.session.close().await;
    }
}

impl ActivePrompt {
    /// Sends the prompt to the agent, and its events to the client. Returns the response.
    pub(crate) async fn run(self, blocks: Vec<Value>) -> Result<Value, ErrorResponse> {
        let conversation = &self.conversation;
        let mut request = conversation.session.request();
        request.prompt = content::prompt_text(&blocks)?;
        request.permission_mode = *lock(&conversation.mode);
        request.limits = conversation.budget.remaining(&request.limits).map_err(ErrorResponse::used_up)?;
        conversation.peer.record_prompt(&conversation.id, &blocks);
        let run = conversation.session.prompt_with(request).await?;
        let outcome = self.follow(run).await;
        conversation.budget.add(&outcome);
        prompt_result(&outcome)
    }

    async fn follow(&self, mut run: Run) -> Outcome {
        let (mut writer, mut cancelled) = (UpdateWriter::default(), self.cancelled.clone());
        let mut is_cancelled = false;
        loop {
            let output_due = writer.deadline();
            let record = tokio::select! {
                record = run.next() => Some(record),
                () = sleep_until(output_due.unwrap_or_else(Instant::now).into()), if output_due.is_some() => None,
                Ok(_) = cancelled.wait_for(|stop| *stop), if !is_cancelled => {
                    is_cancelled = true;
                    run.cancel();
                    continue;
                }
            };
            let Some(record) = record else {
                self.send(writer.due(Instant::now())).await;
                continue;
            };
            match record.map(|record| record.event) {
                Some(Event::Outcome { outcome }) => return *outcome,
                Some(event) => self.send(writer.update(&event)).await,
                // A run ends with its outcome; without one, it reports why.
                None => return run.outcome().await,
            }
        }
    }

    /// Sends an update to the client, if there is one.
    async fn send(&self, update: Option<Value>) {
        if let Some(update) = update {
            let peer = &self.conversation.peer;
            peer.update(self.conversation.id(), &update);
            peer.wait_for_room().await;
        }
    }
}

impl Drop for ActivePrompt {
    fn drop(&mut self) {
        *lock(&self.conversation.active) = None;
    }
}

/// Asks the client for permission where no rule and no mode decides.
#[derive(Clone, Debug)]
struct PermissionQuestions {
    peer: ClientPeer,
    session: Arc<OnceLock<String>>,
    /// The tools that the user has allowed for the rest of the session.
    always: Arc<Mutex<HashSet<String>>>,
}

impl PermissionQuestions {
    async fn ask(&self, request: PermissionRequest) -> Permission {
        let tool = request.tool.clone();
        // Commands of the same tool differ, so each one needs a permission of its own.
        let can_last = request.command.is_none();
        if can_last && lock(&self.always).contains(&tool) {
            return Permission::Allow;
        }
        let mut options = vec![json!({"optionId": "allow", "name": "Allow", "kind": "allow_once"})];
        if can_last {
            let name = format!("Always allow {tool} in this session");
            options.push(json!({"optionId": "always", "name": name, "kind": "allow_always"}));
        }
        options.push(json!({"optionId": "reject", "name": "Reject", "kind": "reject_once"}));
        let params = json!({
            "sessionId": self.session.get(), "toolCall": permission_call(&request), "options": options,
        });
        let answer = self.peer.request("session/request_permission", &params).await;
        let picked = answer.map(|answer| serde_json::from_str::<Value>(answer.get()).unwrap_or_default());
        match picked.as_ref().map(|answer| answer["outcome"]["optionId"].as_str().unwrap_or_default()) {
            Ok("allow") => Permission::Allow,
            Ok("always") if can_last => {
                lock(&self.always).insert(tool);
                Permission::Allow
            }
            Ok("reject") => Permission::Deny("rejected by the user".to_owned()),
            Ok(_) => Permission::Deny("cancelled by the client".to_owned()),
            Err(error) => Permission::Deny(format!("the client did not answer: {error}")),
        }
    }
}

/// Returns the response to `session/prompt`.
fn prompt_result(outcome: &Outcome) -> Result<Value, ErrorResponse> {
    let stop = match outcome.verdict {
        Verdict::Done | Verdict::DoneWithDenials | Verdict::InvalidOutput => "end_turn",
        Verdict::Empty if is_kind(outcome, FailureKind::Blocked) => "refusal",
        Verdict::Empty => "end_turn",
        Verdict::Cancelled => "cancelled",
        Verdict::LimitReached if has_too_many_turns(outcome) => "max_turn_requests",
        _ => return Err(ErrorResponse::of_outcome(outcome)),
    };
    Ok(json!({"stopReason": stop, "_meta": meta(outcome)}))
}

fn mode_title(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::AcceptEdits => "Accept edits",
        PermissionMode::Bypass => "Bypass permissions",
        PermissionMode::Plan => "Plan",
        PermissionMode::Auto => "Approve each use",
        PermissionMode::Deny => "Deny what no rule allows",
        _ => "Ask",
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
