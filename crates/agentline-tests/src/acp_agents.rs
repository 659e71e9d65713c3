//! Real ACP agents other than Gemini CLI, at fixed versions, each with its own home and scripted model.

use crate::{npm::Package, real::are_disabled, real_slots::RealSlot};
use agentline::{
    Agentline, Surface, agents,
    install::{self, find_node},
};
use agentline_mock::{agents::ScriptedAgent, scripted::ScriptedModel};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The last version of the protocol's own library whose package contains the example agent.
const SDK: Package = Package::new("acp-sdk", "@agentclientprotocol/sdk", "1.9.0");

const DISABLE: &str = "AGENTLINE_REAL_AGENTS=off disables the tests with real agents";

/// The model that the test environment of OpenCode configures.
pub const OPENCODE_MODEL: &str = "scripted/scripted-model";

/// A program that starts an ACP agent with these arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpAgent {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

/// Returns OpenCode, or `None` if real agents are disabled.
///
/// # Panics
/// Panics if it cannot be installed, as do the other functions.
#[must_use]
pub fn real_opencode() -> Option<AcpAgent> {
    installed("opencode", |modules| {
        // The program in `.bin` is a script of Node.js, which would start this one.
        let system = match std::env::consts::OS {
            "macos" => "darwin",
            other => other,
        };
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let name = if cfg!(windows) { "opencode.exe" } else { "opencode" };
        let plain = ["", "-musl", "-baseline", "-baseline-musl"];
        let old = ["-baseline", "-baseline-musl", "", "-musl"];
        let kinds = if has_modern_processor() { plain } else { old };
        let candidates =
            kinds.map(|kind| modules.join(format!("opencode-{system}-{arch}{kind}")).join("bin").join(name));
        let program = candidates.iter().find(|path| path.exists()).unwrap_or(&candidates[0]);
        AcpAgent { program: program.clone(), args: vec!["acp".into()] }
    })
}

/// Returns Claude Code behind its ACP adapter.
#[must_use]
pub fn real_claude_acp() -> Option<AcpAgent> {
    installed("claude", |modules| AcpAgent { program: bin(modules, "claude-agent-acp"), args: Vec::new() })
}

/// Returns Claude Code's own CLI.
#[must_use]
pub fn real_claude() -> Option<AcpAgent> {
    let of = |modules: &Path| AcpAgent { program: bin(modules, "claude"), args: Vec::new() };
    installed_for("claude", Surface::StreamJson, of)
}

/// Returns Codex behind its ACP adapter.
#[must_use]
pub fn real_codex_acp() -> Option<AcpAgent> {
    installed("codex", |modules| AcpAgent { program: bin(modules, "codex-acp"), args: Vec::new() })
}

/// Returns Codex's own program, which its adapter includes.
#[must_use]
pub fn real_codex() -> Option<AcpAgent> {
    installed("codex", |modules| AcpAgent { program: bin(modules, "codex"), args: Vec::new() })
}

/// Returns the protocol's own example agent. It needs no model: it sends some text, uses two tools, requests permission
/// once, and takes about five seconds.
///
/// # Panics
/// Panics if it cannot be installed or there is no Node.js.
#[must_use]
pub fn example_agent() -> Option<AcpAgent> {
    if are_disabled() {
        return None;
    }
    let modules = SDK.modules().unwrap_or_else(|error| panic!("{error}\n{DISABLE}"));
    let agentline = Agentline::from_env().expect("the tests have a home");
    let node = find_node(agentline.host_env()).expect("Node.js was needed to install it").path;
    let script = modules.join(SDK.name).join("dist").join("examples").join("agent.js");
    Some(AcpAgent { program: node, args: vec![script.to_string_lossy().into_owned()] })
}

/// Returns an agent that agentline itself installs, at the version it pins. `found` gets its `node_modules`.
fn installed(id: &str, found: impl Fn(&Path) -> AcpAgent) -> Option<AcpAgent> {
    installed_for(id, Surface::Acp, found)
}

