//! Checks any text as a command against a policy: no panic, no overflow, and no pattern permits a command that it does
//! not match.

#![no_main]

use agentline_core::{PermissionMode, PermissionRequest, Policy, RunRequest, ToolKind};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let request =
        RunRequest::new("x").permission_mode(PermissionMode::Deny).allow("Bash(git *)").deny("Bash(rm *)");
    let policy = Policy::new(&request, Path::new("/ws")).expect("good rules");
    let mut ask = PermissionRequest::default();
    (ask.tool, ask.kind, ask.command) = ("Bash".into(), ToolKind::Shell, Some(text.to_owned()));
    let decision = policy.decide(&ask, &|path| policy.resolve(path));
    assert!(decision.name() == "deny" || text.contains("git"), "{text:?}");
});
