//! Finds the files and variables with settings and passes them to the core as layers.

pub(crate) mod from_config;

pub use crate::workspace::config_file::{WORKSPACE_FILE, workspace_file};

use crate::fs::disk_fs::canonicalize;
use crate::{
    fs::regular_file::{read_regular, read_within},
    workspace::trust::{FileChange, Manifest, TRUST_CHANGED, TrustState, TrustStore},
};
use agentline_core::{
    Config, Layer, Notice, Problem, Problems, Trust,
    config::{WORKSPACE_CONFIG, chosen_workspace, one_line},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The environment variable with the path of the user's configuration file.
pub const USER_FILE_VARIABLE: &str = "AGENTLINE_CONFIG";

/// The maximum size of a configuration file.
const LONGEST_FILE: u64 = 1 << 20;

/// The time limit for a pipe that the user named as a configuration file.
const PIPE_TIME: Duration = Duration::from_secs(10);

/// Returns the layers below the flags, lowest first: the trust stored by `agentline trust`, the user's file, the
/// workspace's file, the environment.
///
/// `workspace` is the directory of the run. Its `agentline.toml`, or the nearest one above it, applies as far as the
/// user trusts the workspace. A file that exists but cannot be read becomes a layer too;
/// [`Config::build`](agentline_core::Config::build) reports its problem together with all others.
///
/// ```no_run
/// let home = std::env::home_dir();
/// let layers = agentline::config::find_layers(&std::env::current_dir()?, home.as_deref(), std::env::vars_os());
/// let config = agentline::config::build(&layers)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find_layers(
    workspace: &Path,
    home: Option<&Path>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<Layer> {
    let variables: BTreeMap<OsString, OsString> = variables.into_iter().collect();
    let own = OwnLayers::find(home, variables);
    let (stored, _) = own.stored_trust(workspace);
    own.layers(workspace_file(workspace, home).as_deref(), stored, Vec::new())
}

/// The settings of all layers for one workspace, and whether `agentline trust` covers it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// All layers, lowest first.
    pub layers: Vec<Layer>,
    /// The caller's directory, to which relative paths refer.
    pub cwd: PathBuf,
    /// The directory that these settings apply to.
    pub workspace: PathBuf,
    /// The workspace's `agentline.toml`, or the nearest one above it.
    pub workspace_file: Option<PathBuf>,
    /// What changed since the user trusted the workspace.
    pub changed: Option<ChangedTrust>,
}

/// A workspace that changed since the user trusted it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedTrust {
    /// The store of trusted workspaces.
    pub store: TrustStore,
    /// The current content of the workspace.
    pub manifest: Manifest,
    /// The differences.
    pub changes: Vec<FileChange>,
}

impl Settings {
    /// Finds the layers for a caller in `cwd`, with the caller's own layers (flags, the keys of a run) on top.
    ///
    /// The workspace is `named`, or the one that the user's own layers choose, or `cwd`. A workspace's own file cannot
    /// change which file is read or whose trust applies.
    #[must_use]
    pub fn find(
        cwd: &Path,
        named: Option<&Path>,
        home: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        above: Vec<Layer>,
    ) -> Self {
        let own = OwnLayers::find(home, variables.into_iter().collect());
        let chosen = || chosen_workspace(&own.layers(None, None, above.clone()));
        let chosen = named.map(Path::to_owned).or_else(chosen);
        let workspace = chosen.map_or_else(|| cwd.to_owned(), |dir| cwd.join(dir));
        let (stored, changed) = own.stored_trust(&workspace);
        let workspace_file = workspace_file(&workspace, home);
        let layers = own.layers(workspace_file.as_deref(), stored, above);
        Self { layers, cwd: cwd.to_owned(), workspace, workspace_file, changed }
    }

    /// Builds the configuration from all layers.
    ///
    /// # Errors
    /// Returns all problems of all layers together.
    pub fn build(&self) -> Result<Config, Problems> {
        let mut config = build(&self.layers)?;
        let resolve = |path: &Path| canonicalize(path).ok();
        let elsewhere = config
            .request
            .working_dir
            .as_deref()
            .is_some_and(|dir| resolve(&self.cwd.join(dir)) != resolve(&self.workspace));
        if elsewhere && config.is_trust_stored() {
            // The trusted file moves the run to a directory that the user did not trust.
            config.request.trust = Trust::Run;
            let message = format!(
                "`{}` is trusted, but its settings move the run to another directory, which is not",
                shown(&self.workspace)
            );
            config.notices.push(Notice::new(TRUST_CHANGED, message));
        }
        Ok(config)
    }
}

