//! Tracks which files a run changed: compares the reports of tools, confirmed by their results, with the disk.

use crate::{
    ChangeSource, Diff, DiskReport, FileChangeKind, FileRow, ToolFact, ToolKind, ToolStatus, ToolUse,
};
use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

/// A file that a tool call is expected to write.
#[derive(Clone, Debug)]
struct Claim {
    id: String,
    tool: String,
    kind: ToolKind,
    path: String,
    added: Option<u64>,
    removed: Option<u64>,
}

/// A tool call that may write files.
#[derive(Debug)]
struct Call {
    tool: String,
    kind: ToolKind,
    claims: Vec<Claim>,
    /// Whether its result confirmed the call.
    confirmed: bool,
}

/// The maximum length of the texts that are kept for diffs. With more, no diff is made from them.
const MAX_EDIT_BYTES: usize = 16 << 20;

/// Collects claims during a run, and compares them with the disk at its end.
#[derive(Default, Debug)]
pub(crate) struct ChangeTracker {
    calls: BTreeMap<String, Call>,
    confirmed: Vec<Claim>,
    shell: bool,
    /// Whether `edits` is kept.
    keeps_edits: bool,
    /// The changes that each successful call reported.
    edits: Vec<(String, Vec<Diff>)>,
    edit_bytes: usize,
}

impl ChangeTracker {
    /// Creates a tracker. `keeps_edits` says whether the texts of changes are needed.
    pub(crate) fn new(keeps_edits: bool) -> Self {
        Self { keeps_edits, ..Self::default() }
    }

    pub(crate) fn used(&mut self, tool: &ToolUse) {
        self.shell |= tool.kind == ToolKind::Shell;
        if matches!(tool.kind, ToolKind::Write | ToolKind::Edit) {
            let call =
                Call { tool: tool.name.clone(), kind: tool.kind, claims: Vec::new(), confirmed: false };
            self.calls.insert(tool.id.clone(), call);
            self.claim(&tool.id, tool.path.as_slice());
        }
    }

    pub(crate) fn result(&mut self, id: &str, status: ToolStatus, diffs: &[Diff]) {
        if status == ToolStatus::Ok {
            self.edited(id, diffs);
        }
        match self.calls.get_mut(id).filter(|call| !call.confirmed) {
            Some(call) if status == ToolStatus::Ok => {
                call.confirmed = true;
                self.confirmed.append(&mut call.claims);
            }
            Some(_) => drop(self.calls.remove(id)),
            None => {}
        }
    }

    /// Applies a later fact about a call. A cancelled call confirms nothing, regardless of its result.
    pub(crate) fn add_fact(&mut self, fact: &ToolFact) {
        if fact.cancelled {
            self.confirmed.retain(|c| c.id != fact.id);
            self.calls.remove(&fact.id);
            self.edits.retain(|(id, _)| *id != fact.id);
        } else if self.calls.get(&fact.id).is_some_and(|call| call.confirmed) {
            self.edited(&fact.id, &fact.diffs);
        }
        self.claim(&fact.id, &fact.paths);
        let open = self.calls.values_mut().flat_map(|call| &mut call.claims);
        for claim in self.confirmed.iter_mut().chain(open).filter(|c| c.id == fact.id) {
            claim.added = fact.added.or(claim.added);
            claim.removed = fact.removed.or(claim.removed);
        }
    }

