//! Decodes a text byte by byte, so that a secret has the same form in every spelling.
//!
//! Handles JSON escapes at any nesting depth (`\u0061`, `\\\\u0061`, `\/`) and percent-encoding (`%61`). A run of
//! backslashes is read once.

/// A decoded byte and the range of the text that encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) byte: u8,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Decodes JSON escapes.
#[derive(Clone, Debug, Default)]
pub(super) struct Unescape {
    state: Escape,
    /// The start of the escape.
    start: usize,
    /// The high surrogate of a pair, with its start.
    high: Option<(u16, usize)>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Escape {
    #[default]
    None,
    /// One or more backslashes.
    Slashes,
    /// A `u` with up to four digits, which are kept in case they are not an escape.
    Unicode { digits: [u8; 4], count: usize, at: usize },
}

impl Unescape {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, Escape::None) && self.high.is_none()
    }

    /// Returns whether further backslashes have no effect.
    pub(super) fn is_in_slashes(&self) -> bool {
        matches!(self.state, Escape::Slashes)
    }

    pub(super) fn push(&mut self, byte: u8, at: usize, each: &mut impl FnMut(Unit)) {
        match self.state {
            Escape::None if byte == b'\\' => (self.state, self.start) = (Escape::Slashes, at),
            Escape::None => self.emit(Unit { byte, start: at, end: at + 1 }, each),
            Escape::Slashes => self.after_slashes(byte, at, each),
            Escape::Unicode { mut digits, count, at: from } if byte.is_ascii_hexdigit() => {
                digits[count] = byte;
                if count < 3 {
                    self.state = Escape::Unicode { digits, count: count + 1, at: from };
                } else {
                    self.state = Escape::None;
                    self.code_unit(number(&digits), at + 1, each);
                }
            }
            Escape::Unicode { .. } => {
                self.flush_escape(each);
                self.push(byte, at, each);
            }
        }
    }

    /// Handles the end of the text: an incomplete escape is literal text.
    pub(super) fn finish(&mut self, each: &mut impl FnMut(Unit)) {
        self.flush_escape(each);
        self.lone_surrogate(each);
    }

    fn after_slashes(&mut self, byte: u8, at: usize, each: &mut impl FnMut(Unit)) {
        let end = at + 1;
        let unit = match byte {
            b'\\' => return,
            b'u' => {
                self.state = Escape::Unicode { digits: [0; 4], count: 0, at };
                return;
            }
            b'n' => Unit { byte: b'\n', start: self.start, end },
            b't' => Unit { byte: b'\t', start: self.start, end },
            b'r' => Unit { byte: b'\r', start: self.start, end },
            b'b' => Unit { byte: 8, start: self.start, end },
            b'f' => Unit { byte: 12, start: self.start, end },
            // This is not an escape; the backslashes are skipped.
            _ if byte.is_ascii_alphanumeric() || byte >= 0x80 => Unit { byte, start: at, end },
            _ => Unit { byte, start: self.start, end },
        };
        self.state = Escape::None;
        self.emit(unit, each);
    }

    fn code_unit(&mut self, code: u16, end: usize, each: &mut impl FnMut(Unit)) {
        if (0xd800..0xdc00).contains(&code) {
            self.lone_surrogate(each);
            self.high = Some((code, self.start));
            return;
        }
        let (high, start) = self.high.take().map_or((None, self.start), |(high, start)| (Some(high), start));
        let units = high.into_iter().chain([code]);
        // An escaped backslash is skipped like any other.
        for c in
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).filter(|c| *c != '\\')
        {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| each(Unit { byte, start, end }));
        }
    }

    fn emit(&mut self, unit: Unit, each: &mut impl FnMut(Unit)) {
        self.lone_surrogate(each);
        each(unit);
    }

    fn lone_surrogate(&mut self, each: &mut impl FnMut(Unit)) {
        if let Some((_, start)) = self.high.take() {
            each(Unit { byte: 0xff, start, end: start + 1 });
        }
    }

    fn flush_escape(&mut self, each: &mut impl FnMut(Unit)) {
        if let Escape::Unicode { digits, count, at } = std::mem::take(&mut self.state) {
            self.emit(Unit { byte: b'u', start: at, end: at + 1 }, each);
            for (i, byte) in (at + 1..).zip(&digits[..count]) {
                each(Unit { byte: *byte, start: i, end: i + 1 });
            }
        }
    }
}

fn number(digits: &[u8]) -> u16 {
    digits.iter().filter_map(|d| char::from(*d).to_digit(16)).fold(0, |n, d| n << 4 | d as u16)
}

/// Returns whether an escape starts here, as far as the text is known.
pub(super) fn is_escape(text: &[u8]) -> bool {
    match text {
        [b'\\', ..] => true,
        [b'%', after @ ..] => may_be_encoded(after),
        _ => false,
    }
}

/// Returns whether the text after a percent sign may be an encoded byte, as far as the text is known.
fn may_be_encoded(after: &[u8]) -> bool {
    match after {
        [] | [b'\\', ..] => true,
        [first, rest @ ..] => {
            let goes_on = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'\\';
            first.is_ascii_hexdigit() && rest.first().is_none_or(goes_on)
        }
    }
}