/// Returns the program of one surface of an agent, like [`installed`].
fn installed_for(id: &str, surface: Surface, found: impl Fn(&Path) -> AcpAgent) -> Option<AcpAgent> {
    if are_disabled() {
        return None;
    }
    let agentline = Agentline::from_env().expect("the tests have a home");
    let (agent, host_env) = (agents::find(id).expect("it is built in"), agentline.host_env());
    let info = agent.info().for_surface(surface);
    let version = info.pinned;
    if let Err(error) = install::ensure(info, version, host_env, &mut |_| ()) {
        panic!("{id}: {error}\n{}\n{DISABLE}", error.hint());
    }
    Some(found(&host_env.cache.join("agents").join(format!("{id}-{version}")).join("node_modules")))
}

fn bin(modules: &Path, name: &str) -> PathBuf {
    modules.join(".bin").join(if cfg!(windows) { format!("{name}.cmd") } else { name.to_owned() })
}

fn has_modern_processor() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// A home, a workspace and a model for one agent. They are removed with it.
#[derive(Debug)]
pub struct AcpStage {
    /// The agent.
    pub agent: AcpAgent,
    /// The agent's model.
    pub model: ScriptedModel,
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
    _slot: Arc<RealSlot>,
}

impl AcpStage {
    /// Creates OpenCode with a model of [`agentline_mock::openai`]. It requests permission only if its configuration
    /// requires that.
    ///
    /// # Panics
    /// Panics if the temporary directory cannot be created, as do the other constructors.
    #[must_use]
    pub fn opencode(model: ScriptedModel) -> Option<Self> {
        Some(Self::new(real_opencode()?, model).prepared("opencode"))
    }

    /// Creates Claude Code with a model of [`agentline_mock::anthropic`].
    #[must_use]
    pub fn claude(model: ScriptedModel) -> Option<Self> {
        let stage = Self::new(real_claude_acp()?, model).prepared("claude");
        let stage = stage.env("DISABLE_AUTOUPDATER", "1").env("CLAUDE_CODE_MAX_RETRIES", "0");
        Some(stage.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"))
    }

    /// Creates Claude Code's own CLI with a model of [`agentline_mock::anthropic`].
    #[must_use]
    pub fn claude_native(model: ScriptedModel) -> Option<Self> {
        Some(Self::new(real_claude()?, model).prepared("claude"))
    }

    /// Creates Codex behind its adapter, with a model of [`agentline_mock::responses`].
    #[must_use]
    pub fn codex(model: ScriptedModel) -> Option<Self> {
        Some(Self::new(real_codex_acp()?, model).prepared("codex"))
    }

    /// Creates Codex's own program, with a model of [`agentline_mock::responses`].
    #[must_use]
    pub fn codex_native(model: ScriptedModel) -> Option<Self> {
        Some(Self::new(real_codex()?, model).prepared("codex"))
    }

    /// Writes the files with which the agent uses its model, and sets the variables.
    fn prepared(mut self, agent: &str) -> Self {
        let scripted = ScriptedAgent::find(agent).expect("a scripted model serves it");
        self.env.extend(scripted.prepare(&self.home(), &self.model.url()).expect("a home"));
        self
    }

    fn new(agent: AcpAgent, model: ScriptedModel) -> Self {
        let dir = tempfile::Builder::new().prefix("agentline-acp-").tempdir().expect("a temporary folder");
        let stage = Self { agent, model, dir, env: BTreeMap::new(), _slot: RealSlot::take() };
        for path in [stage.home(), stage.workspace(), stage.dir.path().join("tmp")] {
            fs::create_dir_all(path).expect("a folder");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let (home, tmp) = (stage.home(), stage.dir.path().join("tmp"));
        stage.env("PATH", &path).env("HOME", &home.to_string_lossy()).env("TMPDIR", &tmp.to_string_lossy())
    }

    /// Returns the user's home.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Returns the workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    /// Returns the variables that the agent needs. Its environment must contain nothing else.
    #[must_use]
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Writes a file into the home and creates its directories.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn home_file(&self, path: &str, content: &str) {
        let path = self.home().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    }
}
