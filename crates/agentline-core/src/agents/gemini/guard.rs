//! Hides a workspace's own configuration from Gemini CLI.
//!
//! The CLI has one switch for two things: for a trusted folder, it also loads the folder's settings, `.env` files,
//! commands, agents and skills. `--skip-trust` takes effect after the CLI has first read its settings, but not before
//! it reads `.env` files, skills and agents, nor before a session is opened over ACP. So Node.js first loads a script
//! (`guard.cjs`), which hides these files from the CLI for all workspaces. The script confirms that it is active once
//! the CLI has read its settings and looked for a `.env` file through the functions that the script patches.

use super::{settings::UserSettings, user::UserConfig};
use crate::{Failure, FailureKind, FileSystem, Launch, NewFile, Plan, Sandbox, Surface, Trust};
use serde_json::{Value, json};
use std::{path::Path, sync::LazyLock};

/// The script that hides the files.
const SCRIPT: &str = include_str!("guard.cjs");

/// The placeholder in the script for its configuration.
const PLACEHOLDER: &str = "const CONFIG = null;";

/// The script before and after the placeholder.
static SCRIPT_PARTS: LazyLock<(&str, &str)> =
    LazyLock::new(|| SCRIPT.split_once(PLACEHOLDER).unwrap_or((SCRIPT, "")));

/// The confirmation line on stderr, for surfaces whose stdout carries the answer.
const CONFIRMATION: &str = "agentline: the workspace's own configuration is hidden from Gemini CLI";

/// The notification that confirms the script over ACP.
const NOTIFICATION: &str = "_agentline/workspace_configuration_hidden";

/// Directories of the workspace itself, and the configuration that is loaded from them.
const IN_WORKSPACE: &[(&str, &[&str])] =
    &[(".gemini", &["settings.json", "commands", "agents", "skills", "policies"]), (".agents", &["skills"])];

/// Configuration that is also loaded from parent directories.
const UPWARD: &[&str] = &[".gemini/.env", ".env"];

/// Adds the script to a launch, unless the workspace is fully trusted.
pub(super) fn fill(
    launch: &mut Launch,
    plan: &Plan,
    generated: &Path,
    users: &UserSettings,
    user: &UserConfig<'_>,
    fs: &dyn FileSystem,
) {
    if plan.request.trust == Trust::Full {
        return;
    }
    let path = generated.join("guard.cjs");
    let confirm = match plan.surface {
        Surface::Acp => {
            json!({"fd": 1, "line": json!({"jsonrpc": "2.0", "method": NOTIFICATION}).to_string()})
        }
        _ => json!({"fd": 2, "line": CONFIRMATION}),
    };
    let config = json!({
        "homes": user.homes(),
        "contextFiles": context_files(users),
        "confirm": confirm,
        "keepOptions": plan.request.sandbox != Sandbox::Off,
    });
    let (before, after) = *SCRIPT_PARTS;
    let script = format!("{before}const CONFIG = {config};{after}");
    launch.files.push(NewFile::new(&path, script));
    let mut options = node_option(&path);
    if let Some(others) = launch.env.get("NODE_OPTIONS").filter(|others| !others.is_empty()) {
        options = format!("{options} {others}");
    }
    launch.env.insert("NODE_OPTIONS".into(), options);
    launch.must_ignore = ignored_files(user, fs);
}

