//! `agentline compare`: runs one prompt with several agents side by side, and keeps one result.

mod progress;
mod report;

use crate::{
    commands::{
        run::TaskArgs,
        sessions::export::{PendingFile, exists_at},
    },
    completers,
    error::CommandError,
    exit, live_run, prompt,
    setup::Setup,
    ui::Ui,
};
use agentline::{
    AgentRegistry, Agentline, Problem, RunRequest, Signal, Verdict,
    compare::{Comparison, ComparisonResults},
};
use agentline_core::{Config, Layer, agents::split_version, error_chain};
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use progress::ComparisonProgress;
use report::{Applied, Report};
use std::{
    ffi::OsStr,
    io::{self, Write},
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  agentline compare \"fix the failing test\" -a gemini -a claude -a codex --permission-mode accept-edits
  agentline compare \"…\" -a gemini:gemini-2.5-pro -a claude:opus --to results.html
  agentline compare \"…\" -a gemini -a codex --apply codex      keep the changes of codex

Each agent works in its own copy of the workspace. The copies are removed at the end, and the workspace is unchanged \
unless --apply is given.
";

const EXIT_CODES: &str = "\
Exit codes:
    0  every agent is done
    1  the changes of --apply could not be applied; otherwise the code of the first agent that is not done
    2  invalid flags or configuration: nothing was started
  130  cancelled by SIGINT
  143  cancelled by SIGTERM
With --apply, the code is that of the named agent. The codes of an agent are those of `agentline run`.
";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct CompareArgs {
    /// Agent to compare, with its model after a colon: `gemini`, `claude:opus` (repeatable)
    #[arg(add = ArgValueCompleter::new(completers::agents), short, long, value_name = "AGENT[:MODEL]", required = true,
          help_heading = "Agent")]
    agent: Vec<String>,
    #[command(flatten)]
    task: TaskArgs,
    /// Apply the changes of this agent to the workspace, if its run is done and the workspace has not changed
    #[arg(add = ArgValueCompleter::new(completers::agents), long, value_name = "AGENT", help_heading = "Output")]
    apply: Option<String>,
    /// Keep the copies of the workspace
    #[arg(long, help_heading = "Output")]
    keep: bool,
    /// Output format [default: text, or from the extension of --to]
    #[arg(short, long, value_name = "FORMAT", help_heading = "Output")]
    output: Option<ComparisonFormat>,
    /// Write the output to this file, and the table to standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    to: Option<PathBuf>,
    /// Overwrite an existing file with --to
    #[arg(long, requires = "to", help_heading = "Output")]
    force: bool,
}

/// The format of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ComparisonFormat {
    /// Table, answers and changes
    Text,
    /// {"results": [{"agent", "model", "outcome", …}], …}
    Json,
    /// Self-contained page
    Html,
}

pub(crate) fn run(ui: &mut Ui, args: &CompareArgs) -> Result<u8, CommandError> {
    let format = args.format()?;
    let setup = Setup::read(args.task.cwd.as_deref(), Some(Layer::flags(args.task.table())))?;
    let config = setup.config()?;
    for notice in &config.notices {
        ui.warn(&notice.message);
    }
    let (agentline, request) = setup.with_config(&config);
    let prompt_text = prompt::read(args.task.prompt.as_deref(), &request)?;
    let request_for = |name: &String| {
        let mut request = request_for(name, &setup, &config, &agentline)?;
        request.prompt.clone_from(&prompt_text);
        Ok(request)
    };
    let requests: Vec<RunRequest> = args.agent.iter().map(request_for).collect::<Result<_, Problem>>()?;
    let file = args.to.as_ref().map(|file| agentline.host_env().cwd.join(file));
    if let Some(file) = file.as_deref().filter(|file| !args.force && file.exists()) {
        return Err(exists_at("--to", file).into());
    }
    let apply = args.applied_agent(&agentline, &requests)?;
    // Created before anything is started, so that no result is lost because the path cannot be written.
    let output = file.as_deref().map(|file| PendingFile::create_for("--to", file)).transpose()?;
    let workspace = workspace_of(&agentline, &request);
    live_run::start(|| async {
        let started = agentline.compare_with(requests, args.keep).await?;
        let (results, signal) = follow(ui, started).await;
        let applied = match apply.as_deref() {
            Some(agent) => Some(apply_changes(&results, agent).await),
            None => None,
        };
        let code = exit_code(&results, applied.as_ref(), signal);
        let report = Report {
            prompt: &prompt_text,
            workspace: &workspace,
            results: &results,
            applied: applied.as_ref(),
        };
        let written = write(ui, &report, format, file.as_deref().zip(output), args.force);
        let is_refused = applied.as_ref().is_some_and(|applied| applied.error.is_some());
        if args.keep || is_refused {
            match results.keep() {
                Ok(dir) => ui.print_status(format!("the copies are in {}", dir.display())),
                Err(error) => ui.warn(&format!("cannot keep the copies: {error}")),
            }
        }
        written.map(|()| code)
    })
}

