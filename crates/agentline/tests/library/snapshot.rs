//! Tests the changes that two snapshots of a workspace report.
#![expect(clippy::unwrap_used, reason = "a test must fail if its setup fails")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use agentline::internals::snapshot::{
    ChangeKind, Evidence, Snapshot, SnapshotChange, SnapshotOptions, line_count,
};
use tempfile::TempDir;

/// A workspace in a temporary directory, with space for files outside it.
struct Workspace {
    temp: TempDir,
    root: PathBuf,
}

impl Workspace {
    fn new(files: &[(&str, &str)]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap().join("workspace");
        fs::create_dir(&root).unwrap();
        let workspace = Self { temp, root };
        for (path, text) in files {
            workspace.write(path, text);
        }
        workspace
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn take(&self) -> Snapshot {
        Snapshot::take(&self.root, &SnapshotOptions::default())
    }

    /// Waits until the files are old enough that their times are reliable, then compares before and after the work.
    fn changes(&self, work: impl FnOnce(&Self)) -> Vec<SnapshotChange> {
        self.changes_with(&[], work)
    }

    fn changes_with(&self, reported: &[PathBuf], work: impl FnOnce(&Self)) -> Vec<SnapshotChange> {
        sleep(Duration::from_millis(250));
        let before = self.take();
        work(self);
        before.compare(&before.take_again(&SnapshotOptions::default()), reported)
    }

    /// Writes a file and takes a snapshot before its time is reliable, however busy the machine is.
    fn take_at_once(&self, path: &str, text: &str) -> Snapshot {
        for _ in 0..1000 {
            let start = Instant::now();
            self.write(path, text);
            if start.elapsed() < Duration::from_millis(20) {
                return self.take();
            }
        }
        panic!("each of 1000 writes of {path} took longer than 20 ms");
    }

    /// Makes the workspace too large for its contents to be kept.
    fn grow(&self) {
        self.write("large", &"filling\n".repeat(300_000));
    }
}

/// Returns the changes as one line each: a sign, the path, and a mark for results that are not from a comparison.
fn lines(changes: &[SnapshotChange]) -> Vec<String> {
    let line = |change: &SnapshotChange| {
        let sign = match change.kind {
            ChangeKind::Created => '+',
            ChangeKind::Modified => '~',
            ChangeKind::Deleted => '-',
        };
        let mark = match change.evidence {
            Evidence::Compared => "",
            Evidence::Times => " (times)",
            Evidence::Missing => " (missing)",
        };
        format!("{sign}{}{mark}", change.path)
    };
    changes.iter().map(line).collect()
}

#[test]
fn reports_created_modified_deleted_and_renamed() {
    let workspace = Workspace::new(&[
        ("same.txt", "same"),
        ("edited.txt", "one"),
        ("gone.txt", "x"),
        ("old/name.txt", "moved"),
        ("folder/a", "a"),
    ]);
    let changes = workspace.changes(|it| {
        it.write("new/file.txt", "1\n2\n3");
        it.write("edited.txt", "two");
        fs::remove_file(it.path("gone.txt")).unwrap();
        fs::rename(it.path("old/name.txt"), it.path("old/renamed.txt")).unwrap();
        fs::rename(it.path("folder"), it.path("moved-folder")).unwrap();
    });
    assert_eq!(
        lines(&changes),
        [
            "~edited.txt",
            "-folder/a",
            "-gone.txt",
            "+moved-folder/a",
            "+new/file.txt",
            "-old/name.txt",
            "+old/renamed.txt"
        ]
    );
    let counts = |path: &str| {
        changes
            .iter()
            .find(|change| change.path == path)
            .map(|change| (change.added, change.removed))
            .unwrap()
    };
    assert_eq!(counts("new/file.txt"), (Some(3), Some(0)));
    assert_eq!(counts("edited.txt"), (Some(1), Some(1)));
    assert_eq!(counts("gone.txt"), (Some(0), Some(1)));
    assert!(changes.iter().all(SnapshotChange::verified));
}

#[test]
fn large_workspace_reports_the_same_without_old_line_counts() {
    let workspace = Workspace::new(&[("edited.txt", "one"), ("gone.txt", "x"), ("same.txt", "x")]);
    workspace.grow();
    let changes = workspace.changes(|it| {
        it.write("new.txt", "1\n2\n");
        it.write("edited.txt", "two");
        fs::remove_file(it.path("gone.txt")).unwrap();
    });
    assert_eq!(lines(&changes), ["~edited.txt", "-gone.txt", "+new.txt"]);
    let counts: Vec<_> = changes.iter().map(|change| (change.added, change.removed)).collect();
    assert_eq!(counts, [(None, None), (Some(0), None), (Some(2), Some(0))]);
}

#[test]
fn no_change_is_an_empty_list() {
    let workspace = Workspace::new(&[("a", "a"), ("b/c", "c"), (".hidden", "h")]);
    assert_eq!(workspace.take().file_count(), 3);
    assert_eq!(workspace.changes(|_| ()), []);
}

#[test]
fn respects_nested_ignore_files_and_negation_without_a_repository() {
    let rules = [(".gitignore", "*.log\n/build/\n"), ("sub/.gitignore", "!keep.log\n*.tmp\n")];
    let workspace = Workspace::new(&rules);
    let changes = workspace.changes(|it| {
        for path in [
            "a.log",
            "build/out",
            "sub/build/in",
            "sub/keep.log",
            "sub/other.log",
            "sub/x.tmp",
            "x.tmp",
            ".env",
        ] {
            it.write(path, "x");
        }
    });
    assert_eq!(lines(&changes), ["+.env", "+sub/build/in", "+sub/keep.log", "+x.tmp"]);
}

#[test]
fn respects_a_repository_and_never_reads_its_git_directory() {
    let workspace = Workspace::new(&[
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/info/exclude", "secret.txt\n"),
        (".gitignore", "*.o\n"),
    ]);
    // Rules above the repository do not apply to it.
    fs::write(workspace.temp.path().join(".gitignore"), "*\n").unwrap();
    let changes = workspace.changes(|it| {
        for path in ["secret.txt", "main.o", "main.c", ".git/index", "inner/.git", "inner/file"] {
            it.write(path, "x");
        }
    });
    assert_eq!(lines(&changes), ["+inner/file", "+main.c"]);
}

#[test]
fn ignore_files_above_a_workspace_without_a_repository_do_not_apply() {
    let workspace = Workspace::new(&[]);
    fs::write(workspace.temp.path().join(".gitignore"), "*\n").unwrap();
    assert_eq!(lines(&workspace.changes(|it| it.write("file", "x"))), ["+file"]);
}

#[test]
fn subdirectory_uses_the_rules_of_its_repository_unless_it_is_ignored() {
    let repository = Workspace::new(&[(".git/HEAD", ""), (".gitignore", "*.log\n/scratch/*\n")]);
    let changed_in = |folder: &str| {
        fs::create_dir_all(repository.path(folder)).unwrap();
        let options = SnapshotOptions::default();
        let before = Snapshot::take(&repository.path(folder), &options);
        repository.write(&format!("{folder}/a.log"), "x");
        repository.write(&format!("{folder}/a.txt"), "x");
        lines(&before.compare(&Snapshot::take(&repository.path(folder), &options), &[]))
    };
    assert_eq!(changed_in("src"), ["+a.txt"]);
    assert_eq!(changed_in("scratch/run-1"), ["+a.log", "+a.txt"]);
}

#[test]
fn reported_paths_are_seen_even_if_ignored_or_outside() {
    let workspace = Workspace::new(&[
        (".gitignore", "/out/\n"),
        ("out/old.txt", "1"),
        ("out/untouched.txt", "1"),
        ("out/gone.txt", "1"),
        ("still/untouched.txt", "1"),
    ]);
    let outside = workspace.temp.path().canonicalize().unwrap().join("outside.txt");
    let reported = [
        workspace.path("out/old.txt"),
        PathBuf::from("out/new.txt"),
        workspace.path("out/untouched.txt"),
        workspace.path("./src/../out/gone.txt"),
        workspace.path("still/never-there.txt"),
        workspace.path("src/main.rs"),
        workspace.path("src"),
        outside.clone(),
        PathBuf::from("../outside.txt"),
        PathBuf::from("../nowhere/at-all.txt"),
    ];
    let changes = workspace.changes_with(&reported, |it| {
        it.write("out/old.txt", "2");
        it.write("out/new.txt", "1\n2\n");
        it.write("src/main.rs", "fn main() {}\n");
        it.write("out/unreported.txt", "x");
        fs::remove_file(it.path("out/gone.txt")).unwrap();
        fs::write(&outside, "x\n").unwrap();
    });
    let outside = outside.to_str().unwrap();
    let nowhere = Path::new(outside).with_file_name("nowhere").join("at-all.txt");
    assert_eq!(
        lines(&changes),
        [
            // Its directory was written to, so the file may have existed.
            format!("-{} (missing)", nowhere.to_str().unwrap()).as_str(),
            format!("+{outside} (times)").as_str(),
            "-out/gone.txt (missing)",
            "+out/new.txt (times)",
            "~out/old.txt (times)",
            "+src/main.rs",
        ]
    );
    assert_eq!(changes[3].added, Some(2));
    assert!(!changes[0].verified() && changes[1].verified());
}

#[test]
fn reported_temporary_file_is_not_a_deletion() {
    let workspace = Workspace::new(&[("a", "a")]);
    let changes = workspace.changes_with(&[PathBuf::from("note.tmp")], |it| {
        it.write("note.tmp", "x");
        fs::remove_file(it.path("note.tmp")).unwrap();
    });
    assert_eq!(changes, []);
}

#[test]
fn changed_ignore_rules_cause_no_false_changes() {
    let workspace = Workspace::new(&[
        (".gitignore", "*.log\n"),
        ("a.log", "1"),
        ("b.log", "1"),
        ("now-hidden.txt", "1"),
        ("hidden-and-edited.txt", "1"),
        ("dir/moved.txt", "1"),
    ]);
    let changes = workspace.changes(|it| {
        it.write(".gitignore", "*hidden*\n");
        it.write("a.log", "22");
        it.write("c.log", "new");
        it.write("hidden-and-edited.txt", "22");
        fs::rename(it.path("dir"), it.path("dir2")).unwrap();
    });
    assert_eq!(
        lines(&changes),
        [
            "~.gitignore",
            "~a.log (times)",
            "+c.log (times)",
            "-dir/moved.txt",
            "+dir2/moved.txt",
            "~hidden-and-edited.txt"
        ]
    );
}

#[test]
fn a_rewrite_of_the_same_size_within_a_clock_tick_is_seen() {
    for large in [false, true] {
        let workspace = Workspace::new(&[]);
        if large {
            workspace.grow();
        }
        for round in 0..20 {
            let before = workspace.take_at_once("racy.txt", "aaaa");
            let age = fs::metadata(workspace.path("racy.txt")).unwrap().modified().unwrap();
            workspace.write("racy.txt", "bbbb");
            // Old kernels and coarse file systems leave the time unchanged; on others, the test resets it.
            File::options().write(true).open(workspace.path("racy.txt")).unwrap().set_modified(age).unwrap();
            assert_eq!(lines(&before.compare(&workspace.take(), &[])), ["~racy.txt"], "round {round}");
        }
    }
}

#[test]
fn touched_file_is_a_change_unless_its_content_is_known() {
    let workspace = Workspace::new(&[("file", "text")]);
    let touch = |it: &Workspace, day: u64| {
        let file = File::options().write(true).open(it.path("file")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * day)).unwrap();
    };
    let rewrite = |it: &Workspace| it.write("file", "text");
    assert_eq!(workspace.changes(|it| touch(it, 1)), []);
    assert_eq!(workspace.changes(rewrite), []);
    workspace.grow();
    assert_eq!(lines(&workspace.changes(|it| touch(it, 2))), ["~file"]);
    assert_eq!(lines(&workspace.changes(rewrite)), ["~file"]);
    // It was written a moment ago, so it has a fingerprint.
    let before = workspace.take_at_once("file", "text");
    touch(&workspace, 3);
    assert_eq!(before.compare(&workspace.take(), &[]), []);
}

