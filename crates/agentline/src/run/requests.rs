//! Answers an agent's requests: permission to use a tool, reading a file, writing a file.
//!
//! The policy decides first. If it leaves the decision open, the [`PermissionHandler`] of the run decides; without a handler, the
//! request is refused according to the permission mode. A handler is never asked about anything that a rule or the
//! workspace boundary refuses.

use crate::{
    run::permission_handler::{DenialFeedback, PermissionHandler, describe},
    workspace::files::{AgentFiles, FileError},
};
use agentline_core::{
    Diff, HostRequest, HostResponse, OUTSIDE_WORKSPACE, PermissionDecision, PermissionRequest, Policy,
    PolicyDecision, Problem, Problems, Redactor, RunRequest, ToolKind, error_chain,
};
use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// An answer to the agent and the decision behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandledRequest {
    /// The answer that is sent to the agent.
    pub answer: HostResponse,
    /// The decision: present for every permission, for a write that no earlier permission covers, for a read that a
    /// rule restricts, and for a path outside the workspace.
    pub ruling: Option<PermissionDecision>,
}

impl HandledRequest {
    /// Returns whether a request was denied, which the outcome must report.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        self.ruling.as_ref().is_some_and(|ruling| !ruling.allow)
    }

    fn plain(answer: HostResponse) -> Self {
        Self { answer, ruling: None }
    }

    pub(crate) fn refused(ruling: PermissionDecision) -> Self {
        let reason = ruling.rule.as_ref().or(ruling.reason.as_ref()).map_or("", String::as_str);
        let answer = HostResponse::Error(format!("denied: by {}: {reason}", ruling.by));
        Self { answer, ruling: Some(ruling) }
    }
}

/// Answers the requests of one run.
#[derive(Clone, Debug)]
pub struct RequestHandler {
    policy: Arc<Policy>,
    files: Arc<AgentFiles>,
    permission_handler: Option<PermissionHandler>,
    /// Resolved paths of files whose change was allowed and has not been made yet.
    granted: Arc<Mutex<Vec<String>>>,
    feedback: DenialFeedback,
    redactor: Redactor,
}

impl RequestHandler {
    /// Creates a request handler with the policy of a request, for the workspace `cwd`.
    ///
    /// # Errors
    /// Fails if a rule is invalid or the workspace cannot be opened.
    pub fn new(request: &RunRequest, cwd: &Path) -> Result<Self, Problems> {
        Self::with(request, cwd, AgentFiles::new(cwd, request.include_directories.iter().cloned()))
    }

    /// Creates a request handler for a workspace path whose links are already resolved.
    pub(crate) fn in_resolved(request: &RunRequest, cwd: &Path) -> Result<Self, Problems> {
        let included = request.include_directories.iter().cloned();
        Self::with(request, cwd, AgentFiles::of_resolved(cwd.to_owned(), included))
    }

    fn with(request: &RunRequest, cwd: &Path, files: io::Result<AgentFiles>) -> Result<Self, Problems> {
        let policy = Policy::new(request, cwd)?;
        let files = files.map_err(|error| {
            let message = format!("cannot open `{}`: {error}", cwd.display());
            Problems(vec![Problem::new("working_dir", message).hint("use an existing directory")])
        })?;
        let policy = policy.also_at(files.workspace());
        Ok(Self {
            policy: Arc::new(policy),
            files: Arc::new(files),
            permission_handler: None,
            granted: Arc::default(),
            feedback: DenialFeedback::default(),
            redactor: Redactor::default(),
        })
    }

    /// Sets the secrets that a [redacted](PermissionHandler::redacted) handler does not see.
    #[must_use]
    pub(crate) fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Sets the permission handler for requests that the policy leaves open.
    #[must_use]
    pub fn permission_handler(mut self, handler: PermissionHandler) -> Self {
        self.permission_handler = Some(handler);
        self
    }

    /// Returns the reasons for denials that the agent has not received yet.
    pub(crate) fn feedback(&self) -> DenialFeedback {
        self.feedback.clone()
    }

    /// Declares a server whose tools belong to the host and need no permission.
    #[must_use]
    pub fn own_server(mut self, name: impl Into<String>) -> Self {
        self.policy = Arc::new(Arc::unwrap_or_clone(self.policy).own_server(name));
        self
    }

