//! The parts of a resolved run by lifetime: the process, a session on it, and a turn in that session.

use crate::{
    fs::{disk_fs::DiskFs, private_dir::PrivateDir},
    resolve::{NO_DIRECTORY, NO_SESSION, READS_DATABASES, time_until},
};
use agentline_core::{
    Agent, DialogueConfig, Launch, LoopbackApi, McpServer, Millis, NewFile, Notice, Plan, PolicyAck, Program,
    RequestedMode, RequestedModel, RunRequest, SessionTarget, Timeouts, TurnSpec, Version,
};
use memchr::memmem;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A placeholder for the name of a private directory whose path is written in another way.
const NO_NAME: &str = "agentline-private";
/// A placeholder for the address and token of a served tool.
const NO_SERVER: &str = "agentline-tool-server";

/// A checked request with its agent, its session and its turn.
pub(crate) struct ResolvedRun {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) plan: Plan,
    pub(crate) program: Program,
    pub(crate) session: SessionSpec,
    /// The turn without its session and time limits; [`turn_spec`](Self::turn_spec) completes it.
    pub(crate) turn: TurnSpec,
    /// Warnings about the request.
    pub(crate) notices: Vec<Notice>,
}

/// Everything that a process is started with. It names one private directory, so it starts one process.
#[derive(Default)]
pub(crate) struct ProcessSpec {
    /// The path of the private directory, which is created when the process is started.
    pub(crate) private: PathBuf,
    pub(crate) version: Option<Version>,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// Additional arguments that avoid one request per session.
    pub(crate) preset: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: PathBuf,
    /// How to reach the agent, if it serves HTTP.
    pub(crate) api: Option<LoopbackApi>,
    pub(crate) files: Vec<NewFile>,
    /// Links to create: the path and its target.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) dirs: Vec<PathBuf>,
    /// Private directories that the agent only reads.
    pub(crate) read_only: Vec<PathBuf>,
    /// Links that the agent may replace with a file, and where its content is copied to afterwards.
    pub(crate) copy_back: Vec<(PathBuf, PathBuf)>,
    pub(crate) proof: Option<PolicyAck>,
    pub(crate) dialogue: DialogueConfig,
    /// Whether the process stays alive between prompts.
    pub(crate) is_live: bool,
    pub(crate) agent_home: PathBuf,
    /// The id of a session that the agent creates on startup without a request.
    pub(crate) abandoned: Option<String>,
    /// Names of the caller's variables that the agent does not see.
    pub(crate) withheld: Vec<String>,
    pub(crate) secrets: Vec<String>,
    pub(crate) max_line: usize,
    /// The path of the tape, if one is recorded.
    pub(crate) record: Option<PathBuf>,
    pub(crate) placeholders: Placeholders,
}

/// Everything that a session is opened with.
pub(crate) struct SessionSpec {
    /// The workspace: absolute, with links resolved.
    pub(crate) cwd: PathBuf,
    /// The workspace, if it is a temporary one that is created for the run and removed with it.
    pub(crate) temporary: Option<Arc<PrivateDir>>,
    pub(crate) target: SessionTarget,
    pub(crate) mode: Option<RequestedMode>,
    pub(crate) model: Option<RequestedModel>,
    pub(crate) servers: BTreeMap<String, McpServer>,
    /// The MCP servers whose tools need no permission where no rule decides.
    pub(crate) trusted_servers: Vec<String>,
    /// Extensions of the protocol for opening the session, as JSON.
    pub(crate) meta: Option<String>,
    /// The workspace path for opening the session, if the agent needs another spelling of it.
    pub(crate) session_cwd: Option<String>,
    /// Files of the workspace that the agent must not load.
    pub(crate) must_ignore: Vec<String>,
    /// The directories in which the agent keeps data about its sessions.
    pub(crate) stores: Vec<PathBuf>,
    /// When a stored session can be opened safely, in milliseconds since 1970.
    pub(crate) not_before: Option<Millis>,
}

