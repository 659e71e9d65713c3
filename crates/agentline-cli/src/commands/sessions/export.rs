//! `agentline sessions export`: writes a session, or the recorded run of a tape, to a file.

use super::{
    LoadedSession, SessionArg, SessionsContext,
    show::{BlockOrderArg, SessionJson},
};
use crate::{error::CommandError, exit, ui::Ui};
use agentline::Problem;
use agentline_sessions::render::{self, SessionDetail, SessionTree, TextStyle};
use clap::{Args, ValueEnum};
use std::{
    ffi::OsStr,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentline sessions export latest -o session.html     a self-contained page for a browser
  agentline sessions export 3f2a91bc -o session.md     Markdown, for example for an issue
  agentline sessions export latest --html -o - | less
  agentline sessions export run.tape.jsonl -o run.html  a recorded run as a page
")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    target: SessionArg,
    /// File to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// File format [default: from the extension of FILE]
    #[arg(short, long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Same as `--format html`
    #[arg(long, conflicts_with = "format")]
    html: bool,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Include context that the agent added for the model only
    #[arg(long)]
    context: bool,
}

/// The file format of an exported session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Self-contained HTML page
    Html,
    /// Markdown
    Md,
    /// {"session", "messages"}
    Json,
    /// Same as json, with messages in the format of Claude's API
    Claude,
    /// Plain text
    Text,
}

/// The formats by file extension.
const FORMATS_BY_EXTENSION: &[(&str, Format)] = &[
    ("html", Format::Html),
    ("htm", Format::Html),
    ("md", Format::Md),
    ("markdown", Format::Md),
    ("json", Format::Json),
    ("txt", Format::Text),
];

pub(super) fn run(
    ui: &mut Ui,
    sessions_context: &SessionsContext,
    args: &ExportArgs,
) -> Result<u8, CommandError> {
    let format = args.format()?;
    let is_stdout = args.output == Path::new("-");
    let path = sessions_context.cwd.join(&args.output);
    // A device or pipe, such as `/dev/stdout`, is written to and never replaced.
    let is_device = !is_stdout
        && std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    if !is_stdout && !is_device && !args.force && path.exists() {
        return Err(already_exists(&args.output).into());
    }
    let LoadedSession { files, session, children } = sessions_context.open(&args.target, true)?;
    let write = |out: &mut dyn Write| {
        let detail = SessionDetail::default().context(args.context).thinking(true).subagents(true);
        let session_json = SessionJson {
            sessions_context,
            files: &files,
            session: &session,
            children: &children,
            context: args.context,
        };
        let tree = || SessionTree::new(&session, &children, &sessions_context.prices);
        match format {
            Format::Html => render::html(out, &tree(), detail, &sessions_context.clock),
            Format::Md => render::markdown(out, &tree(), detail, &sessions_context.clock),
            Format::Json => session_json.unified(out, BlockOrderArg::Grouped),
            Format::Claude => session_json.claude(out),
            Format::Text => {
                render::text(out, &tree(), TextStyle::new(detail, sessions_context.clock.clone()))
            }
        }
    };
    if is_stdout {
        write(ui.out())?;
        return Ok(exit::DONE);
    }
    let saved = if is_device {
        write_to(&path, write)
    } else {
        PendingFile::create(&path).and_then(|file| file.save(args.force, write))
    };
    saved.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => already_exists(&args.output).into(),
        _ => CommandError::failed(format!("cannot write {}: {error}", args.output.display())),
    })?;
    ui.print_status(format!("wrote {}", args.output.display()));
    Ok(exit::DONE)
}

/// Writes to a device or pipe.
fn write_to(path: &Path, write: impl Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(std::fs::OpenOptions::new().write(true).open(path)?);
    write(&mut out)?;
    out.flush()
}

/// A file that gets its name when its content is complete. Without content, nothing remains of it.
pub(crate) struct PendingFile {
    path: PathBuf,
    file: tempfile::NamedTempFile,
}

impl PendingFile {
    /// Creates a temporary file beside the path, which shows whether the path can be written.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut builder = tempfile::Builder::new();
        builder.prefix(".agentline-export-");
        // A session is private, so a new file gets mode 0600.
        let file = builder.tempfile_in(parent.unwrap_or_else(|| Path::new(".")))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Creates the file of a flag.
    ///
    /// # Errors
    /// Returns a problem with the flag if the path cannot be written.
    pub(crate) fn create_for(flag: &str, path: &Path) -> Result<Self, Problem> {
        Self::create(path).map_err(|error| {
            Problem::new(flag, format!("cannot write `{}`: {error}", path.display()))
                .hint("choose a path in a writable directory")
        })
    }

    /// Writes the content and renames the file. An existing file is replaced only with `force`, and keeps its mode.
    pub(crate) fn save(
        self,
        force: bool,
        write: impl Fn(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut file = BufWriter::new(self.file);
        write(&mut file)?;
        if let Some(replaced) = std::fs::metadata(&self.path).ok().filter(std::fs::Metadata::is_file) {
            file.get_ref().as_file().set_permissions(replaced.permissions())?;
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let saved = if force { file.persist(&self.path) } else { file.persist_noclobber(&self.path) };
        saved.map(drop).map_err(|error| error.error)
    }
}

fn already_exists(path: &Path) -> Problem {
    exists_at("--output", path)
}

/// Returns the problem that a file already exists.
pub(crate) fn exists_at(flag: &str, path: &Path) -> Problem {
    Problem::new(flag, format!("`{}` already exists", path.display()))
        .hint("choose another name, or pass `--force` to overwrite it")
}

impl ExportArgs {
    /// Returns the requested format, or the one that the file extension implies.
    fn format(&self) -> Result<Format, Problem> {
        if self.html {
            return Ok(Format::Html);
        }
        let ending = self.output.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
        let by_ending =
            || FORMATS_BY_EXTENSION.iter().find(|(name, _)| *name == ending).map(|(_, format)| *format);
        self.format.or_else(by_ending).ok_or_else(|| {
            Problem::new(
                "--output",
                format!("cannot tell the format from the extension of `{}`", self.output.display()),
            )
            .hint("use the extension .html, .md, .json or .txt, or pass `--format`")
        })
    }
}
