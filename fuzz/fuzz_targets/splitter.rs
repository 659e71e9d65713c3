//! Checks that any bytes, split anywhere, give the same lines as a simple reading of the whole.
#![no_main]

use agentline_core::{LineSplitter, SplitItem};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, PartialEq)]
enum SplitLine {
    Line(String),
    TooLong(u64),
}

/// Returns the lines by a simple implementation that reads everything at once.
fn plainly(bytes: &[u8], cap: usize) -> Vec<SplitLine> {
    let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    // Text after the last line end is a line only if it is not empty.
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    let read = |(i, line): (usize, &&[u8])| {
        if line.len() > cap {
            return SplitLine::TooLong(line.len() as u64);
        }
        let line = if i == 0 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        SplitLine::Line(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
    };
    lines.iter().enumerate().map(read).collect()
}

fuzz_target!(|data: &[u8]| {
    let [cap, step, bytes @ ..] = data else { return };
    let (cap, step) = (usize::from(*cap) + 1, usize::from(*step) + 1);
    let mut splitter = LineSplitter::new(cap);
    let mut lines = Vec::new();
    let mut take = |piece: SplitItem<'_>| {
        lines.push(match piece {
            SplitItem::Line(text) => SplitLine::Line(text.into_owned()),
            SplitItem::TooLong { text, length } => {
                assert!(text.len() <= cap * 3, "more than was kept");
                SplitLine::TooLong(length)
            }
            other => panic!("unknown: {other:?}"),
        });
    };
    for piece in bytes.chunks(step) {
        splitter.push(piece, &mut take);
    }
    splitter.finish(&mut take);
    assert_eq!(lines, plainly(bytes, cap));
});