    /// Records the files that a call is expected to write.
    fn claim(&mut self, id: &str, paths: &[String]) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let claims = if call.confirmed { &mut self.confirmed } else { &mut call.claims };
        for path in paths {
            if !claims.iter().any(|c| c.id == id && c.path == *path) {
                claims.push(Claim {
                    id: id.to_owned(),
                    tool: call.tool.clone(),
                    kind: call.kind,
                    path: path.clone(),
                    added: None,
                    removed: None,
                });
            }
        }
    }

    /// Keeps the changes of a call, as they were reported first.
    fn edited(&mut self, id: &str, diffs: &[Diff]) {
        if self.keeps_edits && !diffs.is_empty() && !self.edits.iter().any(|(known, _)| known == id) {
            self.edit_bytes +=
                diffs.iter().map(|d| d.new.len() + d.old.as_ref().map_or(0, String::len)).sum::<usize>();
            self.edits.push((id.to_owned(), diffs.to_vec()));
            // Without all changes of a file, its old content cannot be restored.
            if self.edit_bytes > MAX_EDIT_BYTES {
                self.edits.clear();
                self.keeps_edits = false;
            }
        }
    }

    /// Returns the changes that tools reported, in their order.
    pub(crate) fn edits(&self) -> Vec<Diff> {
        self.edits.iter().flat_map(|(_, diffs)| diffs).cloned().collect()
    }

    /// Returns the paths that tools reported, to be checked even outside the workspace.
    pub(crate) fn reported(&self) -> Vec<String> {
        self.confirmed.iter().map(|c| c.path.clone()).collect()
    }

    /// Returns the changed files, based on the disk and the confirmed claims.
    pub(crate) fn rows(&self, cwd: &str, disk: Option<&DiskReport>) -> Vec<FileRow> {
        let cwd = Path::new(cwd);
        let mut rows: BTreeMap<String, FileRow> = BTreeMap::new();
        let mut claims: BTreeMap<String, Vec<&Claim>> = BTreeMap::new();
        for claim in &self.confirmed {
            let spelled = disk.and_then(|d| d.spelled.get(&claim.path)).cloned();
            claims.entry(spelled.unwrap_or_else(|| within(cwd, &claim.path))).or_default().push(claim);
        }
        for change in disk.iter().flat_map(|d| &d.changes) {
            let path = within(cwd, &change.path);
            let claimed = claims.get(&path);
            let source = match claimed {
                Some(_) => ChangeSource::Tool,
                None if self.shell && !disk.is_some_and(|d| d.shared) => ChangeSource::Shell,
                None => ChangeSource::Unknown,
            };
            let mut row = row(&path, change.change, source, claimed);
            row.verified = change.verified;
            row.added = change.added.or(row.added);
            row.removed = change.removed.or(row.removed);
            row.diff.clone_from(&change.diff);
            rows.insert(path, row);
        }
        for (path, claimed) in &claims {
            if !rows.contains_key(path) {
                let kind = claimed.first().map_or(ToolKind::Edit, |c| c.kind);
                let change =
                    if kind == ToolKind::Write { FileChangeKind::Created } else { FileChangeKind::Modified };
                rows.insert(path.clone(), row(path, change, ChangeSource::Tool, Some(claimed)));
            }
        }
        rows.into_values().collect()
    }
}

fn row(path: &str, change: FileChangeKind, source: ChangeSource, claimed: Option<&Vec<&Claim>>) -> FileRow {
    let last = claimed.and_then(|c| c.last());
    let sum = |of: fn(&Claim) -> Option<u64>| {
        claimed.and_then(|c| c.iter().map(|c| of(c)).try_fold(0u64, |sum, n| Some(sum.saturating_add(n?))))
    };
    FileRow {
        path: path.to_owned(),
        change,
        source,
        tool: last.map(|c| c.tool.clone()),
        tool_use_id: last.map(|c| c.id.clone()),
        verified: false,
        added: sum(|c| c.added),
        removed: sum(|c| c.removed),
        diff: None,
    }
}

