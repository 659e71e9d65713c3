//! Computes the cache key of a run, and whether the run can be cached.
//!
//! As in the pool, two runs are identical if their launches are identical: the key is a digest of the launch, so no
//! list of relevant settings can be incomplete. The key also covers what the launch does not contain: the prompt with
//! its files, the schema, instructions that the agent finds by itself, and every file of the workspace.

use crate::{
    agentline::Inner,
    fs::{digest::hex, digester::Digester, regular_file::read_regular},
    resolve::spec::{ProcessSpec, ResolvedRun, SessionSpec},
    run::{Launched, options::RunOptions, resolved::ResolvedStart},
    workspace::snapshot::prints::FilePrints,
};
use agentline_core::{Redactor, RunInfo, RunRequest};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// The version of the format of keys and entries.
const FORMAT: u32 = 1;
/// A placeholder for the path of a workspace whose path does not count.
const WORKSPACE: &str = "/agentline-workspace";
/// The maximum size of an instruction file in bytes; larger files are ignored.
const LONGEST_INSTRUCTIONS: u64 = 1 << 20;
/// The maximum size of an attachment or prompt file in bytes.
const LARGEST_INPUT: u64 = 1 << 30;

/// Variables that differ between terminals or logins and do not affect an agent. A trailing `*` matches a prefix.
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

/// The key of a run that can be cached, with what is needed to store or replay it.
pub(super) struct CacheKey {
    pub(super) key: String,
    pub(super) cwd: PathBuf,
    /// Whether the workspace is created for the run and removed with it.
    pub(super) is_temporary: bool,
    /// Whether the run may be replayed in a workspace on another path.
    pub(super) any_path: bool,
    /// The state of the workspace before the run.
    pub(super) before: FilePrints,
    /// Paths in the workspace that are not the agent's work.
    pub(super) own: Vec<PathBuf>,
    /// Canonical names of agentline's own tools, which do not make a run irreproducible.
    pub(super) harmless: Vec<String>,
    pub(super) info: RunInfo,
    pub(super) launched: Launched,
    pub(super) secrets: Vec<String>,
    pub(super) redactor: Redactor,
}

/// The result of computing a key.
pub(super) enum KeyResult {
    Key(Box<CacheKey>),
    /// The run cannot be cached.
    Not {
        reason: String,
        warn: bool,
    },
}

/// Returns why a run cannot be cached, as far as the request shows it.
fn uncacheable_reason(request: &RunRequest, options: &RunOptions) -> Option<&'static str> {
    let never = [
        (request.resume.is_some(), "it resumes a saved session"),
        (request.session_id.is_some(), "it sets a session id"),
        (request.record.is_some(), "it records a tape"),
        (reads_pipe(request), "it reads a pipe or a device"),
    ];
    let unless = [
        (options.tools.as_ref().is_some_and(|tools| !tools.is_empty()), "it uses functions of the caller"),
        (options.until.is_some(), "the caller checks its answers"),
        (!request.mcp_servers.is_empty() || request.mcp_settings_path.is_some(), "it uses MCP servers"),
    ];
    let unless = unless.into_iter().filter(|_| !request.cache.impure);
    never.into_iter().chain(unless).find(|(is_so, _)| *is_so).map(|(_, reason)| reason)
}

/// Returns whether the request names a file that is not a regular file and may be readable only once.
fn reads_pipe(request: &RunRequest) -> bool {
    let mut named = request.attachments.iter().chain(&request.prompt_file).chain(&request.output_schema);
    named.any(|path| path.metadata().is_ok_and(|found| !found.is_file()))
}

