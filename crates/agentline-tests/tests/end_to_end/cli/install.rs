//! `agentline install` with the real npm and a registry on loopback.

use super::user::User;
use agentline_tests::{FakeRegistry, wait_until};
use serde_json::{Value, json};
use std::{fs, process::Stdio};

/// Returns a user with a registry and a configured agent whose package is in it: the fake ACP agent.
fn user() -> (User, FakeRegistry) {
    let registry = FakeRegistry::start();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_fake-acp"));
    let bin = json!({"bin": {"my-agent": "run.sh"}, "scripts": {"postinstall": "echo edited >> ~/.profile"}});
    for version in ["1.0.0", "1.1.0"] {
        registry.publish("my-agent", version, &bin, &[("run.sh", &script)]);
    }
    let user =
        User::new().env("npm_config_registry", registry.url()).env("npm_config_userconfig", "/dev/null");
    let table = "[agents.mine]\ncommand = [\"my-agent\"]\npackage = \"my-agent\"\nversion = \"1.0.0\"\n";
    user.write("../home/.config/agentline/config.toml", table);
    (user, registry)
}

/// Returns the directories of installed agents, without lock files.
fn installed(user: &User) -> Vec<String> {
    let dir = fs::read_dir(user.path("../home/.cache/agentline/agents"));
    let names = dir.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
    names.sort();
    names
}

#[test]
fn installed_version_is_used_by_its_name() {
    let (user, registry) = user();
    let missing = user.agentline(&["run", "-a", "mine@1.0.0", "hi"]);
    assert_eq!(missing.code, 3, "{}", missing.err);
    assert!(missing.err.contains("mine 1.0.0 (`my-agent`) is not installed"), "{}", missing.err);
    assert!(missing.err.contains("run `agentline install mine@1.0.0`"), "{}", missing.err);

    // Two processes install the same version at the same time.
    let spawn = || user.command(&["install", "mine", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let both = [spawn(), spawn()].map(|child| child.wait_with_output().unwrap());
    for output in both {
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&rows[0]["version"], &rows[0]["pinned"]), (&json!("1.0.0"), &json!(false)), "{rows}");
    }
    assert_eq!(installed(&user), ["mine-1.0.0"]);
    assert_eq!(registry.downloads().len(), 1, "only one of them downloaded it");
    let lock = user.read("../home/.cache/agentline/agents/mine-1.0.0/package-lock.json");
    assert!(lock.contains("sha512-") && !lock.contains("127.0.0.1"), "{lock}");
    assert!(
        !user.path("../home/.cache/agentline/agents/mine-1.0.0/node_modules/.package-lock.json").exists()
    );
    assert!(!user.path("../home/.profile").exists(), "the install script did not run");

    let done = user.agentline(&["run", "-a", "mine@1.0.0", "-o", "json", "say Hello."]);
    let outcome: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((&outcome["text"], &outcome["agent"]), (&json!("Hello."), &json!("mine")), "{}", done.err);
    // Without a version, an installation in the cache directory is found too.
    assert_eq!(user.agentline(&["run", "-a", "mine", "say Hello."]).out, "Hello.\n");

    let other = user.agentline(&["install", "mine@1.1.0"]);
    assert_eq!(other.code, 0, "{}", other.err);
    assert!(other.err.contains("my-agent@1.1.0 is not a pinned version"), "{}", other.err);
    let again = user.agentline(&["install", "mine@1.1.0"]);
    assert!(again.err.contains("is already installed"), "{}", again.err);
    let listed = user.agentline(&["install", "--list", "mine"]);
    assert!(listed.out.contains("mine@1.1.0") && listed.out.contains("mine@1.0.0"), "{}", listed.out);

    for (name, message) in [
        ("mine@latest", "`latest` is not a complete version"),
        ("unknown-agent@1.0.0", "`unknown-agent` is not a known agent"),
    ] {
        let refused = user.agentline(&["install", name]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(message), "{}", refused.err);
        let refused = user.agentline(&["run", "-a", name, "hi"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(message), "{}", refused.err);
    }
}

#[test]
fn tampered_interrupted_and_offline_installations_leave_nothing() {
    let (user, registry) = user();
    let bin = json!({"bin": {"gemini": "run.sh"}});
    registry.publish("@google/gemini-cli", "0.51.0", &bin, &[("run.sh", "#!/bin/sh\n")]);
    let refused = user.agentline(&["install", "gemini@0.51.0"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    let message =
        "refused to install @google/gemini-cli@0.51.0: a downloaded package does not have its pinned hash";
    assert!(refused.err.contains(message), "{}", refused.err);
    assert_eq!(installed(&user), [""; 0]);

    registry.hang(true);
    let mut killed =
        user.command(&["install", "mine"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the download", || registry.downloads().iter().any(|path| path.contains("my-agent")));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(installed(&user).iter().all(|name| name.starts_with('.')), "{:?}", installed(&user));
    registry.hang(false);
    let done = user.agentline(&["install", "mine"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(installed(&user), ["mine-1.0.0"], "the rest of the killed installation is gone");

    // The reserved port answers nothing.
    let user = user.env("npm_config_registry", "http://127.0.0.1:1/");
    let offline = user.agentline(&["install", "gemini@0.61.0"]);
    assert_eq!(offline.code, 1, "{}", offline.err);
    let message = "cannot install @google/gemini-cli@0.61.0: the package registry cannot be reached";
    assert!(offline.err.contains(message) && offline.err.contains("check the network"), "{}", offline.err);
    assert!(!offline.err.contains("npm error"), "one message: {}", offline.err);
    assert_eq!(
        user.agentline(&["run", "-a", "mine@1.0.0", "say Hello."]).out,
        "Hello.\n",
        "installed agents still work"
    );
}
