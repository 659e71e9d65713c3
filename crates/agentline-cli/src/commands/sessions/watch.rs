//! `agentline sessions watch`: follows a session while its agent works, in the format of `show`. `latest` moves on to a
//! newer session.

use super::{SessionArg, SessionsContext, show::MORE_LINES};
use crate::{
    error::CommandError,
    exit,
    ui::{Paint, Ui},
};
use agentline::Problem;
use agentline_core::{BlockOrder, unified_message};
use agentline_sessions::{
    FoundSession, SessionChange,
    render::{EntryProgress, SessionDetail, TextRenderer, TextStyle},
};
use clap::Args;
use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

/// The interval at which the files are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// The interval at which a newer session is searched for.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    target: SessionArg,
    /// Exit after this many seconds without new messages [default: run until Ctrl-C]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    until_idle: Option<f64>,
    /// Show only new messages
    #[arg(long)]
    new: bool,
    /// Output format; json prints one message per line, and prints it again when it grows
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: crate::output::ReportFormat,
    /// Include context that the agent added for the model only
    #[arg(long)]
    context: bool,
    /// Include the reasoning
    #[arg(long)]
    thinking: bool,
    /// Do not shorten long outputs on a terminal
    #[arg(long)]
    full: bool,
}

pub(super) fn run(
    ui: &mut Ui,
    sessions_context: &SessionsContext,
    args: &WatchArgs,
) -> Result<u8, CommandError> {
    let idle = args.until_idle.map(Duration::try_from_secs_f64).transpose().map_err(|_| {
        Problem::new("--until-idle", "must be a number of seconds").hint("use a number such as 30")
    })?;
    let mut found = sessions_context.find(&args.target)?;
    let mut watch = sessions_context.store.watch(&found)?;
    let detail = SessionDetail::default().context(args.context).thinking(args.thinking).subagents(true);
    let short = ui.width().is_some() && !args.full;
    let style = TextStyle::new(detail, sessions_context.clock.clone())
        .coloured(ui.is_coloured())
        .columns(ui.width())
        .shortened(short.then_some(MORE_LINES))
        .live(true);
    let mut shown =
        WatchRenderer { renderer: TextRenderer::new(style), progress: Vec::new(), info: found.info.clone() };
    ui.print_status(format!("following {} of {}; press Ctrl-C to stop", found.info.id, found.info.agent));
    let (mut quiet_since, mut searched_at) = (Instant::now(), Instant::now());
    let mut is_first = true;
    loop {
        if args.target.session == "latest" && searched_at.elapsed() >= SEARCH_INTERVAL {
            searched_at = Instant::now();
            if let Some(newer) = newer(sessions_context, &args.target, &found) {
                ui.flush()?;
                let info = &newer.info;
                ui.print_status(format!("\na newer session began: following {} of {}", info.id, info.agent));
                watch = sessions_context.store.watch(&newer)?;
                (shown.progress, shown.info, found) = (Vec::new(), info.clone(), newer);
                is_first = false;
            }
        }
        let changes = watch.poll();
        if !changes.is_empty() {
            quiet_since = Instant::now();
        }
        for change in changes {
            match args.output {
                crate::output::ReportFormat::Json => shown.json(ui, change, is_first && args.new, detail)?,
                crate::output::ReportFormat::Text => shown.text(ui, change, is_first && args.new, detail)?,
            }
        }
        ui.flush()?;
        is_first = false;
        if idle.is_some_and(|idle| quiet_since.elapsed() >= idle) {
            return Ok(exit::DONE);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the latest session if it began after the one that is followed.
fn newer(
    sessions_context: &SessionsContext,
    target: &SessionArg,
    followed: &FoundSession,
) -> Option<FoundSession> {
    // A session that cannot be read now is found by a later search.
    let latest = sessions_context.find(target).ok()?;
    let is_newer = latest.info.id != followed.info.id && latest.info.started > followed.info.started;
    is_newer.then_some(latest)
}

/// The parts of a session that have been shown so far.
struct WatchRenderer {
    renderer: TextRenderer,
    /// How much of each entry has been shown.
    progress: Vec<EntryProgress>,
    info: agentline_core::SessionInfo,
}

impl WatchRenderer {
    /// Shows what is new in an entry. If `is_old`, the change is only recorded as shown.
    fn text(
        &mut self,
        ui: &mut Ui,
        change: SessionChange,
        is_old: bool,
        detail: SessionDetail,
    ) -> Result<(), CommandError> {
        match change {
            SessionChange::Added { at, entry } | SessionChange::Grown { at, entry } => {
                if entry.context && !detail.context {
                    return Ok(());
                }
                if self.progress.len() <= at {
                    self.progress.resize_with(at + 1, EntryProgress::default);
                }
                if is_old {
                    self.renderer.update(&mut std::io::sink(), &entry, &mut self.progress[at])?;
                } else {
                    self.renderer.update(ui.out(), &entry, &mut self.progress[at])?;
                }
            }
            SessionChange::Cut { at } => {
                self.progress.truncate(at);
                if !is_old {
                    let line = ui.paint_out(Paint::Yellow, "— the session was rewound to here —");
                    writeln!(ui.out(), "\n{line}")?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn json(
        &mut self,
        ui: &mut Ui,
        change: SessionChange,
        is_old: bool,
        detail: SessionDetail,
    ) -> Result<(), CommandError> {
        match change {
            SessionChange::Info(info) => self.info = *info,
            SessionChange::Added { entry, .. } | SessionChange::Grown { entry, .. }
                if !is_old && (detail.context || !entry.context) =>
            {
                let message = unified_message(&self.info, &entry, BlockOrder::Grouped);
                super::show::line(ui.out(), &message)?;
            }
            _ => {}
        }
        Ok(())
    }
}