/// Computes the key of a run. Blocks.
pub(super) fn cache_key(inner: &Inner, resolved: &ResolvedStart) -> KeyResult {
    let ResolvedStart { process, run, options, .. } = resolved;
    let request = &run.plan.request;
    if let Some(reason) = uncacheable_reason(request, options) {
        return KeyResult::Not { reason: reason.into(), warn: false };
    }
    if !run.session.servers.is_empty() && !request.cache.impure {
        return KeyResult::Not { reason: "it uses MCP servers".into(), warn: false };
    }
    let is_temporary = run.session.temporary.is_some();
    let mut own = process.dirs.clone();
    own.extend([inner.host_env.cache.clone(), inner.active_runs()]);
    own.extend(request.cache.path.as_ref().map(|path| inner.host_env.cwd.join(path)));
    let prints = |folder: &Path| FilePrints::take(folder, &own, &inner.memory.files);
    let mut digester = Digester::default();
    let before = match is_temporary {
        true => Ok(FilePrints::default()),
        false => prints(&run.session.cwd),
    };
    let before = match before {
        Ok(before) => before,
        Err(reason) => return KeyResult::Not { reason, warn: true },
    };
    before.digest(&mut digester);
    for folder in &request.include_directories {
        match prints(&inner.host_env.cwd.join(folder)) {
            Ok(prints) => prints.digest(&mut digester),
            Err(reason) => return KeyResult::Not { reason, warn: true },
        }
    }
    write_request(inner, request, options, &mut digester);
    write_launch(run, process, &mut digester);
    write_instructions(run, process, &inner.host_env.home, &mut digester);
    let redactor = Redactor::new(&process.secrets);
    KeyResult::Key(Box::new(CacheKey {
        key: hex(&digester.finish()),
        cwd: run.session.cwd.clone(),
        is_temporary,
        any_path: request.cache.any_path,
        before,
        own,
        harmless: if options.tools.is_none() { request.own_tools.clone() } else { Vec::new() },
        info: run.turn.info.clone(),
        launched: Launched::of_any(process, &redactor),
        redactor,
        secrets: process.secrets.clone(),
    }))
}

/// Adds the request to the digest, except timeouts and names, which do not affect a finished answer.
fn write_request(inner: &Inner, request: &RunRequest, options: &RunOptions, digester: &mut Digester) {
    let mut request = request.clone();
    let files: Vec<PathBuf> = request.attachments.drain(..).chain(request.prompt_file.clone()).collect();
    let zero = Duration::ZERO;
    (request.timeout, request.idle_timeout, request.tool_timeout) = (zero, zero, zero);
    (request.startup_timeout, request.retry_patience, request.quiet_period) = (zero, zero, None);
    (request.deadline, request.name, request.output_schema) = (None, None, None);
    (request.retries, request.retry_after_changes) = (None, false);
    request.fallback_models.clear();
    let attempt = request.cache.attempt;
    (request.working_dir, request.cache) = (None, agentline_core::CachePolicy::default());
    digester.bytes(&serde_json::to_vec(&request).unwrap_or_default());
    if attempt > 0 {
        // Writing to a digest cannot fail.
        let _ = write!(digester, "attempt {attempt}\0");
    }
    for file in files {
        digester.bytes(file.file_name().unwrap_or_default().as_encoded_bytes());
        // A file that cannot be read fails the run before it starts.
        digester.bytes(&read_regular(&inner.host_env.cwd.join(&file), LARGEST_INPUT).unwrap_or_default());
    }
    let schema = options.schema.as_ref().map(|schema| schema.document().to_string());
    // Writing to a digest cannot fail.
    let _ = write!(
        digester,
        "{schema:?}\0{:?}\0{}\0",
        options.permission_handler.is_some(),
        options.until.is_some()
    );
    for tool in options.tools.iter().flat_map(|tools| tools.descriptions()) {
        digester.bytes(tool.as_bytes());
    }
}