/// The values of a launch that differ between identical runs, and what stands for them in a key.
#[derive(Default)]
pub(crate) struct Placeholders(Vec<Placeholder>);

/// A value, and what stands for it.
struct Placeholder {
    finder: memmem::Finder<'static>,
    value: String,
    replacement: Cow<'static, str>,
}

impl Placeholder {
    fn new(value: String, replacement: impl Into<Cow<'static, str>>) -> Self {
        Self { finder: memmem::Finder::new(&value).into_owned(), value, replacement: replacement.into() }
    }

    /// Replaces the value in `bytes`, which contains it at `first`.
    fn replace(&self, bytes: &[u8], first: usize) -> Vec<u8> {
        let mut replaced = Vec::with_capacity(bytes.len());
        let (mut rest, mut next) = (bytes, Some(first));
        while let Some(at) = next {
            replaced.extend_from_slice(&rest[..at]);
            replaced.extend_from_slice(self.replacement.as_bytes());
            rest = &rest[at + self.value.len()..];
            next = self.finder.find(rest);
        }
        replaced.extend_from_slice(rest);
        replaced
    }
}

impl Placeholders {
    /// Creates placeholders for a private directory and a session id.
    pub(super) fn new(private: &Path, session: &str) -> Self {
        let name = private.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self(vec![
            Placeholder::new(private.to_string_lossy().into_owned(), NO_DIRECTORY),
            // A path may be escaped, for example in JSON. Its last part never is.
            Placeholder::new(name, NO_NAME),
            Placeholder::new(session.to_owned(), NO_SESSION),
            Placeholder::new(session.replace('-', ""), NO_SESSION.replace('-', "")),
        ])
    }

    /// Adds the addresses and headers of servers that are served for one run.
    pub(super) fn add_servers<'a>(&mut self, servers: impl IntoIterator<Item = &'a McpServer>) {
        for server in servers {
            if let McpServer::Url { url, headers } = server {
                let values = std::iter::once(url).chain(headers.values());
                self.0.extend(values.map(|value| Placeholder::new(value.clone(), NO_SERVER)));
            }
        }
    }

    /// Replaces the values in `bytes`.
    pub(crate) fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut replaced = Cow::Borrowed(bytes);
        for placeholder in &self.0 {
            if let Some(first) = placeholder.finder.find(&replaced) {
                replaced = placeholder.replace(&replaced, first).into();
            }
        }
        replaced
    }

    /// Replaces the values in `text`.
    pub(crate) fn text(&self, text: String) -> String {
        let replaced = match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => None,
            Cow::Owned(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        };
        replaced.unwrap_or(text)
    }
}

impl ProcessSpec {
    /// Returns the program and all its arguments.
    pub(crate) fn command(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.program.to_string_lossy().into_owned()).chain(self.arguments().cloned())
    }

    /// Returns all arguments of the program.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &String> {
        self.args.iter().chain(&self.preset)
    }
}

impl ResolvedRun {
    /// Returns the complete turn: with its session, and with time limits that count from now.
    pub(crate) fn turn_spec(&self) -> TurnSpec {
        let session = &self.session;
        let mut spec = self.turn.clone();
        spec.timeouts = timeouts(&self.plan.request, self.turn.timeouts.quiet);
        spec.session.clone_from(&session.target);
        spec.must_ignore.clone_from(&session.must_ignore);
        spec.mode.clone_from(&session.mode);
        spec.model.clone_from(&session.model);
        spec.servers.clone_from(&session.servers);
        spec.meta.clone_from(&session.meta);
        spec.session_cwd.clone_from(&session.session_cwd);
        spec
    }
}

