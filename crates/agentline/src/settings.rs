//! Finds the files and variables that hold settings, and hands them to the core as layers.

use agentline_core::{Config, Layer, Problem, Problems};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The name of a workspace's file.
pub const WORKSPACE_FILE: &str = "agentline.toml";

/// The variable that names the user's file.
pub const USER_FILE_VARIABLE: &str = "AGENTLINE_CONFIG";

/// No file of settings is longer; it is something else then.
const LONGEST_FILE: u64 = 1 << 20;

/// The layers below the flags, lowest first: the user's file, the workspace's, the environment.
///
/// `workspace` is the folder of the run; its `agentline.toml` or the nearest one above it counts. A file that is
/// there and cannot be read becomes a layer too, whose problem [`Config::build`](agentline_core::Config::build) tells
/// with all others.
///
/// ```no_run
/// let home = std::env::home_dir();
/// let layers = agentline::settings::find_layers(&std::env::current_dir()?, home.as_deref(), std::env::vars_os());
/// let config = agentline::settings::build(&layers)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find_layers(
    workspace: &Path,
    home: Option<&Path>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<Layer> {
    let variables: BTreeMap<OsString, OsString> = variables.into_iter().collect();
    let mut layers = Vec::new();
    layers.extend(user_layer(home, &variables));
    layers.extend(
        workspace_file(workspace, home)
            .and_then(|file| read(&file, home, MayBe::OnlyFile))
            .map(Layer::of_workspace),
    );
    layers.extend(environment_layers(variables));
    layers
}

/// The configuration of layers, with the file of prices read that they name.
///
/// # Errors
/// Everything that is wrong in any layer and in that file, at once.
pub fn build(layers: &[Layer]) -> Result<Config, Problems> {
    let config = Config::build(layers)?;
    let Some(file) = &config.prices_file else { return Ok(config) };
    let name = file.display().to_string();
    let prices = match read_text(file, MayBe::OnlyFile) {
        Ok(text) => Layer::prices(name, text),
        Err(fault) => {
            let (message, hint) = match fault {
                Fault::Missing => (format!("there is no file `{name}`"), "create it, or name another".into()),
                Fault::Other { message, hint } => (format!("`{name}` {message}"), hint),
            };
            Layer::broken(name, Problem::new("prices_file", message).hint(hint))
        }
    };
    let all: Vec<Layer> = std::iter::once(prices).chain(layers.iter().cloned()).collect();
    Config::build(&all)
}

/// Where the user's file is looked for, whether or not it is there.
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

/// The workspace's `agentline.toml`, or the nearest one above it; the search ends at the user's home.
#[must_use]
pub fn workspace_file(workspace: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let resolve = |path: &Path| match fs::canonicalize(path) {
        // The canonical form of Windows is one that few programs understand.
        Ok(path) if cfg!(unix) => path,
        _ => std::path::absolute(path).unwrap_or_else(|_| path.into()),
    };
    let workspace = resolve(workspace);
    let home = home.map(resolve);
    for folder in workspace.ancestors() {
        let file = folder.join(WORKSPACE_FILE);
        if fs::symlink_metadata(&file).is_ok() && (folder == workspace || is_ours(&file, &workspace)) {
            return Some(file);
        }
        if home.as_deref() == Some(folder) {
            break;
        }
    }
    None
}

fn user_layer(home: Option<&Path>, variables: &BTreeMap<OsString, OsString>) -> Option<Layer> {
    let file = user_file(home, variables)?;
    let is_named = variables.get(&OsString::from(USER_FILE_VARIABLE)).is_some_and(|value| !value.is_empty());
    read(&file, home, MayBe::Anything).or_else(|| {
        let problem = Problem::new(USER_FILE_VARIABLE, format!("there is no file `{}`", file.display()))
            .hint(format!("create it, or unset {USER_FILE_VARIABLE}"))
            .source("environment");
        is_named.then(|| Layer::broken("environment", problem))
    })
}

/// Above the workspace anyone may have put a file, in `/tmp` for one: it counts when the workspace's owner or root did.
#[cfg(unix)]
fn is_ours(file: &Path, workspace: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = |path: &Path| fs::metadata(path).map(|found| found.uid()).ok();
    owner(file).is_none_or(|uid| uid == 0 || Some(uid) == owner(workspace))
}

#[cfg(not(unix))]
fn is_ours(_file: &Path, _workspace: &Path) -> bool {
    true
}

/// What may stand under the name of a file. A pipe is good where the user named it, as in `AGENTLINE_CONFIG=<(…)`;
/// one that lies in a workspace would keep us waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayBe {
    OnlyFile,
    Anything,
}

/// The layer of a file; nothing when there is none.
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
    let move_away = "move it away, or put a TOML file there";
    let cannot_read = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Fault::Missing,
        io::ErrorKind::PermissionDenied => Fault::new(
            format!("cannot be read: {error}"),
            format!("make it readable with `chmod u+r {}`, or move it away", file.display()),
        ),
        _ => Fault::new(format!("cannot be read: {error}"), move_away),
    };
    let kind = match fs::metadata(file) {
        // A link that leads nowhere is there all the same.
        Err(_) if fs::symlink_metadata(file).is_ok_and(|found| found.is_symlink()) => {
            return Err(Fault::new("is a link that leads nowhere", "repair the link, or remove it"));
        }
        found => found.map_err(cannot_read)?.file_type(),
    };
    if kind.is_dir() {
        return Err(Fault::new("is a folder, not a file", move_away));
    }
    if !kind.is_file() && may_be == MayBe::OnlyFile {
        return Err(Fault::new("is neither a file nor a link to one", move_away));
    }
    let mut bytes = Vec::new();
    let open = File::open(file).map_err(cannot_read)?;
    open.take(LONGEST_FILE + 1).read_to_end(&mut bytes).map_err(cannot_read)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(Fault::new("is longer than 1 MiB, which no file of settings is", move_away));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count() + 1;
        Fault::new(format!("is not UTF-8 text, from line {line} on"), "save it as UTF-8")
    })
}

/// The layer of our variables, and a broken one for each of them that is not text.
fn environment_layers(variables: BTreeMap<OsString, OsString>) -> Vec<Layer> {
    let mut layers = Vec::new();
    let mut texts = Vec::new();
    for (name, value) in variables {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => texts.push((name, value)),
            (Ok(name), Err(_)) if name.starts_with("AGENTLINE_") && name != USER_FILE_VARIABLE => {
                let problem = Problem::new(name, "is not UTF-8 text")
                    .hint("write it in UTF-8, or unset it")
                    .source("environment");
                layers.push(Layer::broken("environment", problem));
            }
            _ => {}
        }
    }
    layers.push(Layer::environment(texts));
    layers
}
