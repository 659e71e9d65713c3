//! Which records of a session are its conversation: each names the one before it, and a prompt that is edited begins a
//! new branch beside the old one.

use crate::{Entry, Role, SavedSession};
use std::collections::{HashMap, HashSet};

/// A record that others may follow.
#[derive(Debug)]
struct Node {
    parent: Option<usize>,
    /// The entry that tells it, by its number.
    entry: Option<usize>,
}

/// The tree of the records, and where its entries are. Entries are numbered as they come, so that one is found wherever
/// it is moved.
#[derive(Debug, Default)]
pub(super) struct Branches {
    nodes: Vec<Node>,
    by_uuid: HashMap<String, usize>,
    /// The end of the active branch.
    tip: Option<usize>,
    /// The numbers of the entries of the conversation, as they stand there.
    active: Vec<usize>,
    /// The numbers of those that were left behind.
    left: Vec<usize>,
    numbers: usize,
}

impl Branches {
    /// Whether a record with this id was there before.
    pub(super) fn knows(&self, uuid: &str) -> bool {
        self.by_uuid.contains_key(uuid)
    }

    /// Takes a record into the tree behind another, and makes it the end of the conversation. A record that begins a turn
    /// elsewhere than at the end leaves behind what came after that place. One whose forerunner was lost follows the end.
    pub(super) fn grow(
        &mut self,
        session: &mut SavedSession,
        uuid: &str,
        parent: &str,
        begins: bool,
    ) -> usize {
        let parent = match self.by_uuid.get(parent) {
            Some(parent) => Some(*parent),
            // Only a prompt can stand at the beginning of all.
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

    /// Takes a record into the tree that is no part of the main conversation.
    pub(super) fn beside(&mut self, uuid: &str, parent: &str) -> usize {
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

    /// Adds an entry at the end that tells a record; gives its number.
    pub(super) fn tell(&mut self, session: &mut SavedSession, node: usize, entry: Entry) -> usize {
        let number = self.numbers;
        self.numbers += 1;
        self.active.push(number);
        session.entries.push(entry);
        self.nodes[node].entry = Some(number);
        number
    }

    /// Notes that an entry tells this record, too.
    pub(super) fn joins(&mut self, node: usize, number: usize) {
        self.nodes[node].entry = Some(number);
    }

    /// An entry by its number, with its content.
    pub(super) fn entry<'s>(&self, session: &'s mut SavedSession, number: usize) -> Option<&'s mut Entry> {
        let entry = match self.active.binary_search(&number) {
            Ok(at) => session.entries.get_mut(at),
            Err(_) => session.abandoned.get_mut(self.left.binary_search(&number).ok()?),
        }?;
        entry.load();
        Some(entry)
    }

    /// Makes another place the end of the conversation.
    fn turn_to(&mut self, session: &mut SavedSession, place: Option<usize>, begins: bool) {
        let (mut new, mut old) = (place, self.tip);
        let (mut back, mut out) = (HashSet::new(), HashSet::new());
        // A record stands behind the one that it follows, so the later of the two cannot be above the other.
        while new != old {
            let (side, set) = if new > old { (&mut new, &mut back) } else { (&mut old, &mut out) };
            let Some(node) = side.map(|node| &self.nodes[node]) else { break };
            set.extend(node.entry);
            *side = node.parent;
        }
        let shared = new.and_then(|node| self.nodes[node].entry);
        out.retain(|number| !back.contains(number) && Some(*number) != shared);
        back.retain(|number| self.left.binary_search(number).is_ok());
        // Results and notices of one answer may follow different blocks of it. That is no other branch.
        let mut lost = out.iter().filter_map(|number| self.active.binary_search(number).ok());
        let spoken = lost.any(|at| session.entries[at].role != Role::System && !session.entries[at].context);
        if !back.is_empty() || (begins && spoken) {
            self.swap(session, &out, &back);
        }
    }

    /// Moves entries out of the conversation and back into it.
    fn swap(&mut self, session: &mut SavedSession, out: &HashSet<usize>, back: &HashSet<usize>) {
        // What is older than all of them stays where it is, however long the session is.
        let Some(least) = out.iter().chain(back).min() else { return };
        let at = self.active.partition_point(|number| number < least);
        let active = self.active.split_off(at).into_iter().zip(session.entries.split_off(at));
        let at = self.left.partition_point(|number| number < least);
        let left = self.left.split_off(at).into_iter().zip(session.abandoned.split_off(at));
        let (mut gone, mut stays): (Vec<_>, Vec<_>) = active.partition(|(number, _)| out.contains(number));
        for (number, entry) in left {
            if back.contains(&number) { &mut stays } else { &mut gone }.push((number, entry));
        }
        stays.sort_by_key(|(number, _)| *number);
        gone.sort_by_key(|(number, _)| *number);
        for (number, entry) in stays {
            self.active.push(number);
            session.entries.push(entry);
        }
        for (number, entry) in gone {
            self.left.push(number);
            session.abandoned.push(entry);
        }
    }
}