/// Returns the option that makes Node.js load the script. It is quoted only if necessary, because the CLI adds its own
/// quotes around the options of a container.
fn node_option(path: &Path) -> String {
    let option = format!("--require={}", path.display());
    if !option.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\\')) {
        return option;
    }
    format!("\"{}\"", option.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the workspace files that the CLI must not load.
fn ignored_files(user: &UserConfig<'_>, fs: &dyn FileSystem) -> Vec<String> {
    let is_own = |folder: &Path| user.homes().iter().any(|home| home == folder);
    let directories = IN_WORKSPACE.iter().filter(|_| !is_own(user.cwd()));
    let directories = directories.map(|(name, content)| (user.cwd().join(name), content));
    let in_workspace = directories
        .filter(|(directory, _)| fs.exists(directory))
        .flat_map(|(directory, content)| content.iter().map(move |name| directory.join(name)));
    let folders = user.cwd().ancestors().filter(|folder| !is_own(folder));
    let above = folders.flat_map(|folder| UPWARD.iter().map(move |name| folder.join(name)));
    in_workspace.chain(above).filter(|path| fs.exists(path)).map(|path| path.display().to_string()).collect()
}

/// Returns settings that limit context files. A context file may import files of its repository. If the
/// repository also contains the user's home, it may only import files of its own directory.
pub(super) fn bounds(
    trust: Trust,
    users: &UserSettings,
    user: &UserConfig<'_>,
    fs: &dyn FileSystem,
) -> Value {
    let homes = user.homes();
    let repository = user.cwd().ancestors().find(|folder| fs.exists(&folder.join(".git")));
    let holds_home = repository.is_some_and(|root| homes.iter().any(|home| home.starts_with(root)));
    if trust == Trust::Full || !holds_home || users.get("/context/memoryBoundaryMarkers").is_some() {
        return json!({});
    }
    json!({"context": {"memoryBoundaryMarkers": []}})
}

/// Returns the names of files whose text the CLI passes to the model.
fn context_files(users: &UserSettings) -> Vec<String> {
    match users.get("/context/fileName") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec!["GEMINI.md".to_owned()],
    }
}

/// Whether the agent has confirmed that it ignores the workspace's own configuration.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    seen: bool,
}

impl Confirmation {
    /// Reads a line of stderr. Returns whether it is the confirmation.
    pub(super) fn stderr(&mut self, text: &str) -> bool {
        let is_it = text == CONFIRMATION;
        self.seen |= is_it;
        is_it
    }

    /// Reads a notification over ACP.
    pub(super) fn notification(&mut self, method: &str) {
        self.seen |= method == NOTIFICATION;
    }

