//! Generated text that is the same in every run.

/// Words of code and prose, some with characters that JSON escapes.
const WORDS: &[&str] = &[
    "function",
    "return",
    "value",
    "config",
    "parser",
    "error",
    "let",
    "mut",
    "struct",
    "impl",
    "async",
    "await",
    "the",
    "a",
    "of",
    "which",
    "should",
    "change",
    "file",
    "test",
    "session",
    "agent",
    "request",
    "answer",
    "token",
    "module",
    "library",
    "number",
    "string",
    "\"quoted\"",
    "path\\to\\file",
    "größe",
    "naïve",
    "日本語",
    "match",
    "client",
    "server",
    "handle",
    "buffer",
    "stream",
    "channel",
    "thread",
    "future",
    "result",
    "option",
    "vector",
    "iterator",
    "closure",
    "trait",
    "generic",
    "lifetime",
    "borrow",
    "owner",
    "drop",
    "panic",
    "unwrap",
    "expect",
    "assert",
    "debug",
    "print",
    "format",
    "write",
    "read",
    "open",
    "close",
    "flush",
    "seek",
    "sleep",
    "spawn",
    "join",
];

/// A source of words.
pub(super) struct WordSource(u64);

impl WordSource {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns another source, so that both can be used in turn.
    pub(super) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        // SplitMix64: short, and good enough for text.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below the limit.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("in range")
    }

    pub(super) fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }

    pub(super) fn sentence(&mut self, words: usize) -> String {
        let words: Vec<&str> = (0..words).map(|_| self.word()).collect();
        words.join(" ")
    }

    /// Returns lines of about ten words.
    pub(super) fn text(&mut self, words: usize) -> String {
        let mut text = String::new();
        for at in 0..words {
            text.push_str(if at == 0 {
                ""
            } else if at % 10 == 0 {
                "\n\t"
            } else {
                " "
            });
            text.push_str(self.word());
        }
        text
    }

    pub(super) fn hex(&mut self) -> String {
        format!("{:016x}", self.next())
    }

    pub(super) fn uuid(&mut self) -> String {
        let (a, b) = (self.hex(), self.hex());
        format!("{}-{}-4{}-a{}-{}", &a[..8], &a[8..12], &a[13..16], &b[1..4], &b[4..])
    }
}