/// The layers that do not depend on the workspace.
struct OwnLayers<'a> {
    home: Option<&'a Path>,
    variables: BTreeMap<OsString, OsString>,
    user: Option<Layer>,
    environment: Vec<Layer>,
}

impl<'a> OwnLayers<'a> {
    fn find(home: Option<&'a Path>, variables: BTreeMap<OsString, OsString>) -> Self {
        let user = user_layer(home, &variables);
        let environment = environment_layers(&variables);
        Self { home, variables, user, environment }
    }

    /// Returns all layers, lowest first, with the layer of this workspace file.
    fn layers(&self, workspace_file: Option<&Path>, stored: Option<Layer>, above: Vec<Layer>) -> Vec<Layer> {
        let mut layers: Vec<Layer> = stored.into_iter().chain(self.user.clone()).collect();
        layers.extend(workspace_file.and_then(|file| self.workspace_layer(file)));
        layers.extend(self.environment.iter().cloned());
        layers.extend(above);
        layers
    }

    fn workspace_layer(&self, file: &Path) -> Option<Layer> {
        let real = |path: &Path| canonicalize(path).ok();
        let resolved = real(file);
        let users = user_file(self.home, &self.variables);
        if resolved.is_some() && resolved == users.as_deref().and_then(real) {
            // This is the user's own file, which was already read.
            return None;
        }
        let mut layer = read(file, self.home, MayBe::OnlyFile)?.of_workspace();
        let folder = file.parent().and_then(real);
        if let (Some(resolved), Some(folder)) = (resolved, folder)
            && !resolved.starts_with(folder)
        {
            let message = format!(
                "`{}` is a link to a file outside its directory and was not read; \
                 replace it with a file, or run `agentline trust` in the workspace",
                shown(file)
            );
            layer = layer.only_trusted(Notice::new(WORKSPACE_CONFIG, message));
        }
        Some(layer)
    }

    /// Returns the layer of the trust that `agentline trust` stored for a workspace, and the changes since.
    fn stored_trust(&self, workspace: &Path) -> (Option<Layer>, Option<ChangedTrust>) {
        let Some(store) = TrustStore::find(self.home, &self.variables) else { return (None, None) };
        let lost = |reason: &str| {
            let message = format!(
                "{reason}, so this run does not load the workspace's settings; \
                 review them, then run `agentline trust {}`",
                shown(workspace)
            );
            Some(Layer::trust_lost(Notice::new(TRUST_CHANGED, message)))
        };
        match store.state(workspace) {
            Ok(TrustState::Unknown) => (None, None),
            Ok(TrustState::Trusted) => (Some(Layer::trusted()), None),
            Ok(TrustState::Changed { manifest, changes }) => {
                let layer = lost(&describe(&changes));
                (layer, Some(ChangedTrust { store, manifest, changes }))
            }
            Err(problem) => (lost(&problem.message), None),
        }
    }
}

/// Formats a path for a message.
fn shown(path: &Path) -> String {
    one_line(&path.display().to_string())
}

/// Describes the changes: the first files, and the number of further ones.
fn describe(changes: &[FileChange]) -> String {
    const SHOWN: usize = 3;
    let names: Vec<String> = changes
        .iter()
        .take(SHOWN)
        .map(|change| format!("`{}` was {}", one_line(&change.path), change.change.name()))
        .collect();
    let more = changes.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more} since you trusted this directory", names.join(", "))
}

/// Builds the configuration from layers and reads the price file that they name.
///
/// # Errors
/// Returns all problems of all layers and of that file together.
pub fn build(layers: &[Layer]) -> Result<Config, Problems> {
    let config = Config::build(layers)?;
    let Some(file) = &config.prices_file else { return Ok(config) };
    let name = file.display().to_string();
    let prices = match read_text(file, MayBe::OnlyFile) {
        Ok(text) => Layer::prices(name, text),
        Err(fault) => {
            let (message, hint) = match fault {
                Fault::Missing => {
                    (format!("`{name}` does not exist"), "create it, or use another file".into())
                }
                Fault::Other { message, hint } => (format!("`{name}` {message}"), hint),
            };
            Layer::broken(name, Problem::new("prices_file", message).hint(hint))
        }
    };
    let all: Vec<Layer> = std::iter::once(prices).chain(layers.iter().cloned()).collect();
    Config::build(&all)
}