/// Returns the request for `AGENT` or `AGENT:MODEL`, with the settings of that agent. A model in the settings is that of
/// the agent in the settings.
fn request_for(
    name: &str,
    setup: &Setup,
    config: &Config,
    agentline: &Agentline,
) -> Result<RunRequest, Problem> {
    let registry = agentline.registry();
    let (agent, model) = split_model(name, registry);
    if model == Some("") {
        let problem = Problem::new("--agent", format!("`{name}` names no model"));
        return Err(problem.hint("write `AGENT:MODEL`, or leave out the colon"));
    }
    let id = |name: &str| registry.find(name).map(|agent| agent.info().id.to_owned()).ok();
    let is_default = id(agent) == id(&config.request.agent);
    let mut config = config.clone();
    config.request.agent = agent.into();
    config.request.name_key("agent", "--agent");
    config.request.model = model.map(str::to_owned).or(config.request.model.filter(|_| is_default));
    Ok(setup.with_config(&config).1)
}

/// Splits `AGENT[@VERSION][:MODEL]` at the model. The name of an agent may contain a colon itself.
fn split_model<'a>(name: &'a str, registry: &AgentRegistry) -> (&'a str, Option<&'a str>) {
    let (agent, version) = split_version(name);
    let is_whole = registry.find(agent).is_ok() && version.is_none_or(|version| !version.contains(':'));
    let colon = match (is_whole, name.find('@')) {
        (true, _) => None,
        (false, Some(at)) => name[at..].find(':').map(|colon| at + colon).or_else(|| name.find(':')),
        (false, None) => name.find(':'),
    };
    colon.map_or((name, None), |colon| (&name[..colon], Some(&name[colon + 1..])))
}

/// Shows the progress of all runs to their end. The first signal cancels all of them.
async fn follow(ui: &mut Ui, mut comparison: Comparison) -> (ComparisonResults, Option<Signal>) {
    let canceller = comparison.canceller();
    let mut progress = ComparisonProgress::new(ui, comparison.competitors());
    let mut signal = None;
    let mut stopped = std::pin::pin!(live_run::first_signal());
    loop {
        tokio::select! {
            received = &mut stopped, if signal.is_none() => {
                canceller.cancel_with(received);
                signal = Some(received);
            }
            next = comparison.next() => match next {
                Some((index, record)) => progress.record(ui, index, &record),
                None => break,
            },
        }
    }
    let results = comparison.finish().await;
    progress.finish(ui, &results);
    (results, signal)
}

/// Applies the changes of an agent whose run is done.
async fn apply_changes(results: &ComparisonResults, agent: &str) -> Applied {
    let verdict =
        results.rows().iter().find(|row| *row.competitor.agent == *agent).map(|row| row.outcome.verdict);
    let mut applied = Applied { agent: agent.to_owned(), files: Vec::new(), error: None };
    if !matches!(verdict, Some(Verdict::Done | Verdict::DoneWithDenials)) {
        applied.error = Some(format!("the run of {agent} is not done"));
        return applied;
    }
    match results.apply(agent).await {
        Ok(files) => applied.files = files.iter().map(|file| file.to_string_lossy().into_owned()).collect(),
        Err(error) => applied.error = Some(error_chain(&error)),
    }
    applied
}

/// Returns the exit code: that of the applied agent, else that of the first agent that is not done.
fn exit_code(results: &ComparisonResults, applied: Option<&Applied>, signal: Option<Signal>) -> u8 {
    let code = |verdict: Verdict| exit::of(verdict, signal);
    let mut rows = results.rows().iter();
    match applied {
        _ if signal.is_some() => exit::of(Verdict::Cancelled, signal),
        Some(Applied { error: Some(_), .. }) => exit::FAILED,
        Some(applied) => {
            let row = rows.find(|row| *row.competitor.agent == *applied.agent);
            row.map_or(exit::FAILED, |row| code(row.outcome.verdict))
        }
        None => {
            rows.map(|row| code(row.outcome.verdict)).find(|code| *code != exit::DONE).unwrap_or(exit::DONE)
        }
    }
}

