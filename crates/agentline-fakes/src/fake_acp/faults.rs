//! The definition of a fault, and the active faults of a process.

use std::env;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fault;

/// One fault.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcpFault {
    /// The value of `FAKE_ACP_FAULT`.
    pub name: &'static str,
    /// A one-line description.
    pub description: &'static str,
    /// A prompt that triggers it.
    pub prompt: &'static str,
    /// The part of a conversation that it affects.
    pub stage: FaultStage,
    pub(super) action: FaultAction,
}

impl AcpFault {
    /// Returns a prompt that has the same effect on an agent without faults, if the fault is only a script.
    #[must_use]
    pub fn as_prompt(&self) -> Option<String> {
        match self.action {
            FaultAction::Instead(script) => Some(script.to_owned()),
            FaultAction::Before(script) => Some(before(script, self.prompt)),
            FaultAction::Flag(_) | FaultAction::Flags(_) => None,
        }
    }
}

/// Puts a script before a prompt.
fn before(script: &str, prompt: &str) -> String {
    if super::words::is_script(prompt) {
        return format!("{script}\n{prompt}");
    }
    format!("{script}\nsay You said: {}", super::words::on_one_line(prompt))
}

/// The part of a conversation that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultStage {
    /// Startup and `initialize`.
    Start,
    /// `session/new`, `session/load`, modes and models.
    Session,
    /// The bytes and the JSON-RPC of every line.
    Lines,
    /// The content of an update.
    Updates,
    /// Reports of tools.
    Tools,
    /// Permission requests.
    Permission,
    /// Other requests from the agent: files, terminals.
    Requests,
    /// The answer to a prompt.
    Answer,
    /// Token counts.
    Usage,
    /// `session/cancel`.
    Cancel,
    /// The process itself.
    Process,
}

