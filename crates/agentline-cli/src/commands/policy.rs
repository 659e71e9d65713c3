//! `agentline policy explain`: shows what each agent does under a policy, and what enforces it.

use crate::{
    error::CommandError,
    exit,
    output::ReportFormat,
    setup::Setup,
    ui::{Paint, Ui},
};
use agentline::{
    Agent, PermissionRequest, Policy, Problem, Rule, RunRequest, Surface, ToolKind,
    internals::files::AgentFiles,
};
use agentline_core::{Explanation, Layer, agents::AgentRegistry};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, io::Write, path::PathBuf, sync::Arc};

const EXAMPLES: &str = "\
Examples:
  agentline policy explain                        the policy of your settings on every surface
  agentline policy explain --permission-mode prompt --deny 'Bash(rm *)' -a gemini --surface acp
  agentline policy explain --allow 'Write(src/**)' 'Write(src/main.rs)' 'Bash(git push)'

The column `enforced by` shows what enforces the result: `agent`, `agentline` (when the agent asks it) or
`nobody` (it is not enforced).
";

/// The maximum number of problems shown for a surface.
const MAX_PROBLEMS: usize = 20;
/// The server name that stands for the host program's own tools.
const OWN_SERVER: &str = "agentline";
/// The uses that are explained by default.
const DEFAULT_USES: &[&str] = &[
    "Write(src/new.txt)",
    "Edit(src/old.txt)",
    "Write(../outside.txt)",
    "Read(README.md)",
    "Bash(git status)",
    "Bash(rm -rf build)",
    "WebFetch(https://example.org/)",
    "mcp__docs__search",
    "mcp__agentline__tool",
];

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Explain what each agent does under a policy, tool by tool
    Explain(Box<ExplainArgs>),
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct ExplainArgs {
    /// Tool uses to explain: `Write(src/main.rs)`, `Bash(git push)`, `mcp__server__tool` [default: one of each kind]
    #[arg(value_name = "USE")]
    uses: Vec<String>,
    /// Only this agent
    #[arg(short, long)]
    agent: Option<String>,
    /// Only this surface: json, stream-json, acp, app-server, serve
    #[arg(long)]
    surface: Option<String>,
    /// Workspace [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Directory outside the workspace that tools may use (repeatable)
    #[arg(long, value_name = "DIR")]
    include_dir: Vec<PathBuf>,
    /// Permission mode: default, accept-edits, bypass, plan, auto, deny or prompt
    #[arg(long, value_name = "MODE")]
    permission_mode: Option<String>,
    /// Allow a tool, path or command (repeatable)
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// Deny a tool, path or command (repeatable)
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// Ask before using a tool, path or command (repeatable)
    #[arg(long, value_name = "RULE")]
    ask: Vec<String>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
    /// Same as `-o json`
    #[arg(long)]
    json: bool,
}

/// The report for one surface of one agent.
#[derive(Serialize)]
struct Report {
    agent: String,
    surface: Surface,
    /// Why a run would not start, up to the maximum.
    problems: Vec<Problem>,
    /// The number of further problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_problems: Option<usize>,
    uses: Vec<Row>,
}

/// An agent and one of its surfaces.
type AgentSurface = (Arc<dyn Agent>, Surface);

/// One use of a tool.
#[derive(Serialize)]
struct Row {
    #[serde(rename = "use")]
    text: String,
    #[serde(flatten)]
    explanation: Explanation,
}

pub(crate) fn run(ui: &mut Ui, args: &PolicyArgs) -> Result<u8, CommandError> {
    let PolicyCommand::Explain(args) = &args.command;
    let config = Setup::read(args.cwd.as_deref(), Some(Layer::flags(args.table())))?.config()?;
    for notice in &config.notices {
        ui.warn(&notice.message);
    }
    let agents = AgentRegistry::of(&config.agents);
    let mut request = config.request;
    // A policy has no prompt, but a valid request needs one.
    request.prompt = "x".into();
    let current_dir = std::env::current_dir()
        .map_err(|error| CommandError::failed(format!("cannot read the current directory: {error}")))?;
    let cwd = request.working_dir.as_ref().map_or_else(|| current_dir.clone(), |dir| current_dir.join(dir));
    let files = AgentFiles::new(&cwd, request.include_directories.iter().cloned());
    let files =
        files.map_err(|error| CommandError::failed(format!("cannot open `{}`: {error}", cwd.display())))?;
    let policy = Policy::new(&request, &cwd)?.also_at(files.workspace()).own_server(OWN_SERVER);
    let named = |text: &String| use_of(text).map(|ask| (text.clone(), ask));
    let uses: Result<Vec<_>, Problem> = match args.uses.as_slice() {
        [] => DEFAULT_USES.iter().map(|text| named(&(*text).to_owned())).collect(),
        uses => uses.iter().map(named).collect(),
    };
    let uses = uses?;
    let mut reports = Vec::new();
    for (agent, surface) in args.selected(&agents)? {
        reports.push(report(&*agent, surface, &request, (&policy, &files), &uses));
    }
    if args.json || args.output == ReportFormat::Json {
        let all = json!({
            "permission_mode": request.permission_mode, "allow": request.allow, "deny": request.deny,
            "ask": request.ask, "cwd": cwd, "agents": reports,
        });
        writeln!(ui.out(), "{all}")?;
        return Ok(exit::DONE);
    }
    for report in &reports {
        table(ui, report)?;
    }
    Ok(exit::DONE)
}

