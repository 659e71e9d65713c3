//! The home of one run: a private directory with links to the user's files and a few files of its own.
//!
//! All data of the CLI is linked, so sign-in, memory, policies, extensions and sessions are the user's, and files that
//! a run writes end up where an ordinary run of the CLI would put them. `settings.json` is generated. `projects.json`
//! is a copy, because the CLI replaces it by renaming, and each project directory names its project itself.

use super::user::UserConfig;
use crate::{FileSystem, Launch, NewFile};
use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

/// Directories that must exist for their links to work. An ordinary run creates them too.
const REQUIRED_DIRS: &[&str] = &["tmp", "history"];

/// Files that a run may create and that then belong to the user. Writing through a link creates its missing target.
const BORN_LATER: &[&str] = &[
    "installation_id",
    "google_accounts.json",
    "oauth_creds.json",
    "gemini-credentials.json",
    "mcp-oauth-tokens.json",
    "a2a-oauth-tokens.json",
    "state.json",
    "trusted_hooks.json",
    "policy_integrity.json",
    "integrity.key",
    "GEMINI.md",
];

/// Files that the CLI replaces by renaming a new file over them, which breaks the link.
const RENAMED: &[&str] = &["extension_integrity.json", "trustedFolders.json"];

/// Files next to `.gemini` that are read from the same home.
const HOME_SIBLINGS: &[&str] = &[".agents", ".env"];

/// The name prefix of the private directory of a run.
const PRIVATE: &str = "agentline-run-";