/// Adds the launch to the digest.
fn write_launch(run: &ResolvedRun, process: &ProcessSpec, digester: &mut Digester) {
    let workspace = run.session.cwd.to_string_lossy();
    let has_any_path = has_any_path(run);
    let plain = |value: String| {
        let value = process.placeholders.text(value);
        // A temporary workspace has a different path each time.
        if has_any_path { value.replace(&*workspace, WORKSPACE) } else { value }
    };
    let is_volatile = |name: &str| {
        VOLATILE.iter().any(|volatile| match volatile.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == *volatile,
        })
    };
    let env: Vec<_> = process.env.iter().filter(|(name, _)| !is_volatile(name)).collect();
    // Complete, so that a new field is a decision. Fields named `_` do not affect the answer, follow from the others, or
    // are read below.
    let ProcessSpec {
        program,
        args,
        proof,
        dialogue,
        agent_home,
        is_live: _,
        api: _,
        env: _,
        files: _,
        links: _,
        version: _,
        private: _,
        preset: _,
        cwd: _,
        dirs: _,
        read_only: _,
        copy_back: _,
        abandoned: _,
        withheld: _,
        secrets: _,
        max_line: _,
        record: _,
        placeholders: _,
    } = process;
    let SessionSpec {
        mode,
        model,
        servers,
        trusted_servers,
        meta,
        cwd: _,
        temporary: _,
        target: _,
        session_cwd: _,
        must_ignore: _,
        stores: _,
        not_before: _,
    } = &run.session;
    let stdin = &run.turn.prompt;
    let info = (run.agent.info().id, process.version, env!("CARGO_PKG_VERSION"), FORMAT);
    digester.bytes(
        plain(format!("{info:?}{program:?}{args:?}{env:?}{proof:?}{dialogue:?}{agent_home:?}")).as_bytes(),
    );
    digester
        .bytes(plain(format!("{mode:?}{model:?}{servers:?}{trusted_servers:?}{meta:?}{stdin:?}")).as_bytes());
    if !has_any_path {
        digester.bytes(workspace.as_bytes());
    }
    // A local build may have the same version as a release, and some builds report no version.
    let program = &run.program;
    for file in std::iter::once(program.path.as_path()).chain(program.args.iter().map(Path::new)) {
        let metadata = file.metadata().ok();
        let written = metadata
            .as_ref()
            .and_then(|metadata| metadata.modified().ok())
            .filter(|_| program.version.is_none());
        // Writing to a digest cannot fail.
        let _ = write!(digester, "{:?}{written:?}", metadata.map(|metadata| metadata.len()));
    }
    for file in process.files.iter().filter(|file| !file.copied) {
        digester.bytes(plain(file.path.to_string_lossy().into_owned()).as_bytes());
        digester.bytes(plain(String::from_utf8_lossy(&file.content).into_owned()).as_bytes());
    }
}

/// Adds the files that the agent reads by itself: instructions in its home that the launch links to, and those in the
/// directories above the workspace.
fn write_instructions(run: &ResolvedRun, process: &ProcessSpec, home: &Path, digester: &mut Digester) {
    let is_text = |path: &Path| {
        path.extension().is_some_and(|ending| ending == "md") || path.file_name().is_some_and(|n| n == ".env")
    };
    let linked = process.links.iter().map(|(_, to)| to.clone()).filter(|to| is_text(to));
    let above = run.session.cwd.ancestors().skip(1).take_while(|folder| *folder != home);
    let above = above.flat_map(|folder| run.agent.info().instructions.iter().map(|name| folder.join(name)));
    let above: Vec<PathBuf> = if run.session.temporary.is_some() { Vec::new() } else { above.collect() };
    let has_any_path = has_any_path(run);
    let linked = linked.map(|path| (path.clone().into_os_string(), path));
    let above = above.into_iter().map(|path| {
        // The names of directories above a workspace whose path does not count do not count either.
        let name = path.file_name().filter(|_| has_any_path).unwrap_or(path.as_os_str()).to_owned();
        (name, path)
    });
    for (name, path) in linked.chain(above) {
        let is_short = |metadata: &fs::Metadata| metadata.is_file() && metadata.len() <= LONGEST_INSTRUCTIONS;
        if path.metadata().is_ok_and(|metadata| is_short(&metadata)) {
            digester.bytes(name.as_encoded_bytes());
            digester.bytes(&read_regular(&path, LONGEST_INSTRUCTIONS).unwrap_or_default());
        }
    }
}

/// Returns whether the path of the workspace does not count.
fn has_any_path(run: &ResolvedRun) -> bool {
    run.session.temporary.is_some() || run.plan.request.cache.any_path
}
