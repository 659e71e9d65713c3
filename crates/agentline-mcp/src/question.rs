//! Permission requests that wait for the client, each with a clock.
//!
//! The agent's request is put on the board of its run. Whichever call of the client is waiting for the run asks the
//! client. Without such a call, or without an answer in time, the request is refused.

use agentline::{Permission, PermissionHandler, PermissionRequest};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};

/// The maximum length of a command or path in a question, in characters.
const LONGEST_TARGET: usize = 2000;

/// The open questions of one run.
#[derive(Debug)]
pub(crate) struct QuestionBoard {
    open: watch::Sender<Vec<Arc<RunQuestion>>>,
    patience: Duration,
}

/// One permission request.
#[derive(Debug)]
pub(crate) struct RunQuestion {
    /// An id that no other question has.
    pub(crate) id: String,
    /// The text for the user.
    pub(crate) message: String,
    /// When the request is refused.
    pub(crate) deadline: Instant,
    answer: Mutex<Option<oneshot::Sender<bool>>>,
}

impl RunQuestion {
    /// Returns whether the question has no answer yet.
    pub(crate) fn is_open(&self) -> bool {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Answers the question. Later answers have no effect.
    pub(crate) fn answer(&self, allow: bool) {
        let sender = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // The agent may have ended.
            let _ = sender.send(allow);
        }
    }
}

impl QuestionBoard {
    /// Creates a board whose questions are refused after `patience`.
    pub(crate) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self { open: watch::Sender::new(Vec::new()), patience })
    }

    /// Returns the open questions, as a value that reports changes.
    pub(crate) fn open(&self) -> watch::Receiver<Vec<Arc<RunQuestion>>> {
        self.open.subscribe()
    }

    /// Returns an open question by its id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<RunQuestion>> {
        self.open.borrow().iter().find(|question| question.id == id).cloned()
    }

    /// Returns the permission handler of the run.
    pub(crate) fn handler(self: &Arc<Self>) -> PermissionHandler {
        let board = Arc::clone(self);
        PermissionHandler::new(move |request| {
            let board = Arc::clone(&board);
            async move { board.ask(describe(&request)).await }
        })
        .redacted()
    }

    async fn ask(&self, message: String) -> Permission {
        let (sender, answer) = oneshot::channel();
        let question = Arc::new(RunQuestion {
            id: uuid::Uuid::new_v4().to_string(),
            message,
            deadline: Instant::now() + self.patience,
            answer: Mutex::new(Some(sender)),
        });
        self.open.send_modify(|open| open.push(Arc::clone(&question)));
        let answer = timeout_at(question.deadline, answer).await;
        self.open.send_modify(|open| open.retain(|other| other.id != question.id));
        match answer {
            Ok(Ok(true)) => Permission::Allow,
            Ok(Ok(false)) => Permission::Deny("the user of the MCP client refused it".into()),
            _ => Permission::Deny(format!("the MCP client did not answer within {:?}", self.patience)),
        }
    }
}

/// Describes the use of a tool for the user.
fn describe(request: &PermissionRequest) -> String {
    let tool = if request.native_tool.is_empty() { &request.tool } else { &request.native_tool };
    let mut targets: Vec<&str> = request.command.as_deref().into_iter().collect();
    targets.extend(request.paths.iter().map(String::as_str));
    if targets.is_empty() && !request.title.is_empty() {
        targets.push(&request.title);
    }
    let target: String = targets.join(", ").chars().map(visible).take(LONGEST_TARGET).collect();
    match target.as_str() {
        "" => format!("An agent wants to use the tool `{tool}`. Allow it?"),
        target => format!("An agent wants to use the tool `{tool}`: {target}\n\nAllow it?"),
    }
}

/// Replaces characters with which a text could hide a part of itself.
fn visible(c: char) -> char {
    let hides = c.is_control() && c != '\n'
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    if hides { '\u{fffd}' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn question_without_an_answer_is_refused_in_time() {
        let board = QuestionBoard::new(Duration::from_millis(20));
        let permission = board.ask("?".into()).await;
        assert_eq!(permission, Permission::Deny("the MCP client did not answer within 20ms".into()));
        assert!(board.open().borrow().is_empty(), "it is still open");
    }

    #[tokio::test]
    async fn answer_of_the_client_decides() {
        for (allow, expected) in [
            (true, Permission::Allow),
            (false, Permission::Deny("the user of the MCP client refused it".into())),
        ] {
            let board = QuestionBoard::new(Duration::from_secs(30));
            let mut open = board.open();
            let asked = tokio::spawn({
                let board = Arc::clone(&board);
                async move { board.ask("?".into()).await }
            });
            let question = open.wait_for(|open| !open.is_empty()).await.unwrap()[0].clone();
            assert!(board.find(&question.id).is_some());
            assert!(question.is_open());
            question.answer(allow);
            assert!(!question.is_open());
            question.answer(!allow);
            assert_eq!(asked.await.unwrap(), expected);
        }
    }

    #[test]
    fn question_shows_the_whole_command() {
        let mut request = PermissionRequest::default();
        request.tool = "Bash".into();
        request.command = Some("rm x\u{202e}\u{1b}[2K".into());
        assert_eq!(
            describe(&request),
            "An agent wants to use the tool `Bash`: rm x\u{fffd}\u{fffd}[2K\n\nAllow it?"
        );
    }
}
