//! Reads single keys from the terminal while a question is open.

use std::{
    io::{self, Read},
    thread,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// How the terminal delivers what is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypingMode {
    /// Every key immediately, without showing it. What was typed before is discarded.
    Keys,
    /// Complete lines, edited and shown by the terminal itself.
    Lines,
}

/// Starts to read from standard input. Returns the characters as they arrive, or `None` without a thread.
pub(crate) fn start() -> Option<UnboundedReceiver<char>> {
    let (typed, characters) = unbounded_channel();
    // The thread is never joined, because a read from a terminal cannot be cancelled.
    let read = move || {
        let (mut input, mut buffer, mut incomplete) = (io::stdin().lock(), [0; 256], Vec::new());
        while let Ok(length @ 1..) = input.read(&mut buffer) {
            // A function key sends a sequence that starts like the Escape key. It is not an answer.
            if length > 1 && buffer[0] == 0x1b {
                continue;
            }
            incomplete.extend_from_slice(&buffer[..length]);
            for character in decode(&mut incomplete) {
                if typed.send(character).is_err() {
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("keyboard".into()).spawn(read).ok()?;
    Some(characters)
}

/// Removes the complete characters from the beginning of bytes. Bytes that are not UTF-8 are dropped.
fn decode(bytes: &mut Vec<u8>) -> Vec<char> {
    let mut characters = Vec::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                characters.extend(text.chars());
                bytes.clear();
                return characters;
            }
            Err(error) => {
                let (valid, invalid) = (error.valid_up_to(), error.error_len());
                characters.extend(String::from_utf8_lossy(&bytes[..valid]).chars());
                bytes.drain(..valid + invalid.unwrap_or(0));
                if invalid.is_none() {
                    return characters;
                }
            }
        }
    }
}

/// Changes how the terminal delivers what is typed. Where that is not possible, it delivers lines.
pub(crate) fn set_mode(mode: TypingMode) {
    #[cfg(unix)]
    unix::set_mode(mode);
    #[cfg(not(unix))]
    let _ = mode;
}

/// Returns whether a key is delivered without being shown.
pub(crate) fn hides_keys() -> bool {
    cfg!(unix)
}

#[cfg(unix)]
mod unix {
    use super::TypingMode;
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
    use std::sync::{Mutex, PoisonError};

    /// The settings of the terminal before the first question.
    static ORIGINAL: Mutex<Option<Termios>> = Mutex::new(None);

    pub(super) fn set_mode(mode: TypingMode) {
        let stdin = std::io::stdin();
        let mut original = ORIGINAL.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a terminal there is nothing to set.
        match mode {
            TypingMode::Lines => {
                if let Some(settings) = original.take() {
                    let _ = tcsetattr(&stdin, OptionalActions::Now, &settings);
                }
            }
            TypingMode::Keys => {
                let Ok(mut settings) = tcgetattr(&stdin) else { return };
                original.get_or_insert_with(|| settings.clone());
                settings.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
                settings.special_codes[SpecialCodeIndex::VMIN] = 1;
                settings.special_codes[SpecialCodeIndex::VTIME] = 0;
                let _ = tcsetattr(&stdin, OptionalActions::Flush, &settings);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_decoded_across_reads() {
        let mut bytes = "aé".as_bytes()[..2].to_vec();
        assert_eq!(decode(&mut bytes), ['a']);
        bytes.extend_from_slice(&[0xa9, 0xff, b'b']);
        assert_eq!(decode(&mut bytes), ['é', 'b']);
        assert!(bytes.is_empty());
    }
}
