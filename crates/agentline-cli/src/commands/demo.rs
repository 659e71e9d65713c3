//! `agentline demo`: runs the real agent on a real task against a scripted model, without an account.

mod stage;

use super::{
    replay::{self, Pace},
    sessions::export::PendingFile,
};
use crate::{
    error::CommandError,
    exit,
    live_run::{self, LiveRun},
    output::OutputFormat,
    render::{RenderOptions, Renderer},
    ui::Ui,
};
use agentline::{Agent, Agentline, PermissionMode, Problem, install};
use agentline_core::{Program, Tape, agents, error_chain};
use agentline_mock::{
    demo::{AGENT, Demo, PROMPT},
    gemini::Script,
};
use clap::Args;
pub(super) use stage::DemoStage;
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The recorded run, for machines without Node.js. Created with `agentline demo --pinned --record`.
const TAPE: &str = include_str!("../demo.tape.jsonl");

/// The longest pause when playing the recorded run, in milliseconds, to shorten the agent's startup.
const LONGEST_PAUSE: u64 = 300;

#[derive(Debug, Args)]
#[command(after_help = "\
Uses the installed Gemini CLI, or installs the tested version into the cache directory. The agent runs in a \
temporary workspace with an empty home directory. Your files, sign-in and settings are not used.
")]
pub(crate) struct DemoArgs {
    /// Replay a recorded run without the agent
    #[arg(long, conflicts_with_all = ["pinned", "record"])]
    replay: bool,
    /// Use the tested version, even if another one is installed
    #[arg(long)]
    pinned: bool,
    /// Write a tape of the run, without this machine's paths
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Do not start a run: print the environment of the demo as one line of JSON and serve its model to other programs
    /// until standard input closes. Prompts get the demo's answers, or those of SCRIPT
    #[arg(long, value_name = "SCRIPT", num_args = 0..=1, conflicts_with_all = ["replay", "record"])]
    #[expect(clippy::option_option, reason = "both the flag and its value are optional")]
    serve: Option<Option<PathBuf>>,
}

pub(crate) fn run(ui: &mut Ui, args: &DemoArgs) -> Result<u8, CommandError> {
    ui.force_progress();
    if args.replay {
        return play_tape(ui);
    }
    // Checked before an agent is installed.
    let script = args.serve.as_ref().and_then(Option::as_deref).map(read_script).transpose()?;
    if let Some(file) = &args.record {
        PendingFile::create_for("--record", file)?;
    }
    let agent = agents::find(AGENT)?;
    let agentline = Agentline::from_env()?;
    match find(ui, &*agent, &agentline, args.pinned) {
        Ok(program) => match &args.serve {
            Some(_) => serve(ui, &*agent, &agentline, &program, script),
            None => play_live(ui, &*agent, &agentline, &program, args),
        },
        Err(error) if args.serve.is_some() => Err(CommandError::failed(format!(
            "cannot serve the demo without an agent: {}\n{}",
            error_chain(&error),
            error.hint()
        ))),
        Err(error) => {
            ui.error(&error_chain(&error), Some(&error.hint()));
            play_tape(ui)
        }
    }
}

/// Prepares the demo for another command: finds or installs the agent, and starts the model. The environment is removed
/// on drop.
pub(super) fn prepare(
    ui: &mut Ui,
    model: impl FnOnce(&Path) -> io::Result<Demo>,
) -> Result<(Agentline, DemoStage), CommandError> {
    let agent = agents::find(AGENT)?;
    let user = Agentline::from_env()?;
    let program = find(ui, &*agent, &user, false)
        .map_err(|error| CommandError::Unable { message: error_chain(&error), hint: error.hint() })?;
    let stage = DemoStage::set(user.host_env(), &program, model)
        .map_err(|error| CommandError::failed(format!("cannot prepare the demo: {error}")))?;
    Ok((stage.agentline(&*agent, &program), stage))
}

