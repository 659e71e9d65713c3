//! The messages between host and supervisor.
//!
//! The host sends one plan, then orders of one byte each. The supervisor replies with reports of a fixed size.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use super::{Enclosure, Isolation, ProcessEnd, ProcessExit, ProcessSignal, Spawn, StdoutMode, Supervisor};

/// The first field of a plan. Incompatible versions fail on it immediately.
const PROTOCOL_MAGIC: &[u8] = b"agentline-supervisor-6";

impl Spawn {
    /// Encodes the plan as NUL-terminated fields, or returns `None` if a field contains NUL.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(4096);
        let mut field = |parts: &[&[u8]]| {
            let whole = parts.iter().all(|part| !part.contains(&0));
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            bytes.push(0);
            whole
        };
        let mut whole = field(&[PROTOCOL_MAGIC]);
        whole &= field(&[self.mark.as_bytes()]);
        whole &= field(&[self.cwd.as_os_str().as_bytes()]);
        whole &= field(&[self.program.as_os_str().as_bytes()]);
        whole &= field(&[self.isolation.name().as_bytes()]);
        whole &= field(&[self.remove_on_host_death.len().to_string().as_bytes()]);
        for path in &self.remove_on_host_death {
            whole &= field(&[path.as_os_str().as_bytes()]);
        }
        // No enclosure has no visible directory.
        let enclosure = self.enclosure.clone().unwrap_or_default();
        whole &= field(&[enclosure.visible.as_os_str().as_bytes()]);
        whole &= field(&[if enclosure.starts_inside { b"inside" } else { b"below" }]);
        let [scratch, also_at] =
            [enclosure.scratch, enclosure.also_at].map(|path| path.into_iter().collect::<Vec<PathBuf>>());
        for paths in [&enclosure.covered, &enclosure.read_only, &scratch, &also_at] {
            whole &= field(&[paths.len().to_string().as_bytes()]);
            for path in paths {
                whole &= field(&[path.as_os_str().as_bytes()]);
            }
        }
        whole &= field(&[self.args.len().to_string().as_bytes()]);
        for arg in &self.args {
            whole &= field(&[arg.as_bytes()]);
        }
        for (key, value) in &self.env {
            whole &= field(&[key.as_bytes(), b"=", value.as_bytes()]);
        }
        whole.then_some(bytes)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let mut field = || fields.next();
        if field()? != PROTOCOL_MAGIC {
            return None;
        }
        let mark = String::from_utf8(field()?.to_vec()).ok()?;
        let cwd = OsStr::from_bytes(field()?).into();
        let program = OsStr::from_bytes(field()?).into();
        let isolation = Isolation::from_name(std::str::from_utf8(field()?).ok()?)?;
        let remove_on_host_death = list(&mut field)?.into_iter().map(PathBuf::from).collect();
        let visible = PathBuf::from(owned(field()?));
        let starts_inside = field()? == b"inside";
        let covered = list(&mut field)?.into_iter().map(PathBuf::from).collect();
        let read_only = list(&mut field)?.into_iter().map(PathBuf::from).collect();
        let scratch = list(&mut field)?.into_iter().map(PathBuf::from).next();
        let also_at = list(&mut field)?.into_iter().map(PathBuf::from).next();
        let enclosure = (!visible.as_os_str().is_empty()).then_some(Enclosure {
            covered,
            read_only,
            visible,
            also_at,
            starts_inside,
            scratch,
        });
        let args = list(&mut field)?;
        let env = fields.map(variable).collect::<Option<_>>()?;
        // The supervisor does not need the type of stdout, which the host has already opened, nor a supervisor of its
        // own, nor the API of the agent. It gets the file of the deadline with the streams.
        let (stdout, supervisor, http) = (StdoutMode::TailedFile, Supervisor::None, None);
        let kill_deadline = None;
        Some(Self {
            mark,
            cwd,
            program,
            args,
            env,
            isolation,
            http,
            remove_on_host_death,
            enclosure,
            kill_deadline,
            stdout,
            supervisor,
        })
    }
}

/// Reads a number and as many fields.
fn list<'a>(field: &mut impl FnMut() -> Option<&'a [u8]>) -> Option<Vec<OsString>> {
    let count: usize = std::str::from_utf8(field()?).ok()?.parse().ok()?;
    (0..count).map(|_| field().map(owned)).collect()
}

fn owned(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// Splits `KEY=value`. The key has at least one byte and may itself begin with `=`.
fn variable(field: &[u8]) -> Option<(OsString, OsString)> {
    let equals = 1 + field.get(1..)?.iter().position(|byte| *byte == b'=')?;
    Some((owned(&field[..equals]), owned(&field[equals + 1..])))
}

impl ProcessSignal {
    pub(super) const fn order(self) -> u8 {
        match self {
            Self::Interrupt => b'i',
            Self::Terminate => b't',
            Self::KillTree => b'k',
        }
    }

    pub(super) const fn from_code(order: u8) -> Option<Self> {
        match order {
            b'i' => Some(Self::Interrupt),
            b't' => Some(Self::Terminate),
            b'k' => Some(Self::KillTree),
            _ => None,
        }
    }
}

/// A report from the supervisor to the host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SupervisorReport {
    /// The agent runs.
    Started(StartedAgent),
    /// The agent could not be started; contains the system's error number.
    Refused(i32),
    /// The requested pid namespace could not be created; contains the system's error number.
    NoNamespace(i32),
    /// The agent has exited and its tree is dead.
    Done(ProcessEnd),
}

