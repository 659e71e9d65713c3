//! The user's own configuration of Gemini CLI: settings, `.env` files and trusted folders, read as the CLI reads them.

use crate::{FileSystem, Problem};
use serde_json::Value;
use std::{
    cell::OnceCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The variables that a `.env` file may set in an untrusted folder.
const SET_WITHOUT_TRUST: &[&str] =
    &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"];

/// The valid values of a rule for trusted folders.
const TRUST_WORDS: &[&str] = &["TRUST_FOLDER", "TRUST_PARENT", "DO_NOT_TRUST"];

/// The configuration that the CLI would find for a run of this user in a directory.
pub(super) struct UserConfig<'a> {
    cwd: &'a Path,
    env: &'a BTreeMap<String, String>,
    /// The home that the CLI uses.
    home: PathBuf,
    /// The home of the account.
    login_home: PathBuf,
    fs: &'a dyn FileSystem,
    /// Whether the workspace is fully trusted, so that its own settings and `.env` files apply.
    full_trust: bool,
    /// The settings without and with those of the workspace, once they have been read.
    layers: [OnceCell<Vec<SettingsFile>>; 2],
    homes: OnceCell<Vec<PathBuf>>,
    trusts: OnceCell<Option<bool>>,
}

/// One existing settings file that is a JSON object.
pub(super) struct SettingsFile {
    pub(super) path: PathBuf,
    pub(super) settings: Value,
}

/// The value of a variable, and the `.env` file that sets it.
#[derive(Clone)]
pub(super) struct EnvValue {
    pub(super) value: String,
    pub(super) file: Option<PathBuf>,
}

/// Returns the home that the CLI uses for a user with this home.
pub(super) fn cli_home(env: &BTreeMap<String, String>, home: &Path) -> PathBuf {
    let moved = env.get("GEMINI_CLI_HOME").filter(|h| !h.is_empty());
    moved.map_or_else(|| home.to_path_buf(), PathBuf::from)
}

impl<'a> UserConfig<'a> {
    /// Creates the configuration of a user. `home` is the account's home; `GEMINI_CLI_HOME` overrides it for the CLI.
    pub(super) fn new(
        cwd: &'a Path,
        env: &'a BTreeMap<String, String>,
        home: &Path,
        fs: &'a dyn FileSystem,
    ) -> Self {
        Self {
            cwd,
            env,
            home: cli_home(env, home),
            login_home: home.to_path_buf(),
            fs,
            full_trust: false,
            layers: Default::default(),
            homes: OnceCell::new(),
            trusts: OnceCell::new(),
        }
    }

    /// Sets whether the workspace is fully trusted.
    pub(super) fn trusting(self, full_trust: bool) -> Self {
        Self { full_trust, ..self }
    }

    /// Returns the same user with another environment.
    pub(super) fn with_env<'b>(&'b self, env: &'b BTreeMap<String, String>) -> UserConfig<'b> {
        UserConfig {
            cwd: self.cwd,
            env,
            home: self.home.clone(),
            login_home: self.login_home.clone(),
            fs: self.fs,
            full_trust: self.full_trust,
            layers: Default::default(),
            homes: self.homes.clone(),
            trusts: OnceCell::new(),
        }
    }

    /// Returns a variable of the caller's environment. An empty one counts as unset.
    pub(super) fn variable(&self, name: &str) -> Option<&'a str> {
        self.env.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// Returns the home that the CLI uses.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the workspace.
    pub(super) fn cwd(&self) -> &Path {
        self.cwd
    }

    /// Returns the user's homes, both as given and with links resolved. Their content is the user's own.
    pub(super) fn homes(&self) -> &[PathBuf] {
        self.homes.get_or_init(|| {
            let mut homes: Vec<PathBuf> = [&self.home, &self.login_home]
                .into_iter()
                .flat_map(|home| [Some(home.clone()), self.fs.canonical(home)])
                .flatten()
                .collect();
            homes.sort();
            homes.dedup();
            homes
        })
    }