    /// Replaces the MCP servers whose tools need no permission where no rule decides.
    #[must_use]
    pub(crate) fn trusted_servers(mut self, names: &[String]) -> Self {
        self.policy = Arc::new(Arc::unwrap_or_clone(self.policy).trusted_servers(names.iter().cloned()));
        self
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the files that requests can access.
    #[must_use]
    pub fn files(&self) -> &AgentFiles {
        &self.files
    }

    /// Answers one request. Requests other than permissions and files get an error.
    pub async fn answer(&self, ask: HostRequest) -> HandledRequest {
        match ask {
            HostRequest::Permission(ask) => self.permission(*ask).await,
            HostRequest::ReadFile { path, line, limit } => self.read(path, line, limit).await,
            HostRequest::WriteFile { path, text } => self.write(path, text).await,
            _ => {
                HandledRequest::plain(HostResponse::Error("unsupported: this request is not handled".into()))
            }
        }
    }

    async fn permission(&self, ask: PermissionRequest) -> HandledRequest {
        let changed: Vec<String> = Policy::changed_files(&ask).into_iter().map(str::to_owned).collect();
        let ruling = match self.decide(&ask).await {
            PolicyDecision::Ask(refusal) => self.ask_user(ask, refusal).await,
            decided => decided.ruling().clone(),
        };
        if ruling.allow {
            self.grant(&changed);
        }
        HandledRequest { answer: HostResponse::PermissionDecided(ruling.clone()), ruling: Some(ruling) }
    }

    /// Reads a file. Reading needs no permission of its own, so only rules can refuse it.
    async fn read(&self, path: String, line: Option<u64>, limit: Option<u64>) -> HandledRequest {
        let ask = on_file("Read", ToolKind::Read, &path);
        let decision = self.decide(&ask).await;
        let mut ruling = None;
        if decision.ruling().by == "rule" && !decision.ruling().allow {
            let found = match decision {
                PolicyDecision::Ask(refusal) => self.ask_user(ask, refusal).await,
                decided => decided.ruling().clone(),
            };
            if !found.allow {
                return HandledRequest::refused(found);
            }
            ruling = Some(found);
        }
        let files = self.files.clone();
        match on_disk(move || files.read(&path, line, limit)).await {
            Ok(text) => HandledRequest { answer: HostResponse::Text(text), ruling },
            Err(error) => failed(&error),
        }
    }

    /// Writes a file. A change that was just allowed needs no second decision; any other write is decided like a
    /// permission request.
    async fn write(&self, path: String, text: String) -> HandledRequest {
        let mut ruling = None;
        if !self.take_grant(&path) {
            // Without a tool name, rules for writing and rules for editing both apply.
            let mut ask = on_file("", ToolKind::Write, &path);
            let found = match self.decide(&ask).await {
                PolicyDecision::Ask(refusal) => {
                    let (files, named) = (self.files.clone(), path.clone());
                    let mut diff = Diff::default();
                    diff.old = on_disk(move || files.read(&named, None, None)).await.ok();
                    (diff.path, diff.new) = (path.clone(), text.clone());
                    ask.diffs = vec![diff];
                    self.ask_user(ask, refusal).await
                }
                decided => decided.ruling().clone(),
            };
            if !found.allow {
                return match found.reason.as_deref() {
                    Some(OUTSIDE_WORKSPACE) => failed(&FileError::Outside(path)),
                    _ => HandledRequest::refused(found),
                };
            }
            ruling = Some(found);
        }
        let files = self.files.clone();
        match on_disk(move || files.write(&path, &text)).await {
            Ok(()) => HandledRequest { answer: HostResponse::Done, ruling },
            Err(error) => failed(&error),
        }
    }

    pub(crate) async fn decide(&self, ask: &PermissionRequest) -> PolicyDecision {
        let (policy, files, ask) = (self.policy.clone(), self.files.clone(), ask.clone());
        let decided = tokio::task::spawn_blocking(move || {
            if policy.has_path_patterns() {
                policy.decide(&ask, &|path| files.resolve_with_names(path))
            } else {
                policy.decide(&ask, &|path| files.resolve(path))
            }
        });
        let decided = decided.await;
        decided.unwrap_or_else(|_| PolicyDecision::Deny(PermissionDecision::deny("agentline", "internal")))
    }

    async fn ask_user(&self, ask: PermissionRequest, refusal: PermissionDecision) -> PermissionDecision {
        match &self.permission_handler {
            Some(permission_handler) => {
                let use_of_tool = describe(&ask);
                let mut shown = ask;
                if permission_handler.is_redacted {
                    self.redactor.permission_request(&mut shown);
                }
                let (mut ruling, feedback) = permission_handler.ask(shown).await;
                if let Some(reason) = feedback {
                    self.feedback.add(&use_of_tool, &reason);
                }
                ruling.rule = refusal.rule;
                ruling
            }
            None => refusal,
        }
    }

    pub(crate) fn grant(&self, paths: &[String]) {
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        for path in paths {
            let real = self.files.resolve(path).path;
            if !granted.contains(&real) {
                granted.push(real);
            }
        }
    }

    pub(crate) fn take_grant(&self, path: &str) -> bool {
        let real = self.files.resolve(path).path;
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let found = granted.iter().position(|one| *one == real);
        found.map(|at| granted.swap_remove(at)).is_some()
    }
}

/// Builds the permission request for a file operation.
pub(crate) fn on_file(tool: &str, kind: ToolKind, path: &str) -> PermissionRequest {
    let mut ask = PermissionRequest::default();
    ask.tool = tool.to_owned();
    ask.kind = kind;
    ask.paths = vec![path.to_owned()];
    ask
}

async fn on_disk<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let lost = |_| Err(FileError::Io { path: String::new(), source: std::io::Error::other("interrupted") });
    tokio::task::spawn_blocking(act).await.unwrap_or_else(lost)
}

