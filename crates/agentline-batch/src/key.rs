//! The identity of a run: what it depends on, and nothing else.

use crate::suite::{RunIndex, Suite, TestCase, WorkspaceSource};
use agentline_fs::digest::hex;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the key of each run.
///
/// A key has the ids of the case and the variant, the attempt, and a digest of everything that can influence the agent:
/// prompt, settings, workspace and setup. It has no absolute path, and no checks, hidden files or tags.
///
/// # Errors
/// Fails if a workspace cannot be read.
pub(crate) fn keys(suite: &Suite) -> io::Result<HashMap<RunIndex, String>> {
    let mut workspaces = HashMap::new();
    let mut digests: HashMap<(usize, usize), String> = HashMap::new();
    let mut keys = HashMap::new();
    for run in suite.runs() {
        let case = &suite.cases[run.case];
        let digest = match digests.get(&(run.case, run.variant)) {
            Some(digest) => digest.clone(),
            None => {
                let digest = influence(case, run.variant, &mut workspaces)?;
                digests.insert((run.case, run.variant), digest.clone());
                digest
            }
        };
        let identity = json!([case.id, suite.variants[run.variant].id, run.attempt, digest]);
        keys.insert(run, hex(&Sha256::digest(identity.to_string()))[..24].to_owned());
    }
    Ok(keys)
}

/// Returns the digest of everything that can influence the agent.
fn influence(
    case: &TestCase,
    variant: usize,
    workspaces: &mut HashMap<WorkspaceSource, String>,
) -> io::Result<String> {
    let workspace = match &case.workspace {
        None => None,
        Some(source) => match workspaces.get(source) {
            Some(digest) => Some(digest.clone()),
            None => {
                let digest = content(source)?;
                workspaces.insert(source.clone(), digest.clone());
                Some(digest)
            }
        },
    };
    let influence = json!({
        "prompt": case.prompts[variant],
        "settings": case.settings[variant],
        "workspace": workspace,
        "setup": case.setup,
    });
    Ok(hex(&Sha256::digest(influence.to_string())))
}

/// Returns a digest of the content of a workspace.
fn content(source: &WorkspaceSource) -> io::Result<String> {
    match source {
        WorkspaceSource::Directory(root) => directory(root),
        WorkspaceSource::Git { repository, revision } => {
            let commit = crate::template::commit(repository, revision)?;
            Ok(format!("git {commit}"))
        }
    }
}

/// Returns a digest of the names, kinds and content of all files below a directory.
fn directory(root: &Path) -> io::Result<String> {
    let mut entries: Vec<(PathBuf, [u8; 32])> = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let kind = entry.file_type()?;
            let mut hash = Sha256::new();
            if kind.is_dir() {
                hash.update(b"dir");
                waiting.push(path.clone());
            } else if kind.is_symlink() {
                hash.update(b"link");
                hash.update(std::fs::read_link(entry.path())?.as_os_str().as_encoded_bytes());
            } else if kind.is_file() {
                hash.update(if is_executable(&entry)? { b"exec" } else { b"file" });
                update(&mut hash, std::fs::File::open(entry.path())?)?;
            }
            entries.push((path, hash.finalize().into()));
        }
    }
    entries.sort();
    let mut hash = Sha256::new();
    for (path, digest) in entries {
        let name = path.as_os_str().as_encoded_bytes();
        hash.update(name.len().to_le_bytes());
        hash.update(name);
        hash.update(digest);
    }
    Ok(hex(&hash.finalize()))
}

/// Adds the content of a file to a digest.
fn update(hash: &mut Sha256, mut file: impl io::Read) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => hash.update(&buffer[..count]),
        }
    }
}

#[cfg(unix)]
fn is_executable(entry: &std::fs::DirEntry) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(entry.metadata()?.permissions().mode() & 0o100 != 0)
}

#[cfg(not(unix))]
fn is_executable(_entry: &std::fs::DirEntry) -> io::Result<bool> {
    Ok(false)
}
