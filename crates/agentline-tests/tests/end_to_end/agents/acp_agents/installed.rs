//! Checks that agentline installs each of these agents at the tested version, and that it starts.

use crate::agents::acp_agents::harness::{CLAUDE, CODEX, OPENCODE};
use agentline::{Agentline, Surface, agents, install};
use agentline_tests::{real_codex_acp, skipped};
use std::process::{Command, Stdio};

#[test]
fn each_agent_is_installed_at_the_tested_version() {
    if real_codex_acp().is_none() {
        return skipped("installation");
    }
    let (agentline, home) = (Agentline::from_env().unwrap(), tempfile::tempdir().unwrap());
    for tested in [CLAUDE, CODEX, OPENCODE] {
        let (name, agent) = (tested.name, agents::find(tested.name).unwrap());
        let info = agent.info().for_surface(Surface::Acp);
        let program = install::ensure(info, info.pinned, agentline.host_env(), &mut |_| ()).unwrap();
        let found = program.version.map(|version| version.to_string());
        assert_eq!((found.as_deref(), info.pinned), (Some(tested.version), tested.version), "{name}");
        let mut command = Command::new(&program.path);
        command.args(&program.args).arg("--version").env_clear().env("HOME", home.path());
        command.env("PATH", std::env::var("PATH").unwrap_or_default()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}