fn report(
    agent: &dyn Agent,
    surface: Surface,
    request: &RunRequest,
    (policy, files): (&Policy, &AgentFiles),
    uses: &[(String, PermissionRequest)],
) -> Report {
    // Resolve paths as a run does.
    let resolve = |path: &str| {
        if policy.has_path_patterns() { files.resolve_with_names(path) } else { files.resolve(path) }
    };
    let rows = uses.iter().map(|(text, ask)| {
        let mut ask = ask.clone();
        ask.native_tool = agent.native_tool(&ask.tool).unwrap_or_default().to_owned();
        Row { text: text.clone(), explanation: policy.explain(agent, request, surface, &ask, &resolve) }
    });
    let uses = rows.collect();
    let mut problems = request.as_written(agent.check(request, surface));
    let more_problems = problems.len().checked_sub(MAX_PROBLEMS).filter(|more| *more > 0);
    problems.truncate(MAX_PROBLEMS);
    Report { agent: agent.info().id.to_owned(), surface, problems, more_problems, uses }
}

fn table(ui: &mut Ui, report: &Report) -> Result<(), CommandError> {
    let title = ui.paint_out(Paint::Bold, &format!("{} over {}", report.agent, report.surface));
    writeln!(ui.out(), "{title}")?;
    for problem in &report.problems {
        ui.report(&format!("  cannot start: {problem}"))?;
    }
    if let Some(more) = report.more_problems {
        writeln!(ui.out(), "  and {more} more problems")?;
    }
    let width = report.uses.iter().map(|row| row.text.chars().count()).max().unwrap_or(0).max(3);
    let by_of = |explanation: &Explanation| {
        explanation.rule.clone().map_or_else(|| explanation.by.clone(), |rule| format!("rule {rule}"))
    };
    let by_width = report.uses.iter().map(|row| by_of(&row.explanation).chars().count()).max().unwrap_or(0);
    ui.report(&format!("  {:<width$}  result  {:<by_width$}  enforced by", "use", "by"))?;
    for Row { text, explanation } in &report.uses {
        let paint = match explanation.decision {
            "allow" => Paint::Green,
            "deny" => Paint::Red,
            _ => Paint::Yellow,
        };
        let result = ui.paint_out(paint, &format!("{:<6}", explanation.decision));
        let note = explanation.note.as_deref().map_or_else(String::new, |note| format!(": {note}"));
        let by = by_of(explanation);
        let held_by = explanation.held_by;
        ui.report(&format!("  {text:<width$}  {result}  {by:<by_width$}  {held_by}{note}"))?;
    }
    writeln!(ui.out())?;
    Ok(())
}

/// Parses a use, which has the form of a rule.
fn use_of(text: &str) -> Result<PermissionRequest, Problem> {
    let rule = Rule::parse(text).map_err(|error| error.problem("USE"))?;
    let mut ask = PermissionRequest::default();
    let on = rule.pattern().unwrap_or_default().to_owned();
    ask.kind = match rule.tool() {
        "Write" => ToolKind::Write,
        "Edit" | "MultiEdit" | "NotebookEdit" => ToolKind::Edit,
        "Read" => ToolKind::Read,
        "Glob" | "Grep" | "LS" => ToolKind::Search,
        "Bash" | "Shell" => ToolKind::Shell,
        "WebFetch" | "WebSearch" => ToolKind::Web,
        "Task" | "Agent" => ToolKind::Agent,
        name if name.starts_with("mcp__") => ToolKind::Mcp,
        _ => ToolKind::Other,
    };
    match ask.kind {
        ToolKind::Shell => ask.command = Some(on),
        ToolKind::Web => ask.input = serde_json::value::to_raw_value(&json!({"url": on})).ok(),
        ToolKind::Mcp => ask.server = rule.tool().split("__").nth(1).map(str::to_owned),
        _ if on.is_empty() => {}
        _ => ask.paths = vec![on],
    }
    ask.tool = rule.tool().to_owned();
    Ok(ask)
}