fn timeouts(request: &RunRequest, quiet: Millis) -> Timeouts {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
    let mut timeouts = Timeouts::default();
    timeouts.startup = ms(request.startup_timeout);
    timeouts.idle = ms(request.idle_timeout);
    timeouts.idle_tool = ms(request.tool_timeout);
    timeouts.run = ms(request.timeout);
    timeouts.patience = ms(request.retry_patience);
    timeouts.quiet = quiet;
    timeouts.deadline = request.deadline.map(|when| ms(time_until(when)));
    timeouts
}

/// Divides a launch into its parts.
pub(super) fn divide(
    launch: Launch,
    private: PathBuf,
    placeholders: Placeholders,
    checked: super::CheckedRun,
    prices: Arc<agentline_core::PriceTable>,
) -> (ProcessSpec, ResolvedRun) {
    let super::CheckedRun { agent, plan, context, info, temporary } = checked;
    let (program, cwd) = (context.program, context.cwd);
    let request = &plan.request;
    let mut turn = TurnSpec::default();
    turn.prompt = launch.stdin;
    turn.info = info;
    turn.timeouts.quiet = launch.quiet;
    turn.limits = request.limits;
    turn.extract_json = request.extract_json;
    turn.collect_changes = true;
    // A database can be followed only if it can be read.
    let has_database_file = || !agent.sessions().roots(&launch.env, &launch.agent_home, &DiskFs).is_empty();
    turn.follow = agent.sessions().database().is_none() || (READS_DATABASES && has_database_file());
    turn.diffs = plan.request.diffs;
    turn.prices = prices;
    turn.proof.clone_from(&launch.proof);
    let session = SessionSpec {
        cwd,
        temporary,
        target: match (launch.session_id, &request.resume) {
            (Some(id), Some(_)) => SessionTarget::Load(id),
            (Some(id), None) => SessionTarget::Named(id),
            (None, _) => SessionTarget::New,
        },
        mode: launch.mode,
        model: launch.model,
        servers: launch.servers,
        trusted_servers: launch.trusted_servers,
        meta: launch.meta,
        session_cwd: launch.session_cwd,
        must_ignore: launch.must_ignore,
        stores: launch.dirs.clone(),
        not_before: launch.not_before,
    };
    let process = ProcessSpec {
        private,
        version: program.version,
        program: launch.program,
        args: launch.args,
        preset: launch.preset,
        env: launch.env,
        cwd: launch.cwd,
        api: launch.api,
        files: launch.files,
        links: launch.links,
        dirs: launch.dirs,
        read_only: launch.read_only,
        copy_back: launch.copy_back,
        proof: launch.proof,
        dialogue: launch.dialogue,
        is_live: plan.is_live,
        agent_home: launch.agent_home,
        abandoned: launch.abandoned,
        withheld: launch.withheld,
        secrets: launch.secrets,
        max_line: request.max_line_bytes,
        record: request.record.clone(),
        placeholders,
    };
    (process, ResolvedRun { agent, plan, program, session, turn, notices: launch.warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_one_run_are_replaced_in_any_spelling() {
        let mut placeholders = Placeholders::new(Path::new("/t \"x\"/agentline-run-0123456789ab"), "11-22");
        let url = "http://127.0.0.1:4000/a".to_owned();
        placeholders.add_servers([&McpServer::Url { url, headers: [("k".into(), "secret".into())].into() }]);
        let check = |text: &str, expected: &str| {
            assert_eq!(placeholders.text(text.into()), expected);
            assert_eq!(placeholders.bytes(text.as_bytes()).as_ref(), expected.as_bytes());
        };
        check("nothing", "nothing");
        check("/t \"x\"/agentline-run-0123456789ab/home", "/agentline-private/home");
        check(r#"/t \"x\"/agentline-run-0123456789ab/home"#, r#"/t \"x\"/agentline-private/home"#);
        check("11-22,1122,11-22", &format!("{NO_SESSION},{},{NO_SESSION}", NO_SESSION.replace('-', "")));
        check("http://127.0.0.1:4000/a secret", "agentline-tool-server agentline-tool-server");
    }
}
