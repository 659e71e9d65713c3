//! The tree of records in a session: each record names its predecessor, and an edited prompt starts a new branch.

use crate::{Entry, Role, SavedSession};
use std::collections::{HashMap, HashSet};

/// A record in the tree.
#[derive(Debug)]
struct Node {
    parent: Option<usize>,
    /// The number of the entry that contains the record.
    entry: Option<usize>,
}

/// The tree of records, and the positions of their entries. Entries are numbered in order of arrival, so that they can
/// be found after they are moved.
#[derive(Debug, Default)]
pub(super) struct Branches {
    nodes: Vec<Node>,
    by_uuid: HashMap<String, usize>,
    /// The end of the active branch.
    tip: Option<usize>,
    /// The numbers of the entries in the conversation, in order.
    active: Vec<usize>,
    /// The numbers of the abandoned entries, in order.
    left: Vec<usize>,
    numbers: usize,
}

impl Branches {
    /// Returns whether a record with this id was already read.
    pub(super) fn knows(&self, uuid: &str) -> bool {
        self.by_uuid.contains_key(uuid)
    }

    /// Adds a record after its parent and makes it the end of the conversation. If it begins a turn elsewhere than at
    /// the end, the entries after its parent are abandoned. A record with an unknown parent follows the current end.
    pub(super) fn grow(
        &mut self,
        session: &mut SavedSession,
        uuid: &str,
        parent: &str,
        begins: bool,
    ) -> usize {
        let parent = match self.by_uuid.get(parent) {
            Some(parent) => Some(*parent),
            // Only a prompt can be the root.
            None if parent.is_empty() && begins => None,
            None => self.tip,
        };
        if parent != self.tip {
            self.turn_to(session, parent, begins);
        }
        let node = self.add(uuid, parent);
        self.tip = Some(node);
        node
    }

    /// Adds a record that is not part of the main conversation.
    pub(super) fn add_sidechain(&mut self, uuid: &str, parent: &str) -> usize {
        let parent = self.by_uuid.get(parent).copied();
        self.add(uuid, parent)
    }

    fn add(&mut self, uuid: &str, parent: Option<usize>) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node { parent, entry: None });
        if !uuid.is_empty() {
            self.by_uuid.insert(uuid.to_owned(), node);
        }
        node
    }

    /// Appends an entry for a record and returns its number.
    pub(super) fn append_entry(&mut self, session: &mut SavedSession, node: usize, entry: Entry) -> usize {
        let number = self.numbers;
        self.numbers += 1;
        self.active.push(number);
        session.entries.push(entry);
        self.nodes[node].entry = Some(number);
        number
    }

    /// Marks an existing entry as containing this record too.
    pub(super) fn joins(&mut self, node: usize, number: usize) {
        self.nodes[node].entry = Some(number);
    }

    /// Returns an entry by its number, with its content loaded.
    pub(super) fn entry<'s>(&self, session: &'s mut SavedSession, number: usize) -> Option<&'s mut Entry> {
        let entry = match self.active.binary_search(&number) {
            Ok(at) => session.entries.get_mut(at),
            Err(_) => session.abandoned.get_mut(self.left.binary_search(&number).ok()?),
        }?;
        entry.load();
        Some(entry)
    }

    /// Moves the end of the conversation to another record.
    fn turn_to(&mut self, session: &mut SavedSession, tip: Option<usize>, begins: bool) {
        let (mut new, mut old) = (tip, self.tip);
        let (mut back, mut out) = (HashSet::new(), HashSet::new());
        // A record comes after its parent, so the one with the higher index cannot be an ancestor of the other.
        while new != old {
            let (side, set) = if new > old { (&mut new, &mut back) } else { (&mut old, &mut out) };
            let Some(node) = side.map(|node| &self.nodes[node]) else { break };
            set.extend(node.entry);
            *side = node.parent;
        }
        let shared = new.and_then(|node| self.nodes[node].entry);
        out.retain(|number| !back.contains(number) && Some(*number) != shared);
        back.retain(|number| self.left.binary_search(number).is_ok());
        // Results and notices of one answer may follow different blocks of it. This is not a new branch.
        let mut lost = out.iter().filter_map(|number| self.active.binary_search(number).ok());
        let spoken = lost.any(|at| {
            let entry = &session.entries[at];
            entry.role != Role::System && !entry.context && !entry.results_only
        });
        if !back.is_empty() || (begins && spoken) {
            self.swap(session, &out, &back);
        }
    }

    /// Moves entries out of the conversation and back into it.
    fn swap(&mut self, session: &mut SavedSession, out: &HashSet<usize>, back: &HashSet<usize>) {
        // Entries older than all moved ones stay in place, which keeps this fast in long sessions.
        let Some(least) = out.iter().chain(back).min() else { return };
        let at = self.active.partition_point(|number| number < least);
        let active = self.active.split_off(at).into_iter().zip(session.entries.split_off(at));
        let at = self.left.partition_point(|number| number < least);
        let left = self.left.split_off(at).into_iter().zip(session.abandoned.split_off(at));
        let (mut removed, mut stays): (Vec<_>, Vec<_>) = active.partition(|(number, _)| out.contains(number));
        for (number, entry) in left {
            if back.contains(&number) { &mut stays } else { &mut removed }.push((number, entry));
        }
        stays.sort_by_key(|(number, _)| *number);
        removed.sort_by_key(|(number, _)| *number);
        for (number, entry) in stays {
            self.active.push(number);
            session.entries.push(entry);
        }
        for (number, entry) in removed {
            self.left.push(number);
            session.abandoned.push(entry);
        }
    }
}
