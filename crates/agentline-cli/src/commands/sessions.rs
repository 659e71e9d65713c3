//! `agentline sessions`: lists, shows, searches, exports, counts, follows and transplants saved sessions.

pub(crate) mod export;
mod list;
mod search;
mod show;
mod transplant;
mod usage;
mod watch;

use crate::{
    commands::replay,
    completers,
    error::CommandError,
    exit,
    setup::{Setup, prices_flag},
    time::TimeParser,
    ui::Ui,
};
use agentline::PriceTable;
use agentline_core::{Redactor, SavedSession};
use agentline_sessions::{FoundSession, SessionError, SessionFilter, SessionStore, render::TimeFormat};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use std::{
    io::Write,
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  agentline sessions list --since 7d
  agentline sessions show latest                the latest session of this directory
  agentline sessions show 3f2a91bc -o json      its messages, in the same form for every agent
  agentline sessions search \"race condition\"
  agentline sessions export latest -o session.html
  agentline sessions usage --by model
  agentline sessions watch
  agentline sessions transplant latest --to AGENT   continue the session with another agent

Name a session by its id, a prefix of it, `latest` (of the current directory), or the path of a session file. `show` \
and `export` also read the tape of a run. \
Only `transplant` writes to an agent's files: it adds one session and changes none.
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: SessionsCommand,
    /// TOML file with prices that override the built-in ones
    #[arg(long, value_name = "FILE", global = true)]
    prices: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List sessions of all agents, newest first
    List(list::ListArgs),
    /// Show a session: prompts, answers, tool calls and changes
    Show(show::ShowArgs),
    /// Search all sessions
    Search(search::SearchArgs),
    /// Export a session as HTML, Markdown, JSON or text
    Export(export::ExportArgs),
    /// Show token usage and cost
    Usage(usage::UsageArgs),
    /// Follow a session while its agent works
    Watch(watch::WatchArgs),
    /// Copy a session to another agent, to continue it there
    Transplant(transplant::TransplantArgs),
    /// Print the paths of a session's files
    Path {
        #[command(flatten)]
        target: SessionArg,
    },
}

/// Selects one session.
#[derive(Debug, Args)]
pub(super) struct SessionArg {
    /// Session id, a prefix of it, `latest`, or the path of a session file or of a tape
    #[arg(value_name = "ID|FILE", default_value = "latest", add = ArgValueCompleter::new(completers::sessions))]
    session: String,
    /// Only sessions of this agent
    #[arg(short, long, value_name = "AGENT", add = ArgValueCompleter::new(completers::agents))]
    agent: Option<String>,
}

/// Selects sessions.
#[derive(Debug, Args)]
pub(super) struct SessionFilterArgs {
    /// Only sessions of this agent (repeatable)
    #[arg(short, long, value_name = "AGENT", add = ArgValueCompleter::new(completers::agents))]
    agent: Vec<String>,
    /// Only sessions of this directory
    #[arg(short, long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Only sessions since this time: `2026-11-01`, `today`, `yesterday`, `7d`, `12h`
    #[arg(long, value_name = "DATE")]
    since: Option<String>,
    /// Only sessions until this time; a date includes the whole day
    #[arg(long, value_name = "DATE")]
    until: Option<String>,
}

/// The session store, and the context for showing sessions.
pub(super) struct SessionsContext {
    store: SessionStore,
    prices: PriceTable,
    clock: TimeFormat,
    times: TimeParser,
    redactor: Redactor,
    home: PathBuf,
    cwd: PathBuf,
}

/// A session that was read, with those of its sub-agents.
pub(super) struct LoadedSession {
    files: Vec<PathBuf>,
    session: SavedSession,
    children: Vec<SavedSession>,
}

pub(crate) fn run(ui: &mut Ui, args: SessionsArgs) -> Result<u8, CommandError> {
    let setup = Setup::read(None, prices_flag(args.prices.as_deref()))?;
    let config = setup.config()?;
    let (agentline, _) = setup.with_config(&config);
    let times = TimeParser::local();
    let sessions_context = SessionsContext {
        store: agentline.sessions().east_of_utc(times.east_of_utc()),
        prices: config.prices(),
        clock: TimeFormat::local(),
        times,
        redactor: agentline.redactor(),
        home: agentline.host_env().home.clone(),
        cwd: agentline.host_env().cwd.clone(),
    };
    match args.command {
        SessionsCommand::List(args) => list::run(ui, &sessions_context, &args),
        SessionsCommand::Show(args) => show::run(ui, &sessions_context, &args),
        SessionsCommand::Search(args) => search::run(ui, &sessions_context, args),
        SessionsCommand::Export(args) => export::run(ui, &sessions_context, &args),
        SessionsCommand::Usage(args) => usage::run(ui, &sessions_context, &args),
        SessionsCommand::Watch(args) => watch::run(ui, &sessions_context, &args),
        SessionsCommand::Transplant(args) => transplant::run(ui, &sessions_context, &agentline, &args),
        SessionsCommand::Path { target } => {
            for location in sessions_context.find(&target)?.locations() {
                writeln!(ui.out(), "{}", location.path().display())?;
            }
            Ok(exit::DONE)
        }
    }
}

impl SessionsContext {
    fn find(&self, target: &SessionArg) -> Result<FoundSession, SessionError> {
        let filter = target.agent.iter().fold(SessionFilter::new(), SessionFilter::agent);
        self.store.find_of(&target.session, &self.cwd, &filter)
    }

    /// Reads a session, and those of its sub-agents if requested, or the recorded run of a tape.
    fn open(&self, target: &SessionArg, subagents: bool) -> Result<LoadedSession, CommandError> {
        let path = self.cwd.join(&target.session);
        if let Some(mut session) = replay::tape_session(&path)? {
            self.redactor.session(&mut session);
            return Ok(LoadedSession { files: vec![path], session, children: Vec::new() });
        }
        let found = self.find(target)?;
        let session = self.store.open(&found)?;
        let children = if subagents { self.store.children(&found)? } else { Vec::new() };
        let children = children.iter().map(|child| self.store.open(child));
        let children = children.collect::<Result<_, SessionError>>()?;
        let files = found.locations().map(|location| location.path().to_owned()).collect();
        Ok(LoadedSession { files, session, children })
    }

    /// Warns about session stores that cannot be read, so that missing sessions are explained.
    fn warn_of_unreadable(&self, ui: &mut Ui, filter: &SessionFilter) -> Result<(), SessionError> {
        for path in self.store.unreadable(filter)? {
            ui.warn(&path);
        }
        Ok(())
    }

    fn filter(&self, among: &SessionFilterArgs) -> Result<SessionFilter, CommandError> {
        let mut filter = among.agent.iter().fold(SessionFilter::new(), SessionFilter::agent);
        if let Some(project) = &among.project {
            filter = filter.project(self.cwd.join(project));
        }
        if let Some(since) = &among.since {
            filter = filter.since(self.times.since("--since", since)?);
        }
        if let Some(until) = &among.until {
            filter = filter.until(self.times.until("--until", until)?);
        }
        Ok(filter)
    }

    /// Returns the path of a project, with `~` for the home directory.
    fn project(&self, path: Option<&str>) -> String {
        let Some(path) = path else { return String::new() };
        match Path::new(path).strip_prefix(&self.home) {
            Ok(rest) if rest.as_os_str().is_empty() => "~".into(),
            Ok(rest) => format!("~/{}", rest.display()),
            Err(_) => path.to_owned(),
        }
    }
}
