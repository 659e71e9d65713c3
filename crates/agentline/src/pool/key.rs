//! What makes two runs fit for the same process, and the same session to be opened for them.

use super::launches::{Fit, Launches};
use crate::{
    agentline::Inner,
    attach::read_attachments,
    digest::Digester,
    error::Error,
    finds::Finds,
    options::RunOptions,
    ready::{Asked, NotBegun},
};
use agentline_core::{Isolation, Launch, RunRequest, Words};
use std::{fmt::Write as _, sync::Arc};

/// Stands for the private folder of a process that may not exist yet.
pub(crate) const PRIVATE: &str = "/agentline-private";

/// What a run wants of the pool.
pub(super) struct Wanted {
    pub(super) asked: Asked,
    /// The process that would do for it.
    pub(super) fit: Arc<Fit>,
    /// What its model is told.
    pub(super) words: Words,
    pub(super) options: RunOptions,
    /// Which sessions would do for it, if any that was opened beforehand can.
    pub(super) session: Option<Key>,
}

/// Two runs with the same key fit for the same process. Only a digest: a launch holds secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

#[cfg(test)]
impl From<u8> for Key {
    fn from(number: u8) -> Self {
        Self([number; 32])
    }
}

/// Checks the request, finds the agent and says what a process for it would be. Blocks.
pub(super) fn prepare(
    inner: &Inner,
    finds: &Finds,
    launches: &Launches,
    request: RunRequest,
    options: &RunOptions,
) -> Result<Result<Box<Wanted>, NotBegun>, Error> {
    let mut asked = match inner.ask_with(request, |agent| finds.detect(inner, agent))? {
        Ok(asked) => asked,
        Err(outcome) => return Ok(Err(outcome)),
    };
    // Files that cannot be sent are wrong in the request, so nobody's place is taken for it.
    read_attachments(&asked.plan.request.attachments, &inner.here.cwd)?;
    let options = inner.with_schema(&mut asked, options)?;
    let (fit, words) = launches.find(inner, &mut asked)?;
    // What is served for one run only cannot have been there when a session was opened beforehand.
    // Nor can a folder that is made for one run only.
    let own = options.marks_session() || !fit.launch.servers.is_empty() || asked.temporary.is_some();
    let session = (!own).then_some(fit.session);
    Ok(Ok(Box::new(Wanted { asked, fit, words, options, session })))
}

/// All that a process is started with. What belongs to a session is left out: workspace, prompt, mode, model, servers.
/// But a run that wants no model must not find itself with the one that a process was started with.
pub(super) fn of_process(asked: &Asked, launch: &Launch, isolation: Isolation) -> Key {
    let Launch { program, args, env, files, links, folders, copy_back, proof, talk, agent_home, .. } = launch;
    let mut text = Digester::default();
    text.paths([program, agent_home]);
    text.number(files.len());
    for file in files {
        text.paths([&file.path]);
        // Others change the user's files all the time; a process that has older copies of some does as well.
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
        "{}\0{:?}\0{proof:?}\0{talk:?}\0{:?}\0{}\0{isolation:?}",
        asked.agent.card().id,
        asked.program.version,
        asked.plan.request.max_line_bytes,
        launch.preset.is_empty(),
    );
    Key(text.finish())
}

/// All that a session is opened with.
pub(super) fn of_session(asked: &Asked, launch: &Launch) -> Key {
    let mut text = Digester::default();
    let Launch { mode, model, servers, meta, session_cwd, .. } = launch;
    let _ = write!(text, "{:?}\0{mode:?}\0{model:?}\0{servers:?}\0{meta:?}\0{session_cwd:?}", asked.cwd);
    Key(text.finish())
}
