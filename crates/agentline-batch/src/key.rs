//! The identity of a run: what it depends on, and nothing else.

use crate::suite::{RunIndex, Suite, TestCase, WorkspaceSource};
use agentline::RunRequest;
use agentline_core::looks_secret;
use agentline_fs::digest::hex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// The length of a name in bytes. As text, it is twice as long.
const NAME: usize = 12;

type NameBytes = [u8; NAME];

/// The names of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunKey {
    /// What the suite says about the run: the ids of the case and the variant, the attempt, and a digest of the prompt,
    /// the settings, the workspace and the setup. It depends on nothing but the suite, so that stored results can be
    /// found by it anywhere.
    pub(crate) identity: String,
    /// The name of its result: the identity, and the settings that the user's configuration and environment add.
    pub(crate) key: String,
}

/// The names of each run of a suite, in few bytes: a suite may have very many runs.
#[derive(Debug, Default)]
pub(crate) struct RunKeys {
    cases: usize,
    variants: usize,
    /// The names in the order of the runs.
    identities: Vec<NameBytes>,
    keys: Vec<NameBytes>,
    /// The positions of the runs in the order of their keys.
    by_key: Vec<u32>,
}

impl RunKeys {
    /// Returns the number of runs.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the position of a run in the order of the suite's runs.
    pub(crate) fn position(&self, run: RunIndex) -> usize {
        (run.attempt as usize * self.cases + run.case) * self.variants + run.variant
    }

    /// Returns the name of the result of a run.
    pub(crate) fn key(&self, run: RunIndex) -> String {
        hex(&self.keys[self.position(run)])
    }

    /// Returns what the suite says about a run.
    pub(crate) fn identity(&self, run: RunIndex) -> String {
        hex(&self.identities[self.position(run)])
    }

    /// Returns the run of a key.
    pub(crate) fn find(&self, key: &str) -> Option<RunIndex> {
        let key = bytes(key)?;
        let found = self.by_key.binary_search_by_key(&key, |position| self.keys[*position as usize]).ok()?;
        self.run(self.by_key[found])
    }

    /// Returns the run at a position in the order of the suite's runs.
    pub(crate) fn run(&self, position: u32) -> Option<RunIndex> {
        let position = position as usize;
        let (rest, variant) = (position / self.variants, position % self.variants);
        let attempt = u32::try_from(rest / self.cases).ok()?;
        Some(RunIndex { attempt, case: rest % self.cases, variant })
    }

    /// Returns the names of all runs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RunKey> {
        self.identities
            .iter()
            .zip(&self.keys)
            .map(|(identity, key)| RunKey { identity: hex(identity), key: hex(key) })
    }

    /// Returns the names of the results of all runs in an order that depends on nothing else.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = &NameBytes> {
        self.by_key.iter().map(|position| &self.keys[*position as usize])
    }

    /// Makes room for the names of a number of runs.
    fn reserve(&mut self, runs: usize) {
        self.identities.reserve_exact(runs);
        self.keys.reserve_exact(runs);
    }

    fn push(&mut self, identity: NameBytes, key: NameBytes) {
        self.identities.push(identity);
        self.keys.push(key);
    }

    /// Makes the runs known by their keys, after the last one.
    fn sort(&mut self) {
        self.by_key = (0..u32::try_from(self.keys.len()).unwrap_or(u32::MAX)).collect();
        self.by_key.sort_unstable_by_key(|position| self.keys[*position as usize]);
    }
}

/// Returns a name from its text. Upper-case digits are refused, so that a name has one spelling.
fn bytes(text: &str) -> Option<NameBytes> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    let mut bytes = NameBytes::default();
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    (text.len() == 2 * NAME).then_some(bytes)
}