fn write(
    ui: &mut Ui,
    report: &Report<'_>,
    format: ComparisonFormat,
    file: Option<(&Path, PendingFile)>,
    force: bool,
) -> Result<(), CommandError> {
    let written = |out: &mut dyn Write, ui_style: Option<&Ui>| -> io::Result<()> {
        match format {
            ComparisonFormat::Text => report.text(out, ui_style),
            ComparisonFormat::Json => report.json(out),
            ComparisonFormat::Html => report.html(out),
        }
    };
    let Some((file, output)) = file else {
        let mut bytes = Vec::new();
        written(&mut bytes, Some(ui))?;
        ui.out().write_all(&bytes)?;
        return Ok(ui.flush()?);
    };
    output.save(force, |out| written(out, None)).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists_at("--to", file).into(),
        _ => CommandError::failed(format!("cannot write {}: {error}", file.display())),
    })?;
    let mut bytes = Vec::new();
    report.table(&mut bytes, Some(ui))?;
    ui.out().write_all(&bytes)?;
    ui.flush()?;
    ui.print_status(format!("wrote {}", file.display()));
    Ok(())
}

fn workspace_of(agentline: &Agentline, request: &RunRequest) -> String {
    let cwd = &agentline.host_env().cwd;
    let dir = request.working_dir.as_deref().map_or_else(|| cwd.clone(), |dir| cwd.join(dir));
    dir.to_string_lossy().into_owned()
}

impl CompareArgs {
    /// Returns the requested format, or the one that the extension of the file implies.
    fn format(&self) -> Result<ComparisonFormat, Problem> {
        if let Some(format) = self.output {
            return Ok(format);
        }
        let Some(file) = &self.to else { return Ok(ComparisonFormat::Text) };
        match file.extension().and_then(OsStr::to_str) {
            Some("html" | "htm") => Ok(ComparisonFormat::Html),
            Some("json") => Ok(ComparisonFormat::Json),
            Some("txt") => Ok(ComparisonFormat::Text),
            _ => Err(Problem::new(
                "--to",
                format!("cannot tell the format from the extension of `{}`", file.display()),
            )
            .hint("use the extension .html, .json or .txt, or pass `--output`")),
        }
    }

    /// Returns the id of the agent whose changes are applied.
    fn applied_agent(
        &self,
        agentline: &Agentline,
        requests: &[RunRequest],
    ) -> Result<Option<String>, CommandError> {
        let Some(name) = &self.apply else { return Ok(None) };
        let id = |name: &str| agentline.registry().find(name).map(|agent| agent.info().id.to_owned());
        let named = |mut problem: Problem| {
            problem.key = "--apply".into();
            CommandError::from(problem)
        };
        let applied = id(name).map_err(named)?;
        let is_compared = requests.iter().any(|request| id(&request.agent).is_ok_and(|id| id == applied));
        if !is_compared {
            let problem = Problem::new("--apply", format!("`{name}` is not one of the compared agents"));
            return Err(problem.hint("name one of the agents of `-a`").into());
        }
        Ok(Some(applied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_follows_the_agent_and_its_version() {
        let agents = AgentRegistry::default();
        for (name, expected) in [
            ("claude", ("claude", None)),
            ("claude:opus", ("claude", Some("opus"))),
            ("claude@2.1.0", ("claude@2.1.0", None)),
            ("claude@2.1.0:opus", ("claude@2.1.0", Some("opus"))),
            ("claude:vendor/model:free", ("claude", Some("vendor/model:free"))),
            ("claude:", ("claude", Some(""))),
            ("no-agent", ("no-agent", None)),
        ] {
            assert_eq!(split_model(name, &agents), expected, "{name}");
        }
        // A name with a colon.
        let infos = agents.all().iter().map(|agent| agent.info());
        let alias = infos.flat_map(|info| info.names().map(str::to_owned).collect::<Vec<_>>());
        let alias = alias.into_iter().find(|name| name.contains(':')).unwrap();
        assert_eq!(split_model(&alias, &agents), (&*alias, None));
        assert_eq!(split_model(&format!("{alias}@1.0:m"), &agents).1, Some("m"));
    }
}
