//! What a run depends on, as one key; and whether a run can be kept at all.
//!
//! As in the pool, two runs are alike when what would be started for them is alike: the key is a digest of the launch, so
//! that nobody has to remember which settings matter. What a launch does not hold comes to it: the prompt with its files,
//! the schema, instructions that the agent finds by itself, and every file of the workspace.

use crate::{
    agentline::Inner,
    digest::{Digester, hex},
    error::Error,
    options::RunOptions,
    pool::key::PRIVATE,
    ready::{Asked, NO_SESSION},
    regular_file::read_regular,
    run::Launched,
    snapshot::prints::Prints,
};
use agentline_core::{Launch, RunRequest, Veil, Who};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Changes when keys or entries mean something else than before.
const FORMAT: u32 = 1;
/// Stands for a workspace that is made for one run.
const WORKSPACE: &str = "/agentline-workspace";
/// A file of instructions is not longer.
const LONGEST_INSTRUCTIONS: u64 = 1 << 20;
/// A file that goes with a prompt is not larger.
const LARGEST_INPUT: u64 = 1 << 30;

/// Variables that differ from one terminal or sign-in to the next and say nothing to an agent; a trailing `*` is a prefix.
const VOLATILE: &[&str] = &[
    "_",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "TERM",
    "TERM_*",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "WINDOWID",
    "TMPDIR",
    "TMUX*",
    "STY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_*",
    "GPG_TTY",
    "XDG_SESSION_*",
    "XDG_RUNTIME_DIR",
    "XDG_SEAT*",
    "XDG_VTNR",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_*",
];

/// A run that can be asked for.
pub(super) struct Question {
    pub(super) key: String,
    pub(super) cwd: PathBuf,
    /// The workspace is made for the run and goes with it.
    pub(super) is_temporary: bool,
    /// The workspace as it is before the run.
    pub(super) before: Prints,
    /// What lies in the workspace and is no work of the agent's.
    pub(super) own: Vec<PathBuf>,
    /// Tools of the program itself that have no say of their own, by their canonical names.
    pub(super) harmless: Vec<String>,
    pub(super) who: Who,
    pub(super) launched: Launched,
    pub(super) secrets: Vec<String>,
    pub(super) veil: Veil,
}

/// What came of asking for the key of a run.
pub(super) enum Answer {
    Key(Box<Question>),
    /// The run cannot be kept.
    Not {
        reason: String,
        warn: bool,
    },
    /// The request is wrong.
    Unclear,
}

/// The key of a run. Blocks.
pub(super) fn question(inner: &Inner, request: RunRequest, options: &RunOptions) -> Answer {
    let wish = request.cache.clone();
    if let Some(reason) = why_not(&request, options, wish.impure) {
        return Answer::Not { reason: reason.into(), warn: false };
    }
    let asked = match inner.ask_with(request, |agent| inner.memory.finds.detect(inner, agent)) {
        Ok(Ok(asked)) => asked,
        // It is over before it begins.
        Ok(Err(_)) | Err(_) => return Answer::Unclear,
    };
    match with_launch(inner, asked, options, wish.impure) {
        Ok(answer) => answer,
        Err(_) => Answer::Unclear,
    }
}

/// What keeps a run from being kept, as far as the request tells.
fn why_not(request: &RunRequest, options: &RunOptions, impure: bool) -> Option<&'static str> {
    let never = [
        (request.resume.is_some(), "it goes on with a stored session"),
        (request.session_id.is_some(), "it names its session"),
        (request.record.is_some(), "it records a tape"),
        (reads_pipe(request), "it reads a pipe or a device"),
    ];
    let unless = [
        (options.tools.as_ref().is_some_and(|tools| !tools.is_empty()), "it has functions of the program"),
        (options.until.is_some(), "the program checks its answers"),
        (!request.mcp_servers.is_empty() || request.mcp_settings_path.is_some(), "it has MCP servers"),
    ];
    let unless = unless.into_iter().filter(|_| !impure);
    never.into_iter().chain(unless).find(|(is_so, _)| *is_so).map(|(_, reason)| reason)
}

/// Whether a file that the request names can be read only once.
fn reads_pipe(request: &RunRequest) -> bool {
    let mut named = request.attachments.iter().chain(&request.prompt_file).chain(&request.output_schema);
    named.any(|path| path.metadata().is_ok_and(|found| !found.is_file()))
}

fn with_launch(inner: &Inner, mut asked: Asked, options: &RunOptions, impure: bool) -> Result<Answer, Error> {
    let options = inner.with_schema(&mut asked, options)?;
    let launch = inner.launch(&asked, Path::new(PRIVATE), NO_SESSION)?;
    if !launch.servers.is_empty() && !impure {
        return Ok(Answer::Not { reason: "it has MCP servers".into(), warn: false });
    }
    let is_temporary = asked.temporary.is_some();
    let mut own = launch.folders.clone();
    own.extend([inner.here.cache.clone(), inner.active_runs()]);
    own.extend(asked.plan.request.cache.path.as_ref().map(|path| inner.here.cwd.join(path)));
    let prints = |folder: &Path| Prints::take(folder, &own, &inner.memory.files);
    let mut text = Digester::default();
    let before = match is_temporary {
        true => Ok(Prints::default()),
        false => prints(&asked.cwd),
    };
    let before = match before {
        Ok(before) => before,
        Err(reason) => return Ok(Answer::Not { reason, warn: true }),
    };
    before.digest(&mut text);
    for folder in &asked.plan.request.include_directories {
        match prints(&inner.here.cwd.join(folder)) {
            Ok(prints) => prints.digest(&mut text),
            Err(reason) => return Ok(Answer::Not { reason, warn: true }),
        }
    }
    write_request(inner, &asked, &options, &mut text);
    write_launch(&asked, &launch, &mut text);
    write_instructions(&asked, &launch, &inner.here.home, &mut text);
    let veil = Veil::new(&launch.secrets);
    Ok(Answer::Key(Box::new(Question {
        key: hex(&text.finish()),
        cwd: asked.cwd,
        is_temporary,
        before,
        own,
        harmless: if options.tools.is_none() { asked.plan.request.own_tools } else { Vec::new() },
        who: asked.who,
        launched: Launched::of(&launch, &veil),
        veil,
        secrets: launch.secrets,
    })))
}

