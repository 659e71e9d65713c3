//! `agentline sessions show`: shows one session, for people or for programs. Messages are created and written one at a
//! time.

use super::{LoadedSession, SessionArg, SessionsContext};
use crate::{error::CommandError, exit, ui::Ui};
use agentline::Message;
use agentline_core::{
    BlockOrder, Entry, SavedSession, SessionInfo, claude_messages, session_usage, unified_message,
};
use agentline_sessions::render::{self, SessionDetail, SessionTree, TextStyle};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// How to see the lines that are omitted from a long output.
pub(super) const MORE_LINES: &str = "pass --full to see them";

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    target: SessionArg,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Form,
    /// Order of the blocks of a message, with `-o json`
    #[arg(long, value_name = "ORDER", default_value = "grouped")]
    order: BlockOrderArg,
    /// Include context that the agent added for the model only
    #[arg(long)]
    context: bool,
    /// Include the reasoning, with `-o text` and `-o md`
    #[arg(long)]
    thinking: bool,
    /// Include the work of sub-agents
    #[arg(long)]
    subagents: bool,
    /// Do not shorten long outputs on a terminal
    #[arg(long)]
    full: bool,
}

/// The output format of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Human-readable text
    Text,
    /// {"session", "messages"}, one message per record
    Json,
    /// Same as json, in the format of Claude's API: tool results in user messages
    Claude,
    /// Markdown
    Md,
}

/// The order of the blocks of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum BlockOrderArg {
    /// Thinking, then each call with its result, then text
    #[default]
    Grouped,
    /// Original order
    Turn,
}

pub(super) fn run(
    ui: &mut Ui,
    sessions_context: &SessionsContext,
    args: &ShowArgs,
) -> Result<u8, CommandError> {
    let LoadedSession { files, session, children } = sessions_context.open(&args.target, args.subagents)?;
    let detail =
        SessionDetail::default().context(args.context).thinking(args.thinking).subagents(args.subagents);
    let session_json = SessionJson {
        sessions_context,
        files: &files,
        session: &session,
        children: &children,
        context: args.context,
    };
    let tree = || SessionTree::new(&session, &children, &sessions_context.prices);
    match args.output {
        Form::Json => session_json.unified(ui.out(), args.order)?,
        Form::Claude => session_json.claude(ui.out())?,
        Form::Md => render::markdown(ui.out(), &tree(), detail, &sessions_context.clock)?,
        Form::Text => {
            let style = TextStyle::new(detail, sessions_context.clock.clone())
                .coloured(ui.is_coloured())
                .columns(ui.width())
                .shortened((ui.width().is_some() && !args.full).then_some(MORE_LINES));
            render::text(ui.out(), &tree(), style)?;
        }
    }
    Ok(exit::DONE)
}

/// Writes a session as JSON.
pub(super) struct SessionJson<'a> {
    pub(super) sessions_context: &'a SessionsContext,
    pub(super) files: &'a [PathBuf],
    pub(super) session: &'a SavedSession,
    pub(super) children: &'a [SavedSession],
    /// Whether to include context that the agent added for the model only.
    pub(super) context: bool,
}

/// The JSON object about a session, next to its messages.
#[derive(Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    info: &'a SessionInfo,
    files: &'a [PathBuf],
    usage: agentline_core::UsageEntry,
    damage: &'a [agentline_core::ReadError],
}

impl SessionJson<'_> {
    /// Writes the `unified` view.
    pub(super) fn unified(&self, out: &mut dyn Write, order: BlockOrderArg) -> io::Result<()> {
        let order = match order {
            BlockOrderArg::Grouped => BlockOrder::Grouped,
            BlockOrderArg::Turn => BlockOrder::Turn,
        };
        self.write(out, |info, entry, out| out.add(&unified_message(info, entry, order)))
    }

    /// Writes the `claude` view.
    pub(super) fn claude(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write(out, |info, entry, out| {
            claude_messages(info, entry).iter().try_for_each(|message| out.add(message))
        })
    }

    fn write(
        &self,
        out: &mut dyn Write,
        messages: impl Fn(&SessionInfo, &Entry, &mut Array<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.one(out, self.session, self.files, &messages)?;
        if !self.children.is_empty() {
            write!(out, ",\"subagents\":[")?;
            for (i, child) in self.children.iter().enumerate() {
                if i > 0 {
                    writeln!(out, ",")?;
                }
                self.one(out, child, &[], &messages)?;
                write!(out, "}}")?;
            }
            write!(out, "]")?;
        }
        writeln!(out, "}}")
    }

    /// Writes one session without its closing brace.
    fn one(
        &self,
        out: &mut dyn Write,
        session: &SavedSession,
        files: &[PathBuf],
        messages: &impl Fn(&SessionInfo, &Entry, &mut Array<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let usage = session_usage(session, &self.sessions_context.prices).total;
        let head = Head { info: &session.info, files, usage, damage: &session.damage };
        write!(out, "{{\"session\":")?;
        serde_json::to_writer(&mut *out, &head)?;
        write!(out, ",\"messages\":")?;
        let mut array = Array::begin(out)?;
        for entry in session.entries.iter().filter(|entry| self.context || !entry.context) {
            messages(&session.info, &entry.loaded(), &mut array)?;
        }
        array.end()
    }
}

/// A JSON array whose elements are written one per line as they are created.
struct Array<'a> {
    out: &'a mut dyn Write,
    is_empty: bool,
}

impl<'a> Array<'a> {
    fn begin(out: &'a mut dyn Write) -> io::Result<Self> {
        write!(out, "[")?;
        Ok(Self { out, is_empty: true })
    }

    fn add(&mut self, element: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if self.is_empty { b"\n" } else { b",\n" })?;
        self.is_empty = false;
        Ok(serde_json::to_writer(&mut *self.out, element)?)
    }

    fn end(self) -> io::Result<()> {
        writeln!(self.out, "\n]")
    }
}

/// Writes a JSON array with one element per line.
pub(super) fn array<T: Serialize>(
    out: &mut dyn Write,
    elements: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    let mut array = Array::begin(out)?;
    elements.into_iter().try_for_each(|element| array.add(&element))?;
    array.end()
}

/// Writes one message as a line of JSON.
pub(super) fn line(out: &mut dyn Write, message: &Message<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, message)?;
    writeln!(out)
}
