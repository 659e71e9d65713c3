//! Compares two snapshots and returns every file that changed between them.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::fs::stamp::{FileKind, FileStamp};
use crate::workspace::snapshot::content::{self, KnownContent, ReadBudget};
use crate::workspace::snapshot::reported::{self, ReportedPath};
use crate::workspace::snapshot::{ChangeKind, Evidence, Snapshot, SnapshotChange, lines, rules};

/// The maximum number of bytes read to count lines.
const LINE_COUNT_BYTES: u64 = 64 * 1024 * 1024;

/// The result of a comparison.
pub(super) struct SnapshotDifference {
    pub(super) changes: Vec<SnapshotChange>,
    /// Whether the comparison finished before its deadline.
    pub(super) is_complete: bool,
}

pub(super) fn compare(
    before: &Snapshot,
    after: &Snapshot,
    reported: &[PathBuf],
    deadline: Option<Instant>,
) -> SnapshotDifference {
    let sorted = Sorted::of(before, after);
    let mut findings = Findings { before, list: Vec::new(), deadline, is_late: false };
    for number in &sorted.modified {
        let path = after.path(&after.entries[*number]);
        findings.add(ReportedPath::Inside(path.to_vec()), ChangeKind::Modified, Evidence::Compared);
    }
    findings.classify_removed(&sorted.removed);
    findings.classify_new(&sorted, after);
    findings.classify_reported(reported, after);
    findings.into_changes()
}

/// The entries of both snapshots, classified by comparing the two lists.
struct Sorted {
    /// Indexes of entries in the later snapshot.
    modified: Vec<usize>,
    /// Indexes of entries in the later snapshot.
    new: Vec<usize>,
    /// Indexes of entries in the earlier snapshot.
    removed: Vec<usize>,
    /// Whether the ignore rules are the same in both.
    same_rules: bool,
}

impl Sorted {
    fn of(before: &Snapshot, after: &Snapshot) -> Self {
        let mut sorted =
            Self { modified: Vec::new(), new: Vec::new(), removed: Vec::new(), same_rules: true };
        let (mut old, mut new) = (0, 0);
        loop {
            let order = match (before.entries.get(old), after.entries.get(new)) {
                (Some(one), Some(other)) => before.path(one).cmp(after.path(other)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return sorted,
            };
            let changed = match order {
                Ordering::Less => {
                    sorted.removed.push(old);
                    before.path(&before.entries[old])
                }
                Ordering::Greater => {
                    sorted.new.push(new);
                    after.path(&after.entries[new])
                }
                Ordering::Equal => {
                    let now = &after.entries[new];
                    if differs(before, old, &now.stamp) {
                        sorted.modified.push(new);
                        after.path(now)
                    } else {
                        &[]
                    }
                }
            };
            sorted.same_rules &= changed.rsplit(|byte| *byte == b'/').next() != Some(b".gitignore");
            old += usize::from(order.is_le());
            new += usize::from(order.is_ge());
        }
    }
}

/// Returns whether a file changed since an old entry, by the table in the documentation of the parent module.
fn differs(before: &Snapshot, old: usize, now: &FileStamp) -> bool {
    let entry = &before.entries[old];
    let was = &entry.stamp;
    let by_content = || before.known(old)?.differs(was.kind, &before.on_disk(before.path(entry)));
    if was.kind != now.kind {
        return true;
    }
    if was == now && !was.is_racy(before.began) && was.kind != FileKind::Link {
        return false;
    }
    let rewritten = was.modified != now.modified || (was.changed != now.changed && was.inode != now.inode);
    match was.kind {
        FileKind::Other => was.inode != now.inode && was.changed != now.changed,
        FileKind::Link => by_content().unwrap_or(rewritten),
        FileKind::File if was.size != now.size => true,
        FileKind::File => by_content().unwrap_or(rewritten),
    }
}

struct Findings<'a> {
    before: &'a Snapshot,
    list: Vec<(ReportedPath, ChangeKind, Evidence)>,
    deadline: Option<Instant>,
    is_late: bool,
}

