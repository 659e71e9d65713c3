//! Decides on requests of an agent whose client carries them out: what the policy refuses never reaches the client.

use crate::{
    run::requests::{HandledRequest, RequestHandler, failed, on_file},
    workspace::files::FileError,
};
use agentline_core::{
    HostRequest, HostResponse, OUTSIDE_WORKSPACE, PermissionRequest, Policy, PolicyDecision, ToolKind,
};

impl RequestHandler {
    /// Decides on one request. What is not refused, the client carries out.
    pub(crate) async fn screen(&self, ask: HostRequest) -> HandledRequest {
        match ask {
            HostRequest::Permission(ask) => self.screen_permission(*ask).await,
            HostRequest::ReadFile { path, .. } => {
                // Reading needs no permission of its own, so only rules can refuse it.
                let decision = self.decide(&on_file("Read", ToolKind::Read, &path)).await;
                let is_refused = |decision: &PolicyDecision| decision.ruling().by == "rule";
                self.screen_file(path, decision, is_refused)
            }
            HostRequest::WriteFile { path, .. } if self.take_grant(&path) => self.left_to_client(&path),
            HostRequest::WriteFile { path, .. } => {
                let decision = self.decide(&on_file("", ToolKind::Write, &path)).await;
                self.screen_file(path, decision, |_| true)
            }
            other => self.answer(other).await,
        }
    }

    async fn screen_permission(&self, ask: PermissionRequest) -> HandledRequest {
        let changed: Vec<String> = Policy::changed_files(&ask).into_iter().map(str::to_owned).collect();
        let decision = self.decide(&ask).await;
        if let PolicyDecision::Ask(_) = decision {
            return HandledRequest { answer: HostResponse::AskClient, ruling: None };
        }
        let ruling = decision.ruling().clone();
        if ruling.allow {
            self.grant(&changed);
        }
        HandledRequest { answer: HostResponse::PermissionDecided(ruling.clone()), ruling: Some(ruling) }
    }

    fn screen_file(
        &self,
        path: String,
        decision: PolicyDecision,
        is_refused: impl Fn(&PolicyDecision) -> bool,
    ) -> HandledRequest {
        match &decision {
            PolicyDecision::Deny(ruling) if ruling.reason.as_deref() == Some(OUTSIDE_WORKSPACE) => {
                failed(&FileError::Outside(path))
            }
            PolicyDecision::Deny(ruling) if is_refused(&decision) => HandledRequest::refused(ruling.clone()),
            _ => self.left_to_client(&path),
        }
    }

    /// Leaves a file to the client, unless it is outside the workspace.
    fn left_to_client(&self, path: &str) -> HandledRequest {
        if self.files().resolve(path).inside {
            return HandledRequest { answer: HostResponse::AskClient, ruling: None };
        }
        failed(&FileError::Outside(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{PermissionMode, RunRequest};

    async fn screened(request: &RunRequest, dir: &std::path::Path, ask: HostRequest) -> HandledRequest {
        RequestHandler::new(request, dir).unwrap().screen(ask).await
    }

    fn read(path: impl Into<String>) -> HostRequest {
        HostRequest::ReadFile { path: path.into(), line: None, limit: None }
    }

    fn write(path: impl Into<String>) -> HostRequest {
        HostRequest::WriteFile { path: path.into(), text: "x".into() }
    }

    #[tokio::test]
    async fn client_gets_only_what_the_policy_does_not_refuse() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let request = RunRequest::new("x").deny("Read(secret.txt)").deny("Write(fixed.txt)");
        for (ask, is_left) in [
            (read(path("a.txt")), true),
            (read(path("secret.txt")), false),
            (read("/etc/hostname"), false),
            (write(path("a.txt")), true),
            (write(path("fixed.txt")), false),
            (write(path("../b.txt")), false),
        ] {
            let handled = screened(&request, dir.path(), ask.clone()).await;
            assert_eq!(handled.answer == HostResponse::AskClient, is_left, "{ask:?}: {handled:?}");
            assert_eq!(handled.is_denial(), !is_left, "{ask:?}");
            assert!(!dir.path().join("a.txt").exists(), "the client writes, not the host");
        }
        let request = RunRequest::new("x").permission_mode(PermissionMode::Plan);
        let handled = screened(&request, dir.path(), write(path("a.txt"))).await;
        assert!(handled.is_denial(), "{handled:?}");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn link_out_of_the_workspace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        let path = dir.path().join("out/hostname").to_string_lossy().into_owned();
        let handled = screened(&RunRequest::new("x"), dir.path(), read(path)).await;
        assert!(handled.is_denial(), "{handled:?}");
    }
}
