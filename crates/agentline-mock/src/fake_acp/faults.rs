//! What a fault is, and which ones a process has.

use std::env;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fault;

/// One way to err.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcpFault {
    /// What `FAKE_ACP_FAULT` is set to.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// A prompt that brings it out.
    pub prompt: &'static str,
    /// Which part of a conversation it is about.
    pub stage: FaultStage,
    pub(super) how: FaultAction,
}

impl AcpFault {
    /// Where it is nothing but a script: a prompt that brings it out on an agent without any fault.
    #[must_use]
    pub fn as_prompt(&self) -> Option<String> {
        match self.how {
            FaultAction::Instead(script) => Some(script.to_owned()),
            FaultAction::Before(script) => Some(before(script, self.prompt)),
            FaultAction::Flag(_) | FaultAction::Flags(_) => None,
        }
    }
}

/// A prompt with a script before it.
fn before(script: &str, prompt: &str) -> String {
    if super::words::is_script(prompt) {
        return format!("{script}\n{prompt}");
    }
    format!("{script}\nsay You said: {}", super::words::on_one_line(prompt))
}

/// The part of a conversation that a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultStage {
    /// The start and `initialize`.
    Start,
    /// `session/new`, `session/load`, modes and models.
    Session,
    /// The bytes and the JSON-RPC of every line.
    Lines,
    /// What an update says.
    Updates,
    /// What is told of tools.
    Tools,
    /// Requests for permission.
    Permission,
    /// Other requests of the agent: files, terminals.
    Requests,
    /// How a prompt is answered.
    Answer,
    /// Token counts.
    Usage,
    /// `session/cancel`.
    Cancel,
    /// The process itself.
    Process,
}

/// How a fault is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum FaultAction {
    /// The agent looks at this flag where it matters.
    Flag(FaultFlag),
    /// Several flags together.
    Flags(&'static [FaultFlag]),
    /// This script is played before that of each prompt.
    Before(&'static str),
    /// This script is played instead of that of each prompt.
    Instead(&'static str),
}

/// A behaviour that cannot be written as a script.
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

/// The faults of this process, each with the number behind its colon.
#[derive(Debug, Default)]
pub(super) struct ActiveFaults {
    faults: Vec<(&'static AcpFault, Option<u64>)>,
    /// How many prompts are still played with the scripts of faults; without it, all are.
    prompts: Option<AtomicU64>,
}

impl ActiveFaults {
    /// Reads the variables. A name that there is not is an error: a test that misspells it would prove nothing.
    pub(super) fn from_env() -> Result<Self, String> {
        let names = env::var("FAKE_ACP_FAULT").unwrap_or_default();
        let mut active = Self::parse(&names)?;
        if let Ok(prompts) = env::var("FAKE_ACP_FAULT_PROMPTS") {
            let prompts =
                prompts.parse().map_err(|_| format!("FAKE_ACP_FAULT_PROMPTS: `{prompts}` is no number"))?;
            active.prompts = Some(AtomicU64::new(prompts));
        }
        let Some(file) = env::var_os("FAKE_ACP_FAULT_ONCE") else { return Ok(active) };
        match OpenOptions::new().write(true).create_new(true).open(&file) {
            Ok(_) => Ok(active),
            Err(why) if why.kind() == ErrorKind::AlreadyExists => Ok(Self::default()),
            Err(why) => Err(format!("FAKE_ACP_FAULT_ONCE: {why}")),
        }
    }

    pub(super) fn parse(names: &str) -> Result<Self, String> {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let one = |name: &str| {
            let (name, number) = match name.split_once(':') {
                Some((name, number)) => {
                    (name, Some(number.parse().map_err(|_| format!("`{number}` is no number"))?))
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

    /// The number of a fault with this flag, or `usual` when it has none; nothing when there is no such fault.
    pub(super) fn number(&self, flag: FaultFlag, usual: u64) -> Option<u64> {
        self.find(flag).map(|number| number.unwrap_or(usual))
    }

    /// The script of a turn: that of the prompt, changed by the faults.
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
            match fault.how {
                FaultAction::Instead(text) => script = with_number(text),
                FaultAction::Before(text) => script = before(&with_number(text), &script),
                FaultAction::Flag(_) | FaultAction::Flags(_) => {}
            }
        }
        script
    }

    fn find(&self, flag: FaultFlag) -> Option<Option<u64>> {
        let has = |fault: &AcpFault| match fault.how {
            FaultAction::Flag(own) => own == flag,
            FaultAction::Flags(own) => own.contains(&flag),
            FaultAction::Before(_) | FaultAction::Instead(_) => false,
        };
        self.faults.iter().find(|(fault, _)| has(fault)).map(|(_, number)| *number)
    }
}
