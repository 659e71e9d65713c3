//! The environment of the demo: a temporary directory with an empty home and a workspace, and a scripted model on
//! loopback.

use agentline::{Agent, Agentline, PermissionMode, RunRequest, Trust, detect::HostEnv};
use agentline_core::Program;
use agentline_fs::disk_fs::canonicalize;
use agentline_mock::demo::{Demo, MODEL};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The user's variables that the demo needs: to find Node.js, and to start programs on Windows.
const KEPT_VARIABLES: &[&str] = &["PATH", "LANG", "TERM", "SystemRoot", "ComSpec", "PATHEXT", "windir"];

/// The files and the model of the demo, removed on drop.
pub(in crate::commands) struct DemoStage {
    folder: tempfile::TempDir,
    model: Demo,
    host_env: HostEnv,
}

impl DemoStage {
    pub(super) fn set(
        user: &HostEnv,
        program: &Program,
        model: impl FnOnce(&Path) -> io::Result<Demo>,
    ) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("agentline-demo-").tempdir()?;
        let root = folder.path();
        for part in ["home", "primes", "tmp"] {
            fs::create_dir_all(root.join(part))?;
        }
        let model = model(&root.join("home"))?;
        let mut env: BTreeMap<String, String> = model.env().into_iter().collect();
        for name in KEPT_VARIABLES {
            if let Some(value) = user.env.get(*name) {
                env.insert((*name).to_owned(), value.clone());
            }
        }
        env.insert("PATH".into(), path_with_node(&env, program));
        env.insert("HOME".into(), root.join("home").to_string_lossy().into_owned());
        env.insert("TMPDIR".into(), root.join("tmp").to_string_lossy().into_owned());
        let mut host_env = HostEnv::new(env, root.join("home"), root.join("primes"));
        host_env.cache = root.join("cache");
        Ok(Self { folder, model, host_env })
    }

    pub(super) fn model_url(&self) -> String {
        self.model.url()
    }

    pub(super) fn workspace(&self) -> &Path {
        &self.host_env.cwd
    }

    /// Returns what a program needs to run the agent in this environment: variables, workspace and a model with a known
    /// price.
    pub(super) fn for_programs(&self, agent: &dyn Agent, program: &Program) -> serde_json::Value {
        let mut env = self.host_env.env.clone();
        env.insert(
            agent.info().path_variable.to_owned(),
            identifying_path(program).to_string_lossy().into_owned(),
        );
        serde_json::json!({"env": env, "workspace": self.workspace(), "model": MODEL, "url": self.model_url()})
    }

    /// Returns the handle that starts runs in this environment.
    pub(super) fn agentline(&self, agent: &dyn Agent, program: &Program) -> Agentline {
        Agentline::new(self.host_env.clone()).program(agent.info().id, identifying_path(program))
    }

    pub(super) fn request(&self, prompt: &str, record: bool) -> RunRequest {
        let mut request = RunRequest::new(prompt)
            .model(MODEL)
            .permission_mode(PermissionMode::Bypass)
            .trust(Trust::Run)
            .working_dir(self.workspace())
            .agent_option("extensions", Vec::<String>::new());
        request.record = record.then(|| self.tape());
        request
    }

    /// Copies the tape without the paths of this machine.
    pub(super) fn save_tape(&self, to: &Path, program: &Program) -> io::Result<()> {
        let mut text = fs::read_to_string(self.tape())?;
        let root = self.folder.path();
        let tape = format!("\"tape\":{}", json(&self.tape()));
        text = text.replace(&tape, "\"tape\":null");
        let canonical = canonicalize(root).unwrap_or_else(|_| root.to_owned());
        for path in [canonical.as_path(), root] {
            text = text.replace(bare(&json(path)), "/demo");
        }
        for path in [identifying_path(program), program.path.clone()] {
            text = text.replace(&json(&path), "\"gemini\"");
            text = text.replace(bare(&json(&path)), "gemini");
        }
        fs::write(to, text)
    }

    fn tape(&self) -> PathBuf {
        self.folder.path().join("demo.tape.jsonl")
    }
}

/// Returns the path that identifies a program: the script, if an interpreter starts it.
fn identifying_path(program: &Program) -> PathBuf {
    program.args.first().map_or_else(|| program.path.clone(), PathBuf::from)
}

/// Returns the user's PATH, with the directory of the interpreter first if the program needs one.
fn path_with_node(env: &BTreeMap<String, String>, program: &Program) -> String {
    let path = env.get("PATH").cloned().unwrap_or_default();
    let node = program.path.parent().filter(|_| !program.args.is_empty());
    let folders = node.map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders).map_or(path, |joined| joined.to_string_lossy().into_owned())
}

/// Returns a path as a JSON string, as it appears on a tape.
fn json(path: &Path) -> String {
    serde_json::to_string(&path.to_string_lossy()).unwrap_or_default()
}

/// Removes the quotes of a JSON string.
fn bare(quoted: &str) -> &str {
    quoted.trim_matches('"')
}