    /// Returns the text of a file in the user's `.gemini` directory.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.fs.text(&self.own(name))
    }

    /// Returns the path of a file in the user's `.gemini` directory.
    pub(super) fn own(&self, name: &str) -> PathBuf {
        self.home.join(".gemini").join(name)
    }

    /// Returns the path of the credentials that `gcloud auth application-default login` writes.
    pub(super) fn gcloud_file(&self) -> PathBuf {
        let folder = self.variable("CLOUDSDK_CONFIG").map(PathBuf::from).unwrap_or_else(|| {
            let windows = self.variable("APPDATA").filter(|_| cfg!(windows));
            windows.map_or_else(|| self.login_home.join(".config"), PathBuf::from).join("gcloud")
        });
        folder.join("application_default_credentials.json")
    }

    /// Returns whether a file exists.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.fs.exists(path)
    }

    /// Returns whether the CLI trusts the directory by default, or `None` if no rule applies to it.
    pub(super) fn trusts(&self) -> Option<bool> {
        *self.trusts.get_or_init(|| self.decide_trust())
    }

    fn decide_trust(&self) -> Option<bool> {
        let has_value = |name, value| self.env.get(name).is_some_and(|v| v == value);
        if self.restricted() || has_value("GEMINI_CLI_TRUST_WORKSPACE", "false") {
            return Some(false);
        }
        if has_value("GEMINI_CLI_TRUST_WORKSPACE", "true") {
            return Some(true);
        }
        let layers = self.layers(false);
        if pick(layers, "/security/folderTrust/enabled").and_then(|(_, v)| v.as_bool()) == Some(false) {
            return Some(true);
        }
        self.trusted_by_rule()
    }

    /// Returns whether every directory counts as untrusted, regardless of flags.
    pub(super) fn restricted(&self) -> bool {
        self.env.get("GEMINI_RESTRICTED_MODE").is_some_and(|v| v == "true")
    }

    /// Returns the settings files in descending precedence. The workspace's own are included only if it is fully
    /// trusted.
    pub(super) fn layers(&self, trusted: bool) -> &[SettingsFile] {
        self.layers_with(trusted && self.full_trust)
    }

    fn layers_with(&self, with_workspace: bool) -> &[SettingsFile] {
        self.layers[usize::from(with_workspace)].get_or_init(|| {
            self.settings_files()
                .into_iter()
                .filter(|(origin, path)| match origin {
                    Origin::Administrator => self.fs.guarded(path),
                    Origin::Workspace => with_workspace,
                    Origin::User => true,
                })
                .filter_map(|(_, path)| {
                    let settings = parse(&self.fs.text(&path)?).ok().filter(Value::is_object)?;
                    Some(SettingsFile { path, settings })
                })
                .collect()
        })
    }

    /// Returns the variables that `.env` files add. The CLI loads one file at its start. With `--skip-trust`, it
    /// searches again as in a trusted folder when it checks the sign-in. Variables that are already set are kept.
    pub(super) fn env_files(&self, skip_trust: bool) -> BTreeMap<String, EnvValue> {
        self.env_files_with(skip_trust, self.full_trust)
    }

    /// Returns the variables that `.env` files would add if the workspace were fully trusted.
    pub(super) fn env_files_if_trusted(&self) -> BTreeMap<String, EnvValue> {
        self.env_files_with(true, true)
    }

    fn env_files_with(&self, skip_trust: bool, full_trust: bool) -> BTreeMap<String, EnvValue> {
        let trusted = self.trusts() == Some(true);
        let mut all = BTreeMap::new();
        self.load_env_file(trusted, full_trust, &mut all);
        if skip_trust && !trusted && !self.restricted() {
            self.load_env_file(true, full_trust, &mut all);
        }
        all
    }

    /// Returns the problems in files that prevent the CLI from starting.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (origin, path) in self.settings_files() {
            if self.fs.exists(&path)
                && (origin != Origin::Workspace || self.full_trust)
                && (origin != Origin::Administrator || self.fs.guarded(&path))
                && let Err(wrong) = self.read_object(&path)
            {
                problems.push(file_problem("settings", &path, &wrong));
            }
        }
        let rules = self.trust_file();
        if self.fs.exists(&rules) {
            match self.read_object(&rules) {
                Err(wrong) => problems.push(file_problem("trusted folders", &rules, &wrong)),
                Ok(object) => {
                    for (folder, word) in object.as_object().into_iter().flatten() {
                        if !word.as_str().is_some_and(|w| TRUST_WORDS.contains(&w)) {
                            let wrong =
                                format!("{word} for `{folder}` is not one of {}", TRUST_WORDS.join(", "));
                            problems.push(file_problem("trusted folders", &rules, &wrong));
                        }
                    }
                }
            }
        }
        problems
    }

    fn settings_files(&self) -> Vec<(Origin, PathBuf)> {
        let system = self.variable("GEMINI_CLI_SYSTEM_SETTINGS_PATH").unwrap_or(SYSTEM_SETTINGS);
        let system = PathBuf::from(system);
        let default_path = system.with_file_name("system-defaults.json");
        let defaults = self.variable("GEMINI_CLI_SYSTEM_DEFAULTS_PATH").map_or(default_path, PathBuf::from);
        let mut files = vec![(Origin::Administrator, system)];
        if !self.cwd_is_home() {
            files.push((Origin::Workspace, self.cwd.join(".gemini").join("settings.json")));
        }
        files.push((Origin::User, self.own("settings.json")));
        files.push((Origin::Administrator, defaults));
        files
    }

    fn cwd_is_home(&self) -> bool {
        let real = |p: &Path| self.fs.canonical(p).unwrap_or_else(|| p.to_path_buf());
        real(self.cwd) == real(&self.home)
    }

    fn read_object(&self, path: &Path) -> Result<Value, String> {
        let bytes = self.fs.read(path).ok_or("cannot be read")?;
        let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8")?;
        let value = parse(&text).map_err(|e| format!("is not JSON: {e}"))?;
        if value.is_object() { Ok(value) } else { Err("is not a JSON object".into()) }
    }

    fn trust_file(&self) -> PathBuf {
        let named = self.variable("GEMINI_CLI_TRUSTED_FOLDERS_PATH").map(PathBuf::from);
        named.unwrap_or_else(|| self.own("trustedFolders.json"))
    }

    /// Returns the decision of the rule with the longest path that covers the directory.
    fn trusted_by_rule(&self) -> Option<bool> {
        let rules = self.read_object(&self.trust_file()).ok()?;
        let folder = self.comparable(self.cwd);
        let mut longest: Option<(usize, &str)> = None;
        for (path, word) in rules.as_object()? {
            let word = word.as_str().filter(|w| TRUST_WORDS.contains(w))?;
            let rule = Path::new(path);
            let covers = if word == "TRUST_PARENT" { rule.parent().unwrap_or(rule) } else { rule };
            let length = path.chars().count();
            if folder.starts_with(self.comparable(covers)) && longest.is_none_or(|(l, _)| length > l) {
                longest = Some((length, word));
            }
        }
        longest.map(|(_, word)| word != "DO_NOT_TRUST")
    }

    /// Returns a path as the CLI compares it: absolute, with links resolved, and in lower case on case-insensitive
    /// systems.
    fn comparable(&self, path: &Path) -> PathBuf {
        let path = self.cwd.join(path);
        let path = self.fs.canonical(&path).unwrap_or(path);
        if cfg!(any(windows, target_os = "macos")) {
            path.to_string_lossy().to_lowercase().into()
        } else {
            path
        }
    }

    fn load_env_file(&self, trusted: bool, full_trust: bool, all: &mut BTreeMap<String, EnvValue>) {
        let layers = self.layers_with(trusted && full_trust);
        let ignore_local =
            pick(layers, "/advanced/ignoreLocalEnv").and_then(|(_, v)| v.as_bool()).unwrap_or(false);
        let Some(file) = self.find_env_file(trusted, full_trust, ignore_local) else { return };
        for (name, value) in dotenv(&self.fs.text(&file).unwrap_or_default()) {
            let allowed = trusted || SET_WITHOUT_TRUST.contains(&name.as_str());
            // An empty environment variable also overrides the value of the file.
            if allowed && !self.env.contains_key(&name) {
                all.entry(name).or_insert(EnvValue { value, file: Some(file.clone()) });
            }
        }
    }

    /// Returns the first `.env` file in the directory and its parents, then in the home. Files in `.gemini`
    /// directories require trust, files outside the user's homes full trust.
    fn find_env_file(&self, trusted: bool, full_trust: bool, ignore_local: bool) -> Option<PathBuf> {
        let mut candidates = Vec::new();
        let homes = self.homes();
        let counts = |folder: &Path| full_trust || homes.iter().any(|home| home == folder);
        for folder in self.cwd.ancestors().filter(|folder| counts(folder)) {
            if trusted {
                candidates.push(folder.join(".gemini").join(".env"));
            }
            if !ignore_local || folder == self.home {
                candidates.push(folder.join(".env"));
            }
        }
        if trusted {
            candidates.push(self.own(".env"));
        }
        candidates.push(self.home.join(".env"));
        candidates.into_iter().find(|p| self.fs.exists(p))
    }
}