#[test]
fn file_and_directory_can_replace_each_other() {
    let workspace = Workspace::new(&[("thing", "file"), ("other/inside", "x")]);
    let changes = workspace.changes(|it| {
        fs::remove_file(it.path("thing")).unwrap();
        it.write("thing/inside", "x");
        fs::remove_dir_all(it.path("other")).unwrap();
        it.write("other", "file");
    });
    assert_eq!(lines(&changes), ["+other", "-other/inside", "-thing", "+thing/inside"]);
}

#[test]
fn limits_stop_the_walk_and_are_reported() {
    let workspace = Workspace::new(&[]);
    for number in 0..200 {
        workspace.write(&format!("folder-{}/file-{number}", number % 7), "x");
    }
    let few = Snapshot::take(&workspace.root, &SnapshotOptions::default().max_files(50));
    assert_eq!((few.file_count(), few.truncated()), (50, true));
    let quick = Snapshot::take(&workspace.root, &SnapshotOptions::default().max_time(Duration::ZERO));
    assert!(quick.truncated());
    let exact = Snapshot::take(&workspace.root, &SnapshotOptions::default().max_files(200));
    assert_eq!((exact.file_count(), exact.truncated()), (200, false));
}

#[test]
fn files_missed_by_a_limited_walk_are_compared_by_times() {
    let workspace = Workspace::new(&[("a", "1"), ("b", "1"), ("c", "1")]);
    sleep(Duration::from_millis(250));
    let before = Snapshot::take(&workspace.root, &SnapshotOptions::default().max_files(0));
    workspace.write("b", "22");
    workspace.write("d", "new");
    assert_eq!(lines(&before.compare(&workspace.take(), &[])), ["~b (times)", "+d (times)"]);
}