/// Finds the agent's program, or installs the pinned version.
fn find(
    ui: &mut Ui,
    agent: &dyn Agent,
    agentline: &Agentline,
    pinned: bool,
) -> Result<Program, install::InstallError> {
    let info = agent.info();
    let found = agentline.detect(agent);
    let is_good = found.problems.is_empty() && found.supported;
    if let Some(program) = found.program.filter(|_| is_good && !pinned) {
        let version = program.version.map_or_else(|| "(unknown version)".into(), |v| v.to_string());
        ui.print_status(format!("agent: {} {version}, {}", info.title, program.path.display()));
        if version != info.pinned {
            ui.print_status(format!(
                "  the demo is tested with {}; pass `--pinned` to install and use it",
                info.pinned
            ));
        }
        return Ok(program);
    }
    for problem in found.problems.iter().filter(|_| !pinned) {
        ui.print_status(format!("agent: {}", problem.message));
    }
    let host_env = agentline.host_env().clone();
    ui.print_status(format!(
        "agent: {} {}, the tested version, in the cache directory",
        info.title, info.pinned
    ));
    let program = install::ensure(info, info.pinned, &host_env, &mut |progress| match progress {
        install::InstallProgress::Working { .. } => ui.busy(&progress.to_string()),
        _ => ui.print_status(format!("  {progress}")),
    });
    ui.clear_spinner();
    program
}

fn play_live(
    ui: &mut Ui,
    agent: &dyn Agent,
    agentline: &Agentline,
    program: &Program,
    args: &DemoArgs,
) -> Result<u8, CommandError> {
    let cannot = |error: std::io::Error| CommandError::failed(format!("cannot prepare the demo: {error}"));
    let stage = DemoStage::set(agentline.host_env(), program, Demo::start).map_err(cannot)?;
    ui.print_status(format!("model: scripted, at {}", stage.model_url()));
    ui.print_status(format!("workspace: {} (removed afterwards)", stage.workspace().display()));
    ui.print_status(format!("prompt: {PROMPT}\n"));
    let agentline = stage.agentline(agent, program);
    let request = stage.request(PROMPT, args.record.is_some());
    let mut renderer = Renderer::new(options());
    let code = live_run::start(|| async {
        let mut live = LiveRun::begin(agentline.run(request)).await?;
        live.show(ui, &mut renderer).await
    })?;
    let is_other = program.version.is_none_or(|version| version.to_string() != agent.info().pinned);
    if code != exit::DONE && is_other {
        ui.print_status(
            "the demo is tested with another version of the agent; try `agentline demo --pinned`",
        );
    }
    if let Some(file) = &args.record {
        stage.save_tape(file, program).map_err(|error| {
            CommandError::failed(format!("cannot write the tape `{}`: {error}", file.display()))
        })?;
        ui.print_status(format!("  tape: {}", file.display()));
    }
    ui.print_status("\nNext: check your setup with `agentline doctor`, then try `agentline run \"…\"`.");
    Ok(code)
}

/// Serves the environment of the demo to another program until standard input closes.
fn serve(
    ui: &mut Ui,
    agent: &dyn Agent,
    agentline: &Agentline,
    program: &Program,
    script: Option<Script>,
) -> Result<u8, CommandError> {
    let cannot = |error: io::Error| CommandError::failed(format!("cannot serve the demo: {error}"));
    let model = |home: &Path| Demo::for_every_prompt(home, script);
    let stage = DemoStage::set(agentline.host_env(), program, model).map_err(cannot)?;
    writeln!(ui.out(), "{}", stage.for_programs(agent, program)).map_err(cannot)?;
    ui.flush().map_err(cannot)?;
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map_err(cannot)?;
    Ok(exit::DONE)
}

fn read_script(file: &Path) -> Result<Script, Problem> {
    let describe = |error: &dyn std::fmt::Display| {
        Problem::new("--serve", format!("cannot read the script `{}`: {error}", file.display()))
            .hint("pass a JSON file with the steps of the model, or leave it out")
    };
    let text = std::fs::read(file).map_err(|error| describe(&error))?;
    serde_json::from_slice(&text).map_err(|error| describe(&error))
}

fn play_tape(ui: &mut Ui) -> Result<u8, CommandError> {
    let tape = Tape::read(TAPE)?;
    let version = tape.header.agent_version.map(|v| v.to_string()).unwrap_or_default();
    let agent = agents::find(&tape.header.agent)?;
    let title = agent.info().title;
    ui.print_status(format!("replaying a recorded run of {title} {version} with a scripted model"));
    ui.print_status(format!("prompt: {PROMPT}\n"));
    let pace = if ui.is_watched() { Pace::AtMost(LONGEST_PAUSE) } else { Pace::AtOnce };
    replay::play(ui, &tape, options(), pace)
}

fn options() -> RenderOptions {
    RenderOptions { mode: PermissionMode::Bypass, ..RenderOptions::plain(OutputFormat::Text) }
}