/// The process ids of a started agent, in the host's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartedAgent {
    /// The pid of the agent.
    pub(super) agent: u32,
    /// The pid of the init, the agent's parent.
    pub(super) init: u32,
    /// Whether the kernel kills everything when the init dies.
    pub(super) has_namespace: bool,
}

/// The size of every report on the wire, in bytes.
pub(super) const REPORT_SIZE: usize = 6 * 4;

impl SupervisorReport {
    pub(super) fn encode(self) -> [u8; REPORT_SIZE] {
        let words: [u32; 6] = match self {
            Self::Started(started) => [1, started.agent, started.init, started.has_namespace.into(), 0, 0],
            Self::Refused(errno) => [2, errno.cast_unsigned(), 0, 0, 0, 0],
            Self::NoNamespace(errno) => [4, errno.cast_unsigned(), 0, 0, 0, 0],
            Self::Done(ended) => {
                let (kind, number) = match ended.exit {
                    ProcessExit::Code(code) => (0, code),
                    ProcessExit::Signal(signal) => (1, signal),
                    ProcessExit::Lost => (2, 0),
                };
                let micros = u32::try_from(ended.supervisor_cpu.as_micros()).unwrap_or(u32::MAX);
                [3, kind, number.cast_unsigned(), ended.killed, ended.left, micros]
            }
        };
        let mut bytes = [0; REPORT_SIZE];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; REPORT_SIZE]) -> Option<Self> {
        let mut words = [0; 6];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().ok()?);
        }
        let [kind, first, second, killed, left, micros] = words;
        Some(match kind {
            1 => Self::Started(StartedAgent { agent: first, init: second, has_namespace: killed != 0 }),
            2 => Self::Refused(first.cast_signed()),
            3 => Self::Done(ProcessEnd {
                exit: match first {
                    0 => ProcessExit::Code(second.cast_signed()),
                    1 => ProcessExit::Signal(second.cast_signed()),
                    _ => ProcessExit::Lost,
                },
                killed,
                left,
                supervisor_cpu: Duration::from_micros(micros.into()),
            }),
            4 => Self::NoNamespace(first.cast_signed()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn plan() -> Spawn {
        let mut plan = Spawn::new("agent", "/tmp/a b", "run-1");
        plan.args = vec!["".into(), "-p".into(), OsString::from_vec(vec![0xff, b'='])];
        plan.env = BTreeMap::from([("A".into(), "x=y".into()), ("EMPTY".into(), "".into())]);
        plan.supervisor = Supervisor::None;
        plan.isolation = Isolation::None;
        plan.remove_on_host_death = vec!["/tmp/agentline-run-1".into(), "/tmp/b c".into()];
        plan.enclosure = Some(Enclosure {
            covered: vec!["/x".into(), "/y z".into()],
            read_only: vec!["/template".into()],
            visible: "/x/lane".into(),
            also_at: Some("/x/workspace".into()),
            starts_inside: true,
            scratch: Some("/x/tmp".into()),
        });
        plan
    }

    #[test]
    fn plan_round_trips() {
        assert_eq!(Spawn::decode(&plan().encode().unwrap()), Some(plan()));
        let bare = Spawn {
            args: vec![],
            env: BTreeMap::new(),
            remove_on_host_death: vec![],
            enclosure: None,
            ..plan()
        };
        assert_eq!(Spawn::decode(&bare.encode().unwrap()), Some(bare));
    }

    #[test]
    fn plan_with_nul_or_an_unknown_greeting_is_refused() {
        assert_eq!(Spawn { args: vec!["a\0b".into()], ..plan() }.encode(), None);
        let mut bytes = plan().encode().unwrap();
        bytes[0] = b'A';
        assert_eq!(Spawn::decode(&bytes), None);
        assert_eq!(Spawn::decode(b""), None);
    }

    #[test]
    fn reports_round_trip() {
        let ended =
            |exit| ProcessEnd { exit, killed: 3, left: 1, supervisor_cpu: Duration::from_micros(1234) };
        for report in [
            SupervisorReport::Started(StartedAgent { agent: 42, init: 41, has_namespace: true }),
            SupervisorReport::Refused(2),
            SupervisorReport::NoNamespace(1),
            SupervisorReport::Done(ended(ProcessExit::Code(173))),
            SupervisorReport::Done(ended(ProcessExit::Signal(9))),
            SupervisorReport::Done(ended(ProcessExit::Lost)),
        ] {
            assert_eq!(SupervisorReport::decode(&report.encode()), Some(report));
        }
        assert_eq!(SupervisorReport::decode(&[0xff; REPORT_SIZE]), None);
    }
}