/// Returns the names of each run of a suite. `resolved` returns a digest of the complete settings of a run.
///
/// They contain no absolute path, and no checks, hidden files or tags.
///
/// # Errors
/// Fails if a workspace or a file cannot be read.
pub(crate) fn keys(
    suite: &Suite,
    mut resolved: impl FnMut(&Map<String, Value>) -> io::Result<Option<String>>,
) -> io::Result<RunKeys> {
    let mut workspaces = HashMap::new();
    let mut digests: HashMap<(usize, usize), (String, Option<String>)> = HashMap::new();
    let mut keys = RunKeys { cases: suite.cases.len(), variants: suite.variants.len(), ..RunKeys::default() };
    keys.reserve(keys.cases * keys.variants * suite.repeat as usize);
    for run in suite.runs() {
        let case = &suite.cases[run.case];
        let place = (run.case, run.variant);
        let computed;
        let (influence, settings) = match digests.get(&place) {
            Some(digests) => digests,
            None => {
                let both =
                    (influence(case, run.variant, &mut workspaces)?, resolved(&case.settings[run.variant])?);
                // Only the attempts that follow need them again.
                if suite.repeat > 1 {
                    digests.entry(place).or_insert(both)
                } else {
                    computed = both;
                    &computed
                }
            }
        };
        let identity = name(&json!([case.id, suite.variants[run.variant].id, run.attempt, influence]));
        let key = name(&json!([hex(&identity), settings]));
        keys.push(identity, key);
    }
    keys.sort();
    Ok(keys)
}

/// Returns the name of what a value describes.
fn name(value: &Value) -> NameBytes {
    let mut name = NameBytes::default();
    name.copy_from_slice(&Sha256::digest(value.to_string())[..NAME]);
    name
}

/// Returns a digest of the complete settings of a run: what can influence the agent, with the content of the files that
/// they name. Secrets are left out, and so is what belongs to one run or to this machine, such as paths.
///
/// # Errors
/// Fails if a file cannot be read.
pub(crate) fn settings_digest(request: &RunRequest, cwd: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    let named = [&request.prompt_file, &request.output_schema, &request.mcp_settings_path];
    for path in request.attachments.iter().chain(named.into_iter().flatten()) {
        let mut hash = Sha256::new();
        update(&mut hash, std::fs::File::open(cwd.join(path)).map_err(|error| named_error(path, &error))?)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push(json!([name, hex(&hash.finalize())]));
    }
    for path in &request.include_directories {
        let content = directory(&cwd.join(path)).map_err(|error| named_error(path, &error))?;
        files.push(json!([path.file_name().unwrap_or_default().to_string_lossy(), content]));
    }
    let mut settings = serde_json::to_value(request).unwrap_or_default();
    if let Value::Object(settings) = &mut settings {
        settings.retain(|name, _| !OF_ONE_RUN.contains(&name.as_str()));
    }
    remove_secrets(&mut settings);
    let digest = json!({"settings": settings, "files": files});
    Ok(hex(&Sha256::digest(digest.to_string())))
}

/// The fields of a request that belong to one run, to this machine, or are read as files.
const OF_ONE_RUN: [&str; 12] = [
    "prompt",
    "name",
    "working_dir",
    "prompt_file",
    "attachments",
    "output_schema",
    "mcp_settings_path",
    "include_directories",
    "record",
    "cache",
    "deadline",
    "diffs",
];

fn named_error(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// Removes the values whose names are those of secrets.
pub(crate) fn remove_secrets(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|name, _| !looks_secret(name));
            table.values_mut().for_each(remove_secrets);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_secrets),
        _ => {}
    }
}

/// Returns the settings of a suite without what belongs to this machine or does not influence the agent. The content of
/// the files that they name is in the digest of the complete settings.
fn without_paths(settings: &Map<String, Value>) -> Map<String, Value> {
    let kept = settings.iter().filter(|(name, _)| !OF_ONE_RUN.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the digest of everything in a suite that can influence the agent.
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
        "settings": without_paths(&case.settings[variant]),
        "workspace": workspace,
        "setup": case.setup,
    });
    Ok(hex(&Sha256::digest(influence.to_string())))
}