/// Normalizes a path: relative with `/` if inside the workspace, absolute otherwise.
///
/// The comparison is by path component, and `.` and `..` are resolved without accessing the disk.
pub(crate) fn within(cwd: &Path, path: &str) -> String {
    let absolute = cwd.join(path);
    let mut clean = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    match clean.strip_prefix(cwd) {
        Ok(inside) if !cwd.as_os_str().is_empty() && !inside.as_os_str().is_empty() => {
            let parts: Vec<_> = inside.components().map(|c| c.as_os_str().to_string_lossy()).collect();
            parts.join("/")
        }
        _ => clean.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskChange;

    fn write(id: &str, path: &str) -> ToolUse {
        ToolUse { path: Some(path.into()), ..ToolUse::new(id, "Write", "write_file", ToolKind::Write) }
    }

    fn disk(changes: &[(&str, FileChangeKind)]) -> DiskReport {
        DiskReport {
            changes: changes.iter().map(|(p, c)| DiskChange::new(*p, *c)).collect(),
            ..DiskReport::default()
        }
    }

    #[test]
    fn paths_are_compared_as_paths() {
        let cwd = Path::new("/w/a");
        assert_eq!(within(cwd, "/w/a/src/./b.rs"), "src/b.rs");
        assert_eq!(within(cwd, "src/../b.rs"), "b.rs");
        assert_eq!(within(cwd, "../a2/b.rs"), "/w/a2/b.rs");
        assert_eq!(within(cwd, "/w/ab"), "/w/ab");
        assert_eq!(within(Path::new(""), "/x/y"), "/x/y");
    }

    #[test]
    fn only_confirmed_claims_count_and_the_disk_is_authoritative() {
        let mut changes = ChangeTracker::default();
        for id in ["ok", "failed", "stopped", "lied"] {
            changes.used(&write(id, &format!("/w/{id}.txt")));
        }
        changes.result("ok", ToolStatus::Ok, &[]);
        changes.result("failed", ToolStatus::Error, &[]);
        changes.result("stopped", ToolStatus::Ok, &[]);
        changes.result("lied", ToolStatus::Ok, &[]);
        changes.add_fact(&ToolFact { cancelled: true, ..ToolFact::new("stopped") });
        let rows = changes.rows(
            "/w",
            Some(&disk(&[("ok.txt", FileChangeKind::Created), ("side.txt", FileChangeKind::Modified)])),
        );
        let reported: Vec<_> = rows.iter().map(|r| (r.path.as_str(), r.source, r.verified)).collect();
        assert_eq!(
            reported,
            [
                ("lied.txt", ChangeSource::Tool, false),
                ("ok.txt", ChangeSource::Tool, true),
                ("side.txt", ChangeSource::Unknown, true)
            ]
        );
    }

    #[test]
    fn call_may_report_several_files_late() {
        let mut changes = ChangeTracker::default();
        changes.used(&ToolUse::new("early", "Edit", "patch", ToolKind::Edit));
        let fact = |id: &str, paths: &[&str]| ToolFact {
            paths: paths.iter().map(|p| (*p).to_owned()).collect(),
            ..ToolFact::new(id)
        };
        changes.add_fact(&fact("early", &["/w/a", "/w/b", "/w/a"]));
        changes.result("early", ToolStatus::Ok, &[]);
        changes.add_fact(&fact("early", &["/w/b", "/w/c"]));
        changes.used(&write("failed", "/w/d"));
        changes.add_fact(&fact("failed", &["/w/e"]));
        changes.result("failed", ToolStatus::Error, &[]);
        changes.add_fact(&fact("failed", &["/w/f"]));
        changes.add_fact(&fact("unknown", &["/w/g"]));
        assert_eq!(changes.reported(), ["/w/a", "/w/b", "/w/c"]);
        changes.add_fact(&ToolFact { cancelled: true, ..ToolFact::new("early") });
        assert!(changes.reported().is_empty());
    }

    #[test]
    fn unclaimed_changes_are_attributed_to_the_shell_unless_shared() {
        let mut changes = ChangeTracker::default();
        changes.used(&ToolUse::new("s", "Bash", "run_shell_command", ToolKind::Shell));
        let mut disk = disk(&[("made.txt", FileChangeKind::Created)]);
        assert_eq!(changes.rows("/w", Some(&disk))[0].source, ChangeSource::Shell);
        disk.shared = true;
        assert_eq!(changes.rows("/w", Some(&disk))[0].source, ChangeSource::Unknown);
    }

    #[test]
    fn edits_of_successful_calls_are_kept_once_if_they_are_needed() {
        let edit = |text: &str| vec![Diff { path: "/w/a".into(), old: None, new: text.into() }];
        for needed in [false, true] {
            let mut changes = ChangeTracker::new(needed);
            for id in ["one", "failed", "stopped", "late"] {
                changes.used(&write(id, "/w/a"));
            }
            changes.result("one", ToolStatus::Ok, &edit("1"));
            changes.add_fact(&ToolFact { diffs: edit("again"), ..ToolFact::new("one") });
            changes.result("failed", ToolStatus::Error, &edit("2"));
            changes.add_fact(&ToolFact { diffs: edit("2"), ..ToolFact::new("failed") });
            changes.result("stopped", ToolStatus::Ok, &edit("3"));
            changes.add_fact(&ToolFact { cancelled: true, ..ToolFact::new("stopped") });
            changes.result("late", ToolStatus::Ok, &[]);
            changes.add_fact(&ToolFact { diffs: edit("4"), ..ToolFact::new("late") });
            let edits: Vec<String> = changes.edits().into_iter().map(|edit| edit.new).collect();
            assert_eq!(edits, if needed { vec!["1", "4"] } else { Vec::new() });
        }
    }

    #[test]
    fn kept_edits_are_limited() {
        let mut changes = ChangeTracker::new(true);
        let edits = [Diff { new: "x".repeat(MAX_EDIT_BYTES / 4), ..Diff::default() }];
        for id in ["a", "b", "c", "d"] {
            changes.edited(id, &edits);
        }
        assert_eq!(changes.edits().len(), 4);
        changes.edited("e", &edits);
        changes.edited("f", &edits);
        assert_eq!(changes.edits().len(), 0, "an incomplete chain of changes restores nothing");
    }
}
