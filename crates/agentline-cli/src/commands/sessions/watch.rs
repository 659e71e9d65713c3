//! `agentline sessions watch`: follows a session while its agent works, in the format of `show`.

use super::{Desk, Which};
use crate::{
    exit,
    render::saved::{Progress, Style, Teller, Wish},
    stop::Stop,
    ui::{Paint, Ui},
};
use agentline::{BlockOrder, Problem, sessions::Change, unified_message};
use clap::Args;
use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

/// The interval at which the files are polled.
const PAUSE: Duration = Duration::from_millis(150);

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    which: Which,
    /// End when nothing was said for so many seconds [default: end on Ctrl-C]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    until_idle: Option<f64>,
    /// Only what is said from now on
    #[arg(long)]
    new: bool,
    /// What standard output holds: text, or with json a message a line, told again when it has grown
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: crate::args::ReportOutput,
    /// Also what the agent put there for the model alone
    #[arg(long)]
    context: bool,
    /// Also the reasoning
    #[arg(long)]
    thinking: bool,
    /// All of every output, on a terminal too
    #[arg(long)]
    full: bool,
}

pub(super) fn run(ui: &mut Ui, desk: &Desk, args: &WatchArgs) -> Result<u8, Stop> {
    let idle = args.until_idle.map(Duration::try_from_secs_f64).transpose().map_err(|_| {
        Problem::new("--until-idle", "is not a number of seconds").hint("write a number such as 30")
    })?;
    let found = desk.find(&args.which)?;
    let mut watch = desk.store.watch(&found)?;
    let wish = Wish { context: args.context, thinking: args.thinking, subagents: true };
    let short = ui.width().is_some() && !args.full;
    let style = Style { colour: ui.is_coloured(), short, live: true, wish, clock: desk.clock.clone() };
    let mut told = Telling { teller: Teller::new(style), progress: Vec::new(), info: found.info.clone() };
    ui.say(format!("following {} of {}; Ctrl-C ends it", found.info.id, found.info.agent));
    let mut quiet_since = Instant::now();
    let mut is_first = true;
    loop {
        let changes = watch.look();
        if !changes.is_empty() {
            quiet_since = Instant::now();
        }
        for change in changes {
            match args.output {
                crate::args::ReportOutput::Json => told.json(ui, change, is_first && args.new, wish)?,
                crate::args::ReportOutput::Text => told.text(ui, change, is_first && args.new, wish)?,
            }
        }
        ui.flush()?;
        is_first = false;
        if idle.is_some_and(|idle| quiet_since.elapsed() >= idle) {
            return Ok(exit::DONE);
        }
        thread::sleep(PAUSE);
    }
}

/// What has been shown so far.
struct Telling {
    teller: Teller,
    /// How much of each entry has been shown.
    progress: Vec<Progress>,
    info: agentline::SessionInfo,
}

impl Telling {
    /// Shows what is new in an entry. An `is_old` change is only recorded as shown.
    fn text(&mut self, ui: &mut Ui, change: Change, is_old: bool, wish: Wish) -> Result<(), Stop> {
        match change {
            Change::Added { at, entry } | Change::Grown { at, entry } => {
                if entry.context && !wish.context {
                    return Ok(());
                }
                if self.progress.len() <= at {
                    self.progress.resize_with(at + 1, Progress::default);
                }
                if is_old {
                    self.teller.news(&mut std::io::sink(), &entry, &mut self.progress[at])?;
                } else {
                    self.teller.news(ui.out(), &entry, &mut self.progress[at])?;
                }
            }
            Change::Cut { at } => {
                self.progress.truncate(at);
                if !is_old {
                    let line = ui.paint_out(Paint::Yellow, "— the session was taken back to here —");
                    writeln!(ui.out(), "\n{line}")?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn json(&mut self, ui: &mut Ui, change: Change, is_old: bool, wish: Wish) -> Result<(), Stop> {
        match change {
            Change::Told(info) => self.info = *info,
            Change::Added { entry, .. } | Change::Grown { entry, .. }
                if !is_old && (wish.context || !entry.context) =>
            {
                let message = unified_message(&self.info, &entry, BlockOrder::Grouped);
                super::show::line(ui.out(), &message)?;
            }
            _ => {}
        }
        Ok(())
    }
}
