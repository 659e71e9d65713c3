//! The environment of an example that runs on any agent: the real agent, a scripted model on loopback, a private home and
//! workspace. Your own program needs none of this: it starts with `Agentline::from_env()`.

use agentline::{Agentline, agents, detect::HostEnv, install};
use agentline_mock::{
    agents::{AgentModel, ScriptedAgent},
    answer::{Action, Answer},
};
use std::{error::Error, fs, path::PathBuf};

/// The environment of one agent. It is removed on drop.
pub(crate) struct ScriptedEnvironment {
    /// The library, configured for this environment.
    pub(crate) agentline: Agentline,
    /// The workspace of the agent.
    pub(crate) workspace: PathBuf,
    _dir: tempfile::TempDir,
    _model: AgentModel,
}

/// Installs the agent if necessary, and starts a model that writes a file, counts its words, and reports them.
pub(crate) fn set(agent: &str) -> Result<ScriptedEnvironment, Box<dyn Error>> {
    let scripted = ScriptedAgent::find(agent).ok_or_else(|| format!("no scripted model serves `{agent}`"))?;
    let user = Agentline::from_env()?;
    let info = agents::find(agent)?;
    let program = install::ensure(info.info(), info.info().pinned, user.host_env(), &mut |progress| {
        eprintln!("{progress}")
    })?;
    let dir = tempfile::tempdir()?;
    let (home, workspace) = (dir.path().join("home"), dir.path().join("work"));
    fs::create_dir_all(&home)?;
    fs::create_dir_all(&workspace)?;
    let file = fs::canonicalize(&workspace)?.join("primes.txt").to_string_lossy().into_owned();
    let model = scripted.model(move |request| match request.tool_results.len() {
        0 => Answer::thought("They are 2, 3, 5 and 7.").and_use(Action::write(&file, "2 3 5 7\n")),
        1 => Answer::text("Counting.").and_use(Action::shell(format!("wc -w < '{file}'"))),
        _ => Answer::text("There are 4 primes below ten."),
    })?;
    let mut env = model.prepare(&home)?;
    env.insert("PATH".into(), std::env::var("PATH")?);
    env.insert("HOME".into(), home.to_string_lossy().into_owned());
    let agentline = Agentline::new(HostEnv::new(env, &home, &workspace)).program(agent, program.path);
    Ok(ScriptedEnvironment { agentline, workspace, _dir: dir, _model: model })
}