#[test]
fn large_directory_uses_little_memory() {
    let workspace = Workspace::new(&[]);
    for number in 0..5_000 {
        fs::write(workspace.path(&format!("file-{number}")), "").unwrap();
    }
    let changes = workspace.changes(|it| {
        fs::remove_file(it.path("file-4321")).unwrap();
        it.write("file-5000", "x");
    });
    assert_eq!(lines(&changes), ["-file-4321", "+file-5000"]);
    let snapshot = workspace.take();
    assert_eq!(snapshot.file_count(), 5_000);
    assert!(snapshot.memory() < 5_000 * 150, "{} bytes", snapshot.memory());
}

#[test]
fn a_missing_workspace_is_an_empty_snapshot() {
    let workspace = Workspace::new(&[]);
    let before = Snapshot::take(&workspace.path("not/there"), &SnapshotOptions::default());
    assert_eq!((before.file_count(), before.skipped()), (0, 1));
}

#[test]
fn counts_lines_of_text_only() {
    let workspace =
        Workspace::new(&[("empty", ""), ("two", "a\nb\n"), ("open", "a\nb"), ("binary", "a\n\0b")]);
    let count = |path: &str| line_count(&workspace.path(path));
    assert_eq!((count("empty"), count("two"), count("open")), (Some(0), Some(2), Some(2)));
    assert_eq!((count("binary"), count("absent"), count(".")), (None, None, None));
}