/// Replaces the path of the private home in a message of the CLI with the path of the user's home, which the user can act
/// on.
pub(super) fn with_users_home<'a>(text: &'a str, users: Option<&str>) -> Cow<'a, str> {
    const HOME: usize = "/home".len();
    let Some(users) = users.filter(|_| text.contains(PRIVATE)) else { return Cow::Borrowed(text) };
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("/home/.gemini").or_else(|| rest.find(r"\home\.gemini")) {
        let before = &rest[..at];
        let is_border = |c: char| c.is_whitespace() || "'\"`(".contains(c);
        let border = before.char_indices().rev().find(|(_, c)| is_border(*c));
        let start = border.map_or(0, |(border, c)| border + c.len_utf8());
        // A Windows path begins with its drive and often contains spaces.
        let start = before.rfind(r":\").map_or(start, |colon| colon.saturating_sub(1).min(start));
        if before.get(start..).is_some_and(|path| path.contains(PRIVATE)) {
            shown.push_str(&rest[..start]);
            shown.push_str(users);
        } else {
            shown.push_str(&rest[..at + HOME]);
        }
        rest = &rest[at + HOME..];
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// The run's own files in the overlay.
pub(super) struct OverlayFiles {
    /// The text of `settings.json`.
    pub(super) settings: Vec<u8>,
    /// The name of a command and the text of its file.
    pub(super) command: Option<(String, String)>,
    /// The directory for the command.
    pub(super) commands: PathBuf,
}

/// Adds the overlay at `home` to a launch.
pub(super) fn fill(
    launch: &mut Launch,
    home: &Path,
    own: OverlayFiles,
    user: &UserConfig<'_>,
    fs: &dyn FileSystem,
) {
    let overlay = home.join(".gemini");
    let original = user.own("");
    launch.dirs.push(overlay.clone());
    launch.files.push(NewFile::new(overlay.join("settings.json"), own.settings).guarded());
    if let Some(projects) = fs.read(&original.join("projects.json")) {
        launch.files.push(NewFile::copy(overlay.join("projects.json"), projects));
    }
    let mut linked: Vec<String> = fs.list(&original).unwrap_or_default();
    linked.extend(REQUIRED_DIRS.iter().chain(BORN_LATER).map(|name| (*name).to_owned()));
    linked.sort();
    linked.dedup();
    linked.retain(|name| name != "settings.json" && name != "projects.json" && !is_passing(name));
    if let Some((name, text)) = own.command {
        // A separate directory, which also links to the user's commands.
        linked.retain(|name| name != "commands");
        let users = original.join("commands");
        for entry in fs.list(&users).unwrap_or_default() {
            launch.links.push((own.commands.join(&entry), users.join(&entry)));
        }
        launch.links.push((overlay.join("commands"), own.commands.clone()));
        launch.files.push(NewFile::new(own.commands.join(format!("{name}.toml")), text));
    }
    launch.links.extend(linked.iter().map(|name| (overlay.join(name), original.join(name))));
    launch.dirs.extend(REQUIRED_DIRS.iter().map(|name| original.join(name)));
    launch.copy_back.extend(RENAMED.iter().map(|name| (overlay.join(name), original.join(name))));
    for name in HOME_SIBLINGS {
        let original = user.home().join(name);
        if fs.exists(&original) {
            launch.links.push((home.join(name), original));
        }
    }
}

/// Returns whether a file is a lock or a temporary file of another process. A link to the lock of `projects.json`,
/// which another run may hold or have left behind, would make the CLI wait for minutes.
fn is_passing(name: &str) -> bool {
    name.ends_with(".lock") || name.ends_with(".tmp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_fs::MemoryFs;
    use std::collections::BTreeMap;

    #[test]
    fn messages_name_the_users_home() {
        let shown = |text: &str| with_users_home(text, Some("/home/me")).into_owned();
        assert_eq!(
            shown(
                "Please set an Auth method in your /tmp/agentline-run-x1/home/.gemini/settings.json or a key"
            ),
            "Please set an Auth method in your /home/me/.gemini/settings.json or a key"
        );
        assert_eq!(
            shown("'/tmp/agentline-run-x1/home/.gemini/a' and /home/.gemini/b"),
            "'/home/me/.gemini/a' and /home/.gemini/b"
        );
        assert_eq!(shown("nothing private"), "nothing private");
        assert_eq!(
            with_users_home(
                r"in 'C:\Users\A B\Temp\agentline-run-x1\home\.gemini\settings.json' or a key",
                Some(r"C:\Users\A B")
            ),
            r"in 'C:\Users\A B\.gemini\settings.json' or a key"
        );
    }

    #[test]
    fn overlay_combines_user_files_and_generated_files() {
        let fs = MemoryFs::default()
            .plain("/u/.gemini/settings.json", "{}")
            .plain("/u/.gemini/projects.json", "P")
            .plain("/u/.gemini/policies/mine.toml", "")
            .plain("/u/.gemini/commands/hi.toml", "")
            .plain("/u/.env", "A=1");
        let env = BTreeMap::new();
        let user = UserConfig::new(Path::new("/ws"), &env, Path::new("/u"), &fs);
        let launch_with = |command: Option<(String, String)>| {
            let mut launch = Launch::default();
            let own = OverlayFiles { settings: b"S".to_vec(), command, commands: "/g/commands".into() };
            fill(&mut launch, Path::new("/o"), own, &user, &fs);
            launch
        };
        let launch = launch_with(None);
        let to = |launch: &Launch, path: &str| {
            launch.links.iter().find(|(at, _)| at == Path::new(path)).map(|(_, to)| to.clone())
        };
        let expect = |path: &str| Some(PathBuf::from(path));
        assert_eq!(to(&launch, "/o/.gemini/policies"), expect("/u/.gemini/policies"));
        assert_eq!(to(&launch, "/o/.gemini/commands"), expect("/u/.gemini/commands"));
        assert_eq!(to(&launch, "/o/.gemini/tmp"), expect("/u/.gemini/tmp"));
        assert_eq!(to(&launch, "/o/.gemini/oauth_creds.json"), expect("/u/.gemini/oauth_creds.json"));
        assert_eq!(to(&launch, "/o/.env"), expect("/u/.env"));
        assert_eq!(to(&launch, "/o/.agents"), None);
        assert_eq!(to(&launch, "/o/.gemini/settings.json"), None);
        assert_eq!(to(&launch, "/o/.gemini/projects.json"), None);
        let files: Vec<(&Path, &[u8])> =
            launch.files.iter().map(|f| (f.path.as_path(), &*f.content)).collect();
        assert_eq!(
            files,
            [
                (Path::new("/o/.gemini/settings.json"), &b"S"[..]),
                (Path::new("/o/.gemini/projects.json"), &b"P"[..])
            ]
        );
        assert!(launch.dirs.contains(&"/u/.gemini/tmp".into()));

        let launch = launch_with(Some(("say".into(), "T".into())));
        assert_eq!(to(&launch, "/o/.gemini/commands"), expect("/g/commands"));
        assert_eq!(to(&launch, "/g/commands/hi.toml"), expect("/u/.gemini/commands/hi.toml"));
        assert!(launch.files.iter().any(|f| f.path == Path::new("/g/commands/say.toml")));
    }
}
