//! The environment and directories of the user that runs this process.

use agentline_core::Problem;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Returns the environment of this process, without variables that are not UTF-8.
#[must_use]
pub fn process_env() -> BTreeMap<String, String> {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}

/// Returns the home directory that an environment names.
///
/// # Errors
/// Returns a problem if it names none.
pub fn home_dir(env: &BTreeMap<String, String>) -> Result<PathBuf, Problem> {
    let home = env.get("HOME").or_else(|| env.get("USERPROFILE")).filter(|home| !home.is_empty());
    home.map(PathBuf::from).ok_or_else(|| {
        Problem::new("HOME", "not set, so your sign-in and settings cannot be found")
            .hint("set HOME to a writable directory")
    })
}

/// Returns the cache directory: `AGENTLINE_CACHE_DIR`, or else the system's directory for caches.
#[must_use]
pub fn cache_dir(env: &BTreeMap<String, String>, home: &Path) -> PathBuf {
    let set = |name: &str| env.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(own) = set("AGENTLINE_CACHE_DIR") {
        return own;
    }
    let system = if cfg!(windows) {
        set("LOCALAPPDATA").unwrap_or_else(|| home.join("AppData").join("Local"))
    } else if cfg!(target_os = "macos") {
        home.join("Library").join("Caches")
    } else {
        // The XDG specification says that relative paths in this variable are ignored.
        set("XDG_CACHE_HOME").filter(|p| p.is_absolute()).unwrap_or_else(|| home.join(".cache"))
    };
    system.join("agentline")
}

#[cfg(test)]
mod tests {
    use super::cache_dir;
    use std::{collections::BTreeMap, path::Path};

    #[test]
    fn variables_take_precedence_over_home() {
        let dir = |pairs: &[(&str, &str)]| {
            let env: BTreeMap<String, String> =
                pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            cache_dir(&env, Path::new("/home/u")).to_string_lossy().into_owned()
        };
        assert_eq!(dir(&[("AGENTLINE_CACHE_DIR", "/own"), ("XDG_CACHE_HOME", "/xdg")]), "/own");
        if cfg!(target_os = "linux") {
            assert_eq!(dir(&[("XDG_CACHE_HOME", "/xdg")]), "/xdg/agentline");
            assert_eq!(dir(&[("XDG_CACHE_HOME", "relative")]), "/home/u/.cache/agentline");
            assert_eq!(dir(&[("AGENTLINE_CACHE_DIR", "")]), "/home/u/.cache/agentline");
        }
    }
}
