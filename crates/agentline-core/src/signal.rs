//! The signals with which a caller cancels a run.

use serde::{Deserialize, Serialize};

/// The signal with which a caller cancels a run. It decides the text of the outcome and the exit code of the program.
///
/// It serializes as its number, so that tapes are readable without this type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "i32", from = "i32")]
pub enum Signal {
    /// An interrupt, as Ctrl-C sends it (SIGINT, 2).
    Interrupt,
    /// A request to terminate (SIGTERM, 15).
    Terminate,
    /// The agent is killed at once (SIGKILL, 9), unless other runs use its process.
    Kill,
}

impl Signal {
    /// Returns the conventional name of the signal.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }

    /// Returns the number of the signal on Unix.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Interrupt => 2,
            Self::Terminate => 15,
            Self::Kill => 9,
        }
    }
}

impl From<Signal> for i32 {
    fn from(signal: Signal) -> Self {
        signal.number()
    }
}

impl From<i32> for Signal {
    /// Converts the number of a signal. Every number except 9 and 15 counts as an interrupt.
    fn from(number: i32) -> Self {
        match number {
            9 => Self::Kill,
            15 => Self::Terminate,
            _ => Self::Interrupt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_is_a_number_in_json() {
        for (signal, text) in [(Signal::Interrupt, "2"), (Signal::Terminate, "15"), (Signal::Kill, "9")] {
            assert_eq!(serde_json::to_string(&signal).unwrap(), text);
            assert_eq!(serde_json::from_str::<Signal>(text).unwrap(), signal);
        }
        assert_eq!(serde_json::from_str::<Signal>("1").unwrap(), Signal::Interrupt);
    }
}