impl Findings<'_> {
    /// Returns whether the deadline has passed.
    fn is_late(&mut self) -> bool {
        self.is_late |= self.deadline.is_some_and(|deadline| Instant::now() > deadline);
        self.is_late
    }

    fn add(&mut self, path: ReportedPath, kind: ChangeKind, evidence: Evidence) {
        self.list.push((path, kind, evidence));
    }

    /// Checks missing files on disk, because a file may be missing from the walk only because it became ignored or
    /// unreadable.
    fn classify_removed(&mut self, numbers: &[usize]) {
        for &number in numbers {
            if self.is_late() {
                return;
            }
            let path = self.before.path(&self.before.entries[number]);
            let kind = match self.before.on_disk(path).symlink_metadata() {
                Ok(metadata) => match FileStamp::of(&metadata) {
                    Some(now) => differs(self.before, number, &now).then_some(ChangeKind::Modified),
                    None => Some(ChangeKind::Deleted),
                },
                Err(error) => reported::is_missing(&error).then_some(ChangeKind::Deleted),
            };
            if let Some(kind) = kind {
                self.add(ReportedPath::Inside(path.to_vec()), kind, Evidence::Compared);
            }
        }
    }

    /// Checks new files. A file missing from the earlier walk did not exist, unless that walk was incomplete or the
    /// ignore rules changed since; then its times decide.
    fn classify_new(&mut self, sorted: &Sorted, after: &Snapshot) {
        let absence_is_proof = self.before.complete() && sorted.same_rules;
        let inode = |number: &usize| self.before.entries[*number].stamp.inode;
        let moved: HashSet<u64> =
            if absence_is_proof { HashSet::new() } else { sorted.removed.iter().map(inode).collect() };
        for &number in &sorted.new {
            if self.is_late() {
                return;
            }
            let entry = &after.entries[number];
            let path = after.path(entry);
            if absence_is_proof || moved.contains(&entry.stamp.inode) {
                self.add(ReportedPath::Inside(path.to_vec()), ChangeKind::Created, Evidence::Compared);
            } else if let Some((kind, evidence)) =
                reported::change_of(&after.on_disk(path), self.before.began)
            {
                self.add(ReportedPath::Inside(path.to_vec()), kind, evidence);
            }
        }
    }

    fn classify_reported(&mut self, paths: &[PathBuf], after: &Snapshot) {
        let paths: BTreeSet<_> = paths.iter().map(|path| ReportedPath::of(&self.before.root, path)).collect();
        let known: BTreeSet<_> = self.list.iter().map(|(path, ..)| path.clone()).collect();
        for path in paths.difference(&known) {
            if self.is_late() {
                return;
            }
            let found = match path {
                ReportedPath::Outside(path) => reported::change_of(path, self.before.began),
                ReportedPath::Inside(path) => self.classify_reported_inside(path, after),
            };
            if let Some((kind, evidence)) = found {
                self.add(path.clone(), kind, evidence);
            }
        }
    }

    fn classify_reported_inside(&self, path: &[u8], after: &Snapshot) -> Option<(ChangeKind, Evidence)> {
        let on_disk = self.before.on_disk(path);
        if self.before.find(path).is_some() || after.find(path).is_some() {
            let is_link = on_disk.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
            let behind = is_link.then(|| reported::through_link(&on_disk, self.before.began)).flatten();
            return behind.map(|kind| (kind, Evidence::Times));
        }
        let (kind, evidence) = reported::change_of(&on_disk, self.before.began)?;
        // A file in neither snapshot and not on disk never existed, unless the walk ignored it.
        let known_absent =
            evidence == Evidence::Missing && self.before.complete() && !self.is_hidden(&on_disk);
        (!known_absent).then_some((kind, evidence))
    }

    fn is_hidden(&self, on_disk: &Path) -> bool {
        let inside = on_disk.strip_prefix(&self.before.root);
        inside.is_ok_and(|inside| rules::hides(&self.before.root, inside))
    }

    fn into_changes(mut self) -> SnapshotDifference {
        let mut allowance = ReadBudget::new(LINE_COUNT_BYTES);
        let list = std::mem::take(&mut self.list);
        let mut changes: Vec<_> = list
            .into_iter()
            .map(|(path, kind, evidence)| {
                let counts = if self.is_late() {
                    (None, None)
                } else {
                    line_counts(self.before, &path, kind, &mut allowance)
                };
                SnapshotChange { path: path.spelled(), kind, evidence, added: counts.0, removed: counts.1 }
            })
            .collect();
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        SnapshotDifference { changes, is_complete: !self.is_late }
    }
}

/// Returns the number of added and removed lines, each if known.
fn line_counts(
    before: &Snapshot,
    path: &ReportedPath,
    kind: ChangeKind,
    allowance: &mut ReadBudget,
) -> (Option<u64>, Option<u64>) {
    let on_disk = match path {
        ReportedPath::Inside(path) => before.on_disk(path),
        ReportedPath::Outside(path) => path.clone(),
    };
    let mut may_read = || {
        let metadata = on_disk.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
        allowance.spend(metadata.len())
    };
    match kind {
        ChangeKind::Created => {
            let added = may_read().and_then(|()| content::line_count(&on_disk));
            (added, added.map(|_| 0))
        }
        ChangeKind::Deleted => (Some(0), old_content(before, path).and_then(lines::count)),
        ChangeKind::Modified => {
            let counts = old_content(before, path).and_then(|old| {
                may_read()?;
                lines::changed(old, &content::whole(&on_disk)?)
            });
            counts.unzip()
        }
    }
}

/// Returns the old content of a regular file, if it was kept.
pub(super) fn old_content<'a>(before: &'a Snapshot, path: &ReportedPath) -> Option<&'a [u8]> {
    let ReportedPath::Inside(path) = path else { return None };
    let number = before.find(path)?;
    match before.known(number)? {
        KnownContent::Whole(content) if before.entries[number].stamp.kind == FileKind::File => Some(content),
        KnownContent::Whole(_) | KnownContent::Fingerprint(_) => None,
    }
}
