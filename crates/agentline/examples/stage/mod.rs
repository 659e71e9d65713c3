//! The environment of the examples: the real Gemini CLI, a scripted model on loopback, a private home and workspace. Your
//! own program needs none of this: it starts with `Agentline::from_env()`.

use agentline::{Agentline, agents, detect::HostEnv, install};
use agentline_mock::gemini::{GeminiModel, SETTINGS, Script};
use std::{collections::BTreeMap, error::Error, fs, path::PathBuf};

/// The environment of an example. It is removed on drop.
pub(crate) struct Stage {
    /// The library, configured for this environment.
    pub(crate) agentline: Agentline,
    /// The workspace of the agent.
    pub(crate) workspace: PathBuf,
    _dir: tempfile::TempDir,
    _model: GeminiModel,
}

/// Installs the agent if necessary, and starts a model that plays this script.
pub(crate) fn set(script: Script) -> Result<Stage, Box<dyn Error>> {
    let user = Agentline::from_env()?;
    let agent = agents::find("gemini")?;
    let program = install::ensure(agent.info(), agent.info().pinned, user.host_env(), &mut |progress| {
        eprintln!("{progress}")
    })?;
    let model = GeminiModel::start(script)?;
    let dir = tempfile::tempdir()?;
    let (home, workspace) = (dir.path().join("home"), dir.path().join("work"));
    fs::create_dir_all(home.join(".gemini"))?;
    fs::create_dir_all(&workspace)?;
    fs::write(home.join(".gemini/settings.json"), SETTINGS)?;
    let mut env: BTreeMap<String, String> = model.env().into_iter().collect();
    env.insert("PATH".into(), std::env::var("PATH")?);
    let agentline = Agentline::new(HostEnv::new(env, &home, &workspace)).program("gemini", program.path);
    Ok(Stage { agentline, workspace, _dir: dir, _model: model })
}