/// The implementation of a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum FaultAction {
    /// The agent checks this flag.
    Flag(FaultFlag),
    /// Several flags together.
    Flags(&'static [FaultFlag]),
    /// This script is played before that of each prompt.
    Before(&'static str),
    /// This script is played instead of that of each prompt.
    Instead(&'static str),
}

/// A behavior that cannot be written as a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultFlag {
    // Start.
    ExitAtStart,
    ExitAfterInitialize,
    InitializeNever,
    InitializeSlow,
    InitializeError,
    InitializeBare,
    InitializeOdd,
    ProtocolVersion,
    NoLoad,
    AuthRequired,
    AuthHopeless,
    // Sessions.
    SessionNewError,
    SessionNewNever,
    SessionNewSlow,
    SessionNewStalls,
    SessionNewExit,
    SameSessionId,
    SessionIdMissing,
    SessionIdNumber,
    NoModesNoModels,
    ConfigOptionsOnly,
    CommandsAfterNew,
    SetModeError,
    SetModeNever,
    SetModeIgnored,
    ModeUpdateText,
    SetModelError,
    SetModelUnknown,
    SetConfigError,
    LoadError,
    LoadAnswersFirst,
    LoadShowsContext,
    MemoryGrowth,
    McpIgnored,
    ProcessPerSession,
    // Lines.
    JunkFirst,
    JunkBetween,
    BlankLines,
    TruncatedLines,
    InvalidUtf8,
    NumberLines,
    ArrayLines,
    Crlf,
    Bom,
    NulBytes,
    SlowBytes,
    NoVersionField,
    AnswerIdsAsStrings,
    RequestIdsAsStrings,
    AnswersToNobody,
    AnswersTwice,
    ResultAndError,
    // Updates.
    TextAsList,
    TextAsString,
    OneCharacterChunks,
    UpdateWithoutSession,
    // Tools.
    EmptyToolIds,
    MissingToolIds,
    SameToolId,
    ToolFirstInPermission,
    RefusedToolSilent,
    ToolNeverEnded,
    ToolEndedTwice,
    CancelledShellCompleted,
    ShellOutputMissing,
    // Permission.
    UnknownOptionKinds,
    NoOptions,
    RejectOnly,
    AlwaysOnly,
    LyingOptionIds,
    AsksAgain,
    AsksTwiceAtOnce,
    PermissionWithoutTool,
    PermissionWithoutSession,
    // Answers.
    QuotaInMeta,
    // Cancel.
    CancelIgnored,
    CancelSlow,
    CancelAsEndTurn,
    CancelAsError,
    CancelDropsPermission,
    CancelThenText,
    // Process.
    IgnoresSignals,
    SurvivesEof,
    SlowExit,
}

/// The faults of this process, each with its parameter.
#[derive(Debug, Default)]
pub(super) struct ActiveFaults {
    faults: Vec<(&'static AcpFault, Option<u64>)>,
    /// How many more prompts are played with the scripts of faults. `None` means all.
    prompts: Option<AtomicU64>,
}

impl ActiveFaults {
    /// Reads the variables. An unknown name is an error: a test that misspells it would prove nothing.
    pub(super) fn from_env() -> Result<Self, String> {
        let names = env::var("FAKE_ACP_FAULT").unwrap_or_default();
        let mut active = Self::parse(&names)?;
        if let Ok(prompts) = env::var("FAKE_ACP_FAULT_PROMPTS") {
            let prompts = prompts
                .parse()
                .map_err(|_| format!("FAKE_ACP_FAULT_PROMPTS: `{prompts}` is not a number"))?;
            active.prompts = Some(AtomicU64::new(prompts));
        }
        let Some(file) = env::var_os("FAKE_ACP_FAULT_ONCE") else { return Ok(active) };
        match OpenOptions::new().write(true).create_new(true).open(&file) {
            Ok(_) => Ok(active),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self::default()),
            Err(error) => Err(format!("FAKE_ACP_FAULT_ONCE: {error}")),
        }
    }

    pub(super) fn parse(names: &str) -> Result<Self, String> {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let one = |name: &str| {
            let (name, number) = match name.split_once(':') {
                Some((name, number)) => {
                    (name, Some(number.parse().map_err(|_| format!("`{number}` is not a number"))?))
                }
                None => (name, None),
            };
            let fault = fault(name).ok_or_else(|| format!("there is no fault `{name}`; see `--list`"))?;
            Ok((fault, number))
        };
        let faults = names.map(one).collect::<Result<Vec<_>, String>>()?;
        Ok(Self { faults, prompts: None })
    }

    pub(super) fn has(&self, flag: FaultFlag) -> bool {
        self.find(flag).is_some()
    }

    /// Returns the parameter of a fault with this flag, `usual` if it has none, or `None` if there is no such fault.
    pub(super) fn number(&self, flag: FaultFlag, usual: u64) -> Option<u64> {
        self.find(flag).map(|number| number.unwrap_or(usual))
    }

    /// Returns the script of a turn: that of the prompt, changed by the faults.
    pub(super) fn script(&self, prompt: &str) -> String {
        let mut script = prompt.to_owned();
        let one_less = |left: u64| left.checked_sub(1);
        if self
            .prompts
            .as_ref()
            .is_some_and(|left| left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err())
        {
            return script;
        }
        for (fault, number) in &self.faults {
            let with_number = |text: &str| match number {
                Some(number) => text.replace("{number}", &number.to_string()),
                None => text.replace("{number}", "1"),
            };
            match fault.action {
                FaultAction::Instead(text) => script = with_number(text),
                FaultAction::Before(text) => script = before(&with_number(text), &script),
                FaultAction::Flag(_) | FaultAction::Flags(_) => {}
            }
        }
        script
    }

    fn find(&self, flag: FaultFlag) -> Option<Option<u64>> {
        let has = |fault: &AcpFault| match fault.action {
            FaultAction::Flag(own) => own == flag,
            FaultAction::Flags(own) => own.contains(&flag),
            FaultAction::Before(_) | FaultAction::Instead(_) => false,
        };
        self.faults.iter().find(|(fault, _)| has(fault)).map(|(_, number)| *number)
    }
}