/// An escape at the start of a text.
pub(super) struct Escaped {
    /// The decoded byte. `None` for an escaped backslash, which is skipped like any other.
    pub(super) byte: Option<u8>,
    /// The start of the encoded byte: after the backslashes, if they escape nothing.
    pub(super) start: usize,
    pub(super) length: usize,
}

impl Escaped {
    fn new(byte: u8, start: usize, length: usize) -> Self {
        Self { byte: Some(byte).filter(|byte| *byte != b'\\'), start, length }
    }
}

/// Decodes a complete JSON escape of an ASCII character. Returns `None` if the state machine is needed.
#[inline]
pub(super) fn json_escape(text: &[u8]) -> Option<Escaped> {
    if text.first() != Some(&b'\\') {
        return None;
    }
    let slashes = 1 + text[1..].iter().take_while(|byte| **byte == b'\\').count();
    let spelled = match *text.get(slashes)? {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'u' => return unicode_escape(slashes, &text[slashes + 1..]),
        // The state machine handles this case.
        b'%' => return None,
        byte if byte.is_ascii_alphanumeric() || byte >= 0x80 => {
            return Some(Escaped::new(byte, slashes, slashes + 1));
        }
        byte => byte,
    };
    Some(Escaped::new(spelled, 0, slashes + 1))
}

/// Decodes the text after a number of backslashes and a `u`.
fn unicode_escape(slashes: usize, text: &[u8]) -> Option<Escaped> {
    let mut code = 0;
    for at in 0..4 {
        // The next piece of the text may continue with a digit.
        match HEX[usize::from(*text.get(at)?)] {
            Some(digit) => code = code << 4 | u16::from(digit),
            None => return Some(Escaped::new(b'u', slashes, slashes + 1)),
        }
    }
    let byte = u8::try_from(code).ok().filter(|byte| byte.is_ascii() && *byte != b'%')?;
    Some(Escaped::new(byte, 0, slashes + 5))
}

/// Decodes a percent-encoded byte at the start of a text.
#[inline]
pub(super) fn percent_escape(text: &[u8]) -> Option<Escaped> {
    let [b'%', first, second, ..] = text else { return None };
    let byte = HEX[usize::from(*first)]? << 4 | HEX[usize::from(*second)]?;
    Some(Escaped::new(byte, 0, 3))
}

/// The values of hexadecimal digits.
static HEX: [Option<u8>; 256] = {
    let mut values = [None; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value];
        values[digit as usize] = Some(value as u8);
        values[digit.to_ascii_uppercase() as usize] = Some(value as u8);
        value += 1;
    }
    values
};

/// Decodes percent-encoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Percent {
    sign: Option<Unit>,
    digit: Option<Unit>,
}

impl Percent {
    pub(super) fn is_idle(&self) -> bool {
        self.sign.is_none()
    }

    pub(super) fn push(&mut self, unit: Unit, each: &mut impl FnMut(Unit)) {
        match (self.sign, self.digit) {
            (Some(_), None) if unit.byte.is_ascii_hexdigit() => self.digit = Some(unit),
            (Some(sign), Some(digit)) if unit.byte.is_ascii_hexdigit() => {
                *self = Self::default();
                let byte = number(&[digit.byte, unit.byte]) as u8;
                // An encoded backslash is skipped like any other.
                if byte != b'\\' {
                    each(Unit { byte, start: sign.start, end: unit.end });
                }
            }
            (Some(_), _) => {
                self.finish(each);
                self.push(unit, each);
            }
            (None, _) if unit.byte == b'%' => self.sign = Some(unit),
            (None, _) => each(unit),
        }
    }

    /// Handles the end of the text: an incomplete encoding is literal text.
    pub(super) fn finish(&mut self, each: &mut impl FnMut(Unit)) {
        let (sign, digit) = (self.sign.take(), self.digit.take());
        sign.into_iter().chain(digit).for_each(each);
    }
}

/// Folds a decoded byte for comparison: lower case, with one form for both base64 alphabets.
///
/// Returns `None` for line breaks, because base64, hex and PEM texts are wrapped.
pub(super) fn fold(byte: u8) -> Option<u8> {
    FOLDED[usize::from(byte)]
}

static FOLDED: [Option<u8>; 256] = {
    let mut folded = [None; 256];
    let mut byte = 0;
    while byte < 256 {
        folded[byte] = match byte as u8 {
            b'\n' | b'\r' => None,
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            byte => Some(byte.to_ascii_lowercase()),
        };
        byte += 1;
    }
    folded
};

/// Decodes and folds a whole text.
pub(super) fn folded(text: &[u8]) -> Vec<u8> {
    let (mut unescape, mut percent, mut units) = (Unescape::default(), Percent::default(), Vec::new());
    for (at, byte) in text.iter().enumerate() {
        unescape.push(*byte, at, &mut |unit| units.push(unit));
    }
    unescape.finish(&mut |unit| units.push(unit));
    let mut bytes = Vec::new();
    for unit in units {
        percent.push(unit, &mut |unit| bytes.extend(fold(unit.byte)));
    }
    percent.finish(&mut |unit| bytes.extend(fold(unit.byte)));
    bytes
}