/// Returns the value at a JSON pointer and the first layer that sets it.
pub(super) fn pick<'l>(layers: &'l [SettingsFile], pointer: &str) -> Option<(&'l SettingsFile, &'l Value)> {
    layers.iter().find_map(|layer| {
        let value = layer.settings.pointer(pointer).filter(|v| !v.is_null())?;
        Some((layer, value))
    })
}

/// Parses settings: JSON with comments. Comments are replaced by spaces to preserve positions.
pub(super) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str(&without_comments(text))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Administrator,
    Workspace,
    User,
}

const SYSTEM_SETTINGS: &str = if cfg!(target_os = "macos") {
    "/Library/Application Support/GeminiCli/settings.json"
} else if cfg!(windows) {
    "C:\\ProgramData\\gemini-cli\\settings.json"
} else {
    "/etc/gemini-cli/settings.json"
};

fn file_problem(key: &str, path: &Path, wrong: &str) -> Problem {
    Problem::new(key, format!("`{}`: {wrong}", path.display()))
        .hint(format!("fix `{0}`, or rename it: `mv {0} {0}.bad`", path.display()))
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match (in_string, c, chars.peek()) {
            (true, '\\', Some(_)) => {
                out.push(c);
                out.extend(chars.next());
            }
            (_, '"', _) => {
                in_string = !in_string;
                out.push(c);
            }
            (false, '/', Some('/')) => {
                out.push(' ');
                while let Some(c) = chars.next_if(|c| *c != '\n') {
                    out.push(if c == '\r' { c } else { ' ' });
                }
            }
            (false, '/', Some('*')) => {
                chars.next();
                out.push_str("  ");
                let mut last = ' ';
                for c in chars.by_ref() {
                    out.push(if c == '\n' || c == '\r' { c } else { ' ' });
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            _ => out.push(c),
        }
    }
    out
}

/// Parses the assignments of a `.env` file. A quoted value may contain anything but its own quote.
fn dotenv(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if name.is_empty() || !name.chars().all(is_name) {
            continue;
        }
        let value = value.trim();
        let quoted = ['"', '\'', '`'].iter().find_map(|q| value.strip_prefix(*q)?.split_once(*q));
        let value = quoted.map_or_else(|| value.split('#').next().unwrap_or_default().trim(), |(v, _)| v);
        found.push((name.to_owned(), value.to_owned()));
    }
    found
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