#[test]
fn formats_paths_like_changes() {
    let workspace = Workspace::new(&[("a/b", "x")]);
    let snapshot = workspace.take();
    assert_eq!(snapshot.spell(&workspace.path("a/./c/../b")), "a/b");
    assert_eq!(snapshot.spell(Path::new("not/yet/there")), "not/yet/there");
    assert_eq!(snapshot.spell(Path::new("/nowhere/x")), "/nowhere/x");
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_change_of_mode_is_not_a_change_of_content() {
        let workspace = Workspace::new(&[("script", "#!/bin/sh\n")]);
        let set_mode = |it: &Workspace, mode| {
            fs::set_permissions(it.path("script"), fs::Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(workspace.changes(|it| set_mode(it, 0o755)), []);
        workspace.grow();
        assert_eq!(workspace.changes(|it| set_mode(it, 0o700)), []);
    }

    #[test]
    fn a_file_replaced_by_one_of_the_same_age_and_size_is_modified() {
        let workspace = Workspace::new(&[("file", "aaaa")]);
        workspace.grow();
        let changes = workspace.changes(|it| {
            let age = fs::metadata(it.path("file")).unwrap().modified().unwrap();
            it.write("file.new", "bbbb");
            File::options().write(true).open(it.path("file.new")).unwrap().set_modified(age).unwrap();
            fs::rename(it.path("file.new"), it.path("file")).unwrap();
        });
        assert_eq!(lines(&changes), ["~file"]);
    }

    #[test]
    fn links_are_recorded_and_never_followed() {
        let workspace = Workspace::new(&[("folder/file", "x")]);
        let far = workspace.temp.path().canonicalize().unwrap().join("far");
        fs::create_dir(&far).unwrap();
        fs::write(far.join("outside"), "x").unwrap();
        symlink("..", workspace.path("folder/loop")).unwrap();
        symlink("self", workspace.path("self")).unwrap();
        symlink(&far, workspace.path("way-out")).unwrap();
        symlink("nothing", workspace.path("dangling")).unwrap();
        symlink("one", workspace.path("turned")).unwrap();
        assert_eq!(workspace.take().file_count(), 6);

        let reported = [workspace.path("way-out/outside")];
        let changes = workspace.changes_with(&reported, |it| {
            fs::write(far.join("outside"), "changed").unwrap();
            fs::remove_file(it.path("turned")).unwrap();
            symlink("two", it.path("turned")).unwrap();
            fs::remove_file(it.path("dangling")).unwrap();
            fs::write(it.path("dangling"), "now a file\n").unwrap();
        });
        let outside = format!("~{} (times)", far.join("outside").to_str().unwrap());
        assert_eq!(lines(&changes), [outside.as_str(), "~dangling", "~turned"]);
    }

    #[test]
    fn a_write_through_a_reported_link_is_seen() {
        let workspace = Workspace::new(&[]);
        let target = workspace.temp.path().join("target.txt");
        fs::write(&target, "x").unwrap();
        symlink(&target, workspace.path("link.txt")).unwrap();
        let reported = [workspace.path("link.txt")];
        let changes = workspace.changes_with(&reported, |_| fs::write(&target, "longer").unwrap());
        assert_eq!(lines(&changes), ["~link.txt (times)"]);
    }

    #[test]
    fn workspace_may_be_given_through_a_link() {
        let workspace = Workspace::new(&[("a", "1")]);
        let alias = workspace.temp.path().join("alias");
        symlink(&workspace.root, &alias).unwrap();
        sleep(Duration::from_millis(250));
        let before = Snapshot::take(&alias, &SnapshotOptions::default());
        workspace.write("a", "22");
        let reported = [alias.join("a"), workspace.path("a")];
        assert_eq!(lines(&before.compare(&workspace.take(), &reported)), ["~a"]);
        assert_eq!(before.spell(&alias.join("a")), "a");
    }

    #[test]
    fn pipes_and_sockets_are_not_opened() {
        let workspace = Workspace::new(&[]);
        let changes = workspace.changes(|it| {
            let status = Command::new("mkfifo").arg(it.path("pipe")).status().unwrap();
            assert!(status.success());
            drop(std::os::unix::net::UnixListener::bind(it.path("socket")).unwrap());
        });
        assert_eq!(lines(&changes), ["+pipe", "+socket"]);
        assert!(changes.iter().all(|change| change.added.is_none()));
    }

    #[test]
    fn unusual_names_are_shown_without_panics() {
        let workspace = Workspace::new(&[]);
        let changes = workspace.changes(|it| {
            fs::write(it.root.join(OsStr::from_bytes(b"caf\xe9.txt")), "x\n").unwrap();
            it.write("two\nlines", "x\n");
            it.write(" -rf *", "x\n");
        });
        assert_eq!(lines(&changes), ["+ -rf *", "+caf\u{fffd}.txt", "+two\nlines"]);
        assert!(changes.iter().all(|change| change.added == Some(1)));
    }

    /// Root can read everything, so the test runs itself again as an unprivileged user.
    #[test]
    fn unreadable_entries_are_skipped_and_counted() {
        const INSIDE: &str = "AGENTLINE_TEST_UNREADABLE_WORKSPACE";
        if let Some(root) = std::env::var_os(INSIDE) {
            scan_as_unprivileged_user(Path::new(&root));
            return;
        }
        let workspace = Workspace::new(&[("open/file", "x"), ("closed/file", "x"), ("unreadable", "x")]);
        for folder in [workspace.temp.path(), &workspace.root, &workspace.path("open")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
        }
        fs::set_permissions(workspace.path("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(workspace.path("unreadable"), fs::Permissions::from_mode(0o000)).unwrap();
        if fs::read_dir(workspace.path("closed")).is_err() {
            scan_as_unprivileged_user(&workspace.root);
        } else {
            // This user may not be able to read the build directory either.
            let copy = workspace.temp.path().join("test");
            fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
            let mut command = Command::new(&copy);
            std::os::unix::process::CommandExt::uid(&mut command, 65534);
            command.current_dir(workspace.temp.path()).env(INSIDE, &workspace.root);
            command.args([
                "--exact",
                "snapshot::unix::unreadable_entries_are_skipped_and_counted",
                "--nocapture",
            ]);
            let output = command.output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && stdout.contains("1 passed"), "{output:?}");
        }
        fs::set_permissions(workspace.path("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn scan_as_unprivileged_user(root: &Path) {
        sleep(Duration::from_millis(250));
        let take = || Snapshot::take(root, &SnapshotOptions::default());
        let before = take();
        assert_eq!((before.file_count(), before.skipped(), before.truncated()), (2, 1, false));
        fs::write(root.join("open/new"), "x").unwrap();
        assert_eq!(lines(&before.compare(&take(), &[])), ["+open/new (times)"]);
    }
}
