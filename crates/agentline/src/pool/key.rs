//! Determines which runs may share a process, and which sessions can be opened for them in advance.

use crate::{
    agentline::Inner,
    fs::digester::Digester,
    process::mounts,
    resolve::{
        StartFailure,
        attachments::read_attachments,
        spec::{ProcessSpec, ResolvedRun, SessionSpec},
    },
    run::{
        Launched,
        options::RunOptions,
        resolved::{PendingStart, ResolvedStart},
    },
};
use agentline_core::{Isolation, Redactor};
use std::{fmt::Write as _, path::Path};

/// The request of a run to the pool.
pub(super) struct PoolRequest {
    pub(super) run: ResolvedRun,
    pub(super) options: RunOptions,
    /// The key of suitable processes.
    pub(super) process: PoolKey,
    /// The key of sessions that can be opened in advance for the run, if any.
    pub(super) session: Option<PoolKey>,
    /// Whether the run can share the process with other runs.
    pub(super) shares: bool,
    /// How many sessions one process can have, if that is limited by the agent.
    pub(super) max_sessions: Option<u32>,
    /// The secrets of the run. They may have changed since its process was started.
    pub(super) secrets: Vec<String>,
    pub(super) redactor: Redactor,
    pub(super) launched: Launched,
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

/// Resolves the run, and determines which processes and sessions can serve it. Also returns the process to start if
/// there is none. Blocks.
pub(super) fn prepare(
    inner: &Inner,
    start: PendingStart,
) -> Result<(Box<PoolRequest>, ProcessSpec), StartFailure> {
    let ResolvedStart { process, run, options, .. } = *start.resolve(inner)?;
    // Attachments are checked before a slot is taken, because unreadable files are errors in the request.
    read_attachments(&run.plan.request.attachments, &inner.host_env.cwd)?;
    // A session opened in advance cannot have servers or a workspace that belong to one run only.
    let own = options.marks_session()
        || !run.session.servers.is_empty()
        || run.session.temporary.is_some()
        || mounts::enclosure(&run.session.cwd).is_some();
    let redactor = Redactor::new(&process.secrets);
    let pool_request = PoolRequest {
        process: of_process(&run, &process, inner.isolation),
        session: (!own).then(|| of_session(&run.session)),
        shares: run.agent.shares(&run.plan),
        max_sessions: run.agent.sessions_per_process(run.plan.surface),
        secrets: process.secrets.clone(),
        launched: Launched::of_any(&process, &redactor),
        redactor,
        options,
        run,
    };
    Ok((Box::new(pool_request), process))
}

/// Returns the key of a process: everything that it is started with. Properties of a session are excluded:
/// workspace, prompt, mode, model and servers. Only the presence of a preset is included, because a run
/// without a model must not get the model that a process was started with.
fn of_process(run: &ResolvedRun, process: &ProcessSpec, isolation: Isolation) -> PoolKey {
    // Complete, so that a new field is a decision. Fields named `_` belong to one process or one session, or follow from
    // the others.
    let ProcessSpec {
        program,
        args,
        env,
        api,
        files,
        links,
        dirs,
        copy_back,
        proof,
        dialogue,
        agent_home,
        version,
        max_line,
        preset,
        placeholders,
        is_live: _,
        cwd,
        private: _,
        read_only: _,
        abandoned: _,
        withheld: _,
        secrets: _,
        record: _,
    } = process;
    let mut digester = Digester::default();
    let mut add = |bytes: &[u8]| digester.bytes(&placeholders.bytes(bytes));
    add(bytes_of(program));
    add(bytes_of(agent_home));
    add(&files.len().to_le_bytes());
    for file in files {
        add(bytes_of(&file.path));
        // The user's files change often. A process with older copies of some is still usable.
        if !file.copied {
            add(&file.content);
        }
    }
    add(&args.len().to_le_bytes());
    args.iter().for_each(|arg| add(arg.as_bytes()));
    add(&env.len().to_le_bytes());
    env.iter().for_each(|(name, value)| [name, value].iter().for_each(|word| add(word.as_bytes())));
    for pairs in [links, copy_back] {
        add(&pairs.len().to_le_bytes());
        pairs.iter().for_each(|(at, to)| [at, to].iter().for_each(|part| add(bytes_of(part))));
    }
    add(&dirs.len().to_le_bytes());
    dirs.iter().for_each(|dir| add(bytes_of(dir)));
    // Writing to a digest cannot fail.
    let _ = write!(
        digester,
        "{}\0{:?}\0{proof:?}\0{}\0{:?}\0{}\0{isolation:?}\0{api:?}",
        run.agent.info().id,
        version,
        placeholders.text(format!("{dialogue:?}")),
        max_line,
        preset.is_empty(),
    );
    if run.agent.sessions_per_process(run.plan.surface).is_some() || mounts::enclosure(cwd).is_some() {
        // Its only session is in the directory of the process, or it sees no other workspace.
        digester.bytes(bytes_of(cwd));
    }
    PoolKey(digester.finish())
}

/// Returns the key of a session: everything that it is opened with.
fn of_session(session: &SessionSpec) -> PoolKey {
    let mut digester = Digester::default();
    // Fields named `_` belong to one run, or follow from the workspace.
    let SessionSpec {
        cwd,
        mode,
        model,
        servers,
        meta,
        session_cwd,
        trusted_servers: _,
        temporary: _,
        target: _,
        must_ignore: _,
        stores: _,
        not_before: _,
    } = session;
    let _ = write!(digester, "{cwd:?}\0{mode:?}\0{model:?}\0{servers:?}\0{meta:?}\0{session_cwd:?}");
    PoolKey(digester.finish())
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{agentline::Agentline, detect::HostEnv, error::Error};
    use agentline_core::{RunRequest, Surface};
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn runs_with_other_prompts_share_a_process_but_not_runs_with_other_rules_or_settings() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("agent");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(dir.path().join(".gemini")).unwrap();
        fs::create_dir(dir.path().join("ws")).unwrap();
        let settings = dir.path().join(".gemini/settings.json");
        fs::write(&settings, "{}").unwrap();
        let prepare = |request: RunRequest, env: &[(&str, &str)]| {
            let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let host_env = HostEnv::new(env, dir.path(), dir.path());
            let agentline = Agentline::new(host_env).program("gemini", &program);
            let planned = agentline.inner().plan(request.surface(Surface::Acp)).unwrap();
            super::prepare(
                agentline.inner(),
                PendingStart::Planned(Box::new((planned, RunOptions::default()))),
            )
        };
        let (first, process) = prepare(RunRequest::new("one"), &[]).unwrap();
        let (second, other) = prepare(RunRequest::new("two").name("a name"), &[]).unwrap();
        assert_eq!((first.process, first.session), (second.process, second.session));
        assert_eq!(second.run.turn.prompt, "two");
        assert_ne!(process.private, other.private, "each process has a directory of its own");
        let keys = |request: RunRequest, env: &[(&str, &str)]| {
            let (request, _) = prepare(request, env).unwrap();
            (request.process == first.process, request.session == first.session)
        };
        assert!(!keys(RunRequest::new("one").model("m"), &[]).1);
        assert_eq!(keys(RunRequest::new("one").working_dir("ws"), &[]), (true, false));
        assert_eq!(keys(RunRequest::new("one").deny("Bash"), &[]), (false, true));
        assert_eq!(keys(RunRequest::new("one"), &[("PATH", "/bin")]), (false, true));
        fs::write(&settings, r#"{"a": 1}"#).unwrap();
        assert_eq!(keys(RunRequest::new("one"), &[]), (false, true));
        let mut wrong = RunRequest::new("one");
        wrong.prompt_file = Some("missing.md".into());
        wrong.include_directories = vec!["missing".into()];
        let Err(StartFailure::Error(Error::Usage(problems))) = prepare(wrong, &[]) else { panic!() };
        let mut keys: Vec<&str> = problems.0.iter().map(|problem| problem.key.as_str()).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["include_directories", "prompt_file"]);
    }
}
