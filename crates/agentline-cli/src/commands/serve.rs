//! `agentline serve`: serves runs, conversations and saved sessions over HTTP.

use super::demo;
use crate::{error::CommandError, exit, live_run, setup::Setup, ui::Ui};
use agentline::{Agentline, Problem};
use agentline_core::error_chain;
use agentline_mock::demo::{AGENT, Demo, PROMPT};
use agentline_serve::{ServeError, ServeOptions, Server, new_login_link};
use clap::Args;
use std::{
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The number of threads for requests. Runs and reading have their own.
const WORKERS: usize = 2;

/// How many files the server wants to have open at most. Each client needs one.
#[cfg(unix)]
const OPEN_FILES: u64 = 65_536;

const EXAMPLES: &str = "\
Examples:
  agentline serve --open                       serve this directory and open the page in a browser
  agentline serve --root ~/projects            serve another directory
  agentline serve --demo --open                try the page without an account
  agentline serve --link                       print another link of the running server
  curl -H \"Authorization: Bearer $(cat ~/.cache/agentline/serve/token)\" http://127.0.0.1:4517/v1/runs
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// The address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4517")]
    listen: SocketAddr,
    /// A directory in which runs may work (can be given several times) [default: the current directory]
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// Open the page in a browser: the program in `BROWSER`, or the default one
    #[arg(long)]
    open: bool,
    /// Print a new link of the server that is running, and exit
    #[arg(long, conflicts_with_all = ["listen", "roots", "open", "demo", "processes", "tls_cert", "insecure_plaintext", "allowed_hosts", "tokens"])]
    link: bool,
    /// Try the page without an account: serve a temporary workspace, with the real Gemini CLI and a scripted model
    #[arg(long, conflicts_with_all = ["roots", "tokens", "dir"])]
    demo: bool,
    /// The certificate chain as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Serve an address other than loopback without TLS
    #[arg(long)]
    insecure_plaintext: bool,
    /// A further name of this server that clients may use (can be given several times)
    #[arg(long = "allow-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// Further tokens with their policies, as a TOML file
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// The directory of the stored events, the owner's token and the audit log [default: a directory in the cache directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Maximum number of agent processes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    processes: u16,
}

pub(crate) fn run(ui: &mut Ui, args: ServeArgs) -> Result<u8, CommandError> {
    let setup = Setup::read(None, None)?;
    let config = setup.config()?;
    if args.link {
        let dir = args.dir.unwrap_or_else(|| default_dir(&setup.with_config(&config).0));
        return print_link(ui, &dir);
    }
    let demo = args.demo.then(|| demo::prepare(ui, |home| Demo::for_every_prompt(home, None))).transpose()?;
    let agentline = match &demo {
        Some((agentline, _)) => agentline.clone(),
        None => setup.with_config(&config).0,
    };
    let link_command = link_command(&args, &agentline);
    let dir = args.dir.unwrap_or_else(|| default_dir(&agentline));
    let mut options = ServeOptions::new(dir);
    options.listen = args.listen;
    options.roots = args.roots;
    if options.roots.is_empty() {
        options.roots.push(agentline.host_env().cwd.clone());
    }
    options.tls = args.tls_cert.zip(args.tls_key);
    options.insecure_plaintext = args.insecure_plaintext;
    options.allowed_hosts = args.allowed_hosts;
    options.tokens = args.tokens;
    options.prices = config.prices();
    options.processes = usize::from(args.processes);
    options.demo_prompt = args.demo.then(|| PROMPT.to_owned());
    options.demo_agent = args.demo.then(|| AGENT.to_owned());
    raise_file_limit();
    let token_file = options.dir.join("token");
    let runtime = live_run::runtime(WORKERS)?;
    let served = runtime.block_on(async {
        let server = Server::start(agentline, options).await.map_err(serve_error)?;
        let link = server.login_url();
        writeln!(ui.out(), "{link}")?;
        ui.flush()?;
        ui.print_status(format!("serving {}; the link above signs a browser in once", server.url()));
        ui.print_status(format!("another link: {link_command}"));
        ui.print_status(format!("programs: Authorization: Bearer TOKEN, from {}", token_file.display()));
        if args.open && !open_browser(&link) {
            ui.warn("no browser could be started; open the link yourself");
        }
        live_run::stopped().await;
        ui.print_status("stopping: ending all runs");
        server.stop().await.map_err(serve_error)?;
        Ok::<_, CommandError>(exit::DONE)
    });
    runtime.shutdown_background();
    served
}

fn default_dir(agentline: &Agentline) -> PathBuf {
    agentline.host_env().cache.join("serve")
}

/// Returns the command that prints another link. The demo has a directory of its own.
fn link_command(args: &ServeArgs, agentline: &Agentline) -> String {
    let own = args.demo.then(|| default_dir(agentline)).or_else(|| args.dir.clone());
    match own {
        Some(dir) => {
            let dir = std::path::absolute(&dir).unwrap_or(dir);
            format!("agentline serve --link --dir '{}'", dir.display())
        }
        None => "agentline serve --link".to_owned(),
    }
}

fn print_link(ui: &mut Ui, dir: &Path) -> Result<u8, CommandError> {
    let link = new_login_link(dir).map_err(serve_error)?;
    writeln!(ui.out(), "{link}")?;
    ui.flush()?;
    Ok(exit::DONE)
}

fn serve_error(error: ServeError) -> CommandError {
    match error {
        ServeError::Option { key, message, hint } => Problem::new(key, message).hint(hint).into(),
        error => CommandError::failed(error_chain(&error)),
    }
}

/// Starts the program in `BROWSER`, or the browser of the system. The link is an argument of that process for a moment, and
/// works only once.
fn open_browser(link: &str) -> bool {
    let preferred = std::env::var_os("BROWSER").filter(|program| !program.is_empty());
    preferred.is_some_and(|program| start_browser(Command::new(program), link))
        || start_browser(system_browser(), link)
}

fn system_browser() -> Command {
    if cfg!(target_os = "macos") {
        Command::new("open")
    } else if cfg!(windows) {
        let mut command = Command::new("rundll32");
        command.arg("url.dll,FileProtocolHandler");
        command
    } else {
        Command::new("xdg-open")
    }
}

fn start_browser(mut command: Command, link: &str) -> bool {
    command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

/// Allows as many open files as the system lets this user have: each client needs one.
fn raise_file_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let wanted = maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
        // `None` is no limit.
        if current.is_some_and(|current| current < wanted) {
            // Without it, fewer clients can connect.
            let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
        }
    }
}
