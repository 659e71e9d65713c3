//! Tests the commands that play scenarios of the conformance kit: `conformance` and `doctor --deep`.

use super::user::User;
use agentline::{Agentline, Surface, agents, install};
use agentline_conformance::{Tier, scenarios};
use agentline_tests::{RealSlot, are_disabled, skipped};

#[test]
fn doctor_plays_scenarios_on_a_real_agent() {
    if are_disabled() {
        return skipped("doctor --deep");
    }
    let _slot = RealSlot::take();
    let agent = agents::find("codex").unwrap();
    let info = agent.info().for_surface(Surface::AppServer);
    let agentline = Agentline::from_env().unwrap();
    let program = install::ensure(info, info.pinned, agentline.host_env(), &mut |_| ()).unwrap();
    let path =
        format!("{}:{}", program.path.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let user = User::new().env("PATH", path).env("OPENAI_API_KEY", "no-key-of-anything");
    let done = user.agentline(&["doctor", "codex", "--deep"]);
    assert!(done.code == 0 && done.out.contains(" 0 failed"), "{}{}", done.out, done.err);
    // Progress.
    let target = format!("codex app-server {}", info.pinned);
    assert!(done.err.contains(&format!("{target}: 12 scenarios")), "{}", done.err);
    // The usual report, the matrix, and what is known about the agent.
    assert!(done.out.contains("Codex (codex): ready"), "{}", done.out);
    let row = |name: &str| done.out.lines().find(|line| line.split_whitespace().next() == Some(name));
    for (name, word) in
        [("agent", "codex"), ("surface", "app-server"), ("version", info.pinned), ("write", "pass")]
    {
        assert!(row(name).is_some_and(|row| row.ends_with(word)), "{name}: {}", done.out);
    }
    assert!(scenarios::up_to(Tier::Deep).iter().all(|one| row(one.name).is_some()), "{}", done.out);
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_played() {
    let user = User::new();
    user.write("page.md", "no part for a table\n");
    for (args, code, message) in [
        (&["--scenario", "nope"][..], 2, "`nope` is not a scenario"),
        (&["--surface", "nope"], 2, "`nope` is not a surface"),
        (&["-a", "nope"], 2, "`nope` is not a known agent"),
        (&["--matrix", "-a", "gemini@0.24.0"], 2, "`--matrix` plays every pinned version"),
        (&["--to", "page.md"], 2, "`page.md` has no part between `<!-- matrix -->`"),
    ] {
        let done = user.agentline(&[&["conformance"], args].concat());
        assert_eq!(done.code, code, "{args:?} {}", done.err);
        assert!(done.err.contains(message), "{args:?} {}", done.err);
    }
}