/// Returns a digest of the content of a workspace.
fn content(source: &WorkspaceSource) -> io::Result<String> {
    match source {
        WorkspaceSource::Directory(root) => directory(root),
        WorkspaceSource::Git { repository, revision, .. } => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_influence_a_run_change_its_key_and_others_do_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let schema = dir.path().join("schema.json");
        std::fs::write(&schema, "{}").expect("a file");
        let mut request = RunRequest::new("");
        request.output_schema = Some("schema.json".into());
        let digest = |request: &RunRequest| settings_digest(request, dir.path()).expect("a digest");
        let first = digest(&request);
        let changed = |change: &dyn Fn(&mut RunRequest)| {
            let mut other = request.clone();
            change(&mut other);
            digest(&other) != first
        };
        assert!(changed(&|request| request.model = Some("other".into())));
        assert!(changed(&|request| request.env = [("LANG".to_owned(), "C".to_owned())].into()));
        assert!(changed(&|request| request.attachments = vec![schema.clone()]));
        assert!(!changed(&|request| request.api_key = Some("secret".into())));
        assert!(!changed(&|request| request.env = [("SERVICE_API_KEY".to_owned(), "k".to_owned())].into()));
        assert!(!changed(&|request| request.working_dir = Some("/elsewhere".into())));
        assert!(!changed(&|request| request.output_schema = Some(schema.clone())), "the path does not count");
        let included = dir.path().join("included");
        std::fs::create_dir(&included).expect("a directory");
        request.include_directories = vec![included.clone()];
        let without = digest(&request);
        std::fs::write(included.join("a.txt"), "a").expect("a file");
        assert_ne!(digest(&request), without, "the content of the directory counts");
        request.include_directories.clear();
        std::fs::write(&schema, "{\"type\": \"object\"}").expect("a file");
        assert_ne!(digest(&request), first, "the content of the schema counts");
        std::fs::remove_file(&schema).expect("no file");
        let error = settings_digest(&request, dir.path()).expect_err("the file is missing");
        assert!(error.to_string().contains("schema.json"), "{error}");
    }

    #[test]
    fn key_leads_back_to_its_run() {
        let text = "repeat: 3\ncases: [{id: a, prompt: x}, {id: b, prompt: x}]\nvariants: [{id: v}, {id: w}]";
        let base = std::env::temp_dir();
        let input = crate::suite::SuiteInput::Text { name: "suite".into(), text: text.into(), base };
        let suite = crate::suite::load(&input, &Map::new()).expect("a suite");
        let keys = keys(&suite, |_| Ok(None)).expect("keys");
        assert_eq!(keys.len(), 12);
        for (position, (run, names)) in suite.runs().zip(keys.iter()).enumerate() {
            assert_eq!((keys.position(run), keys.find(&names.key)), (position, Some(run)));
            assert_eq!(keys.run(u32::try_from(position).expect("a small number")), Some(run));
            assert_eq!((keys.key(run), keys.identity(run)), (names.key, names.identity));
        }
        let known: Vec<String> = keys.iter().map(|names| names.key).collect();
        let with_letters = known.iter().find(|key| key.contains(|c: char| c.is_ascii_lowercase()));
        let upper = with_letters.expect("a key with letters").to_uppercase();
        for unknown in ["", "0", "zz", &"0".repeat(24), &known[0][..22], &upper] {
            assert_eq!(keys.find(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn neither_paths_nor_the_cache_are_part_of_an_identity() {
        let suite = |settings: &str| {
            let text = format!("cases: [{{id: a, prompt: x}}]\nvariants: [{{id: v{settings}}}]");
            let base = std::env::temp_dir();
            let input = crate::suite::SuiteInput::Text { name: "suite".into(), text, base };
            let suite = crate::suite::load(&input, &Map::new()).expect("a suite");
            let keys = keys(&suite, |_| Ok(None)).expect("keys");
            keys.iter().next().expect("a run").identity
        };
        let plain = suite("");
        assert_eq!(suite(", cache: true, output_schema: /x/schema.json"), plain);
        assert_ne!(suite(", model: other"), plain);
    }
}