    /// Returns why a run must not start in a workspace with these files.
    pub(super) fn failure(&self, must_ignore: &[String]) -> Option<Failure> {
        if self.seen || must_ignore.is_empty() {
            return None;
        }
        let message = format!(
            "Gemini CLI did not confirm that it ignores the workspace's own configuration: {}",
            must_ignore.join(", ")
        );
        Some(Failure::new(FailureKind::Settings, message).hint(
            "use a version of Gemini CLI that agentline supports, started with Node.js and its NODE_OPTIONS; remove these \
             files; or pass `--trust full` if you trust them",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LaunchContext, Program, RunRequest, Version, agents::gemini::launch::launch, memory_fs::MemoryFs,
    };

    fn launched(trust: Trust, surface: Surface, fs: &MemoryFs) -> Launch {
        let version = Version::parse("0.61.0");
        let program = Program { path: "/bin/node".into(), args: vec!["gemini.js".into()], version };
        let mut launch_context = LaunchContext::new(program, "/w/p".into(), "/home/u".into(), "/p q".into());
        launch_context.env = [("NODE_OPTIONS", "--no-warnings")].map(|(k, v)| (k.into(), v.into())).into();
        let mut request = RunRequest::new("x").trust(trust);
        request.pass_env = vec!["NODE_OPTIONS".into()];
        launch(&Plan::new(request, surface), &launch_context, fs).unwrap()
    }

    fn script(launch: &Launch) -> Option<String> {
        let file = launch.files.iter().find(|file| file.path == Path::new("/p q/given/guard.cjs"))?;
        Some(String::from_utf8_lossy(&file.content).into_owned())
    }

    #[test]
    fn every_launch_without_full_trust_loads_the_guard() {
        let fs = MemoryFs::default();
        for surface in [Surface::Json, Surface::StreamJson, Surface::Acp] {
            for trust in [Trust::Run, Trust::No] {
                let launch = launched(trust, surface, &fs);
                assert_eq!(launch.env["NODE_OPTIONS"], "\"--require=/p q/given/guard.cjs\" --no-warnings");
                let script = script(&launch).unwrap();
                assert!(
                    script.contains(r#""homes":["/home/u"]"#) && !script.contains(PLACEHOLDER),
                    "{script}"
                );
                assert_eq!(script.contains(NOTIFICATION), surface == Surface::Acp);
                assert!(launch.must_ignore.is_empty());
            }
            let trusted = launched(Trust::Full, surface, &fs);
            assert_eq!((script(&trusted), trusted.env["NODE_OPTIONS"].as_str()), (None, "--no-warnings"));
        }
    }

    #[test]
    fn node_option_is_quoted_if_needed() {
        assert_eq!(node_option(Path::new("/p/guard.cjs")), "--require=/p/guard.cjs");
        assert_eq!(node_option(Path::new("/p \"q/g.cjs")), r#""--require=/p \"q/g.cjs""#);
    }

    #[test]
    fn guard_lists_the_workspace_files_to_ignore() {
        let paths = [
            "/w/p/.gemini/settings.json",
            "/w/p/.gemini/policies/x.toml",
            "/w/p/.agents/skills/x/SKILL.md",
            "/w/.gemini/.env",
            "/.env",
        ];
        let fs = paths.iter().fold(MemoryFs::default(), |fs, path| fs.plain(path, ""));
        let fs = fs.plain("/home/u/.env", "").plain("/home/u/.gemini/.env", "");
        let launch = launched(Trust::Run, Surface::Acp, &fs);
        let expected = [
            "/w/p/.gemini/settings.json",
            "/w/p/.gemini/policies",
            "/w/p/.agents/skills",
            "/w/.gemini/.env",
            "/.env",
        ];
        assert_eq!(launch.must_ignore, expected);
        assert!(launched(Trust::Full, Surface::Acp, &fs).must_ignore.is_empty());
    }

    #[test]
    fn run_starts_only_after_the_guard_confirms() {
        let files = vec!["/w/.env".to_owned()];
        let mut confirmation = Confirmation::default();
        assert_eq!(confirmation.failure(&[]), None, "there is nothing to ignore");
        let failure = confirmation.failure(&files).unwrap();
        assert!(failure.kind == FailureKind::Settings && failure.message.contains("/w/.env"), "{failure:?}");
        assert!(!confirmation.stderr("something else") && confirmation.failure(&files).is_some());
        confirmation.notification("session/update");
        assert!(confirmation.failure(&files).is_some());
        confirmation.notification(NOTIFICATION);
        assert_eq!(confirmation.failure(&files), None);
        let mut confirmation = Confirmation::default();
        assert!(confirmation.stderr(CONFIRMATION) && confirmation.failure(&files).is_none());
    }

    #[test]
    fn repository_containing_home_does_not_bound_context_files() {
        let env = std::collections::BTreeMap::new();
        let markers = |fs: &MemoryFs, settings: &str| {
            let settings_fs = MemoryFs::default().plain("/s", settings);
            let users = UserSettings::read(Path::new("/s"), &settings_fs);
            let user = UserConfig::new(Path::new("/home/u/p"), &env, Path::new("/home/u"), fs);
            bounds(Trust::Run, &users, &user, fs).pointer("/context/memoryBoundaryMarkers").cloned()
        };
        let at = |path: &str| MemoryFs::default().plain(path, "");
        assert_eq!(markers(&at("/home/u/.git/config"), "{}"), Some(json!([])));
        assert_eq!(markers(&at("/.git/config"), "{}"), Some(json!([])));
        assert_eq!(markers(&at("/home/u/p/.git/config"), "{}"), None);
        assert_eq!(markers(&MemoryFs::default(), "{}"), None);
        let own = r#"{"context":{"memoryBoundaryMarkers":["x"]}}"#;
        assert_eq!(markers(&at("/home/u/.git/config"), own), None, "the user's own choice stays");
    }
}