/// Returns the path of the user's configuration file, whether or not it exists.
#[must_use]
pub fn user_file(home: Option<&Path>, variables: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    let set = |name: &str| {
        variables.get(&OsString::from(name)).filter(|value| !value.is_empty()).map(PathBuf::from)
    };
    if let Some(named) = set(USER_FILE_VARIABLE) {
        return Some(std::path::absolute(&named).unwrap_or(named));
    }
    let folder = set("XDG_CONFIG_HOME")
        .filter(|folder| folder.is_absolute())
        .or_else(|| set("APPDATA").filter(|_| cfg!(windows)))
        .or_else(|| home.map(|home| home.join(".config")))?;
    Some(folder.join("agentline").join("config.toml"))
}

fn user_layer(home: Option<&Path>, variables: &BTreeMap<OsString, OsString>) -> Option<Layer> {
    let file = user_file(home, variables)?;
    let is_named = variables.get(&OsString::from(USER_FILE_VARIABLE)).is_some_and(|value| !value.is_empty());
    read(&file, home, MayBe::Anything).or_else(|| {
        let problem = Problem::new(USER_FILE_VARIABLE, format!("`{}` does not exist", file.display()))
            .hint(format!("create it, or unset {USER_FILE_VARIABLE}"))
            .source("environment");
        is_named.then(|| Layer::broken("environment", problem))
    })
}

/// The kinds of files that may be read. A pipe is allowed where the user named it, as in `AGENTLINE_CONFIG=<(…)`; a
/// pipe in a workspace could block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayBe {
    OnlyFile,
    Anything,
}

/// Returns the layer of a file, or `None` if the file does not exist.
fn read(file: &Path, home: Option<&Path>, may_be: MayBe) -> Option<Layer> {
    let name = file.display().to_string();
    let layer = match read_text(file, may_be) {
        Ok(text) => Layer::file(name, text),
        Err(Fault::Missing) => return None,
        Err(Fault::Other { message, hint }) => {
            let problem = Problem::new(name.clone(), message).hint(hint);
            Layer::broken(name, problem)
        }
    };
    let layer = layer.base(file.parent().unwrap_or(Path::new("/")));
    Some(match home {
        Some(home) => layer.home(home),
        None => layer,
    })
}

enum Fault {
    Missing,
    Other { message: String, hint: String },
}

impl Fault {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Other { message: message.into(), hint: hint.into() }
    }
}

fn read_text(file: &Path, may_be: MayBe) -> Result<String, Fault> {
    let move_away = "remove it, or replace it with a TOML file";
    let cannot_read = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Fault::Missing,
        io::ErrorKind::PermissionDenied => Fault::new(
            format!("cannot be read: {error}"),
            format!("make it readable with `chmod u+r {}`, or remove it", file.display()),
        ),
        _ => Fault::new(format!("cannot be read: {error}"), move_away),
    };
    let kind = match fs::metadata(file) {
        // A broken symbolic link is an error, not a missing file.
        Err(_) if fs::symlink_metadata(file).is_ok_and(|found| found.is_symlink()) => {
            return Err(Fault::new("is a broken link", "fix or remove the link"));
        }
        found => found.map_err(cannot_read)?.file_type(),
    };
    if kind.is_dir() {
        return Err(Fault::new("is a directory, not a file", move_away));
    }
    if !kind.is_file() && may_be == MayBe::OnlyFile {
        return Err(Fault::new("is not a regular file", move_away));
    }
    let read = match may_be {
        MayBe::OnlyFile => read_regular(file, LONGEST_FILE),
        // A pipe that the user named may be slow, but has a time limit.
        MayBe::Anything => read_within(file, LONGEST_FILE, PIPE_TIME),
    };
    let bytes = read.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => Fault::new("is larger than 1 MiB", move_away),
        _ => cannot_read(error),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count() + 1;
        Fault::new(format!("is not valid UTF-8 from line {line} on"), "save it as UTF-8")
    })
}

/// Returns the layer of the environment variables, and a broken layer for each `AGENTLINE_` variable that is not UTF-8.
fn environment_layers(variables: &BTreeMap<OsString, OsString>) -> Vec<Layer> {
    let mut layers = Vec::new();
    let mut texts = Vec::new();
    for (name, value) in variables {
        match (name.to_str(), value.to_str()) {
            (Some(name), Some(value)) => texts.push((name, value)),
            (Some(name), None) if name.starts_with("AGENTLINE_") && name != USER_FILE_VARIABLE => {
                let problem = Problem::new(name, "is not valid UTF-8")
                    .hint("use UTF-8, or unset it")
                    .source("environment");
                layers.push(Layer::broken("environment", problem));
            }
            _ => {}
        }
    }
    layers.push(Layer::environment(texts));
    layers
}