pub(crate) fn failed(error: &FileError) -> HandledRequest {
    let outside = matches!(error, FileError::Outside(_));
    HandledRequest {
        answer: HostResponse::Error(error_chain(error)),
        ruling: outside.then(|| PermissionDecision::deny("agentline", OUTSIDE_WORKSPACE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::permission_handler::Permission;

    #[tokio::test]
    async fn reason_for_a_denial_is_sent_once() {
        let handler = PermissionHandler::new(|_| async { Permission::DenyWithFeedback("use git mv".into()) });
        let dir = stage();
        let mut ask = PermissionRequest::default();
        (ask.native_tool, ask.command) = ("run_shell_command".into(), Some("mv a b".into()));
        let answerer = answerer(&dir, mode(Mode::Default)).permission_handler(handler);
        let answered = answerer.answer(HostRequest::Permission(Box::new(ask))).await;
        assert_eq!(summary(&answered), "deny callback use git mv -");
        let prompt = answerer.feedback().take_prompt().unwrap();
        assert!(prompt.contains("- run_shell_command `mv a b`: use git mv\n"), "{prompt}");
        assert_eq!(answerer.feedback().take_prompt(), None);
    }

    #[tokio::test]
    async fn redacted_handler_sees_no_secrets_and_rules_decide_on_the_original() {
        const SECRET: &str = "hush-hush-0123456789";
        let dir = stage();
        let (handler, requests) = yes();
        let request = mode(Mode::Default).deny(format!("Bash(rm {SECRET}*)"));
        let answerer =
            answerer(&dir, request).permission_handler(handler.redacted()).redactor(Redactor::new([SECRET]));
        let denied = answerer.answer(command(&format!("rm {SECRET}"))).await;
        assert!(denied.is_denial(), "{}", summary(&denied));
        let mut ask = on_file("Bash", ToolKind::Shell, "src/a");
        (ask.title, ask.command) = (SECRET.into(), Some(format!("curl -H {SECRET}")));
        (ask.paths, ask.input) = (vec![SECRET.into()], serde_json::value::to_raw_value(SECRET).ok());
        let mut diff = Diff::default();
        (diff.path, diff.old, diff.new) = ("src/a".into(), Some(SECRET.into()), SECRET.into());
        ask.diffs = vec![diff];
        answerer.answer(HostRequest::Permission(Box::new(ask))).await;
        let asked = requests.lock().unwrap();
        assert_eq!(asked.len(), 1);
        let shown = format!("{:?}", asked[0]);
        assert!(shown.contains("curl -H [redacted]") && !shown.contains(SECRET), "{shown}");
    }

    use agentline_core::PermissionMode as Mode;

    fn stage() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::fs::write(dir.path().join("src/a"), "old\n").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        dir
    }

    fn answerer(dir: &tempfile::TempDir, request: RunRequest) -> RequestHandler {
        RequestHandler::new(&request, dir.path()).unwrap()
    }

    fn mode(mode: Mode) -> RunRequest {
        RunRequest::new("x").permission_mode(mode)
    }

    fn edit(path: &str) -> HostRequest {
        HostRequest::Permission(Box::new(on_file("Edit", ToolKind::Edit, path)))
    }

    fn command(text: &str) -> HostRequest {
        let mut ask = PermissionRequest::default();
        (ask.tool, ask.kind, ask.command) = ("Bash".into(), ToolKind::Shell, Some(text.into()));
        HostRequest::Permission(Box::new(ask))
    }

    fn write(path: &str) -> HostRequest {
        HostRequest::WriteFile { path: path.into(), text: "new\n".into() }
    }

    fn read(path: &str) -> HostRequest {
        HostRequest::ReadFile { path: path.into(), line: None, limit: None }
    }

    fn summary(answered: &HandledRequest) -> String {
        let ruling = answered.ruling.as_ref().unwrap();
        let reason = ruling.reason.as_deref().unwrap_or("-");
        let rule = ruling.rule.as_deref().unwrap_or("-");
        format!("{} {} {reason} {rule}", if ruling.allow { "allow" } else { "deny" }, ruling.by)
    }

    /// Returns a handler that allows everything and records the requests.
    fn yes() -> (PermissionHandler, Arc<Mutex<Vec<PermissionRequest>>>) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = requests.clone();
        let handler = PermissionHandler::new(move |ask| {
            recorded.lock().unwrap().push(ask);
            async { Permission::Allow }
        });
        (handler, requests)
    }

    #[tokio::test]
    async fn permission_handler_gets_only_open_requests() {
        let dir = stage();
        let (handler, requests) = yes();
        let request = mode(Mode::Default).allow("Bash(git *)").deny("Bash(rm *)").ask("Bash(git push *)");
        let answerer = answerer(&dir, request).permission_handler(handler);
        for (ask, expected, questions) in [
            (command("git log"), "allow rule - Bash(git *)", 0),
            (command("rm x"), "deny rule rule Bash(rm *)", 0),
            (edit("/etc/passwd"), "deny agentline outside_workspace -", 0),
            (command("ls"), "allow callback - -", 1),
            (command("git push"), "allow callback - Bash(git push *)", 2),
            (edit("src/a"), "allow callback - -", 3),
        ] {
            let label = format!("{ask:?}");
            let answered = answerer.answer(ask).await;
            assert_eq!(summary(&answered), expected, "{label}");
            assert_eq!(requests.lock().unwrap().len(), questions, "{label}");
            assert_eq!(answered.answer, HostResponse::PermissionDecided(answered.ruling.clone().unwrap()));
        }
        assert_eq!(requests.lock().unwrap()[0].command.as_deref(), Some("ls"));
    }

    #[tokio::test]
    async fn mode_denies_without_a_permission_handler() {
        let dir = stage();
        for (request, expected) in [
            (mode(Mode::Default), "deny mode mode -"),
            (mode(Mode::Prompt), "deny mode mode -"),
            (mode(Mode::Auto), "allow mode auto -"),
            (mode(Mode::Auto).ask("Bash"), "deny rule rule Bash"),
        ] {
            let answered = answerer(&dir, request).answer(command("ls")).await;
            assert_eq!(summary(&answered), expected);
            assert_eq!(answered.is_denial(), expected.starts_with("deny"));
        }
    }

    #[tokio::test]
    async fn failing_permission_handler_denies_and_an_abandoned_one_ends() {
        let dir = stage();
        let panics = PermissionHandler::new(|_| async { panic!("on purpose") });
        let panics_at_once =
            PermissionHandler::new(|_| -> std::future::Ready<Permission> { panic!("on purpose") });
        for handler in [panics, panics_at_once] {
            let answered =
                answerer(&dir, mode(Mode::Default)).permission_handler(handler).answer(command("ls")).await;
            assert_eq!(summary(&answered), "deny callback callback_failed -");
        }
        let refuses =
            PermissionHandler::new(|_| async { Permission::Deny("not today".into()) }).at_terminal();
        let answered =
            answerer(&dir, mode(Mode::Prompt)).permission_handler(refuses).answer(command("ls")).await;
        assert_eq!(summary(&answered), "deny terminal not today -");

        let (sender, mut ended) = tokio::sync::mpsc::channel::<()>(1);
        let waits = PermissionHandler::new(move |_| {
            let sender = sender.clone();
            async move {
                let _sender = sender;
                std::future::pending().await
            }
        });
        let answerer = answerer(&dir, mode(Mode::Default)).permission_handler(waits);
        let waiting = answerer.answer(command("ls"));
        assert!(tokio::time::timeout(std::time::Duration::from_millis(200), waiting).await.is_err());
        drop(answerer);
        let end = tokio::time::timeout(std::time::Duration::from_secs(20), ended.recv()).await;
        assert_eq!(end, Ok(None), "the handler is still running");
    }

    #[tokio::test]
    async fn permitted_write_is_made_once_and_others_are_checked() {
        let dir = stage();
        let text = || std::fs::read_to_string(dir.path().join("src/a")).unwrap();
        let strict = answerer(&dir, mode(Mode::Default));
        assert_eq!(summary(&strict.answer(write("src/a")).await), "deny mode mode -");
        assert_eq!(text(), "old\n");

        let (handler, requests) = yes();
        let lenient = answerer(&dir, mode(Mode::Default)).permission_handler(handler);
        let spelled = dir.path().join("src/../src/a");
        assert_eq!(summary(&lenient.answer(edit(spelled.to_str().unwrap())).await), "allow callback - -");
        let done = lenient.answer(write("src/a")).await;
        assert_eq!((done.answer, done.ruling, text().as_str()), (HostResponse::Done, None, "new\n"));
        assert_eq!(requests.lock().unwrap().len(), 1);
        // The permission was for one write; the next write asks again, with the change attached.
        assert_eq!(summary(&lenient.answer(write("src/a")).await), "allow callback - -");
        let requests = requests.lock().unwrap();
        assert_eq!(
            (requests[1].diffs[0].old.as_deref(), requests[1].diffs[0].new.as_str()),
            (Some("new\n"), "new\n")
        );
    }

    #[tokio::test]
    async fn file_requests_obey_rules_and_the_workspace_boundary() {
        let dir = stage();
        let request = mode(Mode::Bypass).deny("Read(secret)").deny("Edit(src/**)").allow("Write(/etc/**)");
        let answerer = answerer(&dir, request);
        for (ask, expected, message) in [
            (read("secret"), "deny rule rule Read(secret)", "denied: by rule: Read(secret)"),
            (write("src/a"), "deny rule rule Edit(src/**)", "denied: by rule: Edit(src/**)"),
            (
                read("../x"),
                "deny agentline outside_workspace -",
                "outside_workspace: `../x` is not in the workspace",
            ),
            (
                write("/x"),
                "deny agentline outside_workspace -",
                "outside_workspace: `/x` is not in the workspace",
            ),
            (
                write("/etc/x"),
                "deny agentline outside_workspace -",
                "outside_workspace: `/etc/x` is not in the workspace",
            ),
        ] {
            let answered = answerer.answer(ask).await;
            assert_eq!(summary(&answered), expected);
            assert_eq!(answered.answer, HostResponse::Error(message.into()));
        }
        assert_eq!(
            answerer.answer(read("src/a")).await,
            HandledRequest::plain(HostResponse::Text("old\n".into()))
        );
        let missing = answerer.answer(read("src/b")).await;
        assert_eq!(
            missing,
            HandledRequest::plain(HostResponse::Error("not_found: `src/b` does not exist".into()))
        );
        assert!(!missing.is_denial());
    }

    #[test]
    fn missing_workspace_is_a_problem() {
        let problems = RequestHandler::new(&RunRequest::new("x"), Path::new("/nowhere/at/all")).unwrap_err();
        assert_eq!(problems.0[0].key, "working_dir");
    }
}