impl ExplainArgs {
    /// Returns the agents and surfaces to explain.
    fn selected(&self, agents: &AgentRegistry) -> Result<Vec<AgentSurface>, Problem> {
        let chosen = match &self.agent {
            Some(name) => vec![agents.find(name)?],
            None => agents.all().to_vec(),
        };
        let mut pairs = Vec::new();
        for agent in &chosen {
            let surfaces = agent.info().surfaces.iter().copied();
            let fits = |surface: &Surface| self.surface.as_deref().is_none_or(|name| name == surface.name());
            pairs.extend(surfaces.filter(fits).map(|surface| (Arc::clone(agent), surface)));
        }
        if pairs.is_empty() {
            let name = self.surface.as_deref().unwrap_or_default();
            let surfaces = chosen.iter().flat_map(|agent| agent.info().surfaces).map(|one| one.name());
            let surfaces: BTreeSet<&str> = surfaces.collect();
            let whose = self.agent.as_ref().map_or_else(String::new, |agent| format!(" of {agent}"));
            return Err(Problem::new("--surface", format!("`{name}` is not a surface{whose}"))
                .hint(format!("use one of: {}", surfaces.into_iter().collect::<Vec<_>>().join(", "))));
        }
        Ok(pairs)
    }

    /// Returns the flags as settings.
    fn table(&self) -> Map<String, Value> {
        let mut table = Map::new();
        let paths = |list: &[PathBuf]| -> Vec<String> {
            list.iter().map(|path| path.to_string_lossy().into_owned()).collect()
        };
        for (key, list) in [
            ("allow", self.allow.clone()),
            ("deny", self.deny.clone()),
            ("ask", self.ask.clone()),
            ("include_directories", paths(&self.include_dir)),
        ] {
            if !list.is_empty() {
                table.insert(key.to_owned(), list.into());
            }
        }
        if let Some(mode) = &self.permission_mode {
            table.insert("permission_mode".into(), mode.clone().into());
        }
        if let Some(dir) = &self.cwd {
            table.insert("working_dir".into(), dir.to_string_lossy().into());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_example_uses_are_parsed() {
        for text in DEFAULT_USES {
            let ask = use_of(text).unwrap();
            assert_ne!(ask.kind, ToolKind::Other, "{text}");
        }
        assert_eq!(use_of("Bash(git push)").unwrap().command.as_deref(), Some("git push"));
        assert_eq!(use_of("mcp__docs__search").unwrap().server.as_deref(), Some("docs"));
        assert!(use_of("Bash(").is_err());
    }

    #[test]
    #[cfg(unix)]
    fn paths_are_explained_by_their_resolved_target() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::os::unix::fs::symlink("src", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("out")).unwrap();
        let mut request = RunRequest::new("x").permission_mode(agentline::PermissionMode::Bypass);
        request = request.deny("Write(src/**)").deny("Bash(x)");
        let files = AgentFiles::new(dir.path(), []).unwrap();
        let policy = Policy::new(&request, dir.path()).unwrap().also_at(files.workspace());
        let uses = ["Write(link/a)", "Write(out/a)", "Write(a)"]
            .map(|text| (text.to_owned(), use_of(text).unwrap()));
        let agent = AgentRegistry::default().find("gemini").unwrap();
        let report = report(&*agent, Surface::Acp, &request, (&policy, &files), &uses);
        let found: Vec<_> = report
            .uses
            .iter()
            .map(|row| (row.explanation.decision, row.explanation.reason.as_deref()))
            .collect();
        assert_eq!(
            found,
            [("deny", Some("rule")), ("deny", Some("outside_workspace")), ("allow", Some("bypass"))]
        );
    }

    #[test]
    fn excess_problems_are_counted_but_not_listed() {
        let request = (0..500).fold(RunRequest::new("x"), |request, n| request.deny(format!("Bash(p{n})")));
        let dir = tempfile::tempdir().unwrap();
        let files = AgentFiles::new(dir.path(), []).unwrap();
        let policy = Policy::new(&request, dir.path()).unwrap();
        let agent = AgentRegistry::default().find("gemini").unwrap();
        let report = report(&*agent, Surface::Json, &request, (&policy, &files), &[]);
        assert_eq!((report.problems.len(), report.more_problems), (20, Some(480)));
    }
}
