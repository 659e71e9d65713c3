//! Finds many words in one pass, with an Aho-Corasick automaton.
//!
//! The depth of a state gives the position at which a word that is not complete yet may have started.

use super::decode::fold;
use std::collections::VecDeque;

/// The initial state.
pub(super) const ROOT: u32 = 0;

#[derive(Clone)]
pub(super) struct Automaton {
    nodes: Vec<Node>,
    /// The children of the root.
    first: [u32; 256],
    deepest: u32,
    /// Pairs of bytes with which a word may start, one bit each: by the first byte, then the second.
    pairs: Vec<[u64; 4]>,
}

#[derive(Clone, Default)]
struct Node {
    byte: u8,
    /// The byte of the first child. Nearly every node has only one child.
    next: u8,
    depth: u32,
    /// The first child and the next sibling. 0 means none.
    child: u32,
    sibling: u32,
    /// The node of the longest proper suffix.
    fail: u32,
    /// The most likely next byte and its state: the first child, or the likely transition of the suffix.
    likely: (u8, u32),
    /// The length of the longest word that ends here. 0 means none.
    word: u32,
}

impl Automaton {
    pub(super) fn new(patterns: &[Vec<u8>]) -> Self {
        let mut nodes = Vec::with_capacity(1 + patterns.iter().map(Vec::len).sum::<usize>());
        nodes.push(Node::default());
        let mut automaton = Self { nodes, first: [ROOT; 256], deepest: 0, pairs: Vec::new() };
        for pattern in patterns {
            automaton.insert(pattern);
        }
        automaton.link();
        automaton.pair_up();
        automaton
    }

    /// Returns whether there are no words.
    pub(super) fn is_empty(&self) -> bool {
        self.deepest == 0
    }

    /// Returns the number of bytes without escapes before the first with which a word may start.
    pub(super) fn passed_over(&self, bytes: &[u8]) -> usize {
        if self.is_empty() {
            return bytes.len();
        }
        let may_start = |pair: &[u8]| {
            self.pairs[usize::from(pair[0])][usize::from(pair[1] >> 6)] >> (pair[1] & 63) & 1 == 1
        };
        // The word of the last byte may continue in the next text.
        bytes.windows(2).position(may_start).unwrap_or(bytes.len().saturating_sub(1))
    }

    fn pair_up(&mut self) {
        self.pairs = vec![[0; 4]; if self.is_empty() { 0 } else { 256 }];
        for first in 0..=u8::MAX {
            let Some(state) = fold(first).and_then(|byte| self.child(ROOT, byte)) else { continue };
            for second in 0..=u8::MAX {
                // A word continues after a line break or an escape.
                if fold(second).is_none_or(|byte| self.child(state, byte).is_some()) {
                    self.pairs[usize::from(first)][usize::from(second >> 6)] |= 1 << (second & 63);
                }
            }
        }
    }

    /// Returns the length of the longest word.
    pub(super) fn deepest(&self) -> usize {
        self.deepest as usize
    }

    /// Returns how many bytes of a word lead to this state.
    pub(super) fn depth(&self, state: u32) -> usize {
        self.nodes[state as usize].depth as usize
    }

    /// Returns the length of the longest word that ends in this state.
    pub(super) fn word(&self, state: u32) -> Option<usize> {
        let word = self.nodes[state as usize].word as usize;
        (word > 0).then_some(word)
    }

    /// Returns the state after one more byte.
    pub(super) fn next(&self, mut state: u32, byte: u8) -> u32 {
        let (likely, after) = self.nodes[state as usize].likely;
        if likely == byte && after != ROOT {
            return after;
        }
        while state != ROOT {
            if let Some(next) = self.child(state, byte) {
                return next;
            }
            state = self.nodes[state as usize].fail;
        }
        self.first[usize::from(byte)]
    }

    /// Returns the state of the longest proper suffix.
    pub(super) fn fallback(&self, state: u32) -> u32 {
        self.nodes[state as usize].fail
    }

    /// Returns the state in which the same word continues with this byte.
    pub(super) fn child(&self, state: u32, byte: u8) -> Option<u32> {
        if state == ROOT {
            return Some(self.first[usize::from(byte)]).filter(|next| *next != ROOT);
        }
        let node = &self.nodes[state as usize];
        if node.next == byte {
            return Some(node.child).filter(|child| *child != 0);
        }
        let mut next = node.child;
        while next != 0 {
            let node = &self.nodes[next as usize];
            if node.byte == byte {
                return Some(next);
            }
            next = node.sibling;
        }
        None
    }

    fn insert(&mut self, word: &[u8]) {
        let mut state = ROOT;
        for byte in word {
            state = self.child(state, *byte).unwrap_or_else(|| self.add(state, *byte));
        }
        let depth = self.nodes[state as usize].depth;
        self.nodes[state as usize].word = depth;
        self.deepest = self.deepest.max(depth);
    }

    fn add(&mut self, parent: u32, byte: u8) -> u32 {
        let added = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let Node { depth, child, .. } = self.nodes[parent as usize];
        self.nodes.push(Node { byte, depth: depth + 1, sibling: child, ..Node::default() });
        self.nodes[parent as usize].child = added;
        self.nodes[parent as usize].next = byte;
        if parent == ROOT {
            self.first[usize::from(byte)] = added;
        }
        added
    }

    fn link(&mut self) {
        let mut queue = VecDeque::from([ROOT]);
        while let Some(state) = queue.pop_front() {
            let mut child = self.nodes[state as usize].child;
            while child != 0 {
                let Node { byte, sibling, .. } = self.nodes[child as usize];
                if state != ROOT {
                    let fail = self.next(self.nodes[state as usize].fail, byte);
                    let Node { word: inherited, likely, .. } = self.nodes[fail as usize];
                    let node = &mut self.nodes[child as usize];
                    node.fail = fail;
                    node.likely = (node.next, node.child);
                    if node.child == 0 {
                        node.likely = likely;
                    }
                    node.word = node.word.max(inherited);
                }
                queue.push_back(child);
                child = sibling;
            }
        }
    }
}
