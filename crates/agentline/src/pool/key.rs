//! Determines which runs may share a process, and which sessions can be opened for them in advance.

use crate::pool::launch_cache::{LaunchCache, LaunchTemplate};
use crate::{
    agentline::Inner,
    detect::cache::DetectCache,
    fs::digester::Digester,
    resolve::{ResolvedRun, StartFailure, attachments::read_attachments},
    run::options::RunOptions,
};
use agentline_core::{Isolation, Launch, PromptText, RunRequest};
use std::{fmt::Write as _, sync::Arc};

/// The request of a run to the pool.
pub(super) struct PoolRequest {
    pub(super) resolved: ResolvedRun,
    /// The process that the run needs.
    pub(super) template: Arc<LaunchTemplate>,
    /// The prompt text for the model.
    pub(super) prompt_text: PromptText,
    pub(super) options: RunOptions,
    /// The key of sessions that can be opened in advance for the run, if any.
    pub(super) session: Option<PoolKey>,
}

/// Runs with the same key can use the same process. A digest, because a launch contains secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolKey([u8; 32]);

#[cfg(test)]
impl From<u8> for PoolKey {
    fn from(number: u8) -> Self {
        Self([number; 32])
    }
}

/// Checks the request, finds the agent and determines the process that the run needs. Blocks.
pub(super) fn prepare(
    inner: &Inner,
    finds: &DetectCache,
    launches: &LaunchCache,
    request: RunRequest,
    options: &RunOptions,
) -> Result<Box<PoolRequest>, StartFailure> {
    let mut resolved = inner.ask_with(request, |agent| inner.detect_cached(finds, agent))?;
    // Attachments are checked before a slot is taken, because unreadable files are errors in the request.
    read_attachments(&resolved.plan.request.attachments, &inner.host_env.cwd)?;
    let options = inner.with_schema(&mut resolved, options)?;
    let (template, prompt_text) = launches.find(inner, &mut resolved)?;
    // A session opened in advance cannot have servers or a temporary workspace that belong to one run only.
    let own = options.marks_session() || !template.launch.servers.is_empty() || resolved.temporary.is_some();
    let session = (!own).then_some(template.session);
    Ok(Box::new(PoolRequest { resolved, template, prompt_text, options, session }))
}

/// Returns the key of a process: everything that it is started with. Properties of a session are left out: workspace,
/// prompt, mode, model and servers. Only the presence of a preset is included, because a run without a model must not
/// get the model that a process was started with.
pub(super) fn of_process(resolved: &ResolvedRun, launch: &Launch, isolation: Isolation) -> PoolKey {
    let Launch { program, args, env, files, links, folders, copy_back, proof, dialogue, agent_home, .. } =
        launch;
    let mut text = Digester::default();
    text.paths([program, agent_home]);
    text.number(files.len());
    for file in files {
        text.paths([&file.path]);
        // The user's files change often. A process with older copies of some is still usable.
        if !file.copied {
            text.bytes(&file.content);
        }
    }
    text.number(args.len());
    args.iter().for_each(|arg| text.bytes(arg.as_bytes()));
    text.number(env.len());
    env.iter().for_each(|(name, value)| [name, value].iter().for_each(|word| text.bytes(word.as_bytes())));
    for pairs in [links, copy_back] {
        text.number(pairs.len());
        pairs.iter().for_each(|(at, to)| text.paths([at, to]));
    }
    text.number(folders.len());
    text.paths(folders);
    // Writing to a digest cannot fail.
    let _ = write!(
        text,
        "{}\0{:?}\0{proof:?}\0{dialogue:?}\0{:?}\0{}\0{isolation:?}",
        resolved.agent.info().id,
        resolved.program.version,
        resolved.plan.request.max_line_bytes,
        launch.preset.is_empty(),
    );
    PoolKey(text.finish())
}

/// Returns the key of a session: everything that it is opened with.
pub(super) fn of_session(resolved: &ResolvedRun, launch: &Launch) -> PoolKey {
    let mut text = Digester::default();
    let Launch { mode, model, servers, meta, session_cwd, .. } = launch;
    let _ = write!(text, "{:?}\0{mode:?}\0{model:?}\0{servers:?}\0{meta:?}\0{session_cwd:?}", resolved.cwd);
    PoolKey(text.finish())
}