/// What was asked. Times and names change nothing about an answer that came in time.
fn write_request(inner: &Inner, asked: &Asked, options: &RunOptions, text: &mut Digester) {
    let mut request = asked.plan.request.clone();
    let files: Vec<PathBuf> = request.attachments.drain(..).chain(request.prompt_file.clone()).collect();
    let patient = Duration::ZERO;
    (request.timeout, request.idle_timeout, request.tool_timeout) = (patient, patient, patient);
    (request.startup_timeout, request.retry_patience, request.quiet_period) = (patient, patient, None);
    (request.deadline, request.name, request.output_schema) = (None, None, None);
    (request.working_dir, request.cache) = (None, agentline_core::CacheWish::default());
    text.bytes(&serde_json::to_vec(&request).unwrap_or_default());
    for file in files {
        text.bytes(file.file_name().unwrap_or_default().as_encoded_bytes());
        // One that cannot be read ends the run before it begins.
        text.bytes(&read_regular(&inner.here.cwd.join(&file), LARGEST_INPUT).unwrap_or_default());
    }
    let schema = options.schema.as_ref().map(|schema| schema.document().to_string());
    // Writing to a digest cannot fail.
    let _ = write!(text, "{schema:?}\0{:?}\0{}\0", options.judge.is_some(), options.until.is_some());
    for tool in options.tools.iter().flat_map(|tools| tools.described()) {
        text.bytes(tool.as_bytes());
    }
}

/// What would be started.
fn write_launch(asked: &Asked, launch: &Launch, text: &mut Digester) {
    let here = asked.cwd.to_string_lossy();
    // A workspace of the run's own is called otherwise each time.
    let plain = |said: String| match asked.temporary {
        Some(_) => said.replace(&*here, WORKSPACE),
        None => said,
    };
    let is_volatile = |name: &str| {
        VOLATILE.iter().any(|volatile| match volatile.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == *volatile,
        })
    };
    let env: Vec<_> = launch.env.iter().filter(|(name, _)| !is_volatile(name)).collect();
    let Launch { program, args, proof, talk, agent_home, mode, model, servers, meta, stdin, .. } = launch;
    let who = (asked.agent.card().id, asked.program.version, env!("CARGO_PKG_VERSION"), FORMAT);
    text.bytes(plain(format!("{who:?}{program:?}{args:?}{env:?}{proof:?}{talk:?}{agent_home:?}")).as_bytes());
    text.bytes(plain(format!("{mode:?}{model:?}{servers:?}{meta:?}{stdin:?}")).as_bytes());
    if asked.temporary.is_none() {
        text.bytes(here.as_bytes());
    }
    // A build of one's own may have the version of another, and some have none.
    let told = &asked.program;
    for file in std::iter::once(told.path.as_path()).chain(told.args.iter().map(Path::new)) {
        let about = file.metadata().ok();
        let written =
            about.as_ref().and_then(|about| about.modified().ok()).filter(|_| told.version.is_none());
        // Writing to a digest cannot fail.
        let _ = write!(text, "{:?}{written:?}", about.map(|about| about.len()));
    }
    for file in launch.files.iter().filter(|file| !file.copied) {
        text.bytes(plain(file.path.to_string_lossy().into_owned()).as_bytes());
        text.bytes(plain(String::from_utf8_lossy(&file.content).into_owned()).as_bytes());
    }
}

/// What the agent reads by itself: instructions in its home that the launch shows it, and those above the workspace.
fn write_instructions(asked: &Asked, launch: &Launch, home: &Path, text: &mut Digester) {
    let is_text = |path: &Path| {
        path.extension().is_some_and(|ending| ending == "md") || path.file_name().is_some_and(|n| n == ".env")
    };
    let linked = launch.links.iter().map(|(_, to)| to.clone()).filter(|to| is_text(to));
    let above = asked.cwd.ancestors().skip(1).take_while(|folder| *folder != home);
    let above = above.flat_map(|folder| asked.agent.card().instructions.iter().map(|name| folder.join(name)));
    let above: Vec<PathBuf> = if asked.temporary.is_some() { Vec::new() } else { above.collect() };
    for path in linked.chain(above) {
        let is_short = |about: &fs::Metadata| about.is_file() && about.len() <= LONGEST_INSTRUCTIONS;
        if path.metadata().is_ok_and(|about| is_short(&about)) {
            text.bytes(path.as_os_str().as_encoded_bytes());
            text.bytes(&read_regular(&path, LONGEST_INSTRUCTIONS).unwrap_or_default());
        }
    }
}
